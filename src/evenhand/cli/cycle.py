"""cycle: the best fixed cycle of a traffic light."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import arg

from evenhand import report
from evenhand.cli import options, output
from evenhand.envs import resolve
from evenhand.envs.traffic.policies import FixedCycle
from evenhand.errors import InputError
from evenhand.evaluation.result import Outcome, mean_facts
from evenhand.welfare import Welfare
from evenhand.welfare import welfare as named_welfare

# JAX is imported where it is used: help and refusals should not wait for it.


@dataclass(frozen=True)
class Cycle:
    """Find the best fixed cycle of a traffic light, by simulation.

    The phases take turns, and each is held for the same number of decisions. This is what a learned
    controller has to beat.

    For example:
        evenhand cycle traffic
        evenhand cycle traffic --env demand=my-table.csv --holds 2,4,6,8 --welfare ggf
    """

    env: options.Environment
    """traffic."""
    holds: Annotated[str, arg(metavar="H1,H2,...")] = "1,2,3,4,5,6"
    """For how many decisions each phase is held."""
    episodes: options.Whole = 4
    """Test episodes for each."""
    seed: options.Whole = 0
    """The same seed gives the same traffic, to all of them."""
    welfare: options.Name = "utilitarian"
    """What is best: utilitarian, the least waiting of all together; or ggf, maximin, ..."""
    arguments: options.EnvArguments = ()
    """Settings of the environment; evenhand list traffic shows them."""
    json: options.Json = False


def run_cycle(args: Cycle) -> int:
    """Play each cycle, and say which is best."""
    options.check_positive(args, "episodes")
    options.check_not_negative(args, "seed")
    holds = _holds(args.holds)
    arguments = options.assignments("--env", args.arguments)
    env = resolve(args.env, arguments)
    objectives = list(env.objectives)
    welfare = named_welfare(args.welfare, len(objectives))
    tests = cycles(env, holds, args.episodes, args.seed, output.say)
    best = best_cycle(tests, welfare)
    rows = {f"hold {hold}": [test] for hold, test in tests.items()}
    outcomes = [Outcome.of(name, of_row, "average", "baseline") for name, of_row in rows.items()]
    facts = mean_facts(rows)
    if args.json:
        record = {
            "environment": args.env,
            "arguments": arguments,
            "objectives": objectives,
            "episodes": args.episodes,
            "seed": args.seed,
            "welfare": welfare.name,
            "best": best,
            "cycles": [
                {"hold": hold, **report.outcome_record(cycle, objectives, welfare), "facts": facts.get(cycle.name, {})}
                for hold, cycle in zip(tests, outcomes, strict=True)
            ],
        }
        output.print_json(record)
        return 0
    output.show(
        "Fixed cycles: average reward per decision",
        f"{args.env}: {args.episodes} test episodes for each",
        report.outcomes_sheet(outcomes, objectives, welfare).terminal(),
        [*report.table_notes(outcomes, objectives, welfare), f"Best: hold each phase for {best} decisions."],
        facts=facts,
    )
    return 0


def cycles(
    env: Any, holds: Sequence[int], episodes: int, seed: int = 0, say: Callable[[str], None] = lambda _: None
) -> dict[int, Any]:
    """Test episodes of the fixed cycle of a traffic light, by how many decisions each phase is held.

    env: traffic, as `evenhand.envs.resolve` gives it. The same seed gives the same traffic to all of them.
    """
    from evenhand.evaluation.playing import evaluate_policy

    if not any(isinstance(policy, FixedCycle) for policy in getattr(env, "baselines", ())):
        raise InputError("only traffic lights have phases that can take turns: evenhand cycle traffic.")
    tests = {}
    for policy in map(FixedCycle, holds):
        say(f"playing {episodes} test episodes with the policy {policy.name}")
        tests[policy.hold] = evaluate_policy(env, policy, episodes, seed=seed)
    return tests


def best_cycle(tests: Mapping[int, Any], welfare: Welfare) -> int:
    """Of the cycles tested, the hold with the greatest welfare; of equal ones the shortest."""
    return max(sorted(tests), key=lambda hold: tests[hold].summary(welfare)["welfare"])


def _holds(text: str) -> list[int]:
    try:
        holds = [options.whole(part) for part in text.split(",")]
    except (ValueError, OverflowError):
        holds = []
    if not holds or min(holds) < 1:
        raise InputError(f"--holds takes whole numbers from 1 with commas between them, as in 1,2,3, not {text!r}.")
    return list(dict.fromkeys(holds))
