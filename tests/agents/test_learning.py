"""What is learnt, against what is known: probes with values by hand, and finite models with exact optima."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evenhand as eh
from evenhand.agents import a2c, actor_critic, dqn, names, ppo
from evenhand.agents.distributions import to_environment
from evenhand.exact.policies import evaluate
from evenhand.training.task import Task
from evenhand.types import Box, Discrete
from finite_models import (
    CASES,
    QUICKLY,
    all_at_once,
    learn_fair_policies,
    learnt_policies,
    nth,
    probabilities,
    run_of,
    share_of,
    wide,
)
from probes import (
    Probe,
    constant_reward,
    delayed_reward,
    matching_action,
    nearest_action,
    one_at_a_time,
    reward_by_observation,
    seldom_paid,
)


@pytest.fixture(autouse=True)
def _no_rank_promotion():
    with jax.numpy_rank_promotion("raise"):
        yield


# Probes

GAMMA = 0.9
PROBING = {
    "ppo": ppo.Config(
        gamma=GAMMA, envs=8, rollout=16, hidden=(16,), learning_rate=1e-2, learning_rate_schedule="linear", entropy=0.0
    ),
    "a2c": a2c.Config(
        gamma=GAMMA,
        envs=8,
        rollout=8,
        hidden=(16,),
        learning_rate=1e-2,
        learning_rate_schedule="linear",
        critic_schedule="linear",
        entropy=0.0,
    ),
    "dqn": dqn.Config(
        gamma=GAMMA,
        envs=8,
        rollout=1,
        gradient_steps=2,
        memory=2048,
        learning_starts=64,
        target_interval=64,
        hidden=(16,),
        learning_rate=1e-2,
        learning_rate_schedule="linear",
        exploration_fraction=0.5,
    ),
}


@dataclass(frozen=True)
class OneOf:
    """One of several probes of two users, brought to the same sizes; its number may be traced."""

    probes: tuple[Probe, ...]
    number: Any

    objectives = ("user 1", "user 2")
    reward_space = Box.of(-np.inf, np.inf, 2)

    @property
    def observation_space(self):
        return Box.of(-np.inf, np.inf, max(probe.O for probe in self.probes))

    @property
    def action_space(self):
        return Discrete(max(probe.action_space.n for probe in self.probes))

    def _wide(self, x):
        return jnp.pad(x, (0, self.observation_space.n - len(x)))

    def reset(self, key):
        def begun(probe):
            state, x = probe.reset(key)
            return state._replace(observation=self._wide(x)), self._wide(x)

        return jax.lax.switch(self.number, [partial(begun, probe) for probe in self.probes])

    def step(self, state, action, key):
        def stepped(probe):
            own = state._replace(observation=state.observation[: probe.O])
            after = probe.step(own, jnp.minimum(action, probe.action_space.n - 1), key)
            x = self._wide(after.observation)
            return after._replace(state=after.state._replace(observation=x), observation=x)

        return jax.lax.switch(self.number, [partial(stepped, probe) for probe in self.probes])


PAID = (1.0, -2.0)
PROBES = {
    "ends": constant_reward(PAID, 1, True),
    "is cut off": constant_reward(PAID, 1, False),
    "by observation": reward_by_observation(),
    "delayed": delayed_reward(3),
    "matching": matching_action(),
    "one at a time": one_at_a_time(2.0, 3.0),
}
PROBING_STEPS = {"ppo": 60_000, "a2c": 60_000, "dqn": 30_000}
TOGETHER = {name: (tuple(PROBES),) for name in names()}
# A2C divides advantages by their deviation: where all are alike, the critic learns only if there is no choice.
TOGETHER["a2c"] = (("ends", "is cut off"), ("by observation", "delayed", "matching", "one at a time"))


def task_for(env, algorithm, config):
    return Task(algorithm, config, eh.GGF.geometric(len(env.objectives)), env.observation_space.n, env.action_space)


def assert_finite(report):
    assert all(np.isfinite(value).all() for value in report.values())


@functools.cache
def probed(algorithm, names, seed=0):
    """A task, and what was learnt of each of some probes, all trained at once."""
    config, probes = PROBING[algorithm], tuple(PROBES[name] for name in names)
    task = task_for(OneOf(probes, 0), algorithm, config)
    agents, sums = all_at_once(
        lambda number: run_of(OneOf(probes, number), task, config, PROBING_STEPS[algorithm], seed),
        list(np.arange(len(probes))),
    )
    assert_finite(sums)
    return task, {name: nth(agents, n) for n, name in enumerate(names)}


def learnt(algorithm, probe):
    (names,) = (names for names in TOGETHER[algorithm] if probe in names)
    task, agents = probed(algorithm, names)
    return task, agents[probe]


def trained(env, algorithm, steps, config=None, seed=0):
    """A probe of other sizes, trained alone."""
    config = config or PROBING[algorithm]
    task = task_for(env, algorithm, config)
    agent, sums = jax.jit(lambda: run_of(env, task, config, steps, seed)).lower().compile(QUICKLY)()
    assert_finite(sums)
    return task, agent


def values(task, agent, observations):
    """What the agent expects to come: returns times 1 − γ."""
    x = wide(task, observations)
    if task.algorithm == "dqn":
        Q = dqn.action_values(task.config, task.problem, agent.network, x)
        best = task.agent.mode(task.config, task.problem, agent, x)
        return np.asarray(jnp.take_along_axis(Q, best[:, None, None], axis=1)[:, 0])
    return np.asarray(actor_critic.critic(task.config, agent.params, x))


@pytest.mark.parametrize("algorithm", names())
def test_the_end_of_an_episode_is_worth_nothing_and_a_time_limit_is_none(algorithm):
    """The same rewards: r where the step is the last, r/(1 − γ) where the episode is only cut off."""
    for probe, expected in (("ends", (1 - GAMMA) * np.array(PAID)), ("is cut off", np.array(PAID))):
        got = values(*learnt(algorithm, probe), [[1.0]])[0]
        np.testing.assert_allclose(got, expected, atol=0.03)


@pytest.mark.parametrize("algorithm", names())
def test_values_depend_on_the_observation(algorithm):
    got = values(*learnt(algorithm, "by observation"), [[-1.0], [1.0]])
    np.testing.assert_allclose(got, (1 - GAMMA) * np.array([[-1, 3], [1, 1]]), atol=0.02)


@pytest.mark.parametrize("algorithm", names())
def test_delayed_rewards_are_discounted(algorithm):
    got = values(*learnt(algorithm, "delayed"), np.eye(4))
    expected = (1 - GAMMA) * GAMMA ** np.array([3, 2, 1, 0])[:, None] * [1, 2]
    np.testing.assert_allclose(got, expected, atol=0.02)


@pytest.mark.parametrize("algorithm", names())
def test_actions_that_match_the_observation(algorithm):
    p = probabilities(*learnt(algorithm, "matching"), [[-1.0], [1.0]])
    assert p[0, 0] > 0.95
    assert p[1, 1] > 0.95


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_two_users_of_whom_one_can_be_served(algorithm):
    """Served for 2 or for 3: the fair policy serves the first more often, so that both have 1.2."""
    p = probabilities(*learnt(algorithm, "one at a time"), [[1.0]])[0]
    np.testing.assert_allclose(p, [0.6, 0.4], atol=0.06)


def test_a_user_who_is_seldom_paid():
    config = dataclasses.replace(PROBING["ppo"], learning_rate=2e-3, entropy=0.05)
    p = probabilities(*trained(seldom_paid(), "ppo", 150_000, config=config), [[1.0]])[0]
    np.testing.assert_allclose(p, [1 / 3] * 3, atol=0.1)


@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_a_number_between_two_wishes(algorithm):
    """Squares of the distances to 0 and 2: the middle is fairest, in an environment whose actions go from −2 to 6."""
    task, agent = trained(nearest_action(0.0, 2.0), algorithm, 100_000)
    raw = task.agent.mode(task.config, task.problem, agent, jnp.ones((1, 1)))
    chosen = float(to_environment(task.actions, raw)[0, 0])
    assert abs(chosen - 1) < 0.15


# Finite models


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_fair_policies_are_learnt(algorithm):
    """For two users; `make soak` has three and four."""
    learn_fair_policies(algorithm, 2)


def greedy_fixed_point(case, welfare):
    """Value iteration with DQN's own rule: Q(s, a) = E[r + γ Q(s′, a*)], a* the best welfare of r + γ Q(s′, ·)."""
    model, gamma = case.model, case.gamma
    P = model.transitions.toarray().reshape(model.S, model.A, model.S)
    Q = np.zeros(model.rewards.shape)
    for _ in range(5000):
        possible = model.rewards[:, :, None, None] + gamma * Q[None, None]  # [s, a, s′, a′, D]
        best = welfare.value(possible).argmax(axis=-1)
        chosen = np.take_along_axis(possible, best[..., None, None], axis=3)[..., 0, :]
        before, Q = Q, np.einsum("sat,satd->sad", P, chosen)
        if np.abs(Q - before).max() < 1e-9:
            return welfare.value(Q).argmax(axis=-1)
    raise AssertionError(f"{case.name}: the rule has no fixed point that is reached")


@pytest.mark.slow
def test_dqn_reaches_its_own_limit():
    """Only models on which DQN's rule settles: elsewhere, "two homes" for one, it has nothing to converge to."""
    settled = ("the paper's example", "two homes and a refuge", "two queues", "losing garnet", "grid")
    cases = [case for case in CASES[2] if case.name in settled]
    welfare = eh.GGF.geometric(2)
    shares, limits = {}, {}
    for case, policy in zip(cases, learnt_policies("dqn", cases), strict=True):
        limit = welfare.value(evaluate(case.model, greedy_fixed_point(case, welfare), gamma=case.gamma))
        shares[case.name] = share_of(welfare, case, policy, limit)
        limits[case.name] = float(limit) / eh.solve(case.model, welfare, gamma=case.gamma).welfare
    print({name: (round(share, 4), round(limits[name], 4)) for name, share in shares.items()})
    assert min(shares.values()) >= 0.98, shares
    assert abs(limits["two homes and a refuge"] - 0.95) < 1e-6  # a fair policy would have to be random
