"""What is to be learnt: an algorithm with its hyperparameters, for the welfare of an environment's users."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array, Float

from evenhand.agents.algorithm import Algorithm, algorithm
from evenhand.agents.problem import Problem
from evenhand.types import Actions
from evenhand.welfare import GGF, Utilitarian, Welfare


@dataclass(frozen=True)
class Task:
    """An algorithm with its hyperparameters, for the welfare of an environment's users."""

    algorithm: str
    config: Any
    welfare: Welfare
    observation_size: int
    actions: Actions

    @property
    def agent(self) -> Algorithm:
        """The algorithm itself."""
        return algorithm(self.algorithm)

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
