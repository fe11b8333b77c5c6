"""A memory of past steps, from which DQN learns again and again."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from evenhand.types import PRNGKey, Transitions


class Memory(NamedTuple):
    """The last C steps; before it is full, `stored` says how many there are."""

    observation: Float[Array, "C O"]
    action: Int[Array, " C"]
    reward: Float[Array, "C D"]
    next_observation: Float[Array, "C O"]
    terminated: Bool[Array, " C"]
    position: Int[Array, ""]
    stored: Int[Array, ""]


def empty_memory(C: int, O: int, D: int) -> Memory:  # noqa: E741
    """Room for C steps with observations of O and rewards of D numbers."""
    return Memory(
        observation=jnp.zeros((C, O)),
        action=jnp.zeros(C, jnp.int32),
        reward=jnp.zeros((C, D)),
        next_observation=jnp.zeros((C, O)),
        terminated=jnp.zeros(C, bool),
        position=jnp.array(0, jnp.int32),
        stored=jnp.array(0, jnp.int32),
    )


def store(memory: Memory, transitions: Transitions) -> Memory:
    """Write T · N steps over the oldest ones. C must be a multiple of T · N, so that they never go over the end."""
    C, B = memory.action.shape[0], transitions.action.shape[0] * transitions.action.shape[1]
    assert C % B == 0

    def write(old: Array, new: Array) -> Array:
        return jax.lax.dynamic_update_slice_in_dim(old, new.reshape(B, *new.shape[2:]), memory.position, 0)

    return Memory(
        observation=write(memory.observation, transitions.observation),
        action=write(memory.action, transitions.action),
        reward=write(memory.reward, transitions.reward),
        next_observation=write(memory.next_observation, transitions.next_observation),
        terminated=write(memory.terminated, transitions.terminated),
        position=(memory.position + B) % C,
        stored=jnp.minimum(memory.stored + B, C),
    )


class Sample(NamedTuple):
    """B steps drawn from a memory."""

    observation: Float[Array, "B O"]
    action: Int[Array, " B"]
    reward: Float[Array, "B D"]
    next_observation: Float[Array, "B O"]
    terminated: Bool[Array, " B"]


def draw(memory: Memory, key: PRNGKey, B: int) -> Sample:
    """Draw uniformly, with replacement."""
    at = jax.random.randint(key, (B,), 0, memory.stored)
    return Sample(
        memory.observation[at], memory.action[at], memory.reward[at], memory.next_observation[at], memory.terminated[at]
    )
