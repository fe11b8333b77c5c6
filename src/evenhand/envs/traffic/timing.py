"""How long a decision lasts, and how much of it is yellow."""

from __future__ import annotations

from typing import Any, NamedTuple

from evenhand.errors import InputError

SHORTEST_YELLOW = 3
"""Seconds: with less, a car at 50 km/h can neither stop nor clear the junction before others have green."""
LONGEST = 600


class Timing(NamedTuple):
    """Seconds of each decision."""

    yellow: int
    """When the phase changes: first the old phase has yellow,"""
    green: int
    """then the new one has green."""
    kept: int
    """When the phase is kept: green all the time."""

    @property
    def changing(self) -> int:
        """All of a decision that changes the phase."""
        return self.yellow + self.green


TIMINGS = {
    "fixed": Timing(yellow=4, green=10, kept=14),
    "literal": Timing(yellow=4, green=10, kept=10),
    "authors": Timing(yellow=6, green=14, kept=20),
}
"""Decisions of 14 s; the paper read word for word, 10 s or 14 s; and 20 s, as its authors ran it."""


def timing(name: str, yellow: int | None = None, green: int | None = None, kept: int | None = None) -> Timing:
    """A timing by its name, with some of its numbers replaced."""
    if name not in TIMINGS:
        raise InputError(f"timing must be {', '.join(TIMINGS)}, not {name!r}; yellow, green and kept change its parts.")
    changes = {"yellow": yellow, "green": green, "kept": kept}
    chosen = TIMINGS[name]._replace(**{part: value for part, value in changes.items() if value is not None})
    for part, seconds in chosen._asdict().items():
        _check_seconds(part, seconds)
    if chosen.yellow < SHORTEST_YELLOW:
        raise InputError(
            f"{chosen.yellow} s of yellow are too short: a car at 50 km/h can neither stop nor clear the junction in "
            f"less than {SHORTEST_YELLOW} s."
        )
    return chosen


def _check_seconds(part: str, seconds: Any) -> None:
    if isinstance(seconds, bool) or not isinstance(seconds, int) or not 1 <= seconds <= LONGEST:
        raise InputError(
            f"{part} must be a whole number of seconds from 1 to {LONGEST}, for so SUMO steps, not {seconds!r}."
        )
