"""tune: a search for hyperparameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenhand.cli import options, output
from evenhand.progress import StudyProgress
from evenhand.runs.folder import safe_name
from evenhand.studies import search
from evenhand.studies.executor import Executor


@dataclass(frozen=True)
class Tune:
    """Search for hyperparameters of an algorithm on an environment.

    For example:
        evenhand tune species --env response=strong --algo ppo --welfare ggf --trials 50
        evenhand tune species --env response=strong --algo ppo --welfare utilitarian --trials 50

    Give every method that is to be compared the same --trials, --steps and --seeds. The first trial is the
    preset itself; then ten are drawn at random, and the others by what those before them scored (Optuna's
    tree-structured Parzen estimator; pip install 'evenhand[tune]').

    Searches use seeds below 1000 and studies those above, so that nothing is tuned on a seed that is tested.
    Ctrl-C or a kill: the same command goes on, and ends with the same trials. More --trials continue.
    """

    env: options.Environment
    """The environment."""
    algo: options.Name = "ppo"
    """The algorithm: ppo, a2c or dqn."""
    welfare: options.Name = "ggf"
    """What is maximised, in training and by the search."""
    trials: options.Whole = 50
    """How many combinations to try."""
    steps: options.OptionalWhole = None
    """Steps of training in each trial and seed; by default those of the preset."""
    seeds: options.Whole = 2
    """Of each trial: 0, 1, ..."""
    episodes: options.Whole = 20
    """Test episodes for each seed."""
    measure: options.Name = "discounted"
    """What counts of them: discounted, average or return."""
    arguments: options.EnvArguments = ()
    """Settings of the environment."""
    training: options.Assignments = ()
    """Settings of the environment that differ while training."""
    preset: options.Name = "tuned"
    """Where the search begins, and what it does not change."""
    output: options.NewFolder = None
    """The folder of the search; by default one in searches/."""
    jobs: options.Processes = None
    executor: options.Name = "local"
    """local: processes of this machine; ray: a Ray cluster, for the seeds of each trial (docs/cluster.md)."""
    address: options.Address = None


def run_tune(args: Tune) -> int:
    """Check everything, try, and print the best."""
    options.check_positive(args, "trials", "steps", "seeds", "episodes", "jobs")
    options.check_measure(args.measure)
    wanted = search.Search(
        args.env,
        args.algo,
        args.welfare,
        args.steps,
        args.seeds,
        args.episodes,
        args.measure,
        args.preset,
        options.assignments("--env", args.arguments),
        options.assignments("--training", args.training),
    )
    folder = args.output or Path("searches") / safe_name(f"{args.env}-{args.algo}-{args.welfare}")
    with options.executor_of(args) as executor:
        return _search(args, wanted, folder, executor)


def _search(args: Tune, wanted: search.Search, folder: Path, executor: Executor) -> int:
    done = search.check(wanted, folder)
    print(f"{args.trials} trials × {args.seeds} seeds, {len(done)} trials done already; in {folder}", flush=True)
    method = f"{args.algo}, {args.welfare}"
    trials = max(args.trials, len(done))
    counts = {method: (len(done) * args.seeds, trials * args.seeds)}
    steps = (trials - len(done)) * args.seeds * search.steps_of(wanted)
    try:
        with StudyProgress(counts, steps) as table:

            def told(trial: search.Trial) -> None:
                score = "failed" if trial.score is None else f"{trial.score:.6g}"
                table.say(f"trial {trial.number}: {score} {trial.problem or trial.settings or '(the preset)'}")

            def of_trial(number: int) -> Any:
                return lambda content: table.update(method, f"trial {number}, seed {content['cell'].seed}", content)

            done = search.carry_on(wanted, folder, args.trials, executor, of_trial, table.say, told)
    except KeyboardInterrupt:
        output.warn("stopped; the same command goes on.")
        return output.INTERRUPTED
    text = search.preset_text(wanted, done, options.command_line("tune", args))
    (folder / "best.toml").write_text(f"{text}\n", "utf-8")
    print(f"{text}\n\nKept in {folder / 'best.toml'}; to use it: evenhand train --set NAME=VALUE ...")
    return 0
