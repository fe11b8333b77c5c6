"""How close the stand-in comes to SUMO: the same controllers in both, and who waits how long."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from evenhand.envs.traffic.policies import FixedCycle, LongestQueue
from evenhand.errors import InputError

CONTROLLERS: tuple[Any, ...] = (*(FixedCycle(hold) for hold in range(1, 7)), LongestQueue(), "random")
SIDE_BY_SIDE = 8
"""Episodes of the stand-in for each of SUMO: they cost next to nothing."""


class Compared(NamedTuple):
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
    settings: Mapping[str, Any], episodes: int, seed: int = 0, say: Callable[[str], None] = lambda _: None
) -> Iterator[Compared]:
    """Play every controller in both, one after the other.

    settings: those of `TrafficEnv`, without the backend.
    """
    from evenhand.envs import resolve
    from evenhand.judge import evaluate_policy

    if "backend" in settings:
        raise InputError("both backends are compared: leave the setting backend out.")
    if episodes < 2:
        raise InputError(f"to see how far chance goes, at least 2 episodes are needed, not {episodes}.")
    sumo, standin = (resolve("traffic", {**settings, "backend": backend}) for backend in ("sumo", "standin"))
    for controller in CONTROLLERS:
        say(f"playing {episodes} episodes of {getattr(controller, 'name', controller)} in SUMO")
        real = evaluate_policy(sumo, controller, episodes, seed=seed)
        model = evaluate_policy(standin, controller, SIDE_BY_SIDE * episodes, seed=seed)
        yield Compared(real.name, -real.of("average"), -model.of("average"))


def same_ranking(found: list[Compared]) -> bool:
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
