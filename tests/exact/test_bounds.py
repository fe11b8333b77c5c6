"""Error bounds: the published one as stated, where it fails and where it holds; the rigorous ones, which never fail."""

import dataclasses

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings

import evenhand as eh
from evenhand.exact import bounds, chain, examples
from models import (
    KINDS,
    UNICHAIN,
    Raw,
    absorbing,
    chain_of,
    communicating,
    dense,
    long_run,
    multichain,
    random_ggf,
    small,
)

W = eh.GGF([2 / 3, 1 / 3])
RIGOROUS = ("rigorous", "rigorous_inf", "rigorous_2", "kakade", "certificate")
NUMBERS = ("true_gap", "published", "corollary", *RIGOROUS)
seeds = st.integers(0, 2**32 - 1)
discounts = st.sampled_from([0.3, 0.6, 0.8, 0.9, 0.97, 0.99, 0.999, 0.9999]) | st.floats(0.3, 0.9999)


def examined(count):
    return settings(max_examples=count)


def same(bound, other, **tolerances):
    """Whether two results have the same numbers, and None in the same places."""
    pairs = [(getattr(bound, name), getattr(other, name)) for name in NUMBERS]
    return bound.applicable == other.applicable and all(
        a is b if None in (a, b) else a == pytest.approx(b, **tolerances) for a, b in pairs
    )


def slack(raw):
    """What rounding may add: both solutions are exact to 1e-10 of the span."""
    return 1e-9 * max(raw.span, np.abs(raw.rewards).max())


def rho(gamma, size):
    return size / (gamma - (1 - gamma) * size)


def dense_deviation(P):
    """H from P* by repeated squaring: nothing of evenhand's."""
    limit = long_run(P)
    return np.linalg.inv(np.eye(len(P)) - P + limit) - limit


# The published bound, exactly as stated


@examined(25)
@given(seeds, st.sampled_from(UNICHAIN), st.sampled_from([0.3, 0.7, 0.9, 0.99, 0.999]))
def test_published_bound_and_its_condition_as_stated(seed, kind, gamma):
    """R̄(1 − γ)(ρ(γ, σ(H_π1)) + ρ(γ, σ(H_πγ))) for γ > σ/(σ + 1), recomputed with dense matrices."""
    raw = small(kind, seed, D=1 + seed % 4)
    w = eh.GGF.geometric(raw.sizes[2])
    bound = eh.error_bound(raw.model(), w, gamma)
    deviations = [dense_deviation(chain_of(raw, s.policy)[0]) for s in (bound.average, bound.discounted)]
    radii = [np.abs(np.linalg.eigvals(H)).max() for H in deviations]
    assume(all(abs(gamma - r / (r + 1)) > 1e-6 for r in radii))
    assert bound.applicable == all(gamma > r / (r + 1) for r in radii)
    assert (bound.published is None) == (not bound.applicable)
    if not bound.applicable:
        assert bound.corollary is None
        return
    terms = (1 - gamma) * sum(rho(gamma, r) for r in radii)
    largest = np.abs(raw.rewards).max(axis=1)  # over the actions: [S, D]
    assert bound.published == pytest.approx(largest.sum(axis=0).max() * terms, rel=1e-6)
    if raw.sizes[2] == 1:
        assert bound.corollary == pytest.approx(np.sqrt((largest**2).sum()) * terms, rel=1e-6)
    else:
        assert bound.corollary is None


def test_reward_norm_is_the_largest_over_policies():
    """R̄ = max_π ‖R_π‖₁, the largest column sum, found by trying all deterministic policies."""
    raw = dense(np.random.default_rng(3), 4, 3, 2).with_rewards(np.random.default_rng(4).normal(size=(4, 3, 2)))
    policies = np.stack(np.meshgrid(*[range(3)] * 4)).reshape(4, -1).T
    tried = [np.linalg.norm(raw.rewards[np.arange(4), actions], 1) for actions in policies]
    bound = eh.error_bound(raw.model(), W, 0.99)
    P = [chain_of(raw, s.policy)[0] for s in (bound.average, bound.discounted)]
    terms = 0.01 * sum(rho(0.99, np.abs(np.linalg.eigvals(dense_deviation(p))).max()) for p in P)
    assert bound.published / terms == pytest.approx(max(tried), rel=1e-6)


@pytest.mark.parametrize(("size", "gamma"), [(0.0, 0.5), (1.0, 0.6), (3.0, 0.8), (9.0, 0.95)])
def test_rho_is_the_geometric_series(size, gamma):
    series = sum(((1 - gamma) / gamma * size) ** n for n in range(1, 3000))
    assert (1 - gamma) * bounds.rho(gamma, size) == pytest.approx(series)


def test_rho_condition():
    assert bounds.rho(0.5, 1.0) is None  # γ > σ/(1 + σ) is strict
    assert bounds.rho(0.5, 0.999) is not None
    assert bounds.rho(0.0, 0.0) is None


# Where it fails


@pytest.mark.parametrize(("n", "gamma"), [(4, 0.9), (9, 0.9), (20, 0.97), (50, 0.99), (100, 0.99), (500, 0.999)])
def test_published_bound_fails_on_the_chain(n, gamma):
    """By hand: σ(H) = 1 for both policies, R̄ = 1 + r, and the gap is 1 − r, with r = γ^(n+1) and a little more."""
    model = examples.chain(n, gamma)
    bound = eh.error_bound(model, "ggf", gamma)
    r = float(model.rewards[0, 0, 0])
    assert gamma ** (n + 1) < r < gamma ** (n + 1) * (1 + 2e-6)
    assert bound.applicable
    assert bound.true_gap == pytest.approx(1 - r, rel=1e-9)
    assert bound.published == pytest.approx((1 + r) * 2 * (1 - gamma) / (2 * gamma - 1), rel=1e-9)
    assert bound.corollary == pytest.approx(np.sqrt(1 + r**2) * 2 * (1 - gamma) / (2 * gamma - 1), rel=1e-9)
    assert bound.published < bound.true_gap
    assert bound.corollary < bound.true_gap
    assert bound.rigorous == pytest.approx(1 - gamma ** (n + 1), rel=1e-8)  # TV of the walk; staying has none
    assert bound.rigorous == pytest.approx(bound.true_gap, abs=2e-6)  # equal, up to what r exceeds γ^(n+1)
    assert bound.certificate == pytest.approx(bound.true_gap, rel=1e-8)
    assert bound.kakade is None  # the walk has the eigenvalue 0 many times
    for name in ("rigorous_inf", "rigorous_2"):
        assert getattr(bound, name) is None or getattr(bound, name) >= bound.true_gap


def test_numbers_of_the_theory_page():
    bound = eh.error_bound(examples.chain(50, 0.99), "ggf", 0.99)
    assert (round(bound.true_gap, 3), round(bound.published, 3)) == (0.401, 0.033)


def test_published_bound_fails_by_any_factor():
    """As γ → 1 with n(1 − γ) fixed the gap stays, and the published bound goes to nothing."""
    ratios = []
    for n in (9, 90, 900):
        gamma = 1 - 1 / (n + 1)
        bound = eh.error_bound(examples.chain(n, gamma), "ggf", gamma)
        assert 0.63 < bound.true_gap < 0.66  # 1 − 1/e, in the limit
        ratios.append(bound.true_gap / bound.published)
    assert ratios[0] < ratios[1] / 5
    assert ratios[1] < ratios[2] / 5


# Where it holds: H normal, so that its norm is its spectral radius


@st.composite
def normal_models(draw):
    """All actions share one transition matrix: symmetric, or circulant (normal and, with one weight, periodic)."""
    S, A, D = draw(st.integers(2, 6)), draw(st.integers(2, 3)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(seeds))
    if draw(st.booleans()):
        weights = rng.random((S, S)) * (rng.random((S, S)) < 0.6)
        weights = np.triu(weights, 1) + np.triu(weights, 1).T + np.roll(np.eye(S), 1, 0) + np.roll(np.eye(S), -1, 0)
        P = np.eye(S) + (weights - np.diag(weights.sum(axis=1))) / (1.0001 * weights.sum(axis=1).max())
    else:
        row = rng.dirichlet(np.ones(S)) if draw(st.booleans()) else np.eye(S)[1]
        P = np.array([np.roll(row, s) for s in range(S)])
    start = np.eye(S)[rng.integers(S)] if draw(st.booleans()) else rng.dirichlet(np.ones(S))
    return Raw(np.array([P] * A), rng.normal(size=(S, A, D)), start)


@examined(25)
@given(normal_models(), discounts, seeds)
def test_published_bound_holds_where_deviations_are_normal(raw, gamma, seed):
    bound = eh.error_bound(raw.model(), random_ggf(np.random.default_rng(seed), raw.sizes[2]), gamma)
    H = dense_deviation(raw.transitions[0])
    np.testing.assert_allclose(H @ H.T, H.T @ H, atol=1e-6 * np.abs(H).max() ** 2)
    assert np.abs(np.linalg.eigvals(H)).max() == pytest.approx(np.linalg.norm(H, 2), rel=1e-6)
    if bound.published is not None:
        assert bound.true_gap <= bound.published + slack(raw)
        if raw.sizes[2] == 1:
            assert bound.true_gap <= bound.corollary + slack(raw)
            assert bound.corollary == pytest.approx(bound.rigorous_2, rel=1e-5, abs=1e-8)  # one and the same here


# The rigorous bounds never fail


@examined(150)
@given(seeds, st.sampled_from(KINDS), st.integers(1, 4), discounts)
def test_rigorous_bounds_are_never_violated(seed, kind, D, gamma):
    """Unichain, periodic, weakly communicating and multichain models; ties, unreachable states, maximin."""
    raw = small(kind, seed, D)
    bound = eh.error_bound(raw.model(), random_ggf(np.random.default_rng(seed), D), gamma)
    check(bound, raw)


@examined(30)
@given(seeds, st.sampled_from([multichain, absorbing, communicating]), st.integers(2, 3), discounts)
def test_rigorous_bounds_are_never_violated_where_a_mixture_is_needed(seed, kind, D, gamma):
    """Homes in a row, each good for one user: stay for ever, or go on to the next, or astray, and never come back."""
    rng = np.random.default_rng(seed)
    inner = kind(rng, 3, 2, D)
    P, R = np.zeros((2, D + 3, D + 3)), np.zeros((D + 3, 2, D))
    for home in range(D):
        P[0, home, home] = 1
        P[1, home, min(home + 1, D - 1)] = 0.9
        P[1, home, D:] = 0.1 / 3
        R[home, 0, home] = 2 + rng.random()
    P[:, D:, D:] = inner.transitions
    R[D:] = inner.rewards
    raw = Raw(P, R, np.eye(D + 3)[0])
    bound = eh.error_bound(raw.model(), eh.GGF.geometric(D, 3), gamma)
    assert isinstance(bound.average.policy, eh.Mixture)
    assert bound.published is None
    check(bound, raw)


def check(bound, raw):
    within = slack(raw)
    assert bound.true_gap >= -within
    for name in RIGOROUS:
        value = getattr(bound, name)
        assert value is None or bound.true_gap <= value + within, name
    if bound.rigorous_inf is not None:
        assert bound.rigorous <= bound.rigorous_inf + within
    if raw.sizes[2] > 1:
        assert bound.kakade is None


def test_mixtures_are_examined():
    """The stay-or-leave model, by hand: π_1 is a coin; π_γ leaves with p = 1 − γ, which gives both users the same."""
    gamma = 0.9
    bound = eh.error_bound(examples.stay_or_leave(), W, gamma)
    assert isinstance(bound.average.policy, eh.Mixture)
    np.testing.assert_allclose(bound.discounted.policy[0], [gamma, 1 - gamma], atol=1e-6)
    assert bound.true_gap == pytest.approx(1 / 2 - 1 / 3, abs=1e-8)
    assert bound.published is None
    assert not bound.applicable
    # TV of the coin: half of the runs leave, and are in s1 for the first step: ½(1 − γ). TV of π_γ: x_γ(s1).
    in_first = (1 - gamma) / (1 - gamma * gamma)
    assert bound.rigorous == pytest.approx(0.5 * (1 - gamma) + in_first, abs=1e-7)
    assert bound.certificate == pytest.approx(1 / (1 + gamma) - 1 / 3, abs=1e-7)


@examined(25)
@given(seeds, st.sampled_from(UNICHAIN), st.sampled_from([0.3, 0.9, 0.99]))
def test_rigorous_bounds_recomputed(seed, kind, gamma):
    """The TV form, both norm forms, Kakade's and the certificate, with dense matrices and no solver of evenhand's."""
    raw = small(kind, seed, D=1 + seed % 3)
    w = eh.GGF.geometric(raw.sizes[2])
    bound = eh.error_bound(raw.model(), w, gamma)
    S = len(raw.initial)
    total = inf = two = 0.0
    for solution in (bound.average, bound.discounted):
        P, _ = chain_of(raw, solution.policy)
        x = (1 - gamma) * raw.initial @ np.linalg.inv(np.eye(S) - gamma * P)
        total += np.abs(x - raw.initial @ long_run(P)).sum() / 2
        H = dense_deviation(P)
        for order in (np.inf, 2):
            size = np.linalg.norm(H, order)
            term = rho(gamma, size) if gamma > size / (1 + size) else np.nan
            inf, two = (inf + term, two) if order == np.inf else (inf, two + term)
    span = np.ptp(raw.rewards.reshape(-1, raw.sizes[2]), axis=0).max()
    two_norm = np.sqrt((np.abs(raw.rewards).max(axis=1) ** 2).sum(axis=0)).max()
    expected = {"rigorous": span * total, "rigorous_inf": span * (1 - gamma) * inf / 2}
    expected["rigorous_2"] = two_norm * (1 - gamma) * two
    for name, value in expected.items():
        found = getattr(bound, name)
        assert found == (None if np.isnan(value) else pytest.approx(value, rel=1e-6, abs=slack(raw)))
    # The certificate, by value iteration for the weights λ of the discounted solution.
    reward = raw.rewards @ bound.discounted.weights
    V = np.zeros(S)
    for _ in range(4000):
        V = (reward + gamma * np.einsum("ast,t->sa", raw.transitions, V)).max(axis=1)
    P, R = chain_of(raw, bound.discounted.policy)
    reached = w.value(raw.initial @ long_run(P) @ R)
    assert bound.certificate == pytest.approx((1 - gamma) * V.max() - reached, abs=1e-7 * max(raw.span, 1.0))


# Kakade's


@examined(25)
@given(seeds, st.sampled_from(UNICHAIN), st.sampled_from([0.3, 0.9, 0.999]))
def test_kakade_as_stated(seed, kind, gamma):
    """κ₂(U)‖r‖(1 − γ)/(1 − γ|λ₂|), U being the unit eigenvectors of P_π1."""
    raw = small(kind, seed, D=1)
    bound = eh.error_bound(raw.model(), "ggf", gamma)
    P, R = chain_of(raw, bound.average.policy)
    eigenvalues, U = np.linalg.eig(P)
    apart = np.abs(eigenvalues[:, None] - eigenvalues) + np.eye(len(P))
    assume(apart.min() > 1e-6 or apart.min() < 1e-10)
    if apart.min() < 1e-10:
        assert bound.kakade is None
        return
    second = sorted(np.abs(eigenvalues))[-2] if len(P) > 1 else 0.0
    values = np.linalg.svd(U, compute_uv=False)
    expected = values[0] / values[-1] * np.sqrt((R**2).sum()) * (1 - gamma) / (1 - gamma * second)
    assert bound.kakade == pytest.approx(expected, rel=1e-6)
    assert bound.true_gap <= bound.kakade + slack(raw)


def test_kakade_needs_distinct_eigenvalues():
    P = np.full((2, 3, 3), 1 / 3)  # eigenvalues 1, 0, 0
    assert eh.error_bound(eh.MOMDP(P, np.arange(6.0).reshape(3, 2, 1), [1, 0, 0]), "ggf", 0.9).kakade is None


def test_kakade_is_for_one_objective():
    P, R = np.array([[[0.7, 0.3], [0.2, 0.8]]]), np.array([[[1.0]], [[0.0]]])
    assert eh.error_bound(eh.MOMDP(P, R, [1, 0]), "ggf", 0.9).kakade is not None
    assert eh.error_bound(eh.MOMDP(P, R.repeat(2, axis=2), [1, 0]), "ggf", 0.9).kakade is None


# As γ tends to one


@examined(25)
@given(seeds, st.integers(1, 4))
def test_bounds_tighten_as_gamma_tends_to_one(seed, D):
    """Where each step forgets the state with probability δ: TV ≤ (1 − γ)/(1 − γ(1 − δ)) and ‖H‖∞ ≤ 2/δ."""
    raw, delta = small(dense, seed, D), 0.2
    S = len(raw.initial)
    raw = raw._replace(transitions=(1 - delta) * raw.transitions + delta / S)
    model, w = raw.model(), eh.GGF.geometric(D)
    average = eh.solve(model, w, criterion="average", tol=1e-10)
    two_norm = np.sqrt((raw.rewards.max(axis=1) ** 2).sum(axis=0)).max()
    for gamma in (0.9, 0.99, 0.999, 0.9999):
        bound = eh.error_bound(model, w, gamma, average=average)
        rate = (1 - gamma) / (1 - gamma * (1 - delta))
        assert max(bound.rigorous, bound.certificate) <= 2 * raw.span * rate + slack(raw)
        if gamma >= 0.99:
            assert bound.rigorous_inf <= raw.span * (1 - gamma) * rho(gamma, 2 / delta) + slack(raw)
            assert bound.rigorous_2 <= 2 * two_norm * (1 - gamma) * rho(gamma, 2 / delta * np.sqrt(S)) + slack(raw)


# Cases at the edge


def test_nothing_to_decide():
    """One action and one state: nothing is lost, and every bound that exists says so."""
    bound = eh.error_bound(eh.MOMDP([[[1.0]]], [[[1, 3]]], [1]), W, 0.9)
    assert bound.true_gap == pytest.approx(0)
    for name in ("published", "rigorous", "rigorous_inf", "rigorous_2", "certificate"):
        assert getattr(bound, name) == pytest.approx(0, abs=1e-9)


def test_no_discount_at_all():
    """γ = 0 looks one step ahead: only the bounds without a condition exist."""
    bound = eh.error_bound(examples.two_homes(with_refuge=True), W, 0.0)
    assert (bound.published, bound.rigorous_inf, bound.rigorous_2) == (None, None, None)
    assert bound.true_gap <= min(bound.rigorous, bound.certificate) + 1e-9


def test_condition_asks_for_weak_communication():
    """Two closed parts: the formula may be computed, but the theorem does not speak of the model."""
    stay = np.eye(2)
    model = eh.MOMDP([stay, stay], [[[1.0], [0.0]], [[0.0], [2.0]]], [0.5, 0.5])
    bound = eh.error_bound(model, "ggf", 0.9)
    assert not model.weakly_communicating
    assert bound.published is not None
    assert not bound.applicable


@examined(15)
@given(seeds, st.sampled_from([dense, communicating]), st.integers(1, 3))
def test_known_average_solution_may_be_reused(seed, kind, D):
    raw, w = small(kind, seed, D), eh.GGF.geometric(D)
    first = eh.error_bound(raw.model(), w, 0.9)
    again = eh.error_bound(raw.model(), w, 0.9, average=first.average)
    assert again.average is first.average
    assert same(again, first, rel=1e-9, abs=slack(raw))


@examined(15)
@given(seeds, st.integers(1, 3), st.sampled_from([0.5, 0.99]))
def test_unreachable_states_do_not_matter(seed, D, gamma):
    """States that no policy reaches, with enormous rewards and a communication of their own."""
    raw, w = small(dense, seed, D), eh.GGF.geometric(D)
    S, A, _ = raw.sizes
    P = np.zeros((A, S + 2, S + 2))
    P[:, :S, :S] = raw.transitions
    P[:, S, S + 1] = P[:, S + 1, 0] = 1
    R = np.concatenate([raw.rewards, np.full((2, A, D), 1e6)])
    more = eh.error_bound(eh.MOMDP(P, R, np.append(raw.initial, [0, 0])), w, gamma)
    assert same(more, eh.error_bound(raw.model(), w, gamma), rel=1e-7, abs=slack(raw))


def test_large_models_leave_out_what_needs_dense_matrices():
    model = examples.garnet(bounds.DENSE_STATES + 1, 2, 2, 3, seed=1)
    bound = eh.error_bound(model, W, 0.9)
    assert [getattr(bound, name) for name in ("published", "corollary", "rigorous_inf", "rigorous_2", "kakade")] == [
        None
    ] * 5
    assert not bound.applicable
    assert -1e-9 <= bound.true_gap <= min(bound.rigorous, bound.certificate) + 1e-9
    P = [model.under(s.policy)[0] for s in (bound.average, bound.discounted)]
    total = sum(
        np.abs(chain.discounted_occupation(p, model.initial, 0.9) - chain.occupation(p, model.initial)).sum() / 2
        for p in P
    )
    assert bound.rigorous == pytest.approx(model.reward_span.max() * total, rel=1e-6)


def test_small_models_know_them_all(monkeypatch):
    model = examples.garnet(20, 2, 1, 4, seed=1)
    bound = eh.error_bound(model, "ggf", 0.99)
    assert None not in [getattr(bound, name) for name in NUMBERS]
    monkeypatch.setattr(bounds, "DENSE_STATES", 19)
    without = eh.error_bound(model, "ggf", 0.99)
    assert (without.published, without.rigorous_inf, without.rigorous_2, without.kakade) == (None,) * 4
    assert without.rigorous == pytest.approx(bound.rigorous)
    assert without.certificate == pytest.approx(bound.certificate)


def test_result_is_read_only():
    bound = eh.error_bound(examples.two_homes(), W, 0.9)
    assert bound.gamma == 0.9
    with pytest.raises(dataclasses.FrozenInstanceError):
        bound.rigorous = 0.0


# What it refuses


@pytest.mark.parametrize("welfare", [eh.Nash(2), eh.Leximin(2), eh.AlphaFair(2, 2.0), "nash", "leximin", "alpha:2"])
def test_other_welfare_functions_are_refused(welfare):
    with pytest.raises(eh.InputError, match="GGF"):
        eh.error_bound(examples.two_homes(), welfare, 0.9)


@pytest.mark.parametrize("welfare", [eh.Utilitarian(2), eh.Maximin(2), eh.RegularizedMaximin(2, 0.1), "ggf:10"])
def test_special_cases_of_ggf_are_taken(welfare):
    bound = eh.error_bound(examples.two_homes(), welfare, 0.9)
    assert bound.true_gap <= min(bound.rigorous, bound.certificate) + 1e-9


@pytest.mark.parametrize("gamma", [1.0, 1.5, -0.1, float("nan"), float("inf")])
def test_discounts_outside_are_refused(gamma):
    with pytest.raises(eh.InputError, match="gamma"):
        eh.error_bound(examples.two_homes(), W, gamma)


def test_the_discount_cannot_be_left_out():
    with pytest.raises(TypeError):
        eh.error_bound(examples.two_homes(), W)
    with pytest.raises((eh.InputError, TypeError), match="gamma"):
        eh.error_bound(examples.two_homes(), W, None)


def test_welfare_must_fit_the_model():
    with pytest.raises(eh.InputError, match="3 users"):
        eh.error_bound(examples.two_homes(), eh.GGF.geometric(3), 0.9)
