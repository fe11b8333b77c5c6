"""Programs that tests start, talk to and kill, and what must never be said."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any


def python(script: str, *arguments: Any, **options: Any) -> subprocess.Popen[str]:
    """Another interpreter that runs a script."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


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
