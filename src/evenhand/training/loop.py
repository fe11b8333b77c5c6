"""What both loops around an update share: the state of a run, what is learnt from a rollout, and what is reported."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from evenhand.envs.core import PureEnv
from evenhand.envs.gym.host_env import HostEnv
from evenhand.errors import InputError
from evenhand.training.episodes import Episodes, Tally, count, empty_tally, new_episodes
from evenhand.training.task import Task
from evenhand.types import PRNGKey, Transitions

Report = dict[str, Any]


class LoopState(NamedTuple):
    """Everything a run is made of: from it the run goes on exactly as if it had never stopped."""

    agent: Any
    envs: Any
    observation: Float[Array, "N O"]
    initial: Bool[Array, " N"]
    episodes: Episodes
    key: PRNGKey
    updates: Int[Array, ""]


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
    agent, metrics = task.agent.update(config, task.problem, agent, transitions, key, remaining)
    return agent, episodes, tally, metrics


def empty_report(task: Task) -> dict[str, Array]:
    """Sums of no updates' reports."""
    return {name: jnp.zeros(shape) for name, shape in task.agent.reported(task.problem).items()}


def three_keys(key: PRNGKey) -> Key[Array, "3"]:
    """For the next update, for acting and for learning."""
    return jax.random.split(key, 3)


def random_key(seed: int) -> PRNGKey:
    """The key from which all randomness of a run comes."""
    return jax.random.key(seed)


def first_state(
    task: Task, seed: int | None, envs: Any, observation: Float[Array, "N O"], D: int, key: PRNGKey
) -> LoopState:
    """The state before the first step, for environments that show these observations."""
    N = task.config.envs
    return LoopState(
        agent=task.agent.initialise(task.config, task.problem, seed),
        envs=envs,
        observation=observation,
        initial=jnp.ones(N, bool),
        episodes=new_episodes(N, D),
        key=key,
        updates=jnp.array(0, jnp.int32),
    )


class Learnt(NamedTuple):
    """The part of a `LoopState` that does not depend on the environment."""

    agent: Any


def template(env: PureEnv | HostEnv, task: Task) -> LoopState:
    """The shapes of a state, with which a saved one can be read; nothing is run, and no memory taken."""

    def state() -> LoopState:
        N, D = task.config.envs, len(env.objectives)
        envs = () if isinstance(env, HostEnv) else jax.vmap(env.reset)(jax.random.split(random_key(0), N))[0]
        return first_state(task, None, envs, jnp.zeros((N, task.observation_size)), D, random_key(0))

    return jax.eval_shape(state)


def learnt_template(task: Task) -> Learnt:
    """The same of what was learnt alone, for which no environment is needed."""
    return jax.eval_shape(lambda: Learnt(task.agent.initialise(task.config, task.problem, None)))


def trace_update(task: Task, D: int) -> None:
    """Trace acting and an update for D users without running them: what cannot be trained raises an error here."""
    config, N, T = task.config, task.config.envs, task.config.rollout

    def once() -> Any:
        agent, key, remaining = task.agent.initialise(config, task.problem, None), random_key(0), jnp.array(1.0)
        observation, ended = jnp.zeros((T, N, task.observation_size)), jnp.zeros((T, N), bool)
        raw = task.agent.explore(config, task.problem, task.agent.acting(agent), observation[0], key, remaining)
        actions, rewards = jnp.broadcast_to(raw, (T, *raw.shape)), jnp.zeros((T, N, D))
        transitions = Transitions(observation, actions, rewards, observation, ended, ended, ended)
        return learn(task, config, agent, new_episodes(N, D), empty_tally(D), transitions, key, remaining)

    jax.eval_shape(once)


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
