"""Files that SUMO reads, kept by their content in the user's cache folder."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from evenhand.errors import InputError


def kept(name: str, ending: str, made_from: str, make: Callable[[Path], None]) -> Path:
    """A file that depends on nothing but the text `made_from`; `make` writes it if it is not there yet.

    Several processes may make it at the same time: each writes aside and renames, and all of them write the same.
    """
    path = cache_folder() / f"{name}-{hashlib.sha256(made_from.encode()).hexdigest()[:16]}{ending}"
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".making-", dir=path.parent) as folder:
            made = Path(folder) / path.name
            make(made)
            os.replace(made, path)
    except OSError as error:
        raise InputError(
            f"{path.parent}, where evenhand keeps the road network, cannot be written to ({error.strerror or error}): "
            "set XDG_CACHE_HOME to a folder of yours, or EVENHAND_NO_CACHE=1."
        ) from error
    return path


def cache_folder() -> Path:
    """Beside what else evenhand keeps; with EVENHAND_NO_CACHE, a folder that ends with the process."""
    if "EVENHAND_NO_CACHE" in os.environ:
        return Path(_passing_folder().name)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "evenhand" / "traffic"


@functools.cache
def _passing_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="evenhand-traffic-")
