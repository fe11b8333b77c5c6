"""What a run is asked to do: thirteen entries, checked in one place whether a person or a file says them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from evenhand.errors import InputError
from evenhand.runs.checkpoint import as_json
from evenhand.runs.settings import ALGORITHMS, PRESETS, check_name, check_steps, configured
from evenhand.welfare import Utilitarian, Welfare
from evenhand.welfare import welfare as named_welfare

LARGEST = 2**63 - 1
"""Of whole numbers, where nothing else bounds them."""
MOST_EPISODES = MOST_WORKERS = 2**31 - 1
DEEPEST = 16
"""How far lists within lists may go in the settings of an environment."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A training run, as it stands in run.json; made by `from_json`, which checks it, or from one that was checked."""

    env: str | None
    """The name of the environment, perhaps as `module:name`; None where only a Python program can make it."""
    name: str
    """What people call it."""
    arguments: Mapping[str, Any]
    """Settings of the environment."""
    training: Mapping[str, Any]
    """Those that differ while training."""
    objectives: tuple[str, ...]
    """The names of its users."""
    algo: str
    welfare: str
    preset: str
    settings: Mapping[str, Any]
    """Every hyperparameter of the algorithm."""
    steps: int
    """Of the environment, for each seed."""
    seeds: tuple[int, ...]
    workers: int
    """Processes that step each seed's environments."""
    episodes: int
    """Test episodes for each seed after training."""

    @staticmethod
    def from_json(content: Any) -> Request:
        """What was read from a file or asked by a person; the error says which entry cannot be."""
        if not isinstance(content, dict):
            raise InputError("it should be an object with the entries of a run.")
        for name in NAMES:
            if name not in content:
                raise InputError(f'it has no "{name}".')
        for name in content:
            check_name("entry of a run called", name, NAMES)
        request = Request(
            env=None if content["env"] is None else _text("env", content["env"]),
            name=_text("name", content["name"]),
            arguments=_plain("arguments", content["arguments"]),
            training=_plain("training", content["training"]),
            objectives=_names("objectives", content["objectives"]),
            algo=_text("algo", content["algo"]),
            welfare=_text("welfare", content["welfare"]),
            preset=_text("preset", content["preset"]),
            settings=_plain("settings", content["settings"]),
            steps=_whole("steps", content["steps"], 1),
            seeds=_seeds(content["seeds"]),
            workers=_whole("workers", content["workers"], 0, MOST_WORKERS),
            episodes=_whole("episodes", content["episodes"], 0, MOST_EPISODES),
        )
        check_name("algorithm", request.algo, ALGORITHMS)
        check_name("preset", request.preset, PRESETS)
        named_welfare(request.welfare, len(request.objectives))
        return request

    @staticmethod
    def asked(**entries: Any) -> Request:
        """What a person asks for, with whatever kinds of numbers; refused is what no file could hold."""
        try:
            content = json.loads(as_json(entries))
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"a run can only ask for what JSON can hold: {error}.") from None
        return Request.from_json(content)

    def to_json(self) -> dict[str, Any]:
        """The same, as JSON can hold it."""
        found = {name: getattr(self, name) for name in NAMES}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}

    @cached_property
    def config(self) -> Any:
        """The algorithm's hyperparameters, checked as if they were new; not in `from_json`, since it takes JAX."""
        try:
            config = configured(self.algo, self.settings)
            check_steps(self.algo, config, self.steps)
        except InputError as error:
            raise InputError(f"run.json is damaged: {error}") from None
        return config

    @cached_property
    def social_welfare(self) -> Welfare:
        """What is maximised."""
        return named_welfare(self.welfare, len(self.objectives))

    @property
    def method(self) -> str:
        """What people call the algorithm with this welfare, as in GGF-PPO."""
        if isinstance(self.social_welfare, Utilitarian):
            return self.algo.upper()
        return f"{self.welfare.split(':')[0].upper()}-{self.algo.upper()}"


NAMES = tuple(field.name for field in fields(Request))


def whole(value: Any, least: int, most: int = LARGEST) -> bool:
    """Whether something is a whole number in a range; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _whole(name: str, value: Any, least: int, most: int = LARGEST) -> int:
    if not whole(value, least, most):
        limit = f" and at most {most}" if isinstance(value, int) and value > most else ""
        raise InputError(f'"{name}" must be a whole number of at least {least}{limit}, not {_shown(value)}.')
    return int(value)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise InputError(f'"{name}" must be a text, not {_shown(value)}.')
    return value


def _names(name: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) for item in value):
        raise InputError(f'"{name}" must be a list of names, not {_shown(value)}.')
    return tuple(value)


def _seeds(value: Any) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or not all(whole(seed, 0, 2**62) for seed in value):
        raise InputError(f'"seeds" must be a list of whole numbers from 0 to 2^62, not {_shown(value)}.')
    if len(set(value)) < len(value):
        raise InputError(f'"seeds" must differ, but {_shown(value)} has one twice.')
    return tuple(value)


def _plain(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f'"{name}" must be an object of names and values, not {_shown(value)}.')
    _check_plain(name, value, DEEPEST)
    return value


def _check_plain(name: str, value: Any, depth: int) -> None:
    """Values may be anything that JSON can hold, within reason."""
    if depth < 0:
        raise InputError(f'"{name}" has lists within lists too far.')
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise InputError(f'"{name}" has the name {_shown(key)}, which is no text.')
            _check_plain(name, item, depth - 1)
    elif isinstance(value, list):
        for item in value:
            _check_plain(name, item, depth - 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise InputError(f'"{name}" has a number that is not finite.')
    elif not isinstance(value, str | bool | int | float | None):
        raise InputError(f'"{name}" has a value of the kind {type(value).__name__}, which JSON does not know.')
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise InputError(f'"{name}" has a number of {value.bit_length()} bits, which is too large.')


def _shown(value: Any, most: int = 60) -> str:
    """A value as it was written, but never a page of it."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = f"a {type(value).__name__}"
    return text if len(text) <= most else f"{text[: most - 1]}…"
