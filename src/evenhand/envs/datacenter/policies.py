"""Simple policies: constant rates, to hold a learned controller against, and two that keep the queues moving."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float


@dataclass(frozen=True)
class ConstantRates:
    """Every host always has the same rate, in Mbit/s. Decides for one observation `[O]` or for many `[N, O]`."""

    name: str
    rates: tuple[float, ...]

    @staticmethod
    def of(name: str, rates: Iterable[Any]) -> ConstantRates:
        """From any numbers."""
        return ConstantRates(name, tuple(float(rate) for rate in rates))

    def decide(self, observation: Any, step: Any) -> Any:
        """Only operators that arrays of NumPy and of JAX have in common, so that it can be compiled too."""
        return 0 * observation[..., : len(self.rates)] + np.array(self.rates, np.float32)


@dataclass(frozen=True)
class RandomRates:
    """Other rates in every step, the same for the same seed."""

    hosts: int
    capacity: float
    seed: int
    name = "random"

    def decide(self, observation: Any, step: int) -> Float[np.ndarray, " H"]:
        """Independent of what is seen."""
        return np.random.default_rng((self.seed, step)).uniform(0, self.capacity, self.hosts)


@dataclass(frozen=True)
class BackOff:
    """The fuller the fullest queue, the lower the rate of all: a simple controller that reacts."""

    hosts: int
    queues: int
    capacity: float
    name = "back off"

    def decide(self, observation: Any, step: int) -> Float[np.ndarray, " H"]:
        """capacity · (1 − max q)."""
        return np.full(self.hosts, self.capacity * (1 - float(observation[: self.queues].max())))
