"""The algorithms, one module each.

They offer `Config`, `impossible`, `initialise`, `explore` and `update` for learning, and `acting`, `act` and `mode` for
using what was learnt.
"""

from __future__ import annotations

from types import ModuleType

from evenhand.agents import a2c, dqn, ppo

ALGORITHMS: dict[str, ModuleType] = {"ppo": ppo, "a2c": a2c, "dqn": dqn}

__all__ = ["ALGORITHMS", "a2c", "dqn", "ppo"]
