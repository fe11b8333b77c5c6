"""How numbers are written, for people and for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from rich import box
from rich.table import Table
from rich.text import Text

from evenhand.errors import escaped

NOTHING = "–"
SOFT_HYPHEN = "\u00ad"
LONGEST_NAME = 30
"""In letters, of a row whose name is not broken."""


def as_json(record: dict[str, Any]) -> str:
    """The record as JSON text, numbers to their last digit; null for those that JSON does not know."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: known(item) for key, item in value.items()}
        if isinstance(value, list):
            return [known(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return escaped(json.dumps(known(record), allow_nan=False, ensure_ascii=False, indent=2))


def plain_table(gap: int = 1) -> Table:
    """An empty table in the style of the house; `gap` is how many spaces there are between columns, besides one."""
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, gap, 0, 0))


class SheetRow(NamedTuple):
    """A row of a sheet."""

    name: str
    entries: tuple[tuple[str, str], ...]
    """What each column has, and the interval that goes with it, or nothing."""
    begins_section: bool = False


@dataclass(frozen=True)
class Sheet:
    """A table as data, from which that of the terminal and that of a page are made."""

    headings: tuple[str, ...]
    """Of the columns after that of names; a soft hyphen or a line end says where a narrow column may break one."""
    rows: tuple[SheetRow, ...]
    strong: str = ""
    """The heading of the column that matters most."""

    def terminal(self) -> Table:
        """For the terminal, where every column counts."""
        table = plain_table(gap=0)
        table.add_column("", no_wrap=max(len(row.name) for row in self.rows) <= LONGEST_NAME)
        for heading in self.headings:
            text, style = heading.replace(SOFT_HYPHEN, "-\n"), "bold" if heading == self.strong else ""
            table.add_column(text, justify="right", vertical="bottom", overflow="fold", style=style)
        for row in self.rows:
            if row.begins_section:
                table.add_section()
            table.add_row(Text(row.name), *(_shown(*entry) for entry in row.entries))
        return table


def _shown(value: str, interval: str) -> Text:
    shown = Text(value, style="dim" if value == NOTHING else "")
    return shown.append(f"\n{interval}", style="dim") if interval else shown


def amounts(values: Float[np.ndarray, " N"], digits: int = 6) -> Callable[[float], str]:
    """How to write numbers of this size: with the same decimals each, so many digits for the largest."""
    largest = float(np.abs(values).max())
    decimals = digits - 1 - math.floor(math.log10(largest)) if largest else digits - 2
    if not digits - 10 <= decimals <= digits + 3:
        return lambda x: f"{x:.{digits - 1}e}"
    decimals = max(decimals, 0)
    return lambda x: f"{round(x, decimals) + 0.0:,.{decimals}f}"


def duration(seconds: float) -> str:
    """A time, as people say it."""
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes / 60:.1f} h"
