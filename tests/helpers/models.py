"""Small models of every kind, and their optima by brute force: nothing here uses evenhand's solvers."""

import contextlib
import itertools
import math
from collections.abc import Callable
from typing import NamedTuple

import hypothesis.strategies as st
import jaxtyping
import numpy as np
import scipy.sparse as sp
from scipy.optimize import linprog

import evenhand as eh

AVERAGE = 1.0  # the "discount" by which tests ask for the average reward


@contextlib.contextmanager
def unchecked():
    """Without the type checks of the tests, as for users: what they would meet is our own message."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


class Raw(NamedTuple):
    """The arrays of a model, as a user has them."""

    transitions: np.ndarray
    rewards: np.ndarray
    initial: np.ndarray

    @property
    def sizes(self) -> tuple[int, int, int]:
        return self.rewards.shape

    def model(self) -> eh.MOMDP:
        return eh.MOMDP(*self)

    def with_rewards(self, rewards) -> "Raw":
        return self._replace(rewards=np.asarray(rewards))

    @property
    def span(self) -> float:
        """The widest difference of rewards, or, where they hardly differ, a thousandth of their size."""
        flat = self.rewards.reshape(-1, self.sizes[2])
        return max(float(np.ptp(flat, axis=0).max()), 1e-3 * float(np.abs(flat).max())) or 1.0


def question(gamma):
    """The arguments of solve and evaluate that ask for this discount, 1 meaning the average reward."""
    return {"criterion": "average"} if gamma == AVERAGE else {"gamma": gamma}


def horizon(gamma):
    return 1.0 if gamma == AVERAGE else 1 / (1 - gamma)


# Random models by kind


def _rewards(rng, S, A, D):
    return rng.random((S, A, D))


def _start(rng, S):
    return rng.dirichlet(np.ones(S))


def dense(rng, S, A, D):
    return Raw(rng.dirichlet(np.ones(S), (A, S)), _rewards(rng, S, A, D), _start(rng, S))


def sparse(rng, S, A, D):
    """One or two successors, some of them the state itself: chains of every structure."""
    P = np.zeros((A, S, S))
    for a, s in itertools.product(range(A), range(S)):
        P[a, s, rng.integers(S)] += 0.5
        P[a, s, rng.integers(S)] += 0.5
    return Raw(P, _rewards(rng, S, A, D), _start(rng, S))


def deterministic(rng, S, A, D):
    return Raw(np.eye(S)[rng.integers(S, size=(A, S))], _rewards(rng, S, A, D), np.eye(S)[rng.integers(S)])


def multichain(rng, S, A, D):
    """About half the states are absorbing under the first action; the others lead anywhere."""
    raw = sparse(rng, S, A, D)
    for s in np.flatnonzero(rng.random(S) < 0.5):
        raw.transitions[0, s] = np.eye(S)[s]
    return raw._replace(initial=np.eye(S)[rng.integers(S)])


def absorbing(rng, S, A, D):
    """Two closed blocks, whatever one does, and the rest transient."""
    P = rng.dirichlet(np.ones(S), (A, S))
    cut = max(1, S // 3)
    for block in (range(cut), range(cut, min(2 * cut, S))):
        for s in block:
            outside = np.setdiff1d(np.arange(S), list(block))
            P[:, s, outside] = 0
            P[:, s] /= P[:, s].sum(axis=1, keepdims=True)
    return Raw(P, _rewards(rng, S, A, D), _start(rng, S))


def periodic(rng, S, A, D):
    """Classes visited in turn: every chain has a period of two or three."""
    period = min(S, int(rng.integers(2, 4)))
    of = np.arange(S) % period
    P = rng.dirichlet(np.ones(S), (A, S)) * (of[None, :] == (of[:, None] + 1) % period)
    return Raw(P / P.sum(axis=2, keepdims=True), _rewards(rng, S, A, D), np.eye(S)[0])


def communicating(rng, S, A, D):
    """Stay where you are, or walk round a circle and along random short cuts: staying is what pays."""
    P = np.eye(S)[rng.integers(S, size=(A, S))]
    P[0] = np.eye(S)
    P[-1] = np.roll(np.eye(S), 1, axis=1) if A > 1 else np.eye(S)
    rewards = _rewards(rng, S, A, D)
    rewards[:, 1:] *= 0.1
    return Raw(P, rewards, np.eye(S)[rng.integers(S)])


def unreachable(rng, S, A, D):
    """The start leads to a part of the states only; the others, which lead anywhere, pay better."""
    raw = dense(rng, S, A, D)
    inner = max(1, S // 2)
    raw.transitions[:, :inner, inner:] = 0
    raw.transitions[:] /= raw.transitions.sum(axis=2, keepdims=True)
    raw.rewards[inner:] += 5
    return raw._replace(initial=np.append(_start(rng, inner), np.zeros(S - inner)))


def degenerate(rng, S, A, D):
    return dense(rng, S, A, D)._replace(initial=np.eye(S)[rng.integers(S)])


def ties(rng, S, A, D):
    return sparse(rng, S, A, D).with_rewards(rng.integers(0, 2, (S, A, D)))


def zero(rng, S, A, D):
    return sparse(rng, S, A, D).with_rewards(np.zeros((S, A, D)))


def negative(rng, S, A, D):
    return dense(rng, S, A, D).with_rewards(rng.normal(-2, 1, (S, A, D)))


KINDS: tuple[Callable[..., Raw], ...] = (
    dense,
    sparse,
    deterministic,
    multichain,
    absorbing,
    periodic,
    communicating,
    unreachable,
    degenerate,
    ties,
    zero,
    negative,
)
UNICHAIN = (dense, degenerate, negative)  # every policy has a single closed class, without periods


def small(kind, seed, D=None, policies=600):
    """A random model of a kind with at most so many deterministic policies."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    A = int(rng.integers(1, 5))
    S = int(rng.integers(1 + (A > 1), 7))
    while policies < A**S:
        S -= 1
    return kind(rng, S, A, int(rng.integers(1, 7)) if D is None else D)


# Hypothesis: models of small whole numbers, which shrink to something one can read


@st.composite
def raw_models(draw, max_S=5, max_A=3, max_D=4, policies=250, min_reward=-3):
    A = draw(st.integers(1, max_A))
    S = draw(st.integers(1, max_S).filter(lambda S: policies >= A**S))
    D = draw(st.integers(1, max_D))
    row = st.lists(st.sampled_from([0, 0, 0, 1, 2, 5]), min_size=S, max_size=S).filter(any)
    weights = np.array([[draw(row) for _ in range(S)] for _ in range(A)], float)
    number = st.integers(min_reward, 3)
    rewards = np.array(draw(st.lists(number, min_size=S * A * D, max_size=S * A * D)), float)
    start = np.array(draw(st.lists(st.integers(0, 2), min_size=S, max_size=S).filter(any)), float)
    return Raw(weights / weights.sum(axis=2, keepdims=True), rewards.reshape(S, A, D), start / start.sum())


@st.composite
def ggfs(draw, D):
    """Weights of every shape: zeros (maximin), equal ones (utilitarian), steep and gentle."""
    raw = draw(st.lists(st.integers(0, 5), min_size=D, max_size=D).filter(any))
    return eh.GGF(sorted(raw, reverse=True))


def random_ggf(rng, D):
    """As above, from a generator."""
    shape = rng.integers(5)
    if shape == 0:
        return eh.Maximin(D)
    if shape == 1:
        return eh.Utilitarian(D)
    if shape == 2:
        return eh.RegularizedMaximin(D, 0.05)
    if shape == 3:
        return eh.GGF.geometric(D)
    return eh.GGF(np.sort(rng.random(D))[::-1])


# Brute force


def chain_of(raw, policy):
    """P_π and R_π of a [S, A] policy, by einsum."""
    return np.einsum("sa,ast->st", policy, raw.transitions), np.einsum("sa,sad->sd", policy, raw.rewards)


def long_run(P):
    """P* of one chain or of many: ((I + P)/2)^(2^80), as lazy chains have no periods and the same limit."""
    lazy = (np.eye(P.shape[-1]) + P) / 2
    for _ in range(80):
        lazy = lazy @ lazy
        lazy /= lazy.sum(axis=-1, keepdims=True)
    return lazy


def returns_of(raw, P, rewards, gamma):
    """d0 (I − γP)⁻¹ R, or d0 P* R, for one chain or for many."""
    if gamma == AVERAGE:
        return raw.initial @ (long_run(P) @ rewards)
    return raw.initial @ np.linalg.solve(np.eye(P.shape[-1]) - gamma * P, rewards)


def brute_evaluate(raw, policy, gamma):
    """The returns of [S, A] probabilities, of [S] actions, or of a mixture."""
    if isinstance(policy, eh.Mixture):
        return policy.shares @ [brute_evaluate(raw, actions, gamma) for actions in policy.policies]
    if np.ndim(policy) == 1:
        policy = np.eye(raw.sizes[1])[policy]
    return returns_of(raw, *chain_of(raw, policy), gamma)


def corners(raw, gamma):
    """The returns of all deterministic policies, [A^S, D]; every policy's returns lie in their convex hull."""
    S, A, _ = raw.sizes
    policies = np.array(list(itertools.product(range(A), repeat=S)))
    every = np.arange(S)
    return returns_of(raw, raw.transitions[policies, every], raw.rewards[every, policies], gamma)


def hull_program(Z, cost, A_ub, b_ub):
    """max cost·u over u and mixtures of the rows of Z, on returns scaled to [0, 1]: the mixture."""
    K, extra = len(Z), len(cost)
    answer = linprog(
        np.append(np.zeros(K), -np.asarray(cost)),
        A_ub=A_ub,
        b_ub=b_ub,
        A_eq=np.append(np.ones(K), np.zeros(extra))[None],
        b_eq=[1.0],
        bounds=[(0, None)] * K + [(None, None)] * extra,
        method="highs",
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert answer.status == 0, answer.message
    shares = np.maximum(answer.x[:K], 0)
    return shares / shares.sum(), -answer.fun


def _scaled(Z):
    low, size = Z.min(), np.ptp(Z) or 1.0
    return (np.unique(Z, axis=0) - low) / size, low, size


def best_ggf(Z, weights):
    """max GGF over the convex hull of the rows of Z.

    GGF(v) is the cheapest assignment of the weights to the users; by duality of the assignment problem it is
    max Σ_k p_k + Σ_i q_i with p_k + q_i ≤ w_k v_i. (Not the form that evenhand uses.)
    """
    Z, low, size = _scaled(Z)
    D = len(weights)
    rows = []
    for k, i in itertools.product(range(D), repeat=2):
        rows.append(np.concatenate([-weights[k] * Z[:, i], np.eye(D)[k], np.eye(D)[i]]))
    shares, bound = hull_program(Z, np.ones(2 * D), np.array(rows), np.zeros(D * D))
    reached = float(np.sort(shares @ Z) @ weights)
    assert abs(bound - reached) < 1e-8
    return low + size * reached


def best_unichain_average(model, weights):
    """max GGF of the average rewards of a large model whose policies all have one class: a program in x(s, a) alone."""
    S, A, D = model.S, model.A, model.D
    balance = sp.kron(sp.eye_array(S), np.ones((1, A))) - model.transitions.T
    flow = sp.vstack([balance, np.ones((1, S * A))])
    R = model.rewards.reshape(S * A, D)
    rows = [
        np.concatenate([-weights[k] * R[:, i], np.eye(D)[k], np.eye(D)[i]])
        for k, i in itertools.product(range(D), repeat=2)
    ]
    answer = linprog(
        np.append(np.zeros(S * A), -np.ones(2 * D)),
        A_ub=sp.csc_array(np.array(rows)),
        b_ub=np.zeros(D * D),
        A_eq=sp.hstack([flow, sp.csr_array((S + 1, 2 * D))], format="csc"),
        b_eq=np.append(np.zeros(S), 1.0),
        bounds=[(0, None)] * (S * A) + [(None, None)] * (2 * D),
        method="highs-ipm",
    )
    assert answer.status == 0, answer.message
    return -answer.fun


def best_leximin(Z, slack=1e-11):
    """The leximin optimum over the convex hull of the rows of Z, sorted.

    Stage by stage, users whose return can still grow above the common level are told from those who are stuck
    (the "progressive filling" algorithm; not the sums of smallest returns that evenhand uses).
    """
    Z, low, size = _scaled(Z)
    D = Z.shape[1]
    fixed: dict[int, float] = {}
    while len(fixed) < D:
        free = [i for i in range(D) if i not in fixed]
        held = [np.append(-Z[:, i], 0.0) for i in fixed]
        floors = [slack - level for level in fixed.values()]
        rise = [np.append(-Z[:, i], 1.0) for i in free]
        _, level = hull_program(Z, [1.0], np.array(rise + held), np.array([0.0] * len(free) + floors))
        stuck = []
        for i in free:  # can i have more while the others keep this level?
            others = [np.append(-Z[:, j], 0.0) for j in free if j != i]
            rows = np.array([np.append(-Z[:, i], 1.0), *others, *held])
            limits = np.array([0.0] + [slack - level] * len(others) + floors)
            _, most = hull_program(Z, [1.0], rows, limits)
            if most < level + 1e-7:
                stuck.append(i)
        fixed |= dict.fromkeys(stuck, level)
    return np.sort(low + size * np.array(list(fixed.values())))


def theta(z):
    """Θ_1 … Θ_D: the sums of the 1, 2, …, D smallest."""
    return np.cumsum(np.sort(z))


def best_sum(Z, k, reached=()):
    """The mixture of the rows of Z with the largest Θ_k among those whose Θ_1 … Θ_{k−1} are at least as given.

    Θ_k is the least sum over all sets of k users, and each of those sums is a row of the program. (Not the form that
    evenhand uses.) None if the floors are out of reach by a last digit.
    """

    def sums(size):
        return [-Z[:, list(users)].sum(axis=1) for users in itertools.combinations(range(Z.shape[1]), size)]

    rows = [np.append(row, 1.0) for row in sums(k)]
    limits = [0.0] * len(rows)
    for j in range(1, k):
        held = [np.append(row, 0.0) for row in sums(j)]
        rows += held
        limits += [-reached[j - 1]] * len(held)
    try:
        shares, _ = hull_program(Z, [1.0], np.array(rows), np.array(limits))
    except AssertionError:
        return None
    return shares @ Z


def best_smooth(Z, welfare, steps=2000):
    """max welfare over the convex hull of the rows of Z, by pairwise conditional gradients; (value, bound)."""
    start = np.argmax(Z.min(axis=1))
    shares = np.eye(len(Z))[start]
    for _ in range(steps):
        z = shares @ Z
        slope = Z @ welfare.gradient(z)
        to = int(np.argmax(slope))
        used = np.flatnonzero(shares > 1e-14)
        away = used[np.argmin(slope[used])]
        if slope[to] - slope @ shares < 1e-13 * max(1.0, abs(float(welfare.value(z)))):
            break
        low, high = 0.0, shares[away]
        direction = Z[to] - Z[away]
        for _ in range(60):  # the welfare is concave along the line: find where its slope changes sign
            middle = (low + high) / 2
            rising = (z + middle * direction > 0).all() and welfare.gradient(z + middle * direction) @ direction > 0
            low, high = (middle, high) if rising else (low, middle)
        shares[to] += low
        shares[away] -= low
    z = shares @ Z
    value = float(welfare.value(z))
    return value, value + float((Z @ welfare.gradient(z)).max() - welfare.gradient(z) @ z)


def distributions(rows, atol=1e-9):
    return bool((rows >= 0).all() and np.allclose(rows.sum(axis=-1), 1, atol=atol, rtol=0))


def all_permutations_ggf(weights, v):
    """GGF as the minimum over permutations: its definition, and slow."""
    return min(
        math.fsum(w * v[i] for w, i in zip(weights, order, strict=True))
        for order in itertools.permutations(range(len(v)))
    )
