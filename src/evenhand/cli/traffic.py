"""Traffic lights: cycle, the best fixed cycle."""

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
    print_json,
    say,
    show,
    whole,
)
from evenhand.errors import InputError
from evenhand.report import judging
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
        print_json(record)
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
