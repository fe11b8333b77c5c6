"""evenhand: fair policies for decisions that affect several users at once."""

from evenhand import metrics
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

__version__ = "0.1.0"

__all__ = [
    "GGF",
    "MOMDP",
    "AlphaFair",
    "ErrorBound",
    "IllConditioned",
    "Infeasible",
    "InputError",
    "Leximin",
    "Maximin",
    "Mixture",
    "Nash",
    "RegularizedMaximin",
    "Solution",
    "Utilitarian",
    "Welfare",
    "error_bound",
    "evaluate",
    "metrics",
    "solve",
    "welfare",
]
