"""SUMO itself: where it is, and what to say where it is not."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
from pathlib import Path
from typing import Any

from evenhand.errors import InputError

MISSING = (
    "traffic lights need the simulator SUMO, and {} is not installed: pip install 'evenhand[traffic]' brings it, and "
    "nothing else has to be set up."
)


def check_installed() -> None:
    """Refuse to begin without SUMO; nothing is imported yet."""
    for package, module in (("eclipse-sumo", "sumo"), ("libsumo", "libsumo")):
        if importlib.util.find_spec(module) is None:
            raise InputError(MISSING.format(package))


def libsumo() -> Any:
    """The simulator as a module; there is one simulation in it."""
    check_installed()
    try:
        return importlib.import_module("libsumo")
    except ImportError as error:
        raise InputError(
            f"libsumo is installed but cannot be loaded ({error}): pip install --force-reinstall libsumo puts it "
            "right, or says why not."
        ) from error


def version() -> str:
    """The version of the simulator."""
    check_installed()
    return importlib.metadata.version("eclipse-sumo")


def program(name: str) -> Path:
    """One of SUMO's programs, such as netconvert."""
    check_installed()
    spec = importlib.util.find_spec("sumo")
    assert spec is not None
    for folder in spec.submodule_search_locations or []:
        found = Path(folder) / "bin" / (f"{name}.exe" if os.name == "nt" else name)
        if found.is_file():
            return found
    raise InputError(
        f"eclipse-sumo is installed without its program {name}: pip install --force-reinstall eclipse-sumo."
    )


def surroundings() -> dict[str, str]:
    """The environment variables that SUMO's programs expect."""
    return {**os.environ, "SUMO_HOME": str(program("netconvert").parent.parent)}
