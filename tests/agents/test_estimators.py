"""Advantages: golden values, and two implementations in NumPy that share nothing with the compiled one."""

from __future__ import annotations

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings

from evenhand.agents.estimators import advantages, explained_variance

compiled = jax.jit(advantages)


@pytest.fixture(autouse=True)
def _no_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield


def as_arrays(*columns):
    """Lists over T of [D] rewards and of flags, for one environment."""
    return [jnp.asarray(column)[:, None] for column in columns]


def recursive(reward, value, next_value, terminated, truncated, gamma, lam):
    """The scalar textbook recursion, [T], in double precision."""
    A = np.zeros(len(reward) + 1)
    for t in reversed(range(len(reward))):
        delta = reward[t] + (0.0 if terminated[t] else gamma * next_value[t]) - value[t]
        A[t] = delta + (0.0 if terminated[t] or truncated[t] else gamma * lam * A[t + 1])
    return A[:-1]


def n_step(reward, value, next_value, terminated, truncated, gamma):
    """What was paid until the end of the episode or of the rollout, and what the critic expects after it; [T]."""
    T = len(reward)
    answer = []
    for t in range(T):
        total, discount = 0.0, 1.0
        for k in range(t, T):
            total += discount * reward[k]
            discount *= gamma
            if terminated[k]:
                break
            if truncated[k] or k == T - 1:
                total += discount * next_value[k]
                break
        answer.append(total - value[t])
    return np.array(answer)


# By hand: γ = ½, two objectives

REWARD = [[1.0, 0.0], [2.0, 4.0], [0.0, 8.0]]
VALUE = [[2.0, 4.0], [4.0, 0.0], [8.0, 2.0]]
NEXT = [[4.0, 0.0], [8.0, 2.0], [16.0, 6.0]]
NEVER = [False] * 3


def by_hand(terminated, truncated, lam):
    return np.asarray(compiled(*as_arrays(REWARD, VALUE, NEXT, terminated, truncated), 0.5, lam))[:, 0]


def test_one_step_ahead():
    # δ = r + ½ V′ − V
    np.testing.assert_array_equal(by_hand(NEVER, NEVER, 0.0), [[1, -4], [2, 5], [0, 9]])


def test_half_way():
    # A_2 = δ_2 = (0, 9); A_1 = δ_1 + ¼ A_2 = (2, 7.25); A_0 = δ_0 + ¼ A_1 = (1.5, −2.1875)
    np.testing.assert_array_equal(by_hand(NEVER, NEVER, 0.5), [[1.5, -2.1875], [2, 7.25], [0, 9]])


def test_to_the_end_of_the_rollout():
    # 1 + ½·2 + ¼·0 + ⅛·16 − 2 = 2; 0 + ½·4 + ¼·8 + ⅛·6 − 4 = 0.75; and so on
    np.testing.assert_array_equal(by_hand(NEVER, NEVER, 1.0), [[2, 0.75], [2, 9.5], [0, 9]])


def test_a_terminal_state_has_no_value():
    # the second step ends the episode: its V′ does not count, nor does anything later
    ended = [False, True, False]
    np.testing.assert_array_equal(by_hand(ended, NEVER, 1.0), [[0, -2], [-2, 4], [0, 9]])
    np.testing.assert_array_equal(by_hand(ended, NEVER, 0.0), [[1, -4], [-2, 4], [0, 9]])


def test_a_time_limit_bootstraps():
    # the second step is cut off: its V′ counts, nothing later does
    ended = [False, True, False]
    np.testing.assert_array_equal(by_hand(NEVER, ended, 1.0), [[2, -1.5], [2, 5], [0, 9]])
    np.testing.assert_array_equal(by_hand(ended, ended, 1.0), by_hand(ended, NEVER, 1.0))  # both: it is over


@st.composite
def rollouts(draw):
    T, N, D = draw(st.sampled_from([(1, 1, 1), (7, 3, 1), (7, 3, 4), (40, 2, 2)]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    reward, value, next_value = rng.normal(size=(3, T, N, D)).astype(np.float32)
    terminated, truncated = rng.random((2, T, N)) < draw(st.sampled_from([0.0, 0.1, 0.5]))
    return reward, value, next_value, terminated, truncated


@given(rollouts(), st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.99999]), st.sampled_from([0.0, 0.3, 0.95, 1.0]))
@settings(max_examples=60)
def test_every_objective_has_the_scalar_recursion(rollout, gamma, lam):
    got = np.asarray(compiled(*rollout, gamma, lam))
    reward, value, next_value, terminated, truncated = rollout
    assert got.dtype == np.float32
    for n in range(reward.shape[1]):
        ends = terminated[:, n], truncated[:, n]
        for d in range(reward.shape[2]):
            expected = recursive(*(x[:, n, d].astype(float) for x in (reward, value, next_value)), *ends, gamma, lam)
            np.testing.assert_allclose(got[:, n, d], expected, rtol=1e-5, atol=2e-5)


@given(rollouts(), st.floats(0.0, 0.99999))
@settings(max_examples=60)
def test_lambda_one_is_the_n_step_return(rollout, gamma):
    reward, value, next_value, terminated, truncated = rollout
    goes_on = ~(terminated | truncated)[:-1, :, None]
    next_value = np.concatenate([np.where(goes_on, value[1:], next_value[:-1]), next_value[-1:]])  # one critic
    got = np.asarray(compiled(reward, value, next_value, terminated, truncated, gamma, 1.0))
    for n in range(reward.shape[1]):
        ends = terminated[:, n], truncated[:, n]
        for d in range(reward.shape[2]):
            expected = n_step(*(x[:, n, d].astype(float) for x in (reward, value, next_value)), *ends, gamma)
            np.testing.assert_allclose(got[:, n, d], expected, rtol=1e-5, atol=5e-5)


@given(rollouts(), st.sampled_from([0.9, 0.99999]), st.sampled_from([0.0, 0.95, 1.0]))
@settings(max_examples=30)
def test_objectives_do_not_know_of_each_other(rollout, gamma, lam):
    """Bit by bit: what another objective is paid, or where it stands, changes nothing."""
    together = np.asarray(compiled(*rollout, gamma, lam))
    for d in range(rollout[0].shape[2]):
        alone = np.asarray(compiled(*(x[..., d : d + 1] for x in rollout[:3]), *rollout[3:], gamma, lam))
        np.testing.assert_array_equal(together[..., d : d + 1], alone)
    backwards = np.asarray(compiled(*(x[..., ::-1] for x in rollout[:3]), *rollout[3:], gamma, lam))
    np.testing.assert_array_equal(together[..., ::-1], backwards)


def test_long_rollouts_of_a_patient_agent_stay_accurate():
    """γ = 0.99999 over 20,000 steps of a constant reward, with a critic that knows nothing."""
    T, gamma = 20_000, 0.99999
    reward, nothing = jnp.ones((T, 1, 2)), jnp.zeros((T, 1, 2))
    never = jnp.zeros((T, 1), bool)
    got = np.asarray(compiled((1 - gamma) * reward, nothing, nothing, never, never, gamma, 1.0))[:, 0, 0]
    expected = 1 - gamma ** np.arange(T, 0, -1)
    np.testing.assert_allclose(got, expected, rtol=2e-3)


def test_a_perfect_critic_has_no_advantages():
    """V = r/(1 − γ) for ever: every δ is rounding."""
    gamma = 0.99999
    reward = jnp.full((128, 4, 2), 1 - gamma)
    value = jnp.ones((128, 4, 2))
    never = jnp.zeros((128, 4), bool)
    got = np.asarray(compiled(reward, value, value, never, never, gamma, 0.95))
    assert np.abs(got).max() < 3e-6


def test_explained_variance():
    target = jnp.array([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(target, target) == 1
    assert explained_variance(jnp.full(4, 2.5), target) == 0
    assert explained_variance(-target, target) == -3  # Var(2 target) = 4 Var(target)
    assert np.isfinite(explained_variance(target, jnp.ones(4)))  # nothing to explain
