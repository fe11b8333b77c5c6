"""About how long the cells of a study will take."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.agents.algorithm import algorithm
from evenhand.disk import read_json
from evenhand.envs import resolve
from evenhand.envs.registry import domain_of
from evenhand.errors import InputError
from evenhand.runs.request import Request
from evenhand.studies.cells import Cell

HOST_SPEED = 1_000.0
"""Steps of training per core-second in environments that cannot be compiled."""
HOST_TEST = 4.0
"""Seconds for one test episode of these."""
STARTING = 2.0
"""Seconds for compiling, and for testing in compiled environments."""


def seconds_of(cells: Sequence[Cell], missing: Sequence[Cell], root: Path) -> float:
    """About how many core-seconds the missing cells will take, by those that were done and by rules of thumb."""
    known: dict[str, list[float]] = {}
    for cell in cells:
        file = cell.folder(root) / "timing.json" if cell.learns else None
        if file is not None and file.exists():
            known.setdefault(cell.kind, []).append(seconds_in(file))
    total = 0.0
    for cell in missing:
        if cell.kind in known:
            total += float(np.mean(known[cell.kind]))
            continue
        asked = cell.request
        total += STARTING
        if isinstance(asked, Request):
            assert asked.env is not None
            pure = _is_pure(asked.env, {**asked.arguments, **asked.training})
            domain = domain_of(asked.name)
            known_speeds = {} if domain is None else domain.speeds
            speed = known_speeds.get(asked.algo, algorithm(asked.algo).SPEED)
            total += cell.steps / (speed if pure else HOST_SPEED)
        for test in cell.tests:
            if not _is_pure(str(asked.env), {**asked.arguments, **test["arguments"]}):
                total += HOST_TEST * test["episodes"]
    return total


def seconds_in(file: Path) -> float:
    """How long a cell took, as it was kept."""
    content = read_json(file)
    seconds = content.get("seconds") if isinstance(content, dict) else None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e12:
        raise InputError(f"{file} is damaged: it should say how many seconds a cell took. Remove it to go on.")
    return float(seconds)


def _is_pure(env: str, arguments: Mapping[str, Any]) -> bool:
    return _known_pure(env, json.dumps(dict(arguments), sort_keys=True))


@cache
def _known_pure(env: str, arguments: str) -> bool:
    from evenhand.envs.core import PureEnv

    return isinstance(resolve(env, json.loads(arguments)), PureEnv)
