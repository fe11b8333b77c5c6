"""Hyperparameters as frozen dataclasses that compiled functions take as arguments."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Literal, TypeVar

import jax

T = TypeVar("T")

Schedule = Literal["constant", "linear", "quadratic"]


def hyperparameters(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose numbers are traced and whose other fields are part of the compiled program.

    Fields of type float (or float | None) may then change without compiling again.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    hints = typing.get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    traced = [name for name in names if float in (hints[name], *typing.get_args(hints[name]))]
    static = [name for name in names if name not in traced]

    def flatten(config: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(config, name) for name in traced), tuple(getattr(config, name) for name in static)

    def unflatten(rest: tuple[Any, ...], numbers: tuple[Any, ...]) -> T:
        config = object.__new__(cls)  # not through __init__: inside jit the numbers are tracers
        for name, value in zip((*traced, *static), (*numbers, *rest), strict=True):
            object.__setattr__(config, name, value)
        return config

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def scheduled(value: Any, schedule: Schedule, remaining: Any) -> Any:
    """A value as it is, or falling to 0 with the share of the training that remains, or with its square."""
    return value * remaining ** {"constant": 0, "linear": 1, "quadratic": 2}[schedule]
