"""Learning: train, resume, evaluate, compare and play."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import Positional, UseAppendAction, arg

from evenhand import report
from evenhand.cli.shared import (
    INTERRUPTED,
    NO_HINT,
    Environment,
    Flag,
    OptionalWhole,
    PictureFile,
    RunPath,
    WelfareText,
    Whole,
    aside,
    assignments,
    check_picture,
    optional,
    say,
    show,
    whole,
)
from evenhand.errors import InputError
from evenhand.report import Outcome, judging, page
from evenhand.runs.folder import RunFolder, new_run_path, safe_name
from evenhand.runs.settings import check_name
from evenhand.runs.training import Run
from evenhand.welfare import Welfare
from evenhand.welfare import welfare as named_welfare

# JAX is imported where it is used: help and refusals should not wait for it.

PICTURES = (".png", ".pdf", ".svg")
FRAMES = (".png", ".gif")
MOST_FRAMES = 200
"""In one moving picture; of longer episodes only every second, third, … step is shown."""

Assignments = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE"), NO_HINT]
MeasureName = Annotated[str | None, optional(str, "NAME"), NO_HINT]


@dataclass(frozen=True)
class Train:
    """Learn fair policies by trial and error, one for each seed, and show who gets what.

    For example:
        evenhand train species
        evenhand train species --env response=strong --welfare ggf:10 --seeds 0,3,7
        evenhand train CartPole-v1 --steps 1e5 --set learning_rate=1e-3 hidden=[32,32]
        evenhand train deep-sea-treasure-v0 --algo dqn -o runs/treasure

    ENV is one of ours (evenhand list), a name registered with Gymnasium or MO-Gymnasium,
    or module:name, to import the module that registers it first.

    --welfare says what is fair (evenhand list shows all): ggf, ggf:RATIO, ggf:W1,W2,...,
    maximin, leximin, nash, alpha:ALPHA, ...; utilitarian is the plain algorithm.

    Ctrl-C stops at a checkpoint (exit code 130), and evenhand resume goes on from there,
    also after a kill: the numbers will be those of a run that was never stopped.
    """

    env: Environment
    """The environment."""
    algo: Annotated[str, arg(metavar="NAME")] = "ppo"
    """The algorithm: ppo, a2c, or dqn for finitely many actions."""
    welfare: WelfareText = "ggf"
    """What is fair, by one of the names above."""
    steps: OptionalWhole = None
    """Steps of the environment for each seed, as in 1e6; by default those of the preset."""
    seeds: Annotated[str, arg(metavar="N|S1,S2,...")] = "4"
    """How many, or which ones. Intervals need several."""
    changes: Annotated[Assignments, arg(name="set")] = ()
    """Hyperparameters that differ from the preset's; evenhand list ppo shows them all."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment; evenhand list species shows those of ours."""
    training: Assignments = ()
    """Settings of the environment that differ while training, such as shorter episodes."""
    preset: Annotated[str, arg(metavar="NAME")] = "tuned"
    """tuned: our hyperparameters; paper: those of the paper's appendix."""
    output: Annotated[Path | None, optional(Path, "FOLDER"), arg(aliases=["-o"]), NO_HINT] = None
    """A new folder for the run; by default one in runs/."""
    jobs: OptionalWhole = None
    """Seeds trained at the same time; by default one for each core."""
    workers: Whole = 0
    """Processes that step each seed's environments, where these are slow (a simulator)."""
    episodes: Whole = 50
    """Test episodes for each seed after training; 0 for none."""
    checkpoint_seconds: Annotated[float, arg(metavar="SECONDS")] = 30.0
    """The time between checkpoints: the most that a kill can cost."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


@dataclass(frozen=True)
class Resume:
    """Go on with a run that was interrupted.

    The numbers will be those of a run that was never stopped; one that is finished is left as it is.

    For example:
        evenhand resume runs/fair
    """

    run: RunPath
    """The folder of the run."""
    jobs: OptionalWhole = None
    """Seeds trained at the same time; by default one for each core."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


@dataclass(frozen=True)
class Evaluate:
    """Play test episodes with a run's policies, and compare them with simple ones.

    Beside what was learnt stand a random policy and, for each action, always taking that one;
    for species also the exact optimum, and how much of it was reached.

    For example:
        evenhand evaluate runs/fair
        evenhand evaluate runs/fair --measure discounted --episodes 200 -p fair.png
        evenhand evaluate runs/fair --env response=weak --no-reference

    --measure takes one of these:
        average     rewards per step; the default where only a time limit ends episodes
        return      sums of rewards; the default where episodes end by themselves
        discounted  (1 - gamma) times the discounted sum, what policies are trained for

    The result is kept in the run's folder, under evaluations/.
    """

    run: RunPath
    """The folder of the run."""
    episodes: Whole = 50
    """Test episodes for each policy."""
    seed: Whole = 0
    """The same seed gives the same episodes, to all policies; none of them was seen in training."""
    measure: MeasureName = None
    """What counts, by one of the names above."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment that differ from those of the training."""
    baselines: Flag = True
    """Leave out the simple policies."""
    reference: Flag = True
    """Leave out the exact optimum, which takes some seconds."""
    picture: PictureFile = None
    """Draw who gets what into this file (.png, .pdf or .svg)."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


@dataclass(frozen=True)
class Compare:
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


@dataclass(frozen=True)
class Play:
    """Watch a trained policy, step by step.

    For example:
        evenhand play species runs/fair
        evenhand play - runs/fair --steps 50 --render fair.gif

    ENV is the environment to play in; - is the one that the run was trained for.
    """

    env: Environment
    """The environment, or -."""
    run: RunPath
    """The folder of the run."""
    policy_seed: Annotated[int | None, optional(int, "S"), NO_HINT] = None
    """Of several seeds, whose policy to play; by default the first."""
    seed: Whole = 0
    """The same seed gives the same episode."""
    steps: Whole = 200
    """Stop after so many steps, if the episode has not ended by then."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment that differ from those of the training."""
    render: Annotated[Path | None, optional(Path, "FILE"), NO_HINT] = None
    """A picture of the last step (.png), or a moving one of all (.gif)."""
    deterministic: Flag = False
    """Always the most probable action. A fair policy may then no longer be fair."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


# train and resume


def run_train(asked: Train) -> int:
    """Check everything, say what will be done, and do it."""
    from evenhand.runs import training

    _check_jobs(asked.jobs)
    if asked.steps is not None:
        _check_positive("--steps", asked.steps)
    if not asked.checkpoint_seconds >= 0:
        raise InputError(f"--checkpoint-seconds must not be negative, not {asked.checkpoint_seconds:g}.")
    request, _ = training.checked_request(
        asked.env,
        algo=asked.algo,
        welfare=asked.welfare,
        steps=asked.steps,
        seeds=_seeds(asked.seeds),
        arguments=assignments("--env", asked.arguments),
        training=assignments("--training", asked.training),
        changes=assignments("--set", asked.changes),
        preset=asked.preset,
        workers=asked.workers,
        episodes=asked.episodes,
    )
    path = asked.output or new_run_path(request["name"], asked.algo, request["welfare"])
    run = Run(RunFolder.create(path, request))
    for line in _plan(run):
        print(line, file=sys.stderr if asked.json else sys.stdout)
    return _go_on(run, asked.jobs, asked.json, asked.checkpoint_seconds)


def run_resume(asked: Resume) -> int:
    """Train what is left."""
    _check_jobs(asked.jobs)
    run = Run(RunFolder.open(asked.run))
    if all(run.complete(seed) for seed in run.seeds):
        print(f"{asked.run} is finished: nothing is left to do.", file=sys.stderr if asked.json else sys.stdout)
    return _go_on(run, asked.jobs, asked.json)


def _go_on(run: Run, jobs: int | None, json: bool, checkpoint_seconds: float = 30.0) -> int:
    folder = shlex.quote(str(run.path))
    try:
        run.go_on(jobs=jobs, checkpoint_seconds=checkpoint_seconds)
    except KeyboardInterrupt:
        print(f"evenhand: {_how_far(run)}; go on with: evenhand resume {folder}", file=sys.stderr)
        return INTERRUPTED
    tests = run.evaluations()
    if not tests:
        if json:
            print(report.as_json({"run": str(run.path), "policies": []}))
        else:
            print(f"The run lies in {run.path}. It was not tested: evenhand evaluate {folder} does that.")
        return 0
    measure = _measure(None, list(tests.values()))
    found = [judging.outcome(run.name, list(tests.values()), measure)]
    if json:
        print(report.as_json(_record(run, found, measure, run.welfare, None) | {"run": str(run.path)}))
        return 0
    objectives = run.request["objectives"]
    next_steps = [
        f"The run lies in {run.path}. Next:",
        f"  evenhand evaluate {folder}   compare it with simple policies",
        f"  evenhand play - {folder}   watch it",
    ]
    show(
        f"Who gets what: {_what(measure, run)}",
        f"{len(tests)} {'seed' if len(tests) == 1 else 'seeds'}, {run.request['episodes']} test episodes each",
        report.outcomes_table(found, objectives, run.welfare),
        report.table_notes(found, objectives, run.welfare),
        next_steps,
    )
    return 0


def _plan(run: Run) -> list[str]:
    """What will be done, in a few lines."""
    asked = run.request
    objectives, space = asked["objectives"], run.env.action_space
    users = f"{len(objectives)} {'user' if len(objectives) == 1 else 'users'} ({_listed(objectives)})"
    actions = f"{space.n} actions" if type(space).__name__ == "Discrete" else f"actions of {space.n} numbers"
    seeds = asked["seeds"]
    which = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    given = "".join(f", {name} = {value}" for name, value in asked["arguments"].items())
    return [
        f"Environment: {asked['name']}{given}: {users}, {actions}",
        f"Learning:    {run.name} ({asked['algo']}, welfare {asked['welfare']}, preset {asked['preset']}), "
        f"{asked['steps']:,} steps × {which}",
        f"Folder:      {run.path}",
    ]


def _how_far(run: Run) -> str:
    status = run.folder.status()
    if not any(seed.step for seed in status):
        return "stopped before the first checkpoint"
    done, of = sum(min(seed.step, seed.steps) for seed in status), sum(seed.steps for seed in status)
    return f"stopped at a checkpoint, {done:,} of {of:,} steps done"


def _seeds(text: str) -> int | list[int]:
    """`4` is how many, `0,3,7` are which; a comma at the end makes a single one of the second kind."""
    try:
        numbers = [whole(part) for part in text.split(",") if part.strip() or part != text.split(",")[-1]]
    except ValueError:
        raise InputError(f"--seeds takes how many, as in 4, or which ones, as in 0,3,7, not {text!r}.") from None
    return numbers if "," in text else numbers[0]


def _check_jobs(jobs: int | None) -> None:
    if jobs is not None and jobs < 1:
        raise InputError(f"--jobs must be at least 1, not {jobs}.")


# evaluate


def run_evaluate(asked: Evaluate) -> int:
    """Play, print, draw and keep."""
    _check_measure(asked.measure)
    _check_positive("--episodes", asked.episodes)
    _check_not_negative("--seed", asked.seed)
    check_picture(asked.picture, "--picture", PICTURES)
    given = assignments("--env", asked.arguments)
    run = Run(RunFolder.open(asked.run))
    ready = [progress for progress in run.folder.status() if progress.step]
    if not ready:
        raise InputError(f"{asked.run} has no checkpoint yet: evenhand resume {asked.run} trains it.")
    from evenhand.judge import evaluate_policy
    from evenhand.runs.pool import prepare_jax

    prepare_jax()
    env = _environment(run, given)
    gamma = run.task.config.gamma
    notes = [
        f"seed {seed}: only {step:,} of {steps:,} steps are trained." for seed, step, steps in ready if step < steps
    ]
    notes += [f"seed {seed}: not trained yet, left out." for seed, step, _ in run.folder.status() if not step]
    tests = {}
    for seed, _, _ in ready:
        say(f"playing {asked.episodes} test episodes with the policy of seed {seed}")
        tests[seed] = evaluate_policy(env, run.policy(seed), asked.episodes, gamma, asked.seed)
    measure = _measure(asked.measure, list(tests.values()))
    found = [judging.outcome(run.name, list(tests.values()), measure)]
    simple = {}
    if asked.baselines:
        for name, policy in judging.baselines(env):
            say(f"playing {asked.episodes} test episodes with the policy {name}")
            simple[name] = evaluate_policy(env, policy, asked.episodes, gamma, asked.seed)
            found.append(judging.outcome(name, [simple[name]], measure, "baseline"))
    best = _reference(env, run, measure, gamma, tests) if asked.reference else None
    optimum = None
    if isinstance(best, judging.Reference):
        found.append(Outcome("exact optimum", best.returns[None], "exact"))
        optimum = best.welfare
        notes.append(best.note)
    elif best is not None and run.request["name"] == "species":
        notes.append(f"No exact optimum: {best}")
    record = {
        "run": str(asked.run),
        "arguments": run.request["arguments"] | given,
        "episodes": asked.episodes,
        "seed": asked.seed,
        **_record(run, found, measure, run.welfare, optimum),
        "notes": notes,
    }
    kept = run.folder.evaluation(_evaluation_name(asked, given))
    raw = {"seeds": {str(seed): test.record() for seed, test in tests.items()}}
    raw |= {"baselines": {name: test.record() for name, test in simple.items()}}
    run.folder.write_json(kept, _jsonable(record) | raw)
    objectives = run.request["objectives"]
    if asked.picture is not None:
        with aside(asked.picture) as partial:
            report.draw_outcomes(
                found, objectives, partial, measure=_what(measure, run), title=f"{run.name}, {asked.run}"
            )
    if asked.json:
        print(report.as_json(record))
        return 0
    events = [f"Kept in {kept}."]
    if asked.picture is not None:
        events.append(f"Drawn in {asked.picture}.")
    show(
        f"Who gets what: {_what(measure, run)}",
        f"{asked.run}: {asked.episodes} test episodes for each policy",
        report.outcomes_table(found, objectives, run.welfare, optimum=optimum),
        [*report.table_notes(found, objectives, run.welfare), *notes],
        events,
    )
    return 0


def _reference(env: Any, run: Run, measure: str, gamma: float, tests: Mapping[int, Any]) -> judging.Reference | str:
    if run.request["name"] == "species":
        say("computing the exact optimum, which takes some seconds (--no-reference leaves it out)")
    return judging.reference(env, run.welfare, measure, gamma, np.concatenate([test.length for test in tests.values()]))


def _environment(run: Run, given: Mapping[str, Any], name: str | None = None, **more: Any) -> Any:
    """The run's environment or the one named, with other settings."""
    if name is None and not given and not more:
        return run.env
    from evenhand.envs import resolve

    same = name is None or name == run.request["env"]
    if same and run.request["env"] is None:
        return run.env  # which refuses, and says why
    arguments = run.request["arguments"] if same else {}
    env = resolve(run.request["env"] if name is None else name, {**arguments, **given, **more})
    if len(env.objectives) != len(run.request["objectives"]):
        raise InputError(
            f"the policy was trained for {len(run.request['objectives'])} users, but here are {len(env.objectives)}."
        )
    return env


def _evaluation_name(asked: Evaluate, given: Mapping[str, Any]) -> str:
    with_ = "".join(f"-{name}-{value}" for name, value in given.items())
    return safe_name(f"test-{asked.episodes}-episodes-seed-{asked.seed}{with_}")


# compare


def run_compare(asked: Compare) -> int:
    """Print one table of all runs, and draw it."""
    _check_measure(asked.measure)
    check_picture(asked.picture, "--picture", PICTURES)
    check_picture(asked.html, "--html", (".html", ".htm"))
    if len(asked.runs) < 2:
        raise InputError("give two runs or more, as in evenhand compare runs/plain runs/fair.")
    runs = [Run(RunFolder.open(path)) for path in asked.runs]
    judging.same_environment(runs)
    objectives = runs[0].request["objectives"]
    welfare = named_welfare(asked.welfare, len(objectives))
    tests = [list(judging.kept_tests(run, say).values()) for run in runs]
    measure = _measure(asked.measure, [test for of_run in tests for test in of_run])
    gammas = {test.gamma for of_run in tests for test in of_run}
    if measure == "discounted" and len(gammas) > 1:
        raise InputError(f"the runs discount differently (γ = {_listed(map(str, sorted(gammas)))}): compare averages.")
    names = judging.names(runs)
    found = [judging.outcome(name, of_run, measure) for name, of_run in zip(names, tests, strict=True)]
    best = max(found, key=lambda outcome: float(outcome.mean.sum()))
    table = report.outcomes_table(found, objectives, welfare, prices=True)
    notes = [
        *report.table_notes(found, objectives, welfare),
        f"price of fairness: what is lost of the largest average, that of {best.name}.",
    ]
    title = f"Who gets what: {_what(measure, runs[0])}"
    about = f"{runs[0].request['name']}: {', '.join(map(str, asked.runs))}"
    events = []
    curves = [curve for name, run in zip(names, runs, strict=True) if (curve := judging.curve(name, run)) is not None]
    if len(curves) < len(runs):
        curves = []
        notes.append("The metrics of a run are lost, so that there are no learning curves.")

    def draw(path: Path) -> None:
        report.draw_outcomes(found, objectives, path, measure=_what(measure, runs[0]), curves=curves)

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
                parts.append(page.picture(drawn, "what each user gets, how evenly it is shared, how it was learnt"))
                partial.write_text(page.page(title, parts), "utf-8")
            finally:
                drawn.unlink(missing_ok=True)
        events.append(f"Written to {asked.html}.")
    if asked.json:
        record = _record(runs[0], found, measure, welfare, None)
        for policy, outcome, path in zip(record["policies"], found, asked.runs, strict=True):
            policy["run"] = str(path)
            policy["price_of_fairness"] = report.price(outcome, best)._asdict()
        print(report.as_json(record))
        return 0
    show(title, about, table, notes, events)
    return 0


# play


def run_play(asked: Play) -> int:
    """Step through one episode."""
    _check_positive("--steps", asked.steps)
    _check_not_negative("--seed", asked.seed)
    check_picture(asked.render, "--render", FRAMES)
    given = assignments("--env", asked.arguments)
    run = Run(RunFolder.open(asked.run))
    from evenhand.envs.gym import GymEnv
    from evenhand.envs.host import HostEnv
    from evenhand.judge import TEST_SEED
    from evenhand.runs.pool import prepare_jax

    prepare_jax()
    name = None if asked.env == "-" else asked.env
    env = _environment(run, given, name)
    policy = run.policy(asked.policy_seed)
    if (env.observation_space.n, env.action_space) != (run.env.observation_space.n, run.env.action_space):
        raise InputError(f"{asked.run} was trained with other observations or actions than {asked.env} has.")
    mode = None if asked.render is None else "rgb_array"
    if isinstance(env, HostEnv):
        drawing = env if mode is None else _environment(run, given, name, render_mode=mode)
        stepped = drawing.make()
    else:
        stepped = GymEnv(env, mode)
    try:
        return _play(asked, run, env, policy, stepped, TEST_SEED + asked.seed)
    finally:
        stepped.close()


def _play(asked: Play, run: Run, env: Any, policy: Any, stepped: Any, seed: int) -> int:
    objectives, names = list(env.objectives), judging.action_names(env)
    moving = asked.render is not None and asked.render.suffix.lower() == ".gif"
    every = math.ceil(asked.steps / MOST_FRAMES)
    policy.seed(asked.seed)
    observation, _ = stepped.reset(seed=seed % 2**32)
    total = np.zeros(len(objectives))
    steps: list[dict[str, Any]] = []
    frames: list[Any] = []
    terminated = truncated = False
    if not asked.json:
        whose = run.seeds[0] if asked.policy_seed is None else asked.policy_seed
        print(f"{run.name} of {asked.run}, seed {whose}; {run.welfare.name} so far")
        width = max(16, *(len(name) + 2 for name in names)) if names else 16
        print(
            f"{'step':>6}  {'action':<{width}}"
            + "".join(f"{name[:14]:>16}" for name in objectives)
            + f"{'welfare':>12}"
        )
    while not terminated and not truncated and len(steps) < asked.steps:
        action = policy(observation, deterministic=asked.deterministic)
        observation, reward, terminated, truncated, _ = stepped.step(action)
        reward = np.atleast_1d(np.asarray(reward, float))
        total += reward
        welfare = _welfare_of(run.welfare, total / (len(steps) + 1))
        steps.append({"action": np.asarray(action).tolist(), "rewards": reward.tolist(), "welfare_so_far": welfare})
        if moving and len(steps) % every == 0:
            frames.append(_frame(stepped))
        if not asked.json:
            shown = names[int(action)] if names else _short(action)
            rewards = "".join(f"{value:>16.6g}" for value in reward)
            print(f"{len(steps):>6}  {shown:<{width}}{rewards}{welfare:>12.6g}")
    how = "ended by itself" if terminated else "ended by its time limit" if truncated else "goes on"
    if asked.render is not None:
        _draw_frames(asked.render, frames or [_frame(stepped)])
    if asked.json:
        record = {
            "run": str(asked.run),
            "objectives": objectives,
            "steps": steps,
            "total": total.tolist(),
            "average": (total / len(steps)).tolist(),
            "welfare": _welfare_of(run.welfare, total / len(steps)),
            "terminated": bool(terminated),
            "truncated": bool(truncated),
        }
        print(report.as_json(record))
        return 0
    print(f"After {len(steps)} steps the episode {how}.")
    for label, values in (("total", total), ("average", total / len(steps))):
        print(f"{label:<8}" + ", ".join(f"{name} {value:.6g}" for name, value in zip(objectives, values, strict=True)))
    print(f"welfare of the average: {_welfare_of(run.welfare, total / len(steps)):.6g} ({run.welfare.name})")
    if asked.render is not None:
        print(f"Drawn in {asked.render}.")
    return 0


def _frame(stepped: Any) -> Any:
    frame = stepped.render()
    if not isinstance(frame, np.ndarray) or frame.ndim != 3:
        raise InputError("the environment draws no pictures (render_mode rgb_array): leave --render out.")
    return frame


def _draw_frames(path: Path, frames: Sequence[Any]) -> None:
    from PIL import Image

    images = [Image.fromarray(np.asarray(frame, np.uint8)) for frame in frames]
    with aside(path) as partial:
        if path.suffix.lower() == ".gif":
            images[0].save(partial, save_all=True, append_images=images[1:], duration=100, loop=0)
        else:
            images[-1].save(partial)


def _short(action: Any) -> str:
    array = np.asarray(action)
    return str(action) if array.ndim == 0 else "[" + " ".join(f"{x:.3g}" for x in array.ravel()) + "]"


def _welfare_of(welfare: Welfare, returns: Any) -> float:
    found = report.welfare_of(welfare, returns)
    return math.nan if found is None else found


# What several share


def _check_measure(measure: str | None) -> None:
    if measure is not None:
        check_name("measure", measure, report.MEASURES)


def _check_positive(option: str, number: int) -> None:
    if number < 1:
        raise InputError(f"{option} must be at least 1, not {number}.")


def _check_not_negative(option: str, number: int) -> None:
    if number < 0:
        raise InputError(f"{option} must not be negative, not {number}.")


def _measure(asked: str | None, tests: Sequence[Any]) -> str:
    """The one asked for, or sums where any episode ended by itself, and averages otherwise."""
    return asked or ("return" if any(test.natural_measure == "return" for test in tests) else "average")


def _what(measure: str, run: Run) -> str:
    gamma = f", γ = {run.request['settings']['gamma']:g}" if measure == "discounted" else ""
    return report.MEASURES[measure] + gamma


def _record(
    run: Run, found: Sequence[Outcome], measure: str, welfare: Welfare, optimum: float | None
) -> dict[str, Any]:
    objectives = run.request["objectives"]
    return {
        "environment": run.request["name"],
        "objectives": objectives,
        "measure": measure,
        "gamma": run.request["settings"]["gamma"],
        "welfare": welfare.name,
        "policies": [report.outcome_record(outcome, objectives, welfare, optimum) for outcome in found],
    }


def _jsonable(record: dict[str, Any]) -> dict[str, Any]:
    """NaN as null, as everywhere where programs read."""
    import json

    return dict(json.loads(report.as_json(record)))


def _listed(words: Any, most: int = 8) -> str:
    words = list(words)
    return ", ".join(words[:most]) + (", …" if len(words) > most else "")
