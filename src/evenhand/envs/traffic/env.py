"""The traffic light as a Gymnasium environment with a reward for each arm of the junction."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, UInt8

from evenhand.envs.traffic.demand import Demand, demand, length
from evenhand.envs.traffic.installation import check_installed
from evenhand.envs.traffic.junction import ARMS, CAPACITY, LANES, PHASES, Counts, Lanes, Simulator
from evenhand.envs.traffic.network import ROADS
from evenhand.envs.traffic.policies import BASELINES
from evenhand.envs.traffic.timing import timing
from evenhand.errors import InputError

LONG_WAIT = 100.0
"""Seconds: a lane full of cars that have waited so long is observed as 1."""
SHORT_EPISODE = 5600
"""Seconds: 400 decisions of 14 s."""
SECONDS_PER_FRAME = 2


@dataclass(eq=False)
class TrafficEnv(gymnasium.Env[np.ndarray, Any]):
    """One junction with four arms and two lanes on each; an action gives green to one of four protected phases.

    Observation (20): which phase has green (4); for each lane (8) how long the cars on it have waited, together; and
    for each lane (8) how much of it is full of standing cars. Reward (4): minus the seconds that the cars now on each
    arm have stood still since they appeared. An episode never terminates; it is truncated when its time is over.

    SUMO can run one simulation in each process. Begin a second one, and an error says so; evenhand's own commands and
    its `VectorEnv` give each environment a process of its own. A pickled environment keeps its settings and its random
    generator, and has to be reset.
    """

    demand: str | Demand = "stationary"
    """What cars come: stationary, the paper's table; day, which has four parts; or a .csv or .toml file."""
    timing: str = "fixed"
    """Seconds of a decision: fixed, always 14; literal, 10 or with yellow 14; authors, always 20 with 6 of yellow."""
    yellow: int | None = None
    """Seconds of yellow when the phase changes, in place of the timing's."""
    green: int | None = None
    """Seconds of green after that, in place of the timing's."""
    kept: int | None = None
    """Seconds of green when the phase is kept, in place of the timing's."""
    episode_seconds: int | None = None
    """How long an episode lasts; by default as long as the demand is said for, or 5,600. The authors had 100,000."""
    warm_up: int = 120
    """Seconds before an episode, at least, in which the phases take turns."""
    roads: Literal["split", "two-lane"] = "split"
    """Each lane as a road of its own, which is faster; or ordinary roads of two lanes, which wait as long."""
    render_mode: str | None = None
    """rgb_array, for a picture; rgb_array_list, for all pictures since the last, two seconds apart."""

    metadata = {"render_modes": ["rgb_array", "rgb_array_list"], "render_fps": 10}  # noqa: RUF012 (Gymnasium's own)
    objectives = ARMS
    action_names = PHASES
    one_per_process = True
    baselines = BASELINES

    def __post_init__(self) -> None:
        if self.render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f'render_mode must be "rgb_array", "rgb_array_list" or None, not {self.render_mode!r}.')
        if self.roads not in ROADS:
            raise InputError(f"roads must be {' or '.join(ROADS)}, not {self.roads!r}.")
        self._timing = timing(self.timing, self.yellow, self.green, self.kept)
        self._demand = demand(self.demand)
        changing = self._timing.yellow + self._timing.green
        self._seconds = _seconds("episode_seconds", self._default_seconds(), max(changing, self._timing.kept))
        # The phases take turns: the first has green at once, all others after yellow.
        rest = _seconds("warm_up", self.warm_up, 0) - self._timing.kept
        self._warm_up_turns = 0 if self.warm_up == 0 else 1 + max(0, math.ceil(rest / changing))
        self._warmed_up = self._timing.kept + (self._warm_up_turns - 1) * changing if self._warm_up_turns else 0
        check_installed()
        horizon = self._warmed_up + self._seconds + changing + self._timing.kept
        longest_wait = np.repeat(
            np.array([1, horizon / LONG_WAIT, 1], np.float32), [len(PHASES), len(LANES), len(LANES)]
        )
        self.observation_space = spaces.Box(np.zeros_like(longest_wait), longest_wait, dtype=np.float32)
        self.action_space = spaces.Discrete(len(PHASES))
        self.reward_space = spaces.Box(-2.0 * CAPACITY * horizon, 0, (len(ARMS),), np.float32)
        self.reward_dim = len(ARMS)
        self._horizon = horizon
        self._simulator: Simulator | None = None
        self._begun = False
        self._phase, self._yellow, self._elapsed = 0, False, 0
        self._frames: list[UInt8[np.ndarray, "height width 3"]] = []

    def _default_seconds(self) -> Any:
        if self.episode_seconds is not None:
            return self.episode_seconds
        end = length(self._demand)
        return SHORT_EPISODE if math.isinf(end) else math.ceil(end)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Float32[np.ndarray, "20"], dict[str, Any]]:
        """Begin an episode with traffic that was not there before; the seed decides about all that follow."""
        super().reset(seed=seed)
        if self._simulator is None:
            self._simulator = self._new_simulator()
        self._begun = False
        self._simulator.reset(int(self.np_random.integers(2**31 - 1)))
        self._phase = 0
        for turn in range(self._warm_up_turns):
            self._decide(turn % len(PHASES))
        self._elapsed, self._frames = 0, []
        self._before = self._simulator.counts()
        self._lanes = self._simulator.lanes()
        self._begun = True
        return self._observation(), self._info()

    def step(self, action: Any) -> tuple[Float32[np.ndarray, "20"], Any, bool, bool, dict[str, Any]]:
        """Give green to a phase for one decision; the reward is an array `[4]`."""
        if not self._begun or self._simulator is None:
            raise gymnasium.error.ResetNeeded("reset the environment before the first step.")
        if not self.action_space.contains(action):
            raise InputError(
                f"the action must be one of 0 to {len(PHASES) - 1}, for {', '.join(PHASES)}, not {action!r}."
            )
        self._decide(int(action))
        self._lanes = self._simulator.lanes()
        info = self._info()
        truncated = self._elapsed >= self._seconds
        if truncated:
            info["summary"] = _summary(info)
        return self._observation(), (0.0 - info["waiting"]).astype(np.float32), False, truncated, info

    def render(self) -> Any:
        """The junction from above; in the mode rgb_array_list all that was drawn since the last call."""
        if self.render_mode is None:
            gymnasium.logger.warn('nothing to render: make the environment with render_mode="rgb_array".')
            return None
        if not self._begun:
            raise gymnasium.error.ResetNeeded("reset the environment before there is anything to see.")
        if self.render_mode == "rgb_array":
            return self._picture()
        drawn, self._frames = self._frames, []
        return drawn

    def close(self) -> None:
        """End the simulation."""
        if self._simulator is not None:
            self._simulator.close()
            self._simulator = None
        self._begun = False

    def _new_simulator(self) -> Simulator:
        from evenhand.envs.traffic.sumo import SumoJunction

        return SumoJunction(self._demand, self._warmed_up, self._horizon, self.roads)

    def _decide(self, phase: int) -> None:
        """The lights of one decision."""
        yellow, green, kept = self._timing
        if phase == self._phase:
            self._run(kept)
            return
        self._yellow = True
        self._run(yellow)
        self._phase, self._yellow = phase, False
        self._run(green)

    def _run(self, seconds: int) -> None:
        """Leave the lights as they are for so long; if a film is made, in pieces."""
        assert self._simulator is not None
        filming = self.render_mode == "rgb_array_list" and self._begun
        piece = SECONDS_PER_FRAME if filming else seconds
        for begin in range(0, seconds, piece):
            ran = min(piece, seconds - begin)
            self._simulator.run(self._phase, self._yellow, ran)
            self._elapsed += ran
            if filming:
                self._frames.append(self._picture())

    def _observation(self) -> Float32[np.ndarray, "20"]:
        waiting, stopped = self._lanes
        return np.concatenate(
            [np.arange(len(PHASES)) == self._phase, waiting / (CAPACITY * LONG_WAIT), stopped / CAPACITY],
            dtype=np.float32,
        )

    def _info(self) -> dict[str, Any]:
        assert self._simulator is not None
        now: Counts = self._simulator.counts().since(self._before)
        return {
            "seconds": self._elapsed,
            "waiting": _by_arm(self._lanes),
            "wait_per_car": now.waited / np.maximum(now.served, 1),
            "served": now.served,
            "refused": now.refused,
            "collisions": now.collisions,
            "teleports": now.teleports,
        }

    def _picture(self) -> UInt8[np.ndarray, "height width 3"]:
        from evenhand.envs.traffic.draw import draw

        assert self._simulator is not None
        simulator, counts = self._simulator, self._simulator.counts().since(self._before)
        return draw(simulator.cars(), self._phase, self._yellow, self._elapsed, _by_arm(simulator.lanes()), counts)

    def __getstate__(self) -> dict[str, Any]:
        """A simulation cannot be sent anywhere: the copy has to be reset."""
        return self.__dict__ | {"_simulator": None, "_begun": False, "_frames": []}


def _by_arm(lanes: Lanes) -> np.ndarray:
    """Seconds that the cars now on each arm have waited."""
    return lanes.waiting.reshape(len(ARMS), 2).sum(axis=1)


def _summary(info: dict[str, Any]) -> dict[str, float]:
    """What an episode came to, for tables."""
    found = {
        f"{what}, {arm}": float(info[name][i])
        for name, what in (
            ("wait_per_car", "wait per car served (s)"),
            ("served", "cars served"),
            ("refused", "cars refused"),
        )
        for i, arm in enumerate(ARMS)
    }
    return found | {"collisions": float(info["collisions"]), "teleports": float(info["teleports"])}


def _seconds(name: str, value: Any, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        why = ", the length of one decision" if least else ""
        raise InputError(f"{name} must be a whole number of seconds, at least {least}{why}, not {value!r}.")
    return value
