"""Training on a pure environment: collecting and learning compiled as one program."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from evenhand.agents.distributions import to_environment
from evenhand.envs.core import PureEnv
from evenhand.training.episodes import Tally, empty_tally
from evenhand.training.loop import (
    LoopState,
    Report,
    empty_report,
    first_state,
    learn,
    random_key,
    report,
    three_keys,
)
from evenhand.training.task import Task
from evenhand.types import PRNGKey, Transitions


class CompiledLoop:
    """Training on a pure environment, compiled as a whole."""

    def __init__(self, env: PureEnv, task: Task) -> None:
        self.env, self.task = env, task
        self._reset = jax.jit(jax.vmap(env.reset))
        self._run: Any = None

    def start(self, seed: int) -> LoopState:
        """The state before the first step."""
        task, N = self.task, self.task.config.envs
        key, resets = jax.random.split(random_key(seed))
        envs, observation = self._reset(jax.random.split(resets, N))
        return first_state(task, seed, envs, observation, len(self.env.objectives), key)

    def compile(self, state: LoopState) -> float:
        """Compile the whole loop, or find it in the cache; the seconds it took. For the next seed it is all there."""
        if self._run is not None:
            return 0.0
        began = time.perf_counter()
        run = jax.jit(partial(run_updates, self.env, self.task), donate_argnums=1)
        self._run = run.lower(self.task.config, state, 1, 1).compile()
        return time.perf_counter() - began

    def advance(self, state: LoopState, updates: int, of: int) -> tuple[LoopState, Report]:
        """Make so many updates, of all those that the run will have made in the end; the old state is used up."""
        self.compile(state)
        state, sums, tally = self._run(self.task.config, state, updates, of)
        return state, report(sums, tally, updates, self.task)

    def resumed(self, state: LoopState) -> LoopState:
        """The state as it was: it is all there is."""
        return state

    def close(self) -> None:
        """Nothing was started."""


def run_updates(
    env: PureEnv, task: Task, config: Any, state: LoopState, updates: Int[Array, ""], of: Int[Array, ""]
) -> tuple[LoopState, dict[str, Array], Tally]:
    """`updates` rollouts with an update after each; their number is no part of the compiled program."""

    def once(_: Any, carry: tuple[LoopState, dict[str, Array], Tally]) -> tuple[LoopState, dict[str, Array], Tally]:
        state, sums, tally = carry
        state, tally, metrics = one_update(env, task, config, state, tally, of)
        return state, jax.tree.map(jnp.add, sums, metrics), tally

    return jax.lax.fori_loop(0, updates, once, (state, empty_report(task), empty_tally(len(env.objectives))))


def one_update(
    env: PureEnv, task: Task, config: Any, state: LoopState, tally: Tally, of: Int[Array, ""]
) -> tuple[LoopState, Tally, dict[str, Array]]:
    """Collect one rollout and learn from it."""
    key, collecting, learning = three_keys(state.key)
    remaining = 1.0 - state.updates / of
    N = config.envs

    def step(
        carry: tuple[Any, Array, Array], keys: tuple[PRNGKey, PRNGKey, Key[Array, " N"]]
    ) -> tuple[tuple[Any, Array, Array], Transitions]:
        envs, observation, initial = carry
        acting, resetting, stepping = keys
        action = task.agent.explore(config, task.problem, state.agent, observation, acting, remaining)
        after = jax.vmap(env.step)(envs, to_environment(task.actions, action), stepping)
        ended = after.terminated | after.truncated

        def begun_anew(going: tuple[Any, Array]) -> tuple[Any, Array]:
            anew = jax.vmap(env.reset)(jax.random.split(resetting, N))
            return jax.tree.map(
                lambda new, old: jnp.where(ended.reshape(-1, *(1,) * (old.ndim - 1)), new, old), anew, going
            )

        # Most steps end no episode, and resetting may be dear: traffic has to warm up.
        envs, onwards = jax.lax.cond(ended.any(), begun_anew, lambda going: going, (after.state, after.observation))
        return (envs, onwards, ended), Transitions(
            observation, action, after.reward, after.observation, after.terminated, after.truncated, initial
        )

    keys = jax.random.split(collecting, (config.rollout, 2 + N))  # all at once, which takes little longer than for one
    start = (state.envs, state.observation, state.initial)
    (envs, observation, initial), transitions = jax.lax.scan(step, start, (keys[:, 0], keys[:, 1], keys[:, 2:]))
    agent, episodes, tally, metrics = learn(
        task, config, state.agent, state.episodes, tally, transitions, learning, remaining
    )
    return LoopState(agent, envs, observation, initial, episodes, key, state.updates + 1), tally, metrics
