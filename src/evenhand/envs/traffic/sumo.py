"""The junction in SUMO, by way of libsumo: one simulation in each process."""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from evenhand.envs.traffic.cache import kept
from evenhand.envs.traffic.demand import Demand
from evenhand.envs.traffic.installation import libsumo
from evenhand.envs.traffic.junction import ARMS, LANES, Car, Counts, Lanes
from evenhand.envs.traffic.network import ALL_RED, REACH, SIGNAL, Roads, compiled, way_in, way_out
from evenhand.envs.traffic.scenario import Scenario
from evenhand.errors import InputError

OPTIONS = {
    "step-length": "1",
    "time-to-teleport": "-1",  # else SUMO carries those who wait long through the red light
    "max-depart-delay": "0",  # a car that finds no room goes elsewhere: else a backlog grows without end
    "collision.action": "warn",
    "xml-validation": "never",
    "no-step-log": "true",
    "no-warnings": "true",
    "duration-log.disable": "true",
}
FOREVER = 1e9
"""Seconds."""
ARM = {arm: i for i, arm in enumerate(ARMS)}


class SumoJunction:
    """One simulation of a scenario, on roads that the environment's setting of this name explains."""

    def __init__(self, scenario: Scenario, roads: Roads = "split") -> None:
        self._sumo: Any = None
        self._lanes = [way_in(roads, lane).name for lane in range(len(LANES))]
        routes = routes_xml(scenario.demand, scenario.warmed_up, roads)
        options = OPTIONS | {
            "net-file": str(compiled(roads)),
            "route-files": str(kept("demand", ".rou.xml", routes, lambda path: _write(path, routes))),
            "waiting-time-memory": str(scenario.horizon + 1),
            # So that those who have left can still be asked how long they waited; longer would slow SUMO down.
            "keep-after-arrival": str(max(scenario.timing) + 1),
        }
        self._options = [word for name, value in options.items() for word in (f"--{name}", value)]
        self._time = 0
        self._none()

    def reset(self, seed: int) -> None:
        """An empty junction, all red."""
        options = [*self._options, "--seed", str(seed)]
        if self._sumo is None:
            self._sumo = _begin(options)
            self._release = weakref.finalize(self, _end, self._sumo, os.getpid())
        else:
            _refuse_forks()
            self._sumo.load(options)
        self._sumo.trafficlight.setPhase(SIGNAL, ALL_RED)
        self._time = 0
        self._none()

    def run(self, phase: int, yellow: bool, seconds: int) -> None:
        """So many seconds in which the lanes of a phase have green, or yellow, and all others red."""
        _refuse_forks()
        sumo = self._sumo
        sumo.trafficlight.setPhase(SIGNAL, 2 * phase + yellow)
        self._time += seconds
        sumo.simulationStep(self._time)
        # These three lists are of all that happened since the last call, not only in the last second.
        simulation = sumo.simulation
        _count(self._loaded, simulation.getLoadedIDList())
        _count(self._entered, simulation.getDepartedIDList())
        waited = sumo.vehicle.getAccumulatedWaitingTime
        for car in simulation.getArrivedIDList():
            arm = ARM[car[0]]
            self._served[arm] += 1
            self._waited[arm] += waited(car)

    def lanes(self) -> Lanes:
        """What stands on the lanes now."""
        on, stopped = self._sumo.lane.getLastStepVehicleIDs, self._sumo.lane.getLastStepHaltingNumber
        waited = self._sumo.vehicle.getAccumulatedWaitingTime
        return Lanes(
            np.array([sum(map(waited, on(lane))) for lane in self._lanes], float),
            np.array([stopped(lane) for lane in self._lanes], float),
        )

    def counts(self) -> Counts:
        """What has happened since the reset."""
        ask = self._sumo.simulation.getParameter
        return Counts(
            refused=np.subtract(self._loaded, self._entered, dtype=float),
            served=np.array(self._served, float),
            waited=np.array(self._waited, float),
            collisions=int(float(ask("", "stats.safety.collisions"))),
            teleports=int(float(ask("", "stats.teleports.total"))),
        )

    def cars(self) -> list[Car]:
        """Every car, for pictures."""
        vehicle, found = self._sumo.vehicle, []
        for car in self._sumo.vehicle.getIDList():
            x, y = vehicle.getPosition(car)
            towards, waited = vehicle.getAngle(car), vehicle.getAccumulatedWaitingTime(car)
            found.append(Car(x - REACH, y - REACH, towards, waited))
        return found

    def close(self) -> None:
        """End the simulation, so that another may begin in this process."""
        if self._sumo is not None:
            self._sumo = None
            self._release()

    def _none(self) -> None:
        """Nothing counted yet, on four arms."""
        self._loaded, self._entered, self._served = [0] * 4, [0] * 4, [0] * 4
        self._waited = [0.0] * 4


# The guard: libsumo would silently replace a running simulation by the next


_process: int | None = None
"""The process in which a simulation runs; another number than its own tells a process that it was forked."""


def _begin(options: list[str]) -> Any:
    """Start the one simulation of this process; refused while there is another."""
    global _process
    sumo = libsumo()
    _refuse_forks()
    if _process is not None or sumo.isLoaded():
        raise InputError(
            "there is already a simulation of SUMO in this process, and only one is possible: close() the other "
            "environment first, or give each a process of its own, as evenhand's commands and its VectorEnv do."
        )
    sumo.start(["sumo", *options])
    _process = os.getpid()
    return sumo


def _end(sumo: Any, process: int) -> None:
    """Free this process for another simulation; in a forked copy there is nothing to end."""
    global _process
    if process == os.getpid():
        _process = None
        sumo.close()


def _refuse_forks() -> None:
    if _process not in (None, os.getpid()):
        raise InputError(
            "this process was forked from one in which SUMO runs, and has no simulation of its own: spawn it instead, "
            'with multiprocessing.get_context("spawn").'
        )


# What SUMO reads


def routes_xml(demand: Demand, warm_up: int, roads: Roads) -> str:
    """The cars that come: probabilities for each second, on the lane that fits, at the highest speed that is safe.

    warm_up: seconds before the demand's time begins, in which those come who come first.

    The first letter of a car's name is the arm that it comes from.
    """
    lines = ["<routes>"]
    for movement in dict.fromkeys(arrivals.movement for arrivals in demand):
        roads_taken = f"{way_in(roads, movement.lane).road} {way_out(roads, movement).road}"
        lines.append(f'<route id="{"".join(movement)}" edges="{roads_taken}"/>')
    for number, (origin, destination, probability, start, stop) in enumerate(sorted(demand, key=lambda row: row.start)):
        if probability == 0:
            continue
        begin = start + warm_up if start else 0.0
        end = FOREVER if math.isinf(stop) else stop + warm_up
        lines.append(
            f'<flow id="{origin}{destination}{number}" route="{origin}{destination}" probability="{probability!r}" '
            f'begin="{begin:.2f}" end="{end:.2f}" departLane="best" departSpeed="max"/>'
        )
    return "\n".join([*lines, "</routes>", ""])


def _write(path: Any, text: str) -> None:
    path.write_text(text, "utf-8")


def _count(cars_of: list[int], cars: Iterable[str]) -> None:
    for car in cars:
        cars_of[ARM[car[0]]] += 1
