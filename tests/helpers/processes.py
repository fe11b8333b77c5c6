"""Programs that tests start, talk to, wait for and kill, and what must never be said.

Tests wait for what happens, however long it takes: the time limit of each test is the end of all waiting.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def python(script: str, *arguments: Any, **options: Any) -> subprocess.Popen[str]:
    """Another interpreter that runs a script."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


@contextlib.contextmanager
def running(command: list[Any], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A program, whose output can be read; neither it nor what it has started outlives the test."""
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(list(map(str, command)), start_new_session=True, **(streams | options)) as process:
        try:
            yield process
        finally:
            kill_all(process)


def kill_all(process: subprocess.Popen[str]) -> None:
    """Kill a program that leads a session of its own, and all that it has started, at once."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def finished(process: subprocess.Popen[str]) -> str:
    """What a program has said, which has to come to a good end."""
    said = "".join(filter(None, process.communicate()))
    assert process.returncode == 0, said
    return said


def until(found: Callable[[], Any], process: subprocess.Popen[str] | None = None) -> None:
    """Wait until something is the case; a program that is to bring it about must not end before."""
    while not found():
        if process is not None and process.poll() is not None and not found():
            raise AssertionError(f"it ended with the code {process.returncode} too soon: {process.communicate()}")
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether a process runs: one that was killed is still listed until its parent has noticed."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def line_from(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def never(message: str) -> None:
    """For a callback that is not to be called."""
    raise AssertionError(message)
