"""Where work is done: seeds one after another in this process, or any tasks in spawned processes side by side."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from evenhand import children, extensions
from evenhand.envs.gym.failures import EnvironmentFailed
from evenhand.envs.registry import DOMAINS, Domain, register_domain
from evenhand.errors import InputError, Say
from evenhand.interrupt import deferred_interrupt

Task = TypeVar("Task")
Report = Callable[[dict[str, Any]], None]
Stop = Callable[[], bool]
Perform = Callable[[Any, Report, Stop], None]
"""Performs one task, tells how far it has come, and asks whether to stop at the next checkpoint."""

ONE_THREAD = "PJRT_NPROC"
"""Says how many threads JAX starts. With one, small programs run up to twice as fast, for nothing is handed over; and
results never depend on the number of cores."""
CLOSING = 30.0
"""Seconds that a process which is done has to close its environments."""


class Failure(NamedTuple):
    """Why a task could not be done."""

    said: str
    """In words."""
    full: str = ""
    """Where in evenhand and in the environment it came from, if that is known."""
    of_environment: bool = False
    """Whether it is the environment that failed."""


class Added(NamedTuple):
    """What a program has added of its own, for the processes that it starts."""

    modules: tuple[str, ...]
    domains: dict[str, Domain]

    @staticmethod
    def here() -> Added:
        """By this program."""
        return Added(extensions.modules(), dict(DOMAINS))

    def take_over(self) -> None:
        """Add the same in this process."""
        extensions.take_over(self.modules)
        for name, domain in self.domains.items():
            register_domain(name, domain)


def spread_out(
    setup: Callable[[Any, Say], Perform],
    argument: Any,
    tasks: Sequence[Task],
    jobs: int,
    report: Report,
    say: Say,
    kind: Callable[[Task], Any] = lambda task: None,
    environments: Iterable[str | None] = (),
) -> tuple[list[tuple[Task, Failure]], bool]:
    """Perform tasks in `jobs` spawned processes; those that failed and why, and whether Ctrl-C was pressed.

    setup: a function of a module, called once in each process with `argument` and a function for messages; what it
        gives performs one task after another.
    kind: a process goes on with tasks of one kind while there are any, since what was compiled for one serves all.
    environments: names of those that are needed; the processes know as much of them as this one.
    """
    context = multiprocessing.get_context("spawn")
    halt = context.Event()
    waiting, failures = list(tasks), []
    connections: dict[Connection, Any] = {}
    busy: dict[Connection, Task] = {}
    kinds: dict[Connection, Any] = {}
    registered, added = _registered(environments), Added.here()

    def begin() -> None:
        ours, theirs = context.Pipe()
        sent = registered if not children.needs_main(registered) else ()  # else running the main program registers them
        process = context.Process(target=_work, args=(setup, argument, theirs, halt, sent, added), daemon=False)
        children.start(process, registered)
        theirs.close()
        connections[ours] = process

    with one_thread(), deferred_interrupt() as stop:
        try:
            for _ in range(min(jobs, len(waiting))):
                begin()
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
                            with contextlib.suppress(OSError):  # it has died, which the next answer will say
                                connection.send(task)
                        else:
                            connection.close()
                            children.end(connections.pop(connection), CLOSING)
                for ready in wait(list(busy), timeout=0.2):
                    assert isinstance(ready, Connection)
                    try:
                        what, content = ready.recv()
                    except (EOFError, OSError):
                        ready.close()
                        code = _code(connections.pop(ready))
                        failures.append((busy.pop(ready), Failure(f"its process ended ({children.manner(code)}).")))
                        if code == children.UNGUARDED:
                            raise InputError(f"{children.GUARD}.") from None
                        if waiting:
                            begin()
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
            for process in connections.values():
                children.end(process, children.HURRY)
    return failures, stop()


def _code(process: Any) -> int | None:
    process.join()
    return process.exitcode


def _registered(names: Iterable[str | None]) -> tuple[Any, ...]:
    """The entries in Gymnasium's registry that another process may not find there."""
    import gymnasium

    wanted = {name.rpartition(":")[2] for name in names if name is not None}
    return tuple(spec for name, spec in gymnasium.registry.items() if name in wanted)


def _next(waiting: Sequence[Any], last: Any, others: Sequence[Any]) -> int:
    """Which of the waiting tasks, by their kinds: one of the last kind; else one that nobody else is at; else any."""
    if last in waiting:
        return waiting.index(last)
    return next((i for i, kind in enumerate(waiting) if kind not in others), 0)


def _work(
    setup: Callable[[Any, Say], Perform],
    argument: Any,
    connection: Connection,
    halt: Any,
    registered: tuple[Any, ...],
    added: Added,
) -> None:
    """A process that performs the tasks it is told to."""
    import gymnasium

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    children.leave_with_parent(0.0)  # it must not go on beside those that take its parent's place
    for spec in registered:
        gymnasium.registry.setdefault(spec.id, spec)

    def tell(content: dict[str, Any]) -> None:
        connection.send(("report", content))

    def say(message: str) -> None:
        connection.send(("say", message))

    perform: Perform | None = None

    def prepared(task: Any, report: Report, stop: Stop) -> None:
        nonlocal perform
        if perform is None:
            added.take_over()
            prepare_jax()
            perform = setup(argument, say)
        perform(task, report, stop)

    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:  # until there is nothing left to do, or nobody left to do it for
            task = connection.recv()
            connection.send(("done", failure_of(prepared, task, tell, halt.is_set)))


def failure_of(perform: Perform, task: Any, report: Report, stop: Stop) -> Failure | None:
    """Perform a task; what went wrong, or None."""
    try:
        perform(task, report, stop)
    except EnvironmentFailed as error:
        return Failure(str(error), error.full, of_environment=True)
    except (InputError, OSError) as error:
        return Failure(str(error), traceback.format_exc())
    except Exception:
        return Failure(traceback.format_exc())
    return None


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
        config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        config.update("jax_persistent_cache_min_entry_size_bytes", 0)
