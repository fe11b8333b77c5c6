"""The algorithms, piece by piece: golden values by hand, independent NumPy, and what must not depend on what."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import cvxpy
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings

import evenhand as eh
from evenhand.agents import a2c, actor_critic, dqn, names, ppo
from evenhand.agents.actor_critic import ActorCritic, observe
from evenhand.agents.algorithm import algorithm as named
from evenhand.agents.config import scheduled
from evenhand.agents.distributions import Categorical, Gaussian, distribution, to_environment
from evenhand.agents.fairness import mean_over, no_initial_states, objective_weights, remember, welfare_of_estimates
from evenhand.agents.networks import MANY, NARROW, Layer, apply_mlp, clip_by_norm, new_mlp
from evenhand.agents.normalise import (
    empty_reward_scale,
    empty_running,
    normalised,
    to_unit_deviation,
    update_reward_scale,
    update_running,
)
from evenhand.agents.problem import Problem
from evenhand.agents.replay import Sample, draw, empty_memory, store
from evenhand.envs.gym.gym_env import GymEnv
from evenhand.envs.gym.host_env import HostEnv
from evenhand.runs.declared import settings_of
from evenhand.training.compiled import CompiledLoop
from evenhand.training.episodes import empty_tally, new_episodes
from evenhand.training.host_loop import HostLoop
from evenhand.training.loop import Loop, three_keys
from evenhand.training.task import Task
from evenhand.types import Box, Discrete, Transitions
from probes import constant_reward, matching_action

ALGORITHMS = {name: named(name) for name in names()}
THIRDS = eh.GGF([2 / 3, 1 / 3])


@pytest.fixture(autouse=True)
def _no_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield


def random_transitions(rng, T, N, O, D, actions):  # noqa: E741
    ended = rng.random((2, T, N)) < 0.1
    if isinstance(actions, Box):
        action = rng.normal(size=(T, N, actions.n)).astype(np.float32)
    else:
        action = rng.integers(actions.n, size=(T, N)).astype(np.int32)
    return jax.device_put(
        Transitions(
            rng.normal(size=(T, N, O)).astype(np.float32),
            action,
            rng.normal(size=(T, N, D)).astype(np.float32),
            rng.normal(size=(T, N, O)).astype(np.float32),
            *ended,
            rng.random((T, N)) < 0.2,
        )
    )


# Weights: where the welfare enters


@st.composite
def returns_and_ggfs(draw, max_D=6):
    D = draw(st.integers(1, max_D))
    v = np.array(draw(st.lists(st.floats(-10, 10), min_size=D, max_size=D)))
    w = np.array(sorted(draw(st.lists(st.integers(0, 6), min_size=D, max_size=D).filter(any)), reverse=True))
    return v, eh.GGF(w)


@given(returns_and_ggfs(), st.floats(1e-3, 10))
@settings(max_examples=300)
def test_smoothed_weights_lie_in_the_permutahedron(case, width):
    v, ggf = case
    u = ggf.smooth_gradient(v, width)
    assert abs(u.sum() - 1) < 1e-9
    assert (np.cumsum(np.sort(u)[::-1]) <= np.cumsum(ggf.weights) + 1e-9).all()
    order = np.argsort(v, kind="stable")
    assert (np.diff(u[order]) <= 1e-9).all()  # who has more never counts more
    for i, j in itertools.combinations(range(len(v)), 2):
        if v[i] == v[j]:
            assert abs(u[i] - u[j]) < 1e-9


@given(returns_and_ggfs(max_D=4), st.floats(0.05, 5))
@settings(max_examples=40)
def test_smoothed_weights_are_the_projection(case, width):
    """argmin u·v + (τ/2)‖u‖² over all mixtures of the weights' permutations, by another solver."""
    v, ggf = case
    spread = ggf.weights[0] - ggf.weights[-1]
    if spread == 0:
        np.testing.assert_array_equal(ggf.smooth_gradient(v, width), ggf.weights)
        return
    corners = np.array(list(itertools.permutations(ggf.weights)))
    shares = cvxpy.Variable(len(corners), nonneg=True)
    u = shares @ corners
    cost = u @ v + 0.5 * width / spread * cvxpy.sum_squares(u)
    cvxpy.Problem(cvxpy.Minimize(cost), [cvxpy.sum(shares) == 1]).solve(solver="CLARABEL")
    np.testing.assert_allclose(ggf.smooth_gradient(v, width), u.value, atol=2e-4)


@given(returns_and_ggfs())
@settings(max_examples=100)
def test_without_width_the_weights_are_the_gradient(case):
    v, ggf = case
    np.testing.assert_allclose(ggf.smooth_gradient(v, 0.0), ggf.gradient(v), atol=1e-12)


def test_smoothed_weights_in_jax():
    rng = np.random.default_rng(0)
    for D in (1, 2, 3, 5):
        ggf = eh.GGF.geometric(D, 3)
        v = rng.normal(size=(50, D)).astype(np.float32)
        smoothed = jax.jit(ggf.smooth_gradient)
        for width in (0.0, 0.1, 1.0):
            ours = smoothed(jnp.asarray(v), width)
            assert ours.dtype == jnp.float32
            np.testing.assert_allclose(ours, ggf.smooth_gradient(v, width), atol=1e-5)


def test_two_users_by_hand():
    """Equal returns share the weights; further apart than the band they have w_1 and w_2; half way between, ¾."""
    expected = {0.0: (0.5, 0.5), 0.5: (0.5 + 1 / 12, 0.5 - 1 / 12), 1.0: (2 / 3, 1 / 3), 7.0: (2 / 3, 1 / 3)}
    for apart, weights in expected.items():
        np.testing.assert_allclose(THIRDS.smooth_gradient([0.0, apart], 1.0), weights, atol=1e-12)
        np.testing.assert_allclose(THIRDS.smooth_gradient([apart, 0.0], 1.0), weights[::-1], atol=1e-12)


def test_objective_weights_of_a_ggf():
    J = jnp.array([2.0, 2.2])
    weights = jax.jit(lambda J, width: objective_weights(THIRDS, J, width))
    np.testing.assert_allclose(weights(J, 0.0), [2 / 3, 1 / 3], rtol=1e-6)
    # The band is 0.1 times the mean size, 0.21, so that they are 0.2/0.21 of the way from equal weights
    np.testing.assert_allclose(weights(J, 0.1), [0.5 + 0.2 / 0.21 / 6, 0.5 - 0.2 / 0.21 / 6], rtol=1e-4)
    np.testing.assert_allclose(weights(-J, 0.1), [0.5 - 0.2 / 0.21 / 6, 0.5 + 0.2 / 0.21 / 6], rtol=1e-4)
    np.testing.assert_allclose(weights(jnp.zeros(2), 0.1).sum(), 1, rtol=1e-6)
    np.testing.assert_allclose(weights(jnp.ones(2), 0.1), [0.5, 0.5], rtol=1e-6)


def test_objective_weights_are_continuous():
    """Where users change places: a small step of J is a small step of w, unless the width is 0."""
    ggf = eh.GGF.geometric(3)
    path = jnp.stack([jnp.linspace(0.9, 1.1, 2001), jnp.full(2001, 1.0), jnp.linspace(1.1, 0.9, 2001)], axis=1)
    along = jax.jit(lambda width: jax.vmap(lambda J: objective_weights(ggf, J, width))(path))
    assert np.abs(np.diff(along(0.1), axis=0)).max() < 0.005
    assert np.abs(np.diff(along(0.0), axis=0)).max() > 0.2


def test_objective_weights_of_other_welfares():
    J = jnp.array([1.0, 3.0])
    np.testing.assert_allclose(objective_weights(eh.Nash(2), J, 0.1), [0.75, 0.25], rtol=1e-6)  # ∝ 1/J
    np.testing.assert_allclose(objective_weights(eh.AlphaFair(2, 2.0), J, 0.1), [0.9, 0.1], rtol=1e-6)  # ∝ 1/J²
    np.testing.assert_allclose(objective_weights(eh.Maximin(2), J, 0.0), [1, 0], rtol=1e-6)
    np.testing.assert_allclose(objective_weights(eh.Utilitarian(2), J, 0.1), [0.5, 0.5], rtol=1e-6)
    outside = objective_weights(eh.Nash(2), jnp.array([-1.0, 3.0]), 0.1)  # a critic may say so
    assert np.isfinite(outside).all()
    assert outside[0] > 0.99
    assert np.isfinite(welfare_of_estimates(eh.Nash(2), jnp.array([-1.0, 3.0])))


def test_initial_states_are_a_ring():
    """Two environments, three places each; the numbers say which observation it is."""

    one_more, mean = jax.jit(remember), jax.jit(mean_over)

    def remembered(states, numbers, flags):
        return one_more(states, np.asarray(numbers, np.float32)[..., None], np.asarray(flags))

    states = no_initial_states(3, 2, 1)
    assert (np.asarray(mean(states, jnp.ones((3, 2, 4)))) == 0).all()  # nothing is known yet
    states = remembered(states, [[1, 2], [3, 4], [5, 6]], [[True, False], [False, False], [False, False]])
    np.testing.assert_array_equal(states.stored, [1, 0])
    values = jnp.concatenate([states.observations, 10 * states.observations], axis=-1)  # V = (x, 10 x)
    np.testing.assert_allclose(mean(states, values), [1, 10])
    states = remembered(states, [[7, 8], [9, 10]], [[True, True], [True, False]])  # 9 is later than 7
    np.testing.assert_array_equal(np.sort(states.observations[:2, 0, 0]), [1, 9])
    np.testing.assert_allclose(mean(states, states.observations), [(1 + 9 + 8) / 3])
    for number in range(20, 50):
        states = remembered(states, [[number, number + 100]], [[True, False]])
    np.testing.assert_array_equal(np.sort(states.observations[:, 0, 0]), [47, 48, 49])
    assert int(states.stored[0]) < 6
    np.testing.assert_allclose(mean(states, states.observations), [(47 + 48 + 49 + 8) / 4])


# Normalisation


def test_running_statistics_are_those_of_all_data():
    rng = np.random.default_rng(0)
    data = rng.normal([5, -300, 0.1], [2, 30, 0.01], (1000, 3)).astype(np.float32)
    running, one_more = empty_running(3), jax.jit(update_running)
    for part in np.split(data, [1, 500, 501]):  # of two sizes
        running = one_more(running, part)
    np.testing.assert_allclose(running.mean, data.mean(0), rtol=1e-4)
    np.testing.assert_allclose(running.variance, data.var(0, dtype=np.float64), rtol=2e-3)
    assert abs(float(running.number) - 1000) < 1
    z = np.asarray(normalised(running, jnp.asarray(data)))
    np.testing.assert_allclose(z.mean(0), 0, atol=0.02)
    np.testing.assert_allclose(z.std(0), 1, atol=0.01)
    assert np.asarray(normalised(running, jnp.full((3,), 1e9))).max() == 10


def test_rewards_have_one_scale_for_all_objectives():
    rng = np.random.default_rng(1)
    T, N, D, gamma = 50, 4, 2, 0.9
    reward = (rng.normal(size=(T, N, D)) * [1, 100]).astype(np.float32)
    ended = rng.random((T, N)) < 0.1
    scale, one_more = empty_reward_scale(N, D), jax.jit(update_reward_scale)
    for part in (slice(25), slice(25, T)):
        scale = one_more(scale, reward[part], ended[part], gamma)
    sums, running = [], np.zeros((N, D))
    for t in range(T):
        running = gamma * running + reward[t]
        sums.append(running.copy())
        running[ended[t]] = 0
    expected = 1 / np.sqrt(np.var(np.array(sums).reshape(-1, D), axis=0).mean())
    np.testing.assert_allclose(to_unit_deviation(scale), expected, rtol=1e-3)
    np.testing.assert_allclose(scale.returns, running, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
@pytest.mark.parametrize(
    ("changes", "factor"), [({"gamma": 0.9}, 0.1), ({"reward_scale": 3.0}, 3.0), ({"normalise_rewards": True}, None)]
)
def test_rewards_are_brought_to_scale(algorithm, changes, factor):
    module = ALGORITHMS[algorithm]
    config = module.Config(envs=3, rollout=5, hidden=(), **changes)
    problem = Problem(2, Discrete(2), THIRDS)
    transitions = random_transitions(np.random.default_rng(0), 5, 3, 2, 2, Discrete(2))
    _, reward = observe(config, module.initialise(config, problem, 0), transitions)
    ratio = np.asarray(reward) / np.asarray(transitions.reward)
    np.testing.assert_allclose(ratio, ratio[0, 0, 0], rtol=1e-5)
    if factor is not None:
        np.testing.assert_allclose(ratio[0, 0, 0], factor, rtol=1e-5)


# Distributions


def test_categorical_frequencies():
    logits = jnp.log(jnp.array([[0.5, 0.3, 0.2], [0.01, 0.98, 0.01]]))
    n = 40_000
    drawn = np.asarray(Categorical(jnp.broadcast_to(logits[:, None], (2, n, 3))).sample(jax.random.key(0)))
    assert drawn.dtype == np.int32
    for row, p in zip(drawn, np.exp(np.asarray(logits, float)), strict=True):
        counts = np.bincount(row, minlength=3)
        assert scipy.stats.chisquare(counts, n * p / p.sum()).pvalue > 1e-4
    certain = Categorical(jnp.array([[0.0, -jnp.inf, 0.0, -jnp.inf]] * 5000)).sample(jax.random.key(1))
    assert set(np.asarray(certain)) == {0, 2}


def test_categorical_against_scipy():
    logits = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32) * 3
    p = scipy.special.softmax(logits.astype(float), axis=-1)
    pi = Categorical(jnp.asarray(logits))
    for a in range(5):
        np.testing.assert_allclose(pi.log_prob(jnp.full((4, 3), a)), np.log(p[..., a]), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(pi.entropy(), scipy.stats.entropy(p, axis=-1), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(pi.mode(), p.argmax(-1))


def test_gaussian_against_scipy():
    rng = np.random.default_rng(1)
    mean, action = rng.normal(size=(2, 6, 3)).astype(np.float32)
    log_std = np.array([-1.0, 0.0, 0.7], np.float32)
    pi = distribution(Box.of(-1, 1, 3), jnp.asarray(mean), jnp.asarray(log_std))
    scipy_pi = scipy.stats.norm(mean, np.exp(log_std))
    np.testing.assert_allclose(pi.log_prob(jnp.asarray(action)), scipy_pi.logpdf(action).sum(-1), rtol=1e-5)
    np.testing.assert_allclose(pi.entropy(), scipy_pi.entropy().sum(-1), rtol=1e-5)
    np.testing.assert_array_equal(pi.mode(), mean)
    many = Gaussian(
        jnp.broadcast_to(jnp.array([1.0, -2.0]), (20_000, 2)),
        jnp.broadcast_to(jnp.log(jnp.array([0.5, 3.0])), (20_000, 2)),
    )
    drawn = np.asarray(many.sample(jax.random.key(0)))
    for column, (m, s) in zip(drawn.T, [(1, 0.5), (-2, 3)], strict=True):
        assert scipy.stats.kstest(column, scipy.stats.norm(m, s).cdf).pvalue > 1e-4


def test_raw_actions_are_stretched_to_the_box():
    space = Box.of([-2, 0], [6, 1], 2)
    raw = jnp.array([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0], [-9.0, 9.0], [0.5, -0.5]])
    np.testing.assert_allclose(to_environment(space, raw), [[-2, 0], [6, 1], [2, 0.5], [-2, 1], [4, 0.25]])
    np.testing.assert_array_equal(to_environment(Discrete(3), jnp.array([0, 2])), [0, 2])


# Configuration


def test_schedules():
    assert scheduled(2.0, "constant", 0.25) == 2
    assert scheduled(2.0, "linear", 0.25) == 0.5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_numbers_change_without_compiling_again(algorithm):
    Config = ALGORITHMS[algorithm].Config
    traced = []

    @jax.jit
    def look(config):
        traced.append(config.envs)
        return config.gamma * config.learning_rate

    assert np.isclose(look(Config(gamma=0.5, learning_rate=0.5)), 0.25)
    assert np.isclose(look(Config(gamma=0.25, learning_rate=0.5)), 0.125)
    look(dataclasses.replace(Config(), gradient_norm=1.0, reward_scale=None))
    assert len(traced) == 1
    look(Config(envs=7))
    look(Config(hidden=(3,)))
    assert len(traced) == 3
    look(Config(reward_scale=2.0))  # a number where there was none is another program
    look(Config(reward_scale=3.0))
    assert len(traced) == 4


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_configurations_are_values(algorithm):
    Config = ALGORITHMS[algorithm].Config
    assert Config() == Config()
    assert hash(Config()) == hash(Config())
    assert Config() != Config(gamma=0.5)
    assert ALGORITHMS[algorithm].impossible(Config()) is None
    back = jax.tree.unflatten(*reversed(jax.tree.flatten(Config(gamma=0.5))))
    assert back == Config(gamma=0.5)
    with pytest.raises(dataclasses.FrozenInstanceError):
        Config().gamma = 0.5


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_field_is_explained(algorithm):
    config = ALGORITHMS[algorithm].Config
    explained = settings_of(f"evenhand.agents.{algorithm}:Config")
    assert [setting.name for setting in explained] == [field.name for field in dataclasses.fields(config)]
    assert all(setting.about.endswith(".") for setting in explained)
    numbers = {setting.name: setting.default for setting in explained if setting.type == "number"}
    for name, default in numbers.items():
        assert getattr(config(), name) == (None if default == "–" else float(default))


def test_impossible_settings():
    assert "minibatches" in ppo.impossible(ppo.Config(envs=3, rollout=5, minibatches=4))
    assert "batch" in dqn.impossible(dqn.Config(batch=65, memory=64, learning_starts=1))
    assert "learning starts" in dqn.impossible(dqn.Config(memory=100, learning_starts=101))
    assert "does not fit" in dqn.impossible(dqn.Config(memory=100, learning_starts=1, envs=11, rollout=10))


# PPO and A2C: observations are one-hot and networks have no hidden layers, so that weights are logits and values


def tabular(logits, values):
    logits, values = jnp.asarray(logits, jnp.float32), jnp.asarray(values, jnp.float32)
    return ActorCritic((Layer(logits, jnp.zeros(logits.shape[1])),), (Layer(values, jnp.zeros(values.shape[1])),), None)


LOSS = {name: jax.jit(module.loss, static_argnums=1) for name, module in ALGORITHMS.items()}
GRADIENT = {
    name: jax.jit(jax.grad(module.loss, argnums=2, has_aux=True), static_argnums=1)
    for name, module in ALGORITHMS.items()
}
RATIO = np.array([1.5, 0.5, 1.1, 1.5], np.float32)
ADVANTAGE = np.array([[3, -3], [3, -3], [3, 6], [-3, 6]], np.float32)


def golden_samples(D=2, advantage=ADVANTAGE, target=None, value=None):
    log_prob = jnp.full(4, np.log(0.5), jnp.float32) - jnp.log(jnp.asarray(RATIO))
    zeros = jnp.zeros((4, D))
    return ppo.Samples(
        jnp.eye(4),
        jnp.array([0, 1, 0, 1]),
        log_prob,
        zeros if value is None else jnp.asarray(value, jnp.float32),
        jnp.asarray(advantage),
        zeros if target is None else jnp.asarray(target, jnp.float32),
    )


@pytest.mark.parametrize(
    ("clip_of", "surrogate"),
    [
        # Rows: ⅔·3.6 − ⅓·4.5, ⅔·1.5 − ⅓·2.4, ⅔·3.3 + ⅓·6.6, −⅔·4.5 + ⅓·7.2
        ("objective", (0.9 + 0.2 + 4.4 - 0.6) / 4),
        # ⅔A_1 + ⅓A_2 = 1, 1, 4, 0, of which min(1.5, 1.2), min(0.5, 0.8), 4.4, 0
        ("welfare", (1.2 + 0.5 + 4.4 + 0.0) / 4),
    ],
)
def test_ppo_loss_by_hand(clip_of, surrogate):
    config = ppo.Config(hidden=(), clip_of=clip_of, value=0.5, entropy=0.01)
    problem = Problem(4, Discrete(2), THIRDS)
    params = tabular(np.zeros((4, 2)), np.zeros((4, 2)))
    samples = golden_samples(target=[[1, 2]] * 4)
    total, metrics = LOSS["ppo"](config, problem, params, samples, jnp.array([2 / 3, 1 / 3]), 0.2, config.entropy)
    value_loss = 0.5 * (1 + 4) / 2
    np.testing.assert_allclose(metrics["policy_loss"], -surrogate, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], value_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["clipped"], 0.75)
    np.testing.assert_allclose(total, -surrogate + 0.5 * value_loss - 0.01 * np.log(2), rtol=1e-5)


def test_value_clipping_by_hand():
    """The value moved from 1 to 3: with a limit of ½ it counts as 1.5, if that makes the error larger."""
    config = ppo.Config(hidden=(), value_clip=0.5)
    problem = Problem(4, Discrete(2), THIRDS)
    params = tabular(np.zeros((4, 2)), np.full((4, 2), 3.0))
    samples = golden_samples(target=[[2.5, 0.0]] * 4, value=np.ones((4, 2)))
    _, metrics = LOSS["ppo"](config, problem, params, samples, jnp.array([2 / 3, 1 / 3]), 0.2, config.entropy)
    np.testing.assert_allclose(metrics["value_loss"], 0.5 * (1.0 + 9.0) / 2, rtol=1e-6)  # max(.25, 1), max(9, 2.25)


def scalar_ppo(logits, values, action, old, advantage, target, config):
    """Schulman et al.'s loss, from the paper, in NumPy."""
    log_p = scipy.special.log_softmax(logits.astype(float), axis=1)
    rho = np.exp(log_p[np.arange(len(action)), action] - old)
    surrogate = np.mean(np.minimum(rho * advantage, np.clip(rho, 1 - config.clip, 1 + config.clip) * advantage))
    entropy = np.mean(-(np.exp(log_p) * log_p).sum(1))
    return -surrogate + config.value * 0.5 * np.mean((values - target) ** 2) - config.entropy * entropy


@pytest.mark.parametrize("clip_of", ["objective", "welfare"])
def test_one_objective_is_plain_ppo(clip_of):
    rng = np.random.default_rng(0)
    B, A = 64, 3
    config = ppo.Config(hidden=(), clip_of=clip_of, clip=0.1)
    logits, values = rng.normal(size=(B, A)), rng.normal(size=B)
    action = rng.integers(A, size=B)
    old, advantage, target = rng.normal(-1, 0.3, B), rng.normal(size=B), rng.normal(size=B)
    samples = ppo.Samples(
        jnp.eye(B),
        jnp.asarray(action),
        jnp.asarray(old, jnp.float32),
        jnp.zeros((B, 1)),
        jnp.asarray(advantage, jnp.float32)[:, None],
        jnp.asarray(target, jnp.float32)[:, None],
    )
    problem = Problem(B, Discrete(A), eh.GGF([1.0]))
    params = tabular(logits, values[:, None])
    total, _ = LOSS["ppo"](config, problem, params, samples, jnp.ones(1), 0.1, config.entropy)
    expected = scalar_ppo(logits, values, action, old, advantage, target, config)
    np.testing.assert_allclose(total, expected, rtol=1e-5)


def random_step(seed, D, actions):
    """A network, observations, actions and advantages."""
    rng = np.random.default_rng(seed)
    B, O = 32, 5  # noqa: E741
    problem = Problem(O, actions, eh.GGF.geometric(D))
    params = ActorCritic(
        new_mlp(rng, (O, 8, actions.n), "uniform"),
        new_mlp(rng, (O, 8, D), "uniform"),
        jnp.array([0.1, -0.2])[: actions.n] if isinstance(actions, Box) else None,
    )
    x = jnp.asarray(rng.normal(size=(B, O)), jnp.float32)
    if isinstance(actions, Box):
        action = jnp.asarray(rng.normal(size=(B, actions.n)), jnp.float32)
    else:
        action = jnp.asarray(rng.integers(actions.n, size=B))
    return problem, params, x, action, jnp.asarray(rng.normal(size=(B, D)), jnp.float32)


def policy_gradients(problem, params, x, action, advantage):
    """∇ mean(log π(a|s) A_k) for each objective alone, from a formula of our own."""

    def log_pi(actor):
        out = apply_mlp(actor[0], x, "tanh")
        if isinstance(problem.actions, Box):
            std = jnp.broadcast_to(actor[1], out.shape)
            return jnp.sum(jax.scipy.stats.norm.logpdf(action, out, jnp.exp(std)), axis=1)
        return jnp.log(jnp.take_along_axis(jax.nn.softmax(out), action[:, None], axis=1)[:, 0])

    alone = jax.jit(jax.grad(lambda actor, advantage: jnp.mean(log_pi(actor) * advantage)))
    return [alone((params.actor, params.log_std), advantage[:, k]) for k in range(advantage.shape[1])]


@pytest.mark.parametrize("actions", [Discrete(3), Box.of(-1, 1, 2)])
@pytest.mark.parametrize("clip_of", ["objective", "welfare"])
def test_ppo_ascends_the_weighted_policy_gradients(actions, clip_of):
    """At ratio 1, whatever is clipped: ∇loss = −Σ_k w_k ∇J_k (the paper's equation for the gradient of W(J))."""
    problem, params, x, action, advantage = random_step(0, 3, actions)
    config = ppo.Config(entropy=0.0, clip_of=clip_of)
    weights = jnp.array([0.5, 0.3, 0.2])
    old = actor_critic.policy(config, problem, params, x).log_prob(action)
    value = actor_critic.critic(config, params, x)
    samples = ppo.Samples(x, action, old, value, advantage, value + advantage)
    gradient, _ = GRADIENT["ppo"](config, problem, params, samples, weights, 0.2, config.entropy)
    alone = policy_gradients(problem, params, x, action, advantage)
    expected = jax.tree.map(lambda *g: -sum(w * y for w, y in zip(weights, g, strict=True)), *alone)
    for ours, theirs in zip(
        jax.tree.leaves((gradient.actor, gradient.log_std)), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("actions", [Discrete(3), Box.of(-1, 1, 2)])
def test_a2c_ascends_the_weighted_policy_gradients(actions):
    problem, params, x, action, advantage = random_step(1, 3, actions)
    config = a2c.Config(entropy=0.0)
    weights = jnp.array([0.5, 0.3, 0.2])
    target = actor_critic.critic(config, params, x) + advantage
    gradient, _ = GRADIENT["a2c"](config, problem, params, x, action, advantage @ weights, target, config.entropy)
    alone = policy_gradients(problem, params, x, action, advantage)
    expected = jax.tree.map(lambda *g: -sum(w * y for w, y in zip(weights, g, strict=True)), *alone)
    for ours, theirs in zip(
        jax.tree.leaves((gradient.actor, gradient.log_std)), jax.tree.leaves(expected), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a2c_loss_by_hand():
    """π is (¼, ¾) in one state and (½, ½) in the other."""
    config = a2c.Config(hidden=(), value=0.25, entropy=0.01)
    problem = Problem(2, Discrete(2), THIRDS)
    params = tabular([[0.0, np.log(3.0)], [0.0, 0.0]], [[1.0, 2.0], [0.0, 0.0]])
    total, metrics = LOSS["a2c"](
        config,
        problem,
        params,
        jnp.eye(2),
        jnp.array([1, 0]),
        jnp.array([2.0, -4.0]),
        jnp.array([[2.0, 2.0], [3.0, 0.0]]),
        config.entropy,
    )
    policy_loss = -(2 * np.log(0.75) - 4 * np.log(0.5)) / 2
    entropy = (-(0.25 * np.log(0.25) + 0.75 * np.log(0.75)) + np.log(2)) / 2
    value_loss = (1 + 0 + 9 + 0) / 4
    np.testing.assert_allclose(metrics["policy_loss"], policy_loss, rtol=1e-5)
    np.testing.assert_allclose(metrics["entropy"], entropy, rtol=1e-5)
    np.testing.assert_allclose(metrics["value_loss"], value_loss, rtol=1e-5)
    np.testing.assert_allclose(total, policy_loss + 0.25 * value_loss - 0.01 * entropy, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 7, 1280, 4096, 70_000])
def test_any_order_has_every_step_once(n):
    any_order = jax.jit(ppo._any_order, static_argnums=1)
    order, other = (np.asarray(any_order(jax.random.key(seed), n)) for seed in (0, 1))
    np.testing.assert_array_equal(np.sort(order), np.arange(n))
    assert n < 3 or (order != other).any()


def test_any_order_is_as_likely_as_any_other():
    """Each of the 24 orders of four steps, and each of 256 steps in each quarter."""
    keys = jax.random.split(jax.random.key(0), 24_000)
    orders = np.asarray(jax.jit(jax.vmap(lambda key: ppo._any_order(key, 4)))(keys))
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == 24
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    longer = jax.jit(jax.vmap(lambda key: ppo._any_order(key, 256)))(keys[:4000])
    places = np.argsort(np.asarray(longer), axis=1)
    quarters = np.stack([np.bincount(column // 64, minlength=4) for column in places.T])
    assert scipy.stats.chisquare(quarters.ravel()).pvalue > 1e-3


@pytest.mark.parametrize("outputs", [1, 5, NARROW - 1, NARROW, 40])
@pytest.mark.parametrize("rows", [1, MANY])
def test_layers_with_few_outputs_are_like_all_others(outputs, rows):
    """Their products are computed the other way round: the outputs and gradients are those of xW + b."""
    rng = np.random.default_rng(outputs)
    x, pull = rng.normal(size=(3, rows, 6)), rng.normal(size=(3, rows, outputs))
    layer = Layer(rng.normal(size=(6, outputs)), rng.normal(size=outputs))
    single = jax.tree.map(lambda y: jnp.asarray(y, jnp.float32), (layer, x, pull))

    def pulled(layer, x):
        return jnp.sum(apply_mlp((layer,), x, "tanh") * single[2])

    y = apply_mlp((single[0],), single[1], "tanh")
    np.testing.assert_allclose(y, x @ layer.weight + layer.bias, rtol=1e-4, atol=1e-5)
    to_layer, to_x = jax.jit(jax.grad(pulled, (0, 1)))(*single[:2])
    np.testing.assert_allclose(to_layer.weight, np.einsum("tni,tno->io", x, pull), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_layer.bias, pull.sum(axis=(0, 1)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_x, pull @ layer.weight.T, rtol=1e-4, atol=1e-5)


def test_scaled_advantages_keep_their_proportions():
    """One objective may matter a thousand times more: each scaled by its own deviation, it would not."""
    rng = np.random.default_rng(0)
    advantage = jnp.asarray(rng.normal(3, 1, (16, 4, 2)) * [1, 1000], jnp.float32)
    weights = jnp.array([0.6, 0.4])
    scaled = np.asarray(ppo._to_scale(advantage, weights))
    weighted = scaled @ np.asarray(weights)
    assert abs(weighted.std() - 1) < 1e-4
    assert abs(weighted.mean()) < 1e-4
    before = np.asarray(advantage).std(axis=(0, 1))
    after = scaled.std(axis=(0, 1))
    np.testing.assert_allclose(after[1] / after[0], before[1] / before[0], rtol=1e-4)


def test_long_gradients_are_shortened():
    gradient = tabular([[3.0, 0.0]], [[4.0, 0.0]])
    np.testing.assert_allclose(clip_by_norm(gradient, 1.0).actor[0].weight, [[0.6, 0]], rtol=1e-6)
    np.testing.assert_allclose(clip_by_norm(gradient, 9.0).actor[0].weight, [[3.0, 0]], rtol=1e-6)
    still = clip_by_norm(tabular([[0.0]], [[0.0]]), 1.0)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(still))


# DQN


def q_network(table):
    """Q as the weights of a network without hidden layers: [S, A, D]."""
    table = jnp.asarray(table, jnp.float32)
    return (Layer(table.reshape(table.shape[0], -1), jnp.zeros(table[0].size)),)


def remembered_step(reward, terminated, D=2):
    return Sample(
        jnp.eye(2)[:1],
        jnp.array([0]),
        jnp.asarray([reward], jnp.float32),
        jnp.eye(2)[1:],
        jnp.array([terminated]),
    )


TARGET_Q = [[[0, 0], [0, 0]], [[4.4, 4], [0, 8]]]
"""By GGF with ⅔ and ⅓, and by their sum, the first action is better: 4.13 > 2.67, 8.4 > 8."""


def test_dqn_judges_what_comes_with_what_was_paid():
    """After r = (4, 0), γ = ½, the second is fairer: of (6.2, 2) and (4, 4) the GGF is 3.4 and 4."""
    config = dqn.Config(hidden=(), gamma=0.5)
    problem = Problem(2, Discrete(2), THIRDS)
    target = q_network(TARGET_Q)
    goal = dqn.targets(config, problem, target, target, remembered_step([4, 0], False))
    np.testing.assert_allclose(goal, [[4, 4]], rtol=1e-6)
    state = dqn.initialise(config, problem, 0)._replace(network=target)
    assert int(dqn.mode(config, problem, state, jnp.eye(2)[1:])[0]) == 0  # by Q alone
    plain = Problem(2, Discrete(2), eh.Utilitarian(2))
    np.testing.assert_allclose(
        dqn.targets(config, plain, target, target, remembered_step([4, 0], False)), [[6.2, 2]], rtol=1e-6
    )


def test_dqn_expects_nothing_after_the_end():
    config = dqn.Config(hidden=(), gamma=0.5)
    problem = Problem(2, Discrete(2), THIRDS)
    target = q_network(TARGET_Q)
    np.testing.assert_allclose(
        dqn.targets(config, problem, target, target, remembered_step([4, 0], True)), [[4, 0]], rtol=1e-6
    )


def test_double_dqn_lets_the_network_choose():
    problem = Problem(2, Discrete(2), THIRDS)
    target, network = q_network(TARGET_Q), q_network([[[0, 0], [0, 0]], [[9, 9], [0, 0]]])
    goals = {
        double: np.asarray(
            dqn.targets(
                dqn.Config(hidden=(), gamma=0.5, double=double),
                problem,
                network,
                target,
                remembered_step([4, 0], False),
            )
        )
        for double in (False, True)
    }
    np.testing.assert_allclose(goals[False], [[4, 4]], rtol=1e-6)
    np.testing.assert_allclose(goals[True], [[6.2, 2]], rtol=1e-6)


def test_hubers_loss_by_hand():
    config = dqn.Config(hidden=())
    problem = Problem(2, Discrete(2), THIRDS)
    sample = remembered_step([0, 0], False)
    network = q_network(np.zeros((2, 2, 2)))
    value, _ = LOSS["dqn"](config, problem, network, sample, jnp.array([[0.5, -3.0]]))
    np.testing.assert_allclose(value, (0.125 + 2.5) / 2, rtol=1e-6)
    gradient, _ = GRADIENT["dqn"](config, problem, network, sample, jnp.array([[0.5, -3.0]]))
    by_action = np.asarray(gradient[0].weight).reshape(2, 2, 2)
    np.testing.assert_allclose(by_action[0, 0], [-0.25, 0.5], rtol=1e-6)  # mean of −error, and of −sign
    assert not by_action[1].any()
    assert not by_action[0, 1].any()


def test_exploration_falls_linearly():
    config = dqn.Config(hidden=(), exploration_start=0.9, exploration_end=0.1, exploration_fraction=0.1)
    problem = Problem(1, Discrete(4), THIRDS)
    network = q_network([[[0, 0], [0, 0], [1, 1], [0, 0]]])
    state = dqn.initialise(config, problem, 0)._replace(network=network)
    n, explore = 20_000, jax.jit(dqn.explore, static_argnums=1)
    for remaining, epsilon in ((1.0, 0.9), (0.95, 0.5), (0.9, 0.1), (0.3, 0.1)):
        actions = explore(config, problem, state, jnp.ones((n, 1)), jax.random.key(0), jnp.array(remaining))
        counts = np.bincount(actions, minlength=4)
        p = np.full(4, epsilon / 4) + (1 - epsilon) * np.eye(4)[2]
        assert scipy.stats.chisquare(counts, n * p).pvalue > 1e-4
    assert (np.asarray(dqn.act(config, problem, state, jnp.ones((9, 1)), jax.random.key(0))) == 2).all()


def numbered(numbers, N=1):
    """Steps whose every part is their number."""
    numbers = np.asarray(numbers, np.float32).reshape(-1, N)
    column, no = numbers[..., None], np.zeros(numbers.shape, bool)
    return Transitions(column, numbers.astype(np.int32), column, column + np.float32(0.5), no, no, no)


STORE, DRAW = jax.jit(store), jax.jit(draw, static_argnums=2)


def test_memory_is_a_ring():
    memory = empty_memory(6, 1, 1)
    memory = STORE(memory, numbered([1, 2]))
    assert int(memory.stored) == 2
    sample = DRAW(memory, jax.random.key(0), 6000)
    assert set(np.asarray(sample.action)) == {1, 2}  # and never the empty places
    memory = STORE(memory, numbered([3, 4]))
    memory = STORE(memory, numbered([5, 6]))
    np.testing.assert_array_equal(memory.action, [1, 2, 3, 4, 5, 6])
    assert int(memory.stored) == 6
    memory = STORE(memory, numbered([7, 8], N=2))
    np.testing.assert_array_equal(memory.action, [7, 8, 3, 4, 5, 6])
    np.testing.assert_array_equal(memory.observation[:, 0], [7, 8, 3, 4, 5, 6])
    assert int(memory.stored) == 6
    assert int(memory.position) == 2
    sample = DRAW(memory, jax.random.key(1), 6000)
    counts = np.bincount(sample.action, minlength=9)[3:]
    assert scipy.stats.chisquare(counts).pvalue > 1e-4
    for part in (sample.observation[:, 0], sample.reward[:, 0], sample.next_observation[:, 0] - 0.5):
        np.testing.assert_array_equal(part, sample.action)  # what was together stays together


def test_rollouts_are_remembered_whole():
    memory = STORE(empty_memory(6, 1, 1), numbered([1, 2, 3, 4, 5, 6], N=3))
    np.testing.assert_array_equal(np.sort(memory.action), [1, 2, 3, 4, 5, 6])
    assert dqn.Config(memory=10, envs=2, rollout=2).room == 12


def test_target_network_and_learning_start():
    config = dqn.Config(
        hidden=(4,), envs=1, rollout=4, memory=100, batch=8, learning_starts=12, target_interval=10, gamma=0.9
    )
    problem = Problem(3, Discrete(2), THIRDS)
    state = dqn.initialise(config, problem, 0)
    update = jax.jit(
        lambda state, transitions, key: dqn.update(config, problem, state, transitions, key, jnp.array(0.5))
    )
    rng = np.random.default_rng(0)

    def same(a, b):
        return all(np.array_equal(x, y) for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))

    for n in range(1, 16):
        before = state
        state, _ = update(state, random_transitions(rng, 4, 1, 3, 2, Discrete(2)), jax.random.key(n))
        steps = 4 * n
        assert int(state.steps) == steps
        assert same(state.network, before.network) == (steps < 12)
        if steps // 10 > (steps - 4) // 10:  # 10, 20, … were passed
            assert same(state.target, state.network)
        else:
            assert same(state.target, before.target)


# Whole updates and loops


def tiny(algorithm, **changes):
    sizes = {
        "ppo": {"envs": 4, "rollout": 8, "epochs": 2, "minibatches": 2, "hidden": (8,)},
        "a2c": {"envs": 4, "rollout": 8, "hidden": (8,)},
        "dqn": {"envs": 4, "rollout": 2, "memory": 512, "learning_starts": 16, "batch": 16, "hidden": (8,)},
    }
    return ALGORITHMS[algorithm].Config(**{**sizes[algorithm], **changes})


def task_of(env, algorithm, config, welfare=None):
    welfare = welfare or eh.GGF.geometric(len(env.objectives))
    return Task(algorithm, config, welfare, env.observation_space.n, env.action_space)


def equal_bits(a, b):
    def numbers(leaf):
        return np.asarray(jax.random.key_data(leaf) if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf)

    return all(
        np.array_equal(numbers(x), numbers(y), equal_nan=False)
        for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    )


class Compiled(NamedTuple):
    """A probe's two loops, which all tests of an algorithm share: compiling them takes longest."""

    task: Task
    loops: dict[str, Loop]
    seconds: dict[str, float]
    """How long compiling took."""


@pytest.fixture(scope="module", params=ALGORITHMS)
def compiled(request) -> Iterator[Compiled]:
    algorithm, probe = request.param, matching_action()
    changes = {"learning_rate": 1e-2, "gamma": 0.5, "envs": 8}
    if algorithm == "dqn":
        changes |= {"exploration_end": 0.0, "exploration_fraction": 0.5, "rollout": 1}
    task = task_of(probe, algorithm, tiny(algorithm, **changes))
    both = {"compiled": CompiledLoop(probe, task), "host": HostLoop(HostEnv.of(lambda: GymEnv(probe), "probe"), task)}
    with jax.numpy_rank_promotion("raise"):  # module-wide fixtures come before those of each test
        seconds = {name: loop.compile(loop.start(0)) for name, loop in both.items()}
    yield Compiled(task, both, seconds)
    for loop in both.values():
        loop.close()


UPDATE = {name: jax.jit(module.update, static_argnums=1) for name, module in ALGORITHMS.items()}


def test_the_same_seed_gives_the_same_bits(compiled):
    loop = compiled.loops["compiled"]
    first, again, other = (loop.advance(loop.start(seed), 5, 5) for seed in (0, 0, 1))
    assert equal_bits(first[0], again[0])
    assert not equal_bits(first[0].agent, other[0].agent)
    assert all(np.array_equal(first[1][name], again[1][name], equal_nan=True) for name in first[1])
    state = loop.start(0)
    for _ in range(5):  # in pieces it is the same run
        state, _ = loop.advance(state, 1, 5)
    assert equal_bits(first[0], state)


@pytest.mark.parametrize("name", ["compiled", "host"])
def test_what_was_compiled_for_one_seed_serves_the_next(compiled, name):
    """And leaves no trace: a seed after another is the same as before it."""
    assert compiled.seconds[name] > 0
    loop = compiled.loops[name]
    alone, _ = loop.advance(loop.start(1), 3, 3)
    loop.advance(loop.start(0), 3, 3)
    state = loop.start(1)
    assert loop.compile(state) == 0
    after, _ = loop.advance(state, 3, 3)
    assert equal_bits(after, alone)


def test_every_algorithm_updates_with_shapes_checked(compiled):
    """Types and ranks are checked while tracing; numbers must be finite, also for γ = 0.99999 and Nash welfare."""
    algorithm = compiled.task.algorithm
    normalising = tiny(algorithm, normalise_observations=True, normalise_rewards=True)
    for config, problem in (
        (compiled.task.config, compiled.task.problem),
        (normalising, Problem(5, Discrete(3), eh.Nash(4))),
    ):
        config = dataclasses.replace(config, gamma=0.99999)
        state = ALGORITHMS[algorithm].initialise(config, problem, 0)
        sizes = config.rollout, config.envs, problem.observation_size, problem.D
        transitions = random_transitions(np.random.default_rng(0), *sizes, problem.actions)
        for n in range(4):
            state, metrics = UPDATE[algorithm](config, problem, state, transitions, jax.random.key(n), np.float32(1.0))
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((metrics, state)) if leaf.dtype == jnp.float32)


def test_both_loops_learn_the_same_from_the_same_steps(compiled):
    """The host loop's learning is the agent's `update`: bit by bit, from the same rollout."""
    task, host = compiled.task, compiled.loops["host"]
    config = task.config
    transitions = random_transitions(np.random.default_rng(0), config.rollout, config.envs, 1, 2, Discrete(2))
    agent, key, remaining = task.agent.initialise(config, task.problem, 0), jax.random.key(5), np.float32(0.5)
    for _ in range(3):  # DQN learns only when it has seen enough
        agent, _ = UPDATE[task.algorithm](config, task.problem, agent, transitions, key, remaining)
    learning = three_keys(key)[2]
    alone, metrics = UPDATE[task.algorithm](config, task.problem, agent, transitions, learning, remaining)
    copies = jax.tree.map(jnp.copy, (agent, new_episodes(config.envs, 2)))
    zeros = jax.tree.map(jnp.zeros_like, metrics)
    (hosted, _), sums, *_ = host._learn(config, copies, zeros, empty_tally(2), transitions, key, remaining)
    assert not equal_bits(task.agent.acting(agent), task.agent.acting(alone))
    assert equal_bits(alone, hosted)
    assert equal_bits(metrics, sums)


@pytest.mark.slow
def test_both_loops_learn_alike(compiled):
    """The same small task, compiled and through Gymnasium: both end near (½, ¼), the best there is."""
    updates = 4000 // compiled.task.config.steps_per_update
    rewards = {}
    for name, loop in compiled.loops.items():
        state, _ = loop.advance(loop.start(0), updates, updates + updates // 4)
        _, report = loop.advance(state, updates // 4, updates + updates // 4)
        assert report["episode_length"] == 1
        rewards[name] = report["reward"]
    np.testing.assert_allclose(rewards["compiled"], rewards["host"], atol=0.12)
    for reward in rewards.values():
        assert reward[0] > 0.38
        np.testing.assert_allclose(reward[1], reward[0] / 2, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize(("algorithm", "rate"), [("ppo", 2e-2), ("a2c", 1e-1)])
def test_a_patient_agent_stays_accurate(algorithm, rate):
    """γ = 0.99999 on a constant reward: V tends to it, as rewards are scaled by 1 − γ.

    An update closes a share 1 − γⁿ of the distance, n being the 5,000 steps or so that are left on average: 5 %.
    """
    env = constant_reward((1.0, -3.0), steps=10_000, terminates=False)
    changes = {"epochs": 10, "minibatches": 1} if algorithm == "ppo" else {"learning_rate_schedule": "linear"}
    config = ALGORITHMS[algorithm].Config(
        gamma=0.99999,
        envs=1,
        rollout=10_000,
        hidden=(),
        gae_lambda=1.0,
        learning_rate=rate,
        gradient_norm=1e9,
        **changes,
    )
    loop = CompiledLoop(env, task_of(env, algorithm, config))
    state, report = loop.advance(loop.start(0), 120, 120)
    value = np.asarray(actor_critic.critic(config, state.agent.params, jnp.ones((1, 1))))[0]
    assert all(np.isfinite(v).all() for v in report.values())
    np.testing.assert_allclose(value, [1, -3], rtol=0.05)


def test_a_patient_q_function_stays_accurate():
    """Begun at the right values, γ = 0.99999 must neither drift nor lose the small reward in rounding."""
    config = dqn.Config(gamma=0.99999, hidden=(), learning_rate=1e-4)
    problem = Problem(1, Discrete(1), THIRDS)
    network = q_network([[[1.0, -3.0]]])
    sample = Sample(
        jnp.ones((1, 1)),
        jnp.array([0]),
        (1 - config.gamma) * jnp.array([[1.0, -3.0]]),
        jnp.ones((1, 1)),
        jnp.array([False]),
    )
    goal = dqn.targets(config, problem, network, network, sample)
    np.testing.assert_allclose(goal, [[1.0, -3.0]], atol=5e-7)
