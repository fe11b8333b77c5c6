"""evenhand: fair policies for decisions that affect several users at once."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from evenhand import metrics
from evenhand.envs.gym.gym_env import register
from evenhand.errors import IllConditioned, Infeasible, InputError
from evenhand.exact.bounds import ErrorBound
from evenhand.exact.momdp import MOMDP
from evenhand.exact.policies import Mixture, evaluate
from evenhand.exact.solver import Solution
from evenhand.solving import error_bound, solve
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
    from evenhand.envs.finite import FiniteEnv
    from evenhand.evaluation.playing import evaluate_policy
    from evenhand.evaluation.policy import Policy
    from evenhand.evaluation.result import Evaluation
    from evenhand.runs.run import Run, load
    from evenhand.runs.trainer import resume, train

__version__ = "0.1.0"

__all__ = [
    "GGF",
    "MOMDP",
    "AlphaFair",
    "ErrorBound",
    "Evaluation",
    "FiniteEnv",
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
    "Evaluation": "evenhand.evaluation.result",
    "FiniteEnv": "evenhand.envs.finite",
    "Policy": "evenhand.evaluation.policy",
    "Run": "evenhand.runs.run",
    "evaluate_policy": "evenhand.evaluation.playing",
    "load": "evenhand.runs.run",
    "resume": "evenhand.runs.trainer",
    "train": "evenhand.runs.trainer",
}


def __getattr__(name: str) -> Any:
    if name in _LEARNING:
        return getattr(importlib.import_module(_LEARNING[name]), name)
    raise AttributeError(f"module 'evenhand' has no attribute {name!r}")
