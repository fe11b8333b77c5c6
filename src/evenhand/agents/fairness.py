"""Where the welfare enters a policy gradient: ∇W(J) = Σ_k w_k ∇J_k with w = W′(J), J the expected returns.

J is the critic's mean over initial states that were stored (the paper's section 4). For a GGF w jumps wherever two
objectives change places, and at a fair optimum they do so all the time: the policy is then pushed to and fro. `width`
spreads each jump over a band of returns, which is the gradient of a smoothed GGF (see `GGF.smooth_gradient`).
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from evenhand.welfare import GGF, Welfare


class InitialStates(NamedTuple):
    """For each of N environments, the last K observations with which a rollout's latest episode began."""

    observations: Float[Array, "K N O"]
    stored: Int[Array, " N"]
    """How many were ever stored."""


def no_initial_states(K: int, N: int, O: int) -> InitialStates:  # noqa: E741
    """None seen yet."""
    return InitialStates(jnp.zeros((K, N, O)), jnp.zeros(N, jnp.int32))


def remember(states: InitialStates, observation: Float[Array, "T N O"], initial: Bool[Array, "T N"]) -> InitialStates:
    """Store the latest initial observation of each environment, in place of its oldest one.

    Only the latest: one row for each environment is a selection, where all of them would be a scatter, which compiled
    for a CPU takes longer than collecting the rollout.
    """
    K, T = states.observations.shape[0], initial.shape[0]
    last = T - 1 - jnp.argmax(initial[::-1], axis=0)
    latest = jnp.take_along_axis(observation, last[None, :, None], axis=0)
    any_new = jnp.any(initial, axis=0)
    here = (jnp.arange(K)[:, None] == (states.stored % K)[None, :]) & any_new[None, :]
    count = states.stored + any_new
    return InitialStates(
        jnp.where(here[..., None], latest, states.observations),
        jnp.where(count >= 2 * K, count - K, count),  # the same place, and never too large
    )


def mean_over(states: InitialStates, values: Float[Array, "K N D"]) -> Float[Array, " D"]:
    """J: the mean of the critic's values of the states stored so far."""
    K = states.observations.shape[0]
    there = jnp.arange(K)[:, None] < states.stored[None, :]
    total = jnp.sum(jnp.where(there[..., None], values, 0.0), axis=(0, 1))
    return total / jnp.maximum(jnp.sum(there), 1)


def objective_weights(welfare: Welfare, J: Float[Array, " D"], width: Float[Array, ""] | float) -> Float[Array, " D"]:
    """w = W′(J), of a GGF smoothed over a band of `width` times the mean size of the returns."""
    if isinstance(welfare, GGF):
        return welfare.smooth_gradient(J, width * jnp.mean(jnp.abs(J)))
    gradient = welfare.gradient(_in_domain(welfare, J))
    return gradient / jnp.sum(gradient)  # as with a GGF; the size is the learning rate's business


def welfare_of_estimates(welfare: Welfare, v: Float[Array, "*batch D"]) -> Float[Array, "*batch"]:
    """W(v), of estimates that need not lie where the welfare is defined."""
    return welfare.value(_in_domain(welfare, v))


def _in_domain(welfare: Welfare, v: Float[Array, "*batch D"]) -> Float[Array, "*batch D"]:
    return jnp.maximum(v, 1e-3) if welfare.needs_positive else v
