"""Learning: train and resume."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from evenhand import report
from evenhand.cli.shared import (
    INTERRUPTED,
    NO_HINT,
    Address,
    Assignments,
    Environment,
    ExecutorName,
    Flag,
    OfRun,
    OptionalWhole,
    RunPath,
    StepTimeout,
    WelfareText,
    Whole,
    assignments,
    check_executor,
    check_positive,
    opened,
    optional,
    print_json,
    show,
    whole,
)
from evenhand.envs.stepping import EnvironmentFailed
from evenhand.errors import InputError
from evenhand.report import judging
from evenhand.runs.folder import RunFolder, new_run_path
from evenhand.runs.ray_cluster import OnMachines, connected
from evenhand.runs.training import Run

if TYPE_CHECKING:
    from evenhand.envs.vector import Start

# JAX is imported where it is used: help and refusals should not wait for it.


@dataclass(frozen=True)
class Train:
    """Learn fair policies by trial and error, one for each seed, and show who gets what.

    For example:
        evenhand train species
        evenhand train species --env response=strong --welfare ggf:10 --seeds 0,3,7
        evenhand train CartPole-v1 --steps 1e5 --set learning_rate=1e-3 hidden=[32,32]
        evenhand train deep-sea-treasure-v0 --algo dqn -o runs/treasure
        evenhand train traffic --executor ray --address auto   # SUMO on many machines: docs/cluster.md

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
    executor: ExecutorName = "local"
    """Where these processes are, local or ray: on the machines of a Ray cluster, feeding one learner here."""
    address: Address = None
    """The Ray cluster, or auto for the one that this machine is part of; by default one is started here."""
    episodes: Whole = 50
    """Test episodes for each seed after training; 0 for none."""
    checkpoint_seconds: Annotated[float, arg(metavar="SECONDS")] = 30.0
    """The time between checkpoints: the most that a kill can cost."""
    step_timeout: StepTimeout = None
    """Seconds that a step may take, for environments that may hang: their worker process is started anew then."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


@dataclass(frozen=True)
class Resume(OfRun):
    """Go on with a run that was interrupted.

    The numbers will be those of a run that was never stopped; one that is finished is left as it is.

    For example:
        evenhand resume runs/fair
    """

    run: RunPath
    """The folder of the run."""
    jobs: OptionalWhole = None
    """Seeds trained at the same time; by default one for each core."""
    executor: ExecutorName = "local"
    """Where environments are stepped, as for train."""
    address: Address = None
    """The Ray cluster, as for train."""
    step_timeout: StepTimeout = None
    """Seconds that a step may take, as for train."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


def run_train(asked: Train) -> int:
    """Check everything, say what will be done, and do it."""
    _check_jobs(asked.jobs)
    if asked.steps is not None:
        check_positive("--steps", asked.steps)
    if not asked.checkpoint_seconds >= 0:
        raise InputError(f"--checkpoint-seconds must not be negative, not {asked.checkpoint_seconds:g}.")
    with _starting(asked) as start:
        return _trained(asked, start)


def _trained(asked: Train, start: Start | None) -> int:
    from evenhand.runs import training

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
    if start is not None:
        from evenhand.envs import resolve

        _check_stepped(request.name, resolve(request.env, {**request.arguments, **request.training}))
    path = asked.output or new_run_path(request.name, asked.algo, request.welfare)
    folder = RunFolder.create(path, request)
    run = Run(folder, trust=True, step_timeout=asked.step_timeout)  # its name was typed just now
    for line in _plan(run):
        print(line, file=sys.stderr if asked.json else sys.stdout)
    return _go_on(run, asked.jobs, asked.json, asked.checkpoint_seconds, start)


def run_resume(asked: Resume) -> int:
    """Train what is left."""
    _check_jobs(asked.jobs)
    with _starting(asked) as start:
        run = opened(asked, asked.run)
        if start is not None:
            _check_stepped(run.request.name, run.training_env)
        if all(run.complete(seed) for seed in run.seeds):
            print(f"{asked.run} is finished: nothing is left to do.", file=sys.stderr if asked.json else sys.stdout)
        return _go_on(run, asked.jobs, asked.json, start=start)


@contextmanager
def _starting(asked: Train | Resume) -> Iterator[Start | None]:
    """What starts worker processes of environments elsewhere, before JAX is used; None where they are to be here."""
    check_executor(asked.executor, asked.address, asked.jobs)
    if asked.executor == "local":
        yield None
    else:
        with connected(asked.address, asked.jobs):
            yield OnMachines


def _check_stepped(name: str, env: Any) -> None:
    """Refuse other machines for environments that are a part of the compiled program."""
    from evenhand.envs.host import HostEnv

    if not isinstance(env, HostEnv):
        raise InputError(
            f"{name} is compiled, and trains fastest on one machine; to spread seeds over several, use "
            f"evenhand study {name} --executor ray."
        )


def _go_on(run: Run, jobs: int | None, json: bool, checkpoint_seconds: float = 30.0, start: Start | None = None) -> int:
    module = (run.request.env or "").rpartition(":")[0]  # which a folder alone does not get imported
    folder = shlex.join([str(run.path), *(["--env-module", module] if module else [])])
    try:
        run.go_on(jobs=jobs, checkpoint_seconds=checkpoint_seconds, start=start)
    except KeyboardInterrupt:
        print(f"evenhand: {_how_far(run)}; go on with: evenhand resume {folder}", file=sys.stderr)
        return INTERRUPTED
    except EnvironmentFailed as error:
        further = f"The run was {_how_far(run)}; when the environment is mended, go on with: evenhand resume {folder}"
        raise EnvironmentFailed(f"{error}\n\n{further}", error.full) from error
    tests = run.evaluations()
    if not tests:
        if json:
            print_json({"run": str(run.path), "policies": []})
        else:
            print(f"The run lies in {run.path}. It was not tested: evenhand evaluate {folder} does that.")
        return 0
    measure = judging.measure_of(None, list(tests.values()))
    found = [judging.outcome(run.name, list(tests.values()), measure)]
    counted = judging.facts(run.name, list(tests.values()))
    doubts = judging.doubts(counted)
    if json:
        record = judging.record(run, found, measure, run.welfare, None) | {"run": str(run.path)}
        print_json(record | ({"notes": doubts} if doubts else {}))
        return 0
    objectives = run.request.objectives
    next_steps = [
        f"The run lies in {run.path}. Next:",
        f"  evenhand evaluate {folder}   compare it with simple policies",
        f"  evenhand play - {folder}   watch it",
    ]
    show(
        f"Who gets what: {judging.meaning(measure, run)}",
        f"{len(tests)} {'seed' if len(tests) == 1 else 'seeds'}, {run.request.episodes} test episodes each",
        report.outcomes_table(found, objectives, run.welfare),
        [*report.table_notes(found, objectives, run.welfare), *doubts],
        next_steps,
        counted,
    )
    return 0


def _plan(run: Run) -> list[str]:
    """What will be done, in a few lines."""
    asked = run.request
    objectives, space = asked.objectives, run.env.action_space
    users = f"{len(objectives)} {'user' if len(objectives) == 1 else 'users'} ({judging.listed(objectives)})"
    actions = f"{space.n} actions" if type(space).__name__ == "Discrete" else f"actions of {space.n} numbers"
    seeds = asked.seeds
    which = f"{len(seeds)} seeds" if len(seeds) > 1 else f"seed {seeds[0]}"
    given = "".join(f", {name} = {value}" for name, value in asked.arguments.items())
    return [
        f"Environment: {asked.name}{given}: {users}, {actions}",
        f"Learning:    {run.name} ({asked.algo}, welfare {asked.welfare}, preset {asked.preset}), "
        f"{asked.steps:,} steps × {which}",
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
