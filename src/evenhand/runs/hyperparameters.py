"""Hyperparameters of a run: a preset, what the user says instead, and what is wrong with it."""

from __future__ import annotations

import dataclasses
import difflib
import math
import tomllib
import typing
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal, NamedTuple

from evenhand.agents.algorithm import algorithm, names
from evenhand.errors import InputError

PRESETS = ("tuned", "paper")
LARGEST = 2**31 - 1
"""Of whole numbers, which compiled programs hold in 32 bits."""


class Settings(NamedTuple):
    """What a preset and the user together ask for."""

    config: Any
    """The algorithm's `Config`."""
    steps: int
    training: dict[str, Any]
    """Arguments of the environment that hold while training only."""


def settings(
    algo: str,
    environment: str,
    fair: bool,
    preset: str = "tuned",
    changes: Mapping[str, Any] | None = None,
    steps: int | None = None,
) -> Settings:
    """The hyperparameters of a preset for an environment, with changes.

    environment: one of ours by its short name; all others share one set.
    fair: whether the welfare is not the utilitarian one.
    """
    check_name("algorithm", algo, names())
    chosen = dict(_preset(preset, environment, algo, fair))
    training = dict(chosen.pop("training", {}))
    default_steps = chosen.pop("steps", 1_000_000)
    config = configured(algo, chosen | dict(changes or {}))
    steps = default_steps if steps is None else steps
    check_steps(algo, config, steps)
    return Settings(config, steps, training)


def configured(algo: str, values: Mapping[str, Any]) -> Any:
    """The algorithm's `Config` with these values, each of them checked, and whether they go together."""
    found = algorithm(algo)
    config = _configured(found.Config, values, algo)
    problem = found.impossible(config)
    if problem:
        raise InputError(f"These settings of {algo} do not go together: {problem}")
    return config


def check_steps(algo: str, config: Any, steps: int) -> None:
    """Refuse trainings that would end before the first update, or have more of them than can be counted."""
    if steps < 1:
        raise InputError(f"steps must be positive, not {steps}.")
    if steps < config.steps_per_update:
        raise InputError(
            f"{steps} steps are fewer than {algo} takes before it first learns: {config.envs} environments × "
            f"{config.rollout} steps = {config.steps_per_update}."
        )
    if steps > config.steps_per_update * LARGEST:
        raise InputError(
            f"{steps} steps are more than {LARGEST:,} updates of {config.steps_per_update} steps, which is as far as "
            "they are counted."
        )


def check_name(what: str, name: Any, known: Iterable[str]) -> None:
    """Refuse a name that is not known, with the nearest one."""
    known = list(known)
    if name not in known:
        near = difflib.get_close_matches(str(name), known, n=1)
        hint = f"; did you mean {near[0]}?" if near else "."
        raise InputError(f"there is no {what} {name!r}: choose among {', '.join(known)}{hint}")


@cache
def _table(preset: str) -> dict[str, Any]:
    return tomllib.loads(resources.files("evenhand.presets").joinpath(f"{preset}.toml").read_text("utf-8"))


def _preset(preset: str, environment: str, algo: str, fair: bool) -> dict[str, Any]:
    check_name("preset", preset, PRESETS)
    table = _table(preset)
    own = table.get(environment, {}).get(algo)
    if own is None and "any" not in table:
        having = [name for name in table if algo in table[name]]
        raise InputError(
            f"the preset {preset!r} has no settings of {algo} for {environment}, only for {', '.join(having)}: "
            'use the preset "tuned".'
        )
    chosen = table.get("any", {}).get(algo, {}) | (own or {})
    instead = chosen.pop("fair", {})
    return chosen | instead if fair else chosen


def _configured(config: type[Any], values: Mapping[str, Any], algo: str) -> Any:
    hints, annotated = typing.get_type_hints(config), typing.get_type_hints(config, include_extras=True)
    known = [field.name for field in dataclasses.fields(config)]
    checked = {}
    for name, value in values.items():
        check_name(f"setting of {algo}", name, known)
        checked[name] = _converted(name, value, hints[name])
        _check_range(name, checked[name], annotated[name])
    return config(**checked)


def _converted(name: str, value: Any, hint: Any) -> Any:
    """A value of the field's type, from what TOML, JSON or the command line can hold."""
    options = typing.get_args(hint)
    wants = hint.__name__ if isinstance(hint, type) else str(hint)
    good: Any = None
    if typing.get_origin(hint) is Literal:
        check_name(name, value, options)
        return value
    if value is None and type(None) in options:
        return None
    if hint is bool:
        good = value if isinstance(value, bool) else None
    elif hint is int:
        number = _is_number(value)
        good = int(value) if number and value == int(value) and abs(value) <= LARGEST else None
        wants = f"a whole number up to {LARGEST:,}" if number and abs(value) > LARGEST else "a whole number"
    elif hint is str:
        good = value if isinstance(value, str) else None
        wants = "a text"
    elif hint is float or float in options:
        good = float(value) if _is_number(value) else None
        wants = "a number"
    elif typing.get_origin(hint) is tuple:
        items = value if isinstance(value, (list, tuple)) else [value]
        whole = all(isinstance(item, int) and not isinstance(item, bool) and 0 < item <= LARGEST for item in items)
        good = tuple(items) if whole else None
        wants = "a list of positive whole numbers"
    if good is None:
        raise InputError(f"{name} must be {wants}, not {value!r}.")
    return good


def _is_number(value: Any) -> bool:
    """Whether it is a number that a float can hold; True and False are none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return abs(value) < 2**1023 if isinstance(value, int) else math.isfinite(value)


def _check_range(name: str, value: Any, hint: Any) -> None:
    """Refuse what a field's annotation rules out."""
    from evenhand.agents.config import NOT_NEGATIVE, Among, Within

    parts = (hint, *typing.get_args(hint))  # Positive | None has the annotation within
    rules = [rule for part in parts for rule in getattr(part, "__metadata__", ())]
    for rule in rules or [NOT_NEGATIVE]:
        if isinstance(rule, Among):
            check_name(rule.what, value, rule.names)
        elif isinstance(rule, Within) and isinstance(value, (int, float)) and not rule.allows(value):
            raise InputError(f"{name} must {rule.words}, not {value!r}.")
