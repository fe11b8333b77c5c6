"""Studies: a grid of cells, each a pure function of its configuration, done once and kept by what it is.

A cell is one method (an algorithm with a welfare, or a simple policy) on one environment with one seed. Its results lie
in a folder whose name is a hash of its configuration, so that a study that is run again, interrupted or extended does
only what is missing, and two studies that ask for the same share it:

STUDY/
  cells/species-ppo-ggf-3f9a…/       a run folder with one seed, and its tests in evaluations/
  simple/species-random-81c2….json   test episodes of a policy that needs no learning
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from evenhand.disk import read_json
from evenhand.errors import InputError
from evenhand.runs.checkpoint import as_json, make_folder, write_atomically
from evenhand.runs.folder import RunFolder, locked, safe_name
from evenhand.runs.pool import Perform, Problem, Report, Say, Stop, cores, loop_of, spread_out
from evenhand.runs.request import Request
from evenhand.runs.training import CHECKPOINT_SECONDS, PATIENCE, Run, checked_request, read_evaluation

if TYPE_CHECKING:
    from evenhand.judge import Evaluation

# JAX is imported where it is used: showing a plan should not wait for it longer than it must.

FIRST_SEED = 1000
"""Studies take seeds from here on, and searches for hyperparameters those below: nothing is tuned on a test seed."""
TRAINING = "training"
"""The name of the test in which simple policies play as learners do while they are trained."""


@dataclass(frozen=True)
class Learner:
    """An algorithm with a welfare."""

    name: str
    """What people call it, as in GGF-PPO."""
    algo: str
    welfare: str = "utilitarian"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the preset."""
    steps: int | None = None
    """Of training; the preset's by default."""


@dataclass(frozen=True)
class Simple:
    """A policy that needs no learning: "random", an action, or one of the environment's own by its name."""

    name: str
    policy: str | int | float


@dataclass(frozen=True)
class Test:
    """Episodes that are played with what was learnt, and what counts of them."""

    __test__ = False  # no test of pytest's

    name: str
    measure: str
    """average, return or discounted."""
    episodes: int = 50
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the environment that differ from the experiment's."""
    about: str = ""
    """The measure in words."""
    brief: bool = False
    """Whether only scores and averages are drawn of it, since another test shows the rest."""


@dataclass(frozen=True)
class Experiment:
    """One environment, what is compared in it, and how it is tested."""

    key: str
    title: str
    env: str
    learners: tuple[Learner, ...]
    simple: tuple[Simple, ...]
    tests: tuple[Test, ...]
    seeds: tuple[int, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the environment that differ while training."""
    preset: str = "tuned"
    about: str = ""
    exact: bool = False
    """Whether to show the exact optimum beside what was learnt, where it is known."""

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of all that is compared."""
        return tuple(learner.name for learner in self.learners) + tuple(simple.name for simple in self.simple)


@dataclass(frozen=True)
class Game:
    """What a simple policy is to play."""

    env: str
    name: str
    arguments: Mapping[str, Any]
    policy: str | int | float

    def to_json(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return dict(vars(self))


@dataclass(frozen=True)
class Cell:
    """One method on one environment with one seed."""

    experiment: str
    method: str
    seed: int
    request: Request | Game = field(repr=False)
    """For a learner, that of its run; else what is to be played."""
    tests: tuple[Mapping[str, Any], ...] = field(repr=False)
    """Episodes and settings of each test."""

    @property
    def learns(self) -> bool:
        """Whether there is anything to be trained."""
        return isinstance(self.request, Request)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.method}, seed {self.seed}"

    @property
    def steps(self) -> int:
        """Of training."""
        return self.request.steps if isinstance(self.request, Request) else 0

    @property
    def kind(self) -> str:
        """The same for cells that differ in their seed only."""
        return hashed(self.request.to_json() | {"seeds": None})

    def folder(self, root: Path) -> Path:
        """Where its run lies."""
        asked = self.request
        assert isinstance(asked, Request)
        name = safe_name(f"{asked.name}-{asked.algo}-{asked.welfare}")
        return root / "cells" / f"{name}-{hashed(asked.to_json())}"

    def results(self, root: Path) -> list[Path]:
        """The files of its tests, in their order."""
        asked = self.request
        if isinstance(asked, Request):
            return [self.folder(root) / "evaluations" / f"test-{hashed(test)}.json" for test in self.tests]
        name = safe_name(f"{asked.name}-{asked.policy}")
        return [
            root / "simple" / f"{name}-{hashed({**asked.to_json(), 'seed': self.seed, 'test': dict(test)})}.json"
            for test in self.tests
        ]

    def run(self, root: Path) -> Run:
        """That of a learner, begun if it is not there; what it is to import was asked for here, and not by a file."""
        asked, path = self.request, self.folder(root)
        assert isinstance(asked, Request)
        folder = RunFolder.open(path) if (path / "run.json").exists() else RunFolder.create(path, asked)
        if folder.request != asked:
            raise InputError(f"{path / 'run.json'} is damaged: it is not what the name of its folder stands for.")
        return Run(folder, trust=True)

    def complete(self, root: Path) -> bool:
        """Whether nothing is left to do."""
        return all(path.exists() for path in self.results(root))


def hashed(configuration: Mapping[str, Any]) -> str:
    """A short name for what was asked: the same for the same content, however it is written."""
    return hashlib.sha256(json.dumps(dict(configuration), sort_keys=True, default=dict).encode()).hexdigest()[:12]


# From an experiment to cells


def cells_of(experiment: Experiment) -> list[Cell]:
    """All that an experiment asks for; everything is checked, and nothing done yet."""
    from evenhand.envs import resolve
    from evenhand.judge import as_policy

    if len(set(experiment.methods)) < len(experiment.methods):
        raise InputError(f"two methods of {experiment.title} have the same name: {', '.join(experiment.methods)}.")
    # Tests that differ in the measure only are one.
    tests = tuple({hashed(played): played for played in map(_played, experiment.tests)}.values())
    found = []
    training: dict[str, Any] = dict(experiment.training)
    for learner in experiment.learners:
        request, _ = checked_request(
            experiment.env,
            algo=learner.algo,
            welfare=learner.welfare,
            steps=learner.steps,
            seeds=list(experiment.seeds),
            arguments=experiment.arguments,
            training=experiment.training,
            changes=learner.settings,
            preset=experiment.preset,
            workers=0,
            episodes=0,
        )
        training = dict(request.training)
        found += [
            Cell(experiment.key, learner.name, seed, replace(request, seeds=(seed,)), tests)
            for seed in experiment.seeds
        ]
    for test in tests:
        resolve(experiment.env, {**experiment.arguments, **test["arguments"]})
    # Learning curves are drawn beside what simple policies get in the same, perhaps shorter, episodes.
    as_trained = {"episodes": max(test["episodes"] for test in tests), "arguments": training}
    env = resolve(experiment.env, experiment.arguments)
    for simple in experiment.simple:
        as_policy(env, simple.policy)
        asked = Game(experiment.env, experiment.env, dict(experiment.arguments), simple.policy)
        others = tuple(test for test in tests if test != as_trained)
        found += [Cell(experiment.key, simple.name, seed, asked, (*others, as_trained)) for seed in experiment.seeds]
    return found


def _played(test: Test) -> dict[str, Any]:
    """What of a test decides about its episodes."""
    return {"episodes": test.episodes, "arguments": dict(test.arguments)}


# Where cells are done


@runtime_checkable
class Executor(Protocol):
    """Where cells are done: this machine, or others. All that is asked of it is that missing cells get done."""

    def map(
        self, cells: Sequence[Cell], root: Path, report: Report, say: Say
    ) -> tuple[list[tuple[Cell, Problem]], bool]:
        """Do the cells; those that failed and why, and whether Ctrl-C was pressed."""


@dataclass(frozen=True)
class ThisMachine:
    """Spawned processes, by default one for each core."""

    jobs: int | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    @property
    def processes(self) -> int:
        """How many cells are done at a time."""
        return self.jobs or cores()

    def map(
        self, cells: Sequence[Cell], root: Path, report: Report, say: Say
    ) -> tuple[list[tuple[Cell, Problem]], bool]:
        """Do the cells."""
        argument = (str(root), self.checkpoint_seconds)
        named = {cell.request.env for cell in cells}
        return spread_out(worker, argument, cells, self.processes, report, say, lambda cell: cell.kind, named)


def worker(argument: tuple[str, float], say: Say) -> Perform:
    """What does cells, one after another, in a process of its own; an executor of any kind can call it."""
    root, checkpoint_seconds = argument
    compiled: dict[str, Any] = {}

    def perform(cell: Cell, report: Report, stop: Stop) -> None:
        if cell.learns and cell.kind not in compiled:  # seeds share the program, and nothing else is kept
            for loop in compiled.values():
                loop.close()
            compiled.clear()
        done = do(cell, Path(root), checkpoint_seconds, say, report, stop, compiled)
        report({"cell": cell, "phase": "done" if done else "stopped", "step": cell.steps})

    return perform


def do(
    cell: Cell,
    root: Path,
    checkpoint_seconds: float,
    say: Say,
    report: Report,
    stop: Stop,
    compiled: dict[str, Any] | None = None,
) -> bool:
    """Do what is missing of one cell; whether it is complete then.

    compiled: loops by kind of cell, to be used again.
    """
    from evenhand.judge import evaluate_policy

    def tell(content: Mapping[str, Any]) -> None:
        trained = {"phase": "trained"} if content["phase"] == "done" else {}  # its tests are still to come
        report({**content, **trained, "cell": cell})

    began = time.perf_counter()
    missing = [(test, file) for test, file in zip(cell.tests, cell.results(root), strict=True) if not file.exists()]
    asked = cell.request
    if isinstance(asked, Game):
        for test, file in missing:
            tell({"phase": "testing", "step": 0})
            played = evaluate_policy(
                asked.env,
                asked.policy,
                test["episodes"],
                seed=cell.seed,
                arguments={**asked.arguments, **test["arguments"]},
                say=say,
            )
            make_folder(file.parent)
            write_atomically(file, as_json(played.record()))
        return True
    run = cell.run(root)
    run.folder.echo = say
    fresh = not run.folder.progress(cell.seed).step
    if not run.folder.finished(cell.seed):
        run.folder.record_versions()
        compiled = {} if compiled is None else compiled
        if cell.kind not in compiled:
            compiled[cell.kind] = loop_of(run)
        if not run.train_seed(cell.seed, compiled[cell.kind], checkpoint_seconds, tell, stop):
            return False
    with run.folder.locked(cell.seed, PATIENCE):
        policy = run.policy(cell.seed) if missing else None
        for test, file in missing:
            if stop():
                return False
            tell({"phase": "testing", "step": cell.steps})
            played = evaluate_policy(
                asked.env,
                policy,
                test["episodes"],
                run.task.config.gamma,
                cell.seed,
                {**asked.arguments, **test["arguments"]},
                say=say,
            )
            run.folder.write_json(file, played.record())
    if fresh:  # for the estimates of later studies; results hold nothing that depends on the machine
        run.folder.write_json(run.path / "timing.json", {"seconds": time.perf_counter() - began})
    return True


def carry_out(
    cells: Sequence[Cell], root: Path, executor: Executor, report: Report, say: Say
) -> list[tuple[Cell, Problem]]:
    """Do the cells that are missing; those that failed, and why. Ctrl-C stops at a checkpoint."""
    make_folder(root)
    with locked(root):
        missing = missing_of(cells, root)
        if not missing:
            return []
        failures, stopped = executor.map(missing, root, report, say)
        if stopped and missing_of(missing, root):
            raise KeyboardInterrupt
    return failures


def missing_of(cells: Iterable[Cell], root: Path) -> list[Cell]:
    """What is left to do, each configuration once."""
    found: dict[tuple[Path, ...], Cell] = {}
    for cell in cells:
        if not cell.complete(root):
            found.setdefault(tuple(cell.results(root)), cell)
    return list(found.values())


# How long it will take

SPEEDS: Mapping[str, Mapping[str, float]] = {
    "species": {"ppo": 75_000.0, "a2c": 160_000.0, "dqn": 20_000.0},
    "traffic": {"ppo": 20_000.0, "a2c": 21_000.0, "dqn": 6_500.0},
    "datacenter": {"ppo": 28_000.0, "a2c": 60_000.0},
}
"""Steps of a compiled training per core-second, as seen with both threads of a core busy."""
OTHER_SPEEDS = {"ppo": 40_000.0, "a2c": 60_000.0, "dqn": 15_000.0}
"""A guess at those of other compiled environments."""
HOST_SPEED = 1_000.0
"""The same for environments that cannot be compiled."""
HOST_TEST = 4.0
"""Seconds for one test episode of these."""
STARTING = 2.0
"""Seconds for compiling, and for testing in compiled environments."""


def seconds_of(cells: Sequence[Cell], missing: Sequence[Cell], root: Path) -> float:
    """About how many core-seconds the missing cells will take, by those that were done and by rules of thumb."""
    known: dict[str, list[float]] = {}
    for cell in cells:
        file = cell.folder(root) / "timing.json" if cell.learns else None
        if file is not None and file.exists():
            known.setdefault(cell.kind, []).append(seconds_in(file))
    total = 0.0
    for cell in missing:
        if cell.kind in known:
            total += float(np.mean(known[cell.kind]))
            continue
        asked = cell.request
        total += STARTING
        if isinstance(asked, Request):
            assert asked.env is not None
            pure = _is_pure(asked.env, {**asked.arguments, **asked.training})
            speeds = SPEEDS.get(asked.name, OTHER_SPEEDS)
            total += cell.steps / (speeds[asked.algo] if pure else HOST_SPEED)
        for test in cell.tests:
            if not _is_pure(str(asked.env), {**asked.arguments, **test["arguments"]}):
                total += HOST_TEST * test["episodes"]
    return total


def seconds_in(file: Path) -> float:
    """How long a cell took, as it was kept."""
    content = read_json(file)
    seconds = content.get("seconds") if isinstance(content, dict) else None
    if not isinstance(seconds, int | float) or isinstance(seconds, bool) or not 0 <= seconds < 1e12:
        raise InputError(f"{file} is damaged: it should say how many seconds a cell took. Remove it to go on.")
    return float(seconds)


def _is_pure(env: str, arguments: Mapping[str, Any]) -> bool:
    return _known_pure(env, json.dumps(dict(arguments), sort_keys=True))


@cache
def _known_pure(env: str, arguments: str) -> bool:
    from evenhand.envs import resolve
    from evenhand.envs.core import PureEnv

    return isinstance(resolve(env, json.loads(arguments)), PureEnv)


# Results


@dataclass(frozen=True)
class Results:
    """What an experiment has come to so far."""

    experiment: Experiment
    objectives: tuple[str, ...]
    evaluations: Mapping[str, Mapping[str, tuple[Evaluation, ...]]]
    """By test (and `TRAINING`) and method, one for each seed that is complete."""
    runs: Mapping[str, tuple[Run, ...]]
    """By learner, one for each seed that is complete."""

    def returns(self, test: Test) -> dict[str, np.ndarray]:
        """`[seeds, D]` for each method: what each user got on average over the episodes of a seed."""
        return {
            method: np.stack([played.returns(test.measure) for played in tests])  # type: ignore[arg-type]
            for method, tests in self.evaluations[test.name].items()
        }


def gather(experiment: Experiment, cells: Sequence[Cell], root: Path) -> Results:
    """The results of the cells that are complete."""
    cells = [cell for cell in cells if cell.experiment == experiment.key and cell.complete(root)]
    if not cells:
        raise InputError(f"nothing of {experiment.title} is done yet.")
    runs: dict[str, list[Run]] = {}
    found: dict[str, dict[str, list[Evaluation]]] = {}
    for cell in cells:
        files = dict(zip((hashed(test) for test in cell.tests), cell.results(root), strict=True))
        wanted = [(test.name, hashed(_played(test))) for test in experiment.tests]
        if not cell.learns:
            wanted.append((TRAINING, hashed(cell.tests[-1])))
        for name, address in wanted:
            found.setdefault(name, {}).setdefault(cell.method, []).append(read_evaluation(files[address]))
        if cell.learns:
            runs.setdefault(cell.method, []).append(cell.run(root))
    some = next(iter(found[experiment.tests[0].name].values()))[0]
    for played in (played for by in found.values() for tests in by.values() for played in tests):
        if played.objectives != some.objectives:
            raise InputError(f"the results in {root} are damaged: they are of different users.")
    return Results(
        experiment,
        some.objectives,
        {name: {method: tuple(tests) for method, tests in by.items()} for name, by in found.items()},
        {method: tuple(of_method) for method, of_method in runs.items()},
    )
