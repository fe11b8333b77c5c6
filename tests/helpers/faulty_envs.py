"""Environments with one fault each, and a few sound ones to compare them with."""

from __future__ import annotations

import os
import random
import signal
import time
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

D = 3
LIMIT = 20


class Sound(gymnasium.Env):
    """Three users; a walk on five places that is cut off after twenty steps."""

    metadata = {"render_modes": []}  # noqa: RUF012  (Gymnasium's own convention)
    objectives = ("ann", "bob", "cem")

    def __init__(self, size: int = 5, wind: float = 0.1) -> None:
        self.size = size
        self.wind = wind
        self.observation_space: Any = spaces.Box(0, 1, (size,), np.float32)
        self.action_space: Any = spaces.Discrete(2)
        self.reward_space: Any = spaces.Box(-1, 1, (D,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        self.place = int(self.np_random.integers(self.size))
        return self.observe(), {}

    def step(self, action: Any) -> Any:
        self.time += 1
        move = 2 * int(action) - 1 if self.np_random.random() >= self.wind else 0
        self.place = (self.place + move) % self.size
        return self.observe(), self.reward(), False, self.time >= LIMIT, {"time": self.time}

    def observe(self) -> Any:
        observation = np.zeros(self.size, np.float32)
        observation[self.place] = 1
        return observation

    def reward(self) -> Any:
        return np.array([self.place == 0, self.place == 1, -(self.place == 2)], np.float32)


class ScalarReward(Sound):
    def __init__(self) -> None:
        super().__init__()
        del self.reward_space

    def reward(self) -> Any:
        return float(super().reward().sum())


class NoRewardSpace(Sound):
    def __init__(self) -> None:
        super().__init__()
        del self.reward_space


class WrongRewardLength(Sound):
    """Two rewards from the fourth step on, where three are declared."""

    def reward(self) -> Any:
        return super().reward()[: 3 if self.time < 4 else 2]


class OneRewardForThree(Sound):
    def reward(self) -> Any:
        return 1.0


class RewardAsList(Sound):
    def reward(self) -> Any:
        return [float(r) for r in super().reward()]


class RewardOfText(Sound):
    def reward(self) -> Any:
        return ["much", "little", "none"]


class RewardOutsideSpace(Sound):
    def reward(self) -> Any:
        return super().reward() + np.float32(5)


class NanReward(Sound):
    """The second user's reward is not a number in the seventh step."""

    def reward(self) -> Any:
        reward = super().reward()
        if self.time == 7:
            reward[1] = np.nan
        return reward


class InfiniteObservation(Sound):
    def observe(self) -> Any:
        observation = super().observe()
        if self.time == 5:
            observation[2] = np.inf
        return observation


class NanFirstObservation(Sound):
    def observe(self) -> Any:
        return super().observe() * (np.nan if self.time == 0 else 1)


class ObservationOutsideSpace(Sound):
    def observe(self) -> Any:
        return super().observe() * np.float32(3)


class ObservationOfWrongShape(Sound):
    def observe(self) -> Any:
        return super().observe()[:1] if self.time == 3 else super().observe()


class ObservationOfWrongDtype(Sound):
    def observe(self) -> Any:
        return super().observe().astype(np.float64)


class SameArray(Sound):
    """Changes and returns one and the same array."""

    def __init__(self) -> None:
        super().__init__()
        self.array = np.zeros(self.size, np.float32)

    def observe(self) -> Any:
        self.array[:] = super().observe()
        return self.array


class DictActions(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Dict({"left": spaces.Discrete(2), "right": spaces.Discrete(2)})


class UnboundedActions(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)


class ManyCombinations(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([32, 33])


class TextObservations(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.observation_space = spaces.Dict({"note": spaces.Text(5), "place": spaces.Discrete(5)})


class IgnoresSeed(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=int.from_bytes(os.urandom(4), "little"))


class LeftOvers(Sound):
    """Begins where the last episode ended, whatever the seed."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        before = getattr(self, "place", None)
        super().reset(seed=seed)
        self.place = self.place if before is None else (before + 1) % self.size
        return self.observe(), {}


class GlobalRandomness(Sound):
    """Draws from NumPy's global generator rather than its own."""

    def step(self, action: Any) -> Any:
        if np.random.random() < 0.5:  # noqa: NPY002  (the fault)
            action = 1 - action
        return super().step(action)


class GlobalPythonRandomness(Sound):
    def step(self, action: Any) -> Any:
        return super().step(action if random.random() < 0.5 else 1 - action)


class NeverEnds(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class TerminatesAtTimeLimit(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.time >= LIMIT, False, info


class BothAtTimeLimit(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.time >= LIMIT, self.time >= LIMIT, info


class ResetWithoutInfo(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed=seed)[0]


class ResetWithoutSeed(Sound):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class FourValues(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        return observation, reward, terminated or truncated, info


class UnequalUsers(Sound):
    def __init__(self) -> None:
        super().__init__()
        self.reward_space = spaces.Box(-1000, 1000, (D,), np.float32)

    def reward(self) -> Any:
        return super().reward() * np.array([1000, 1, 1], np.float32)


class FailsInStep(Sound):
    def step(self, action: Any) -> Any:
        if self.time == 4:
            raise ZeroDivisionError("the wheel came off")
        return super().step(action)


class FailsInReset(Sound):
    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        raise OSError("no simulator to be found")


class FailsToBeMade(Sound):
    def __init__(self) -> None:
        raise OSError("no simulator to be found")


class WrongObjectives(Sound):
    objectives = ("ann", "bob")


class NoStepFunction(Sound):
    step = None  # type: ignore[assignment]


class DiesInStep(Sound):
    """Its process is killed in the fourth step of every episode."""

    def step(self, action: Any) -> Any:
        if self.time == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


class TellsItsProcess(Sound):
    """The info of an ended episode names the process, and something that cannot be sent."""

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, _ = super().step(action)
        return observation, reward, terminated, truncated, {"pid": os.getpid(), "function": lambda: None}


class Slow(Sound):
    def step(self, action: Any) -> Any:
        time.sleep(0.05)
        return super().step(action)


class Hangs(Sound):
    def step(self, action: Any) -> Any:
        time.sleep(1000)
        return super().step(action)


class Vectors(Sound):
    """Actions are vectors of another shape and kind; returns what it was given as its observation."""

    def __init__(self, dtype: str = "float64") -> None:
        super().__init__()
        self.action_space = spaces.Box(np.full((2, 2), -2), np.full((2, 2), 3), (2, 2), np.dtype(dtype).type)
        self.observation_space = spaces.Box(-5, 5, (2, 2), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros((2, 2)), {}

    def step(self, action: Any) -> Any:
        assert action in self.action_space, action
        _, reward, _, truncated, info = super().step(0)
        return action.astype(float), reward, False, truncated, info


class Numbers(Sound):
    """Many kinds of observation; actions count from 5."""

    def __init__(self) -> None:
        super().__init__()
        self.action_space = spaces.Discrete(3, start=5)
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (2, 2, 1), np.uint8),
                "place": spaces.Discrete(3, start=-1),
                "pair": spaces.Tuple((spaces.MultiBinary(2), spaces.MultiDiscrete([2, 3]))),
            }
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.action_space.seed(seed)
        return self.observe(), {}

    def observe(self) -> Any:
        return {
            "image": np.full((2, 2, 1), 51, np.uint8),
            "place": np.int64(-1),
            "pair": (np.array([1, 0], np.int8), np.array([0, 2])),
        }

    def step(self, action: Any) -> Any:
        assert action in self.action_space, action
        return super().step(action - 5 if action < 7 else 0)


class Switches(Sound):
    """Several actions at once; the info says which."""

    def __init__(self, space: Any = None) -> None:
        super().__init__()
        self.action_space = spaces.MultiDiscrete([2, 3], start=[0, 10]) if space is None else space

    def step(self, action: Any) -> Any:
        assert action in self.action_space, action
        observation, reward, terminated, truncated, info = super().step(0)
        return observation, reward, terminated, truncated, info | {"action": action}
