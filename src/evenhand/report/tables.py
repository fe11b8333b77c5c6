"""Learned policies: tables of who gets what with intervals over seeds, and the same numbers for programs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from evenhand import metrics
from evenhand.evaluation.result import Outcome
from evenhand.metrics import STATISTICS
from evenhand.report.text import NOTHING, Sheet, SheetRow, amounts
from evenhand.runs.run import Run
from evenhand.welfare import Welfare

if TYPE_CHECKING:
    from evenhand.stats import Estimate
else:  # imported where it is used: it brings scipy.stats, which takes a second
    Estimate = Any

MOST_COLUMNS = 6
"""Users, for whom a table has room beside what they come to together."""


def estimate(values: Float[np.ndarray, " N"]) -> Estimate:
    """The mean over seeds and its 95 % interval; NaN where a seed has none."""
    from evenhand import stats

    if not np.isfinite(values).all():
        return stats.Estimate(math.nan, math.nan, math.nan)
    return stats.Estimate(float(values.mean()), *stats.interval(values))


def summary(outcome: Outcome, welfare: Welfare) -> dict[str, Estimate]:
    """For each statistic the mean over seeds: of every seed's welfare, minimum, …, not those of the mean."""
    return {name: estimate(statistic.of(outcome.returns, welfare)) for name, statistic in STATISTICS.items()}


def scaled(share: Estimate, whole: float) -> Estimate:
    """An estimate as a part of a positive number."""
    return type(share)(*(end / whole if whole > 0 else math.nan for end in share))


def price(outcome: Outcome, best: Outcome) -> Estimate:
    """The part of the best total that is lost, over seeds."""
    return estimate(np.array([float(metrics.price_of_fairness(best.mean, row)) for row in outcome.returns]))


def outcomes_sheet(
    outcomes: Sequence[Outcome],
    objectives: Sequence[str],
    welfare: Welfare,
    *,
    optimum: float | None = None,
    prices: bool = False,
) -> Sheet:
    """One row for each policy: what each user gets, and what that comes to.

    optimum: the largest welfare that there can be, of which every policy reaches a part.
    prices: whether to add what is lost of the largest average.
    """
    users = objectives if len(objectives) <= MOST_COLUMNS else []
    shown = {name: statistic for name, statistic in STATISTICS.items() if not (users and statistic.of_many)}
    headings = [*users, *(statistic.heading for statistic in shown.values())]
    headings += ["of the\noptimum"] if optimum is not None else []
    headings += ["price of\nfairness"] if prices else []
    best = max(outcomes, key=lambda outcome: float(outcome.mean.sum()))
    means = np.concatenate([outcome.mean for outcome in outcomes])
    amount = amounts(means, digits=4 if np.abs(means).max() >= 1 else 3)

    def text(name: str) -> Callable[[float], str]:
        spec = shown[name].format or (".4g" if name == "welfare" and welfare.needs_positive else "")
        return (lambda x: f"{x:{spec}}") if spec else amount  # logarithms have their own size

    rows = []
    for before, outcome in zip([None, *outcomes], outcomes, strict=False):
        found = summary(outcome, welfare)
        entries = [_entry(estimate(column), amount) for column in outcome.returns.T] if users else []
        entries += [_entry(found[name], text(name)) for name in shown]
        if optimum is not None:
            entries.append(_entry(scaled(found["welfare"], optimum), _percent))
        if prices:
            entries.append(_entry(price(outcome, best), _percent))
        rows.append(SheetRow(outcome.name, tuple(entries), before is not None and before.kind != outcome.kind))
    return Sheet(tuple(headings), tuple(rows), STATISTICS["welfare"].heading)


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


def facts_sheet(facts: Mapping[str, Mapping[str, float]]) -> Sheet:
    """What else environments said of episodes, the longer of the two lists downwards: facts or policies.

    facts: the mean over episodes, by policy and fact.
    """
    names = list(dict.fromkeys(fact for of_policy in facts.values() for fact in of_policy))
    values = {policy: [of_policy.get(name, math.nan) for name in names] for policy, of_policy in facts.items()}
    headings, rows = list(facts), [(name, *of_fact) for name, *of_fact in zip(names, *values.values(), strict=True)]
    if len(facts) > len(names):
        headings, rows = names, [(policy, *of_policy) for policy, of_policy in values.items()]
    return Sheet(
        tuple(headings), tuple(SheetRow(name, tuple((_brief(x), "") for x in numbers)) for name, *numbers in rows)
    )


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
        **{name: value._asdict() for name, value in found.items()},
    }
    if optimum is not None:
        record["share_of_optimum"] = scaled(found["welfare"], optimum)._asdict()
    return record


def outcomes_record(
    run: Run, outcomes: Sequence[Outcome], measure: str, welfare: Welfare, optimum: float | None = None
) -> dict[str, Any]:
    """A table of outcomes of a run's environment, for programs."""
    objectives = list(run.request.objectives)
    return {
        "environment": run.request.name,
        "objectives": objectives,
        "measure": measure,
        "gamma": run.request.config.gamma,
        "welfare": welfare.name,
        "policies": [outcome_record(outcome, objectives, welfare, optimum) for outcome in outcomes],
    }


def _entry(found: Estimate, text: Callable[[float], str]) -> tuple[str, str]:
    """A number and its interval, as they are written."""
    if not math.isfinite(found.value):
        return NOTHING, ""
    return text(found.value), f"±{text((found.high - found.low) / 2)}" if math.isfinite(found.low) else ""


def _percent(x: float) -> str:
    return f"{100 * x + 0.0:.1f} %"
