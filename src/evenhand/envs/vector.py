"""N copies of somebody's environment, stepped together: in this process, or in spawned worker processes."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import logging
import multiprocessing
import signal
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float32

from evenhand.envs.host import HostEnv
from evenhand.envs.stepping import (
    MORE,
    RESET,
    STEP,
    Buffers,
    Conversions,
    EnvironmentFailed,
    Layout,
    Seeds,
    Stepper,
    hear,
    serve,
    tell,
)
from evenhand.errors import InputError
from evenhand.types import Box

RESTARTS_IN_A_ROW = 3
CALM = 100
"""A worker process that has done this many steps since its last restart is trusted again."""
PATIENCE = 5.0
"""Seconds that worker processes have to close their environments."""


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
    """

    def __init__(
        self,
        env: HostEnv,
        N: int,
        seed: int,
        workers: int = 0,
        warn: Callable[[str], None] | None = None,
        start: Start | None = None,
    ) -> None:
        if N < 1 or workers < 0 or seed < 0:
            raise InputError(f"N must be at least 1, seed and workers at least 0, not {N}, {seed} and {workers}.")
        self.env = env
        self.N = N
        actions = env.action_space
        shape, dtype = ((actions.n,), "float32") if isinstance(actions, Box) else ((), "int64")
        layout = Layout(N, env.observation_space.n, env.D, shape, dtype)
        self._stepping: _Stepping
        if env.one_per_process or (env.real_time and N > 1) or (start is not None and not workers):
            workers = N
        if workers:
            env.check_picklable()
            warn = warn or logging.getLogger("evenhand").warning
            self._stepping = _Workers(env, layout, seed, min(workers, N), warn, start or _Process)
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

    def hear(self) -> Any:
        """Wait until it has; the infos of episodes that ended. Raises what it raised, or EOFError if it has died."""

    def hang_up(self) -> None:
        """Have it close its environments and leave."""

    def end(self) -> str:
        """Wait until it has left, and say how."""


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


class _Workers:
    """Processes, each with some of the environments; those that die are replaced."""

    def __init__(
        self, env: HostEnv, layout: Layout, seed: int, count: int, warn: Callable[[str], None], start: Start
    ) -> None:
        self._env, self._layout, self._seed, self._warn, self._start_one = env, layout, seed, warn, start
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
            worker.remote.tell(RESET)
        for worker in self._workers:
            if not self._answered(worker)[0]:
                self._restart(worker)

    def step(self) -> list[dict[str, Any]]:
        np.copyto(self._previous, self.buffers.observation)
        for worker in self._workers:
            worker.remote.tell(STEP)
        infos: list[dict[str, Any]] = []
        for worker in self._workers:
            alive, answer = self._answered(worker)
            if alive:
                worker.steps_since_restart += 1
                if answer is not None:
                    infos.extend(answer)
            else:
                self._cut_off(worker.rows)
                infos.extend({"lost": "its worker process ended"} for _ in range(*worker.rows.indices(self._layout.N)))
                self._restart(worker)
        return infos

    def close(self) -> None:
        started = [worker for worker in self._workers if worker.remote is not None]
        for worker in started:
            worker.remote.hang_up()
        for worker in started:
            _ended(worker)

    def _start(self, worker: _Worker) -> None:
        worker.generation += 1
        seeds = [Seeds(self._seed, number, worker.generation) for number in range(worker.rows.start, worker.rows.stop)]
        worker.remote = self._start_one(self._env.conversions, self._layout, self._memory, seeds)

    def _answered(self, worker: _Worker) -> tuple[bool, Any]:
        """Whether the worker is alive, and what it says."""
        try:
            answer = worker.remote.hear()
        except EOFError:
            return False, None
        worker.has_answered = True
        return True, answer

    def _cut_off(self, rows: slice) -> None:
        """The episodes of a lost worker end where they were last seen, and what would have come after still counts."""
        self.buffers.final_observation[rows] = self._previous[rows]
        self.buffers.reward[rows] = 0
        self.buffers.terminated[rows] = False
        self.buffers.truncated[rows] = True

    def _restart(self, worker: _Worker) -> None:
        """New environments in a new process, with seeds that depend on how often this has happened."""
        if worker.steps_since_restart >= CALM:
            worker.restarts_in_a_row = 0
        worker.steps_since_restart = 0
        first, last = worker.rows.start, worker.rows.stop - 1
        numbers = f"environment {first}" if first == last else f"environments {first} to {last}"
        which = f"the worker process of {numbers} of {self._env.name}"
        while True:
            worker.remote.hang_up()
            how = _ended(worker)
            if not worker.has_answered:
                raise EnvironmentFailed(
                    f"{which} ended before its first reset ({how}): a script that uses workers must do its work under "
                    '`if __name__ == "__main__":`, and the environment must work in a process of its own.'
                )
            if worker.restarts_in_a_row >= RESTARTS_IN_A_ROW:
                raise EnvironmentFailed(
                    f"{which} ended again ({how}), after {RESTARTS_IN_A_ROW} restarts in a row: run with workers=0 to "
                    "see why, and look whether memory runs out."
                )
            worker.restarts_in_a_row += 1
            self._warn(f"{which} ended ({how}); its episodes are cut off, and it is started anew.")
            self._start(worker)
            worker.remote.tell(RESET)
            if self._answered(worker)[0]:
                return


def _ended(worker: _Worker) -> str:
    remote, worker.remote = worker.remote, None
    return str(remote.end())


class _Process:
    """A spawned process; numbers go through shared memory, signals through pipes.

    Processes are never forked: JAX's threads would not survive it. The memory belongs to a file without a name, so that
    the system frees it whichever process is killed; and a worker leaves when the pipe from its parent breaks.
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
        with _interrupts_held_back():
            self.process.start()
        heard_there.close()
        said_there.close()  # else the pipe would not break when the worker dies

    def tell(self, command: bytes) -> None:
        with contextlib.suppress(OSError):
            tell(self._commands, command)

    def hear(self) -> Any:
        try:
            answer = self._answers.recv() if hear(self._answers) == MORE else None
        except OSError:
            raise EOFError from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def hang_up(self) -> None:
        self._commands.close()
        self._answers.close()

    def end(self) -> str:
        """Less and less patiently."""
        process = self.process
        process.join(PATIENCE)
        for force in (process.terminate, process.kill):
            if process.exitcode is None:
                force()
                process.join(PATIENCE)
        code = process.exitcode
        process.close()
        if code is not None and code < 0:
            return f"signal {signal.Signals(-code).name}"
        return f"exit code {code}"


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """What is started meanwhile is born deaf to Ctrl-C, which would otherwise hit it before it can look away."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
