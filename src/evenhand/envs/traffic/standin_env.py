"""The stand-in for SUMO, as a pure environment and as a simulator behind `TrafficEnv`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from evenhand.envs.traffic import standin
from evenhand.envs.traffic.demand import Demand
from evenhand.envs.traffic.junction import ARMS, CAPACITY, LANE_LENGTH, LANES, MOVEMENTS, PHASES, Car, Counts, Lanes
from evenhand.envs.traffic.network import REACH, lane_point
from evenhand.envs.traffic.policies import BASELINES
from evenhand.envs.traffic.scenario import LONG_WAIT, Scenario
from evenhand.envs.traffic.standin import GREENS, Junction, Rates
from evenhand.types import Box, Discrete, PRNGKey, Step


class StandinState(NamedTuple):
    """The cars, and which phase has green."""

    junction: Junction
    phase: Int[Array, ""]


@dataclass(frozen=True)
class StandinEnv:
    """The junction of `TrafficEnv`, with the same observations, actions and rewards."""

    scenario: Scenario

    objectives = ARMS
    action_names = PHASES
    baselines = BASELINES

    @property
    def observation_space(self) -> Box:
        """The phase; what is waited for and who stands on each lane."""
        largest = self.scenario.largest_observation
        return Box.of(np.zeros_like(largest), largest, len(largest))

    @property
    def action_space(self) -> Discrete:
        """Which phase has green next."""
        return Discrete(len(PHASES))

    @property
    def reward_space(self) -> Box:
        """Minus seconds."""
        return Box.of(self.scenario.worst_reward, 0.0, len(ARMS))

    @cached_property
    def rates(self) -> Rates:
        """The demand, span by span."""
        return standin.rates_of(self.scenario.demand)

    def reset(self, key: PRNGKey) -> tuple[StandinState, Float[Array, "20"]]:
        """The phases take turns for a while, and then it begins."""
        scenario, timing = self.scenario, self.scenario.timing
        junction = standin.empty(jnp.array(-scenario.warmed_up, jnp.int32))
        if scenario.warm_up_turns:
            greens = [np.tile(GREENS[0], (timing.kept, 1))]
            for turn in range(1, scenario.warm_up_turns):
                greens.append(np.zeros((timing.yellow, len(LANES)), bool))
                greens.append(np.tile(GREENS[turn % len(PHASES)], (timing.green, 1)))
            seconds = np.concatenate(greens)
            junction = standin.run(junction, jnp.asarray(seconds), self.rates, standin.random_bits(key, len(seconds)))
            nothing = jnp.zeros(len(LANES))
            junction = junction._replace(refused=nothing, served=nothing, waited=nothing)
        state = StandinState(junction, jnp.array((scenario.warm_up_turns or 1) - 1, jnp.int32) % len(PHASES))
        return state, observed(state)

    def step(self, state: StandinState, action: Int[Array, ""], key: PRNGKey) -> Step:
        """Give green to a phase for one decision."""
        yellow, _, kept = self.scenario.timing
        changing = self.scenario.timing.changing
        changes = action != state.phase
        seconds = jnp.arange(max(changing, kept))
        greens = jnp.asarray(GREENS)[action] & ~(changes & (seconds < yellow))[:, None]
        runs = None if changing == kept else seconds < jnp.where(changes, changing, kept)
        bits = standin.random_bits(key, len(seconds))
        after = StandinState(standin.run(state.junction, greens, self.rates, bits, runs), action.astype(jnp.int32))
        return Step(
            state=after,
            observation=observed(after),
            reward=-standin.waiting(after.junction).reshape(len(ARMS), 2).sum(axis=1),
            terminated=jnp.array(False),
            truncated=after.junction.time >= self.scenario.seconds,
        )

    def draw(self, history: list[StandinState]) -> UInt8[np.ndarray, "height width 3"]:
        """The junction from above, as it is now."""
        from evenhand.envs.traffic.draw import draw

        junction, phase = history[-1]
        waiting = np.asarray(standin.waiting(junction)).reshape(len(ARMS), 2).sum(axis=1)
        return draw(cars_of(junction), int(phase), False, int(junction.time), waiting, counts_of(junction))


def observed(state: StandinState) -> Float[Array, "20"]:
    """As `TrafficEnv` observes it."""
    junction = state.junction
    return jnp.concatenate(
        [
            jax.nn.one_hot(state.phase, len(PHASES), dtype=jnp.float32),
            standin.waiting(junction) / (CAPACITY * LONG_WAIT),
            standin.stopped(junction) / CAPACITY,
        ]
    )


class StandinJunction:
    """One junction that remembers its state.

    demand: what cars come. warm_up: seconds before the demand's time begins.
    """

    def __init__(self, demand: Demand, warm_up: int) -> None:
        self._rates = standin.rates_of(demand)
        self._warm_up = warm_up

    def reset(self, seed: int) -> None:
        """An empty junction."""
        self._junction = standin.empty(jnp.array(-self._warm_up, jnp.int32))
        self._lanes = Lanes(np.zeros(len(LANES)), np.zeros(len(LANES)))
        self._key, self._runs = jax.random.key(seed), 0

    def run(self, phase: int, yellow: bool, seconds: int) -> None:
        """So many seconds in which the lanes of a phase have green, or yellow, and all others red."""
        self._runs += 1
        green = GREENS[phase] & (not yellow)
        run = _running(self._rates, seconds)
        self._junction, waiting, stopped = run(self._junction, green, self._key, np.uint32(self._runs))
        self._lanes = Lanes(np.asarray(waiting, float), np.asarray(stopped, float))

    def lanes(self) -> Lanes:
        """What stands on the lanes now."""
        return self._lanes

    def counts(self) -> Counts:
        """What has happened since the reset."""
        return counts_of(self._junction)

    def cars(self) -> list[Car]:
        """Every car, for pictures."""
        return cars_of(self._junction)

    def close(self) -> None:
        """There is nothing to end."""


@lru_cache(maxsize=64)
def _running(rates: Rates, seconds: int) -> Any:
    """Compiled once for all junctions with the same demand."""

    @jax.jit
    def run(junction: Junction, green: Bool[Array, "8"], key: PRNGKey, runs: Array) -> tuple[Junction, Array, Array]:
        bits = standin.random_bits(jax.random.fold_in(key, runs), seconds)
        junction = standin.run(junction, jnp.broadcast_to(green, (seconds, len(LANES))), rates, bits)
        return junction, standin.waiting(junction), standin.stopped(junction)

    return run


def counts_of(junction: Junction) -> Counts:
    """What was counted, by arm; its cars can neither collide nor be carried away."""
    by_lane = (junction.refused, junction.served, junction.waited)
    refused, served, waited = (np.asarray(of, float).reshape(len(ARMS), 2).sum(axis=1) for of in by_lane)
    return Counts(refused, served, waited, collisions=0, teleports=0)


# Pictures


def cars_of(junction: Junction) -> list[Car]:
    """Every car, where SUMO would have it."""
    position, _, _, right, waited = (np.asarray(part) for part in junction.cars)
    found = []
    for slot, lane in np.argwhere(position < standin.NOWHERE):
        movement = (standin.FIRST if standin.FIRST_RIGHT[lane] == right[slot, lane] else standin.SECOND)[lane]
        x, y, towards = _place(int(lane), movement, float(position[slot, lane]))
        found.append(Car(x, y, towards, float(waited[slot, lane])))
    return found


def _place(lane: int, movement: int, position: float) -> tuple[float, float, float]:
    """Coordinates and heading of a car on its way in, through the junction along a smooth curve, or out."""
    origin, destination = MOVEMENTS[movement]
    left, line, outwards = lane % 2, REACH - LANE_LENGTH, 90.0 * ARMS.index(destination)
    if position <= LANE_LENGTH:
        return *lane_point(origin, REACH - position, left), (90.0 * ARMS.index(origin) + 180) % 360
    way = _way(lane, movement)
    gone = position - LANE_LENGTH
    if gone >= way:
        return *lane_point(destination, line + gone - way, left, out=True), outwards
    begin, end = np.array(lane_point(origin, line, left)), np.array(lane_point(destination, line, left, out=True))
    if (ARMS.index(destination) - ARMS.index(origin)) % 2:  # a curve towards where the two straight lines meet
        middle = np.array([begin[0], end[1]] if ARMS.index(origin) % 2 == 0 else [end[0], begin[1]])
    else:
        middle = (begin + end) / 2
    share = gone / way
    x, y = (1 - share) ** 2 * begin + 2 * share * (1 - share) * middle + share**2 * end
    east, north = (1 - share) * (middle - begin) + share * (end - middle)
    return float(x), float(y), math.degrees(math.atan2(east, north)) % 360


def _way(lane: int, movement: int) -> float:
    if lane % 2:
        return standin.LEFT[1]
    first = movement == standin.FIRST[lane]
    right = (standin.FIRST_RIGHT if first else standin.SECOND_RIGHT)[lane]
    return standin.RIGHT[1] if right else standin.STRAIGHT[1]
