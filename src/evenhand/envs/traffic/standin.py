"""A compiled stand-in for SUMO: the same junction, cars and drivers, as pure functions of arrays.

Under protected phases no two movements meet, so that the eight lanes are independent of each other. Drivers follow
Krauss's model in the form in which SUMO documents it, in steps of one second. All cars of a lane live in a ring of
slots: who comes next takes the slot after the newest car's, so that every car's leader is in the slot before its own.

For development, and for runs over many seeds; how close it comes to SUMO is for `evenhand calibrate traffic` to say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from evenhand.envs.traffic.demand import Demand
from evenhand.envs.traffic.junction import ARMS, LANE_LENGTH, LANES, MOVEMENTS, PHASE_LANES, SPEED
from evenhand.types import PRNGKey

SLOTS = 24
"""Cars that a lane and the way out of the junction can hold together: 19 standing ones fill the lane."""
NOWHERE = 1e4
"""Metres: where the cars of empty slots are. For those behind, that is as good as an open road."""

# SUMO's own car and driver

ACCELERATION, BRAKING = 2.6, 4.5
"""In m/s²."""
IMPERFECTION = 0.5
"""Sigma: the share of its acceleration by which a driver may fall short."""
LENGTH, GAP = 5.0, 2.5
"""Metres: of a car, and between standing cars."""
SPEED_SPREAD, SLOWEST, FASTEST = 0.1, 0.2, 2.0
"""Drivers' wishes, as shares of the limit: standard deviation and bounds."""
HALTING = 0.1
"""A car that is slower than this, in m/s, waits."""
ENTRY = LENGTH + 0.1
"""Metres: where the front of a new car is."""

# The ways through the junction, as netconvert makes them: m/s and metres

STRAIGHT, RIGHT, LEFT = (SPEED, 20.8), (6.51, 9.03), (9.26, 19.35)
PARTING = 5.0
"""Metres behind the stop line from which on a car no longer minds a leader that turns elsewhere. Calibrated."""
CLEAR = 30.0
"""Metres behind the stop line at which a car is forgotten."""


class Cars(NamedTuple):
    """All slots of the eight lanes."""

    position: Float[Array, "C 8"]
    """Metres from the beginning of the lane to the car's front; NOWHERE for none."""
    speed: Float[Array, "C 8"]
    wish: Float[Array, "C 8"]
    """The driver's speed on an open road, as a share of the limit."""
    right: Bool[Array, "C 8"]
    """Whether it turns right; on the lanes for left turns nobody does."""
    waited: Float[Array, "C 8"]
    """Seconds."""


class Leaders(NamedTuple):
    """What every driver sees of the car before."""

    position: Float[Array, "C 8"]
    end: Float[Array, "C 8"]
    """Where its front will be once it has braked to a stop."""
    right: Bool[Array, "C 8"]


class Junction(NamedTuple):
    """Everything at one moment, and what was counted since the beginning."""

    cars: Cars
    oldest: Int[Array, "8"]
    """The slot of the car that came first of those that are there, or of the next one that will come,"""
    newest: Int[Array, "8"]
    """and the slot of the last car that came."""
    time: Int[Array, ""]
    """Seconds since the beginning of the episode; negative while it warms up."""
    refused: Float[Array, "8"]
    served: Float[Array, "8"]
    waited: Float[Array, "8"]
    """Seconds that those served had waited."""


def empty(time: Int[Array, ""]) -> Junction:
    """No cars, nothing counted."""
    shape = (SLOTS, len(LANES))
    cars = Cars(jnp.full(shape, NOWHERE), jnp.zeros(shape), jnp.ones(shape), jnp.zeros(shape, bool), jnp.zeros(shape))
    nothing = jnp.zeros(len(LANES))
    first = jnp.zeros(len(LANES), jnp.int32)
    return Junction(cars, first, first + SLOTS - 1, time, nothing, nothing, nothing)


# Krauss's model, with steps and reaction times of one second


def stopping_speed(room: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The highest speed from which a car can still stop within so many metres, braking once a second."""
    room = jnp.maximum(room - 1e-3, 0.0)
    steps = jnp.floor(0.5 * jnp.sqrt(1 + (8 / BRAKING) * room) - 0.5)
    return BRAKING * steps + (room - 0.5 * BRAKING * steps * (steps + 1)) / (steps + 1)


def braking_distance(speed: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """Metres that a car goes on while it brakes."""
    steps = jnp.floor(speed / BRAKING)
    return steps * speed - 0.5 * BRAKING * steps * (steps + 1)


def approaching_speed(distance: Float[Array, "*n"], target: Float[Array, "*n"]) -> Float[Array, "*n"]:
    """The highest speed from which a car can still slow down to a target within so many metres."""
    steps = ((jnp.sqrt((BRAKING + 2 * target) ** 2 + 8 * BRAKING * distance) - BRAKING) * 0.5 - target) / BRAKING
    steps = jnp.maximum(steps, 0.0)
    whole = jnp.floor(steps)
    used = 0.5 * BRAKING * whole * (whole + 1) + whole * target + jnp.where(steps > whole, target, 0.0)
    return jnp.maximum(distance - used, 0.0) / (whole + 1) + whole * BRAKING + target


def leaders(cars: Cars) -> Leaders:
    """The car in the slot before, for every slot."""
    end = cars.position + braking_distance(cars.speed)
    return Leaders(*(jnp.roll(of, 1, axis=0) for of in (cars.position, end, cars.right)))


def second(
    at: Junction, ahead: Leaders, green: Bool[Array, "8"], rates: Float[Array, "12"], bits: UInt[Array, " B"]
) -> Junction:
    """One second: all cars move, seeing each other where they were; then new ones appear."""
    dawdling, arriving, wishing = jnp.split(bits, (DAWDLING, DAWDLING + len(MOVEMENTS)))
    cars = moved(at.cars, ahead, green, _bytes(dawdling))
    # Cars that move are further apart than what one drives in a second: at most one of a lane leaves, the oldest.
    foremost = _in_slot(cars.position, at.oldest)
    leaves = (foremost > LANE_LENGTH + CLEAR) & (foremost < NOWHERE)
    served = at.served + leaves
    waited = at.waited + jnp.where(leaves, _in_slot(cars.waited, at.oldest), 0.0)
    left = leaves & (np.arange(SLOTS)[:, None] == at.oldest)
    cars = cars._replace(position=jnp.where(left, NOWHERE, cars.position))
    oldest = jnp.where(leaves, (at.oldest + 1) % SLOTS, at.oldest)
    cars, newest, refused = joined(cars, at.newest, _uniform(arriving) < rates, _uniform(wishing))
    return Junction(cars, oldest, newest, at.time + 1, at.refused + refused, served, waited)


def _in_slot(of: Float[Array, "C 8"], slot: Int[Array, "8"]) -> Float[Array, "8"]:
    """What the car in one slot of each lane has."""
    return jnp.take_along_axis(of, slot[None], axis=0, mode="promise_in_bounds")[0]


def moved(cars: Cars, ahead: Leaders, green: Bool[Array, "8"], dawdling: Float[Array, "C 8"]) -> Cars:
    """All cars go on for a second."""
    position, speed, wish, right, waited = cars
    seen = LANE_LENGTH - position
    braking = braking_distance(speed)
    room = ahead.end - LENGTH - GAP - position
    parted = (ahead.right != right) & (ahead.position - LENGTH > LANE_LENGTH + PARTING)
    room = jnp.where(parted, NOWHERE, room)

    stops = ~green & (seen >= braking)  # who can no longer stop goes on
    room = jnp.where(stops, jnp.minimum(room, seen - jnp.clip(seen - braking, 0.1, 1.0)), room)

    limit, way = jnp.asarray(LIMITS)[None], jnp.asarray(WAYS)[None]
    turning = wish * jnp.where(right, RIGHT[0], limit)
    way = jnp.where(right, RIGHT[1], way)
    wished = wish * SPEED
    most = jnp.where(seen > 0, approaching_speed(jnp.maximum(seen, 0.0), turning), wished)
    most = jnp.where((seen <= 0) & (seen > -way), turning, most)
    most = jnp.minimum(jnp.minimum(most, wished), speed + ACCELERATION)
    most = jnp.minimum(most, stopping_speed(room))
    least = jnp.minimum(most, jnp.maximum(speed - BRAKING, 0.0))
    speed = jnp.maximum(least, most - IMPERFECTION * jnp.minimum(most, ACCELERATION) * dawdling)

    here = position < NOWHERE
    position = jnp.where(here, position + speed, NOWHERE)
    return Cars(position, speed, wish, right, waited + jnp.where(speed < HALTING, 1.0, 0.0))


def joined(
    cars: Cars, newest: Int[Array, "8"], coming: Bool[Array, "12"], luck: Float[Array, "8"]
) -> tuple[Cars, Int[Array, "8"], Float[Array, "8"]]:
    """New cars appear where there is room; with them, the slots of the newest and how many were refused."""
    first = coming[np.array(FIRST)]
    second = coming[np.array(SECOND)] & np.array(SHARED)
    position, speed = _in_slot(cars.position, newest), _in_slot(cars.speed, newest)
    room = position - LENGTH - GAP - ENTRY
    wish = jnp.clip(1 + SPEED_SPREAD * jax.scipy.stats.norm.ppf(luck), SLOWEST, FASTEST)
    following = (newest + 1) % SLOTS
    enters = (first | second) & (room >= 0) & (_in_slot(cars.position, following) == NOWHERE)
    newest = jnp.where(enters, following, newest)
    new = enters & (np.arange(SLOTS)[:, None] == newest)
    right = jnp.where(first, np.array(FIRST_RIGHT), np.array(SECOND_RIGHT))
    entry_speed = jnp.minimum(wish * SPEED, stopping_speed(room + braking_distance(speed)))
    cars = Cars(
        jnp.where(new, ENTRY, cars.position),
        jnp.where(new, entry_speed, cars.speed),
        jnp.where(new, wish, cars.wish),
        jnp.where(new, right, cars.right),
        jnp.where(new, 0.0, cars.waited),
    )
    return cars, newest, first.astype(jnp.float32) + second - enters


# Tables by lane


def _movements_of(lane: int) -> list[int]:
    return [i for i, movement in enumerate(MOVEMENTS) if movement.lane == lane]


def _turns_right(movement: int) -> bool:
    origin, destination = (ARMS.index(arm) for arm in MOVEMENTS[movement])
    return (destination - origin) % 4 == 3


FIRST = [_movements_of(lane)[0] for lane in range(len(LANES))]
"""The movement of each lane that SUMO asks first whether a car comes,"""
SECOND = [_movements_of(lane)[-1] for lane in range(len(LANES))]
"""and the one that it asks then, which the lanes for left turns do not have."""
SHARED = [first != second for first, second in zip(FIRST, SECOND, strict=True)]
FIRST_RIGHT = [_turns_right(movement) for movement in FIRST]
SECOND_RIGHT = [_turns_right(movement) for movement in SECOND]
LIMITS = np.array([LEFT[0] if lane % 2 else STRAIGHT[0] for lane in range(len(LANES))], np.float32)
WAYS = np.array([LEFT[1] if lane % 2 else STRAIGHT[1] for lane in range(len(LANES))], np.float32)
GREENS = np.array([[lane in lanes for lane in range(len(LANES))] for lanes in PHASE_LANES])
"""Which lanes have green in each phase."""


# Random numbers: a quarter of a word is enough to dawdle by

DAWDLING = SLOTS * len(LANES) // 4
BITS = DAWDLING + len(MOVEMENTS) + len(LANES)
"""Random words that a second needs."""


def random_bits(key: PRNGKey, seconds: int) -> UInt[Array, "T B"]:
    """The random words of so many seconds."""
    return jax.random.bits(key, (seconds, BITS))


def _bytes(words: UInt[Array, " W"]) -> Float[Array, "C 8"]:
    parts = (words[None] >> jnp.arange(0, 32, 8, dtype=jnp.uint32)[:, None]) & 255
    return ((parts.astype(jnp.float32) + 0.5) / 256).reshape(SLOTS, len(LANES))


def _uniform(words: UInt[Array, " W"]) -> Float[Array, " W"]:
    """In (0, 1)."""
    return ((words >> 8).astype(jnp.float32) + 0.5) / 2**24


# Demand


class Rates(NamedTuple):
    """Probabilities of a car in each second, for spans of time."""

    since: tuple[float, ...]
    """When each span begins; the first holds before, too."""
    table: tuple[tuple[float, ...], ...]

    def at(self, time: Int[Array, ""]) -> Float[Array, "12"]:
        """The twelve probabilities at a time."""
        table = jnp.asarray(np.array(self.table, np.float32))
        if len(self.since) == 1:
            return table[0]
        return table[jnp.maximum(jnp.sum(time >= np.array(self.since, np.float32)) - 1, 0)]


def rates_of(demand: Demand) -> Rates:
    """A table of arrivals, span by span."""
    since = sorted({0.0} | {float(edge) for row in demand for edge in (row.start, row.stop) if np.isfinite(edge)})
    spans = [[row for row in demand if row.start <= time < row.stop] for time in since]
    table = [tuple(sum(row.probability for row in span if row.movement == m) for m in MOVEMENTS) for span in spans]
    return Rates(tuple(since), tuple(table))


def run(
    at: Junction,
    greens: Bool[Array, "T 8"],
    rates: Rates,
    bits: UInt[Array, "T B"],
    runs: Bool[Array, " T"] | None = None,
) -> Junction:
    """So many seconds, with these lanes green in each; those that do not `run` leave all as it is."""

    def once(carry: tuple[Junction, Leaders], now: tuple[Any, Any, Any]) -> tuple[tuple[Junction, Leaders], None]:
        at, ahead = carry
        green, bits, runs = now
        after = second(at, ahead, green, rates.at(at.time), bits)
        if runs is not None:
            after = jax.tree.map(lambda new, old: jnp.where(runs, new, old), after, at)
        return (after, leaders(after.cars)), None

    # Leaders are handed on from second to second: rolled within the large formula, they would keep it from being
    # vectorised, which makes it five times as slow.
    return jax.lax.scan(once, (at, leaders(at.cars)), (greens, bits, runs))[0][0]


def waiting(at: Junction) -> Float[Array, "8"]:
    """Seconds that the cars now on each lane have waited, together."""
    return jnp.where(at.cars.position <= LANE_LENGTH, at.cars.waited, 0.0).sum(axis=0)


def stopped(at: Junction) -> Float[Array, "8"]:
    """Cars that stand on each lane."""
    return ((at.cars.position <= LANE_LENGTH) & (at.cars.speed < HALTING)).sum(axis=0).astype(jnp.float32)
