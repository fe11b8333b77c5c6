"""Traffic lights: cycle, the best fixed cycle; calibrate, how close the stand-in comes to SUMO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from evenhand import report
from evenhand.cli.shared import (
    Assignments,
    Environment,
    Flag,
    WelfareText,
    Whole,
    assignments,
    check_not_negative,
    check_positive,
    say,
    show,
    whole,
)
from evenhand.errors import InputError
from evenhand.report import calibration, judging
from evenhand.report.text import plain_table
from evenhand.welfare import welfare as named_welfare


@dataclass(frozen=True)
class Cycle:
    """Find the best fixed cycle of a traffic light, by simulation.

    The phases take turns, and each is held for the same number of decisions. This is what a learned
    controller has to beat.

    For example:
        evenhand cycle traffic
        evenhand cycle traffic --env demand=my-table.csv --holds 2,4,6,8 --welfare ggf
    """

    env: Environment
    """traffic."""
    holds: Annotated[str, arg(metavar="H1,H2,...")] = "1,2,3,4,5,6"
    """For how many decisions each phase is held."""
    episodes: Whole = 4
    """Test episodes for each."""
    seed: Whole = 0
    """The same seed gives the same traffic, to all of them."""
    welfare: WelfareText = "utilitarian"
    """What is best: utilitarian, the least waiting of all together; or ggf, maximin, ..."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment; evenhand list traffic shows them."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


def run_cycle(asked: Cycle) -> int:
    """Play each cycle, and say which is best."""
    check_positive("--episodes", asked.episodes)
    check_not_negative("--seed", asked.seed)
    holds = _holds(asked.holds)
    given = assignments("--env", asked.arguments)
    from evenhand.envs import resolve

    env = resolve(asked.env, given)
    objectives = list(env.objectives)
    welfare = named_welfare(asked.welfare, len(objectives))
    tests = judging.cycles(env, holds, asked.episodes, asked.seed, say)
    best = judging.best_cycle(tests, welfare)
    found = [judging.outcome(f"hold {hold}", [test], "average", "baseline") for hold, test in tests.items()]
    counted: dict[str, dict[str, float]] = {}
    for hold, test in tests.items():
        counted |= judging.facts(f"hold {hold}", [test])
    if asked.json:
        record = {
            "environment": asked.env,
            "arguments": given,
            "objectives": objectives,
            "episodes": asked.episodes,
            "seed": asked.seed,
            "welfare": welfare.name,
            "best": best,
            "cycles": [
                {"hold": hold, **report.outcome_record(outcome, objectives, welfare), "facts": counted[f"hold {hold}"]}
                for hold, outcome in zip(tests, found, strict=True)
            ],
        }
        print(report.as_json(record))
        return 0
    show(
        "Fixed cycles: average reward per decision",
        f"{asked.env}: {asked.episodes} test episodes for each",
        report.outcomes_table(found, objectives, welfare),
        [*report.table_notes(found, objectives, welfare), f"Best: hold each phase for {best} decisions."],
        facts=counted,
    )
    return 0


def _holds(text: str) -> list[int]:
    try:
        holds = [whole(part) for part in text.split(",")]
    except (ValueError, OverflowError):
        holds = []
    if not holds or min(holds) < 1:
        raise InputError(f"--holds takes whole numbers from 1 with commas between them, as in 1,2,3, not {text!r}.")
    return list(dict.fromkeys(holds))


@dataclass(frozen=True)
class Calibrate:
    """Compare the compiled stand-in for SUMO with SUMO itself.

    Fixed cycles, longest queue first and random phases are played in both; the table says how long
    the cars of each direction wait, and by how much the stand-in is off.

    For example:
        evenhand calibrate traffic
        evenhand calibrate traffic --episodes 24 --env timing=literal
    """

    env: Environment
    """traffic."""
    episodes: Whole = 8
    """Test episodes of each controller in SUMO; in the stand-in there are eight times as many."""
    seed: Whole = 0
    """The same seed gives the same figures."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment; evenhand list traffic shows them."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


def run_calibrate(asked: Calibrate) -> int:
    """Play all controllers in both, and show the differences."""
    check_positive("--episodes", asked.episodes)
    check_not_negative("--seed", asked.seed)
    if asked.env not in ("traffic", "evenhand/traffic-v0"):
        raise InputError("only traffic has a stand-in that can be compared: evenhand calibrate traffic.")
    given = assignments("--env", asked.arguments)
    from evenhand.envs.traffic.junction import ARMS

    found = list(calibration.compare(given, asked.episodes, asked.seed, say))
    worst = max(float(abs(pair.difference).max()) for pair in found)
    ranking = calibration.same_ranking(found)
    if asked.json:
        record = {
            "arguments": given,
            "episodes": asked.episodes,
            "seed": asked.seed,
            "objectives": list(ARMS),
            "controllers": [
                {
                    "name": pair.controller,
                    "sumo": pair.sumo.mean(axis=0).tolist(),
                    "uncertainty": pair.uncertainty.tolist(),
                    "standin": pair.standin.mean(axis=0).tolist(),
                    "difference": pair.difference.tolist(),
                }
                for pair in found
            ],
            "largest_difference": worst,
            "same_ranking": ranking,
        }
        print(report.as_json(record))
        return 0
    table = plain_table()
    for heading in ("", "", *ARMS, "sum"):
        table.add_column(heading, justify="right" if heading else "left")
    for pair in found:
        real, model = pair.sumo.mean(axis=0), pair.standin.mean(axis=0)
        off = [f"{share:+.1%}" for share in (*pair.difference, model.sum() / real.sum() - 1)]
        table.add_section()
        table.add_row(pair.controller, "SUMO", *(f"{seconds:,.0f}" for seconds in (*real, real.sum())))
        table.add_row("", "stand-in", *(f"{seconds:,.0f}" for seconds in (*model, model.sum())))
        table.add_row("", "off by", *off, style="bold")
        table.add_row("", "chance in SUMO", *(f"±{share:.1%}" for share in pair.uncertainty), "", style="dim")
    show(
        "The stand-in beside SUMO: seconds that the cars on each arm have waited",
        f"{asked.episodes} test episodes of each controller in SUMO, {calibration.SIDE_BY_SIDE} times as many",
        table,
        [
            f"The largest difference is {worst:.1%}. The controllers are ranked "
            f"{'in the same order' if ranking else 'in another order'} by both.",
            "Chance in SUMO: two deviations of a mean of so many episodes; differences within it mean nothing.",
        ],
    )
    return 0
