"""The road network: written as SUMO's plain XML, compiled by netconvert, and kept by its content.

On split roads, the default, each lane is a road of its own, and roads that lead away end after 40 m. No car can then
change lanes, which saves SUMO the work; waits are the same as on ordinary roads of two lanes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple
from xml.sax.saxutils import quoteattr

from evenhand.envs.traffic.cache import kept
from evenhand.envs.traffic.installation import program, surroundings, version
from evenhand.envs.traffic.junction import ARMS, LANE_LENGTH, MOVEMENTS, PHASE_LANES, PHASES, SPEED, Movement
from evenhand.errors import InputError

Roads = Literal["split", "two-lane"]
ROADS: tuple[Roads, ...] = ("split", "two-lane")

SIGNAL = "C"
"""The name of the junction and of its signal."""
REACH = 150.0
"""Metres from the centre to where cars appear, and to the ends of ordinary roads."""
SHORT_REACH = 50.4
"""Metres from the centre to the ends of split roads: 40 m behind the junction."""
LANE_WIDTH = 3.2
OUTWARDS = {"N": (0, 1), "E": (1, 0), "S": (0, -1), "W": (-1, 0)}
FOREVER = 10**6
"""Seconds for which a signal stays as it is unless told otherwise."""


class Place(NamedTuple):
    """A lane of a road."""

    road: str
    lane: int

    @property
    def name(self) -> str:
        """What SUMO calls it."""
        return f"{self.road}_{self.lane}"


def way_in(roads: Roads, lane: int) -> Place:
    """Where one of the eight lanes is in the network."""
    arm, left = ARMS[lane // 2], lane % 2
    return Place(f"{arm}_in{left}", 0) if roads == "split" else Place(f"{arm}_in", left)


def way_out(roads: Roads, movement: Movement) -> Place:
    """Where a movement ends: left turns on the left lane, all others on the right one."""
    arm, left = movement.destination, movement.lane % 2
    return Place(f"{arm}_out{left}", 0) if roads == "split" else Place(f"{arm}_out", left)


# Signals


def green(phase: int) -> str:
    """The signal in a phase: one letter for each movement."""
    return "".join("G" if movement.lane in PHASE_LANES[phase] else "r" for movement in MOVEMENTS)


def signals() -> list[str]:
    """All states of the signal: the green of phase i is number 2i, its yellow 2i + 1, and all red the last."""
    states = [green(phase) for phase in range(len(PHASES))]
    return [shown for state in states for shown in (state, state.replace("G", "y"))] + ["r" * len(MOVEMENTS)]


ALL_RED = 2 * len(PHASES)


# Plain XML


def plain_xml(roads: Roads) -> dict[str, str]:
    """The four files that netconvert reads, by their kind."""
    program = [_tag("phase", duration=FOREVER, state=state) for state in signals()]
    logic = f'<tlLogic id="{SIGNAL}" type="static" programID="0" offset="0">{"".join(program)}</tlLogic>'
    return {
        "node": _file("nodes", _nodes(roads)),
        "edge": _file("edges", _edges(roads)),
        "connection": _file("connections", _connections(roads)),
        "tllogic": _file("tlLogics", [logic, *_connections(roads, tl=SIGNAL)]),
    }


def _nodes(roads: Roads) -> Iterator[str]:
    yield _tag("node", id=SIGNAL, x=0, y=0, type="traffic_light")
    for arm in ARMS:
        if roads == "two-lane":
            x, y = _point(arm, REACH)
            yield _tag("node", id=arm, x=x, y=y)
            continue
        for lane in (0, 1):
            for name, reach, side in ((f"{arm}_in{lane}", REACH, 1), (f"{arm}_out{lane}", SHORT_REACH, -1)):
                x, y = _point(arm, reach, side * _aside(lane))
                yield _tag("node", id=name, x=x, y=y)


def _edges(roads: Roads) -> Iterator[str]:
    for arm in ARMS:
        if roads == "two-lane":
            shared: dict[str, Any] = {"numLanes": 2, "speed": SPEED}
            yield _tag("edge", id=f"{arm}_in", **{"from": arm}, to=SIGNAL, length=LANE_LENGTH, **shared)
            yield _tag("edge", id=f"{arm}_out", **{"from": SIGNAL}, to=arm, **shared)
            continue
        shared = {"numLanes": 1, "speed": SPEED, "spreadType": "center"}
        for lane in (0, 1):
            name, aside = f"{arm}_in{lane}", _aside(lane)
            shape = _shape(_point(arm, REACH, aside), _point(arm, 0.0, aside))
            yield _tag("edge", id=name, **{"from": name}, to=SIGNAL, length=LANE_LENGTH, shape=shape, **shared)
            name = f"{arm}_out{lane}"
            shape = _shape(_point(arm, 0.0, -aside), _point(arm, SHORT_REACH, -aside))
            yield _tag("edge", id=name, **{"from": SIGNAL}, to=name, shape=shape, **shared)


def _connections(roads: Roads, **signal: str) -> Iterator[str]:
    """The movements, each with its letter of the signal where that is asked."""
    for index, movement in enumerate(MOVEMENTS):
        start, end = way_in(roads, movement.lane), way_out(roads, movement)
        number = {**signal, "linkIndex": index} if signal else {}
        lanes = {"from": start.road, "to": end.road, "fromLane": start.lane, "toLane": end.lane}
        yield _tag("connection", **lanes, **number)


def _aside(lane: int) -> float:
    """Metres from the middle of the road to the middle of a lane."""
    return (1.5 - lane) * LANE_WIDTH


def _point(arm: str, reach: float, aside: float = 0.0) -> tuple[float, float]:
    """A point on an arm; `aside` counts to the right of those who drive towards the centre."""
    x, y = OUTWARDS[arm]
    return reach * x - aside * y, reach * y + aside * x


def lane_point(arm: str, reach: float, lane: int, out: bool = False) -> tuple[float, float]:
    """The middle of a lane, so far from the centre; on the way in or out."""
    return _point(arm, reach, -_aside(lane) if out else _aside(lane))


def _shape(*points: tuple[float, float]) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)


def _tag(kind: str, **attributes: Any) -> str:
    return f"<{kind} {' '.join(f'{name}={quoteattr(str(value))}' for name, value in attributes.items())}/>"


def _file(root: str, tags: Iterator[str] | list[str]) -> str:
    return "\n".join([f"<{root}>", *tags, f"</{root}>", ""])


# From plain XML to what SUMO reads


def compiled(roads: Roads) -> Path:
    """The network as a file; made once, and found again by what it was made from."""
    files = plain_xml(roads)

    def make(made: Path) -> None:
        arguments = ["--no-turnarounds", "true", "--xml-validation", "never", "--output-file", str(made)]
        for kind, text in files.items():
            plain = made.with_name(f"{kind}.xml")
            plain.write_text(text, "utf-8")
            arguments += [f"--{kind}-files", str(plain)]
        said = subprocess.run(
            [program("netconvert"), *arguments], capture_output=True, text=True, env=surroundings(), check=False
        )
        if said.returncode or not made.is_file():
            raise InputError(f"SUMO's netconvert could not make the junction: {' '.join(said.stderr.split())}")

    return kept("junction", ".net.xml", "\n".join([version(), *files.values()]), make)
