"""The species model as a lean NumPy environment, with the summed reward for libraries that know one reward only.

Written to be quick with ten numbers, so that a peer does not wait for our JAX step. It knows nothing of evenhand: what
the model's constants are is told by `learning.species_constants`, as JSON. A test holds it against the original.
"""

import math
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

INTRODUCE, CONTROL, HALF = 1, 3, 4


class SpeciesNumpy(gymnasium.Env[np.ndarray, int]):
    """Linear response, linear reward and scaled observations only."""

    def __init__(self, constants: dict[str, Any], vector: bool = False) -> None:
        self.constants, self._vector = constants, vector
        self.reward_space = spaces.Box(0.0, np.inf, (2,) if vector else ())
        self._leslie = np.array(constants["leslie"])
        self._poaching = [tuple(pair) for pair in constants["poaching_shares"]]
        self._start = np.array(constants["initial_ages"])
        self._scales = np.array(constants["scales"])
        self._capacity = constants["otter_capacity"]
        self._level = constants["culling_level"] * self._capacity
        self._K, self._r = constants["carrying_density"], constants["growth_rate"]
        self._d_max, self._p_max = constants["eating"]
        self._days_per_area = constants["days"] / constants["area"]
        self.observation_space = spaces.Box(0.0, np.array(constants["high"], np.float32))
        self.action_space = spaces.Discrete(len(self._poaching))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self._ages, self._otters, self._year = self._start, float(self.constants["initial_otters"]), 0
        return self._observe(), {}

    def step(self, action: int) -> tuple[np.ndarray, Any, bool, bool, dict[str, Any]]:
        random = self.np_random.random
        self._ages, self._otters, density = self.year(self._ages, self._otters, int(action), random(), random())
        self._year += 1
        reward: Any = self._otters / self._capacity + density
        if self._vector:
            reward = np.array([self._otters / self._capacity, density], np.float32)
        return self._observe(), reward, False, self._year >= self.constants["episode_steps"], {}

    def year(
        self, ages: np.ndarray, otters: float, action: int, spill: float, luck: float
    ) -> tuple[np.ndarray, float, float]:
        """The ages, the otters and the density of abalone after a year, given its two random numbers."""
        c = self.constants
        if action == INTRODUCE and not (c["forbid_reintroduction"] and otters > 0):
            otters = float(c["introduced_otters"])
        if otters:
            otters = min(otters * math.exp(c["otter_growth"] * (1 - otters / self._capacity)), self._capacity)
            if spill < c["spill_probability"]:
                fewest, most = c["spill_deaths"]
                otters *= 1 - fewest - (most - fewest) / c["spill_probability"] * spill
                if otters < c["extinct_below"]:
                    otters = 0.0
            if otters > self._level and action in (CONTROL, HALF):
                otters -= (otters - self._level) * (1.0 if action == CONTROL else 0.5)

        density = float(np.add.reduce(ages))
        ages = (self._r * self._K / ((self._r - 1) * density + self._K)) * (self._leslie @ ages)
        density = float(np.add.reduce(ages))
        if otters:
            eaten = self._p_max * min(density / self._d_max, 1.0)
            removed = min(otters * eaten * self._days_per_area, density)
            ages = np.maximum(ages - 0.1 * removed, 0.0)
            ages *= (density - removed) / max(float(np.add.reduce(ages)), 1e-30)
            density -= removed
        share = c["scarce_poaching"] if density < c["scarce_density"] else self._poaching[action][luck <= 0.5]
        return ages * (1 - share), otters, density * (1 - share)

    def _observe(self) -> np.ndarray:
        seen = np.empty(11, np.float32)
        np.multiply(self._ages, self._scales[:10], out=seen[:10], casting="unsafe")
        seen[10] = self._otters / self._capacity
        return seen
