"""docs/theory.md, statement by statement: what fails as printed, what holds, and every number that the page quotes.

Each counterexample is worked out twice: by hand, from formulas that fit on a line, and by evenhand.
"""

import itertools
import re
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings
from scipy.optimize import linprog

import evenhand as eh
from evenhand.exact import chain, examples
from evenhand.exact.bounds import DENSE_STATES
from models import (
    KINDS,
    UNICHAIN,
    best_ggf,
    brute_evaluate,
    chain_of,
    communicating,
    corners,
    ggfs,
    multichain,
    raw_models,
    small,
    sparse,
)

W = eh.GGF([2 / 3, 1 / 3])
PRINTED, CORRECTED = eh.GGF([5 / 9, 4 / 9]), eh.GGF([4 / 5, 1 / 5])
UP, DOWN = 0, 1
GAMMAS = (0.1, 0.5, 0.9, 0.99, 0.999)
CLOSE_TO_ONE = (0.9, 0.99, 0.999, 0.9999)
seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=30)


def average(model, policy):
    return eh.evaluate(model, policy, criterion="average")


def ggf(a, b, w=W):
    """By hand: the larger weight on the smaller of two returns."""
    return w.weights[0] * min(a, b) + w.weights[1] * max(a, b)


def moving(p, q):
    """The policy of two_homes that moves from s1 with probability p and from s2 with probability q."""
    return np.array([[1 - p, p], [q, 1 - q]])


def largest_deviation(raw):
    """h, the largest ‖H_δ‖∞ of all deterministic policies."""
    S, A, _ = raw.sizes
    every = np.arange(S)
    return max(
        np.linalg.norm(chain.deviation(raw.transitions[list(actions), every]), np.inf)
        for actions in itertools.product(range(A), repeat=S)
    )


# What stands


def test_chance_may_be_needed():
    model = examples.one_state()
    assert max(W.value(average(model, [a])) for a in (0, 1)) == pytest.approx(1.0)  # (3, 0), by hand 3/3
    for question in ({"gamma": 0.9}, {"criterion": "average"}):
        best = eh.solve(model, W, **question)
        np.testing.assert_allclose(best.policy, [[0.4, 0.6]], atol=1e-9)
        np.testing.assert_allclose(best.returns, np.array([1.2, 1.2]) * (10 if "gamma" in question else 1))


@few
@given(raw_models(), seeds, st.sampled_from([0.3, 0.9, 0.99]))
def test_a_stationary_policy_replaces_any_mixture_of_discounted_returns(raw, seed, gamma):
    """Lemma 3.1, discounted: π = x/x(s) has the returns of the mixture that spends the shares x(s, a)."""
    rng = np.random.default_rng(seed)
    S, A, _ = raw.sizes
    every, shares = np.arange(S), rng.dirichlet(np.ones(3))
    policies = rng.integers(A, size=(3, S))
    x = np.zeros((S, A))
    for share, actions in zip(shares, policies, strict=True):
        P, _ = chain_of(raw, np.eye(A)[actions])
        x[every, actions] += share * (1 - gamma) * np.linalg.solve(np.eye(S) - gamma * P.T, raw.initial)
    total = x.sum(axis=1, keepdims=True)
    stationary = np.where(total > 0, x / np.where(total > 0, total, 1), 1 / A)
    mixture = eh.Mixture(shares, policies)
    np.testing.assert_allclose(
        eh.evaluate(raw.model(), stationary, gamma=gamma), eh.evaluate(raw.model(), mixture, gamma=gamma), atol=1e-9
    )


@few
@given(raw_models(), seeds, st.sampled_from([0.0, 0.5, 0.9, 0.999]))
def test_identities_between_the_two_criteria(raw, seed, gamma):
    """x_1 v = μ/(1 − γ), and (B3): x_γ − x_1 = (1 − γ)(d0 − x_γ P)H, so that TV ≤ (1 − γ)‖H‖∞."""
    S, A, _ = raw.sizes
    policy = np.random.default_rng(seed).dirichlet(np.ones(A), S)
    P, R = chain_of(raw, policy)
    x_1 = raw.initial @ chain.cesaro_limit(P)
    v = np.linalg.solve(np.eye(S) - gamma * P, R)
    np.testing.assert_allclose(x_1 @ v, average(raw.model(), policy) / (1 - gamma), atol=1e-7)
    x = chain.discounted_occupation(P, raw.initial, gamma)
    H = chain.deviation(P)
    np.testing.assert_allclose(x - x_1, (1 - gamma) * (raw.initial - x @ P) @ H, atol=1e-9)
    assert np.abs(x - x_1).sum() / 2 <= (1 - gamma) * np.linalg.norm(H, np.inf) + 1e-12


@few
@given(raw_models(max_D=1), seeds)
def test_laurent_series(raw, seed):
    """Theorem 3.5, on both sides of its condition γ > σ/(σ + 1)."""
    S, A, _ = raw.sizes
    P, R = chain_of(raw, np.random.default_rng(seed).dirichlet(np.ones(A), S))
    H = chain.deviation(P)
    radius = np.abs(np.linalg.eigvals(H)).max()
    assume(0.2 < radius < 50)
    g = chain.cesaro_limit(P) @ R
    for ratio in (0.5, 2.0):  # ((1 − γ)/γ)σ: below one the series converges, above one it does not
        gamma = radius / (radius + ratio)
        v = np.linalg.solve(np.eye(S) - gamma * P, R)
        term, total = H @ R / gamma, g / (1 - gamma)
        for _ in range(100):
            total = total + term
            term = (gamma - 1) / gamma * (H @ term)
        if ratio < 1:
            np.testing.assert_allclose(total, v, atol=1e-8)
        elif np.abs(H @ H @ H @ H @ H @ R).max() > 1e-6:  # rewards that H does not take to nothing
            assert np.abs(total - v).max() > 1


def test_policy_gradient():
    """∇GGF(J) = w_σ·∇J, by central differences, where the components of J differ."""
    rng = np.random.default_rng(5)
    w, model = eh.GGF.geometric(3), examples.garnet(4, 3, 3, 2, seed=5)
    theta = rng.normal(size=(4, 3))

    def returns(parameters):
        exp = np.exp(parameters)
        return eh.evaluate(model, exp / exp.sum(axis=1, keepdims=True), gamma=0.9)

    weights = w.gradient(returns(theta))
    for s, a in itertools.product(range(4), range(3)):
        step = 1e-5 * np.eye(12)[s * 3 + a].reshape(4, 3)
        up, down = returns(theta + step), returns(theta - step)
        assert (w.value(up) - w.value(down)) / 2e-5 == pytest.approx(weights @ (up - down) / 2e-5, abs=1e-8)


# Example 3.2

PLANS = {(UP, UP): (7, 7), (UP, DOWN): (12, 5), (DOWN, UP): (0, 7), (DOWN, DOWN): (5, 5)}  # by hand; γ cancels


@pytest.mark.parametrize("gamma", GAMMAS)
def test_example_plans_by_hand(gamma):
    for (first, second), returns in PLANS.items():
        model = examples.state_dependence(gamma)
        np.testing.assert_allclose(eh.evaluate(model, [first, second, UP], gamma=gamma), returns, atol=1e-12)
        model = examples.state_dependence(gamma, start=1)
        from_second = np.array((0, 7) if second == UP else (5, 5)) / gamma
        np.testing.assert_allclose(eh.evaluate(model, [first, second, UP], gamma=gamma), from_second, atol=1e-12)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_example_as_printed_is_false(gamma):
    """w = (5/9, 4/9): Down in s2 is optimal from both states, so that no preference is reversed."""
    assert ggf(12, 5, PRINTED) == pytest.approx(73 / 9)
    assert ggf(7, 7, PRINTED) == pytest.approx(7)
    from_first = eh.solve(examples.state_dependence(gamma), PRINTED, gamma=gamma)
    assert from_first.welfare == pytest.approx(73 / 9)
    np.testing.assert_allclose(from_first.policy[:2], [[1, 0], [0, 1]], atol=1e-7)
    printed_claim = PRINTED.value(eh.evaluate(examples.state_dependence(gamma), [UP, UP, UP], gamma=gamma))
    assert printed_claim < from_first.welfare - 1
    from_second = eh.solve(examples.state_dependence(gamma, start=1), PRINTED, gamma=gamma)
    assert from_second.welfare == pytest.approx(5 / gamma)
    np.testing.assert_allclose(from_second.policy[1], [0, 1], atol=1e-7)


@pytest.mark.parametrize("gamma", GAMMAS)
def test_example_as_corrected_is_true(gamma):
    """w = (4/5, 1/5): Up-Up from s1, but Down from s2."""
    from_first = eh.solve(examples.state_dependence(gamma), CORRECTED, gamma=gamma)
    assert from_first.welfare == pytest.approx(7)
    assert ggf(12, 5, CORRECTED) == pytest.approx(6.4)
    np.testing.assert_allclose(from_first.policy[:2], [[1, 0], [1, 0]], atol=1e-7)
    from_second = eh.solve(examples.state_dependence(gamma, start=1), CORRECTED, gamma=gamma)
    assert from_second.welfare == pytest.approx(5 / gamma)
    np.testing.assert_allclose(from_second.policy[1], [0, 1], atol=1e-7)


@pytest.mark.parametrize("w1", [0.5, 0.6, 0.71, 0.72, 0.9, 1.0])
def test_example_threshold(w1):
    w, gamma = eh.GGF([w1, 1 - w1]), 0.9
    from_first = eh.solve(examples.state_dependence(gamma), w, gamma=gamma)
    np.testing.assert_allclose(from_first.policy[1], [1, 0] if w1 > 5 / 7 else [0, 1], atol=1e-6)
    from_second = eh.solve(examples.state_dependence(gamma, start=1), w, gamma=gamma)
    np.testing.assert_allclose(from_second.policy[1], [0, 1], atol=1e-6)
    for q in np.linspace(0, 1, 11):
        policy = [[1, 0], [1 - q, q], [1, 0]]
        by_hand = 7 + (5 * (1 - w1) - 2 * w1) * q
        assert w.value(eh.evaluate(examples.state_dependence(gamma), policy, gamma=gamma)) == pytest.approx(by_hand)
        by_hand = (7 * (1 - w1) + (5 * w1 - 2 * (1 - w1)) * q) / gamma
        model = examples.state_dependence(gamma, start=1)
        assert w.value(eh.evaluate(model, policy, gamma=gamma)) == pytest.approx(by_hand)


def test_example_at_the_threshold_every_q_is_optimal():
    w, model = eh.GGF([5 / 7, 2 / 7]), examples.state_dependence(0.9)
    best = eh.solve(model, w, gamma=0.9)
    for q in np.linspace(0, 1, 11):
        policy = [[1, 0], [1 - q, q], [1, 0]]
        assert w.value(eh.evaluate(model, policy, gamma=0.9)) == pytest.approx(best.welfare, abs=1e-9)


# Lemma 3.1 for average rewards

COIN = eh.Mixture(np.array([0.5, 0.5]), np.array([[0, 0], [1, 0]]))  # stay_or_leave: stay, or leave, for ever
COIN_AT_HOME = eh.Mixture(np.array([0.5, 0.5]), np.array([[0, 1], [1, 1]]))  # the same in two_homes


def test_lemma_1_fails_on_stay_or_leave():
    model = examples.stay_or_leave()
    for p in np.concatenate([[0.0], np.logspace(-9, 0, 40), np.linspace(0.01, 0.99, 40)]):
        policy = np.array([[1 - p, p], [0.5, 0.5]])
        np.testing.assert_allclose(average(model, policy), [1, 0] if p == 0 else [0, 1], atol=1e-12)
        assert W.value(average(model, policy)) == pytest.approx(1 / 3)
    assert W.value(average(model, COIN)) == pytest.approx(1 / 2)
    best = eh.solve(model, W, criterion="average")
    assert isinstance(best.policy, eh.Mixture)
    assert "mixture" in best.note
    assert best.welfare == pytest.approx(1 / 2, abs=1e-8)
    assert best.gap < 1e-8


def test_lemma_1_fails_in_a_communicating_model():
    """two_homes from s1: no stationary policy has ½, whatever its gains elsewhere; a coin has."""
    model = examples.two_homes()
    assert model.weakly_communicating
    chances = np.concatenate([[0.0], np.logspace(-6, 0, 13)])
    for p, q in itertools.product(chances, repeat=2):
        mu = average(model, moving(p, q))
        if p and q:
            np.testing.assert_allclose(mu, np.array([q * (1 - p), p * (1 - q)]) / (p + q), atol=1e-9)
        assert W.value(mu) < 1 / 2
    assert W.value(average(model, COIN_AT_HOME)) == pytest.approx(1 / 2)
    np.testing.assert_allclose(average(model, moving(0.1, 0.1)), [0.45, 0.45])


@pytest.mark.parametrize("gamma", CLOSE_TO_ONE)
def test_lemma_1_the_dominating_policy_changes_with_gamma(gamma):
    """The line after (11): only p = (1 − γ)/(2 − γ) dominates the coin, for no two γ the same."""
    model, p = examples.stay_or_leave(), (1 - gamma) / (2 - gamma)
    coin = (1 - gamma) * eh.evaluate(model, COIN, gamma=gamma)
    np.testing.assert_allclose(coin, [1 / 2, gamma / 2])

    def leaving(p):
        returns = (1 - gamma) * eh.evaluate(model, np.array([[1 - p, p], [1, 0]]), gamma=gamma)
        np.testing.assert_allclose(
            returns, np.array([(1 - p) * (1 - gamma), gamma * p]) / (1 - gamma * (1 - p)), rtol=1e-9
        )
        return returns

    np.testing.assert_allclose(leaving(p), coin, rtol=1e-9)
    assert leaving(1.01 * p)[0] < coin[0]
    assert leaving(0.99 * p)[1] < coin[1]


@few
@given(raw_models(max_S=4, policies=81), st.data())
def test_mixtures_of_few_stationary_policies_suffice(raw, data):
    """The corrected Lemma 3.1: evenhand's optimum is that of the hull of all deterministic policies."""
    w = data.draw(ggfs(raw.sizes[2]))
    best = eh.solve(raw.model(), w, criterion="average")
    assert best.welfare == pytest.approx(best_ggf(corners(raw, 1.0), w.weights), abs=1e-6)
    if isinstance(best.policy, eh.Mixture):
        np.testing.assert_allclose(brute_evaluate(raw, best.policy, 1.0), best.returns, atol=1e-9)


@pytest.mark.parametrize("seed", range(12))
def test_two_policies_suffice_for_two_users(seed):
    """At most D of them: the best point of the hull lies on a segment between two corners."""
    raw = small((multichain, communicating, sparse)[seed % 3], seed, D=2, policies=81)
    Z = corners(raw, 1.0)
    u, v = Z[:, None], Z[None]
    gap_u, gap_v = u[..., 0] - u[..., 1], v[..., 0] - v[..., 1]
    opposite = gap_u * gap_v < 0  # the segment crosses the diagonal, the only kink of GGF
    share = np.where(opposite, gap_v / np.where(opposite, gap_v - gap_u, 1), 1)[..., None]
    assert W.value(share * u + (1 - share) * v).max() == pytest.approx(best_ggf(Z, W.weights), abs=1e-9)


# Lemma 3.3


def test_lemma_3_constant_gains_approach_but_do_not_attain():
    starts = [examples.two_homes(start=s) for s in (0, 1)]
    for eps in np.logspace(-6, -1, 6):
        gains = [average(model, moving(eps, eps)) for model in starts]
        np.testing.assert_allclose(gains, (1 - eps) / 2, rtol=1e-9)
    for p, q in itertools.product(np.concatenate([[0.0], np.logspace(-6, 0, 13)]), repeat=2):
        gains = np.array([average(model, moving(p, q)) for model in starts])
        constant = bool(p or q)
        assert np.allclose(gains[0], gains[1], atol=1e-9) == constant
        if constant:
            assert W.value(gains[0]) < 1 / 2
    best = eh.solve(starts[0], W, criterion="average")
    assert isinstance(best.policy, np.ndarray)
    assert 1 / 2 - 1e-8 <= best.welfare < 1 / 2
    gains = [average(model, best.policy) for model in starts]
    np.testing.assert_allclose(gains[0], gains[1], atol=1e-8)


def test_lemma_3_the_mixture_of_classes_beats_each_of_them():
    """The step of the proof: from (½, ½), staying has ½; either class alone, which π⁺ would lead to, has 1/3."""
    homes = examples.two_homes()
    P = [homes.transitions.toarray().reshape(2, 2, 2)[:, a] for a in (0, 1)]
    model = eh.MOMDP(P, homes.rewards, [0.5, 0.5])
    assert W.value(average(model, moving(0, 0))) == pytest.approx(1 / 2)
    for lead_to_one_class in (moving(0, 1), moving(1, 0)):
        assert W.value(average(model, lead_to_one_class)) == pytest.approx(1 / 3)


@few
@given(seeds, st.integers(1, 3), st.data())
def test_lemma_3_holds_up_to_epsilon(seed, D, data):
    """Weakly communicating: values do not depend on the start, and (1 − ε)x + εy makes a policy with constant gain."""
    raw, w = small(communicating, seed, D, policies=81), data.draw(ggfs(D))
    S, A, _ = raw.sizes
    assume(raw.model().weakly_communicating and A > 1)
    starts = [raw._replace(initial=start).model() for start in np.eye(S)]
    best = [eh.solve(model, w, criterion="average").welfare for model in starts]
    np.testing.assert_allclose(best, best[0], atol=1e-7)

    # x: the shares of an optimal mixture of deterministic policies, from the first state; y: of a random walk.
    policies = list(itertools.product(range(A), repeat=S))
    shares = _optimal_shares(np.array([average(starts[0], list(p)) for p in policies]), w)
    x = np.zeros((S, A))
    for share, actions in zip(shares, policies, strict=True):
        if share > 1e-12:
            P = raw.transitions[list(actions), np.arange(S)]
            x[np.arange(S), actions] += share * chain.occupation(P, np.eye(S)[0])
    y = chain.occupation(raw.transitions.mean(axis=0), np.eye(S)[0])[:, None] * np.full((S, A), 1 / A)
    for eps in (1e-2, 1e-4):
        z = (1 - eps) * x + eps * y
        gains = np.array([average(model, z / z.sum(axis=1, keepdims=True)) for model in starts])
        np.testing.assert_allclose(gains, gains[:1].repeat(S, axis=0), atol=1e-9)
        assert w.value(gains[0]) >= best[0] - eps * raw.span - 1e-7


def _optimal_shares(Z, w):
    """Shares of an optimal mixture of the rows of Z: max t with t ≤ w_σ·(shares @ Z) for all permutations σ."""
    orders = np.array(list(itertools.permutations(w.weights)))
    answer = linprog(
        np.append(np.zeros(len(Z)), -1.0),
        A_ub=np.column_stack([-orders @ Z.T, np.ones(len(orders))]),
        b_ub=np.zeros(len(orders)),
        A_eq=[[1.0] * len(Z) + [0.0]],
        b_eq=[1.0],
        bounds=[(0, None)] * len(Z) + [(None, None)],
    )
    assert answer.status == 0
    return answer.x[:-1]


@few
@given(seeds, st.sampled_from(UNICHAIN))
def test_lemma_3_holds_in_unichain_models(seed, kind):
    """A stationary policy attains the optimum: that of all mixtures."""
    raw = small(kind, seed, policies=81)
    w = eh.GGF.geometric(raw.sizes[2])
    best = eh.solve(raw.model(), w, criterion="average")
    assert isinstance(best.policy, np.ndarray)
    assert best.welfare == pytest.approx(best_ggf(corners(raw, 1.0), w.weights), abs=1e-7 * raw.span)


# As γ tends to one


@pytest.mark.parametrize("gamma", [0.6, *CLOSE_TO_ONE])
def test_refuge_the_error_does_not_shrink(gamma):
    model = examples.two_homes(with_refuge=True)
    best = eh.solve(model, W, gamma=gamma)
    assert (1 - gamma) * best.welfare == pytest.approx(gamma / (1 + gamma))
    np.testing.assert_allclose(best.policy[0], [gamma, 1 - gamma, 0], atol=1e-6)  # leaves s1 with probability 1 − γ
    np.testing.assert_allclose(best.policy[1], [0, 1, 0], atol=1e-6)
    np.testing.assert_allclose(best.weights, np.array([gamma, 1]) / (1 + gamma), atol=1e-6)
    np.testing.assert_allclose(average(model, best.policy), [0, 1], atol=1e-9)
    assert W.value(average(model, best.policy)) == pytest.approx(1 / 3)
    assert eh.solve(model, W, criterion="average").welfare == pytest.approx(1 / 2, abs=1e-8)
    assert W.value(average(model, [2, 2, 2])) == pytest.approx(1 / 2)  # the refuge attains it
    bound = eh.error_bound(model, W, gamma)
    assert bound.true_gap == pytest.approx(1 / 6, abs=1e-7)
    assert not bound.applicable  # the theorem's condition: σ(H) ≥ 1/(1 − γ), which is too large for every γ
    assert np.abs(np.linalg.eigvals(chain.deviation(model.under(best.policy)[0]))).max() >= 0.999 / (1 - gamma)
    assert bound.certificate == pytest.approx(1 / (1 + gamma) - 1 / 3, abs=1e-6)  # max_s V(s) is that of s2


@pytest.mark.parametrize("gamma", CLOSE_TO_ONE)
def test_refuge_the_optimal_mixture_does_converge(gamma):
    model = examples.two_homes(with_refuge=True)
    mixture = eh.Mixture(np.array([gamma, 1]) / (1 + gamma), np.array([[0, 1, 2], [1, 1, 2]]))
    best = eh.solve(model, W, gamma=gamma)
    assert W.value(eh.evaluate(model, mixture, gamma=gamma)) == pytest.approx(best.welfare)
    reached = W.value(average(model, mixture))
    assert reached == pytest.approx((1 + 2 * gamma) / (3 * (1 + gamma)))
    assert 1 / 2 - reached <= 1 - gamma


@few
@given(raw_models(max_S=4, policies=81), st.sampled_from([0.5, 0.9, 0.999]), st.data())
def test_optimal_values_converge_in_every_model(raw, gamma, data):
    """|max (1−γ)GGF(J) − max GGF(μ)| ≤ (1 − γ) h span(R), also in multichain and periodic models."""
    w = data.draw(ggfs(raw.sizes[2]))
    discounted = (1 - gamma) * best_ggf(corners(raw, gamma), w.weights)
    difference = abs(discounted - best_ggf(corners(raw, 1.0), w.weights))
    assert difference <= (1 - gamma) * largest_deviation(raw) * raw.span + 1e-7
    assert eh.solve(raw.model(), w, gamma=gamma).welfare * (1 - gamma) == pytest.approx(discounted, abs=1e-7)


@few
@given(seeds, st.sampled_from(KINDS))
def test_one_objective_loses_nothing_close_to_one(seed, kind):
    raw = small(kind, seed, D=1)
    discounted = eh.solve(raw.model(), "ggf", gamma=1 - 1e-6)
    best = corners(raw, 1.0).max()
    assert average(raw.model(), discounted.policy)[0] == pytest.approx(best, abs=1e-6 * raw.span)


# Theorem 3.6 and Corollary 3.7: the arithmetic of the chain (see test_bounds.py for the bounds themselves)


@pytest.mark.parametrize("n", [1, 4, 50])
def test_deviation_matrix_of_the_walk(n):
    walk = [1] * (n + 1) + [0]
    P = examples.chain(n, 0.9).under_deterministic(np.array(walk))
    by_hand = np.triu(np.ones((n + 2, n + 2)))  # one visit to each of the states to come
    by_hand[:, -1] = -np.arange(n + 1, -1, -1)  # against being in G from the start
    H = chain.deviation(P)
    np.testing.assert_allclose(H, by_hand, atol=1e-9)
    assert np.linalg.norm(H, np.inf) == pytest.approx(2 * (n + 1))
    np.testing.assert_allclose(np.diag(H), [1] * (n + 1) + [0], atol=1e-9)  # triangular: its eigenvalues
    assert np.linalg.norm(H, 2) > np.sqrt(n + 1) > 1


# GGF-DQN


def ggf_dqn(model, w, gamma, rounds=50):
    """The paper's target, tabular and exact: Q(s, a) ← E[r + γ Q(s′, a*)], a* maximising GGF(r + γ Q(s′, a′))."""
    P = model.transitions.toarray().reshape(model.S, model.A, model.S)
    Q = np.zeros_like(model.rewards)
    for _ in range(rounds):
        targets = model.rewards[:, :, None, None] + gamma * Q  # [S, A, S′, A′, D]
        chosen = w.value(targets).argmax(axis=-1)
        best = np.take_along_axis(targets, chosen[..., None, None], axis=3)[:, :, :, 0]
        Q = np.einsum("sat,satd->sad", P, best)
    return Q, w.value(Q).argmax(axis=-1)


def two_outcomes():
    """s0 leads to sA or sB by chance; sA pays (1, 0) or (.4, .4), sB (0, 1) or (.4, .4); then all is over."""
    P = np.zeros((4, 4))
    P[0, 1] = P[0, 2] = 0.5
    P[1:, 3] = 1
    rewards = np.zeros((4, 2, 2))
    rewards[1] = [[1, 0], [0.4, 0.4]]
    rewards[2] = [[0, 1], [0.4, 0.4]]
    return eh.MOMDP([P, P], rewards, [1, 0, 0, 0])


def test_ggf_dqn_makes_outcomes_fair_rather_than_expectations():
    model = two_outcomes()
    Q, greedy = ggf_dqn(model, W, 0.9)
    np.testing.assert_allclose(Q[0], 0.36)
    assert greedy[1] == greedy[2] == 1
    learnt = eh.evaluate(model, greedy, gamma=0.9)
    np.testing.assert_allclose(learnt, [0.36, 0.36])
    best = eh.solve(model, W, gamma=0.9)
    np.testing.assert_allclose(best.returns, [0.45, 0.45])
    assert best.welfare == pytest.approx(0.9 * 0.5)  # by hand: no policy has a larger mean
    assert (best.returns > learnt).all()
    # Jensen: the expectation of GGF is what the rule optimises, and is no larger than the GGF of the expectation.
    assert W.value(learnt) == pytest.approx(0.9 * max(ggf(1, 0), ggf(0.4, 0.4)))


def test_ggf_dqn_misses_without_chance():
    model = examples.state_dependence(0.9)
    Q, greedy = ggf_dqn(model, CORRECTED, 0.9)
    np.testing.assert_allclose(Q[0, UP], [7, 7])
    assert greedy[:2].tolist() == [UP, DOWN]
    learnt = eh.evaluate(model, greedy, gamma=0.9)
    np.testing.assert_allclose(learnt, [12, 5])
    assert CORRECTED.value(learnt) == pytest.approx(6.4)
    assert eh.solve(model, CORRECTED, gamma=0.9).welfare == pytest.approx(7)


# How the optimum is proven


@few
@given(raw_models(max_S=4, policies=81), st.sampled_from([0.5, 0.99, 1.0]), st.data())
def test_the_certificate_of_a_solution(raw, gamma, data):
    """Its weights λ are a mixture of permutations of w, and λ·z ≤ welfare + gap for every deterministic policy."""
    w = data.draw(ggfs(raw.sizes[2]))
    best = eh.solve(raw.model(), w, **({"criterion": "average"} if gamma == 1 else {"gamma": gamma}))
    D = raw.sizes[2]
    largest_sums = np.cumsum(np.sort(best.weights)[::-1])
    assert (largest_sums <= np.cumsum(w.weights) + 1e-12).all()  # majorised by w: in the hull of its permutations
    assert largest_sums[-1] == pytest.approx(1)
    Z = corners(raw, gamma)
    assert (Z @ best.weights).max() <= best.welfare + best.gap + 1e-9 * max(1.0, np.abs(Z).max())
    z = np.random.default_rng(0).normal(size=(20, D))
    assert (z @ best.weights >= w.value(z) - 1e-12).all()


def test_welfare_of_expected_returns_and_expected_welfare():
    outcomes = np.eye(2)
    assert W.value(outcomes.mean(axis=0)) == pytest.approx(1 / 2)
    assert W.value(outcomes).mean() == pytest.approx(1 / 3)


# The page

PAGE = Path(__file__).parents[2] / "docs" / "theory.md"


def slow_gate():
    """State a pays .85 to stay, or may be left for b with probability ½; b pays 1 to stay."""
    return eh.MOMDP([np.eye(2), [[0.5, 0.5], [1, 0]]], [[[0.85], [0]], [[1], [0]]], [1, 0])


def table_row(label, *values):
    cells = ["–" if value is None else f"{value:.3f}" for value in values]
    return f"| {label} | {' | '.join(cells)} |"


@pytest.fixture(scope="module")
def page():
    return PAGE.read_text(encoding="utf-8")


def test_page_quotes_what_is_computed(page):
    """Sentences and table rows of the page, put together from computed values."""
    refuge = examples.two_homes(with_refuge=True)
    mixed = {
        gamma: W.value(
            average(refuge, eh.Mixture(np.array([gamma, 1]) / (1 + gamma), np.array([[0, 1, 2], [1, 1, 2]])))
        )
        for gamma in (0.9, 0.99)
    }
    walk = chain.deviation(examples.chain(50, 0.99).under_deterministic(np.array([1] * 51 + [0])))
    printed = eh.solve(examples.state_dependence(0.9), PRINTED, gamma=0.9).welfare
    learnt = eh.evaluate(two_outcomes(), ggf_dqn(two_outcomes(), W, 0.9)[1], gamma=0.9)
    best = eh.solve(two_outcomes(), W, gamma=0.9).returns
    one = eh.solve(examples.one_state(), W, criterion="average")
    quoted = [
        f"**73/9** = {printed:.2f} | {ggf(12, 5, CORRECTED):.1f} |",
        f"28/9 = {ggf(0, 7, PRINTED):.2f} | {ggf(0, 7, CORRECTED):.1f} |",
        f"best at p = 2/5: ({one.returns[0]:.1f}, {one.returns[1]:.1f}), GGF {one.welfare:.1f}.",
        "p = q = 1/10 has\n({:.2f}, {:.2f})".format(*average(examples.two_homes(), moving(0.1, 0.1))),
        f"{mixed[0.9]:.4f} for γ = 0.9, {mixed[0.99]:.4f} for γ = 0.99",
        f"which is {np.linalg.norm(walk, np.inf):.0f} for n = 50, and ‖H‖₂ is {np.linalg.norm(walk, 2):.1f}",
        "its J is ({:.2f}, {:.2f})".format(*learnt),
        "has J = ({:.2f}, {:.2f})".format(*best),
        f"left out above {DENSE_STATES} states",
        f"= 9/11 = {9 / 11:.3f}, so π_γ stays",
    ]
    for n, gamma in ((4, 0.9), (9, 0.9), (50, 0.99), (500, 0.999)):
        bound = eh.error_bound(examples.chain(n, gamma), "ggf", gamma)
        assert bound.applicable
        values = bound.true_gap, bound.published, bound.corollary, bound.rigorous
        quoted.append(table_row(f"{n} | {gamma}", *values))
    for label, model, w, gamma in (
        ("the two states, 0.9", slow_gate(), "ggf", 0.9),
        ("`chain(50, 0.99)`, 0.99", examples.chain(50, 0.99), "ggf", 0.99),
        ("`two_homes` with refuge, 0.99", refuge, W, 0.99),
    ):
        b = eh.error_bound(model, w, gamma)
        values = b.true_gap, b.published, b.rigorous, b.rigorous_inf, b.rigorous_2, b.kakade, b.certificate
        quoted.append(table_row(label, *values))
    flat = " ".join(page.split())
    for sentence in quoted:
        assert " ".join(sentence.split()) in flat


def test_small_case_by_hand():
    """The two states: x_γ = (2, 9)/11, H = (2, −2; 0, 0), κ₂(U) = 1 + √2."""
    bound = eh.error_bound(slow_gate(), "ggf", 0.9)
    np.testing.assert_allclose(bound.discounted.policy[0], [1, 0], atol=1e-9)
    np.testing.assert_allclose(bound.average.policy[0], [0, 1], atol=1e-9)
    P = np.array([[0.5, 0.5], [0, 1]])
    np.testing.assert_allclose(chain.discounted_occupation(P, np.array([1.0, 0]), 0.9), [2 / 11, 9 / 11])
    np.testing.assert_allclose(chain.deviation(P), [[2, -2], [0, 0]], atol=1e-12)
    assert bound.true_gap == pytest.approx(0.15)
    assert bound.rigorous == pytest.approx(2 / 11)
    assert bound.rigorous_inf == pytest.approx(0.5 * 0.1 * 4 / (0.9 - 0.1 * 4))
    assert bound.rigorous_2 == pytest.approx(np.sqrt(0.85**2 + 1) * 0.1 * np.sqrt(8) / (0.9 - 0.1 * np.sqrt(8)))
    assert bound.published == pytest.approx(1.85 * 0.1 * 2 / (0.9 - 0.1 * 2))
    assert bound.kakade == pytest.approx((1 + np.sqrt(2)) * 0.1 / (1 - 0.9 * 0.5))
    assert bound.certificate == pytest.approx(1 - 0.85)


KNOWN_DECIMALS = {
    *("0.9", "0.99", "0.999", "0.85", "0.4"),  # given: discounts and rewards of the examples
    *("8.11", "6.4", "3.11", "1.4", "1.2", "0.45", "0.36", "215.8", "0.4912", "0.4992"),  # quoted above
    *("0.410", "0.398", "0.290", "0.651", "0.337", "0.265", "0.401", "0.033", "0.024", "0.394", "0.003", "0.002"),
    *("0.150", "0.529", "0.182", "0.400", "0.601", "0.439", "0.167", "1.003", "0.169", "0.818"),
}
KNOWN_FRACTIONS = {
    *("5/9", "4/9", "4/5", "1/5", "5/7", "2/5", "2/3", "1/10"),  # given: weights and probabilities
    *("73/9", "28/9", "1/2", "1/3", "1/6", "2/11", "9/11"),  # worked out in the tests of this file
}


def test_page_quotes_no_other_numbers(page):
    """A number that is new on the page has to be computed in a test before it is known here."""
    labels = r"(Example|Lemma|Lemmas|Theorem|Corollary|section)s? \d\.\d( and \d\.\d)?"
    text = re.sub(labels, "", page)
    assert set(re.findall(r"\d+\.\d+", text)) == KNOWN_DECIMALS
    assert set(re.findall(r"\d+/\d+", text)) == KNOWN_FRACTIONS


def test_page_links(page):
    """Links within the page lead to headings, and names in code exist."""
    slugs = {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^## (.+)$", page, re.M)}
    links = set(re.findall(r"\]\(#([^)]+)\)", page))
    assert links <= slugs
    assert len(links) >= 8
    for name in ("state_dependence", "stay_or_leave", "two_homes", "chain"):
        assert f"`{name}" in page
        assert hasattr(examples, name)
    for field in ("rigorous", "rigorous_inf", "rigorous_2", "kakade", "certificate"):
        assert f"`{field}`" in page
        assert field in eh.ErrorBound.__dataclass_fields__
