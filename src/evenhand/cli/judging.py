"""Judging what was learnt: evaluate and compare."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from evenhand import report
from evenhand.cli.shared import (
    NO_HINT,
    Assignments,
    Flag,
    OfRun,
    OptionalWhole,
    PictureFile,
    RunPath,
    StepTimeout,
    WelfareText,
    Whole,
    aside,
    assignments,
    check_not_negative,
    check_picture,
    check_positive,
    environment_of,
    opened,
    optional,
    print_json,
    say,
    show,
)
from evenhand.errors import InputError
from evenhand.progress import TestProgress
from evenhand.report import Outcome, judging, page
from evenhand.runs.checkpoint import DiskFull
from evenhand.runs.folder import safe_name
from evenhand.runs.settings import check_name
from evenhand.runs.training import Run
from evenhand.welfare import welfare as named_welfare

# JAX is imported where it is used: help and refusals should not wait for it.

PICTURES = (".png", ".pdf", ".svg")
EPISODES, REAL_TIME_EPISODES = 50, 1
PACE = "time_scale"

MeasureName = Annotated[str | None, optional(str, "NAME"), NO_HINT]


@dataclass(frozen=True)
class Evaluate(OfRun):
    """Play test episodes with a run's policies, and compare them with simple ones.

    Beside what was learnt stand a random policy and, for each action, always taking that one;
    for species also the exact optimum, and how much of it was reached; for traffic fixed cycles
    and longest queue first.

    For example:
        evenhand evaluate runs/fair
        evenhand evaluate runs/fair --measure discounted --episodes 200 -p fair.png
        evenhand evaluate runs/fair --env response=weak --no-reference
        evenhand evaluate runs/network --backend emulated

    What was learnt on a simulator can be held against the real thing: --backend emulated takes the
    policy of a data centre to real queues in the Linux kernel, in real time (10 seconds for each
    episode, unless --env time_scale=4 makes all of it go faster), and shows both beside each other.

    --measure takes one of these:
        average     rewards per step; the default where only a time limit ends episodes
        return      sums of rewards; the default where episodes end by themselves
        discounted  (1 - gamma) times the discounted sum, what policies are trained for

    The result is kept in the run's folder, under evaluations/.
    """

    run: RunPath
    """The folder of the run."""
    episodes: OptionalWhole = None
    """Test episodes for each policy: by default 50, or 1 on what goes in real time."""
    seed: Whole = 0
    """The same seed gives the same episodes, to all policies; none of them was seen in training."""
    backend: Annotated[str | None, optional(str, "NAME"), NO_HINT] = None
    """Play on this backend too, and show both: emulated for datacenter, sumo for traffic."""
    measure: MeasureName = None
    """What counts, by one of the names above."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment that differ from those of the training."""
    step_timeout: StepTimeout = None
    """Seconds that a step may take, for environments that may hang; as for train."""
    baselines: Flag = True
    """Leave out the simple policies."""
    reference: Flag = True
    """Leave out the exact optimum, which takes some seconds."""
    picture: PictureFile = None
    """Draw who gets what into this file (.png, .pdf or .svg)."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


@dataclass(frozen=True)
class Compare(OfRun):
    """Compare runs of the same environment: who gets what, how evenly, at what price.

    The price of fairness is what is lost of the largest average.

    For example:
        evenhand compare runs/plain runs/fair
        evenhand compare runs/plain runs/fair --measure discounted --picture both.png --html both.html
    """

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN RUN ...")]
    """The folders of the runs, all finished."""
    measure: MeasureName = None
    """average, return or discounted, as for evenhand evaluate."""
    welfare: WelfareText = "ggf"
    """What to judge all of them by, whatever each was trained for."""
    picture: PictureFile = None
    """Draw bars, Lorenz curves and learning curves into this file (.png, .pdf or .svg)."""
    html: Annotated[Path | None, optional(Path, "FILE"), NO_HINT] = None
    """Write table and picture into one page that needs no network."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


# evaluate


def run_evaluate(asked: Evaluate) -> int:
    """Play, print, draw and keep."""
    _check_measure(asked.measure)
    if asked.episodes is not None:
        check_positive("--episodes", asked.episodes)
    check_not_negative("--seed", asked.seed)
    check_picture(asked.picture, "--picture", PICTURES)
    given = assignments("--env", asked.arguments)
    run = opened(asked, asked.run)
    ready = [progress for progress in run.folder.status() if progress.step]
    if not ready:
        raise InputError(f"{asked.run} has no checkpoint yet: evenhand resume {asked.run} trains it.")
    from evenhand.runs.pool import prepare_jax

    prepare_jax()
    envs = _environments(run, given, asked.backend)
    notes = [
        f"seed {seed}: only {step:,} of {steps:,} steps are trained." for seed, step, steps in ready if step < steps
    ]
    notes += [f"seed {seed}: not trained yet, left out." for seed, step, _ in run.folder.status() if not step]
    said: dict[str, None] = {}  # of many policies the same
    played = {backend: _play(asked, run, env, backend, said.setdefault) for backend, env in envs.items()}
    notes += said
    (env, *_), ((tests, _), *_) = envs.values(), played.values()
    gamma = run.task.config.gamma
    measure = judging.measure_of(asked.measure, list(tests.values()))
    found: list[Outcome] = []
    counted: dict[str, dict[str, float]] = {}
    for backend, (of_seeds, _) in played.items():
        name = _called(run.name, backend)
        found.append(judging.outcome(name, list(of_seeds.values()), measure))
        counted |= judging.facts(name, list(of_seeds.values()))
    for policy in played[next(iter(played))][1]:
        for backend, (_, simple) in played.items():
            name = _called(policy, backend)
            found.append(judging.outcome(name, [simple[policy]], measure, "baseline"))
            counted |= judging.facts(name, [simple[policy]])
    notes += judging.doubts(counted)
    best = _reference(env, run, measure, gamma, tests) if asked.reference else None
    optimum = None
    if isinstance(best, judging.Reference):
        found.append(Outcome("exact optimum", best.returns[None], "exact"))
        optimum = best.welfare
        notes.append(best.note)
    elif best is not None and run.request.name == "species":
        notes.append(f"No exact optimum: {best}")
    record = {
        "run": str(asked.run),
        "arguments": {**run.request.arguments, **given},
        "episodes": tests[ready[0].seed].episodes,
        "seed": asked.seed,
        **({"backends": list(envs)} if asked.backend else {}),
        **judging.record(run, found, measure, run.welfare, optimum),
        **({"facts": counted} if counted else {}),
        "notes": notes,
    }
    raw: dict[str, Any] = {}
    for backend, (of_seeds, simple) in played.items():
        kinds: dict[str, Mapping[Any, Any]] = {"seeds": of_seeds, "baselines": simple}
        part = {kind: {str(name): test.record() for name, test in of.items()} for kind, of in kinds.items()}
        raw |= part if not raw else {str(backend): part}
    kept = _kept(run, _evaluation_name(asked, given), _jsonable(record) | raw)
    objectives = run.request.objectives
    if asked.picture is not None:
        with aside(asked.picture) as partial:
            report.draw_outcomes(
                found, objectives, partial, measure=judging.meaning(measure, run), title=f"{run.name}, {asked.run}"
            )
    if asked.json:
        print_json(record)
        if isinstance(kept, str):
            print(f"evenhand: {kept}", file=sys.stderr)
        return 0
    events = [kept if isinstance(kept, str) else f"Kept in {kept}."]
    if asked.picture is not None:
        events.append(f"Drawn in {asked.picture}.")
    show(
        f"Who gets what: {judging.meaning(measure, run)}",
        f"{asked.run}: {_how_many(played)} for each policy",
        report.outcomes_table(found, objectives, run.welfare, optimum=optimum),
        [*report.table_notes(found, objectives, run.welfare), *notes],
        events,
        counted,
    )
    return 0


def _kept(run: Run, name: str, content: dict[str, Any]) -> Path | str:
    """The file in which a result was kept, or in words why it could not be: what was played is worth showing anyway."""
    try:
        file = run.folder.evaluation(name)
        run.folder.write_json(file, content)
    except (InputError, OSError) as error:
        why = str(error).removesuffix(".") if isinstance(error, InputError | DiskFull) else error.strerror or str(error)
        return f"The result could not be kept in {run.path}: {why}."
    return file


Played = tuple[dict[int, Any], dict[str, Any]]
"""Test episodes by seed, and those of simple policies by name."""


def _environments(run: Run, given: Mapping[str, Any], backend: str | None) -> dict[str | None, Any]:
    """The run's environment and, where another backend is asked for, the same on that one; by the backends' names."""
    if backend is None:
        return {None: environment_of(run, given)}
    if "backend" in given:
        raise InputError("--backend compares two backends: leave backend out of --env.")
    own = judging.backend_of(run.request.name, run.request.arguments)
    if own is None:
        raise InputError(f"{run.request.name} has one backend only: leave --backend out.")
    other = environment_of(run, given, backend=backend)
    if own == backend:
        return {own: other}
    judging.try_out(other)
    # A simulator has no use for the pace at which an emulated network is to go.
    return {own: environment_of(run, {name: value for name, value in given.items() if name != PACE}), backend: other}


def _play(asked: Evaluate, run: Run, env: Any, backend: str | None, note: Callable[[str], None]) -> Played:
    from evenhand.judge import evaluate_policy

    gamma = run.task.config.gamma
    usual = REAL_TIME_EPISODES if getattr(env, "real_time", False) else EPISODES
    episodes = usual if asked.episodes is None else asked.episodes
    where = f" on the {backend} backend" if backend else ""
    tests = {}
    stepped: dict[str, Any] = {"workers": run.request.workers, "step_timeout": asked.step_timeout}

    def played(name: str, policy: Any) -> Any:
        with TestProgress(f"playing {episodes} test episodes{where} with the policy {name}") as bar:
            return evaluate_policy(env, policy, episodes, gamma, asked.seed, say=note, progress=bar.update, **stepped)

    for seed, step, _ in run.folder.status():
        if step:
            tests[seed] = played(f"of seed {seed}", run.policy(seed))
    simple = {name: played(name, policy) for name, policy in (judging.baselines(env) if asked.baselines else ())}
    return tests, simple


def _called(policy: str, backend: str | None) -> str:
    return policy if backend is None else f"{policy}, {backend}"


def _how_many(played: Mapping[str | None, Played]) -> str:
    counts = {backend: next(iter(tests.values())).episodes for backend, (tests, _) in played.items()}
    said = [f"{count} test episode{'s' if count > 1 else ''}" for count in counts.values()]
    if len(counts) == 1:
        return said[0]
    return ", ".join(f"{text} {backend}" for text, backend in zip(said, counts, strict=True))


def _reference(env: Any, run: Run, measure: str, gamma: float, tests: Mapping[int, Any]) -> judging.Reference | str:
    if run.request.name == "species":
        say("computing the exact optimum, which takes some seconds (--no-reference leaves it out)")
    return judging.reference(env, run.welfare, measure, gamma, np.concatenate([test.length for test in tests.values()]))


def _evaluation_name(asked: Evaluate, given: Mapping[str, Any]) -> str:
    with_ = "".join(f"-{name}-{value}" for name, value in given.items())
    with_ += f"-beside-{asked.backend}" if asked.backend else ""
    episodes = EPISODES if asked.episodes is None else asked.episodes
    return safe_name(f"test-{episodes}-episodes-seed-{asked.seed}{with_}")


def _check_measure(measure: str | None) -> None:
    if measure is not None:
        check_name("measure", measure, report.MEASURES)


def _jsonable(record: dict[str, Any]) -> dict[str, Any]:
    """NaN as null, as everywhere where programs read."""
    import json

    return dict(json.loads(report.as_json(record)))


# compare


def run_compare(asked: Compare) -> int:
    """Print one table of all runs, and draw it."""
    _check_measure(asked.measure)
    check_picture(asked.picture, "--picture", PICTURES)
    check_picture(asked.html, "--html", (".html", ".htm"))
    if len(asked.runs) < 2:
        raise InputError("give two runs or more, as in evenhand compare runs/plain runs/fair.")
    runs = [opened(asked, path) for path in asked.runs]
    judging.same_environment(runs)
    objectives = runs[0].request.objectives
    welfare = named_welfare(asked.welfare, len(objectives))
    tests = [list(judging.kept_tests(run, say).values()) for run in runs]
    measure = judging.measure_of(asked.measure, [test for of_run in tests for test in of_run])
    gammas = {test.gamma for of_run in tests for test in of_run}
    if measure == "discounted" and len(gammas) > 1:
        different = judging.listed(map(str, sorted(gammas)))
        raise InputError(f"the runs discount differently (γ = {different}): compare averages.")
    names = judging.names(runs)
    found = [judging.outcome(name, of_run, measure) for name, of_run in zip(names, tests, strict=True)]
    counted: dict[str, dict[str, float]] = {}
    for name, of_run in zip(names, tests, strict=True):
        counted |= judging.facts(name, of_run)
    doubts = judging.doubts(counted)
    best = max(found, key=lambda outcome: float(outcome.mean.sum()))
    table = report.outcomes_table(found, objectives, welfare, prices=True)
    notes = [
        *report.table_notes(found, objectives, welfare),
        f"price of fairness: what is lost of the largest average, that of {best.name}.",
        *doubts,
    ]
    title = f"Who gets what: {judging.meaning(measure, runs[0])}"
    about = f"{runs[0].request.name}: {', '.join(map(str, asked.runs))}"
    events = []
    curves = [curve for name, run in zip(names, runs, strict=True) if (curve := judging.curve(name, run)) is not None]
    if len(curves) < len(runs):
        curves = []
        notes.append("The metrics of a run are lost, so that there are no learning curves.")

    def draw(path: Path) -> None:
        report.draw_outcomes(found, objectives, path, measure=judging.meaning(measure, runs[0]), curves=curves)

    if asked.picture is not None:
        with aside(asked.picture) as partial:
            draw(partial)
        events.append(f"Drawn in {asked.picture}.")
    if asked.html is not None:
        with aside(asked.html) as partial:
            drawn = partial.with_suffix(".png")
            try:
                draw(drawn)
                parts = [page.paragraph(about), page.as_html(table), *map(page.paragraph, notes)]
                if counted:
                    parts.append(page.as_html(report.facts_table(counted)))
                parts.append(page.picture(drawn, "what each user gets, how evenly it is shared, how it was learnt"))
                partial.write_text(page.page(title, parts), "utf-8")
            finally:
                drawn.unlink(missing_ok=True)
        events.append(f"Written to {asked.html}.")
    if asked.json:
        record = judging.record(runs[0], found, measure, welfare, None)
        for policy, outcome, path in zip(record["policies"], found, asked.runs, strict=True):
            policy["run"] = str(path)
            policy["price_of_fairness"] = report.price(outcome, best)._asdict()
        more = {name: value for name, value in (("facts", counted), ("notes", doubts)) if value}
        print_json(record | more)
        return 0
    show(title, about, table, notes, events, counted)
    return 0
