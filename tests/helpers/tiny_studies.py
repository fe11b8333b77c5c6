"""A study that is as small as can be, and one that is long enough to be killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from calls import PROGRAM
from evenhand.studies.cells import Cell, do
from evenhand.studies.experiment import FIRST_SEED, Experiment, Learner, Simple, Test
from kills import learnt

SMALL = {"envs": 4, "rollout": 16, "hidden": [8]}
TESTS = (
    Test(name="long", measure="average", episodes=2, arguments={"episode_steps": 20}),
    Test(name="soon", measure="discounted", episodes=2, arguments={"episode_steps": 20}),
)
TINY = Experiment(
    key="tiny",
    title="Tiny",
    env="species",
    learners=(
        Learner(name="A2C", algo="a2c", welfare="utilitarian", settings=SMALL, steps=640),
        Learner(name="GGF-A2C", algo="a2c", welfare="ggf", settings=SMALL, steps=640),
    ),
    simple=(Simple(name="random", policy="random"), Simple(name="enforce", policy=2)),
    tests=TESTS,
    seeds=(FIRST_SEED, FIRST_SEED + 1),
    arguments={"response": "strong"},
)


class Here:
    """Does cells in this process: what an executor has to do, and nothing else."""

    def __init__(self) -> None:
        self.done: list[Cell] = []

    processes = 1

    def map(self, cells: Any, root: Path, report: Any, say: Any) -> tuple[list[tuple[Cell, str]], bool]:
        compiled: dict[str, Any] = {}
        for cell in cells:
            assert do(cell, root, 30.0, say, report, lambda: False, compiled)
            self.done.append(cell)
        return [], False


def ignore(_: Any) -> None:
    """For reports."""


def study(folder: Path) -> list[Any]:
    """What `make soak` kills."""
    words = ["study", "datacenter", "--algos", "a2c", "--env", "episode_steps=20", "--steps", "6400"]
    words += ["--seeds", "2", "--episodes", "2", "--jobs", "2", "--checkpoint-seconds", "0"]
    return [*PROGRAM, *words, "--set", "envs=4", "rollout=16", "hidden=[8]", "-o", folder]


def found(folder: Path) -> dict[str, Any]:
    """The numbers of a study, and its record without what tells of machines."""
    record = json.loads((folder / "results.json").read_text())
    return learnt(folder) | {"settings": record["settings"], "claims": record["claims"]}
