"""evaluate: what was learnt, beside simple policies and the optimum."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand import report
from evenhand.cli import options, output
from evenhand.disk import DiskFull
from evenhand.envs.optimum import Reference, reference_of
from evenhand.envs.registry import domain_of, doubts_of
from evenhand.errors import InputError
from evenhand.evaluation.result import Evaluation, Outcome, mean_facts, meaning, measure_of
from evenhand.progress import TestProgress
from evenhand.runs.folder import safe_name
from evenhand.runs.pool import prepare_jax
from evenhand.runs.run import Run

# JAX is imported where it is used: help and refusals should not wait for it.

EPISODES, REAL_TIME_EPISODES = 50, 1
PACE = "time_scale"


@dataclass(frozen=True)
class Evaluate(options.OfRun):
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

    run: options.RunPath
    episodes: options.OptionalWhole = None
    """Test episodes for each policy: by default 50, or 1 on what goes in real time."""
    seed: options.Whole = 0
    """The same seed gives the same episodes, to all policies; none of them was seen in training."""
    backend: options.OptionalName = None
    """Play on this backend too, and show both: emulated for datacenter, sumo for traffic."""
    measure: options.OptionalName = None
    """What counts, by one of the names above."""
    arguments: options.EnvArguments = ()
    """Settings of the environment that differ from those of the training."""
    step_timeout: options.StepTimeout = None
    """Seconds that a step may take, for environments that may hang; as for train."""
    baselines: options.Flag = True
    """Leave out the simple policies."""
    reference: options.Flag = True
    """Leave out the exact optimum, which takes some seconds."""
    picture: options.PictureFile = None
    """Draw who gets what into this file (.png, .pdf or .svg)."""
    json: options.Json = False


class Tests(NamedTuple):
    """Test episodes on one backend."""

    learnt: dict[int, Evaluation]
    """By seed."""
    simple: dict[str, Evaluation]
    """By the name of the policy."""


def run_evaluate(args: Evaluate) -> int:
    """Play, print, draw and keep."""
    options.check_measure(args.measure)
    options.check_positive(args, "episodes")
    options.check_not_negative(args, "seed")
    output.check_picture(args.picture, "--picture")
    arguments = options.assignments("--env", args.arguments)
    run = options.open_run(args, args.run)
    status = run.folder.status()
    if not any(progress.step for progress in status):
        raise InputError(f"{args.run} has no checkpoint yet: evenhand resume {args.run} trains it.")
    prepare_jax()
    envs = _environments(run, arguments, args.backend)
    begun = [progress for progress in status if progress.step and not progress.finished]
    notes = [f"seed {seed}: only {step:,} of {steps:,} steps are trained." for seed, step, steps in begun]
    notes += [f"seed {seed}: not trained yet, left out." for seed, step, _ in status if not step]
    remarks: dict[str, None] = {}  # of many policies the same
    tests = {backend: _play(args, run, env, backend, remarks.setdefault) for backend, env in envs.items()}
    notes += remarks
    env, learnt = next(iter(envs.values())), next(iter(tests.values())).learnt
    gamma, objectives = run.task.config.gamma, run.request.objectives
    measure = measure_of(args.measure, learnt.values())
    rows = {_called(run.name, backend): list(of_backend.learnt.values()) for backend, of_backend in tests.items()}
    outcomes = [Outcome.of(name, of_row, measure) for name, of_row in rows.items()]
    for policy in next(iter(tests.values())).simple:
        for backend, of_backend in tests.items():
            name = _called(policy, backend)
            rows[name] = [of_backend.simple[policy]]
            outcomes.append(Outcome.of(name, rows[name], measure, "baseline"))
    facts = mean_facts(rows)
    notes += doubts_of(run.request.name, facts)
    best = _reference(env, run, measure, gamma, learnt) if args.reference else None
    optimum = None
    if isinstance(best, Reference):
        outcomes.append(Outcome("exact optimum", best.returns[None], "exact"))
        optimum = float(run.welfare.value(best.returns))
        notes.append(best.note)
    elif best is not None:
        notes.append(f"No exact optimum: {best}")
    record = {
        "run": str(args.run),
        "arguments": {**run.request.arguments, **arguments},
        "episodes": next(iter(learnt.values())).episodes,
        "seed": args.seed,
        **({"backends": list(envs)} if args.backend else {}),
        **report.outcomes_record(run, outcomes, measure, run.welfare, optimum),
        **({"facts": facts} if facts else {}),
        "notes": notes,
    }
    # NaN is null, as everywhere where programs read.
    kept = _kept(run, _evaluation_name(args, arguments), json.loads(report.as_json(record)) | _raw(tests))
    words = meaning(measure, gamma)
    if args.picture is not None:
        with output.aside(args.picture) as partial:
            report.draw_outcomes(outcomes, objectives, partial, measure=words, title=f"{run.name}, {args.run}")
    if args.json:
        output.print_json(record)
        if isinstance(kept, str):
            output.warn(kept)
        return 0
    events = [kept if isinstance(kept, str) else f"Kept in {kept}."]
    if args.picture is not None:
        events.append(f"Drawn in {args.picture}.")
    output.show(
        f"Who gets what: {words}",
        f"{args.run}: {_how_many(tests)} for each policy",
        report.outcomes_sheet(outcomes, objectives, run.welfare, optimum=optimum).terminal(),
        [*report.table_notes(outcomes, objectives, run.welfare), *notes],
        events,
        facts,
    )
    return 0


def _environments(run: Run, arguments: Mapping[str, Any], backend: str | None) -> dict[str | None, Any]:
    """The run's environment and, where another backend is asked for, the same on that one; by the backends' names."""
    if backend is None:
        return {None: options.environment_of(run, arguments)}
    if "backend" in arguments:
        raise InputError("--backend compares two backends: leave backend out of --env.")
    domain = domain_of(run.request.name)
    own = None if domain is None else domain.backend(run.request.arguments)
    if own is None:
        raise InputError(f"{run.request.name} has one backend only: leave --backend out.")
    other = options.environment_of(run, arguments, backend=backend)
    if own == backend:
        return {own: other}
    if getattr(other, "real_time", False):  # what is missing on this machine is said before any work
        with closing(other.make()) as made:
            made.reset(seed=0)
    # A simulator has no use for the pace at which an emulated network is to go.
    unhurried = {name: value for name, value in arguments.items() if name != PACE}
    return {own: options.environment_of(run, unhurried), backend: other}


def _play(args: Evaluate, run: Run, env: Any, backend: str | None, note: Callable[[str], None]) -> Tests:
    from evenhand.evaluation.playing import evaluate_policy
    from evenhand.evaluation.policy import baselines

    usual = REAL_TIME_EPISODES if getattr(env, "real_time", False) else EPISODES
    episodes = usual if args.episodes is None else args.episodes
    where = f" on the {backend} backend" if backend else ""
    stepped: dict[str, Any] = {"workers": run.request.workers, "step_timeout": args.step_timeout}
    gamma = run.task.config.gamma

    def played(name: str, policy: Any) -> Evaluation:
        with TestProgress(f"playing {episodes} test episodes{where} with the policy {name}") as bar:
            return evaluate_policy(env, policy, episodes, gamma, args.seed, say=note, progress=bar.update, **stepped)

    learnt = {seed: played(f"of seed {seed}", run.policy(seed)) for seed, step, _ in run.folder.status() if step}
    simple = {name: played(name, policy) for name, policy in (baselines(env) if args.baselines else ())}
    return Tests(learnt, simple)


def _called(policy: str, backend: str | None) -> str:
    return policy if backend is None else f"{policy}, {backend}"


def _how_many(tests: Mapping[str | None, Tests]) -> str:
    counts = {backend: next(iter(of_backend.learnt.values())).episodes for backend, of_backend in tests.items()}
    return ", ".join(
        f"{count} test episode{'s' if count > 1 else ''}{f' {backend}' if len(counts) > 1 else ''}"
        for backend, count in counts.items()
    )


def _reference(env: Any, run: Run, measure: str, gamma: float, tests: Mapping[int, Any]) -> Reference | str | None:
    if getattr(env, "reference", None) is not None:
        output.say("computing the exact optimum, which takes some seconds (--no-reference leaves it out)")
    lengths = np.concatenate([test.length for test in tests.values()])
    return reference_of(env, run.welfare, measure, gamma, lengths)


def _raw(tests: Mapping[str | None, Tests]) -> dict[str, Any]:
    """All episodes, for the run's folder; those on another backend stand apart."""
    raw: dict[str, Any] = {}
    for backend, (learnt, simple) in tests.items():
        part = {
            "seeds": {str(seed): test.record() for seed, test in learnt.items()},
            "baselines": {name: test.record() for name, test in simple.items()},
        }
        raw |= {str(backend): part} if raw else part
    return raw


def _kept(run: Run, name: str, content: dict[str, Any]) -> Path | str:
    """The file in which a result was kept, or in words why it could not be: what was played is worth showing anyway."""
    try:
        file = run.folder.evaluation(name)
        run.folder.write_json(file, content)
    except (InputError, OSError) as error:
        why = str(error).removesuffix(".") if isinstance(error, InputError | DiskFull) else error.strerror or str(error)
        return f"The result could not be kept in {run.path}: {why}."
    return file


def _evaluation_name(args: Evaluate, arguments: Mapping[str, Any]) -> str:
    changed = "".join(f"-{name}-{value}" for name, value in arguments.items())
    beside = f"-beside-{args.backend}" if args.backend else ""
    episodes = EPISODES if args.episodes is None else args.episodes
    return safe_name(f"test-{episodes}-episodes-seed-{args.seed}{changed}{beside}")
