"""How close the stand-in comes to SUMO: the same controllers in both, and who waits how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from evenhand.envs.registry import resolve
from evenhand.envs.simulator_check import CheckRow, SimulatorCheck
from evenhand.envs.traffic.junction import ARMS
from evenhand.envs.traffic.policies import FixedCycle, LongestQueue
from evenhand.errors import InputError, Say

Play = Callable[..., Any]

CONTROLLERS: tuple[Any, ...] = (*(FixedCycle(hold) for hold in range(1, 7)), LongestQueue(), "random")
EPISODES = 8
SIDE_BY_SIDE = 8
"""Episodes of the stand-in for each of SUMO: they cost next to nothing."""


class ControllerCompared(NamedTuple):
    """What one controller came to in both, each user's waiting in seconds per decision."""

    controller: str
    sumo: Float[np.ndarray, "E D"]
    """By episode."""
    standin: Float[np.ndarray, "F D"]

    @property
    def difference(self) -> Float[np.ndarray, " D"]:
        """By which share cars wait longer in the stand-in."""
        return self.standin.mean(axis=0) / self.sumo.mean(axis=0) - 1

    @property
    def uncertainty(self) -> Float[np.ndarray, " D"]:
        """How far SUMO's mean may be off by chance, as a share of it: two deviations of a mean of so many episodes.

        How much episodes differ is taken from the stand-in's, of which there are many.
        """
        return 2 * self.standin.std(axis=0, ddof=1) / np.sqrt(len(self.sumo)) / self.sumo.mean(axis=0)


def compare(
    settings: Mapping[str, Any], play: Play, episodes: int, seed: int = 0, say: Say = lambda _: None
) -> Iterator[ControllerCompared]:
    """Play every controller in both, one after the other.

    settings: those of `TrafficEnv`, without the backend. play: `evenhand.evaluate_policy`.
    """
    if "backend" in settings:
        raise InputError("both backends are compared: leave the setting backend out.")
    if episodes < 2:
        raise InputError(f"to see how far chance goes, at least 2 episodes are needed, not {episodes}.")
    sumo, standin = (resolve("traffic", {**settings, "backend": backend}) for backend in ("sumo", "standin"))
    for controller in CONTROLLERS:
        say(f"playing {episodes} episodes of {getattr(controller, 'name', controller)} in SUMO")
        real = play(sumo, controller, episodes, seed=seed)
        model = play(standin, controller, SIDE_BY_SIDE * episodes, seed=seed)
        yield ControllerCompared(real.name, -real.of("average"), -model.of("average"))


def same_ranking(found: list[ControllerCompared]) -> bool:
    """Whether both put the controllers into the same order, by what all wait together.

    Two that SUMO itself cannot tell apart may change places.
    """
    for i, one in enumerate(found):
        for other in found[:i]:
            totals = [(pair.sumo.sum(axis=1), pair.standin.sum(axis=1)) for pair in (one, other)]
            real, model = (np.array([totals[0][k].mean(), totals[1][k].mean()]) for k in (0, 1))
            noise = np.hypot(*(pair[0].std(ddof=1) / np.sqrt(len(pair[0])) for pair in totals))
            if abs(real[0] - real[1]) > 2 * noise and (real[0] < real[1]) != (model[0] < model[1]):
                return False
    return True


def calibrate(
    settings: Mapping[str, Any], play: Play, episodes: int | None = None, seed: int = 0, say: Say = lambda _: None
) -> SimulatorCheck:
    """All of it, in a table and for programs (see `evenhand.envs.registry.Domain.calibration`)."""
    episodes = EPISODES if episodes is None else episodes
    found = list(compare(settings, play, episodes, seed, say))
    worst = max(float(abs(pair.difference).max()) for pair in found)
    ranking = same_ranking(found)
    rows = []
    for pair in found:
        real, model = pair.sumo.mean(axis=0), pair.standin.mean(axis=0)
        off = (*pair.difference, model.sum() / real.sum() - 1)
        rows += [
            CheckRow((pair.controller, "SUMO", *(f"{x:,.0f}" for x in (*real, real.sum()))), "", True),
            CheckRow(("", "stand-in", *(f"{x:,.0f}" for x in (*model, model.sum())))),
            CheckRow(("", "off by", *(f"{share:+.1%}" for share in off)), "bold"),
            CheckRow(("", "chance in SUMO", *(f"±{share:.1%}" for share in pair.uncertainty), ""), "dim"),
        ]
    record = {
        "arguments": dict(settings),
        "episodes": episodes,
        "seed": seed,
        "objectives": list(ARMS),
        "controllers": [
            {
                "name": pair.controller,
                "sumo": pair.sumo.mean(axis=0).tolist(),
                "uncertainty": pair.uncertainty.tolist(),
                "standin": pair.standin.mean(axis=0).tolist(),
                "difference": pair.difference.tolist(),
            }
            for pair in found
        ],
        "largest_difference": worst,
        "same_ranking": ranking,
    }
    return SimulatorCheck(
        title="The stand-in beside SUMO: seconds that the cars on each arm have waited",
        about=f"{episodes} test episodes of each controller in SUMO, {SIDE_BY_SIDE} times as many",
        headings=("", "", *ARMS, "sum"),
        rows=tuple(rows),
        notes=(
            f"The largest difference is {worst:.1%}. The controllers are ranked "
            f"{'in the same order' if ranking else 'in another order'} by both.",
            "Chance in SUMO: two deviations of a mean of so many episodes; differences within it mean nothing.",
        ),
        record=record,
    )
