"""What commands hand over: files written safely, answers for programs, and tables for people."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TextIO

from rich.table import Table

from evenhand.errors import InputError
from evenhand.report.tables import facts_sheet
from evenhand.report.text import as_json
from evenhand.terminal import Console

REFUSED, INTERRUPTED, FAILED = 2, 130, 1
"""Exit codes."""
STANDARD_OUTPUT, STANDARD_ERROR = 1, 2
PICTURES, PAGES = (".png", ".pdf", ".svg"), (".html", ".htm")
"""The endings of files that are drawn and written."""

# Files


def check_output(path: Path) -> None:
    """Refuse, before any work, what could not be written after it."""
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} to write {path.name} to.")
    with suppress(FileNotFoundError):
        path.stat()  # a link that leads to itself, say, is refused as the system does
    if path.exists() and not path.is_file():  # renaming over a device such as /dev/null would remove it
        raise InputError(f"{path} is not a file that could be replaced.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"nothing may be written to the folder {folder}.")


def check_picture(path: Path | None, option: str, endings: Sequence[str] = PICTURES) -> None:
    """Refuse, before any work, a picture that could not be written after it."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise InputError(f"{option} takes a file ending in {', '.join(endings[:-1])} or {endings[-1]}, not {path}.")
    check_output(path)


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A name to write to, which takes the place of `path` when all is written, and not before."""
    target = Path(os.path.realpath(path))  # a link stays a link
    partial = target.with_name(f".evenhand-{os.getpid()}.partial{target.suffix}")  # the suffix may say the format
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


# For programs

_answers: ContextVar[TextIO | None] = ContextVar("_answers", default=None)  # None is standard output


def print_json(record: dict[str, Any]) -> None:
    """Answer a program that asked for JSON."""
    print(as_json(record), file=_answers.get(), flush=True)


@contextmanager
def only_json(wanted: bool) -> Iterator[None]:
    """While open, nothing but `print_json` reaches standard output: what else is printed goes to standard error.

    That holds for what environments print from C, and in the processes that are started meanwhile.
    """
    if not wanted:
        yield
        return
    real = sys.stdout
    real.flush()
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))
        answers = real
        if _is_standard_output(real):
            kept = os.dup(STANDARD_OUTPUT)
            os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, STANDARD_OUTPUT)
            stack.callback(_flush_c)  # what is still held back must not follow the answer
            stack.callback(real.flush)
            answers = stack.enter_context(open(kept, "w", encoding=real.encoding, errors="replace", closefd=False))
        token = _answers.set(answers)
        stack.callback(_answers.reset, token)
        yield


def _is_standard_output(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == STANDARD_OUTPUT)
    except (AttributeError, OSError):  # a test or a notebook has put something in its place
        return False


def _flush_c() -> None:
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)


# For people


def plain_console(stderr: bool = False) -> Console:
    """A console that shows text as it is."""
    return Console(stderr=stderr, highlight=False, markup=False)


def listed(words: Iterable[str], most: int = 8) -> str:
    """The first few words."""
    words = list(words)
    return ", ".join(words[:most]) + (", …" if len(words) > most else "")


def say(text: str) -> None:
    """What is being done, for whoever watches; nothing where nobody does."""
    console = plain_console(stderr=True)
    if console.is_terminal:
        console.print(f"{text} …", style="dim", soft_wrap=True)


def warn(text: str) -> None:
    """Something that whoever started the program should know, beside its answer."""
    print(f"evenhand: {text}", file=sys.stderr)


def show(
    title: str,
    about: str,
    table: Table,
    notes: Sequence[str],
    events: Sequence[str] = (),
    facts: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Print a table with what is to be said of it; events are lines that must not be wrapped.

    facts: what else was counted, by policy and fact, for a second table.
    """
    console = plain_console()
    console.print(title, style="bold")
    console.print(about, style="dim", soft_wrap=True)  # names of files are kept in one piece
    console.print(table)
    for note in notes:
        console.print(note)
    if facts:
        console.print("\nWhat else was counted, on average over the test episodes", style="bold")
        console.print(facts_sheet(facts).terminal())
    for event in events:
        console.print(event, soft_wrap=True)
