"""Stepping other people's environments: conversions, and several environments one after another.

Worker processes import this module and nothing heavier: it must not import JAX, not even by way of `evenhand.types`.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import math
import os
import select
import signal
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from jaxtyping import Bool, Float32, Shaped

from evenhand import children
from evenhand.errors import InputError, visible

MOST_COMBINATIONS = 1024
"""Actions of several parts are enumerated up to this many combinations."""


class EnvironmentFailed(InputError):
    """An environment raised an error of its own: a sentence says where, and below it stand the lines that did it.

    full: the whole traceback, evenhand's part of it too.
    """

    def __init__(self, message: str, full: str = "") -> None:
        super().__init__(message)
        self.full = visible(full)
        self.args = (*self.args, self.full)  # with which processes send it to each other

    def __str__(self) -> str:
        return str(self.args[0])


NOT_THEIRS = (
    str(Path(__file__).parents[1]),
    *(str(Path(module.__file__ or "").parent) for module in (gymnasium, importlib)),
    "<frozen importlib",
)
"""Whose lines are left out of the tracebacks of people's environments: evenhand's own, and those of what is between."""


@contextlib.contextmanager
def blamed(place: str) -> Iterator[None]:
    """Whatever an environment raises inside, also to end the program, becomes an `EnvironmentFailed` (see `failed`)."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise failed(place, error) from None


def failed(place: str, error: BaseException) -> EnvironmentFailed:
    """What to raise in place of an environment's own error. place: the beginning of a sentence, as in "step 3"."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SystemExit):
        said = (
            f"it called sys.exit({'' if error.code is None else repr(error.code)}), and only the program may end itself"
        )
    theirs = traceback.TracebackException.from_exception(error)
    full = "".join(theirs.format())
    _keep_theirs(theirs)
    lines = "".join(theirs.format()).rstrip()
    return EnvironmentFailed(f"{place}: {said}." + (f"\n\n{lines}" if '  File "' in lines else ""), full)


def _keep_theirs(error: traceback.TracebackException) -> None:
    """Leave out the lines that are not theirs, also from what led to the error."""
    theirs = [frame for frame in error.stack if not frame.filename.startswith(NOT_THEIRS)]
    error.stack = traceback.StackSummary.from_list(theirs)
    for other in (error.__cause__, error.__context__, *(error.exceptions or ())):
        if other is not None:
            _keep_theirs(other)


@dataclass(frozen=True)
class Registered:
    """Makes an environment from its entry in Gymnasium's registry, which other processes need not have filled in."""

    spec: EnvSpec
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self) -> gymnasium.Env[Any, Any]:
        """A new environment, with the time limit it was registered with."""
        # Gymnasium's own checker refuses vector rewards; evenhand.envs.check has one that does not.
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


# Worker processes

STEP, RESET = b"s", b"r"
DONE, MORE = b".", b"+"
"""What a worker answers: that it is done, and whether an object follows."""
LAST_GRACE = 0.5
"""Seconds that a step may still take when the parent process has died."""


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


def tell(connection: Any, signal: bytes) -> None:
    """Send one byte."""
    if os.name == "posix":  # a byte in a pipe takes a quarter of the time that a message does
        os.write(connection.fileno(), signal)
    else:
        connection.send_bytes(signal)


def waiting_for(connection: Any) -> Callable[[float | None], Any]:
    """What waits until something can be heard, so many seconds or for ever, and says whether; Ctrl-C interrupts it.

    Reading alone would not do: where a library has taken hold of Ctrl-C, as Polars does, the system goes on reading.
    """
    if os.name != "posix":
        return lambda seconds: connection.poll(seconds)
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return lambda seconds: poll.poll(None if seconds is None else math.ceil(1000 * seconds))


def hear(connection: Any) -> bytes:
    """Wait for one byte; an EOFError if there is nobody at the other end."""
    heard = os.read(connection.fileno(), 1) if os.name == "posix" else connection.recv_bytes()
    if not heard:
        raise EOFError
    return bytes(heard)


def serve(commands: Any, answers: Any, kind: Conversions, layout: Layout, memory: Any, seeds: list[Seeds]) -> None:
    """The life of a worker process: step its rows when told to, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    children.leave_with_parent(LAST_GRACE)  # even if an environment hangs
    stepper = None
    try:
        first = seeds[0].number
        stepper = Stepper(kind, layout.over(memory).rows(first, first + len(seeds)), seeds)
        while True:
            if hear(commands) == STEP:
                infos = stepper.step()
                if infos:
                    _send_infos(answers, infos)
                    continue
            else:
                stepper.reset()
            tell(answers, DONE)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the parent has closed its end, or died
        pass
    except Exception as error:
        with contextlib.suppress(OSError):
            tell(answers, MORE)
            answers.send(error)
    finally:
        if stepper is not None:
            stepper.close()


def _send_infos(answers: Any, infos: list[dict[str, Any]]) -> None:
    tell(answers, MORE)
    try:
        message = ForkingPickler.dumps(infos)
    except Exception:
        message = ForkingPickler.dumps(sendable(infos))
    answers.send_bytes(message)  # this is all that `send` does


def sendable(infos: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Infos hold someone else's objects: those that cannot be sent to another process are left out."""
    return [{key: value for key, value in info.items() if _can_be_sent(value)} for info in infos]


def _can_be_sent(value: Any) -> bool:
    try:
        ForkingPickler.dumps(value)
    except Exception:
        return False
    return True
