"""Running statistics by which observations and rewards are brought to a common scale."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from evenhand.agents.config import Common
from evenhand.types import Transitions

LIMIT = 10.0
"""Where normalised observations are cut off."""


class Running(NamedTuple):
    """Mean and variance, entry by entry, of all that was seen."""

    mean: Float[Array, " n"]
    variance: Float[Array, " n"]
    number: Float[Array, ""]


def empty_running(n: int) -> Running:
    """Mean 0 and variance 1, to be forgotten at once."""
    return Running(jnp.zeros(n), jnp.ones(n), jnp.array(0.0))


def update_running(running: Running, batch: Float[Array, "B n"]) -> Running:
    """Statistics of the old and the new together (Chan, Golub and LeVeque's update)."""
    B = batch.shape[0]
    mean, variance = jnp.mean(batch, 0), jnp.var(batch, 0)
    total = running.number + B
    share = B / total
    delta = mean - running.mean
    return Running(
        running.mean + delta * share,
        running.variance * (1 - share) + variance * share + delta**2 * share * (1 - share),
        jnp.minimum(total, 1e7),  # beyond that float32 could not count on, and what is new would no longer count
    )


def normalised(running: Running, x: Float[Array, "*batch n"]) -> Float[Array, "*batch n"]:
    """(x − mean) / deviation, cut off at ± LIMIT."""
    scale = jax.lax.rsqrt(running.variance + 1e-8)
    mean, scale = (jnp.broadcast_to(y, x.shape) for y in (running.mean, scale))
    return jnp.clip((x - mean) * scale, -LIMIT, LIMIT)


class RewardScale(NamedTuple):
    """The deviation of discounted returns, one number for all objectives: users must stay comparable."""

    returns: Float[Array, "N D"]
    """The discounted sum of the rewards so far, in each environment."""
    running: Running


def empty_reward_scale(N: int, D: int) -> RewardScale:
    """Nothing seen yet."""
    return RewardScale(jnp.zeros((N, D)), empty_running(D))


def update_reward_scale(
    scale: RewardScale, reward: Float[Array, "T N D"], ended: Bool[Array, "T N"], gamma: Float[Array, ""] | float
) -> RewardScale:
    """Follow the discounted sums through the steps and count them all."""

    def onwards(
        returns: Float[Array, "N D"], now: tuple[Float[Array, "N D"], Bool[Array, "N"]]
    ) -> tuple[Float[Array, "N D"], Float[Array, "N D"]]:
        returns = gamma * returns + now[0]
        return jnp.where(now[1][:, None], 0.0, returns), returns

    last, all_returns = jax.lax.scan(onwards, scale.returns, (reward, ended))
    return RewardScale(last, update_running(scale.running, all_returns.reshape(-1, reward.shape[-1])))


def to_unit_deviation(scale: RewardScale) -> Float[Array, ""]:
    """The factor by which rewards get returns with a deviation of about one."""
    return jax.lax.rsqrt(jnp.mean(scale.running.variance) + 1e-8)


class Scales(NamedTuple):
    """What was seen so far, as far as the settings ask for it."""

    observations: Running | None
    rewards: RewardScale | None


def new_scales(config: Common, O: int, D: int) -> Scales:  # noqa: E741
    """Nothing seen yet of observations of O and rewards of D numbers."""
    return Scales(
        observations=empty_running(O) if config.normalise_observations else None,
        rewards=empty_reward_scale(config.envs, D) if config.normalise_rewards else None,
    )


def update_scales(config: Common, scales: Scales, transitions: Transitions) -> Scales:
    """With the steps of a rollout."""
    observations, rewards = scales
    if observations is not None:
        new = transitions.observation
        observations = update_running(observations, new.reshape(-1, new.shape[-1]))
    if rewards is not None:
        ended = transitions.terminated | transitions.truncated
        rewards = update_reward_scale(rewards, transitions.reward, ended, config.gamma)
    return Scales(observations, rewards)


def inputs(scales: Scales, observation: Float[Array, "*batch O"]) -> Float[Array, "*batch O"]:
    """Observations as the networks see them."""
    return observation if scales.observations is None else normalised(scales.observations, observation)


def reward_factor(config: Common, scales: Scales) -> Float[Array, ""] | float:
    """What rewards are multiplied by."""
    if scales.rewards is not None:
        return to_unit_deviation(scales.rewards)
    return 1.0 - config.gamma if config.reward_scale is None else config.reward_scale
