"""Constant rates, to hold a learned controller against."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np


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
