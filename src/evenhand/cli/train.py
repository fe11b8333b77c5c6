"""train: learn fair policies."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import arg

from evenhand import report
from evenhand.cli import options, output
from evenhand.envs import resolve
from evenhand.envs.gym.failures import EnvironmentFailed
from evenhand.envs.registry import doubts_of
from evenhand.errors import InputError
from evenhand.evaluation.result import Outcome, mean_facts, meaning, measure_of
from evenhand.runs import trainer
from evenhand.runs.folder import RunFolder, new_run_path
from evenhand.runs.request import checked_request
from evenhand.runs.run import Run

if TYPE_CHECKING:
    from evenhand.envs.gym.vector import Start

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
    or module:name, to import a module first that registers it, or an algorithm, network or executor
    of your own (docs/extending.md).

    --welfare says what is fair (evenhand list shows all): ggf, ggf:RATIO, ggf:W1,W2,...,
    maximin, leximin, nash, alpha:ALPHA, ...; utilitarian is the plain algorithm.

    Ctrl-C stops at a checkpoint (exit code 130), and evenhand resume goes on from there,
    also after a kill: the numbers will be those of a run that was never stopped.
    """

    env: options.Environment
    """The environment."""
    algo: options.Name = "ppo"
    """The algorithm: ppo, a2c, or dqn for finitely many actions."""
    welfare: options.Name = "ggf"
    """What is fair, by one of the names above."""
    steps: options.OptionalWhole = None
    """Steps of the environment for each seed, as in 1e6; by default those of the preset."""
    seeds: Annotated[str, arg(metavar="N|S1,S2,...")] = "4"
    """How many, or which ones. Intervals need several."""
    changes: options.Changes = ()
    """Hyperparameters that differ from the preset's; evenhand list ppo shows them all."""
    arguments: options.EnvArguments = ()
    """Settings of the environment; evenhand list species shows those of ours."""
    training: options.Assignments = ()
    """Settings of the environment that differ while training, such as shorter episodes."""
    preset: options.Preset = "tuned"
    output: options.NewFolder = None
    """A new folder for the run; by default one in runs/."""
    jobs: options.SeedsAtOnce = None
    workers: options.Whole = 0
    """Processes that step each seed's environments, where these are slow (a simulator)."""
    executor: options.Name = "local"
    """Where these processes are, local or ray: on the machines of a Ray cluster, feeding one learner here."""
    address: options.Address = None
    episodes: options.Whole = 50
    """Test episodes for each seed after training; 0 for none."""
    checkpoint_seconds: options.CheckpointSeconds = trainer.CHECKPOINT_SECONDS
    step_timeout: options.StepTimeout = None
    """Seconds that a step may take, for environments that may hang: their worker process is started anew then."""
    json: options.Json = False


def run_train(args: Train) -> int:
    """Check everything, say what will be done, and do it."""
    options.check_positive(args, "jobs", "steps")
    options.check_not_negative(args, "checkpoint_seconds")
    with starting(args) as start:
        return _train(args, start)


def _train(args: Train, start: Start | None) -> int:
    request = checked_request(
        args.env,
        algo=args.algo,
        welfare=args.welfare,
        steps=args.steps,
        seeds=_seeds(args.seeds),
        arguments=options.assignments("--env", args.arguments),
        training=options.assignments("--training", args.training),
        changes=options.assignments("--set", args.changes),
        preset=args.preset,
        workers=args.workers,
        episodes=args.episodes,
        step_timeout=args.step_timeout,
    ).request
    if start is not None:
        check_stepped(request.name, resolve(request.env, {**request.arguments, **request.training}))
    path = args.output or new_run_path(request.name, args.algo, request.welfare)
    folder = RunFolder.create(path, request)
    run = Run(folder, trust=True, step_timeout=args.step_timeout)  # its name was typed just now
    print(*_plan(run), sep="\n")
    return go_on(run, args.json, jobs=args.jobs, start=start, checkpoint_seconds=args.checkpoint_seconds)


@contextmanager
def starting(args: Any) -> Iterator[Start | None]:
    """What starts worker processes of environments elsewhere, before JAX is used; None where they are to be here."""
    start = options.checked_executor(args).start
    with options.executor_of(args) if start is not None else nullcontext():
        yield start


def check_stepped(name: str, env: Any) -> None:
    """Refuse other machines for environments that are a part of the compiled program."""
    from evenhand.envs.gym.host_env import HostEnv

    if not isinstance(env, HostEnv):
        raise InputError(
            f"{name} is compiled, and trains fastest on one machine; to spread seeds over several, use "
            f"evenhand study {name} --executor ray."
        )


def go_on(run: Run, json: bool, **how: Any) -> int:
    """Train, and show who gets what; how: as for `trainer.go_on`."""
    module = (run.request.env or "").rpartition(":")[0]  # which a folder alone does not get imported
    folder = shlex.join([str(run.path), *(["--env-module", module] if module else [])])
    try:
        trainer.go_on(run, **how)
    except KeyboardInterrupt:
        output.warn(f"{_how_far(run)}; go on with: evenhand resume {folder}")
        return output.INTERRUPTED
    except EnvironmentFailed as error:
        further = f"The run was {_how_far(run)}; when the environment is mended, go on with: evenhand resume {folder}"
        raise EnvironmentFailed(f"{error}\n\n{further}", error.full) from error
    tests = run.evaluations()
    if not tests:
        if json:
            output.print_json({"run": str(run.path), "policies": []})
        else:
            print(f"The run lies in {run.path}. It was not tested: evenhand evaluate {folder} does that.")
        return 0
    played = list(tests.values())
    measure = measure_of(None, played)
    outcomes, facts = [Outcome.of(run.name, played, measure)], mean_facts({run.name: played})
    doubts = doubts_of(run.request.name, facts)
    if json:
        record = report.outcomes_record(run, outcomes, measure, run.welfare) | {"run": str(run.path)}
        output.print_json(record | ({"notes": doubts} if doubts else {}))
        return 0
    objectives = run.request.objectives
    next_steps = [
        f"The run lies in {run.path}. Next:",
        f"  evenhand evaluate {folder}   compare it with simple policies",
        f"  evenhand play - {folder}   watch it",
    ]
    output.show(
        f"Who gets what: {meaning(measure, run.request.config.gamma)}",
        f"{len(tests)} {'seed' if len(tests) == 1 else 'seeds'}, {run.request.episodes} test episodes each",
        report.outcomes_sheet(outcomes, objectives, run.welfare).terminal(),
        [*report.table_notes(outcomes, objectives, run.welfare), *doubts],
        next_steps,
        facts,
    )
    return 0


def _plan(run: Run) -> list[str]:
    """What will be done, in a few lines."""
    request, space = run.request, run.env.action_space
    users = "1 user" if len(request.objectives) == 1 else f"{len(request.objectives)} users"
    actions = f"{space.n} actions" if type(space).__name__ == "Discrete" else f"actions of {space.n} numbers"
    seeds = f"{len(request.seeds)} seeds" if len(request.seeds) > 1 else f"seed {request.seeds[0]}"
    arguments = "".join(f", {name} = {value}" for name, value in request.arguments.items())
    return [
        f"Environment: {request.name}{arguments}: {users} ({output.listed(request.objectives)}), {actions}",
        f"Learning:    {run.name} ({request.algo}, welfare {request.welfare}, preset {request.preset}), "
        f"{request.steps:,} steps × {seeds}",
        f"Folder:      {run.path}",
    ]


def _how_far(run: Run) -> str:
    done, steps = options.steps_done(run.folder)
    where = f"at a checkpoint, {done:,} of {steps:,} steps done" if done else "before the first checkpoint"
    return f"stopped {where}"


def _seeds(text: str) -> int | list[int]:
    """`4` is how many, `0,3,7` are which; a comma at the end makes a single one of the second kind."""
    try:
        numbers = [options.whole(part) for part in text.split(",") if part.strip() or part != text.split(",")[-1]]
    except ValueError:
        raise InputError(f"--seeds takes how many, as in 4, or which ones, as in 0,3,7, not {text!r}.") from None
    return numbers if "," in text else numbers[0]
