"""What environments and agents say to each other: spaces, steps and transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Key, Shaped

from evenhand.errors import InputError

PRNGKey = Key[Array, ""]


@dataclass(frozen=True)
class Discrete:
    """The actions 0 … n − 1."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InputError(f"there must be at least one action, not {self.n}.")


@dataclass(frozen=True, eq=False)
class Box:
    """Vectors between `low` and `high`, entry by entry; bounds may be infinite."""

    low: Float32[np.ndarray, " n"]
    high: Float32[np.ndarray, " n"]

    @staticmethod
    def of(low: Any, high: Any, n: int) -> Box:
        """A box of n entries, from bounds for each entry or for all of them."""
        both = (np.array(np.broadcast_to(np.asarray(b, np.float32), (n,))) for b in (low, high))
        return Box(*both)

    def __post_init__(self) -> None:
        if not (self.low <= self.high).all():
            raise InputError("every lower bound of a box must be a number not above the upper bound.")

    @property
    def n(self) -> int:
        """How many entries."""
        return len(self.low)

    @property
    def bounded(self) -> bool:
        """Whether every bound is finite."""
        return bool(np.isfinite(self.low).all() and np.isfinite(self.high).all())

    def __hash__(self) -> int:
        return hash((self.low.tobytes(), self.high.tobytes()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and np.array_equal(self.low, other.low) and np.array_equal(self.high, other.high)


Actions = Discrete | Box


class Step(NamedTuple):
    """What one step of one environment leads to."""

    state: Any
    observation: Float[Array, " O"]
    reward: Float[Array, " D"]
    terminated: Bool[Array, ""]
    """The episode has ended for good: nothing more is to be gained."""
    truncated: Bool[Array, ""]
    """The episode is cut off by a time limit: what would have come after still counts."""


class Transitions(NamedTuple):
    """T steps of N environments, as an agent learns from them."""

    observation: Float[Array, "T N O"]
    action: Shaped[Array, "T N *a"]
    reward: Float[Array, "T N D"]
    next_observation: Float[Array, "T N O"]
    """What the step led to, before any reset."""
    terminated: Bool[Array, "T N"]
    truncated: Bool[Array, "T N"]
    initial: Bool[Array, "T N"]
    """Whether the observation is the first of its episode."""
