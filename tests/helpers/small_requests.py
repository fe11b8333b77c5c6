"""A request that is as small as can be, for tests of run folders."""

from __future__ import annotations

from typing import Any

from evenhand.runs.request import Request

SMALLEST = {
    "env": "species",
    "name": "species",
    "arguments": {},
    "training": {},
    "objectives": ["otters", "abalone"],
    "algo": "ppo",
    "welfare": "ggf:2",
    "preset": "tuned",
    "settings": {"gamma": 0.99, "envs": 2, "rollout": 4, "minibatches": 1, "hidden": [4]},
    "steps": 100,
    "seeds": [0, 7],
    "workers": 0,
    "episodes": 0,
}


def asked(**changes: Any) -> Request:
    """With these entries changed."""
    return Request.asked(**(SMALLEST | changes))
