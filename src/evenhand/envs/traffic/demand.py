"""How many cars come, from where to where and when: our own tables, and those of other people."""

from __future__ import annotations

import csv
import io
import itertools
import math
import os
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from evenhand.disk import read_text
from evenhand.envs.traffic.junction import ARMS, MOVEMENTS, Movement
from evenhand.errors import InputError

PERIOD = 25_000
"""Seconds of each of the day's four parts."""
ALWAYS = math.inf
COLUMNS = ("origin", "destination", "probability", "from", "to")


class Arrivals(NamedTuple):
    """In each second of a time a car comes with a probability, and wants to go from one arm to another."""

    origin: str
    destination: str
    probability: float
    start: float = 0.0
    """Seconds from the beginning of the episode; what comes first comes while it warms up as well."""
    stop: float = ALWAYS

    @property
    def movement(self) -> Movement:
        """From where to where."""
        return Movement(self.origin, self.destination)


Demand = tuple[Arrivals, ...]

_TABLE = {
    "N": {"S": 0.5, "W": 0.5, "E": 0.3},
    "E": {"W": 0.3, "N": 0.3, "S": 0.08},
    "S": {"N": 0.15, "E": 0.15, "W": 0.3},
    "W": {"E": 0.1, "S": 0.1, "N": 0.08},
}
STATIONARY: Demand = tuple(Arrivals(*movement, _TABLE[movement.origin][movement.destination]) for movement in MOVEMENTS)
"""The paper's table."""


def day() -> Demand:
    """Four parts: morning as in the paper's table, afternoon with 0.6 of it, evening with the axes swapped, night 0.15.

    The axes are swapped by a quarter turn, so that left turns stay left turns: the east has what the north had.
    """
    turned = {arm: ARMS[(i + 1) % 4] for i, arm in enumerate(ARMS)}
    parts: list[Arrivals] = []
    for part, share in enumerate((1.0, 0.6, 1.0, 0.15)):
        for origin, destination, probability, *_ in STATIONARY:
            if part == 2:
                origin, destination = turned[origin], turned[destination]
            parts.append(Arrivals(origin, destination, share * probability, part * PERIOD, (part + 1) * PERIOD))
    return tuple(parts)


NAMES = ("stationary", "day")


def demand(asked: str | os.PathLike[str] | Iterable[Arrivals]) -> Demand:
    """The demand of this name, in this file, or in these words; refused if it makes no sense."""
    if asked == "stationary":
        return STATIONARY
    if asked == "day":
        return day()
    if isinstance(asked, str | os.PathLike):
        return read(asked)
    rows = [_checked(f"arrivals {number}", row._asdict()) for number, row in enumerate(asked, 1)]
    return _together("the demand", rows)


def length(of: Demand) -> float:
    """When the last arrivals end; infinite if they do not."""
    return float(max(arrivals.stop for arrivals in of))


# Files


def read(path: str | os.PathLike[str]) -> Demand:
    """A table of arrivals from a .csv or .toml file.

    A CSV file has a line of headings: origin, destination, probability and, if the arrivals change with time, from
    and to in seconds. A TOML file has the same as [[arrivals]].
    """
    path = Path(path)
    readers = {".csv": _read_csv, ".toml": _read_toml}
    if path.suffix.lower() not in readers:
        raise InputError(f"demand must be {', '.join(NAMES)}, or a table in a .csv or .toml file, not {str(path)!r}.")
    try:
        text = read_text(path)
    except OSError as error:
        raise InputError(f"the table of arrivals {path} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise InputError(f"the table of arrivals {path} is not a text file in UTF-8.") from None
    rows = [_checked(f"{path}, {where}", row) for where, row in readers[path.suffix.lower()](path, text)]
    return _together(str(path), rows)


def _read_csv(path: Path, text: str) -> list[tuple[str, Mapping[str, Any]]]:
    reader = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    headings = [name.strip() for name in reader.fieldnames or []]
    reader.fieldnames = headings
    for name in COLUMNS[:3]:
        if name not in headings:
            raise InputError(f"{path}, line 1: there is no column {name!r}; the headings are {', '.join(COLUMNS)}.")
    found: list[tuple[str, Mapping[str, Any]]] = []
    for row in reader:
        where = f"line {reader.line_num}"
        if None in row or None in row.values():
            raise InputError(f"{path}, {where}: there should be {len(headings)} values, one for each heading.")
        found.append((where, {name: value.strip() for name, value in row.items() if value.strip()}))
    return found


def _read_toml(path: Path, text: str) -> list[tuple[str, Mapping[str, Any]]]:
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}.") from None
    rows = table.pop("arrivals", [])
    if table or not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path} should consist of [[arrivals]], each with {', '.join(COLUMNS)}.")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.split("#")[0].strip() == "[[arrivals]]"]
    places = (
        [f"line {line}" for line in lines] if len(lines) == len(rows) else [f"entry {i + 1}" for i in range(len(rows))]
    )
    return list(zip(places, rows, strict=True))


def _checked(where: str, row: Mapping[str, Any]) -> tuple[str, Arrivals]:
    """One line of a table, and where it stands."""
    row = {{"start": "from", "stop": "to"}.get(name, name): value for name, value in row.items()}
    for name in row:
        if name not in COLUMNS:
            raise InputError(f"{where}: there is no {name!r} of arrivals; they have {', '.join(COLUMNS)}.")
    for name in COLUMNS[:3]:
        if name not in row:
            raise InputError(f"{where}: the {name} is missing.")
    for name in COLUMNS[:2]:
        if row[name] not in ARMS:
            raise InputError(
                f"{where}: there is no arm {row[name]!r}; the {name} is {', '.join(ARMS[:3])} or {ARMS[3]}."
            )
    if row["origin"] == row["destination"]:
        raise InputError(f"{where}: cars cannot turn round, from {row['origin']} to {row['destination']}.")
    probability = _number(where, "probability", row["probability"])
    if not 0 <= probability <= 1:
        raise InputError(
            f"{where}: the probability of a car in each second must lie between 0 and 1, not at {probability:g}."
        )
    start, stop = _number(where, "from", row.get("from", 0.0)), _number(where, "to", row.get("to", ALWAYS))
    if not 0 <= start < stop:
        raise InputError(
            f"{where}: the time must begin at 0 or later and end after that, not go from {start:g} to {stop:g}."
        )
    return where, Arrivals(row["origin"], row["destination"], probability, start, stop)


def _number(where: str, name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if math.isnan(number):
        raise InputError(f"{where}: {name} must be a number, not {value!r}.")
    return number


def _together(table: str, rows: Sequence[tuple[str, Arrivals]]) -> Demand:
    """What only the whole table can tell: times that overlap, and arms that were forgotten."""
    in_order = sorted(rows, key=lambda row: (row[1].movement, row[1].start))
    for (_, before), (where, after) in itertools.pairwise(in_order):
        if before.movement == after.movement and after.start < before.stop:
            raise InputError(
                f"{where}: the cars from {after.origin} to {after.destination} are already said for {_time(before)}, "
                f"which overlaps {_time(after)}."
            )
    for arm in ARMS:
        if not any(arrivals.origin == arm for _, arrivals in rows):
            raise InputError(
                f"{table}: no cars come from {arm}; if that is meant, say so with a line for {arm} and probability 0."
            )
    return tuple(arrivals for _, arrivals in rows)


def _time(arrivals: Arrivals) -> str:
    return (
        "all the time"
        if arrivals.stop == ALWAYS and not arrivals.start
        else f"{arrivals.start:g} to {arrivals.stop:g} s"
    )
