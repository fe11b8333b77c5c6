"""What an oracle's bounds prove of returns: how much better any policy can be, in one number.

The proof comes from the bounds, the returns from evaluating a policy: neither trusts how the policy was found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from evenhand.welfare import GGF, Welfare

ROUNDING = 8 * float(np.finfo(float).eps)
"""What sorting, adding and weighting a few returns may cost, relative to the largest of them."""


@runtime_checkable
class Proof(Protocol):
    """What is proven of all policies."""

    @property
    def unit(self) -> float:
        """How much the gap changes at most if all returns change by one: what makes tolerances comparable."""

    def gap(self, returns: Float[np.ndarray, " D"], error: float = 0.0) -> float:
        """How much better than these returns, each of which is known up to an error, any policy can be."""


@dataclass(frozen=True)
class Ceiling:
    """A number that no policy's welfare exceeds."""

    welfare: Welfare
    upper: float
    weights: Float[np.ndarray, " D"]
    """Of the cut that proves it."""

    @property
    def unit(self) -> float:
        """See `Proof`. The weights of a GGF sum to one."""
        return 1.0 if isinstance(self.welfare, GGF) else float(self.weights.sum())

    def gap(self, returns: Float[np.ndarray, " D"], error: float = 0.0) -> float:
        """See `Proof`. A bound that is below what was reached is wrong by that much, and says so."""
        error += ROUNDING * float(np.abs(returns).max())
        return abs(self.upper - value_of(self.welfare, returns)) + error * self.unit


class Stage(NamedTuple):
    """For all policies: Θ_k + Σ_{j<k} charges_j Θ_j ≤ upper, with Θ_k the sum of the k smallest returns."""

    upper: float
    charges: Float[np.ndarray, " F"]


@dataclass(frozen=True)
class Stages:
    """What is proven of an order: one stage after another, from the worst-off user on.

    Of all policies whose sums Θ_1 … Θ_{k−1} reach those of the returns z, none has Θ_k above Θ_k(z) + k·gap:
    the stage says Θ_k ≤ upper − charges·Θ_{<k}, and charges are not negative.
    """

    stages: tuple[Stage, ...]
    unit: float = 1.0

    def gap(self, returns: Float[np.ndarray, " D"], error: float = 0.0) -> float:
        """See `Proof`: the largest over the stages, each divided by the number of users whose returns it adds."""
        sums = sums_of_smallest(returns)
        error += ROUNDING * float(np.abs(returns).max())
        worst = 0.0
        for k, (upper, charges) in enumerate(self.stages):
            between = abs(upper - float(charges @ sums[:k]) - float(sums[k]))
            sensitivity = k + 1 + float(charges @ np.arange(1, k + 1))
            worst = max(worst, (between + error * sensitivity) / (k + 1))
        return worst


def value_of(welfare: Welfare, returns: Float[np.ndarray, " D"]) -> float:
    """W(returns), −∞ where it is not defined."""
    if welfare.needs_positive and returns.min() <= 0:
        return -np.inf
    return float(welfare.value(returns))


def sums_of_smallest(returns: Float[np.ndarray, "*batch D"]) -> Float[np.ndarray, "*batch D"]:
    """Θ_1 … Θ_D: the smallest component, the sum of the two smallest, and so on."""
    return np.cumsum(np.sort(returns, axis=-1), axis=-1)
