"""Solving for a person: as `evenhand.exact` does it, with a bar that shows the closing gap."""

from __future__ import annotations

from functools import partial
from typing import Literal

from evenhand.exact import bounds, solver
from evenhand.exact.bounds import ErrorBound
from evenhand.exact.columns import Report
from evenhand.exact.momdp import MOMDP
from evenhand.exact.policies import Criterion
from evenhand.exact.solver import Solution
from evenhand.progress import SolveProgress
from evenhand.welfare import Welfare


def solve(
    model: MOMDP,
    welfare: Welfare | str,
    *,
    gamma: float | None = None,
    criterion: Criterion = "discounted",
    tol: float = 1e-8,
    method: Literal["auto", "lp", "columns"] = "auto",
    progress: bool | None = None,
    report: Report | None = None,
) -> Solution:
    """Find a policy that maximises the welfare of the vector of expected returns, with a bound on the gap.

    welfare: a welfare function, or its text, such as "ggf" or "nash".
    gamma: the discount, in [0, 1), for the discounted criterion; criterion="average" takes none.
    tol: stop when the gap is below this share of the widest difference that returns can have, span(R)/(1 − γ).
    method: "lp" solves one linear program, "columns" generates columns; "auto" decides by the size of the model.
    progress: show a bar with the closing gap; None means: on a terminal, if it takes more than a moment.
    report: called after each query with the welfare reached, its upper bound and the number of queries.

    Ctrl-C ends the search and returns the best policy so far with its gap.
    """
    with SolveProgress(progress) as bar:
        return solver.solve(
            model, welfare, gamma=gamma, criterion=criterion, tol=tol, method=method, report=report, watch=bar.update
        )


def error_bound(
    model: MOMDP,
    welfare: Welfare | str,
    gamma: float,
    *,
    average: Solution | None = None,
    tol: float = 1e-10,
    progress: bool | None = None,
) -> ErrorBound:
    """All bounds on what discounting costs, for one model and one discount (see `evenhand.exact.bounds.error_bound`).

    average: the solution for the average reward, if it is known already from another discount.
    tol, progress: as for `solve`, which is called for both criteria. Ctrl-C ends it all.
    """
    return bounds.error_bound(model, welfare, gamma, average=average, tol=tol, solve=partial(solve, progress=progress))
