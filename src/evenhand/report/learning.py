"""Learned policies: tables of who gets what with intervals over seeds, and the same numbers for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int
from rich.table import Table
from rich.text import Text

from evenhand import metrics
from evenhand.report.text import NOTHING, amounts, plain_table
from evenhand.welfare import Welfare

if TYPE_CHECKING:
    from evenhand.stats import Estimate
else:  # imported where it is used: it brings scipy.stats, which takes a second
    Estimate = Any

MOST_COLUMNS = 6
"""Users, for whom a table has room beside what they come to together."""
MEASURES: Mapping[str, str] = {
    "average": "average reward per step",
    "return": "sum of the rewards of an episode",
    "discounted": "(1 − γ) × discounted return",
}
SUMMARIES = ("welfare", "average", "minimum", "maximum", "cv")


@dataclass(frozen=True)
class Outcome:
    """What one policy, or one way of learning policies, brings its users."""

    name: str
    returns: Float[np.ndarray, "N D"]
    """One row for each seed; a single one for policies that were not learnt."""
    kind: str = "run"
    """run, baseline or exact."""

    @property
    def mean(self) -> Float[np.ndarray, " D"]:
        """What each user gets, on average over seeds."""
        return np.asarray(self.returns.mean(axis=0))


@dataclass(frozen=True)
class Curve:
    """How the rewards of a run changed while it was trained."""

    name: str
    steps: Int[np.ndarray, " T"]
    rewards: Float[np.ndarray, "N T D"]


def estimate(values: Float[np.ndarray, " N"]) -> Estimate:
    """The mean over seeds and its 95 % interval; NaN where a seed has none."""
    from evenhand import stats

    if not np.isfinite(values).all():
        return stats.Estimate(math.nan, math.nan, math.nan)
    return stats.Estimate(float(values.mean()), *stats.interval(values))


def summary(outcome: Outcome, welfare: Welfare) -> dict[str, Estimate]:
    """For each of `SUMMARIES` the mean over seeds: of every seed's welfare, minimum, …, not those of the mean."""

    def of(measure: Callable[[Any], Any]) -> Estimate:
        return estimate(np.array([float(measure(row)) for row in outcome.returns]))

    return {
        "welfare": of(lambda row: math.nan if welfare.needs_positive and row.min() <= 0 else welfare.value(row)),
        "average": of(np.mean),
        "minimum": of(np.min),
        "maximum": of(np.max),
        "cv": of(metrics.cv_of_one_sign),
    }


def scaled(share: Estimate, whole: float) -> Estimate:
    """An estimate as a part of a positive number."""
    return type(share)(*(end / whole if whole > 0 else math.nan for end in share))


def price(outcome: Outcome, best: Outcome) -> Estimate:
    """The part of the best total that is lost, over seeds."""
    return estimate(np.array([float(metrics.price_of_fairness(best.mean, row)) for row in outcome.returns]))


def outcomes_table(
    outcomes: Sequence[Outcome],
    objectives: Sequence[str],
    welfare: Welfare,
    *,
    optimum: float | None = None,
    prices: bool = False,
) -> Table:
    """One row for each policy: what each user gets, and what that comes to.

    optimum: the largest welfare that there can be, of which every policy reaches a part.
    prices: whether to add what is lost of the largest average.
    """
    table = plain_table(gap=0)
    table.add_column("")
    shown = objectives if len(objectives) <= MOST_COLUMNS else []
    sums = [] if shown else ["\nsum"]
    for heading in (*shown, "wel-\nfare", *sums, "aver-\nage", "mini-\nmum", "maxi-\nmum", "\nCV"):
        table.add_column(heading, justify="right", vertical="bottom", style="bold" if heading == "wel-\nfare" else "")
    if optimum is not None:
        table.add_column("of the\noptimum", justify="right", vertical="bottom")
    best = max(outcomes, key=lambda outcome: float(outcome.mean.sum()))
    if prices:
        table.add_column("price of\nfairness", justify="right", vertical="bottom")
    means = np.concatenate([outcome.mean for outcome in outcomes])
    amount = amounts(means, digits=4 if np.abs(means).max() >= 1 else 3)
    for before, outcome in zip([None, *outcomes], outcomes, strict=False):
        if before is not None and before.kind != outcome.kind:
            table.add_section()
        found = summary(outcome, welfare)
        of_returns = _plain if welfare.needs_positive else amount  # logarithms have their own size
        cells = [_cell(estimate(column), amount) for column in outcome.returns.T] if shown else []
        cells.append(_cell(found["welfare"], of_returns))
        if sums:
            cells.append(_cell(estimate(outcome.returns.sum(axis=1)), amount))
        cells += [_cell(found[name], amount) for name in ("average", "minimum", "maximum")]
        cells.append(_cell(found["cv"], lambda x: f"{x:.3f}"))
        if optimum is not None:
            cells.append(_cell(scaled(found["welfare"], optimum), _percent))
        if prices:
            cells.append(_cell(price(outcome, best), _percent))
        table.add_row(Text(outcome.name), *cells)
    return table


def table_notes(outcomes: Sequence[Outcome], objectives: Sequence[str], welfare: Welfare) -> list[str]:
    """What the table cannot say in its columns."""
    said = []
    counts = sorted({len(outcome.returns) for outcome in outcomes if outcome.kind == "run"})
    if counts and counts[-1] > 1:
        said.append(f"±: 95 % interval of the mean over {' or '.join(map(str, counts))} seeds (Student's t).")
    if counts and counts[0] == 1:
        said.append("One seed says nothing about others, so that it has no interval: train with --seeds 4 or more.")
    said.append(f"welfare: {welfare.name}, of what each user gets on average over the test episodes.")
    if len(objectives) > MOST_COLUMNS:
        said.append(f"There are {len(objectives)} users: --json has what each of them gets, and so has --picture.")
    return said


def facts_table(facts: Mapping[str, Mapping[str, float]]) -> Table:
    """What else environments said of episodes, the longer of the two lists downwards: facts or policies.

    facts: the mean over episodes, by policy and fact.
    """
    table = plain_table(gap=0)
    names = list(dict.fromkeys(fact for of_policy in facts.values() for fact in of_policy))
    values = {policy: [of_policy.get(name, math.nan) for name in names] for policy, of_policy in facts.items()}
    headings, rows = list(facts), [(name, *of_fact) for name, *of_fact in zip(names, *values.values(), strict=True)]
    if len(facts) > len(names):
        headings, rows = names, [(policy, *of_policy) for policy, of_policy in values.items()]
    table.add_column("", no_wrap=True)
    for name in headings:
        table.add_column(name, justify="right", vertical="bottom", overflow="fold")  # a heading, never a number
    for name, *numbers in rows:
        table.add_row(name, *map(_brief, numbers))
    return table


def _brief(value: float) -> str:
    """Few enough characters for the narrowest column."""
    if math.isnan(value):
        return NOTHING
    return f"{value:.3f}" if 0.001 <= abs(value) < 1 else f"{value:,.4g}"


def outcome_record(
    outcome: Outcome, objectives: Sequence[str], welfare: Welfare, optimum: float | None = None
) -> dict[str, Any]:
    """An outcome as plain data, each number with the ends of its interval."""
    found = summary(outcome, welfare)
    record: dict[str, Any] = {
        "name": outcome.name,
        "kind": outcome.kind,
        "seeds": len(outcome.returns),
        "users": {name: estimate(column)._asdict() for name, column in zip(objectives, outcome.returns.T, strict=True)},
        **{name: found[name]._asdict() for name in SUMMARIES},
        "sum": estimate(outcome.returns.sum(axis=1))._asdict(),
    }
    if optimum is not None:
        record["share_of_optimum"] = scaled(found["welfare"], optimum)._asdict()
    return record


def _cell(found: Estimate, text: Callable[[float], str]) -> Text:
    if not math.isfinite(found.value):
        return Text(NOTHING, style="dim")
    cell = Text(text(found.value))
    if math.isfinite(found.low):
        cell.append(f"\n±{text((found.high - found.low) / 2)}", style="dim")
    return cell


def _plain(x: float) -> str:
    return f"{x:.4g}"


def _percent(x: float) -> str:
    return f"{100 * x + 0.0:.1f} %"
