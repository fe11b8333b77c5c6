"""Controllers that need no learning. Each decides for one observation `[20]` or for many `[N, 20]` at once.

Only operators and methods that arrays of NumPy and of JAX have in common, so that they can be compiled too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.envs.traffic.junction import LANES, PHASE_LANES, PHASES
from evenhand.errors import InputError


@dataclass(frozen=True)
class FixedCycle:
    """The phases take turns, and each is held for so many decisions."""

    hold: int = 3

    def __post_init__(self) -> None:
        if isinstance(self.hold, bool) or not isinstance(self.hold, int) or self.hold < 1:
            raise InputError(f"a phase is held for a whole number of decisions, at least 1, not {self.hold!r}.")

    @property
    def name(self) -> str:
        """For tables."""
        return f"cycle, hold {self.hold}"

    def decide(self, observation: Any, step: Any) -> Any:
        """What comes next in the cycle, `step` decisions after the beginning of the episode."""
        return step // self.hold % len(PHASES)


@dataclass(frozen=True)
class LongestQueue:
    """Green for the phase for which most cars stand in line; of equal ones, the one that has green already."""

    name: str = "longest queue"

    def decide(self, observation: Any, step: Any) -> Any:
        """Counts the standing cars."""
        stopped, green = observation[..., -len(LANES) :], observation[..., : len(PHASES)]
        return (stopped @ OF_PHASE + TIE * green).argmax(axis=-1)


OF_PHASE = np.array([[lane in lanes for lanes in PHASE_LANES] for lane in range(len(LANES))], np.float32)
"""Which lanes `[8]` have green in which phases `[4]`."""
TIE = 1e-4
"""Less than one car, as it is observed."""
BASELINES = (FixedCycle(1), FixedCycle(2), FixedCycle(3), FixedCycle(4), LongestQueue())
"""What a learned controller is held against."""
