"""What a program has added of its own, and how the processes that it starts come to know of it.

They import the modules in which it is defined: this process has imported them, so that they may too. What the main
program itself defines, or nobody can find by a name, is known to this process only.
"""

from __future__ import annotations

import importlib
from types import FunctionType, ModuleType
from typing import Any

_modules: dict[str, None] = {}


def added(thing: Any) -> None:
    """Note that a module, a class or a function was added."""
    if (home := home_of(thing)) is not None:
        _modules[home] = None


def home_of(thing: Any) -> str | None:
    """The module in which another process finds something; None if there is none."""
    name = thing.__name__ if isinstance(thing, ModuleType) else None
    if isinstance(thing, type | FunctionType):
        name = thing.__module__
    return None if name == "__main__" else name


def modules() -> tuple[str, ...]:
    """What other processes have to import."""
    return tuple(_modules)


def take_over(names: tuple[str, ...]) -> None:
    """Add the same in this process."""
    for name in names:
        importlib.import_module(name)
