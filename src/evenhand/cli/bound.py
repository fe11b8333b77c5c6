"""bound: what discounting costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from evenhand import report
from evenhand.cli import options, output
from evenhand.cli.solve import ModelFile, check_discount, model_record, size_of
from evenhand.errors import InputError
from evenhand.exact.bounds import ErrorBound
from evenhand.exact.momdp import MOMDP
from evenhand.solving import error_bound, solve
from evenhand.terminal import Console
from evenhand.welfare import GGF
from evenhand.welfare import welfare as named_welfare

BOUND_TOL = 1e-10  # losses are small differences of two optima, which must be exact to more digits


@dataclass(frozen=True)
class Bound:
    """Show the average welfare lost by discounting, and what bounds say of it.

    One row per discount: the true loss, the paper's formulas, rigorous bounds.

    For example:
        evenhand bound model.npz --gammas 0.9,0.99,0.999

    Ctrl-C shows the rows that are finished (exit code 130).
    """

    model: ModelFile
    """A model file, as for evenhand solve."""
    gammas: Annotated[str, arg(metavar="G1,G2,...")]
    """The discounts, each in [0, 1), with commas between them."""
    welfare: options.Name = "ggf"
    """What is fair: ggf, ggf:RATIO, ggf:W1,W2,..., maximin, regularized-maximin:EPS or utilitarian."""
    json: options.Json = False


def run_bound(args: Bound) -> int:
    """Show what discounting costs."""
    gammas = _discounts(args.gammas)
    model = MOMDP.load(args.model)
    welfare = named_welfare(args.welfare, model.D)
    if not isinstance(welfare, GGF):
        raise InputError(f"error bounds are for the GGF and its special cases, not for {welfare.name}.")
    average = solve(model, welfare, criterion="average", tol=BOUND_TOL)
    if average.status == "interrupted":
        raise KeyboardInterrupt  # every row needs it
    rows: list[ErrorBound] = []
    stopped = False
    try:
        for gamma in _announced(gammas):
            rows.append(error_bound(model, welfare, gamma, average=average, tol=BOUND_TOL))  # noqa: PERF401
    except KeyboardInterrupt:
        if not rows:
            raise
        stopped = True
        output.warn(f"interrupted after {len(rows)} of {len(gammas)} discounts")
    if args.json:
        record = {
            "model": model_record(args.model, model),
            "welfare": welfare.name,
            "average": report.solution_record(average, welfare),
            "bounds": [report.bound_record(row, welfare) for row in rows],
        }
        output.print_json(record)
    else:
        notes = report.bounds_footnotes(rows)
        if average.note:
            notes.append(f"About the average reward: {average.note}")
        about = f"{args.model}: {size_of(model)}; welfare: {welfare.name}"
        output.show("Average welfare lost by discounting", about, report.bounds_table(rows), notes)
    return output.INTERRUPTED if stopped else 0


def _discounts(text: str) -> list[float]:
    gammas = []
    for part in text.split(","):
        try:
            gammas.append(float(part))
        except ValueError:
            expected = "--gammas takes numbers with commas between them, as in 0.9,0.99"
            raise InputError(f"{expected}, but {part!r} is none.") from None
        check_discount("each of --gammas", gammas[-1])
    return gammas


def _announced(gammas: Sequence[float]) -> Iterator[float]:
    """Each discount in turn, with a line on the terminal that says how far it is.

    A line and no bar: a long solve shows its own bar in the same place, and two of them would fight over it.
    """
    console = Console(stderr=True, highlight=False)
    try:
        for k, gamma in enumerate(gammas, start=1):
            if console.is_terminal:
                console.print(f"discount {k} of {len(gammas)}, γ = {gamma:<12g}", end="\r")
            yield gamma
    finally:
        if console.is_terminal:
            console.print(" " * 50, end="\r")
