"""N copies of somebody's environment, stepped together: in this process, or in spawned worker processes."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import multiprocessing
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float32

from evenhand import children
from evenhand.envs.gym.conversions import Conversions
from evenhand.envs.gym.failures import EnvironmentFailed
from evenhand.envs.gym.host_env import HostEnv
from evenhand.envs.gym.stepper import Buffers, Layout, Seeds, Stepper
from evenhand.envs.gym.worker import MORE, RESET, STEP, hear, serve, tell, waiting_for
from evenhand.errors import InputError, Say
from evenhand.types import Box

RESTARTS_IN_A_ROW = 3
LONGEST = 1e8
"""Seconds, about three years: what systems can wait for is bounded."""
CALM = 100
"""A worker process that has done this many steps since its last restart is trusted again."""
PATIENCE = 5.0
"""Seconds that worker processes have to close their environments."""
STARTING = 60.0
"""Seconds that a new worker process has to start and to make its environments, where a step has a time limit."""


class VectorStep(NamedTuple):
    """What one step of N environments leads to; the arrays are the caller's to keep."""

    observation: Float32[np.ndarray, "N O"]
    """What to act on next: where an episode has ended, the first observation of the next one."""
    reward: Float32[np.ndarray, "N D"]
    terminated: Bool[np.ndarray, " N"]
    truncated: Bool[np.ndarray, " N"]
    final_observation: Float32[np.ndarray, "N O"]
    """What the step led to, before any reset."""
    info: list[dict[str, Any]]
    """The infos of the episodes that ended in this step, in the order of their environments."""


class VectorEnv:
    """N environments with automatic resets.

    workers: 0 steps them one after another in this process, which is fastest where a step takes less than about 50 µs;
        k spawns k processes that share them. For the same seed both give the same numbers. An environment of which a
        process can hold only one always has one of its own, whatever is asked; so have several in real time.
    warn: what to do with a sentence about a worker process that had to be restarted; by default it is logged.
    start: what starts a worker process, by default on this machine. With it there are worker processes in any case, one
        for each environment if `workers` is 0.
    step_timeout: seconds that an environment may take for a step, and again for a reset. A worker process that gives no
        answer in that time for each of its environments is taken for hung, and treated like one that has died: it is
        ended, its episodes are cut off, and another takes its place. With it there is a worker process in any case.
    """

    def __init__(
        self,
        env: HostEnv,
        N: int,
        seed: int,
        workers: int = 0,
        warn: Say | None = None,
        start: Start | None = None,
        step_timeout: float | int | None = None,
    ) -> None:
        if N < 1 or workers < 0 or seed < 0:
            raise InputError(f"N must be at least 1, seed and workers at least 0, not {N}, {seed} and {workers}.")
        check_timeout(step_timeout)
        self.env = env
        self.N = N
        actions = env.action_space
        shape, dtype = ((actions.n,), "float32") if isinstance(actions, Box) else ((), "int64")
        layout = Layout(N, env.observation_space.n, env.D, shape, dtype)
        self._stepping: _Stepping
        if env.one_per_process or (env.real_time and N > 1) or (start is not None and not workers):
            workers = N
        if step_timeout is not None:
            workers = max(workers, 1)
        if workers:
            env.check_picklable()
            warn = warn or logging.getLogger("evenhand").warning
            self._stepping = _Workers(env, layout, seed, min(workers, N), warn, start or _Process, step_timeout)
        else:
            self._stepping = _Here(env, layout, seed)
        buffers = self._stepping.buffers
        self._outcome = (
            buffers.observation,
            buffers.reward,
            buffers.terminated,
            buffers.truncated,
            buffers.final_observation,
        )
        self._usable = False
        self._finalizer = weakref.finalize(self, self._stepping.close)

    def reset(self) -> Float32[np.ndarray, "N O"]:
        """Begin N episodes; called again, the environments go on with the random numbers they have."""
        self._usable = False
        self._stepping.reset()
        self._usable = True
        return self._stepping.buffers.observation.copy()

    def step(self, actions: Any) -> VectorStep:
        """Take one action in each environment: `[N]` whole numbers or `[N, A]` numbers, by the action space."""
        buffers = self._stepping.buffers
        actions = np.asarray(actions)
        if actions.shape != buffers.action.shape:
            raise InputError(f"the actions have shape {actions.shape}, not {buffers.action.shape}.")
        if not self._usable:
            raise InputError("call reset() first: a new VectorEnv has no episodes, and a step that fails ends them.")
        buffers.action[...] = actions
        self._usable = False  # an error or an interrupt in the middle leaves some environments a step ahead
        infos = self._stepping.step()
        self._usable = True
        observation, reward, terminated, truncated, final = [array.copy() for array in self._outcome]
        return VectorStep(observation, reward, terminated, truncated, final, infos)

    def close(self) -> None:
        """Close all environments and end the worker processes."""
        self._usable = False
        self._finalizer()

    def __enter__(self) -> VectorEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_timeout(seconds: float | int | None) -> None:
    """Refuse what is no time."""
    if seconds is not None and not 0 < seconds <= LONGEST:
        raise InputError(f"step_timeout must be a positive number of seconds, at most {LONGEST:.0e}, not {seconds}.")


class _Stepping(Protocol):
    buffers: Buffers

    def reset(self) -> None: ...
    def step(self) -> list[dict[str, Any]]: ...
    def close(self) -> None: ...


class _Here:
    """All environments in this process."""

    def __init__(self, env: HostEnv, layout: Layout, seed: int) -> None:
        self.buffers = layout.over(bytearray(layout.size))
        stepper = Stepper(env.conversions, self.buffers, [Seeds(seed, i, 0) for i in range(layout.N)])
        self.reset, self.step, self.close = stepper.reset, stepper.step, stepper.close


class Remote(Protocol):
    """A process that steps some of the environments, as seen from here."""

    def tell(self, command: bytes) -> None:
        """Have it `RESET` or `STEP` its rows; that it has died is noticed when it does not answer."""

    def hear(self, timeout: float | None) -> Any:
        """Wait until it has; the infos of episodes that ended.

        Raises what it raised, EOFError if it has died, TimeoutError if it has not answered within so many seconds.
        """

    def hang_up(self) -> None:
        """Have it close its environments and leave."""

    def end(self, patience: float) -> str:
        """Wait until it has left, for so many seconds, or else end it; and say how."""


Start = Callable[[Conversions, Layout, Any, list[Seeds]], Remote]
"""Starts a process for the environments with these seeds, whose rows lie in a piece of memory with that layout."""


class _Worker:
    """The rows that one process after another is responsible for."""

    def __init__(self, start: int, stop: int) -> None:
        self.rows = slice(start, stop)
        self.remote: Any = None
        self.generation = -1
        self.restarts_in_a_row = 0
        self.steps_since_restart = 0
        self.has_answered = False
        """Any of its processes."""
        self.is_new = True
        """Whether the process has not answered yet."""
        self.asked_at: float | None = None
        """Since when an answer is owed."""

    @property
    def size(self) -> int:
        """How many environments it steps."""
        return int(self.rows.stop - self.rows.start)

    def tell(self, command: bytes) -> None:
        """Ask for an answer."""
        self.asked_at = time.monotonic()
        self.remote.tell(command)

    def end(self, since: float) -> str:
        """Wait until its process, told to at some time, has left, but hardly if it is at something; how it ended."""
        remote, self.remote = self.remote, None
        patience = PATIENCE if self.asked_at is None else children.HURRY
        return str(remote.end(max(0.0, since + patience - time.monotonic())))


class _Workers:
    """Processes, each with some of the environments; those that die or hang are replaced."""

    def __init__(
        self,
        env: HostEnv,
        layout: Layout,
        seed: int,
        count: int,
        warn: Say,
        start: Start,
        step_timeout: float | int | None,
    ) -> None:
        self._env, self._layout, self._seed, self._warn, self._start_one = env, layout, seed, warn, start
        self._step_timeout = step_timeout
        self._memory = multiprocessing.get_context("spawn").RawArray(ctypes.c_byte, layout.size)
        self.buffers = layout.over(self._memory)
        self._previous = np.zeros_like(self.buffers.observation)
        bounds = [layout.N * k // count for k in range(count + 1)]
        self._workers = [_Worker(*pair) for pair in itertools.pairwise(bounds)]
        try:
            for worker in self._workers:
                self._start(worker)
        except BaseException:
            self.close()
            raise

    def reset(self) -> None:
        for worker in self._workers:
            worker.tell(RESET)
        for worker in self._workers:
            problem, _ = self._answer(worker)
            if problem:
                self._restart(worker, problem)

    def step(self) -> list[dict[str, Any]]:
        np.copyto(self._previous, self.buffers.observation)
        for worker in self._workers:
            worker.tell(STEP)
        infos: list[dict[str, Any]] = []
        for worker in self._workers:
            problem, answer = self._answer(worker)
            if not problem:
                worker.steps_since_restart += 1
                if answer is not None:
                    infos.extend(answer)
            else:
                self._restart(worker, problem)
                self._cut_off(worker.rows)
                infos.extend({"lost": f"its worker process {problem}"} for _ in range(worker.size))
        return infos

    def close(self) -> None:
        started = [worker for worker in self._workers if worker.remote is not None]
        for worker in started:
            worker.remote.hang_up()
        now = time.monotonic()
        for worker in started:
            worker.end(now)

    def _start(self, worker: _Worker) -> None:
        worker.generation += 1
        worker.is_new, worker.asked_at = True, None
        seeds = [Seeds(self._seed, number, worker.generation) for number in range(worker.rows.start, worker.rows.stop)]
        worker.remote = self._start_one(self._env.conversions, self._layout, self._memory, seeds)

    def _answer(self, worker: _Worker) -> tuple[str, Any]:
        """What is wrong with the worker, which is nothing as a rule, and what it says."""
        try:
            answer = worker.remote.hear(self._time_left(worker))
        except EOFError:
            worker.asked_at = None
            return ENDED, None
        except TimeoutError:
            return f"gave no answer in {self._step_timeout:g} s for each step or reset", None
        except Exception:
            worker.asked_at = None
            raise
        worker.has_answered, worker.is_new, worker.asked_at = True, False, None
        return "", answer

    def _time_left(self, worker: _Worker) -> float | None:
        """Each environment may have to be stepped and reset."""
        if self._step_timeout is None or worker.asked_at is None:
            return None
        allowed = 2 * worker.size * self._step_timeout + (STARTING if worker.is_new else 0)
        return max(0.0, worker.asked_at + allowed - time.monotonic())

    def _cut_off(self, rows: slice) -> None:
        """The episodes of a lost worker end where they were last seen, and what would have come after still counts."""
        self.buffers.final_observation[rows] = self._previous[rows]
        self.buffers.reward[rows] = 0
        self.buffers.terminated[rows] = False
        self.buffers.truncated[rows] = True

    def _restart(self, worker: _Worker, problem: str) -> None:
        """New environments in a new process, with seeds that depend on how often this has happened."""
        if worker.steps_since_restart >= CALM:
            worker.restarts_in_a_row = 0
        worker.steps_since_restart = 0
        first, last = worker.rows.start, worker.rows.stop - 1
        numbers = f"environment {first}" if first == last else f"environments {first} to {last}"
        which = f"the worker process of {numbers} of {self._env.name}"
        while problem:
            worker.remote.hang_up()
            how = worker.end(time.monotonic())
            said = f"{problem} ({how})" if problem == ENDED else problem
            if how == children.manner(children.UNGUARDED):
                raise InputError(f"{children.GUARD}, or use workers=0.")
            if not worker.has_answered:
                raise EnvironmentFailed(
                    f"{which} {said} before its first reset: the environment must work in a process of its own; run "
                    "with workers=0 to see whether it works in this one."
                )
            if worker.restarts_in_a_row >= RESTARTS_IN_A_ROW:
                raise EnvironmentFailed(
                    f"{which} {said}, after {RESTARTS_IN_A_ROW} restarts in a row: run with workers=0 to see why, and "
                    "look whether memory runs out."
                )
            worker.restarts_in_a_row += 1
            self._warn(f"{which} {said}; its episodes are cut off, and it is started anew.")
            self._start(worker)
            worker.tell(RESET)
            problem, _ = self._answer(worker)


ENDED = "ended"


class _Process:
    """A spawned process; numbers go through shared memory, signals through pipes.

    The memory belongs to a file without a name, so that the system frees it whichever process is killed; and a worker
    leaves when the pipe from its parent breaks.
    """

    def __init__(self, kind: Conversions, layout: Layout, memory: Any, seeds: list[Seeds]) -> None:
        context = multiprocessing.get_context("spawn")
        heard_there, self._commands = context.Pipe(duplex=False)
        self._answers, said_there = context.Pipe(duplex=False)
        self.process = context.Process(
            target=serve,
            args=(heard_there, said_there, kind, layout, memory, seeds),
            name=f"evenhand-{kind.name}-{seeds[0].number}",
            daemon=True,
        )
        children.start(self.process, kind)
        heard_there.close()
        said_there.close()  # else the pipe would not break when the worker dies
        self._spoken = waiting_for(self._answers)

    def tell(self, command: bytes) -> None:
        with contextlib.suppress(OSError):
            tell(self._commands, command)

    def hear(self, timeout: float | None) -> Any:
        try:
            if not self._spoken(timeout):
                raise TimeoutError
            answer = self._answers.recv() if hear(self._answers) == MORE else None
        except TimeoutError:
            raise
        except OSError:
            raise EOFError from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def hang_up(self) -> None:
        self._commands.close()
        self._answers.close()

    def end(self, patience: float) -> str:
        return children.end(self.process, patience)
