"""Reading files that anyone may have made: only regular ones, never more than a bound, and JSON that is JSON."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import IO, Any, NoReturn

from evenhand.errors import InputError

MOST_BYTES = 2**28
"""Of one JSON file or table; what evenhand writes is far smaller."""

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@contextmanager
def opened(path: str | PathLike[str]) -> Iterator[IO[bytes]]:
    """A regular file, for reading. Anything else is refused: opening a pipe may block for ever, and devices may act.

    An OSError is as the system raises it, such as a FileNotFoundError.
    """
    _refuse_irregular(path, os.stat(path))
    # It may have been replaced meanwhile: then opening does not block, and what was opened is looked at again.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    with open(descriptor, "rb") as file:
        _refuse_irregular(path, os.fstat(descriptor))
        yield file


def read_bytes(path: str | PathLike[str], most: int = MOST_BYTES) -> bytes:
    """All of a regular file of at most so many bytes."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size  # looked at first: a file of terabytes takes no room on the disk
        if size > most:
            raise InputError(f"{path} has {size:,} bytes, which are more than {most:,}.")
        data = file.read(size + 1)
    if len(data) > size:
        raise InputError(f"{path} grows while it is read.")
    return data


def read_text(path: str | PathLike[str]) -> str:
    """The same as text in UTF-8, perhaps with a mark at its beginning; a UnicodeDecodeError if it is none."""
    return read_bytes(path).decode("utf-8-sig")


def read_json(path: str | PathLike[str], most: int = MOST_BYTES) -> Any:
    """What a JSON file holds. Numbers are finite, and all text can be written again."""
    data = read_bytes(path, most)
    try:
        content = json.loads(data, parse_constant=_refuse_constant, parse_float=_finite)
        if b"\\u" in data:  # half a character, as in "\ud800", could be read but never written
            json.dumps(content, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        why = f" ({error})" if isinstance(error, _NotFinite) else ""
        raise InputError(f"{path} is damaged: it is not JSON{why}.") from None
    return content


def memory() -> int:
    """Bytes of this machine's memory, whoever uses them; many, where it does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**40


class _NotFinite(ValueError):
    """JSON has no such number."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotFinite(f"{name} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise _NotFinite(f"{text:.20} is too large a number")
    return number


def _refuse_irregular(path: str | PathLike[str], known: os.stat_result) -> None:
    if not stat.S_ISREG(known.st_mode):
        raise InputError(f"{path} is {_KINDS.get(stat.S_IFMT(known.st_mode), 'something else')}, not a regular file.")
