"""Searching for hyperparameters: tune."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from evenhand import report
from evenhand.cli.shared import (
    INTERRUPTED,
    NO_HINT,
    Address,
    Assignments,
    Environment,
    ExecutorName,
    OptionalWhole,
    WelfareText,
    Whole,
    assignments,
    check_positive,
    command_line,
    executor_of,
    optional,
)
from evenhand.progress import StudyProgress
from evenhand.runs import search
from evenhand.runs.folder import safe_name
from evenhand.runs.settings import check_name
from evenhand.runs.study import Executor

# JAX is imported where it is used: help and refusals should not wait for it.


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

    env: Environment
    """The environment."""
    algo: Annotated[str, arg(metavar="NAME")] = "ppo"
    """The algorithm: ppo, a2c or dqn."""
    welfare: WelfareText = "ggf"
    """What is maximised, in training and by the search."""
    trials: Whole = 50
    """How many combinations to try."""
    steps: OptionalWhole = None
    """Steps of training in each trial and seed; by default those of the preset."""
    seeds: Whole = 2
    """Of each trial: 0, 1, ..."""
    episodes: Whole = 20
    """Test episodes for each seed."""
    measure: Annotated[str, arg(metavar="NAME")] = "discounted"
    """What counts of them: discounted, average or return."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment."""
    training: Assignments = ()
    """Settings of the environment that differ while training."""
    preset: Annotated[str, arg(metavar="NAME")] = "tuned"
    """Where the search begins, and what it does not change."""
    output: Annotated[Path | None, optional(Path, "FOLDER"), arg(aliases=["-o"]), NO_HINT] = None
    """The folder of the search; by default one in searches/."""
    jobs: OptionalWhole = None
    """Processes; by default one for each core."""
    executor: ExecutorName = "local"
    """local: processes of this machine; ray: a Ray cluster, for the seeds of each trial (docs/cluster.md)."""
    address: Address = None
    """The Ray cluster, or auto for the one that this machine is part of; by default one is started here."""


def run_tune(asked: Tune) -> int:
    """Check everything, try, and print the best."""
    for name in ("trials", "steps", "seeds", "episodes", "jobs"):
        if getattr(asked, name) is not None:
            check_positive(f"--{name}", getattr(asked, name))
    check_name("measure", asked.measure, report.MEASURES)
    wanted = search.Search(
        asked.env,
        asked.algo,
        asked.welfare,
        asked.steps,
        asked.seeds,
        asked.episodes,
        asked.measure,
        asked.preset,
        assignments("--env", asked.arguments),
        assignments("--training", asked.training),
    )
    folder = asked.output or Path("searches") / safe_name(f"{asked.env}-{asked.algo}-{asked.welfare}")
    with executor_of(asked.executor, asked.address, asked.jobs) as executor:
        return _search(asked, wanted, folder, executor)


def _search(asked: Tune, wanted: search.Search, folder: Path, executor: Executor) -> int:
    done = search.check(wanted, folder)
    left = max(0, asked.trials - len(done))
    print(f"{asked.trials} trials × {asked.seeds} seeds, {len(done)} trials done already; in {folder}", flush=True)
    method = f"{asked.algo}, {asked.welfare}"
    counts = {method: (len(done) * asked.seeds, max(asked.trials, len(done)) * asked.seeds)}
    steps = search.steps_of(wanted)
    try:
        with StudyProgress(counts, left * asked.seeds * steps) as table:

            def told(trial: search.Trial) -> None:
                score = "failed" if trial.score is None else f"{trial.score:.6g}"
                table.say(f"trial {trial.number}: {score} {trial.problem or trial.settings or '(the preset)'}")

            def of_trial(number: int) -> Any:
                return lambda content: table.update(method, f"trial {number}, seed {content['cell'].seed}", content)

            done = search.carry_on(wanted, folder, asked.trials, executor, of_trial, table.say, told)
    except KeyboardInterrupt:
        print("evenhand: stopped; the same command goes on.", file=sys.stderr)
        return INTERRUPTED
    text = search.preset_text(wanted, done, command_line("tune", asked))
    (folder / "best.toml").write_text(f"{text}\n", "utf-8")
    print(f"{text}\n\nKept in {folder / 'best.toml'}; to use it: evenhand train --set NAME=VALUE ...")
    return 0
