"""evenhand: fair policies for decisions that affect several users at once."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from evenhand import metrics
from evenhand.envs.gym import register
from evenhand.errors import IllConditioned, Infeasible, InputError
from evenhand.exact.bounds import ErrorBound, error_bound
from evenhand.exact.model import MOMDP
from evenhand.exact.policies import Mixture, evaluate
from evenhand.exact.solve import Solution, solve
from evenhand.welfare import (
    GGF,
    AlphaFair,
    Leximin,
    Maximin,
    Nash,
    RegularizedMaximin,
    Utilitarian,
    Welfare,
    welfare,
)

register()  # so that gymnasium.make knows evenhand's environments

if TYPE_CHECKING:
    from evenhand.judge import Evaluation, Policy, evaluate_policy
    from evenhand.runs.training import Run, load, resume, train

__version__ = "0.1.0"

__all__ = [
    "GGF",
    "MOMDP",
    "AlphaFair",
    "ErrorBound",
    "Evaluation",
    "IllConditioned",
    "Infeasible",
    "InputError",
    "Leximin",
    "Maximin",
    "Mixture",
    "Nash",
    "Policy",
    "RegularizedMaximin",
    "Run",
    "Solution",
    "Utilitarian",
    "Welfare",
    "error_bound",
    "evaluate",
    "evaluate_policy",
    "load",
    "metrics",
    "resume",
    "solve",
    "train",
    "welfare",
]

# Learning needs JAX, which takes a second to import: whoever only solves models does not wait for it.
_LEARNING = {
    "Evaluation": "evenhand.judge",
    "Policy": "evenhand.judge",
    "Run": "evenhand.runs.training",
    "evaluate_policy": "evenhand.judge",
    "load": "evenhand.runs.training",
    "resume": "evenhand.runs.training",
    "train": "evenhand.runs.training",
}


def __getattr__(name: str) -> Any:
    if name in _LEARNING:
        return getattr(importlib.import_module(_LEARNING[name]), name)
    raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
