"""Finite models with exact optima, what is learnt of them all at once, and which share of the optimum that is.

The settings are the same for all models of an algorithm. Fair optima are mixed: the entropy bonus starts high, so that
policies do not settle before they have seen everything, and falls to nothing; and what is judged is the policy with the
mean parameters of the second half of the training (`average`), for the last turn round the optimum.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import evenhand as eh
from evenhand.agents import a2c, actor_critic, dqn, ppo
from evenhand.envs.finite import FiniteEnv, Tables
from evenhand.exact import examples
from evenhand.exact.policies import evaluate
from evenhand.training.compiled import CompiledLoop, run_updates
from evenhand.training.task import Task

QUICKLY = {"xla_backend_optimization_level": 1}
"""Compiling takes longer than learning; with this it takes half the time, and the programs are no slower."""


def all_at_once(run, *each):
    """Calls a function with the first of everything, the second, and so on: one compiled program."""
    each = [jax.tree.map(lambda *leaves: np.stack(leaves), *trees) for trees in each]
    return jax.jit(jax.vmap(run)).lower(*each).compile(QUICKLY)(*each)


def run_of(env, task, config, steps, seed):
    """A whole training, which may be traced: what was learnt, and what was reported."""
    updates, state = jnp.array(steps // config.steps_per_update), CompiledLoop(env, task).start(seed)
    state, sums, tally = run_updates(env, task, config, state, updates, updates)
    return state.agent, sums | tally._asdict()


def nth(tree, n):
    return jax.tree.map(lambda x: x[n], tree)


def wide(task, observations):
    """Observations of a probe, as all of them have."""
    observations = np.asarray(observations, np.float32)
    return jnp.asarray(np.pad(observations, ((0, 0), (0, task.observation_size - observations.shape[1]))))


def probabilities(task, agent, observations):
    x = wide(task, observations)
    if task.algorithm == "dqn":
        return np.eye(task.actions.n)[np.asarray(task.agent.mode(task.config, task.problem, agent, x))]
    learnt = agent.params._replace(actor=agent.averaged.actor, log_std=agent.averaged.log_std)
    logits = actor_critic.policy(task.config, task.problem, learnt, x).logits
    p = np.asarray(jax.nn.softmax(logits), float)
    return p / p.sum(axis=1, keepdims=True)


# All models are brought to the same sizes, so that a compiled program serves all of one D.
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
