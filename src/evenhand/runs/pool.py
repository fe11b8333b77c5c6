"""Where work is done: seeds one after another in this process, or any tasks in spawned processes side by side."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from evenhand.errors import InputError

if TYPE_CHECKING:
    from evenhand.envs.vector import Start
    from evenhand.runs.training import Run

Task = TypeVar("Task")
Report = Callable[[dict[str, Any]], None]
Say = Callable[[str], None]
Stop = Callable[[], bool]
Perform = Callable[[Any, Report, Stop], None]
"""Performs one task, tells how far it has come, and asks whether to stop at the next checkpoint."""

ONE_THREAD = "PJRT_NPROC"
"""Says how many threads JAX starts. With one, small programs run up to twice as fast, for nothing is handed over; and
results never depend on the number of cores."""


def in_this_process(
    run: Run, seeds: list[int], checkpoint_seconds: float, report: Report, start: Start | None = None
) -> None:
    """One seed after another; Ctrl-C stops at a checkpoint. start: see `evenhand.envs.vector.VectorEnv`."""
    from evenhand.runs.training import deferred_interrupt

    with one_thread(), deferred_interrupt() as stop:
        prepare_jax()
        loop = loop_of(run, start)
        try:
            for seed in seeds:
                if not run.train_seed(seed, loop, checkpoint_seconds, report, stop):
                    raise KeyboardInterrupt
        finally:
            loop.close()


def in_processes(run: Run, seeds: list[int], jobs: int, checkpoint_seconds: float, report: Report) -> None:
    """`jobs` seeds at a time, each process taking the next seed when it is done with one."""
    failures, stopped = spread_out(_trainer, (str(run.path), checkpoint_seconds), seeds, jobs, report, run.folder.say)
    if failures:
        seed, why = failures[0]
        others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise InputError(f"seed {seed} could not be trained{others}: {why}")
    if stopped and not all(run.complete(seed) for seed in seeds):
        raise KeyboardInterrupt


def _trainer(argument: tuple[str, float], say: Say) -> Perform:
    """What trains seeds of one run, in a process of its own."""
    from evenhand.runs.folder import RunFolder
    from evenhand.runs.training import Run

    path, checkpoint_seconds = argument
    run = Run(RunFolder.open(path))
    run.folder.say = say  # type: ignore[method-assign,assignment]  # the parent logs it
    loop = loop_of(run)

    def perform(seed: int, report: Report, stop: Stop) -> None:
        run.train_seed(seed, loop, checkpoint_seconds, report, stop)

    return perform


def spread_out(
    setup: Callable[[Any, Say], Perform],
    argument: Any,
    tasks: Sequence[Task],
    jobs: int,
    report: Report,
    say: Say,
    kind: Callable[[Task], Any] = lambda task: None,
) -> tuple[list[tuple[Task, str]], bool]:
    """Perform tasks in `jobs` spawned processes; those that failed and why, and whether Ctrl-C was pressed.

    setup: a function of a module, called once in each process with `argument` and a function for messages; what it
        gives performs one task after another.
    kind: a process goes on with tasks of one kind while there are any, since what was compiled for one serves all.
    """
    from evenhand.runs.training import deferred_interrupt

    context = multiprocessing.get_context("spawn")
    halt = context.Event()
    waiting, failures = list(tasks), []
    connections: dict[Connection, Any] = {}
    busy: dict[Connection, Task] = {}
    kinds: dict[Connection, Any] = {}
    with one_thread(), deferred_interrupt() as stop:
        for _ in range(min(jobs, len(waiting))):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(setup, argument, theirs, halt), daemon=False)
            process.start()
            theirs.close()
            connections[ours] = process
        try:
            while connections:
                if stop() and not halt.is_set():
                    halt.set()
                    waiting.clear()
                for connection in list(connections):
                    if connection not in busy:
                        if waiting:
                            others = [kinds[other] for other in busy]
                            task = waiting.pop(_next(list(map(kind, waiting)), kinds.get(connection), others))
                            busy[connection], kinds[connection] = task, kind(task)
                            connection.send(task)
                        else:
                            connection.close()
                            connections.pop(connection).join()
                for ready in wait(list(busy), timeout=0.2):
                    assert isinstance(ready, Connection)
                    try:
                        what, content = ready.recv()
                    except EOFError:
                        process = connections.pop(ready)
                        process.join()
                        failures.append((busy.pop(ready), f"its process ended with code {process.exitcode}"))
                        continue
                    if what == "report":
                        report(content)
                    elif what == "say":
                        say(content)
                    else:  # done, or failed
                        task = busy.pop(ready)
                        if content:
                            failures.append((task, content))
        finally:
            for connection, process in connections.items():
                connection.close()
                process.terminate()
                process.join()
    return failures, stop()


def _next(waiting: Sequence[Any], last: Any, others: Sequence[Any]) -> int:
    """Which of the waiting tasks, by their kinds: one of the last kind; else one that nobody else is at; else any."""
    if last in waiting:
        return waiting.index(last)
    return next((i for i, kind in enumerate(waiting) if kind not in others), 0)


def _work(setup: Callable[[Any, Say], Perform], argument: Any, connection: Connection, halt: Any) -> None:
    """A process that performs the tasks it is told to."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    threading.Thread(target=_end_with_parent, daemon=True).start()

    def tell(content: dict[str, Any]) -> None:
        connection.send(("report", content))

    def say(message: str) -> None:
        connection.send(("say", message))

    try:
        prepare_jax()
        perform = setup(argument, say)
        while True:
            task = connection.recv()
            connection.send(("done", problem_with(perform, task, tell, halt.is_set)))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # nothing left to do, or nobody left to do it for


def problem_with(perform: Perform, task: Any, report: Report, stop: Stop) -> str | None:
    """Perform a task; what went wrong, in words, or None."""
    try:
        perform(task, report, stop)
    except (InputError, OSError) as error:
        return str(error)
    except Exception:
        return traceback.format_exc()
    return None


def _end_with_parent() -> None:
    """A parent that was killed cannot say so: what it started must not go on beside those that take its place."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def loop_of(run: Run, start: Start | None = None) -> Any:
    """What trains its seeds; the same for all of them."""
    from evenhand.loops import loop_for

    return loop_for(run.training_env, run.task, run.request["workers"], run.folder.say, start)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """For JAX in this process, if it has not begun yet, and in those that are started meanwhile."""
    before = os.environ.get(ONE_THREAD)
    os.environ.setdefault(ONE_THREAD, "1")
    try:
        yield
    finally:
        if before is None:
            del os.environ[ONE_THREAD]


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def prepare_jax() -> None:
    """Keep compiled programs in the user's cache folder, unless told otherwise."""
    import jax

    config: Any = jax.config
    if config.jax_compilation_cache_dir is None and "EVENHAND_NO_CACHE" not in os.environ:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        config.update("jax_compilation_cache_dir", str(Path(base) / "evenhand" / "compiled"))
        config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        config.update("jax_persistent_cache_min_entry_size_bytes", 0)
