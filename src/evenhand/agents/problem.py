"""What an agent has to know of its task before it sees anything."""

from __future__ import annotations

from dataclasses import dataclass

from evenhand.types import Actions
from evenhand.welfare import Welfare


@dataclass(frozen=True)
class Problem:
    """Observations of so many numbers, these actions, and the welfare of D objectives to maximise."""

    observation_size: int
    actions: Actions
    welfare: Welfare

    @property
    def D(self) -> int:
        """The number of objectives that are learnt; one for the utilitarian welfare, which sums rewards first."""
        return self.welfare.D
