"""Chains with answers known by hand, identities on random chains, and large models by their residuals."""

import contextlib
import itertools

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given
from scipy.linalg import null_space

from evenhand.errors import IllConditioned
from evenhand.exact import chain, linear

TWO_CYCLE = np.array([[0.0, 1.0], [1.0, 0.0]])
THREE_CYCLE = np.roll(np.eye(3), 1, axis=1)


def birth_death(up, down):
    """A walk on a line; returns P and the stationary distribution from x_{i+1} / x_i = up_i / down_{i+1}."""
    stay = 1 - np.append(up, 0.0) - np.append(0.0, down)
    log_x = np.append(0.0, np.cumsum(np.log(up) - np.log(down)))
    x = np.exp(log_x - log_x.max())
    return sp.diags_array([up, stay, down], offsets=[1, 0, -1]).tocsr(), x / x.sum()


def gamblers_ruin(n):
    P = np.zeros((n + 1, n + 1))
    P[0, 0] = P[n, n] = 1.0
    for i in range(1, n):
        P[i, i - 1] = P[i, i + 1] = 0.5
    return P


def random_graph(rng, states, successors=5):
    source = np.repeat(np.arange(states), successors)
    target = rng.integers(0, states, states * successors)
    weight = rng.dirichlet(np.ones(successors), states).ravel()
    return sp.csr_array((weight, (source, target)), shape=(states, states))


def lazy_grid(rows, columns):
    """A walk that stays with probability ½; returns P and its stationary distribution, deg / Σ deg."""
    states = np.arange(rows * columns).reshape(rows, columns)
    a = np.concatenate([states[:, :-1].ravel(), states[:-1].ravel()])
    b = np.concatenate([states[:, 1:].ravel(), states[1:].ravel()])
    neighbours = sp.csr_array((np.ones(2 * len(a)), (np.append(a, b), np.append(b, a))))
    degree = neighbours.sum(axis=1)
    P = 0.5 * sp.eye_array(len(degree)) + 0.5 * sp.diags_array(1 / degree) @ neighbours
    return P.tocsr(), degree / degree.sum()


def start_in(state, states):
    return np.eye(1, states, state)[0]


@st.composite
def chains(draw):
    """Dense chains of up to 7 states: deterministic maps, or rows of small integers with many zeros."""
    S = draw(st.integers(1, 7))
    if draw(st.booleans()):
        return np.eye(S)[draw(st.lists(st.integers(0, S - 1), min_size=S, max_size=S))]
    row = st.lists(st.sampled_from([0, 0, 0, 1, 2, 5]), min_size=S, max_size=S).filter(any)
    weights = np.array([draw(row) for _ in range(S)], float)
    return weights / weights.sum(axis=1, keepdims=True)


@st.composite
def chains_with_start(draw):
    P = draw(chains())
    weights = draw(st.lists(st.integers(0, 3), min_size=len(P), max_size=len(P)).filter(any))
    return P, np.array(weights) / sum(weights)


def projector(P):
    """P* as the projector on the null space of I − P along its range: an independent way to it."""
    right, left = null_space(np.eye(len(P)) - P), null_space((np.eye(len(P)) - P).T).T
    return right @ np.linalg.solve(left @ right, left)


@contextlib.contextmanager
def forced(**thresholds):
    """Override the module's thresholds, so that small chains take the way of large ones."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in thresholds.items():
            patch.setattr(chain if hasattr(chain, name) else linear, name, value)
        yield


# Closed classes


def test_classes_of_gamblers_ruin():
    labels, n = chain.closed_classes(gamblers_ruin(4))
    assert n == 2
    assert sorted(labels[[0, 4]]) == [0, 1]
    assert (labels[1:4] == -1).all()


def test_class_with_an_exit_is_transient():
    P = np.array([[0.5, 0.5, 0, 0], [0.4, 0.5, 0.1, 0], [0, 0, 0, 1], [0, 0, 1, 0]])
    labels, n = chain.closed_classes(P)
    assert n == 1
    assert labels.tolist() == [-1, -1, 0, 0]


def test_stored_zeros_are_no_edges():
    P = sp.csr_array((np.array([1.0, 0.0, 0.0, 1.0]), ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2))
    assert chain.closed_classes(P)[1] == 2
    np.testing.assert_array_equal(chain.cesaro_limit(P), np.eye(2))
    assert P.nnz == 4  # the caller's matrix is untouched


@given(chains())
def test_classes_are_closed_and_communicate(P):
    labels, n = chain.closed_classes(P)
    reach = np.linalg.matrix_power(np.eye(len(P)) + (P > 0), len(P)) > 0
    assert set(labels) - {-1} == set(range(n))
    for i, j in itertools.product(range(len(P)), repeat=2):
        if labels[i] >= 0:
            assert reach[i, j] == (labels[i] == labels[j])
    assert (reach[:, labels >= 0].any(axis=1)).all()
    assert all((reach[i] & ~reach[:, i]).any() for i in np.flatnonzero(labels < 0))


@pytest.mark.slow
def test_classes_of_a_million_states():
    S = 1_000_000
    even = np.arange(S) // 2 * 2  # odd states step to their even neighbours, which stay
    P = sp.csr_array((np.ones(S), (np.arange(S), even)), shape=(S, S))
    labels, n = chain.closed_classes(P)
    assert n == S // 2
    assert (labels[1::2] == -1).all()
    np.testing.assert_array_equal(np.sort(labels[::2]), np.arange(S // 2))


# Stationary distributions


@pytest.mark.parametrize("P", [TWO_CYCLE, THREE_CYCLE, np.roll(np.eye(100), 1, axis=1)])
@pytest.mark.parametrize("thresholds", [{}, {"GTH_STATES": 0}, {"GTH_STATES": 0, "FEW": 0, "LU_FILL": 0}])
def test_cycles_are_uniform(P, thresholds):
    with forced(**thresholds):
        np.testing.assert_allclose(chain.stationary_of_class(P), 1 / len(P), rtol=1e-12)
        np.testing.assert_allclose(chain.occupation(P, start_in(0, len(P))), 1 / len(P), rtol=1e-12)


def test_single_state():
    P, r, one = np.ones((1, 1)), np.array([3.0]), np.ones(1)
    assert chain.stationary_of_class(P) == one
    assert chain.occupation(P, one) == one
    assert chain.discounted_occupation(P, one, 0.9) == pytest.approx(1.0)
    assert chain.gain_and_bias(P, r) == (r, np.zeros(1))
    assert chain.deviation(P) == np.zeros((1, 1))


def test_nearly_decomposable_chain_is_accurate_in_every_entry():
    rare = 1e-9
    P, x = birth_death(np.array([0.3, rare, 0.4, rare, 0.2]), np.array([0.2, 3 * rare, 0.1, 7 * rare, 0.5]))
    np.testing.assert_allclose(chain.stationary_of_class(P), x, rtol=1e-12)


def test_entries_far_below_rounding_are_accurate():
    P, x = birth_death(np.full(299, 0.1), np.full(299, 0.3))
    assert x.min() < 1e-140
    shuffle = np.random.default_rng(0).permutation(300)
    np.testing.assert_allclose(chain.stationary_of_class(P[shuffle][:, shuffle]), x[shuffle], rtol=1e-11)


def test_ratios_beyond_the_range_of_floats():
    P, x = birth_death(np.full(999, 0.9), np.full(999, 0.1))  # x_last / x_0 = 9^999
    np.testing.assert_allclose(chain.stationary_of_class(P), x, rtol=1e-10, atol=1e-200)


@pytest.mark.parametrize("states", [47, 48, 49, 50, 130])
def test_elimination_by_blocks(states):
    P = np.random.default_rng(states).dirichlet(np.ones(states), states)
    np.testing.assert_allclose(chain.stationary_of_class(P), projector(P)[0], rtol=1e-10)


def test_reference_state_that_is_hardly_visited():
    slope = np.exp(np.linspace(0.02, -0.02, 4999))  # one hill; the most entered state is far down its side
    P, x = birth_death(0.2 * slope, np.full(4999, 0.2))
    assert x[np.argmax(P.sum(axis=0))] < 1e-9 * x.max()
    np.testing.assert_allclose(chain.stationary_of_class(P), x, atol=1e-12)


def test_failure_to_converge_is_an_error():
    P, _ = birth_death(np.full(99, 0.1), np.full(99, 0.1))
    with forced(GTH_STATES=0, LU_FILL=0, STEPS=3, ROUNDS=0), pytest.raises(IllConditioned, match="not solved"):
        chain.stationary_of_class(P)


# Several classes and transient states


def test_identity():
    r = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    start = np.array([0.2, 0.3, 0.5])
    np.testing.assert_array_equal(chain.cesaro_limit(np.eye(3)), np.eye(3))
    np.testing.assert_array_equal(chain.deviation(np.eye(3)), 0)
    np.testing.assert_allclose(chain.occupation(np.eye(3), start), start)
    g, h = chain.gain_and_bias(np.eye(3), r)
    np.testing.assert_allclose(g, r)
    np.testing.assert_array_equal(h, 0)


@pytest.mark.parametrize("thresholds", [{}, {"FEW": 0, "LU_FILL": 0}])
def test_gamblers_ruin(thresholds):
    n = 30
    P, i = gamblers_ruin(n), np.arange(n + 1)
    with forced(**thresholds):
        won = chain.gain(P, (i == n).astype(float))
        at_the_end = chain.occupation(P, start_in(7, n + 1))
        no_gain, duration = chain.gain_and_bias(P, ((i > 0) & (i < n)).astype(float))
    np.testing.assert_allclose(won, i / n, atol=1e-12)
    np.testing.assert_allclose(at_the_end[[0, n]], [1 - 7 / n, 7 / n], atol=1e-12)
    assert (at_the_end[1:n] == 0).all()
    np.testing.assert_array_equal(no_gain, 0)
    np.testing.assert_allclose(duration, i * (n - i), atol=1e-9)  # known expected length of the game


def test_transient_start_into_a_periodic_class():
    P = np.array([[0.0, 0.25, 0, 0.75], [0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 1]])
    np.testing.assert_allclose(chain.occupation(P, start_in(0, 4)), [0, 0.125, 0.125, 0.75])
    np.testing.assert_allclose(chain.gain(P, np.array([9.0, 2.0, 4.0, 1.0])), [1.5, 3, 3, 1])


def test_states_that_are_hardly_ever_left():
    rare = 1e-10  # two states that swap, and leave with 3 : 7 odds once in 1e9 steps
    P = np.array([[0, 1 - 10 * rare, 3 * rare, 7 * rare], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    np.testing.assert_allclose(chain.occupation(P, start_in(1, 4)), [0, 0, 0.3, 0.7], rtol=1e-12)
    np.testing.assert_allclose(chain.gain(P, np.array([0, 0, 1.0, 2.0]))[:2], 1.7, rtol=1e-12)


def test_long_transient_chain():
    S = 20_000
    P = sp.csr_array((np.ones(S), (np.arange(S), np.minimum(np.arange(S) + 1, S - 1))))
    np.testing.assert_allclose(chain.occupation(P, start_in(0, S)), start_in(S - 1, S))
    g, h = chain.gain_and_bias(P, 1.0 - start_in(S - 1, S))
    np.testing.assert_array_equal(g, 0)
    np.testing.assert_allclose(h, S - 1 - np.arange(S))  # steps until absorption


def test_constant_reward_has_no_bias():
    P = np.array([[0.1, 0.2, 0.7], [0.3, 0.3, 0.4], [0.6, 0.3, 0.1]])
    g, h = chain.gain_and_bias(P, np.full(3, 0.1))
    np.testing.assert_allclose(g, 0.1)
    np.testing.assert_allclose(h, 0, atol=1e-15)


# Identities


@given(chains())
def test_identities_of_the_limit_and_the_deviation(P):
    limit, H, identity = chain.cesaro_limit(P), chain.deviation(P), np.eye(len(P))
    np.testing.assert_allclose(limit, projector(P), atol=1e-9)
    np.testing.assert_allclose(limit.sum(axis=1), 1, atol=1e-12)
    assert (limit >= 0).all()
    for product in (limit @ P, P @ limit, limit @ limit):
        np.testing.assert_allclose(product, limit, atol=1e-12)
    scale = max(1.0, np.abs(H).max())
    np.testing.assert_allclose(H @ (identity - P), identity - limit, atol=1e-10 * scale)
    np.testing.assert_allclose((identity - P) @ H, identity - limit, atol=1e-10 * scale)
    np.testing.assert_allclose(H @ limit, 0, atol=1e-10 * scale)
    np.testing.assert_allclose(limit @ H, 0, atol=1e-10 * scale)
    np.testing.assert_allclose(H.sum(axis=1), 0, atol=1e-10 * scale)


@given(chains_with_start(), st.sampled_from([{}, {"GTH_STATES": 0}, {"GTH_STATES": 0, "FEW": 0, "LU_FILL": 0}]))
def test_vectors_agree_with_matrices_whatever_the_way(model, thresholds):
    P, start = model
    limit, H = chain.cesaro_limit(P), chain.deviation(P)
    r = np.column_stack([np.arange(len(P)) ** 2.0, np.cos(np.arange(len(P)))])
    with forced(**thresholds):
        x = chain.occupation(sp.csr_array(P), start)
        discounted = chain.discounted_occupation(P, start, 0.9)
        g, h = chain.gain_and_bias(sp.csr_matrix(P), r)
        g_alone = chain.gain(P, r[:, 0])
    scale = max(1.0, np.abs(H).max() ** 2)
    np.testing.assert_allclose(x, start @ limit, atol=1e-11 * scale)
    np.testing.assert_allclose(g, limit @ r, atol=1e-10 * scale)
    np.testing.assert_allclose(g_alone, g[:, 0], atol=1e-10 * scale)
    np.testing.assert_allclose(h, H @ r, atol=1e-9 * scale)
    direct = 0.1 * np.linalg.solve((np.eye(len(P)) - 0.9 * P).T, start)
    np.testing.assert_allclose(discounted, direct, atol=1e-12)
    assert discounted.sum() == pytest.approx(1.0, abs=1e-14)


@given(chains(), st.floats(0.3, 0.7))
def test_laurent_series(P, ratio):
    """v = g/(1−γ) + 1/γ Σ_n ((γ−1)/γ)^n H^{n+1} r solves v = r + γPv for γ > σ/(1+σ) (Theorem 3.5)."""
    r = np.arange(1.0, len(P) + 1)
    H, (g, term) = chain.deviation(P), chain.gain_and_bias(P, r)
    radius = np.abs(np.linalg.eigvals(H)).max()
    assume(radius < 30)
    gamma = radius / (radius + ratio)  # the terms shrink like ratio^n
    assume(gamma > 0)
    v = g / (1 - gamma)
    for _ in range(200):
        v += term / gamma
        term = (gamma - 1) / gamma * (H @ term)
    np.testing.assert_allclose(v, np.linalg.solve(np.eye(len(P)) - gamma * P, r), rtol=1e-8)


@given(chains_with_start())
def test_discounted_occupation_tends_to_the_long_run(model):
    P, start = model
    H, x = chain.deviation(P), chain.occupation(P, start)
    slope = max(1.0, np.abs(H).sum(axis=1).max())
    for gap in (1e-4, 1e-8, 1e-12):
        near = chain.discounted_occupation(P, start, 1 - gap)
        assert np.abs(near - x).sum() <= 2 * gap * slope + 1e-12 * slope


def test_no_discounting_future_is_the_start():
    start = np.array([0.2, 0.8])
    np.testing.assert_allclose(chain.discounted_occupation(TWO_CYCLE, start, 0.0), start)


# Size


def check_residuals(P, reward_seed):
    S = P.shape[0]
    start, r = start_in(7, S), np.random.default_rng(reward_seed).random((S, 2))
    x = chain.occupation(P, start)
    assert x.sum() == pytest.approx(1.0, abs=1e-12)
    assert np.abs(x @ P - x).sum() < 1e-12
    g, h = chain.gain_and_bias(P, r)
    np.testing.assert_allclose(g[7], x @ r, atol=1e-11)
    np.testing.assert_allclose(h - P @ h, r - g, atol=1e-12 * np.abs(h).max() + 1e-12)
    np.testing.assert_allclose(chain.gain(P, h), 0, atol=1e-12 * np.abs(h).max())
    for gamma in (0.99, 1 - 1e-6):
        y = chain.discounted_occupation(P, start, gamma)
        assert np.abs(y - (1 - gamma) * start - gamma * (y @ P)).sum() < 1e-13
    return x


def test_medium_random_graph():
    P = random_graph(np.random.default_rng(1), 5000)
    assert not linear.lu_is_affordable(P)
    check_residuals(P, 2)


def test_medium_grid_with_restarts():
    walk, _ = lazy_grid(60, 70)
    restart = sp.csr_array((np.ones(4200), (np.arange(4200), np.zeros(4200, int))), shape=walk.shape)
    P = (0.99 * walk + 0.01 * restart).tocsr()
    assert linear.lu_is_affordable(P)
    check_residuals(P, 3)


def test_two_random_halves_that_hardly_communicate():
    half, rare = 4000, 1e-6  # the damped steps stall here, and GMRES has to finish
    rng = np.random.default_rng(4)
    apart = sp.block_diag([random_graph(rng, half), random_graph(rng, half)])
    across = sp.csr_array((np.ones(2 * half), (np.arange(2 * half), np.roll(np.arange(2 * half), half))))
    P = sp.csr_array((1 - rare) * apart + rare * across)
    x = chain.occupation(P, start_in(0, 2 * half))
    assert x[:half].sum() == pytest.approx(0.5, abs=1e-9)  # both halves are left equally often


def test_random_graph_with_two_absorbing_states():
    P = random_graph(np.random.default_rng(5), 6000).tolil()
    P[[0, 1]] = 0
    P[[0, 1], [0, 1]] = 1
    P = P.tocsr()
    absorbed = chain.gain(P, np.eye(6000, 2))
    np.testing.assert_allclose(P @ absorbed, absorbed, atol=1e-12)
    np.testing.assert_allclose(chain.occupation(P, start_in(7, 6000))[:2], absorbed[7], rtol=1e-9)


@pytest.mark.slow
def test_large_random_graph():
    check_residuals(random_graph(np.random.default_rng(6), 100_000), 7)


@pytest.mark.slow
def test_large_grid():
    P, by_degree = lazy_grid(316, 317)
    np.testing.assert_allclose(check_residuals(P, 8), by_degree, rtol=1e-9)
