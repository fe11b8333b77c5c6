"""The junction from above, drawn by Pillow: no window, no display."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Float, UInt8
from PIL import Image, ImageDraw, ImageFont

from evenhand.envs.traffic.junction import ARMS, MOVEMENTS, PHASE_LANES, PHASES, Car, Counts, Movement
from evenhand.envs.traffic.network import LANE_WIDTH, OUTWARDS, REACH, SHORT_REACH

SIZE = 720
"""Pixels of a side."""
FINER = 2
"""Everything is drawn so many times larger and then shrunk, which smooths the edges."""
REACH_SHOWN = REACH + 5
SCALE = SIZE * FINER / (2 * REACH_SHOWN)
STOP_LINE = 10.4
"""Metres from the centre."""
WIDER = 1.8
"""The junction, and the roads' widths with it, are drawn so many times wider than the roads are long: else one would
see little of 20 m in 300."""
CAR_LENGTH, CAR_WIDTH = 4.8, 3.4
"""Metres of the picture."""

GROUND, ROAD, FAR_ROAD, PAINT, INK, FAINT = "#eef0ea", "#51555b", "#c9ccc8", "#d9dbd8", "#22252a", "#5d6268"
GREEN, YELLOW, RED = "#16b364", "#f2c200", "#e5484d"
WAITS = ((0, "#ffffff"), (30, "#ffe08a"), (90, "#ff9f43"), (180, "#e5484d"), (300, "#8e1f5a"))
"""Colours of cars, by the seconds that they have waited."""
SAID = {
    "NSL": "north and south, left",
    "NSSR": "north and south, straight and right",
    "EWL": "east and west, left",
    "EWSR": "east and west, straight and right",
}

Number = float | int
Point = tuple[Number, Number]


def draw(
    cars: Sequence[Car], phase: int, yellow: bool, seconds: int, waiting: Float[np.ndarray, "4"], counts: Counts
) -> UInt8[np.ndarray, "height width 3"]:
    """A picture of one moment.

    seconds, counts: since the episode began. waiting: seconds that the cars now on each arm have waited.
    """
    picture = _ground().copy()
    pen = ImageDraw.Draw(picture, "RGB")
    lit = YELLOW if yellow else GREEN
    for movement in MOVEMENTS:
        if movement.lane in PHASE_LANES[phase] and not yellow:
            pen.line(
                [_pixel(point) for point in _way(movement)], fill="#3f7d5d", width=round(1.1 * SCALE), joint="curve"
            )
    for lane in range(8):
        _signal(pen, lane, lit if lane in PHASE_LANES[phase] else RED)
    for car in cars:
        pen.polygon(_outline(car), fill=_colour(car.waited), outline=INK, width=1)
    _captions(pen, phase, yellow, seconds, waiting, counts)
    return np.asarray(picture.reduce(FINER))


def _pixel(point: Point) -> Point:
    """From metres east and north of the centre."""
    x, y = (_stretched(metres) for metres in point)
    return (REACH_SHOWN + x) * SCALE, (REACH_SHOWN - y) * SCALE


def _stretched(metres: Number) -> float:
    inner = min(abs(metres), STOP_LINE)
    outer = abs(metres) - inner
    shrunk = (REACH_SHOWN - WIDER * STOP_LINE) / (REACH_SHOWN - STOP_LINE)
    return math.copysign(WIDER * inner + shrunk * outer, metres)


def _on_arm(arm: str, reach: Number, aside: Number) -> Point:
    """`aside` counts to the right of those who drive towards the centre."""
    x, y = OUTWARDS[arm]
    return reach * x - aside * y, reach * y + aside * x


def _box(
    pen: ImageDraw.ImageDraw,
    arm: str,
    near: Number,
    far: Number,
    left: Number,
    right: Number,
    fill: str,
) -> None:
    (x0, y0), (x1, y1) = _pixel(_on_arm(arm, near, left)), _pixel(_on_arm(arm, far, right))
    pen.rectangle((min(x0, x1), min(y0, y1), max(x0, x1), max(y0, y1)), fill=fill)


@functools.cache
def _ground() -> Image.Image:
    """All that never changes: roads, lines, the legend."""
    picture = Image.new("RGB", (SIZE * FINER, SIZE * FINER), GROUND)
    pen = ImageDraw.Draw(picture)
    road = 2 * LANE_WIDTH
    for arm in ARMS:
        _box(pen, arm, 0, REACH_SHOWN, 0, road, ROAD)
        _box(pen, arm, 0, SHORT_REACH, -road, 0, ROAD)
        _box(pen, arm, SHORT_REACH, REACH_SHOWN, -road, 0, FAR_ROAD)
    corner = STOP_LINE
    pen.polygon([_pixel(p) for p in _octagon(corner, road)], fill=ROAD)
    for arm in ARMS:
        _box(pen, arm, corner, REACH_SHOWN, -0.2, 0.2, PAINT)
        for dash in np.arange(corner + 3, REACH_SHOWN, 9.0):
            for side in (LANE_WIDTH, -LANE_WIDTH):
                if side > 0 or dash < SHORT_REACH - 5:
                    _box(pen, arm, float(dash), float(dash) + 4, side - 0.1, side + 0.1, PAINT)
    _legend(pen)
    return picture


def _octagon(corner: float, road: float) -> list[Point]:
    return [(sx * a, sy * b) for sx, sy, a, b in (
        (1, 1, road, corner), (1, 1, corner, road), (1, -1, corner, road), (1, -1, road, corner),
        (-1, -1, road, corner), (-1, -1, corner, road), (-1, 1, corner, road), (-1, 1, road, corner),
    )]  # fmt: skip


def _legend(pen: ImageDraw.ImageDraw) -> None:
    left, top, side = SIZE * FINER - 300, 36, 22
    _text(pen, (left, top), "a car has waited", 26, FAINT)
    for i, (seconds, colour) in enumerate(WAITS):
        y = top + 44 + 34 * i
        pen.rectangle((left, y, left + 2 * side, y + side), fill=colour, outline=INK)
        _text(pen, (left + 3 * side, y - 5), f"{seconds} s" + (" or more" if i == len(WAITS) - 1 else ""), 24, FAINT)


def _signal(pen: ImageDraw.ImageDraw, lane: int, colour: str) -> None:
    arm, middle = ARMS[lane // 2], (1.5 - lane % 2) * LANE_WIDTH
    half = 0.42 * LANE_WIDTH
    _box(pen, arm, STOP_LINE - 0.9, STOP_LINE + 0.9, middle - half, middle + half, colour)


def _way(movement: Movement) -> list[Point]:
    """From the stop line to the road that leads away, as a curve around the point where both roads meet."""
    aside = (1.5 - movement.lane % 2) * LANE_WIDTH
    start, end = _on_arm(movement.origin, STOP_LINE, aside), _on_arm(movement.destination, STOP_LINE, -aside)
    if (ARMS.index(movement.origin) - ARMS.index(movement.destination)) % 2 == 0:
        return [start, end]
    vertical = movement.origin in ("N", "S")
    bend = (start[0], end[1]) if vertical else (end[0], start[1])
    shares = np.linspace(0, 1, 13)
    x, y = (
        (1 - shares) ** 2 * a + 2 * shares * (1 - shares) * b + shares**2 * c
        for a, b, c in zip(start, bend, end, strict=True)
    )
    return list(zip(x.tolist(), y.tolist(), strict=True))


def _outline(car: Car) -> list[Point]:
    """In pixels: a rectangle with its front corners cut off."""
    x, y = _pixel((car.x, car.y))
    angle = math.radians(car.towards)
    sine, cosine = math.sin(angle) * SCALE, math.cos(angle) * SCALE
    corners = [(0.0, -0.3), (0.0, 0.3), (-0.25, 0.5), (-1.0, 0.5), (-1.0, -0.5), (-0.25, -0.5)]
    return [
        (
            x + CAR_LENGTH * along * sine + CAR_WIDTH * across * cosine,
            y - CAR_LENGTH * along * cosine + CAR_WIDTH * across * sine,
        )
        for along, across in corners
    ]


def _colour(waited: float) -> tuple[int, int, int]:
    """Between the colours of the legend."""
    seconds = [wait for wait, _ in WAITS]
    channels = np.array([[int(colour[i : i + 2], 16) for i in (1, 3, 5)] for _, colour in WAITS])
    r, g, b = (round(float(np.interp(waited, seconds, channel))) for channel in channels.T)
    return r, g, b


def _captions(
    pen: ImageDraw.ImageDraw, phase: int, yellow: bool, seconds: int, waiting: Float[np.ndarray, "4"], counts: Counts
) -> None:
    _text(pen, (36, 30), "yellow" if yellow else "green", 30, FAINT)
    _text(pen, (36, 66), PHASES[phase], 56, INK)
    _text(pen, (36, 134), SAID[PHASES[phase]], 26, FAINT)
    _text(pen, (36, 172), f"after {seconds:,} s", 26, FAINT)
    wait = counts.waited / np.maximum(counts.served, 1)
    middle, edge, gap = SIZE * FINER / 2, SIZE * FINER - 36, 2 * WIDER * LANE_WIDTH * SCALE + 30
    places: dict[str, Point] = {
        "N": (middle + gap, 36), "E": (edge - 300, middle - gap - 172), "S": (middle + gap, edge - 172),
        "W": (36, middle + gap),
    }  # fmt: skip
    for i, arm in enumerate(ARMS):
        x, y = places[arm]
        _text(pen, (x, y), arm, 44, INK)
        _text(pen, (x + 18 + pen.textlength(arm, _font(44)), y + 13), f"{waiting[i]:,.0f} s waiting", 26, INK)
        _text(pen, (x, y + 62), f"{counts.served[i]:,.0f} cars served,", 24, FAINT)
        _text(pen, (x, y + 96), f"which waited {wait[i]:,.0f} s each", 24, FAINT)
        _text(pen, (x, y + 130), f"{counts.refused[i]:,.0f} refused", 24, FAINT)


def _text(pen: ImageDraw.ImageDraw, at: Point, text: str, size: int, colour: str) -> None:
    pen.text(at, text, fill=colour, font=_font(size))


@functools.cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
