"""Killed at random moments and resumed, over and over: not a bit of what was learnt may differ."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from budget import lots, share_of
from kills import at_random, killed_on_the_way, learnt, resuming, training
from processes import finished, running
from tiny_studies import found, study

AT_A_TIME = 6
"""How often one run is killed before it may come to its end."""


def killed_at_random(
    name: str, kills: int, folder: Path, start: Callable[[Path], list[Any]], resume: Any, result: Callable[[Path], Any]
) -> None:
    """Kill runs until there were enough kills, some of which may have come too late."""
    luck, done, runs = lots(name), 0, 0
    with running(start(folder / "undisturbed")) as process:
        finished(process)
    expected = result(folder / "undisturbed")
    assert expected
    while done < kills:
        run = folder / f"killed-{runs}"
        moments = [at_random(luck) for _ in range(min(kills - done, AT_A_TIME))]
        done += killed_on_the_way(run, start(run), resume(run), moments)
        runs += 1
        assert result(run) == expected
    print(f"{name}: {done} kills of {runs} runs")


@pytest.mark.parametrize(("seeds", "jobs"), [(1, 1), (3, 2)])
@pytest.mark.parametrize("algo", ["ppo", "a2c", "dqn"])
def test_training(tmp_path: Path, algo: str, seeds: int, jobs: int) -> None:
    killed_at_random(
        f"{algo}, {seeds} seeds, {jobs} jobs",
        share_of(18),
        tmp_path,
        lambda run: training(run, algo, seeds=seeds, jobs=jobs),
        lambda run: resuming(run, jobs),
        learnt,
    )


def test_studies(tmp_path: Path) -> None:
    killed_at_random("a study", share_of(10), tmp_path, study, study, found)
