"""The junction: its arms, lanes and phases, and what any simulator of it must be able to do."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

ARMS = ("N", "E", "S", "W")
"""Clockwise, and the order of the rewards."""
LANES = tuple(f"{arm} {turns}" for arm in ARMS for turns in ("straight and right", "left"))
"""Two lanes come in from each arm; lane 2i and lane 2i + 1 are those of arm i."""
PHASES = ("NSL", "NSSR", "EWL", "EWSR")
"""What an action gives green to: north and south, or east and west; left, or straight and right."""
PHASE_LANES = ((1, 5), (0, 4), (3, 7), (2, 6))
"""The lanes that have green in each phase. No two movements of a phase cross or end in the same road."""

SPEED = 13.9
"""The limit in m/s, 50 km/h."""
LANE_LENGTH = 141.95
"""Metres from where cars appear to the stop line."""
CAR_SPACE = 7.5
"""Metres that a standing car needs: SUMO's own car of 5 m and its gap of 2.5 m."""
CAPACITY = 20
"""Cars on a lane, never more: 19 standing ones fill it."""


class Movement(NamedTuple):
    """A way through the junction."""

    origin: str
    destination: str

    @property
    def lane(self) -> int:
        """The lane that leads there: cars drive on the right, so that a left turn goes to the next arm clockwise."""
        origin, destination = ARMS.index(self.origin), ARMS.index(self.destination)
        return 2 * origin + ((destination - origin) % 4 == 1)


MOVEMENTS = tuple(Movement(origin, destination) for origin in ARMS for destination in ARMS if origin != destination)


class Lanes(NamedTuple):
    """What stands on the eight lanes at one moment."""

    waiting: Float[np.ndarray, "8"]
    """Seconds that the cars now on each lane have stood still since they appeared, all together."""
    stopped: Float[np.ndarray, "8"]
    """Cars that stand still."""


class Counts(NamedTuple):
    """What has happened since the last reset, for the cars of each arm."""

    refused: Float[np.ndarray, "4"]
    """Cars that found no room to appear, the lane being full or another just before them, and went elsewhere."""
    served: Float[np.ndarray, "4"]
    """Cars that have left the junction behind them."""
    waited: Float[np.ndarray, "4"]
    """Seconds that the cars served had stood still, all together."""
    collisions: int
    teleports: int
    """Both must stay 0: cars that drive into each other, and cars that SUMO carries through a red light."""

    def since(self, before: Counts) -> Counts:
        """What has happened since an earlier moment."""
        return Counts(
            self.refused - before.refused,
            self.served - before.served,
            self.waited - before.waited,
            self.collisions - before.collisions,
            self.teleports - before.teleports,
        )


class Car(NamedTuple):
    """Where a car is, for pictures."""

    x: float
    y: float
    """Metres from the centre to the middle of its front, east and north."""
    towards: float
    """Where it heads: degrees, clockwise from north."""
    waited: float
    """Seconds that it has stood still since it appeared."""


@runtime_checkable
class Simulator(Protocol):
    """What stands behind the environment: SUMO, or something quicker that behaves like it."""

    def reset(self, seed: int) -> None:
        """An empty junction, all red; the seed, below 2³¹, decides what traffic comes."""

    def run(self, phase: int, yellow: bool, seconds: int) -> None:
        """So many seconds in which the lanes of a phase have green, or yellow, and all others red."""

    def lanes(self) -> Lanes:
        """What stands on the lanes now."""

    def counts(self) -> Counts:
        """What has happened since the reset."""

    def cars(self) -> list[Car]:
        """Every car."""

    def close(self) -> None:
        """End it; as often as one likes."""
