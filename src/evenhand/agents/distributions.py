"""Distributions over actions: categorical, and Gaussian on bounded boxes.

Policies are learnt in terms of *raw* actions: whole numbers, or unbounded vectors of which the box is [−1, 1]ⁿ.
`to_environment` turns these into actions of the environment. A Gaussian's raw actions are clipped only there, so
that their probabilities stay those of a Gaussian.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Shaped

from evenhand.types import Actions, Box, Discrete, PRNGKey


class Categorical(NamedTuple):
    """Whole numbers with probabilities softmax(logits)."""

    logits: Float[Array, "*batch A"]

    def sample(self, key: PRNGKey) -> Int[Array, "*batch"]:
        """Draw by inverting the distribution function, which takes one random number each."""
        cumulative = jnp.cumsum(jax.nn.softmax(self.logits), axis=-1)
        drawn = jax.random.uniform(key, self.logits.shape[:-1])
        below = jnp.sum(cumulative <= drawn[..., None], axis=-1)
        return jnp.minimum(below, self.logits.shape[-1] - 1).astype(jnp.int32)  # rounding may leave the sum below 1

    def mode(self) -> Int[Array, "*batch"]:
        """The most probable action."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def log_prob(self, action: Int[Array, "*batch"]) -> Float[Array, "*batch"]:
        """Log π(a)."""
        # A one-hot product, not a gather: its derivative is a product again, not a scatter.
        chosen = action[..., None] == jnp.arange(self.logits.shape[-1]).reshape((1,) * action.ndim + (-1,))
        return jnp.sum(jnp.where(chosen, jax.nn.log_softmax(self.logits), 0.0), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """−Σ π log π."""
        log_p = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_p) * log_p, axis=-1)


class Gaussian(NamedTuple):
    """Independent normal distributions; the deviation does not depend on the state."""

    mean: Float[Array, "*batch n"]
    log_std: Float[Array, "*batch n"]

    def sample(self, key: PRNGKey) -> Float[Array, "*batch n"]:
        """Mean + deviation × noise."""
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> Float[Array, "*batch n"]:
        """The mean."""
        return self.mean

    def log_prob(self, action: Float[Array, "*batch n"]) -> Float[Array, "*batch"]:
        """Log π(a)."""
        z = (action - self.mean) * jnp.exp(-self.log_std)
        return -jnp.sum(0.5 * z**2 + self.log_std + 0.5 * np.log(2 * np.pi), axis=-1)

    def entropy(self) -> Float[Array, "*batch"]:
        """Σ log σ + ½ log 2πe."""
        return jnp.sum(self.log_std + 0.5 * np.log(2 * np.pi * np.e), axis=-1)


Distribution = Categorical | Gaussian


def outputs(space: Actions) -> int:
    """How many numbers a network puts out for a distribution on this space."""
    return space.n


def distribution(space: Actions, output: Float[Array, "*batch n"], log_std: Float[Array, " k"] | None) -> Distribution:
    """The distribution that a network's output stands for."""
    if isinstance(space, Discrete):
        return Categorical(output)
    assert log_std is not None
    return Gaussian(output, jnp.broadcast_to(log_std, output.shape))


def to_environment(space: Actions, raw: Shaped[Array, "*raw"]) -> Shaped[Array, "*raw"]:
    """Actions as the environment takes them: the box [−1, 1]ⁿ is stretched to its own bounds."""
    if isinstance(space, Box):
        low, high = (jnp.broadcast_to(jnp.asarray(b), raw.shape) for b in (space.low, space.high))
        return low + (jnp.clip(raw, -1.0, 1.0) + 1.0) * (0.5 * (high - low))
    return raw
