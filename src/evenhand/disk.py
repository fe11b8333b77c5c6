"""Files: reading what anyone may have made, and writing so that either the old or the new content is there, whole.

Only regular files are read, never more than a bound, and JSON that is JSON.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path
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


# Writing


class DiskFull(OSError):
    """There is no room on the disk; what was there before is untouched, and the run can be resumed."""


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file so that, whatever happens, either the old or the new content is there, whole."""
    writing = path.with_name(f".{path.name}.writing")
    with full_disk_named(path.name, len(data), path.parent):
        try:
            writing.unlink(missing_ok=True)
            write_durably(writing, data)
            writing.replace(path)
            sync_folder(path.parent)
        except BaseException:
            with suppress(OSError):
                writing.unlink(missing_ok=True)
            raise


def as_json(value: Any, *, allow_nan: bool = False) -> bytes:
    """JSON for people to read, the same for the same value."""
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=allow_nan, default=json_default)
    return f"{text}\n".encode()


def json_default(value: Any) -> Any:
    """NumPy's and JAX's numbers and arrays for JSON."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not possible")


def make_folder(folder: Path) -> None:
    """Make a folder, and those above it, durably."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


@contextmanager
def full_disk_named(what: str, size: int, folder: Path) -> Iterator[None]:
    """Turn the system's "no space left" into a sentence that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = _free(folder)
        raise DiskFull(
            f"{what} could not be written: it needs {_in_units(size)} and "
            + ("the disk quota is used up" if error.errno == errno.EDQUOT else f"{free} are free in {folder}")
            + "; make room, then the run can be resumed from its last checkpoint."
        ) from error


def _free(folder: Path) -> str:
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    return _in_units(shutil.disk_usage(there).free)


def _in_units(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size / 1e3:.1f} kB"


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file, and force it to the disk."""
    with path.open("xb") as file:  # x: never through a link
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    if os.name == "nt":  # no such thing there
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
