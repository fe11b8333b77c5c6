"""The traffic light as a Gymnasium environment with a reward for each arm of the junction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from jaxtyping import Float32, UInt8

from evenhand.envs.traffic.demand import Demand
from evenhand.envs.traffic.installation import check_installed
from evenhand.envs.traffic.junction import ARMS, CAPACITY, PHASES, Counts, Lanes, Simulator
from evenhand.envs.traffic.network import ROADS
from evenhand.envs.traffic.policies import BASELINES
from evenhand.envs.traffic.scenario import LONG_WAIT, Scenario
from evenhand.errors import InputError

BACKENDS = ("sumo", "standin")
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

    backend: Literal["sumo", "standin"] = "sumo"
    """sumo; or standin, a compiled model of the same junction, for many and quick runs (see docs/traffic.md)."""
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
    baselines = BASELINES

    def __post_init__(self) -> None:
        if self.render_mode not in (None, *self.metadata["render_modes"]):
            raise InputError(f'render_mode must be "rgb_array", "rgb_array_list" or None, not {self.render_mode!r}.')
        if self.roads not in ROADS:
            raise InputError(f"roads must be {' or '.join(ROADS)}, not {self.roads!r}.")
        if self.backend not in BACKENDS:
            raise InputError(f"backend must be {' or '.join(BACKENDS)}, not {self.backend!r}.")
        if self.backend == "sumo":
            check_installed()
        self._scenario = Scenario.of(
            self.demand, self.timing, self.yellow, self.green, self.kept, self.episode_seconds, self.warm_up
        )
        largest = self._scenario.largest_observation
        self.observation_space = spaces.Box(np.zeros_like(largest), largest, dtype=np.float32)
        self.action_space = spaces.Discrete(len(PHASES))
        self.reward_space = spaces.Box(self._scenario.worst_reward, 0, (len(ARMS),), np.float32)
        self.reward_dim = len(ARMS)
        self._simulator: Simulator | None = None
        self._begun = False
        self._phase, self._yellow, self._elapsed = 0, False, 0
        self._frames: list[UInt8[np.ndarray, "height width 3"]] = []

    @property
    def one_per_process(self) -> bool:
        """SUMO keeps its state in global variables."""
        return self.backend == "sumo"

    def as_pure(self) -> Any:
        """The stand-in as a pure environment with the same settings, so that whole runs can be compiled; else None."""
        if self.backend == "sumo":
            return None
        from evenhand.envs.traffic.standin_env import StandinEnv

        return StandinEnv(self._scenario)

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
        for turn in range(self._scenario.warm_up_turns):
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
        usual = isinstance(action, int | np.integer) and 0 <= action < len(PHASES)  # faster than to ask the space
        if not usual and not self.action_space.contains(action):
            raise InputError(
                f"the action must be one of 0 to {len(PHASES) - 1}, for {', '.join(PHASES)}, not {action!r}."
            )
        self._decide(int(action))
        self._lanes = self._simulator.lanes()
        info = self._info()
        truncated = self._elapsed >= self._scenario.seconds
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
        scenario = self._scenario
        if self.backend == "standin":
            from evenhand.envs.traffic.standin_env import StandinJunction

            return StandinJunction(scenario.demand, scenario.warmed_up)
        from evenhand.envs.traffic.sumo import SumoJunction

        return SumoJunction(scenario, self.roads)

    def _decide(self, phase: int) -> None:
        """The lights of one decision."""
        yellow, green, kept = self._scenario.timing
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
        seen = np.zeros(len(PHASES) + 2 * len(waiting), np.float32)
        seen[self._phase] = 1
        seen[len(PHASES) : -len(stopped)] = waiting / (CAPACITY * LONG_WAIT)
        seen[-len(stopped) :] = stopped / CAPACITY
        return seen

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
