"""Finite models as environments: they are what the model says."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evenhand as eh
from evenhand.envs.core import PureEnv
from evenhand.envs.finite import FiniteEnv, FiniteState
from evenhand.evaluation.playing import play_pure
from evenhand.evaluation.policy import Life
from evenhand.exact import examples
from evenhand.exact.policies import evaluate
from models import unchecked


@pytest.fixture(autouse=True)
def _no_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield


def at(state: int, steps: int = 0) -> FiniteState:
    return FiniteState(jnp.array(state, jnp.int32), jnp.array(steps, jnp.int32))


def close_to(counts, probabilities):
    """Frequencies within five deviations of what they should be."""
    n = counts.sum()
    deviation = np.sqrt(n * probabilities * (1 - probabilities))
    return (np.abs(counts - n * probabilities) <= 5 * deviation + 1e-3 * (deviation > 0)).all()


def test_it_is_a_pure_environment():
    env = FiniteEnv(examples.garnet(6, 3, 2, 3), 20)
    assert isinstance(env, PureEnv)
    assert env.objectives == ("user 1", "user 2")
    assert (env.observation_space.n, env.action_space.n, env.reward_space.n) == (6, 3, 2)
    assert FiniteEnv(env.model, 20, objectives=["a", "b"]).objectives == ("a", "b")


def test_transitions_have_the_probabilities_of_the_model():
    model = examples.garnet(6, 2, 2, 3, seed=1)
    env = FiniteEnv(model)
    n = 20_000
    keys = jax.random.split(jax.random.key(0), n)
    steps = jax.jit(jax.vmap(env.step, in_axes=(None, None, 0)))
    for s in range(model.S):
        for a in range(model.A):
            drawn = steps(at(s), jnp.array(a), keys)
            np.testing.assert_array_equal(drawn.reward[0], model.rewards[s, a].astype(np.float32))
            np.testing.assert_array_equal(drawn.observation, np.eye(model.S)[drawn.state.state])
            counts = np.bincount(drawn.state.state, minlength=model.S)
            assert close_to(counts, model.transitions[[s * model.A + a]].toarray()[0])
            assert not drawn.terminated.any()
            assert not drawn.truncated.any()


def test_episodes_begin_as_the_model_says():
    model = eh.MOMDP(np.tile(np.eye(4), (2, 1, 1)), np.zeros((4, 2, 1)), [0.0, 0.2, 0.0, 0.8])
    first, observation = jax.jit(jax.vmap(FiniteEnv(model).reset))(jax.random.split(jax.random.key(1), 10_000))
    assert close_to(np.bincount(first.state, minlength=4), model.initial)
    assert set(np.asarray(first.state)) == {1, 3}
    np.testing.assert_array_equal(observation, np.eye(4)[first.state])


def test_impossible_successors_are_never_drawn():
    """Not even where rounding leaves the sum of the probabilities just below one."""
    P = np.zeros((1, 3, 3))
    P[0, :, 0], P[0, :, 2] = 1 / 3, 2 / 3
    env = FiniteEnv(eh.MOMDP(P, np.zeros((3, 1, 1)), [1, 0, 0]))
    cumulative = np.asarray(env.tables.cumulative)
    assert (cumulative[:, -1] == 1).all()
    after = jax.vmap(env.step, in_axes=(None, None, 0))(
        at(0), jnp.array(0), jax.random.split(jax.random.key(2), 5000)
    ).state.state
    assert set(np.asarray(after)) == {0, 2}


def test_truncation_and_termination():
    model = examples.state_dependence()  # s1 → s2 → s3
    env = FiniteEnv(model, 5, terminal_states=[2])
    key, action = jax.random.key(0), jnp.array(0)
    first = env.step(at(0), action, key)
    assert (int(first.state.state), bool(first.terminated), bool(first.truncated)) == (1, False, False)
    second = env.step(first.state, action, key)
    assert (int(second.state.state), bool(second.terminated), bool(second.truncated)) == (2, True, False)
    last = env.step(at(0, 4), action, key)
    assert (bool(last.terminated), bool(last.truncated)) == (False, True)
    assert not FiniteEnv(model).step(at(0, 10**6), action, key).truncated


@pytest.mark.parametrize("terminal", [(), (2,)])
def test_played_returns_are_the_exact_ones(terminal):
    """Monte Carlo against the solver, with a policy that is random."""
    model = examples.state_dependence(0.9)
    env = FiniteEnv(model, 60, terminal_states=terminal)
    table = np.array([[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]])

    def act(state, observation, key):
        chosen = (jax.random.uniform(key, observation.shape[:1]) < observation @ jnp.asarray(table[:, 1])).astype(int)
        return chosen, state

    n = 20_000
    life = Life(lambda n, key: (), act)
    outcome = jax.jit(lambda key: play_pure(env, life, key, n, 0.9, 1000))(jax.random.key(3)).episodes
    exact = 0.1 * evaluate(model, table, gamma=0.9)
    deviation = np.asarray(outcome.discounted).std(axis=0) / np.sqrt(n)
    assert (np.abs(np.asarray(outcome.discounted).mean(axis=0) - exact) < 5 * deviation).all()
    assert (np.asarray(outcome.length) == (2 if terminal else 60)).all()


def test_what_is_refused():
    model = examples.state_dependence()
    with unchecked():
        with pytest.raises(eh.InputError, match="at least one step"):
            FiniteEnv(model, 0)
        with pytest.raises(eh.InputError, match="3 names for the 2"):
            FiniteEnv(model, objectives=["a", "b", "c"])
        with pytest.raises(eh.InputError, match="between 0 and 2"):
            FiniteEnv(model, terminal_states=[3])
        with pytest.raises(eh.InputError, match="state 1 cannot be terminal: it pays"):
            FiniteEnv(model, terminal_states=[1])
        with pytest.raises(eh.InputError, match="episodes may begin"):
            FiniteEnv(examples.state_dependence(start=2), terminal_states=[2])
