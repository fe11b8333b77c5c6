"""What is learnt, against what is known: probes with values by hand, and finite models with exact optima.

The settings of these tests are the same for all models of an algorithm. Fair optima are mixed: the entropy bonus starts
high, so that policies do not settle before they have seen everything, and falls to nothing; and what is judged is the
policy with the mean parameters of the second half of the training (`average`), for the last turn round the optimum.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evenhand as eh
from evenhand import loops
from evenhand.agents import ALGORITHMS, a2c, actor_critic, dqn, ppo
from evenhand.agents.distributions import to_environment
from evenhand.envs.finite import FiniteEnv, Tables
from evenhand.exact import examples
from evenhand.exact.policies import evaluate
from evenhand.loops import CompiledLoop, Task
from evenhand.types import Box, Discrete
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


QUICKLY = {"xla_backend_optimization_level": 1}
"""Compiling takes longer than learning; with this it takes half the time, and the programs are no slower."""


def all_at_once(run, *each):
    """Calls a function with the first of everything, the second, and so on: one compiled program."""
    each = [jax.tree.map(lambda *leaves: np.stack(leaves), *trees) for trees in each]
    return jax.jit(jax.vmap(run)).lower(*each).compile(QUICKLY)(*each)


def run_of(env, task, config, steps, seed):
    """A whole training, which may be traced: what was learnt, and what was reported."""
    updates, state = jnp.array(steps // config.steps_per_update), CompiledLoop(env, task).start(seed)
    state, sums, tally = loops._run(env, task, config, state, updates, updates)
    return state.agent, sums | tally._asdict()


def nth(tree, n):
    return jax.tree.map(lambda x: x[n], tree)


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
TOGETHER = {name: (tuple(PROBES),) for name in ALGORITHMS}
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


def wide(task, observations):
    """Observations of a probe, as all of them have."""
    observations = np.asarray(observations, np.float32)
    return jnp.asarray(np.pad(observations, ((0, 0), (0, task.observation_size - observations.shape[1]))))


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


def probabilities(task, agent, observations):
    x = wide(task, observations)
    if task.algorithm == "dqn":
        return np.eye(task.actions.n)[np.asarray(task.agent.mode(task.config, task.problem, agent, x))]
    learnt = agent.params._replace(actor=agent.averaged.actor, log_std=agent.averaged.log_std)
    logits = actor_critic.policy(task.config, task.problem, learnt, x).logits
    p = np.asarray(jax.nn.softmax(logits), float)
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_end_of_an_episode_is_worth_nothing_and_a_time_limit_is_none(algorithm):
    """The same rewards: r where the step is the last, r/(1 − γ) where the episode is only cut off."""
    for probe, expected in (("ends", (1 - GAMMA) * np.array(PAID)), ("is cut off", np.array(PAID))):
        got = values(*learnt(algorithm, probe), [[1.0]])[0]
        np.testing.assert_allclose(got, expected, atol=0.03)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_values_depend_on_the_observation(algorithm):
    got = values(*learnt(algorithm, "by observation"), [[-1.0], [1.0]])
    np.testing.assert_allclose(got, (1 - GAMMA) * np.array([[-1, 3], [1, 1]]), atol=0.02)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_delayed_rewards_are_discounted(algorithm):
    got = values(*learnt(algorithm, "delayed"), np.eye(4))
    expected = (1 - GAMMA) * GAMMA ** np.array([3, 2, 1, 0])[:, None] * [1, 2]
    np.testing.assert_allclose(got, expected, atol=0.02)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
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


# Finite models, all brought to the same sizes, so that a compiled program serves all of one D

STATES, ACTIONS, EPISODE = 16, 5, 50
SETTINGS = {
    "ppo": ppo.Config(
        envs=10,
        rollout=64,
        hidden=(32,),
        learning_rate=5e-4,
        entropy=0.1,
        entropy_schedule="quadratic",
        average=0.5,
    ),
    "a2c": a2c.Config(
        envs=10,
        rollout=20,
        hidden=(32,),
        learning_rate=2e-3,
        entropy=0.1,
        entropy_schedule="quadratic",
        average=0.5,
    ),
    "dqn": dqn.Config(
        envs=8,
        rollout=4,
        gradient_steps=4,
        memory=8192,
        learning_starts=512,
        target_interval=512,
        hidden=(32,),
        learning_rate=2e-3,
        learning_rate_schedule="linear",
        exploration_start=1.0,
        exploration_end=0.3,
        exploration_fraction=1.0,
    ),
}
STEPS = {"ppo": 200_000, "a2c": 400_000, "dqn": 60_000}
ENOUGH, ALMOST = 0.98, 0.95
"""The share of the exact optimum that must be reached on all models but one of each D, and on that one: on the larger
grids, fair only by going to and fro between distant places, and for A2C on the refuge, a few per cent are lost."""


class Case(NamedTuple):
    """A model to learn."""

    name: str
    model: eh.MOMDP
    gamma: float


def padded(model):
    """More states that cannot be reached, and the actions repeated."""
    P, R = np.tile(np.eye(STATES), (ACTIONS, 1, 1)), np.zeros((STATES, ACTIONS, model.D))
    moves = model.transitions.toarray().reshape(model.S, model.A, model.S)
    for a in range(ACTIONS):
        P[a, : model.S] = 0
        P[a, : model.S, : model.S] = moves[:, a % model.A]
        R[: model.S, a] = model.rewards[:, a % model.A]
    return eh.MOMDP(P, R, np.pad(model.initial, (0, STATES - model.S)))


def losing(D, seed):
    """Nothing to be won, only less to be lost."""
    model = examples.garnet(12, 4, D, 3, seed)
    return eh.MOMDP.from_interleaved(model.transitions, model.rewards - 1.5, model.initial)


def two_queues():
    """One server, two users; a call of the first pays 2, of the second 1; calls wait until they are served."""
    P, R = np.zeros((2, 4, 4)), np.zeros((4, 2, 2))
    arrives = (0.6, 0.3)
    for s, a, after in np.ndindex(4, 2, 4):
        waiting = s & 1, s >> 1
        R[s, a, a] = (2.0, 1.0)[a] * waiting[a]
        P[a, s, after] = 1.0
        for user in (0, 1):
            full = 1.0 if waiting[user] and a != user else arrives[user]
            P[a, s, after] *= full if after >> user & 1 else 1 - full
    return eh.MOMDP(P, R, [1, 0, 0, 0])


CASES = {
    2: [
        Case("the paper's example", examples.state_dependence(0.9), 0.9),
        Case("one state", examples.one_state(), 0.9),
        Case("two homes", examples.two_homes(), 0.95),
        Case("two homes and a refuge", examples.two_homes(with_refuge=True), 0.9),
        Case("stay or leave", examples.stay_or_leave(), 0.95),
        Case("two queues", two_queues(), 0.99),
        Case("garnet", examples.garnet(16, 5, 2, 3, seed=1), 0.95),
        Case("patient garnet", examples.garnet(12, 3, 2, 4, seed=2), 0.99),
        Case("losing garnet", losing(2, 3), 0.9),
        Case("grid", examples.grid(4, 2, 0.1, seed=1), 0.95),
    ],
    3: [
        Case("garnet", examples.garnet(16, 5, 3, 3, seed=4), 0.9),
        Case("patient garnet", examples.garnet(16, 4, 3, 3, seed=5), 0.99),
        Case("grid", examples.grid(4, 3, 0.1, seed=2), 0.95),
        Case("losing garnet", losing(3, 6), 0.95),
    ],
    4: [
        Case("garnet", examples.garnet(16, 5, 4, 3, seed=7), 0.95),
        Case("patient garnet", examples.garnet(16, 4, 4, 3, seed=8), 0.99),
        Case("grid", examples.grid(4, 4, 0.1, seed=3), 0.9),
    ],
}


def same_sizes(tables):
    """Tables of all models as arrays of the same shapes: room for STATES starts and successors."""

    def longer(x, axis, value):
        room = [(0, 0)] * x.ndim
        room[axis] = (0, STATES - x.shape[axis])
        return np.pad(x, room, constant_values=value)

    return tables._replace(
        starts=longer(tables.starts, 0, 0),
        start_cumulative=longer(tables.start_cumulative, 0, 1),
        successors=longer(tables.successors, 1, 0),
        cumulative=longer(tables.cumulative, 1, 1),
    )


def with_number(config, name, value):
    """The configuration with a number that may be traced."""
    config = copy.copy(config)
    object.__setattr__(config, name, value)
    return config


def learnt_policies(algorithm, cases, seed=0):
    """Train on all models at once, vectorised; a [S, A] policy for each."""
    config, D = SETTINGS[algorithm], cases[0].model.D
    envs = [FiniteEnv(padded(case.model), EPISODE) for case in cases]
    task = Task(algorithm, config, eh.GGF.geometric(D), STATES, envs[0].action_space)

    def run(tables: Tables, gamma):
        env = copy.copy(envs[0])
        env.tables = tables
        return run_of(env, task, with_number(config, "gamma", gamma), STEPS[algorithm], seed)[0]

    tables = [same_sizes(env.tables) for env in envs]
    agents = all_at_once(run, tables, [np.float32(case.gamma) for case in cases])
    return [probabilities(task, nth(agents, n), np.eye(STATES)) for n in range(len(cases))]


def share_of(welfare, case, policy, best):
    """1 for the best welfare, whatever its sign."""
    got = welfare.value(evaluate(padded(case.model), policy, gamma=case.gamma))
    return 1 - float(best - got) / abs(float(best))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_fair_policies_are_learnt(algorithm):
    """For two users; `make soak` has three and four."""
    learn_fair_policies(algorithm, 2)


def learn_fair_policies(algorithm, D):
    welfare = eh.GGF.geometric(D)
    shares = {
        case.name: share_of(welfare, case, policy, eh.solve(case.model, welfare, gamma=case.gamma).welfare)
        for case, policy in zip(CASES[D], learnt_policies(algorithm, CASES[D]), strict=True)
    }
    print({name: round(share, 4) for name, share in shares.items()})
    assert min(shares.values()) >= ALMOST, shares
    assert sum(share >= ENOUGH for share in shares.values()) >= len(shares) - 1, shares
    assert max(shares.values()) <= 1 + 1e-6


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
