"""Training on any Gymnasium environment: only acting and learning are compiled."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evenhand.agents.distributions import to_environment
from evenhand.envs.core import PureEnv
from evenhand.envs.gym.host_env import HostEnv
from evenhand.envs.gym.vector import Start, VectorEnv
from evenhand.errors import InputError
from evenhand.training.compiled import CompiledLoop
from evenhand.training.episodes import Episodes, Tally, empty_tally, new_episodes
from evenhand.training.loop import (
    CutShort,
    Loop,
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


class HostLoop:
    """Training on any Gymnasium environment; only acting and learning are compiled.

    workers: processes that step the environments; 0 steps them here. start: what starts these; step_timeout: how long
        a step may take (see `VectorEnv`).
    """

    def __init__(
        self,
        env: HostEnv,
        task: Task,
        workers: int = 0,
        warn: Any = None,
        start: Start | None = None,
        step_timeout: float | int | None = None,
    ) -> None:
        self.env, self.task = env, task
        self._made = partial(VectorEnv, workers=workers, warn=warn, start=start, step_timeout=step_timeout)
        self._envs: VectorEnv | None = None
        self._rollout: Transitions | None = None
        self._explore = jax.jit(self._explored)
        self._learn = jax.jit(self._learnt, donate_argnums=(1, 2, 3))

    def _explored(
        self, agent: Any, observation: Array, key: PRNGKey, t: Array, remaining: Array
    ) -> tuple[Array, Array]:
        """Raw actions, and as the environment takes them."""
        task = self.task
        # Hyperparameters are constants here: handing them over at every step would take longer than the network.
        acting = jax.random.fold_in(three_keys(key)[1], t)
        raw = task.agent.explore(task.config, task.problem, agent, observation, acting, remaining)
        return raw, to_environment(task.actions, raw)

    def _learnt(
        self,
        config: Any,
        learner: tuple[Any, Episodes],
        sums: Any,
        tally: Tally,
        rollout: Transitions,
        key: PRNGKey,
        remaining: Array,
    ) -> tuple[tuple[Any, Episodes], Any, Tally, PRNGKey]:
        key, _, learning = three_keys(key)
        agent, episodes, tally, metrics = learn(self.task, config, *learner, tally, rollout, learning, remaining)
        return (agent, episodes), jax.tree.map(jnp.add, sums, metrics), tally, key

    def start(self, seed: int) -> LoopState:
        """The state before the first step."""
        observation = self._begun_anew(seed)
        key = jax.random.split(random_key(seed))[0]
        return first_state(self.task, seed, (), jnp.asarray(observation), self.env.D, key)

    def _begun_anew(self, seed: int) -> Float[np.ndarray, "N O"]:
        self.close()
        self._envs = self._made(self.env, self.task.config.envs, seed)
        return self._envs.reset()

    def resumed(self, state: LoopState) -> LoopState:
        """Other people's environments cannot be saved: their episodes begin anew, with seeds not used before."""
        N = self.task.config.envs
        seed = int(jax.random.randint(jax.random.fold_in(state.key, 1), (), 0, 2**31 - 1))
        observation = jnp.asarray(self._begun_anew(seed))
        return state._replace(observation=observation, initial=jnp.ones(N, bool), episodes=new_episodes(N, self.env.D))

    def compile(self, state: LoopState) -> float:
        """Compile acting and learning; the seconds it took. For the next seed it is all there."""
        if self._rollout is not None:
            return 0.0
        began = time.perf_counter()
        acting, remaining = self.task.agent.acting(state.agent), np.float32(1.0)
        raw, _ = self._explore(acting, np.asarray(state.observation), state.key, np.int32(0), remaining)
        self._rollout, nothing = self._blank(np.asarray(raw)), empty_tally(self.env.D)
        learner = (state.agent, state.episodes)
        sums = empty_report(self.task)
        self._learn.lower(self.task.config, learner, sums, nothing, self._rollout, state.key, remaining).compile()
        return time.perf_counter() - began

    def _blank(self, raw: np.ndarray) -> Transitions:
        """Room for a rollout."""
        T, N, size = self.task.config.rollout, self.task.config.envs, self.task.observation_size
        shapes = ((N, size), raw.shape, (N, self.env.D), (N, size), (N,), (N,), (N,))
        kinds = (np.float32, raw.dtype, np.float32, np.float32, bool, bool, bool)
        return Transitions(*(np.zeros((T, *shape), kind) for shape, kind in zip(shapes, kinds, strict=True)))

    def advance(self, state: LoopState, updates: int, of: int) -> tuple[LoopState, Report]:
        """Make so many updates, of all those that the run will have made in the end; the old state is used up."""
        self.compile(state)
        task, before, key = self.task, int(state.updates), state.key
        learner, tally, sums = (state.agent, state.episodes), empty_tally(self.env.D), empty_report(task)
        seen = np.asarray(state.observation), np.asarray(state.initial)

        def reached(done: int) -> LoopState:
            observation, initial = map(jnp.asarray, seen)
            return LoopState(learner[0], (), observation, initial, learner[1], key, state.updates + done)

        for update in range(updates):
            remaining = np.float32(1.0 - (before + update) / of)
            try:
                rollout, seen = self._collect(task.agent.acting(learner[0]), *seen, key, remaining)
            except InputError as error:
                raise CutShort(reached(update), update, error) from None
            learner, sums, tally, key = self._learn(task.config, learner, sums, tally, rollout, key, remaining)
        return reached(updates), report(sums, tally, updates, task)

    def _collect(
        self, acting: Any, observation: np.ndarray, initial: np.ndarray, key: PRNGKey, remaining: np.float32
    ) -> tuple[Transitions, tuple[np.ndarray, np.ndarray]]:
        """A rollout; what is seen after it, and whether that begins an episode."""
        assert self._envs is not None
        assert self._rollout is not None
        rollout = jax.tree.map(np.empty_like, self._rollout)  # a new one: JAX may still be reading the last
        for t in range(self.task.config.rollout):
            raw, action = map(np.asarray, self._explore(acting, observation, key, np.int32(t), remaining))
            after = self._envs.step(action)
            ended = after.terminated, after.truncated
            taken = (observation, raw, after.reward, after.final_observation, *ended, initial)
            for column, now in zip(rollout, taken, strict=True):
                column[t] = now
            observation, initial = after.observation, after.terminated | after.truncated
        return rollout, (observation, initial)

    def close(self) -> None:
        """Close the environments."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None


def loop_for(
    env: PureEnv | HostEnv,
    task: Task,
    workers: int = 0,
    warn: Any = None,
    start: Start | None = None,
    step_timeout: float | int | None = None,
) -> Loop:
    """The loop that fits the environment."""
    if isinstance(env, HostEnv):
        return HostLoop(env, task, workers, warn, start, step_timeout)
    return CompiledLoop(env, task)
