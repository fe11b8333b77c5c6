"""What happens at the junction, whoever simulates it: the demand, the lights' timing, and when an episode ends."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.envs.traffic.demand import Demand, demand, length
from evenhand.envs.traffic.junction import CAPACITY, LANES, PHASES
from evenhand.envs.traffic.timing import Timing, timing
from evenhand.errors import InputError

LONG_WAIT = 100.0
"""Seconds: a lane full of cars that have waited so long is observed as 1."""
SHORT_EPISODE = 5600
"""Seconds: 400 decisions of 14 s."""


@dataclass(frozen=True)
class Scenario:
    """The settings of an environment, checked, and what follows from them."""

    demand: Demand
    timing: Timing
    seconds: int
    """When an episode ends."""
    warm_up_turns: int
    """Decisions before an episode; in each of them the next phase has green."""

    @staticmethod
    def of(
        asked: Any,
        named: str,
        yellow: int | None,
        green: int | None,
        kept: int | None,
        episode_seconds: int | None,
        warm_up: int,
    ) -> Scenario:
        """From settings as `TrafficEnv` has them."""
        chosen = timing(named, yellow, green, kept)
        arrivals = demand(asked)
        end = length(arrivals)
        default = SHORT_EPISODE if math.isinf(end) else math.ceil(end)
        seconds = default if episode_seconds is None else episode_seconds
        _check_seconds("episode_seconds", seconds, max(chosen.changing, chosen.kept))
        _check_seconds("warm_up", warm_up, 0)
        # The phases take turns: the first has green at once, all others after yellow.
        turns = 0 if warm_up == 0 else 1 + max(0, math.ceil((warm_up - chosen.kept) / chosen.changing))
        return Scenario(arrivals, chosen, seconds, turns)

    @property
    def warmed_up(self) -> int:
        """Seconds before an episode."""
        return self.timing.kept + (self.warm_up_turns - 1) * self.timing.changing if self.warm_up_turns else 0

    @property
    def horizon(self) -> int:
        """Seconds that a simulation can last at most."""
        return self.warmed_up + self.seconds + self.timing.changing + self.timing.kept

    @property
    def largest_observation(self) -> np.ndarray:
        """Of the phases, of the waiting, and of the standing cars; none of them is below 0."""
        parts = np.array([1, self.horizon / LONG_WAIT, 1], np.float32)
        return np.repeat(parts, [len(PHASES), len(LANES), len(LANES)])

    @property
    def worst_reward(self) -> float:
        """No arm can do worse: both lanes full, of cars that have waited all the time."""
        return -2.0 * CAPACITY * self.horizon


def _check_seconds(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        why = ", the length of one decision" if least else ""
        raise InputError(f"{name} must be a whole number of seconds, at least {least}{why}, not {value!r}.")
