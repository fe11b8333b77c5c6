"""Several environments, stepped one after another into rows of shared buffers.

Worker processes import this module: it must not import JAX.
"""

from __future__ import annotations

import contextlib
from typing import Any, NamedTuple, NoReturn

import numpy as np
from gymnasium import spaces
from jaxtyping import Bool, Float32, Shaped

from evenhand.envs.gym.conversions import Conversions
from evenhand.envs.gym.failures import blamed, failed
from evenhand.errors import InputError


class Buffers(NamedTuple):
    """The rows of N environments; each step overwrites them."""

    action: Shaped[np.ndarray, "N *a"]
    observation: Float32[np.ndarray, "N O"]
    """After any reset."""
    outcome: Float32[np.ndarray, "N O+D"]
    """The observation the step led to, before any reset, and the rewards: side by side, to be checked as one."""
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]

    @property
    def final_observation(self) -> Float32[np.ndarray, "N O"]:
        """What the step led to, before any reset."""
        return self.outcome[:, : self.observation.shape[1]]

    @property
    def reward(self) -> Float32[np.ndarray, "N D"]:
        """What the step brought."""
        return self.outcome[:, self.observation.shape[1] :]

    def rows(self, start: int, stop: int) -> Buffers:
        """Some of the environments, sharing memory with all of them."""
        return Buffers(*(array[start:stop] for array in self))


class Layout(NamedTuple):
    """The shapes of the buffers of N environments, for processes that share them."""

    N: int
    O: int  # noqa: E741  (the number of entries of an observation, everywhere)
    D: int
    action_shape: tuple[int, ...]
    action_dtype: str

    def arrays(self) -> list[tuple[tuple[int, ...], np.dtype[Any]]]:
        """Shape and kind of number of each buffer."""
        N, O, D = self.N, self.O, self.D  # noqa: E741
        shapes = [(N, *self.action_shape), (N, O), (N, O + D), (N,), (N,)]
        kinds = [self.action_dtype, "float32", "float32", "bool", "bool"]
        return [(shape, np.dtype(kind)) for shape, kind in zip(shapes, kinds, strict=True)]

    @property
    def size(self) -> int:
        """Bytes for all of them."""
        return sum(_whole_lines(shape, kind) for shape, kind in self.arrays())

    def over(self, memory: Any) -> Buffers:
        """The buffers, in a piece of memory of `size` bytes."""
        views, offset = [], 0
        for shape, kind in self.arrays():
            views.append(np.frombuffer(memory, kind, int(np.prod(shape)), offset).reshape(shape))
            offset += _whole_lines(shape, kind)
        return Buffers(*views)


def _whole_lines(shape: tuple[int, ...], kind: np.dtype[Any]) -> int:
    """Bytes of an array, rounded up to cache lines."""
    return -(-int(np.prod(shape)) * kind.itemsize // 64) * 64


class Seeds(NamedTuple):
    """Which random numbers an environment gets: those of `seed`, its number and how often it had to be made anew."""

    seed: int
    number: int
    generation: int

    def draw(self) -> tuple[int, int]:
        """One for the environment and one for its action space; 31 bits, for simulators with signed seeds."""
        key = (self.number, self.generation) if self.generation else (self.number,)
        first, second = np.random.SeedSequence(self.seed, spawn_key=key).generate_state(2)
        return int(first >> 1), int(second >> 1)


class Stepper:
    """Environments that are stepped one after another, in this process, into rows of `buffers`."""

    def __init__(self, kind: Conversions, buffers: Buffers, seeds: list[Seeds]) -> None:
        self.kind = kind
        self._buffers = buffers
        self._seeds = seeds
        self._seeded = False
        self._steps = 0
        self._started = [0] * len(seeds)
        """When each environment's episode began."""
        space = kind.observe.space
        # Vectors of numbers, by far the commonest observation, are copied into their row as they are.
        plain = isinstance(space, spaces.Box) and len(space.shape) == 1 and kind.observe.scale is None
        self._plain_shape = space.shape if plain else None
        self._finals, self._rewards = buffers.final_observation, buffers.reward
        self._only_rewards = self._rewards[:, 0] if len(kind.objectives) == 1 else None
        self._finite = np.empty(buffers.outcome.shape, bool)
        self._envs: list[Any] = []
        for place in range(len(seeds)):
            with blamed(f"environment {seeds[place].number} of {kind.name} could not be made"):
                self._envs.append(kind.make())
        self._step_functions = [env.step for env in self._envs]

    def reset(self) -> None:
        """Begin every episode anew; the first time with the seeds."""
        for place, (env, seeds) in enumerate(zip(self._envs, self._seeds, strict=True)):
            self._started[place] = self._steps
            if self._seeded:
                self._buffers.observation[place] = self._first(place)
            else:
                seed, seed_of_actions = seeds.draw()
                env.action_space.seed(seed_of_actions)
                self._buffers.observation[place] = self._first(place, seed=seed)
        self._seeded = True

    def step(self) -> list[dict[str, Any]]:
        """Take the actions in the buffers, and restart what has ended; the infos of ended episodes."""
        actions, observations, outcomes, terminations, truncations = self._buffers
        finals, rewards, only_rewards = self._finals, self._rewards, self._only_rewards
        plain_shape, reward_shape = self._plain_shape, rewards.shape[1:]
        ended = []
        infos = []
        self._steps += 1
        terminations.fill(False)
        truncations.fill(False)
        for place, action in enumerate(self.kind.act(actions)):
            try:
                observation, reward, terminated, truncated, info = self._step_functions[place](action)
            except (Exception, SystemExit) as error:
                self._fail(place, "failed", error)
            # The commonest observations and rewards go straight into their rows, all others through a conversion. The
            # shapes must be looked at: NumPy would copy a single number to every entry without a word.
            if observation.__class__ is np.ndarray and observation.shape == plain_shape:
                finals[place] = observation
            else:
                finals[place] = self._observed(place, observation)
            if reward.__class__ is np.ndarray and reward.shape == reward_shape:
                rewards[place] = reward
            elif only_rewards is not None and isinstance(reward, float):
                only_rewards[place] = reward
            else:
                rewards[place] = self._reward(place, reward)
            if terminated or truncated:
                terminations[place] = terminated
                truncations[place] = truncated
                ended.append(place)
                infos.append(info)
        if not np.isfinite(outcomes, out=self._finite).all():
            self._blame()
        observations[:] = finals
        for place in ended:
            self._started[place] = self._steps
            observations[place] = self._first(place)
        return infos

    def close(self) -> None:
        """Close every environment, whatever they say."""
        for env in self._envs:
            with contextlib.suppress(Exception, SystemExit):
                env.close()
        self._envs, self._step_functions = [], []

    def _first(self, place: int, **seed: int) -> Float32[np.ndarray, " O"]:
        try:
            observation, _ = self._envs[place].reset(**seed)
        except (Exception, SystemExit) as error:
            self._fail(place, "could not be reset", error)
        vector = self._observed(place, observation)
        if not np.isfinite(vector).all():
            entry = int(np.argmin(np.isfinite(vector)))
            self._refuse(place, f"entry {entry} of the first observation is {vector[entry]}")
        return vector

    def _observed(self, place: int, observation: Any) -> Float32[np.ndarray, " O"]:
        try:
            return self.kind.observe(observation)
        except ValueError as error:
            self._refuse(place, str(error))

    def _reward(self, place: int, reward: Any) -> Float32[np.ndarray, " D"]:
        """One number is as good as a vector of one, where there is only one user."""
        D = len(self.kind.objectives)
        vector = None
        with contextlib.suppress(TypeError, ValueError):
            vector = np.asarray(reward, np.float32)
        if vector is None or not (vector.shape == (D,) or (D == 1 and vector.shape == ())):
            expected = "one number" if D == 1 else f"{D} numbers, one for each user"
            self._refuse(place, f"the reward should be {expected}, but is {reward!r}")
        return vector.reshape(D)

    def _blame(self) -> NoReturn:
        """Name the first number that is not finite."""
        place, entry = (int(i) for i in np.argwhere(~self._finite)[0])
        user = entry - self._finals.shape[1]
        names = self.kind.objectives
        if user < 0:
            which = f"entry {entry} of the observation"
        else:
            which = "the reward" if len(names) == 1 else f"component {user} of the reward ({names[user]})"
        self._refuse(place, f"{which} is {self._buffers.outcome[place, entry]}, which no agent can learn from")

    def _where(self, place: int) -> str:
        step = self._steps - self._started[place]
        return f"environment {self._seeds[place].number} of {self.kind.name}, step {step} of its episode"

    def _refuse(self, place: int, why: str) -> NoReturn:
        raise InputError(f"{self._where(place)} ({self._steps} in all): {why}.")

    def _fail(self, place: int, how: str, error: BaseException) -> NoReturn:
        if isinstance(error, InputError):
            self._refuse(place, str(error).removesuffix("."))
        raise failed(f"{self._where(place)} ({self._steps} in all): it {how}", error) from None
