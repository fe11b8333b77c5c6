"""The two populations, and what can be done for them in a year."""

from __future__ import annotations

from typing import NamedTuple

from jaxtyping import Array, Float, Int

NOTHING, INTRODUCE, ENFORCE, CONTROL, HALF = range(5)
ACTIONS = ("nothing", "introduce", "enforce", "control", "half and half")
"""What each action is called."""


class SpeciesState(NamedTuple):
    """The two populations, and how many years have passed."""

    ages: Float[Array, "10"]
    """Abalones per m² of the ages 4, …, 12, and 13 with all older ones."""
    otters: Float[Array, ""]
    """The number of sea otters."""
    year: Int[Array, ""]
