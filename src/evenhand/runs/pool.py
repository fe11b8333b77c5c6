"""Where the seeds of a run are trained: here one after another, or in spawned processes side by side."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.errors import InputError

if TYPE_CHECKING:
    from evenhand.runs.training import Report, Run

ONE_THREAD = "PJRT_NPROC"
"""Says how many threads JAX starts. With one, small programs run up to twice as fast, for nothing is handed over; and
results never depend on the number of cores."""


def in_this_process(run: Run, seeds: list[int], jobs: int, checkpoint_seconds: float, report: Report) -> None:
    """One seed after another; Ctrl-C stops at a checkpoint."""
    from evenhand.runs.training import deferred_interrupt

    with _one_thread(), deferred_interrupt() as stop:
        prepare_jax()
        loop = _loop(run)
        try:
            for seed in seeds:
                if not run.train_seed(seed, loop, checkpoint_seconds, report, stop):
                    raise KeyboardInterrupt
        finally:
            loop.close()


def in_processes(run: Run, seeds: list[int], jobs: int, checkpoint_seconds: float, report: Report) -> None:
    """`jobs` seeds at a time, each process taking the next seed when it is done with one."""
    from evenhand.runs.training import deferred_interrupt

    context = multiprocessing.get_context("spawn")
    halt = context.Event()
    waiting, failures = list(seeds), []
    connections: dict[Connection, Any] = {}
    with _one_thread(), deferred_interrupt() as stop:
        for _ in range(jobs):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_work, args=(str(run.path), theirs, halt, checkpoint_seconds), daemon=False
            )
            process.start()
            theirs.close()
            connections[ours] = process
        busy: dict[Connection, int] = {}
        try:
            while connections:
                if stop() and not halt.is_set():
                    halt.set()
                    waiting.clear()
                for connection in list(connections):
                    if connection not in busy:
                        if waiting:
                            busy[connection] = waiting.pop(0)
                            connection.send(busy[connection])
                        else:
                            connection.close()
                            connections.pop(connection).join()
                for ready in wait(list(busy), timeout=0.2):
                    assert isinstance(ready, Connection)
                    seed = busy[ready]
                    try:
                        kind, content = ready.recv()
                    except EOFError:
                        process = connections.pop(ready)
                        process.join()
                        del busy[ready]
                        failures.append((seed, f"its process ended with code {process.exitcode}"))
                        continue
                    if kind == "report":
                        report(content)
                    elif kind == "say":
                        run.folder.say(content)
                    else:  # done, or failed
                        del busy[ready]
                        if content:
                            failures.append((seed, content))
        finally:
            for connection, process in connections.items():
                connection.close()
                process.terminate()
                process.join()
    if failures:
        seed, why = failures[0]
        others = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        raise InputError(f"seed {seed} could not be trained{others}: {why}")
    if stop() and not all(run.complete(seed) for seed in seeds):
        raise KeyboardInterrupt


def _work(path: str, connection: Connection, halt: Any, checkpoint_seconds: float) -> None:
    """A process that trains the seeds it is told to."""
    from evenhand.runs.folder import RunFolder
    from evenhand.runs.training import Run

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    parent = multiprocessing.parent_process()

    def stop() -> bool:
        if parent is not None and not parent.is_alive():
            os._exit(1)
        return bool(halt.is_set())

    def tell(content: dict[str, Any]) -> None:
        connection.send(("report", content))

    def say(message: str) -> None:
        connection.send(("say", message))

    try:
        prepare_jax()
        run = Run(RunFolder.open(path))
        run.folder.say = say  # type: ignore[method-assign]  # the parent logs it
        loop = _loop(run)
        while True:
            seed = connection.recv()
            problem = None
            try:
                run.train_seed(seed, loop, checkpoint_seconds, tell, stop)
            except (InputError, OSError) as error:
                problem = str(error)
            except Exception:
                problem = traceback.format_exc()
            connection.send(("done", problem))
    except (EOFError, BrokenPipeError, ConnectionResetError):
        pass  # nothing left to do, or nobody left to do it for


def _loop(run: Run) -> Any:
    from evenhand.loops import loop_for

    return loop_for(run.training_env, run.task, run.request["workers"], run.folder.say)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """For JAX in this process, if it has not begun yet, and in those that are started meanwhile."""
    before = os.environ.get(ONE_THREAD)
    os.environ.setdefault(ONE_THREAD, "1")
    try:
        yield
    finally:
        if before is None:
            del os.environ[ONE_THREAD]


def prepare_jax() -> None:
    """Keep compiled programs in the user's cache folder, unless told otherwise."""
    import jax

    config: Any = jax.config
    if config.jax_compilation_cache_dir is None and "EVENHAND_NO_CACHE" not in os.environ:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        config.update("jax_compilation_cache_dir", str(Path(base) / "evenhand" / "compiled"))
        config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
        config.update("jax_persistent_cache_min_entry_size_bytes", 0)
