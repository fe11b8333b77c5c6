"""The search for hyperparameters: what it tries, that it resumes to the same trials, and what it refuses."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from calls import program, refused
from evenhand.agents.algorithm import algorithm, names
from evenhand.errors import InputError
from evenhand.runs.hyperparameters import settings
from evenhand.studies.cells import Cell
from evenhand.studies.experiment import FIRST_SEED
from evenhand.studies.search import Search, Trial, best, carry_on, check, preset_text, suggestion
from tiny_studies import Here, ignore

TINY = Search("species", "a2c", "ggf", 640, seeds=1, episodes=1, arguments={"response": "strong", "episode_steps": 200})


def silent(_: int) -> Any:
    return ignore


@pytest.mark.parametrize("algo", names())
def test_all_that_is_tried_can_be_trained(algo: str) -> None:
    done = [Trial(0, {}, 0.0)]
    for number in range(1, 30):
        tried = suggestion(algo, done, number)
        assert set(tried) == set(algorithm(algo).SEARCH)
        settings(algo, "species", True, changes=tried)
        done.append(Trial(number, tried, -abs(tried["learning_rate"] - 1e-3)))
    late = [trial.settings["learning_rate"] for trial in done[20:]]
    early = [trial.settings["learning_rate"] for trial in done[1:11]]
    assert sum(abs(x - 1e-3) for x in late) < sum(abs(x - 1e-3) for x in early)  # it learns where the optimum lies


def test_what_is_tried_next_depends_on_what_was_tried_alone() -> None:
    done = [Trial(0, {}, 1.0), Trial(1, suggestion("ppo", [], 1), 2.0), Trial(2, suggestion("ppo", [], 2), None)]
    assert suggestion("ppo", done, 3) == suggestion("ppo", list(done), 3)
    assert suggestion("ppo", done, 3) != suggestion("ppo", done, 4)
    assert suggestion("ppo", done, 0) == {}  # the preset itself


class Interrupted(Here):
    """Stops after so many cells, as Ctrl-C would."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after = after

    def map(self, cells: Any, root: Path, report: Any, say: Any) -> tuple[list[tuple[Cell, str]], bool]:
        if len(self.done) == self.after:
            return [], True
        return super().map(cells, root, report, say)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[Trial]:
    """The trials of a tiny search, done in this process."""
    told: list[Trial] = []
    trials = carry_on(TINY, tmp_path_factory.mktemp("whole"), 2, Here(), silent, ignore, told.append)
    assert trials == told
    return trials


def test_a_search_that_was_stopped_ends_with_the_same_trials(tmp_path: Path, whole: list[Trial]) -> None:
    assert [trial.number for trial in whole] == [0, 1]
    assert whole[0].settings == {}
    assert whole[0].score != whole[1].score
    with pytest.raises(KeyboardInterrupt):
        carry_on(TINY, tmp_path, 2, Interrupted(1), silent, ignore, ignore)
    assert len(check(TINY, tmp_path)) == 1
    again = Here()
    assert carry_on(TINY, tmp_path, 2, again, silent, ignore, ignore) == whole
    assert [cell.seed for cell in again.done] == [0]  # one cell was left, with a seed below those of studies
    assert json.loads((tmp_path / "trials.json").read_text())[1]["settings"] == whole[1].settings
    with pytest.raises(InputError, match="a search for something else"):
        check(dataclasses.replace(TINY, welfare="nash"), tmp_path)


def test_the_best_trial_says_where_it_comes_from() -> None:
    done = [Trial(0, {}, 0.25), Trial(1, {"learning_rate": 1e-3, "rollout": 64}, 0.5), Trial(2, {}, None, "diverged")]
    assert best(done).number == 1
    text = preset_text(TINY, done, "evenhand tune species --algo a2c")
    assert "# From evenhand tune species --algo a2c:" in text
    assert "3 trials with 1 seeds each" in text
    assert tomllib.loads(text) == {"species": {"a2c": {"learning_rate": 0.001, "rollout": 64}}}
    with pytest.raises(InputError, match="diverged"):
        best(done[2:])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("tune species --trials 0", "--trials must be at least 1"),
        ("tune species --algo sarsa", "there is no algorithm 'sarsa'"),
        ("tune species --measure best", "there is no measure 'best'"),
        (f"tune species --seeds {FIRST_SEED + 1}", "those that studies leave to it"),
        ("tune nowhere-v0", "no environment is called 'nowhere-v0'"),
    ],
)
def test_bad_input_gets_one_sentence_and_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(program(*words.split()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_program_searches(tmp_path: Path, whole: list[Trial]) -> None:
    """The same search in processes of its own: the same trials."""
    words = ["tune", "species", "--algo", "a2c", "--env", "response=strong", "episode_steps=200", "--steps", 640]
    words += ["--measure", "average", "--seeds", 1, "--episodes", 1, "--jobs", 1, "-o", tmp_path / "search"]
    answer = program(*words, "--trials", 2)
    assert answer.code == 0, answer.err
    assert "2 trials × 1 seeds, 0 trials done already" in answer.out
    assert check(TINY, tmp_path / "search") == whole
    assert "[species.a2c]" in (tmp_path / "search" / "best.toml").read_text()
    answer = program(*words, "--trials", 2)
    assert (answer.code, "2 trials done already" in answer.out) == (0, True)
