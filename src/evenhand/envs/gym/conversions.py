"""Between Gymnasium's spaces and vectors: observations, actions, and how environments are made.

Worker processes import this module: it must not import JAX, not even by way of `evenhand.types`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from jaxtyping import Float32, Shaped

from evenhand.errors import InputError

MOST_COMBINATIONS = 1024
"""Actions of several parts are enumerated up to this many combinations."""


@dataclass(frozen=True)
class Registered:
    """Makes an environment from its entry in Gymnasium's registry, which other processes need not have filled in."""

    spec: EnvSpec
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """A new environment, with the time limit it was registered with."""
        # Gymnasium's own checker refuses vector rewards; evenhand.envs.check.check_host has one that does not.
        return gymnasium.make(self.spec, disable_env_checker=True, **self.arguments)


CUT_OFF = "cut off"
"""In the info of an episode that nothing but `EndsAfter` has ended."""


class EndsAfter(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cuts off episodes that nothing else ends, and says so."""

    def __init__(self, env: gymnasium.Env[Any, Any], steps: int) -> None:
        super().__init__(env)
        self._most, self._steps = steps, 0

    def reset(self, **options: Any) -> Any:
        """Begin to count anew."""
        self._steps = 0
        return self.env.reset(**options)

    def step(self, action: Any) -> Any:
        """Count."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if self._steps < self._most or terminated or truncated:
            return observation, reward, terminated, truncated, info
        return observation, reward, False, True, {**info, CUT_OFF: True}


@dataclass(frozen=True)
class Ending:
    """Makes environments whose episodes end after so many steps at most."""

    make: Callable[[], Any]
    steps: int

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """A new environment."""
        return EndsAfter(self.make(), self.steps)


# Observations


@dataclass(frozen=True)
class Observe:
    """Turns observations of a space into float32 vectors: one-hot whole numbers, 0 … 255 becomes 0 … 1."""

    space: spaces.Space[Any]
    low: Float32[np.ndarray, " O"]
    high: Float32[np.ndarray, " O"]
    scale: Float32[np.ndarray, " O"] | None

    @staticmethod
    def of(space: Any) -> Observe:
        """Refuses spaces whose observations are no vectors of a fixed length."""
        _check_flat(space)
        flat = spaces.flatten_space(space)
        assert isinstance(flat, spaces.Box)
        if flat.shape == (0,):
            raise InputError("the observation has no entries: give the agent at least one number to look at.")
        scale = _scale(space)
        with np.errstate(over="ignore"):  # bounds beyond float32 are as good as infinite
            low, high = (np.array(bound, np.float32) * scale for bound in (flat.low, flat.high))
        return Observe(space, low, high, None if (scale == 1).all() else scale)

    def __call__(self, observation: Any) -> Float32[np.ndarray, " O"]:
        """The vector; a ValueError if the observation cannot be one of the space."""
        if isinstance(self.space, spaces.Box):
            array = np.asarray(observation)
            if array.shape != self.space.shape:
                raise ValueError(f"the observation has shape {array.shape}, but its space {self.space.shape}")
            flat = array.reshape(-1)
        else:
            try:
                flat = np.asarray(spaces.flatten(self.space, observation))
            except Exception as error:
                raise ValueError(f"the observation {observation!r} does not fit {self.space}: {error}") from error
        vector = np.array(flat, np.float32)
        return vector if self.scale is None else vector * self.scale


def _check_flat(space: Any) -> None:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.values() if isinstance(space, spaces.Dict) else space.spaces:
            _check_flat(part)
    elif not isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
        raise InputError(
            f"observations of {space} are not vectors of a fixed length: use a Box, or wrap the environment in "
            "gymnasium.wrappers.TransformObservation to turn them into one."
        )


def _scale(space: Any) -> Float32[np.ndarray, " O"]:
    """What to multiply the flattened observation by: images of bytes become numbers from 0 to 1."""
    if isinstance(space, spaces.Dict | spaces.Tuple):
        parts = list(space.values()) if isinstance(space, spaces.Dict) else list(space.spaces)
        return np.concatenate([_scale(part) for part in parts]) if parts else np.ones(0, np.float32)
    bytes_ = isinstance(space, spaces.Box) and space.dtype == np.uint8
    return np.full(spaces.flatdim(space), 1 / 255 if bytes_ else 1, np.float32)


# Actions: from whole numbers [N] or float32 vectors [N, A] to a list of what N environments expect


@dataclass(frozen=True)
class Numbered:
    """Whole numbers that count from `start`."""

    n: int
    start: int
    dtype: Any

    def __call__(self, actions: Shaped[np.ndarray, " N"]) -> list[Any]:
        """NumPy integers, which is also what the space's own `sample` gives."""
        if self.start or actions.dtype != self.dtype:
            actions = (actions + self.start).astype(self.dtype)
        return list(actions)


@dataclass(frozen=True)
class Enumerated:
    """Every combination of an action's parts, by its number."""

    table: Shaped[np.ndarray, "n ..."]

    @property
    def n(self) -> int:
        """How many combinations."""
        return len(self.table)

    def __call__(self, actions: Shaped[np.ndarray, " N"]) -> list[Any]:
        """Rows of the table."""
        return list(self.table[actions])


@dataclass(frozen=True)
class Bounded:
    """Vectors, clipped to the bounds."""

    low: Shaped[np.ndarray, "..."]
    high: Shaped[np.ndarray, "..."]

    def __call__(self, actions: Shaped[np.ndarray, "N A"]) -> list[Any]:
        """Arrays of the space's shape and kind of number."""
        if not np.isfinite(actions).all():
            raise InputError("the agent's action is not a finite number: training has diverged; try a smaller step.")
        dtype = self.low.dtype
        wide = actions.reshape(len(actions), *self.low.shape)
        if dtype.kind != "f":
            # A double holds every whole number that matters, and clipping first keeps the cast from overflowing.
            return list(np.clip(np.rint(wide.astype(np.float64)), self.low, self.high).astype(dtype))
        return list(np.clip(wide.astype(dtype), self.low, self.high))


Act = Numbered | Enumerated | Bounded


def act_of(space: Any) -> Act:
    """How an agent's actions become the space's; refuses spaces that are neither numbers nor bounded vectors."""
    if isinstance(space, spaces.Discrete):
        return Numbered(int(space.n), int(space.start), np.dtype(space.dtype))
    if isinstance(space, spaces.MultiBinary | spaces.MultiDiscrete):
        if isinstance(space, spaces.MultiDiscrete):
            sizes, start = [int(n) for n in np.ravel(space.nvec)], space.start
        else:
            sizes, start = [2] * int(np.prod(space.shape)), np.zeros(space.shape, space.dtype)
        combinations = math.prod(sizes)
        if combinations > MOST_COMBINATIONS:
            many = f"{combinations:,}" if combinations < 10**12 else "very many"
            raise InputError(
                f"the action space {space} has {many} combinations, and at most {MOST_COMBINATIONS:,} can be numbered: "
                "give each part its own environment step, or use a Box."
            )
        table = np.array(list(itertools.product(*(range(n) for n in sizes))), space.dtype)
        return Enumerated((table.reshape(-1, *space.shape) + start).astype(space.dtype))
    if isinstance(space, spaces.Box):
        if not space.is_bounded("both"):
            raise InputError(
                f"the action space {space} has infinite bounds: give it finite ones, or wrap the environment in "
                "gymnasium.wrappers.RescaleAction or TransformAction."
            )
        return Bounded(space.low, space.high)
    raise InputError(
        f"actions of {space} are neither whole numbers nor vectors: wrap the environment in "
        "gymnasium.wrappers.TransformAction, so that its actions are a Discrete or a Box."
    )


# Several environments, one after another


class Conversions(NamedTuple):
    """What is needed to make and step environments of one kind."""

    name: str
    make: Callable[[], Any]
    observe: Observe
    act: Act
    objectives: tuple[str, ...]
