"""Exact solutions: tables of who gets what and of bounds, and the same numbers as plain data for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

from evenhand import metrics
from evenhand.exact.bounds import ErrorBound
from evenhand.exact.policies import Mixture
from evenhand.exact.solver import Solution
from evenhand.report.text import NOTHING, amounts, duration, plain_table
from evenhand.welfare import Leximin, Welfare, welfare_of

BOUNDS = (  # the fields of ErrorBound in the order of the table, with their headings
    ("true_gap", "true\nloss"),
    ("published", "Thm\n3.6"),
    ("corollary", "Cor\n3.7"),
    ("rigorous", "rigor-\nous"),
    ("rigorous_inf", "by\n‖H‖∞"),
    ("rigorous_2", "by\n‖H‖₂"),
    ("kakade", "\nKakade"),
    ("certificate", "certi-\nficate"),
)
STATUS = {
    "interrupted": "Interrupted: this is the best policy so far. Its gap is proven, but not yet closed.",
    "stalled": "Stalled: rounding does not let the gap close any further. What is left is still proven.",
}
OURS = {*metrics.STATISTICS, "gini"}
AS_PRINTED = ("published", "corollary")  # what the paper states, and what may fail


def who_gets_what(welfare: Welfare, fair: Solution, utilitarian: Solution | None = None) -> Table:
    """One row per user, fair beside utilitarian, then what the two come to and how sure that is."""
    table = plain_table()
    table.add_column("user")
    table.add_column("optimum" if utilitarian is None else "fair", justify="right", style="bold")
    both = [fair]
    if utilitarian is not None:
        both.append(utilitarian)
        table.add_column("utilitarian", justify="right")
        table.add_column("difference", justify="right", style="dim")

    amount = amounts(np.concatenate([solution.returns for solution in both]))

    def row(name: str, measure: Callable[[Any], float], text: Callable[[float], str]) -> None:
        values = [float(measure(solution.returns)) for solution in both]
        cells = [NOTHING if math.isnan(value) else text(value) for value in values]
        first, last = values[0], values[-1]
        if utilitarian is not None and math.isfinite(first - last):
            change = text(abs(first - last))
            visible = any(digit in change for digit in "123456789")
            cells.append(f"{'+' if first > last else '-'}{change}" if visible else change)
        table.add_row(name, *cells)

    for user in range(welfare.D):
        row(str(user + 1), itemgetter(user), amount)
    table.add_section()
    row("total", np.sum, amount)
    row("mean", np.mean, amount)
    row("minimum", metrics.minimum, amount)
    of_returns = (lambda x: f"{x:.6g}") if welfare.needs_positive else amount  # logarithms have their own size
    row("welfare", lambda returns: welfare_of(welfare, returns), of_returns)
    row("CV", metrics.cv, lambda x: f"{x:.4f}")
    if min(solution.returns.min() for solution in both) >= 0:
        row("Gini", metrics.gini, lambda x: f"{x:.4f}")
    for statistic in _others().values():
        text = f"{{:{statistic.format}}}".format if statistic.format else amount
        row(statistic.heading, partial(_statistic, statistic, welfare), text)
    table.add_section()
    if utilitarian is not None:
        price = metrics.price_of_fairness(utilitarian.returns, fair.returns)
        table.add_row("price of fairness", f"{price:.2%}")
    table.add_row("certified gap", *(f"{solution.gap:.1e}" for solution in both))
    table.add_row("method", *(solution.method for solution in both))
    table.add_row("time", *(duration(solution.seconds) for solution in both))
    return table


def remarks(welfare: Welfare, fair: Solution) -> list[str]:
    """In sentences, what the table cannot say: what is proven, and what is unusual about the answer."""
    if isinstance(welfare, Leximin):  # an order: the number is only a stand-in
        said = [
            f"Proven to {fair.gap:.1e}: no policy whatsoever gives the worst-off user more; none that gives them as "
            "much gives the second worst-off user more; and so on."
        ]
    else:
        said = [f"Proven: no policy whatsoever has a welfare above {fair.welfare:.6g} + {fair.gap:.1e}."]
    if fair.status != "optimal":
        said.append(STATUS[fair.status])
    return [*said, fair.note] if fair.note else said


def bounds_table(bounds: Sequence[ErrorBound]) -> Table:
    """One row per γ: the average welfare that is really lost, and what each bound says of it."""
    table = plain_table()
    table.add_column("\nγ", no_wrap=True)
    shown = [name for name, _ in BOUNDS if any(getattr(bound, name) is not None for bound in bounds)]
    for name, heading in BOUNDS:
        if name in shown:
            bold = "bold" if name == "true_gap" else ""
            table.add_column(heading, justify="right", vertical="bottom", no_wrap=True, style=bold)
    for bound in bounds:
        table.add_row(f"{bound.gamma:g}", *(_bound_cell(bound, name) for name in shown))
    return table


def bounds_footnotes(bounds: Sequence[ErrorBound]) -> list[str]:
    """What the columns of `bounds_table` mean, in plain words."""

    def any_of(names: Sequence[str], test: Callable[[ErrorBound, str], bool]) -> bool:
        return any(test(bound, name) for bound in bounds for name in names)

    said = [
        "true loss: the average welfare lost in the long run by following the best policy for that γ instead "
        "of the best one for the average reward. Every other column claims to be at least as large."
    ]
    if any_of(AS_PRINTED, lambda bound, name: getattr(bound, name) is not None):
        said.append("Thm 3.6, Cor 3.7: the paper's formulas as printed. docs/theory.md says why they can fail.")
    said.append("rigorous, also by ‖H‖∞ and ‖H‖₂, Kakade (2001) and certificate: proven, wherever they are defined.")
    if any_of(AS_PRINTED, violated):
        said.append("✗ fails: the condition of the theorem holds, and yet the true loss is larger than it says.")
    if any_of(AS_PRINTED, _beyond_condition):
        said.append("† outside the theorem, whose condition is a weakly communicating model.")
    if any_of([name for name, _ in BOUNDS], lambda bound, name: getattr(bound, name) is None):
        said.append(
            f"{NOTHING} or no column: not defined here (γ too small for its condition, a form for one user "
            "only, repeated eigenvalues, a large model, or a mixture of policies)."
        )
    return said


def violated(bound: ErrorBound, name: str) -> bool:
    """Whether a formula of the paper that claims to apply lies below the true loss, by more than rounding."""
    value = getattr(bound, name)
    missed = (1 - bound.gamma) * bound.discounted.gap + bound.average.gap + 1e-12 * abs(bound.average.welfare)
    return bool(bound.applicable and value is not None and bound.true_gap > value + missed)


def _beyond_condition(bound: ErrorBound, name: str) -> bool:
    return name in AS_PRINTED and getattr(bound, name) is not None and not bound.applicable


def _statistic(statistic: metrics.Statistic, welfare: Welfare, returns: Any) -> float:
    return float(statistic.of(returns, welfare))


def _others() -> dict[str, metrics.Statistic]:
    """Statistics that people have added; ours have had other names, and places of their own, here."""
    return {name: statistic for name, statistic in metrics.STATISTICS.items() if name not in OURS}


def solution_record(solution: Solution, welfare: Welfare) -> dict[str, Any]:
    """A solution as plain data, without the policy itself; `welfare` is the one asked for."""
    returns = solution.returns
    return {
        "returns": returns.tolist(),
        "total": float(returns.sum()),
        "mean": float(returns.mean()),
        "minimum": float(metrics.minimum(returns)),
        "maximum": float(metrics.maximum(returns)),
        "welfare": float(welfare_of(welfare, returns)),
        "cv": float(metrics.cv(returns)),
        "gini": float(metrics.gini(returns)) if returns.min() >= 0 else None,
        **{name: float(statistic.of(returns, welfare)) for name, statistic in _others().items()},
        "gap": solution.gap,
        "weights": solution.weights.tolist(),
        "mixture_of": len(solution.policy.shares) if isinstance(solution.policy, Mixture) else None,
        "status": solution.status,
        "method": solution.method,
        "queries": solution.queries,
        "seconds": solution.seconds,
        "note": solution.note,
    }


def bound_record(bound: ErrorBound, welfare: Welfare) -> dict[str, Any]:
    """All bounds for one γ as plain data."""
    return {
        "gamma": bound.gamma,
        **{name: getattr(bound, name) for name, _ in BOUNDS},
        "applicable": bound.applicable,
        **{f"{name}_violated": violated(bound, name) for name in AS_PRINTED},
        "discounted": solution_record(bound.discounted, welfare),
    }


def _bound_cell(bound: ErrorBound, name: str) -> Text:
    value = getattr(bound, name)
    if value is None:
        return Text(NOTHING, style="dim")
    text = f"{value:.3g}" if value == 0 or 1e-4 <= abs(value) < 1e5 else f"{value:.0e}"
    if violated(bound, name):
        return Text(f"{text}✗", style="bold red")
    if _beyond_condition(bound, name):
        return Text(f"{text}†", style="dim")
    return Text(text)
