"""A study's cells, each a pure function of its configuration, done once and kept by what it is.

A cell is one method (an algorithm with a welfare, or a simple policy) on one environment with one seed. Its results lie
in a folder whose name is a hash of its configuration, so that a study that is run again, interrupted or extended does
only what is missing, and two studies that ask for the same share it:

STUDY/
  cells/species-ppo-ggf-3f9a…/       a run folder with one seed, and its tests in evaluations/
  simple/species-random-81c2….json   test episodes of a policy that needs no learning

JAX is imported where it is used: showing a plan should not wait for it longer than it must.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evenhand.agents.algorithm import algorithm
from evenhand.disk import as_json, make_folder, write_atomically
from evenhand.envs import resolve
from evenhand.envs.registry import domain_of
from evenhand.errors import InputError, Say
from evenhand.runs.folder import RunFolder, safe_name
from evenhand.runs.pool import Perform, Report, Stop
from evenhand.runs.request import Request, checked_request
from evenhand.runs.run import Run
from evenhand.runs.trainer import PATIENCE, loop_of, train_seed
from evenhand.studies.experiment import Experiment, Test


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


@dataclass(frozen=True, kw_only=True)
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

    @property
    def revisions(self) -> dict[str, int]:
        """By which revisions of the algorithm and the environment it is done, but for first ones."""
        request, domain = self.request, domain_of(self.request.env)
        known = {} if domain is None else {"environment": domain.revision}
        known |= {"algorithm": algorithm(request.algo).REVISION} if isinstance(request, Request) else {}
        return {of: revision for of, revision in known.items() if revision > 1}

    def folder(self, root: Path, revisions: Mapping[str, int] | None = None) -> Path:
        """Where its run lies. revisions: in place of those of today."""
        request = self.request
        assert isinstance(request, Request)
        name = safe_name(f"{request.name}-{request.algo}-{request.welfare}")
        return root / "cells" / f"{name}-{hashed(self._key(request.to_json(), revisions))}"

    def results(self, root: Path, revisions: Mapping[str, int] | None = None) -> list[Path]:
        """The files of its tests, in their order."""
        request = self.request
        if isinstance(request, Request):
            folder = self.folder(root, revisions)
            return [folder / "evaluations" / f"test-{hashed(test)}.json" for test in self.tests]
        name = safe_name(f"{request.name}-{request.policy}")
        keys = ({**request.to_json(), "seed": self.seed, "test": dict(test)} for test in self.tests)
        return [root / "simple" / f"{name}-{hashed(self._key(key, revisions))}.json" for key in keys]

    def _key(self, content: Mapping[str, Any], revisions: Mapping[str, int] | None) -> dict[str, Any]:
        """What names its folder: what was asked, and by which revision it is done."""
        revisions = self.revisions if revisions is None else revisions
        return {**content, "revisions": dict(revisions)} if revisions else dict(content)

    def superseded(self, root: Path) -> bool:
        """Whether an earlier revision has done it: that is kept, but its numbers are not those of today."""
        earlier = itertools.product(*([(of, n) for n in range(1, now + 1)] for of, now in self.revisions.items()))
        others = [{of: n for of, n in some if n > 1} for some in earlier]
        return any(all(map(Path.exists, self.results(root, some))) for some in others if some != self.revisions)

    def run(self, root: Path) -> Run:
        """That of a learner, begun if it is not there; what it is to import was asked for here, and not by a file."""
        request, path = self.request, self.folder(root)
        assert isinstance(request, Request)
        folder = RunFolder.open(path) if (path / "run.json").exists() else RunFolder.create(path, request)
        if folder.request != request:
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
    from evenhand.evaluation.policy import as_policy

    if len(set(experiment.methods)) < len(experiment.methods):
        raise InputError(f"two methods of {experiment.title} have the same name: {', '.join(experiment.methods)}.")
    # Tests that differ in the measure only are one.
    tests = tuple({hashed(played): played for played in map(played_in, experiment.tests)}.values())
    found = []
    training: dict[str, Any] = dict(experiment.training)
    for learner in experiment.learners:
        request = checked_request(
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
        ).request
        training = dict(request.training)
        found += [
            Cell(
                experiment=experiment.key,
                method=learner.name,
                seed=seed,
                request=replace(request, seeds=(seed,)),
                tests=tests,
            )
            for seed in experiment.seeds
        ]
    for test in tests:
        resolve(experiment.env, {**experiment.arguments, **test["arguments"]})
    # Learning curves are drawn beside what simple policies get in the same, perhaps shorter, episodes.
    as_trained = {"episodes": max(test["episodes"] for test in tests), "arguments": training}
    env = resolve(experiment.env, experiment.arguments)
    for simple in experiment.simple:
        as_policy(env, simple.policy)
        game = Game(experiment.env, experiment.env, dict(experiment.arguments), simple.policy)
        others = tuple(test for test in tests if test != as_trained)
        found += [
            Cell(experiment=experiment.key, method=simple.name, seed=seed, request=game, tests=(*others, as_trained))
            for seed in experiment.seeds
        ]
    return found


def played_in(test: Test) -> dict[str, Any]:
    """What of a test decides about its episodes."""
    return {"episodes": test.episodes, "arguments": dict(test.arguments)}


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
    from evenhand.evaluation.playing import evaluate_policy

    def tell(content: Mapping[str, Any]) -> None:
        trained = {"phase": "trained"} if content["phase"] == "done" else {}  # its tests are still to come
        report({**content, **trained, "cell": cell})

    def play(policy: Any, test: Mapping[str, Any], gamma: float = 0.99) -> dict[str, Any]:
        tell({"phase": "testing", "step": cell.steps})
        arguments = {**request.arguments, **test["arguments"]}
        return evaluate_policy(request.env, policy, test["episodes"], gamma, cell.seed, arguments, say=say).record()

    began = time.perf_counter()
    missing = [(test, file) for test, file in zip(cell.tests, cell.results(root), strict=True) if not file.exists()]
    request = cell.request
    if isinstance(request, Game):
        for test, file in missing:
            make_folder(file.parent)
            write_atomically(file, as_json(play(request.policy, test)))
        return True
    run = cell.run(root)
    run.folder.echo = say
    fresh, state = not run.folder.progress(cell.seed).step, None
    if not run.folder.finished(cell.seed):
        run.folder.record_versions()
        compiled = {} if compiled is None else compiled
        if cell.kind not in compiled:
            compiled[cell.kind] = loop_of(run)
        state = train_seed(run, cell.seed, compiled[cell.kind], checkpoint_seconds, tell, stop)
        if state is None:
            return False
    with run.folder.locked(cell.seed, PATIENCE):
        policy = None
        for test, file in missing:
            if stop():
                return False
            policy = policy or (run.policy(cell.seed) if state is None else run.policy_of(cell.seed, state.agent))
            run.folder.write_json(file, play(policy, test, run.task.config.gamma))
    if fresh:  # for the estimates of later studies; results hold nothing that depends on the machine
        run.folder.write_json(run.path / "timing.json", {"seconds": time.perf_counter() - began})
    return True


def missing_of(cells: Iterable[Cell], root: Path) -> list[Cell]:
    """What is left to do, each configuration once."""
    found: dict[tuple[Path, ...], Cell] = {}
    for cell in cells:
        if not cell.complete(root):
            found.setdefault(tuple(cell.results(root)), cell)
    return list(found.values())
