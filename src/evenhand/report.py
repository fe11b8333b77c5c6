"""What people read: tables in the terminal, a picture, and the same numbers as plain data for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from operator import itemgetter
from os import PathLike
from typing import Any

import numpy as np
from jaxtyping import Float
from rich import box
from rich.table import Table
from rich.text import Text

from evenhand import metrics
from evenhand.errors import InputError
from evenhand.exact.bounds import ErrorBound
from evenhand.exact.policies import Mixture
from evenhand.exact.solve import Solution
from evenhand.welfare import Leximin, Welfare

NOTHING = "–"
FEW = 16  # users, for whom each bar and each point of a curve has room
FAIR, UTILITARIAN = "#0072B2", "#E69F00"  # blue and orange: apart for every eye, and in grey

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
AS_PRINTED = ("published", "corollary")  # what the paper states, and what may fail


def who_gets_what(welfare: Welfare, fair: Solution, utilitarian: Solution | None = None) -> Table:
    """One row per user, fair beside utilitarian, then what the two come to and how sure that is."""
    table = _table()
    table.add_column("user")
    table.add_column("optimum" if utilitarian is None else "fair", justify="right", style="bold")
    both = [fair]
    if utilitarian is not None:
        both.append(utilitarian)
        table.add_column("utilitarian", justify="right")
        table.add_column("difference", justify="right", style="dim")

    amount = _amounts(np.concatenate([solution.returns for solution in both]))

    def row(name: str, measure: Callable[[Any], float | None], text: Callable[[float], str]) -> None:
        values = [measure(solution.returns) for solution in both]
        cells = [NOTHING if value is None else text(value) for value in values]
        first, last = (math.nan if value is None else float(value) for value in (values[0], values[-1]))
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
    table.add_section()
    if utilitarian is not None:
        price = metrics.price_of_fairness(utilitarian.returns, fair.returns)
        table.add_row("price of fairness", f"{price:.2%}")
    table.add_row("certified gap", *(f"{solution.gap:.1e}" for solution in both))
    table.add_row("method", *(solution.method for solution in both))
    table.add_row("time", *(_duration(solution.seconds) for solution in both))
    return table


def remarks(welfare: Welfare, fair: Solution) -> list[str]:
    """In sentences, what the table cannot say: what is proven, and what is unusual about the answer."""
    if isinstance(welfare, Leximin) and fair.status != "interrupted":  # an order: the number is only a stand-in
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
    table = _table()
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


def welfare_of(welfare: Welfare, returns: Float[np.ndarray, " D"]) -> float | None:
    """The welfare of returns, None where it is not defined."""
    if welfare.needs_positive and returns.min() <= 0:
        return None
    return float(welfare.value(returns))


def solution_record(solution: Solution, welfare: Welfare) -> dict[str, Any]:
    """A solution as plain data, without the policy itself; `welfare` is the one asked for."""
    returns = solution.returns
    return {
        "returns": returns.tolist(),
        "total": float(returns.sum()),
        "mean": float(returns.mean()),
        "minimum": float(metrics.minimum(returns)),
        "maximum": float(metrics.maximum(returns)),
        "welfare": welfare_of(welfare, returns),
        "cv": float(metrics.cv(returns)),
        "gini": float(metrics.gini(returns)) if returns.min() >= 0 else None,
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


def as_json(record: dict[str, Any]) -> str:
    """The record as JSON text, numbers to their last digit; null for those that JSON does not know."""

    def known(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: known(item) for key, item in value.items()}
        if isinstance(value, list):
            return [known(item) for item in value]
        return None if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(known(record), allow_nan=False, ensure_ascii=False, indent=2)


def draw_comparison(
    fair: Solution,
    utilitarian: Solution,
    path: str | PathLike[str],
    *,
    name: str = "fair",
    measure: str = "expected return",
    title: str = "",
) -> None:
    """Draw each user's return under both policies, and how evenly each shares them out; matplotlib is needed.

    name: what to call the fair policy; measure: what the returns are. The file's ending says which format.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import PercentFormatter
    except ImportError:
        raise InputError('pictures need matplotlib: pip install "evenhand[plot]".') from None
    figure = Figure(figsize=(10, 4.4), dpi=150, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("0.6")
        axes.tick_params(color="0.6", labelcolor="0.25")
    pairs = ((fair, name, FAIR), (utilitarian, "utilitarian", UTILITARIAN))
    D = len(fair.returns)
    amount = _amounts(np.concatenate([fair.returns, utilitarian.returns]), digits=3)

    users = np.arange(1, D + 1)
    for shift, (solution, label, colour) in zip((-0.2, 0.2), pairs, strict=True):
        bars = left.bar(users + shift, solution.returns, 0.38, color=colour, label=label)
        if D <= 8:  # more numbers than that would run into each other
            left.bar_label(bars, fmt=amount, fontsize=9, padding=2, color="0.25")
    left.axhline(0, color="0.6", linewidth=0.8)
    left.set(xlabel="user", ylabel=measure)
    left.set_title("What each user gets", loc="left", fontweight="bold")
    left.set_xlim(0.4, D + 0.6)
    left.xaxis.get_major_locator().set_params(integer=True)
    if D <= FEW:
        left.set_xticks(users)
    left.margins(y=0.12)
    left.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)

    shares = np.linspace(0, 1, D + 1)
    of_total = min(fair.returns.min(), utilitarian.returns.min()) >= 0
    for solution, label, colour in pairs:
        curve = metrics.lorenz(solution.returns, generalized=not of_total)
        right.plot(
            shares, curve, "o-" if D <= FEW else "-", color=colour, linewidth=2.2, label=label, clip_on=False, zorder=3
        )
        even = "0.2" if of_total else colour
        right.plot([0, 1], [0, curve[-1]], color=even, linewidth=1.2, dashes=(4, 3), zorder=4)
    right.set_title("How evenly it is shared", loc="left", fontweight="bold")
    right.set(xlabel="users, the worst-off first", xlim=(0, 1))
    right.xaxis.set_major_formatter(PercentFormatter(1))
    if of_total:
        right.set(ylabel="their share of the total", ylim=(0, 1), aspect="equal")
        right.yaxis.set_major_formatter(PercentFormatter(1))
        right.annotate(
            "everyone the same",
            (0.5, 0.5),
            xytext=(-9, 9),
            textcoords="offset points",
            ha="center",
            va="center",
            rotation=45,
            color="0.25",
            fontsize=9,
        )
    else:  # shares of a total mean nothing with losses among them: the generalized curve takes sums instead
        right.set_ylabel("their returns together, per user of all")
        right.axhline(0, color="0.6", linewidth=0.8)
        right.text(0.03, 0.94, "dashed: everyone the same", transform=right.transAxes, color="0.25", fontsize=9)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    figure.savefig(path)


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))


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


def _amounts(values: Float[np.ndarray, " N"], digits: int = 6) -> Callable[[float], str]:
    """How to write numbers of this size: with the same decimals each, so many digits for the largest."""
    largest = float(np.abs(values).max())
    decimals = digits - 1 - math.floor(math.log10(largest)) if largest else digits - 2
    if not digits - 10 <= decimals <= digits + 3:
        return lambda x: f"{x:.{digits - 1}e}"
    decimals = max(decimals, 0)
    return lambda x: f"{round(x, decimals) + 0.0:,.{decimals}f}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.2f} s" if seconds < 9.95 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes / 60:.1f} h"
