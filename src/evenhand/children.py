"""Processes that this one starts: without running its main program again, deaf to Ctrl-C, and ended in good time.

Processes are spawned and never forked, which JAX's threads would not survive. Python then runs the main program once
more in each of them, to find what it defines; that is left out wherever nothing of it is needed, so that a plain script
needs no `if __name__ == "__main__":`. Worker processes import this module: it must not import JAX.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from types import ModuleType
from typing import Any

HURRY = 0.1
"""Seconds that a process which was told to end has to do so, before it is killed."""
UNGUARDED = 86
"""The exit code of a process that was to run the main program again, and found that it begins its work anew."""
GUARD = (
    "the environment is defined in the script itself, so that its worker processes run the script again: do its work "
    'under `if __name__ == "__main__":`, or put the environment into a module of its own'
)


def start(process: BaseProcess, *needed: Any) -> None:
    """Start a spawned process. needed: what it is sent; only if that is defined in the main program is it run again."""
    leave_if_run_again()
    with _interrupts_held_back(), contextlib.nullcontext() if needs_main(needed) else _main_hidden():
        process.start()


def needs_main(thing: Any) -> bool:
    """Whether a process must run the main program again to find what something is made of."""
    try:
        return b"__main__" in bytes(ForkingPickler.dumps(thing))
    except Exception:  # it cannot be sent at all: whoever has it must have made it by itself
        return True


def leave_if_run_again() -> None:
    """End a process that was started by the main program, runs that again, and has come to where the work begins."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


def end(process: BaseProcess, patience: float) -> str:
    """Wait until a process ends by itself, and after `patience` seconds less and less kindly; how it ended."""
    process.join(patience)
    for force in (process.terminate, process.kill):
        if process.exitcode is None:
            force()
            process.join(HURRY)
    process.join()
    how = manner(process.exitcode)
    process.close()
    return how


def manner(code: int | None) -> str:
    """What an exit code says."""
    return f"signal {signal.Signals(-code).name}" if code is not None and code < 0 else f"exit code {code}"


def leave_with_parent(grace: float) -> None:
    """Have this process end some seconds after its parent, whatever it is at: one that was killed cannot say so."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        wait([parent.sentinel])
        time.sleep(grace)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def _main_hidden() -> Iterator[None]:
    """What is spawned meanwhile knows no main program."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


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
