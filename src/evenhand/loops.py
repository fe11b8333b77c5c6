"""Two loops around the same update: one compiled whole, for pure environments, and one for all others.

Both collect T steps of N environments, hand them to the agent's `update`, and say what happened on the way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property, partial
from types import ModuleType
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from evenhand.agents import ALGORITHMS
from evenhand.agents.distributions import to_environment
from evenhand.agents.problem import Problem
from evenhand.envs.core import PureEnv
from evenhand.envs.host import HostEnv
from evenhand.envs.vector import Start, VectorEnv
from evenhand.errors import InputError
from evenhand.types import Actions, PRNGKey, Transitions
from evenhand.welfare import GGF, Utilitarian, Welfare

Report = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """An algorithm with its hyperparameters, for the welfare of an environment's users."""

    algorithm: str
    config: Any
    welfare: Welfare
    observation_size: int
    actions: Actions

    @property
    def agent(self) -> ModuleType:
        """The algorithm's module."""
        return ALGORITHMS[self.algorithm]

    @property
    def sums_rewards(self) -> bool:
        """Whether the welfare is utilitarian: then the sum of the rewards is all that has to be learnt."""
        return isinstance(self.welfare, Utilitarian)

    @cached_property
    def problem(self) -> Problem:
        """What the agent is told."""
        learnt = GGF([1.0]) if self.sums_rewards else self.welfare
        return Problem(self.observation_size, self.actions, learnt)

    def learnt_reward(self, reward: Float[Array, "*batch D"]) -> Float[Array, "*batch d"]:
        """The rewards as the agent sees them."""
        return jnp.sum(reward, axis=-1, keepdims=True) if self.sums_rewards else reward


class Episodes(NamedTuple):
    """What the running episodes of N environments have come to."""

    total: Float[Array, "N D"]
    discounted: Float[Array, "N D"]
    discount: Float[Array, " N"]
    length: Int[Array, " N"]


class Tally(NamedTuple):
    """Sums over the steps and over the finished episodes of some updates."""

    reward: Float[Array, " D"]
    total: Float[Array, " D"]
    discounted: Float[Array, " D"]
    length: Float[Array, ""]
    finished: Float[Array, ""]


class LoopState(NamedTuple):
    """Everything a run is made of: from it the run goes on exactly as if it had never stopped."""

    agent: Any
    envs: Any
    observation: Float[Array, "N O"]
    initial: Bool[Array, " N"]
    episodes: Episodes
    key: PRNGKey
    updates: Int[Array, ""]


def no_episodes(N: int, D: int) -> Episodes:
    """N episodes that have only begun."""
    return Episodes(jnp.zeros((N, D)), jnp.zeros((N, D)), jnp.ones(N), jnp.zeros(N, jnp.int32))


def nothing_tallied(D: int) -> Tally:
    """No steps yet."""
    return Tally(jnp.zeros(D), jnp.zeros(D), jnp.zeros(D), jnp.array(0.0), jnp.array(0.0))


def nothing_reported(task: Task) -> dict[str, Array]:
    """Sums of no updates' reports."""
    return {name: jnp.zeros(shape) for name, shape in task.agent.reported(task.problem).items()}


def count(
    episodes: Episodes, tally: Tally, reward: Float[Array, "N D"], ended: Bool[Array, " N"], gamma: Any
) -> tuple[Episodes, Tally]:
    """Add a step's rewards to the episodes, and the episodes that have ended to the tally."""
    total = episodes.total + reward
    discounted = episodes.discounted + episodes.discount[:, None] * reward
    length = episodes.length + 1
    over = ended[:, None]
    tally = Tally(
        tally.reward + jnp.sum(reward, 0),
        tally.total + jnp.sum(jnp.where(over, total, 0.0), 0),
        tally.discounted + jnp.sum(jnp.where(over, discounted, 0.0), 0),
        tally.length + jnp.sum(jnp.where(ended, length, 0)),
        tally.finished + jnp.sum(ended),
    )
    return Episodes(
        jnp.where(over, 0.0, total),
        jnp.where(over, 0.0, discounted),
        jnp.where(ended, 1.0, gamma * episodes.discount),
        jnp.where(ended, 0, length),
    ), tally


class CutShort(Exception):
    """An environment failed in the middle of a rollout.

    state: that after the last whole update, to go on with when the environment is mended. updates: how many of those
        asked for had been made. why: what it raised.
    """

    def __init__(self, state: LoopState, updates: int, why: InputError) -> None:
        super().__init__(state, updates, why)
        self.state, self.updates, self.why = state, updates, why


@runtime_checkable
class Loop(Protocol):
    """Training in pieces, so that someone can look, save and stop in between."""

    def start(self, seed: int) -> LoopState:
        """The state before the first step."""

    def compile(self, state: LoopState) -> float:
        """Compile what `advance` will run; the seconds it took."""

    def advance(self, state: LoopState, updates: int, of: int) -> tuple[LoopState, Report]:
        """Make so many updates, of all those that the run will have made in the end; `CutShort` if that fails."""

    def resumed(self, state: LoopState) -> LoopState:
        """The state to go on with after it was saved and read again."""

    def close(self) -> None:
        """End what was started."""


def learn(
    task: Task,
    config: Any,
    agent: Any,
    episodes: Episodes,
    tally: Tally,
    transitions: Transitions,
    key: PRNGKey,
    remaining: Float[Array, ""],
) -> tuple[Any, Episodes, Tally, dict[str, Array]]:
    """What both loops do with a rollout: count its episodes, and let the agent learn."""

    def counted(carry: tuple[Episodes, Tally], step: tuple[Array, Array]) -> tuple[tuple[Episodes, Tally], None]:
        return count(*carry, *step, config.gamma), None

    ended = transitions.terminated | transitions.truncated
    (episodes, tally), _ = jax.lax.scan(counted, (episodes, tally), (transitions.reward, ended))
    transitions = transitions._replace(reward=task.learnt_reward(transitions.reward))
    agent, facts = task.agent.update(config, task.problem, agent, transitions, key, remaining)
    return agent, episodes, tally, facts


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
        return _first_state(task, seed, envs, observation, len(self.env.objectives), key)

    def compile(self, state: LoopState) -> float:
        """Compile the whole loop, or find it in the cache; the seconds it took. For the next seed it is all there."""
        if self._run is not None:
            return 0.0
        began = time.perf_counter()
        run = jax.jit(partial(_run, self.env, self.task), donate_argnums=1)
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
        acting = jax.random.fold_in(_three_keys(key)[1], t)
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
        key, _, learning = _three_keys(key)
        agent, episodes, tally, facts = learn(self.task, config, *learner, tally, rollout, learning, remaining)
        return (agent, episodes), jax.tree.map(jnp.add, sums, facts), tally, key

    def start(self, seed: int) -> LoopState:
        """The state before the first step."""
        observation = self._begun_anew(seed)
        key = jax.random.split(random_key(seed))[0]
        return _first_state(self.task, seed, (), jnp.asarray(observation), self.env.D, key)

    def _begun_anew(self, seed: int) -> Float[np.ndarray, "N O"]:
        self.close()
        self._envs = self._made(self.env, self.task.config.envs, seed)
        return self._envs.reset()

    def resumed(self, state: LoopState) -> LoopState:
        """Other people's environments cannot be saved: their episodes begin anew, with seeds not used before."""
        N = self.task.config.envs
        seed = int(jax.random.randint(jax.random.fold_in(state.key, 1), (), 0, 2**31 - 1))
        observation = jnp.asarray(self._begun_anew(seed))
        return state._replace(observation=observation, initial=jnp.ones(N, bool), episodes=no_episodes(N, self.env.D))

    def compile(self, state: LoopState) -> float:
        """Compile acting and learning; the seconds it took. For the next seed it is all there."""
        if self._rollout is not None:
            return 0.0
        began = time.perf_counter()
        acting, remaining = self.task.agent.acting(state.agent), np.float32(1.0)
        raw, _ = self._explore(acting, np.asarray(state.observation), state.key, np.int32(0), remaining)
        self._rollout, nothing = self._blank(np.asarray(raw)), nothing_tallied(self.env.D)
        learner = (state.agent, state.episodes)
        sums = nothing_reported(self.task)
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
        learner, tally, sums = (state.agent, state.episodes), nothing_tallied(self.env.D), nothing_reported(task)
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
            found = (
                observation,
                raw,
                after.reward,
                after.final_observation,
                after.terminated,
                after.truncated,
                initial,
            )
            for column, now in zip(rollout, found, strict=True):
                column[t] = now
            observation, initial = after.observation, after.terminated | after.truncated
        return rollout, (observation, initial)

    def close(self) -> None:
        """Close the environments."""
        if self._envs is not None:
            self._envs.close()
            self._envs = None


def _three_keys(key: PRNGKey) -> Key[Array, "3"]:
    """For the next update, for acting and for learning."""
    return jax.random.split(key, 3)


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


def random_key(seed: int) -> PRNGKey:
    """The key from which all randomness of a run comes."""
    return jax.random.key(seed)


def _first_state(
    task: Task, seed: int | None, envs: Any, observation: Float[Array, "N O"], D: int, key: PRNGKey
) -> LoopState:
    N = task.config.envs
    return LoopState(
        agent=task.agent.initialise(task.config, task.problem, seed),
        envs=envs,
        observation=observation,
        initial=jnp.ones(N, bool),
        episodes=no_episodes(N, D),
        key=key,
        updates=jnp.array(0, jnp.int32),
    )


def _run(
    env: PureEnv, task: Task, config: Any, state: LoopState, updates: Int[Array, ""], of: Int[Array, ""]
) -> tuple[LoopState, dict[str, Array], Tally]:
    """`updates` rollouts with an update after each; their number is no part of the compiled program."""

    def once(_: Any, carry: tuple[LoopState, dict[str, Array], Tally]) -> tuple[LoopState, dict[str, Array], Tally]:
        state, sums, tally = carry
        state, tally, facts = _once(env, task, config, state, tally, of)
        return state, jax.tree.map(jnp.add, sums, facts), tally

    return jax.lax.fori_loop(0, updates, once, (state, nothing_reported(task), nothing_tallied(len(env.objectives))))


def _once(
    env: PureEnv, task: Task, config: Any, state: LoopState, tally: Tally, of: Int[Array, ""]
) -> tuple[LoopState, Tally, dict[str, Array]]:
    """Collect one rollout and learn from it."""
    key, collecting, learning = _three_keys(state.key)
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
    agent, episodes, tally, facts = learn(
        task, config, state.agent, state.episodes, tally, transitions, learning, remaining
    )
    return LoopState(agent, envs, observation, initial, episodes, key, state.updates + 1), tally, facts


class Learnt(NamedTuple):
    """The part of a `LoopState` that does not depend on the environment."""

    agent: Any


def template(env: PureEnv | HostEnv, task: Task) -> LoopState:
    """The shapes of a state, with which a saved one can be read; nothing is run, and no memory taken."""

    def state() -> LoopState:
        N, D = task.config.envs, len(env.objectives)
        envs = () if isinstance(env, HostEnv) else jax.vmap(env.reset)(jax.random.split(random_key(0), N))[0]
        return _first_state(task, None, envs, jnp.zeros((N, task.observation_size)), D, random_key(0))

    return jax.eval_shape(state)


def learnt_template(task: Task) -> Learnt:
    """The same of what was learnt alone, for which no environment is needed."""
    return jax.eval_shape(lambda: Learnt(task.agent.initialise(task.config, task.problem, None)))


def report(sums: dict[str, Array], tally: Tally, updates: int, task: Task) -> Report:
    """Means over the steps, the updates and the finished episodes; NaN where no episode finished."""
    sums, tally = jax.device_get((sums, tally))
    steps = updates * task.config.steps_per_update
    finished = tally.finished if tally.finished else np.nan
    return {name: value / updates for name, value in sums.items()} | {
        "reward": tally.reward / steps,
        "episode_return": tally.total / finished,
        "episode_discounted": tally.discounted / finished,
        "episode_length": tally.length / finished,
        "episodes": float(tally.finished),
    }


def report_shapes(task: Task, D: int) -> dict[str, tuple[int, ...]]:
    """What `report` will say, and in what shapes."""
    vectors = dict.fromkeys(("reward", "episode_return", "episode_discounted"), (D,))
    return task.agent.reported(task.problem) | vectors | dict.fromkeys(("episode_length", "episodes"), ())
