"""Helpers for the tests of the emulated network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from evenhand.envs.datacenter import Datacenter
from evenhand.envs.datacenter.wiring import plan

needs_network = pytest.mark.usefixtures("possible")
"""Namespaces can be made here; in CI they must be."""


def planned(env: Datacenter, time_scale: float | int = 1) -> dict[str, Any]:
    return plan(env.tree, env.paths, env.port, env.capacity, len(env.flows), time_scale)


def interfaces() -> list[str]:
    return sorted(line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:])
