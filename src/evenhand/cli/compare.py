"""compare: runs of the same environment, beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from evenhand import report
from evenhand.cli import options, output
from evenhand.envs.registry import doubts_of
from evenhand.errors import InputError
from evenhand.evaluation.result import Outcome, mean_facts, meaning, measure_of
from evenhand.report import page
from evenhand.runs.run import Run
from evenhand.welfare import welfare as named_welfare


@dataclass(frozen=True)
class Compare(options.OfRun):
    """Compare runs of the same environment: who gets what, how evenly, at what price.

    The price of fairness is what is lost of the largest average.

    For example:
        evenhand compare runs/plain runs/fair
        evenhand compare runs/plain runs/fair --measure discounted --picture both.png --html both.html
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN RUN ...")]
    """The folders of the runs, all finished."""
    measure: options.OptionalName = None
    """average, return or discounted, as for evenhand evaluate."""
    welfare: options.Name = "ggf"
    """What to judge all of them by, whatever each was trained for."""
    picture: options.PictureFile = None
    """Draw bars, Lorenz curves and learning curves into this file (.png, .pdf or .svg)."""
    html: options.OptionalFile = None
    """Write table and picture into one page that needs no network."""
    json: options.Json = False


def run_compare(args: Compare) -> int:
    """Print one table of all runs, and draw it."""
    options.check_measure(args.measure)
    output.check_picture(args.picture, "--picture")
    output.check_picture(args.html, "--html", output.PAGES)
    if len(args.runs) < 2:
        raise InputError("give two runs or more, as in evenhand compare runs/plain runs/fair.")
    runs = [options.open_run(args, path) for path in args.runs]
    _check_same_environment(runs)
    request = runs[0].request
    objectives = request.objectives
    welfare = named_welfare(args.welfare, len(objectives))
    tests = [list(run.tests(output.say).values()) for run in runs]
    measure = measure_of(args.measure, (test for of_run in tests for test in of_run))
    gammas = {test.gamma for of_run in tests for test in of_run}
    if measure == "discounted" and len(gammas) > 1:
        different = output.listed(map(str, sorted(gammas)))
        raise InputError(f"the runs discount differently (γ = {different}): compare averages.")
    names = _names(runs)
    outcomes = [Outcome.of(name, of_run, measure) for name, of_run in zip(names, tests, strict=True)]
    facts = mean_facts(dict(zip(names, tests, strict=True)))
    doubts = doubts_of(request.name, facts)
    best = max(outcomes, key=lambda outcome: float(outcome.mean.sum()))
    sheet = report.outcomes_sheet(outcomes, objectives, welfare, prices=True)
    notes = [
        *report.table_notes(outcomes, objectives, welfare),
        f"price of fairness: what is lost of the largest average, that of {best.name}.",
        *doubts,
    ]
    words = meaning(measure, request.config.gamma)
    title = f"Who gets what: {words}"
    about = f"{request.name}: {', '.join(map(str, args.runs))}"
    curves = [curve for name, run in zip(names, runs, strict=True) if (curve := run.curve(name)) is not None]
    if len(curves) < len(runs):
        curves = []
        notes.append("The metrics of a run are lost, so that there are no learning curves.")

    def draw(path: Path) -> None:
        report.draw_outcomes(outcomes, objectives, path, measure=words, curves=curves)

    events = []
    if args.picture is not None:
        with output.aside(args.picture) as partial:
            draw(partial)
        events.append(f"Drawn in {args.picture}.")
    if args.html is not None:
        with output.aside(args.html) as partial:
            drawn = partial.with_suffix(".png")
            try:
                draw(drawn)
                parts = [page.paragraph(about), page.as_html(sheet), *map(page.paragraph, notes)]
                if facts:
                    parts.append(page.as_html(report.facts_sheet(facts)))
                parts.append(page.picture(drawn, "what each user gets, how evenly it is shared, how it was learnt"))
                partial.write_text(page.page(title, parts), "utf-8")
            finally:
                drawn.unlink(missing_ok=True)
        events.append(f"Written to {args.html}.")
    if args.json:
        record = report.outcomes_record(runs[0], outcomes, measure, welfare)
        for policy, outcome, path in zip(record["policies"], outcomes, args.runs, strict=True):
            policy["run"] = str(path)
            policy["price_of_fairness"] = report.price(outcome, best)._asdict()
        more = {name: value for name, value in (("facts", facts), ("notes", doubts)) if value}
        output.print_json(record | more)
        return 0
    output.show(title, about, sheet.terminal(), notes, events, facts)
    return 0


def _names(runs: Sequence[Run]) -> list[str]:
    """What to call runs in one table: GGF-PPO, and the folder too where that would not tell them apart."""
    names = [run.name for run in runs]
    return [f"{run.name} ({run.path.name})" if names.count(run.name) > 1 else run.name for run in runs]


def _check_same_environment(runs: Sequence[Run]) -> None:
    """Refuse runs whose numbers have nothing to do with each other."""
    environment = _environment(runs[0])
    for run in runs[1:]:
        if _environment(run) != environment:
            raise InputError(
                f"only runs of the same environment can be compared, but {runs[0].path} is of "
                f"{environment} and {run.path} of {_environment(run)}."
            )


def _environment(run: Run) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in sorted(run.request.arguments.items()))
    return f"{run.request.name} ({arguments})" if arguments else run.request.name
