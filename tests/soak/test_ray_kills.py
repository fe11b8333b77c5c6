"""Machines of a Ray cluster are killed: what was saved is not lost, and others go on."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from calls import PROGRAM
from evenhand.envs import resolve
from evenhand.studies.cells import cells_of
from evenhand.studies.executor import carry_out
from evenhand.studies.experiment import Learner
from evenhand.studies.ray_cluster import OnMachines, OnRay
from processes import finished, running
from ray_fixtures import Machines, connection, kill_machine, machines, played, results, same, second, settings, works_on
from tiny_studies import SMALL, TINY, Here, ignore

__all__ = ["connection", "machines", "second", "settings"]


def test_a_machine_that_is_killed_costs_only_what_came_after_its_last_checkpoint(second: int, tmp_path: Path) -> None:
    longer = dataclasses.replace(
        TINY,
        learners=(Learner(name="A2C", algo="a2c", welfare="ggf", settings=SMALL | {"envs": 2}, steps=64_000),),
        simple=(),
    )
    cells, here, there = cells_of(longer), tmp_path / "here", tmp_path / "there"
    carry_out(cells, here, Here(), ignore, ignore)
    began: dict[int, list[int]] = {}
    killed = False

    def watch(content: dict[str, Any]) -> None:
        nonlocal killed
        if content["phase"] == "compiling":
            began.setdefault(content["cell"].seed, []).append(content["step"])
        seed = content["cell"].folder(there) / f"seed-{content['cell'].seed}"
        if not killed and list(seed.glob("checkpoints/step-*")) and works_on(second, seed):
            killed = True
            kill_machine(second)

    assert carry_out(cells, there, OnRay(0.0), watch, ignore) == []
    assert killed
    kept, lost = sorted(began.values(), key=len)
    assert kept == [0]
    assert (len(lost), lost[0]) == (2, 0)
    assert lost[1] > 0  # from a checkpoint, and not from the start
    assert results(cells, there) == results(cells, here)


def test_environments_that_are_lost_with_a_machine_are_made_anew_elsewhere(second: int) -> None:
    env = resolve("CartPole-v1")
    here, _ = played(env, None)
    there, said = played(env, OnMachines, lambda: kill_machine(second))
    assert same(here[:31], there[:31])
    assert len(said) == 1
    assert "its episodes are cut off, and it is started anew" in said[0]
    (lost,) = (answer for answer in there[1:] if {"lost": "its worker process ended"} in answer.info)
    cut = lost.truncated & ~lost.terminated
    assert cut.sum() >= 2
    assert not lost.reward[cut & (lost.reward[:, 0] == 0)].any()


def test_a_machine_that_is_dead_but_not_missed_yet_is_no_reason_to_refuse(
    machines: Machines, second: int, tmp_path: Path
) -> None:
    kill_machine(second)
    words = ["train", "CartPole-v1", "--steps", "64", "--seeds", "1", "--episodes", "0", "-o", str(tmp_path / "run")]
    words += ["--set", "envs=2", "rollout=8", "minibatches=1", "--executor", "ray", "--address", machines.address]
    with running([*PROGRAM, *words]) as process:
        finished(process)
