"""An audit of every second at the junction: who crosses when, from which lane, and how long all have waited."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np

from evenhand.envs.traffic import FixedCycle, TrafficEnv
from evenhand.envs.traffic.junction import MOVEMENTS, Movement
from evenhand.envs.traffic.network import SIGNAL, Roads, signals, way_in, way_out
from evenhand.envs.traffic.scenario import Scenario
from evenhand.envs.traffic.sumo import SumoJunction

Controller = Callable[[np.random.Generator, int], int]


class Auditor(SumoJunction):
    """Runs second by second, and looks at every car after each."""

    def __init__(self, scenario: Scenario, roads: Roads) -> None:
        super().__init__(scenario, roads)
        self._options += ["--collision.check-junctions", "true"]  # crossing cars too, which costs SUMO time
        self.before: dict[str, str] = {}
        self.crossed = 0
        self.in_yellow = 0
        self.lane_of = {movement: way_in(roads, movement.lane).name for movement in MOVEMENTS}
        self.end_of = {movement: way_out(roads, movement).name for movement in MOVEMENTS}

    def run(self, phase: int, yellow: bool, seconds: int) -> None:
        for _ in range(seconds):
            super().run(phase, yellow, 1)
            self.look(signals()[2 * phase + yellow])

    def look(self, state: str) -> None:
        sumo = self._sumo
        assert sumo.trafficlight.getRedYellowGreenState(SIGNAL) == state
        assert sumo.simulation.getCollisions() == ()
        assert sumo.simulation.getStartingTeleportNumber() == 0
        now = {car: sumo.vehicle.getLaneID(car) for car in sumo.vehicle.getIDList()}
        for car, lane in now.items():
            movement = Movement(*car[:2])
            before = self.before.get(car)
            ways_in = self.lane_of.values()
            if lane in ways_in:
                assert lane == self.lane_of[movement], f"{car} is on {lane}"
            elif lane in self.end_of.values():
                assert lane == self.end_of[movement] or self.end_of[movement][:-1] == lane[:-1], f"{car} left on {lane}"
            if before in ways_in and lane not in ways_in:
                letter = state[MOVEMENTS.index(movement)]
                assert letter in "Gy", f"{car} crossed from {before} in {state}"
                self.crossed += 1
                self.in_yellow += letter == "y"
        for car, lane in self.before.items():
            if car not in now:
                assert lane not in self.lane_of.values(), f"{car} vanished from {lane}"
        self.before = now


def at_random(rng: np.random.Generator, step: int) -> int:
    return int(rng.integers(4))


def cyclic(rng: np.random.Generator, step: int) -> int:
    return int(FixedCycle(2).decide(None, step))


def adversarial(rng: np.random.Generator, step: int) -> int:
    """Crossing directions in turns; then one of them until all others have waited far beyond any patience."""
    if step % 300 < 100:
        return (1, 3)[step % 2]
    return (0, 1, 2, 3)[step // 100 % 4]


def audit(roads: Roads, controller: Controller, seconds: int) -> Auditor:
    env = TrafficEnv(episode_seconds=seconds, roads=roads)
    env._simulator = auditor = Auditor(env._scenario, roads)
    rng = np.random.default_rng(0)
    step, truncated = 0, False
    with closing(env):
        env.reset(seed=1)
        while not truncated:
            _, _, _, truncated, info = env.step(controller(rng, step))
            step += 1
    assert info["collisions"] == info["teleports"] == 0
    return auditor


def waits(roads: Roads, hold: int, seed: int) -> np.ndarray:
    """Mean waiting of each arm."""
    total, step, truncated = np.zeros(4), 0, False
    with closing(TrafficEnv(roads=roads, episode_seconds=2800)) as env:
        env.reset(seed=seed)
        while not truncated:
            _, reward, _, truncated, _ = env.step(FixedCycle(hold).decide(None, step))
            total -= reward
            step += 1
    return total / step
