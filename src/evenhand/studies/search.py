"""Search for hyperparameters: every method with the same number of trials, seeds and steps, whatever interrupts it.

SEARCH/
  search.json     what was asked
  trials.json     the trials that are done: settings and score of each
  cells/          their runs, by what they are (see `evenhand.studies.cells`)

What a trial tries depends on those before it and on its number alone, so that a search that is killed and started
again ends with the same trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from evenhand.agents.algorithm import Range, algorithm, names
from evenhand.disk import as_json, make_folder, read_json, write_atomically
from evenhand.errors import InputError, Say
from evenhand.runs.hyperparameters import check_name
from evenhand.runs.pool import Report
from evenhand.studies.cells import cells_of
from evenhand.studies.executor import Executor, carry_out
from evenhand.studies.experiment import FIRST_SEED, Experiment, Learner, Test
from evenhand.studies.results import gather
from evenhand.welfare import welfare as named_welfare
from evenhand.welfare import welfare_of

STARTUP = 10
"""Trials at random before the search learns from them."""


class Trial(NamedTuple):
    """One combination of settings."""

    number: int
    settings: dict[str, Any]
    """Changes to the preset; the first trial has none."""
    score: float | None
    """The mean welfare over the seeds; None where training failed."""
    problem: str = ""


@dataclass(frozen=True)
class Search:
    """What is searched for."""

    env: str
    algo: str
    welfare: str
    steps: int | None
    seeds: int = 2
    episodes: int = 20
    measure: str = "average"
    preset: str = "tuned"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)

    def experiment(self, trial: int, settings: Mapping[str, Any]) -> Experiment:
        """One trial, with seeds that no study has."""
        return Experiment(
            key=f"trial-{trial}",
            title=f"trial {trial}",
            env=self.env,
            learners=(
                Learner(name="trial", algo=self.algo, welfare=self.welfare, settings=settings, steps=self.steps),
            ),
            simple=(),
            tests=(Test(name="test", measure=self.measure, episodes=self.episodes),),
            seeds=tuple(range(self.seeds)),
            arguments=self.arguments,
            training=self.training,
            preset=self.preset,
        )

    def record(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {name: dict(v) if isinstance(v, Mapping) else v for name, v in vars(self).items()}


def check(search: Search, folder: Path) -> list[Trial]:
    """Refuse what cannot be searched, before any work; the trials that are done already."""
    check_name("algorithm", search.algo, names())
    _optuna()
    if not 1 <= search.seeds <= FIRST_SEED:
        raise InputError(f"a search takes 1 to {FIRST_SEED} seeds, those that studies leave to it, not {search.seeds}.")
    cells_of(search.experiment(0, {}))
    asked = folder / "search.json"
    if asked.exists() and read_json(asked) != search.record():
        raise InputError(f"{folder} is a search for something else: choose another folder for this one.")
    kept = folder / "trials.json"
    return _trials(kept, search.algo) if kept.exists() else []


def _trials(file: Path, algo: str) -> list[Trial]:
    """The trials that were kept, if they can be this search's."""
    content = read_json(file)
    if not isinstance(content, list):
        raise InputError(f"{file} is damaged: it should be a list of trials.")
    for number, entry in enumerate(content):
        if not isinstance(entry, dict) or entry.keys() != set(Trial._fields) or entry["number"] != number:
            raise InputError(f"{file} is damaged: its entry {number} is not that of trial {number}.")
        settings, score = entry["settings"], entry["score"]
        if not isinstance(settings, dict):
            raise InputError(f"{file} is damaged: the settings of trial {number} should be names and values.")
        space = algorithm(algo).SEARCH
        tried = {name: _possible(values, settings[name]) for name, values in space.items() if name in settings}
        if settings and (tried.keys() != settings.keys() or not all(tried.values())):
            raise InputError(f"{file} is damaged: the settings of trial {number} are none that a search tries.")
        if score is not None and (not isinstance(score, int | float) or isinstance(score, bool)):
            raise InputError(f"{file} is damaged: the score of trial {number} should be a number.")
        if not isinstance(entry["problem"], str):
            raise InputError(f"{file} is damaged: the problem of trial {number} should be a text.")
    return [Trial(**entry) for entry in content]


def _possible(values: Range | tuple[Any, ...], value: Any) -> bool:
    """Whether a search can have tried it."""
    if isinstance(values, Range):
        return isinstance(value, int | float) and not isinstance(value, bool) and values.low <= value <= values.high
    return any(value == choice and type(value) is type(choice) for choice in values)


def steps_of(search: Search) -> int:
    """Steps of training of each trial and seed."""
    return cells_of(search.experiment(0, {}))[0].steps


def carry_on(
    search: Search,
    folder: Path,
    trials: int,
    executor: Executor,
    report: Callable[[int], Report],
    say: Say,
    told: Callable[[Trial], None],
) -> list[Trial]:
    """Do trials until there are so many; all of them.

    report: what to tell about the cells of a trial; told: called with each trial that is done.
    """
    done = check(search, folder)
    make_folder(folder)
    write_atomically(folder / "search.json", as_json(search.record()))
    for number in range(len(done), trials):
        settings = suggestion(search.algo, done, number)
        done.append(_tried(search, number, settings, folder, executor, report(number), say))
        write_atomically(folder / "trials.json", as_json([trial._asdict() for trial in done]))
        told(done[-1])
    return done


def suggestion(algo: str, done: Sequence[Trial], number: int) -> dict[str, Any]:
    """What to try next: nothing but the preset, then at random, then by the tree-structured Parzen estimator."""
    if number == 0:
        return {}
    optuna = _optuna()
    space = {name: _distribution(optuna, values) for name, values in algorithm(algo).SEARCH.items()}
    sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=STARTUP)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for trial in done:
        if trial.score is not None and trial.settings:
            study.add_trial(optuna.trial.create_trial(params=trial.settings, distributions=space, value=trial.score))
    return dict(study.ask(space).params)


def best(done: Sequence[Trial]) -> Trial:
    """The trial with the highest score, the first of equal ones."""
    scored = [trial for trial in done if trial.score is not None]
    if not scored:
        raise InputError(f"no trial could be trained: {done[-1].problem if done else 'there was none'}")
    return max(scored, key=lambda trial: (trial.score, -trial.number))


def preset_text(search: Search, done: Sequence[Trial], line: str) -> str:
    """The best settings as a part of a preset that says which search it comes from."""
    chosen = best(done)
    first = done[0].score
    about = [
        f"# From {line}:",
        f"# {len(done)} trials with {search.seeds} seeds each, judged by the {search.measure} {search.welfare} of "
        f"{search.episodes} test episodes.",
        f"# Trial {chosen.number} scored {chosen.score:.6g}; the preset {search.preset} had "
        f"{'none' if first is None else f'{first:.6g}'}.",
        f"[{search.env}.{search.algo}]",
    ]
    values = [f"{name} = {_toml(value)}" for name, value in chosen.settings.items()]
    return "\n".join([*about, *(values or ["# The preset itself was the best."])])


def _tried(
    search: Search, number: int, settings: dict[str, Any], folder: Path, executor: Executor, report: Report, say: Say
) -> Trial:
    experiment = search.experiment(number, settings)
    try:
        cells = cells_of(experiment)
    except InputError as error:  # settings that do not go together
        return Trial(number, settings, None, str(error))
    failures = carry_out(cells, folder, executor, report, say)
    if failures:
        return Trial(number, settings, None, failures[0][1].said.strip().splitlines()[-1])
    result = gather(experiment, cells, folder)
    returns = result.returns(experiment.tests[0])["trial"]
    welfare = named_welfare(search.welfare, returns.shape[1])
    score = float(np.mean(welfare_of(welfare, returns)))
    if np.isnan(score):
        return Trial(number, settings, None, f"{search.welfare} needs positive returns")
    return Trial(number, settings, score)


def _distribution(optuna: Any, values: Range | tuple[Any, ...]) -> Any:
    if isinstance(values, Range):
        return optuna.distributions.FloatDistribution(values.low, values.high, log=True)
    return optuna.distributions.CategoricalDistribution(values)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise InputError("searching needs Optuna: pip install 'evenhand[tune]'.") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else f"{value:.4g}" if isinstance(value, float) else str(value)
