"""Cells know by which revision of an algorithm and an environment they were made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from evenhand import cli
from evenhand.agents import a2c
from evenhand.envs.optimum import reference_of
from evenhand.envs.registry import DOMAINS, domain_of, resolve
from evenhand.papers.common import fair
from evenhand.runs.request import method_name
from evenhand.studies.cells import Cell, cells_of, missing_of
from evenhand.studies.executor import carry_out
from evenhand.welfare import GGF
from small_requests import asked
from tiny_studies import TINY, Here, ignore

ONE = replace(TINY, seeds=TINY.seeds[:1], learners=TINY.learners[1:], simple=TINY.simple[:1])


def test_a_later_revision_does_not_take_old_results_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = cells_of(ONE)
    learnt, simple = ([cell for cell in cells if cell.learns is learns] for learns in (True, False))
    assert carry_out(cells, tmp_path, Here(), ignore, ignore) == []
    assert missing_of(cells, tmp_path) == []
    assert not any(cell.superseded(tmp_path) for cell in cells)

    monkeypatch.setattr(a2c, "REVISION", 2)
    assert missing_of(cells, tmp_path) == learnt
    assert all(cell.superseded(tmp_path) for cell in learnt)
    assert not any(cell.superseded(tmp_path) for cell in simple)
    assert carry_out(cells, tmp_path, Here(), ignore, ignore) == []
    assert len(list((tmp_path / "cells").iterdir())) == 2 * len(learnt)

    monkeypatch.setattr(a2c, "REVISION", 1)  # what was done before is still there
    assert missing_of(cells, tmp_path) == []


def test_cells_lie_where_they_did_before_there_were_revisions(tmp_path: Path) -> None:
    """A study of version 0.1 goes on: what was asked then has the same name now."""
    (learnt,) = (cell for cell in cells_of(ONE) if cell.learns)
    assert learnt.folder(tmp_path).name == "species-a2c-ggf-2-80bb3e42d95e"
    assert "network" not in learnt.request.to_json()["settings"]


def test_an_environments_revision_counts_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = cells_of(ONE)
    before = [cell.results(tmp_path) for cell in cells]
    monkeypatch.setitem(DOMAINS, "species", replace(DOMAINS["species"], revision=3))
    assert all(cell.results(tmp_path) != old for cell, old in zip(cells, before, strict=True))
    assert all(cell.results(tmp_path, {}) == old for cell, old in zip(cells, before, strict=True))


def test_the_plan_says_what_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["study", "species", "--env", "episode_steps=5", "--algos", "a2c", "--welfare", "ggf", "--seeds", "1"]
    words += ["--steps", "32", "--set", "envs=2", "rollout=4", "--episodes", "1", "-o", str(tmp_path), "--plan"]
    monkeypatch.setattr(a2c, "REVISION", 2)
    assert cli.main(words) == 0
    assert "earlier revisions" not in capsys.readouterr().out
    monkeypatch.setattr(Cell, "superseded", lambda cell, root: cell.learns)
    assert cli.main(words) == 0
    said = capsys.readouterr().out
    assert "1 cells that earlier revisions of their algorithm or environment did are done again" in said


@pytest.mark.parametrize(
    ("algo", "welfare", "name"),
    [
        ("ppo", "utilitarian", "PPO"),
        ("ppo", "ggf", "GGF-PPO"),
        ("a2c", "ggf:2", "GGF-A2C"),
        ("ppo", "ggf:10", "GGF10-PPO"),
        ("dqn", "nash", "NASH-DQN"),
        ("ppo", "alpha:2", "ALPHA2-PPO"),
        ("ppo", "own:power mean", "POWER MEAN-PPO"),
    ],
)
def test_a_method_has_one_name(algo: str, welfare: str, name: str) -> None:
    assert method_name(algo, welfare) == name


def test_it_is_called_the_same_in_runs_and_in_papers() -> None:
    assert asked(welfare="ggf:10").method == fair("ppo", 10) == "GGF10-PPO"


@pytest.mark.parametrize("name", ["species", "evenhand/species-v0"])
def test_an_environment_answers_for_its_optimum_by_any_of_its_names(name: str) -> None:
    assert "too short" in str(reference_of(resolve(name), GGF.geometric(2), "average", 0.99, [5]))
    assert domain_of(name) is DOMAINS["species"]
