"""What a step was worth: advantages and returns, for each objective alone."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

Number = float | int | Float[Array, ""]


def advantages(
    reward: Float[Array, "T N D"],
    value: Float[Array, "T N D"],
    next_value: Float[Array, "T N D"],
    terminated: Bool[Array, "T N"],
    truncated: Bool[Array, "T N"],
    gamma: Number,
    gae_lambda: Number,
) -> Float[Array, "T N D"]:
    """Generalised advantage estimates, objective by objective:

        δ_t = r_t + γ (1 − terminated_t) V(s′_t) − V(s_t),      A_t = δ_t + γλ (1 − ended_t) A_{t+1},  A_T = 0.

    `next_value` is V of what step t led to, before any reset: a time limit bootstraps from it, a terminal state does
    not. With λ = 1, A_t + V(s_t) is the n-step return, n reaching to the end of the episode or of the T steps.
    """
    goes_on = jnp.where(terminated, 0.0, gamma)[..., None]
    decay = jnp.where(terminated | truncated, 0.0, gamma * gae_lambda)[..., None]
    delta = reward + goes_on * next_value - value

    def backwards(
        later: Float[Array, "N D"], now: tuple[Float[Array, "N D"], Float[Array, "N 1"]]
    ) -> tuple[Float[Array, "N D"], Float[Array, "N D"]]:
        advantage = now[0] + now[1] * later
        return advantage, advantage

    return jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=8)[1]


def explained_variance(predicted: Float[Array, "*n"], target: Float[Array, "*n"]) -> Float[Array, ""]:
    """1 − Var(target − predicted) / Var(target): 1 for a perfect critic, 0 for one that predicts the mean."""
    return 1.0 - jnp.var(target - predicted) / jnp.maximum(jnp.var(target), 1e-12)
