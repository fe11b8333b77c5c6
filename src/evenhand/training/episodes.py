"""What episodes come to while they are played: sums of rewards, plain and discounted, and how long they are."""

from __future__ import annotations

from types import ModuleType
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int


class Episodes(NamedTuple):
    """What the running episodes of N environments have come to; arrays of JAX or of NumPy."""

    total: Float[Any, "N D"]
    discounted: Float[Any, "N D"]
    discount: Float[Any, " N"]
    """What the next reward is multiplied by."""
    length: Int[Any, " N"]


def new_episodes(N: int, D: int, first: Any = 1.0, xp: ModuleType = jnp) -> Episodes:
    """N episodes that have only begun. first: what their first reward is multiplied by; xp: jax.numpy or numpy."""
    return Episodes(xp.zeros((N, D)), xp.zeros((N, D)), xp.full(N, first), xp.zeros(N, xp.int32))


def advance(episodes: Episodes, reward: Float[Any, "N D"], gamma: Any, goes_on: Any = 1) -> Episodes:
    """Add a step's rewards. goes_on: 0 for episodes that are over, which grow no longer."""
    return Episodes(
        episodes.total + reward,
        episodes.discounted + episodes.discount[:, None] * reward,
        gamma * episodes.discount,
        episodes.length + goes_on,
    )


def restart(episodes: Episodes, ended: Bool[Any, " N"], first: Any = 1.0, xp: ModuleType = jnp) -> Episodes:
    """Begin those anew that have ended."""
    over = ended[:, None]
    return Episodes(
        xp.where(over, 0.0, episodes.total),
        xp.where(over, 0.0, episodes.discounted),
        xp.where(ended, first, episodes.discount),
        xp.where(ended, 0, episodes.length),
    )


class Tally(NamedTuple):
    """Sums over the steps and over the finished episodes of some updates."""

    reward: Float[Array, " D"]
    total: Float[Array, " D"]
    discounted: Float[Array, " D"]
    length: Float[Array, ""]
    finished: Float[Array, ""]


def empty_tally(D: int) -> Tally:
    """No steps yet."""
    return Tally(jnp.zeros(D), jnp.zeros(D), jnp.zeros(D), jnp.array(0.0), jnp.array(0.0))


def count(
    episodes: Episodes, tally: Tally, reward: Float[Array, "N D"], ended: Bool[Array, " N"], gamma: Any
) -> tuple[Episodes, Tally]:
    """Add a step's rewards to the episodes, and the episodes that have ended to the tally."""
    episodes = advance(episodes, reward, gamma)
    over = ended[:, None]
    tally = Tally(
        tally.reward + jnp.sum(reward, 0),
        tally.total + jnp.sum(jnp.where(over, episodes.total, 0.0), 0),
        tally.discounted + jnp.sum(jnp.where(over, episodes.discounted, 0.0), 0),
        tally.length + jnp.sum(jnp.where(ended, episodes.length, 0)),
        tally.finished + jnp.sum(ended),
    )
    return restart(episodes, ended), tally
