"""Tiny pure environments, each of which asks one question that has a known answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from evenhand.types import Actions, Box, Discrete, Step


class Seen(NamedTuple):
    """What one has seen last, and since how many steps."""

    observation: Any
    steps: Any


@dataclass(frozen=True)
class Probe:
    """An environment from two functions."""

    D: int
    O: int  # noqa: E741
    action_space: Actions
    first: Callable[[Any], Any]
    """From a key to an observation."""
    after: Callable[[Any, Any, Any, Any], tuple[Any, Any]]
    """From observation, action, steps so far and a key to observation and reward."""
    steps: int = 1
    """How long an episode is."""
    terminates: bool = True
    """Whether it then ends for good, or is only cut off."""

    @property
    def objectives(self) -> tuple[str, ...]:
        return tuple(f"user {i + 1}" for i in range(self.D))

    @property
    def observation_space(self) -> Box:
        return Box.of(-np.inf, np.inf, self.O)

    @property
    def reward_space(self) -> Box:
        return Box.of(-np.inf, np.inf, self.D)

    def reset(self, key: Any) -> tuple[Seen, Any]:
        state = Seen(jnp.asarray(self.first(key), jnp.float32), jnp.array(0, jnp.int32))
        return state, state.observation

    def step(self, state: Seen, action: Any, key: Any) -> Step:
        observation, reward = self.after(state.observation, action, state.steps, key)
        state = Seen(jnp.asarray(observation, jnp.float32), state.steps + 1)
        over = state.steps >= self.steps
        return Step(
            state,
            state.observation,
            jnp.asarray(reward, jnp.float32),
            over & self.terminates,
            over & (not self.terminates),
        )


def _nothing(key: Any) -> Any:
    return jnp.ones(1)


def constant_reward(reward: tuple[float, ...], steps: int = 1, terminates: bool = True) -> Probe:
    """One state and one action. V = r for an episode of one step, r/(1 − γ) for one that is only cut off."""
    return Probe(len(reward), 1, Discrete(1), _nothing, lambda o, a, t, k: (o, jnp.array(reward)), steps, terminates)


def reward_by_observation() -> Probe:
    """The observation x = ±1 decides: V(x) = (x, 2 − x)."""
    return Probe(
        2,
        1,
        Discrete(1),
        lambda key: jax.random.rademacher(key, (1,), jnp.float32),
        lambda o, a, t, k: (o, jnp.concatenate([o, 2.0 - o])),
    )


def delayed_reward(delay: int) -> Probe:
    """(1, 2) after so many steps, then the end: V(i) = γ^(delay − i) (1, 2), i being the entry that is 1."""

    def after(o: Any, a: Any, t: Any, k: Any) -> tuple[Any, Any]:
        return jnp.roll(o, 1), jnp.where(t == delay, 1.0, 0.0) * jnp.array([1.0, 2.0])

    return Probe(2, delay + 1, Discrete(1), lambda key: jnp.eye(delay + 1)[0], after, delay + 1)


def two_actions() -> Probe:
    """Action 1 pays (1, ½), action 0 nothing."""
    return Probe(2, 1, Discrete(2), _nothing, lambda o, a, t, k: (o, jnp.array([[0.0, 0.0], [1.0, 0.5]])[a]))


def matching_action() -> Probe:
    """x = ±1; action 1 pays (x, ½x), action 0 nothing: the best is worth (1, ½) where x = 1 and nothing elsewhere."""
    return Probe(
        2,
        1,
        Discrete(2),
        lambda key: jax.random.rademacher(key, (1,), jnp.float32),
        lambda o, a, t, k: (o, jnp.where(a == 1, o, 0.0) * jnp.array([1.0, 0.5])),
    )


def one_at_a_time(*pay: float) -> Probe:
    """As many users as actions, each action paying one of them: the fairest policy has π(i) ∝ 1/pay_i."""
    rewards = np.diag(pay)
    return Probe(len(pay), 1, Discrete(len(pay)), _nothing, lambda o, a, t, k: (o, jnp.asarray(rewards)[a]))


def seldom_paid(chance: float = 0.1) -> Probe:
    """Three users; the first two are paid 1 for actions 0 and 1, the third 1/chance for action 2, but seldom."""

    def after(o: Any, a: Any, t: Any, k: Any) -> tuple[Any, Any]:
        seldom = jnp.where(jax.random.uniform(k) < chance, 1.0 / chance, 0.0)
        return o, jnp.eye(3)[a] * jnp.stack([jnp.array(1.0), jnp.array(1.0), seldom])

    return Probe(3, 1, Discrete(3), _nothing, after)


def nearest_action(*wishes: float, low: float = -2.0, high: float = 6.0) -> Probe:
    """A number is chosen; each user loses the square of its distance to a wish. Of two, the fairest is the middle."""

    def after(o: Any, a: Any, t: Any, k: Any) -> tuple[Any, Any]:
        return o, -((jnp.broadcast_to(a, len(wishes)) - jnp.array(wishes)) ** 2)

    return Probe(len(wishes), 1, Box.of(low, high, 1), _nothing, after)
