"""Trainings and studies in processes of their own, which are killed and go on."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from processes import finished, kill_all, running

TRAIN = """
import sys, evenhand as eh
folder, algo, steps, seeds, jobs = sys.argv[1:]
small = {"hidden": [8]} | ({"learning_starts": 256, "memory": 2000} if algo == "dqn" else {"envs": 4, "rollout": 16})
eh.train("species", algo, "ggf", steps=int(steps), seeds=int(seeds), arguments={"response": "strong"}, settings=small,
    folder=folder, episodes=2, jobs=int(jobs), checkpoint_seconds=0)
"""
RESUME = "import sys, evenhand as eh; eh.resume(sys.argv[1], checkpoint_seconds=0, jobs=int(sys.argv[2]))"


def saved(folder: Path) -> set[Path]:
    """What a run or a study leaves behind when work was saved."""
    return {*folder.glob("seed-*/checkpoints/step-*"), *folder.glob("cells/*/seed-*/checkpoints/step-*")}


def training(folder: Path, algo: str = "a2c", steps: int = 25_600, seeds: int = 1, jobs: int = 1) -> list[Any]:
    """A command that saves as often as it can, which is a hundred times."""
    return [sys.executable, "-c", TRAIN, folder, algo, steps, seeds, jobs]


def resuming(folder: Path, jobs: int = 1) -> list[Any]:
    return [sys.executable, "-c", RESUME, folder, jobs]


def learnt(folder: Path) -> dict[str, bytes]:
    """All that a run, or each run of a study, has come to: final states, metrics and tests."""
    found = {}
    for pattern in ("**/evaluations/*", "simple/*", "**/seed-*/metrics.parquet"):
        found |= {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob(pattern)}
    for seed in folder.glob("**/seed-*/checkpoints"):
        found[str(seed.relative_to(folder))] = (sorted(seed.glob("step-*"))[-1] / "state.safetensors").read_bytes()
    return found


Kill = Callable[["subprocess.Popen[str]", Path], bool]
"""Kills a process that works in a folder, sooner or later; False where it was done before."""


def after(saves: int, seconds: float = 0.0, alone: bool = False) -> Kill:
    """After work was saved so many times, and a while; with all that it has started at once, or alone."""

    def kill(process: subprocess.Popen[str], folder: Path) -> bool:
        seen = before = saved(folder)
        while process.poll() is None and len(seen - before) < saves:
            seen = seen | saved(folder)
            time.sleep(0.002)
        time.sleep(seconds)
        if process.poll() is not None:
            return False
        process.kill() if alone else kill_all(process)
        process.communicate()
        return True

    return kill


def at_random(luck: random.Random) -> Kill:
    """At any moment of the start, or about when work is saved."""
    saves = luck.choice([0, 1, 2, 5, 10])
    return after(saves, luck.uniform(0, 0.05 if saves else 4), luck.random() < 0.3)


def killed_on_the_way(folder: Path, start: list[Any], resume: list[Any], kills: list[Kill]) -> int:
    """Start a command, kill it, resume it, and so on, and let it come to its end; how often it was killed."""
    count, command = 0, start
    for kill in kills:
        with running(command) as process:
            if not kill(process, folder):
                break
        count += 1
        command = resume if (folder / "run.json").exists() else start
    with running(command) as process:
        finished(process)
    return count
