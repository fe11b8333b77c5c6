"""Models of every kind, odd ones above all, and every welfare: what is printed as proven is true.

The independent side is the convex hull of the returns of all deterministic policies, and SciPy's linear programs over
it: neither column generation nor the (k, t, d) form of sums is used. EVENHAND_FUZZ says what share of them is tried.
"""

import collections
import itertools
import signal

import numpy as np
import pytest

import evenhand as eh
from budget import LOTS, share_of
from evenhand.errors import Infeasible, InputError
from models import (
    AVERAGE,
    KINDS,
    Raw,
    best_sum,
    brute_evaluate,
    corners,
    horizon,
    hull_program,
    question,
    random_ggf,
    sparse,
    theta,
)

MODELS = share_of(3_000)
CHUNK = 20
SECONDS = 120  # for one solve, on a machine ten times as slow as it should be
GAMMAS = (0.0, 0.5, 0.9, 0.999, AVERAGE, AVERAGE)
TEXTS = ("ggf", "ggf:10", "utilitarian", "maximin", "regularized-maximin:0.01", "leximin", "nash", "alpha:0.5")
STEEP = ("alpha:2", "alpha:50")


# Odd models


def whole(rng, S, A, D):
    """Small whole numbers: ties and degenerate programs."""
    return sparse(rng, S, A, D).with_rewards(rng.integers(-2, 7, (S, A, D)))


def one_state(rng, S, A, D):
    return Raw(np.ones((A, 1, 1)), rng.integers(0, 7, (1, A, D)).astype(float), np.ones(1))


def all_equal(rng, S, A, D):
    return sparse(rng, S, A, D).with_rewards(np.full((S, A, D), rng.choice([1000.0, 0.1, 1 / 3, 1e-7])))


def hardly_differing(rng, S, A, D):
    return sparse(rng, S, A, D).with_rewards(1000 + rng.integers(0, 10, (S, A, D)) * 10.0 ** rng.integers(-10, -5))


def odd_units(rng, S, A, D):
    return sparse(rng, S, A, D).with_rewards(rng.random((S, A, D)) * 10.0 ** rng.choice([-300, -150, -12, 8, 150, 190]))


def unlike_users(rng, S, A, D):
    """What one user counts in millions, another counts in millionths."""
    return sparse(rng, S, A, D).with_rewards(rng.random((S, A, D)) * 10.0 ** rng.integers(-6, 7, D))


def nearly_decomposable(rng, S, A, D):
    raw = sparse(rng, S, A, D)
    leak = 10.0 ** rng.integers(-16, -3)
    return raw._replace(transitions=(1 - leak) * raw.transitions + leak / raw.sizes[0])


ALL = (*KINDS, whole, one_state, all_equal, hardly_differing, odd_units, unlike_users, nearly_decomposable)


def model(seed):
    rng = np.random.default_rng(seed)
    kind = ALL[seed % len(ALL)]
    A = int(rng.integers(1, 4))
    S = int(rng.integers(1, 6))
    while A**S > 81:
        S -= 1
    D = int(rng.choice([1, 2, 2, 3, 3, 4, 5, 8]))
    return rng, kind(rng, S, A, D)


# What is true, from the corners


def ggf_rival(Z, weights):
    D = len(weights)
    rows = [
        np.concatenate([-weights[k] * Z[:, i], np.eye(D)[k], np.eye(D)[i]])
        for k, i in itertools.product(range(D), repeat=2)
    ]
    return hull_program(Z, np.ones(2 * D), np.array(rows), np.zeros(D * D))[0] @ Z


def smooth_rival(Z, alpha, z, steps=400):
    """From z uphill over the hull by conditional gradients: None once nothing is left to gain."""

    def gradient(v):
        return (v.min() / v) ** alpha

    for _ in range(steps):
        g = gradient(z)
        to = Z[np.argmax(Z @ g)]
        if (to - z) @ g <= 1e-14 * np.abs(Z).max() * g.sum():
            break
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            there = z + middle * (to - z)
            rising = (there > 0).all() and gradient(there) @ (to - z) > 0
            low, high = (middle, high) if rising else (low, middle)
        z = z + low * (to - z)
    return z


# The judgement


class Late(Exception):
    """It did not end in time."""


def late(*_):
    raise Late


def judge(raw, welfare, gamma, counts):
    """Solve, and hold the answer against what is true."""
    Z = corners(raw, gamma)
    size = float(np.abs(Z).max()) or 1.0
    tiny = 1e-13 * size * (horizon(gamma) if gamma != AVERAGE else 10)
    try:
        solution = eh.solve(raw.model(), welfare, progress=False, **question(gamma))
    except Infeasible:
        best = best_sum(Z / size, 1)
        assert best.min() <= 1e-9, "refused, although everyone can have something"
        counts["infeasible"] += 1
        return
    except InputError as refusal:
        counts[type(refusal).__name__] += 1
        return
    counts[solution.status] += 1
    assert np.isfinite(solution.returns).all()
    there = brute_evaluate(raw, solution.policy, gamma)
    assert np.abs(there - solution.returns).max() <= 1e-7 * size, "the policy does not bring what is said"
    z, low = solution.returns, float(Z.min())
    spread = float(np.ptp(Z)) or 1.0
    scaled = np.unique((Z - low) / spread, axis=0)
    if isinstance(welfare, eh.Leximin):
        mine = (z - low) / spread
        for k in range(1, welfare.D + 1):
            rival = best_sum(scaled, k, theta(mine))
            if rival is None or (theta(rival)[: k - 1] < theta(mine)[: k - 1]).any():
                continue  # it does not reach the earlier sums
            gain = (theta(rival)[k - 1] - theta(mine)[k - 1]) * spread
            assert gain <= k * (solution.gap + tiny), f"stage {k}: {gain} is more than {k} × {solution.gap}"
    elif isinstance(welfare, eh.GGF):
        try:
            rival = low + spread * ggf_rival(scaled, welfare.weights)
        except AssertionError:  # SciPy's own solver gave up
            counts["not judged"] += 1
            return
        gain = float(welfare.value(rival)) - solution.welfare
        assert gain <= solution.gap + tiny, f"{gain} is more than {solution.gap}"
    else:
        alpha = 1.0 if isinstance(welfare, eh.Nash) else welfare.alpha
        rival, reached = smooth_rival(Z / size, alpha, z / size), z / size
        gain = equivalent(rival, alpha) - equivalent(reached, alpha)
        allowed = gap_in_returns(solution, welfare, alpha, size)
        assert gain <= allowed + tiny / size, f"{gain} is more than {allowed}"


def equivalent(v, alpha):
    base = v.min()
    p = 1 - alpha
    return base * (np.mean((v / base) ** p) ** (1 / p) if p else np.exp(np.mean(np.log(v / base))))


def gap_in_returns(solution, welfare, alpha, size):
    """By how much the equivalent in units of `size` may grow until the welfare has grown by the gap."""
    if not np.isfinite(solution.gap) or abs(solution.welfare) < 1e-300:
        return float(solution.note.rsplit(" ", 1)[1].rstrip(".")) * 1.1 / size
    level = equivalent(solution.returns / size, alpha)
    p = 1 - alpha
    if p < 0 and solution.gap >= -solution.welfare:
        return np.inf  # the welfare of everyone getting any amount is below 0
    growth = solution.gap if not p else np.log1p(solution.gap / solution.welfare) / p
    return level * np.expm1(growth)


@pytest.mark.parametrize("chunk", range(-(-MODELS // CHUNK)))
def test_nothing_that_is_proven_is_false(chunk, record_property):
    """No mixture of deterministic policies beats welfare + gap, and each solve ends, with an answer or a sentence."""
    counts, wrong = collections.Counter(), []
    before = signal.signal(signal.SIGALRM, late)
    try:
        for seed in range(LOTS + chunk * CHUNK, LOTS + min((chunk + 1) * CHUNK, MODELS)):
            rng, raw = model(seed)
            D = raw.sizes[2]
            gamma = GAMMAS[int(rng.integers(len(GAMMAS)))]
            for welfare in (*(eh.welfare(text, D) for text in (*TEXTS, *STEEP)), random_ggf(rng, D)):
                signal.alarm(SECONDS)
                try:
                    judge(raw, welfare, gamma, counts)
                except Exception as error:
                    wrong.append(f"model {seed}, {welfare.name}, γ = {gamma}: {type(error).__name__}: {error}")
                finally:
                    signal.alarm(0)
    finally:
        signal.signal(signal.SIGALRM, before)
    record_property("solved", dict(counts))
    print(dict(counts))
    assert not wrong, "\n".join(wrong)
    assert counts["not judged"] <= 0.02 * counts.total()
