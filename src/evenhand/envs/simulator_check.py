"""A simulator held against the real thing, as data for whoever prints it (see `evenhand calibrate`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple


class CheckRow(NamedTuple):
    """A row of its table."""

    cells: tuple[str, ...]
    style: str = ""
    begins_section: bool = False


@dataclass(frozen=True, kw_only=True)
class SimulatorCheck:
    """What was found."""

    title: str
    about: str
    headings: tuple[str, ...]
    """The first ones, without a text, are those of names."""
    rows: tuple[CheckRow, ...]
    notes: tuple[str, ...]
    record: dict[str, Any] = field(default_factory=dict)
    """The same for programs."""
    good: bool = True
    """Whether the simulator keeps to its limits, and all of this is to be trusted."""
