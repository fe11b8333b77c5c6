"""Studies: cells by what they are, only what is missing is done, and kills change nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calls import PROGRAM, program, refused
from evenhand.errors import InputError
from evenhand.evaluation.playing import TEST_SEED, evaluate_policy
from evenhand.evaluation.result import Evaluation
from evenhand.papers import PLANS, SCALES, plan
from evenhand.runs.folder import RunFolder, locked
from evenhand.studies.cells import Cell, cells_of, hashed, missing_of
from evenhand.studies.cost import seconds_of
from evenhand.studies.executor import Executor, ThisMachine, carry_out
from evenhand.studies.experiment import FIRST_SEED, Learner, Simple, Test
from evenhand.studies.results import gather, settings_of, verdicts
from kills import after, learnt, saved
from processes import running, until
from tiny_studies import SMALL, TESTS, TINY, Here, ignore

HELPERS = Path(__file__).parents[1] / "helpers"
WORDS = ["--algos", "a2c", "--env", "response=strong", "--set", "envs=4", "rollout=16", "hidden=[8]"]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Cell]]:
    """A tiny study, done in this process."""
    root, cells = tmp_path_factory.mktemp("study"), cells_of(TINY)
    assert carry_out(cells, root, Here(), ignore, ignore) == []
    return root, cells


# Cells


def test_a_cell_is_known_by_what_it_is() -> None:
    cells = cells_of(TINY)
    assert len(cells) == 8
    assert len({path for cell in cells for path in cell.results(Path())}) == 4 * 1 + 4 * 2
    assert cells == cells_of(TINY)
    assert cells[4].results(Path())[0] == Path("simple/species-random-337a3243688a.json")  # also in later versions
    again = cells_of(dataclasses.replace(TINY, key="other", title="Other", seeds=(FIRST_SEED, 7)))
    assert [a.results(Path()) == b.results(Path()) for a, b in zip(cells, again, strict=True)] == [True, False] * 4
    changed = dataclasses.replace(TINY.learners[0], settings=SMALL | {"entropy": 0.5})
    others = cells_of(dataclasses.replace(TINY, learners=(changed,)))
    assert others[0].folder(Path()) != cells[0].folder(Path())


def test_the_order_of_a_configuration_does_not_matter() -> None:
    assert hashed({"a": 1, "b": {"c": 2, "d": 3}}) == hashed({"b": {"d": 3, "c": 2}, "a": 1})
    assert hashed({"a": 1}) != hashed({"a": 2})


def test_a_study_leaves_results(done: tuple[Path, list[Cell]]) -> None:
    root, cells = done
    results = gather(TINY, cells, root)
    assert results.objectives == ("otters", "abalone")
    for test in TINY.tests:
        returns = results.returns(test)
        assert list(returns) == ["A2C", "GGF-A2C", "random", "enforce"]
        assert all(z.shape == (2, 2) for z in returns.values())
    assert not np.array_equal(results.returns(TESTS[0])["A2C"], results.returns(TESTS[1])["A2C"])
    settings = settings_of(dataclasses.replace(plan("species"), experiments=(TINY,)), [results])
    assert [setting.key for setting in settings] == ["tiny/long", "tiny/soon"]


def test_results_are_those_of_evaluate(done: tuple[Path, list[Cell]]) -> None:
    """A simple policy's test is what anyone gets by the same settings and seed."""
    root, cells = done
    (cell,) = (cell for cell in cells if cell.method == "random" and cell.seed == FIRST_SEED)
    record = json.loads(cell.results(root)[0].read_text())
    again = evaluate_policy(
        "species", "random", 2, seed=FIRST_SEED, arguments={"response": "strong", "episode_steps": 20}
    )
    np.testing.assert_array_equal(Evaluation.from_record(record).total, again.total)


def test_no_seed_is_used_twice() -> None:
    """Seeds of searches are below those of studies, and test episodes have seeds of their own."""
    for domain, scale in ((domain, scale) for domain in PLANS for scale in SCALES):
        for experiment in plan(domain, scale).experiments:
            assert min(experiment.seeds) >= FIRST_SEED
            assert max(experiment.seeds) < TEST_SEED


def test_a_second_time_nothing_is_done(done: tuple[Path, list[Cell]]) -> None:
    root, cells = done
    executor = Here()
    assert missing_of(cells, root) == []
    carry_out(cells, root, executor, ignore, ignore)
    assert executor.done == []


def test_only_what_is_new_is_done(done: tuple[Path, list[Cell]], tmp_path: Path) -> None:
    root, _ = done
    more = dataclasses.replace(TINY, seeds=(FIRST_SEED, FIRST_SEED + 1, FIRST_SEED + 2))
    missing = missing_of(cells_of(more), root)
    assert {cell.seed for cell in missing} == {FIRST_SEED + 2}
    assert len(missing) == 4
    longer = dataclasses.replace(TINY, tests=(dataclasses.replace(TESTS[0], episodes=3),))
    cells = [cell for cell in missing_of(cells_of(longer), root) if cell.learns]
    assert len(cells) == 4  # to be tested anew, but not trained
    before = {path: path.stat().st_mtime_ns for path in root.glob("cells/*/seed-*/checkpoints/*/*")}
    carry_out(cells[:1], root, Here(), ignore, ignore)
    assert {path: path.stat().st_mtime_ns for path in root.glob("cells/*/seed-*/checkpoints/*/*")} == before


def test_two_at_once_are_refused(done: tuple[Path, list[Cell]]) -> None:
    root, cells = done
    with locked(root), pytest.raises(InputError, match="wait for it to end"):
        carry_out(cells, root, Here(), ignore, ignore)


IN_ITS_OWN_PROCESS = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from evenhand.studies.cells import cells_of
from evenhand.studies.executor import ThisMachine, carry_out
from tiny_studies import TINY, ignore
carry_out(cells_of(TINY), Path(sys.argv[1]), ThisMachine(2, 0.0), ignore, ignore)
"""


def session(leader: int) -> set[int]:
    """The processes of a session that still run."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            state, _, _, sid = path.read_text().rpartition(")")[2].split()[:4]
            if int(sid) == leader and state != "Z":
                found.add(int(path.parent.name))
    return found


def test_executors_are_interchangeable_and_kills_change_nothing(done: tuple[Path, list[Cell]], tmp_path: Path) -> None:
    """Spawned processes give the same bits as this one, also when they go on with what others were killed at.

    `make soak` kills the program ten times, at random moments.
    """
    assert isinstance(ThisMachine(), Executor)
    assert isinstance(Here(), Executor)
    root, cells = done
    with running([sys.executable, "-c", IN_ITS_OWN_PROCESS, tmp_path, HELPERS]) as process:
        assert after(saves=1, alone=True)(process, tmp_path)
        until(lambda: not session(process.pid))  # nobody goes on without it
    left, seen = missing_of(cells, tmp_path), list[Any]()
    assert left
    assert carry_out(cells, tmp_path, ThisMachine(2), seen.append, ignore) == []
    finished = [content["cell"].name for content in seen if content["phase"] == "done"]
    assert sorted(finished) == sorted(cell.name for cell in left)
    assert missing_of(cells, tmp_path) == []
    for here, there in ((cell.results(root), cell.results(tmp_path)) for cell in cells):
        assert [path.read_bytes() for path in here] == [path.read_bytes() for path in there]
    assert learnt(tmp_path).items() <= learnt(root).items()  # there may be more tests
    assert seconds_of(cells, cells, tmp_path) > 0


def test_a_cell_that_fails_is_named_and_the_others_are_done(tmp_path: Path) -> None:
    cells = [cell for cell in cells_of(TINY) if not cell.learns][:2]
    broken = dataclasses.replace(cells[0], request=dataclasses.replace(cells[0].request, policy="nobody"))
    failures = carry_out([broken, cells[1]], tmp_path, ThisMachine(1), ignore, ignore)
    assert [(cell.name, "'nobody' is no policy" in why.said) for cell, why in failures] == [(broken.name, True)]
    assert cells[1].complete(tmp_path)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"learners": (Learner(name="X", algo="a2c"), Learner(name="X", algo="ppo"))}, "the same name"),
        ({"learners": (Learner(name="X", algo="sarsa"),)}, "there is no algorithm 'sarsa'"),
        ({"simple": (Simple(name="X", policy="nobody"),)}, "'nobody' is no policy"),
        (
            {"tests": (Test(name="t", measure="average", episodes=1, arguments={"years": 3}),)},
            "has no argument 'years'",
        ),
    ],
)
def test_everything_is_checked_before_any_work(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        cells_of(dataclasses.replace(TINY, **change))


# The paper's plans


@pytest.mark.parametrize("domain", PLANS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_plan_can_be_carried_out(domain: str, scale: str) -> None:
    """All cells can be made, and every claim is about methods and tests that there are."""
    study = plan(domain, scale)
    for experiment in study.experiments:
        assert len(cells_of(experiment)) == len(experiment.seeds) * len(experiment.methods)
    there = {
        f"{e.key}/{test.name}": {name: np.ones((5, 2)) for name in e.methods}
        for e in study.experiments
        for test in e.tests
    }
    for claim, by in zip(study.claims, verdicts(study.claims, there), strict=True):
        for judged in by.values():
            assert not any("not part of this study" in finding.text for finding in judged.findings), claim.text
    seeds = {"quick": (4, 10), "paper": (20, 50)}[scale]
    assert all(seeds[0] <= len(e.seeds) <= seeds[1] for e in study.experiments)


def test_plans_take_other_seeds_steps_and_presets() -> None:
    small = plan("traffic", "quick", seeds=2, steps=5000, preset="paper")
    for experiment in small.experiments:
        assert experiment.seeds == (FIRST_SEED, FIRST_SEED + 1)
        assert {learner.steps for learner in experiment.learners} == {5000}
        assert experiment.preset == "paper"
    far = [x for x in small.experiments[0].learners if x.settings]
    assert [dict(x.settings) for x in far] == [{"gamma": 0.99999}] * 2


# The program


def test_the_plan_is_shown_and_nothing_done(tmp_path: Path) -> None:
    answer = program("study", "species", *WORDS, "--steps", 640, "--seeds", 3, "-o", tmp_path / "new", "--plan")
    assert answer.code == 0
    assert "A2C, GGF-A2C; 3 seeds; 640 steps each" in answer.out
    assert "24 cells (6 to train), 0 done already" in answer.out
    assert "about " in answer.out
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("study species --seeds 0", "--seeds must be at least 1"),
        ("study species --algos ppo,sarsa", "there is no algorithm 'sarsa'"),
        ("study species --welfare nobody", "nobody"),
        ("study species --measure best", "there is no measure 'best'"),
        ("study species --set dqn.clip=1", "there is no algorithm of this study 'dqn'"),
        ("study nowhere-v0", "no environment is called 'nowhere-v0'"),
        ("study species --checkpoint-seconds -1", "--checkpoint-seconds must not be negative"),
        ("reproduce weather", "there is no part of the paper 'weather'"),
        ("reproduce species --scale huge", "there is no scale 'huge'"),
        ("reproduce species --jobs 0", "--jobs must be at least 1"),
    ],
)
def test_bad_input_gets_one_sentence_and_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(program(*words.split()))
    assert list(tmp_path.iterdir()) == []


OWN = '''
import gymnasium, numpy as np
from gymnasium import spaces

class Share(gymnasium.Env):
    """Ten pieces of cake, each for one of two people."""
    reward_dim, objectives = 2, ("ann", "bob")
    observation_space, action_space = spaces.Box(0, 1, (1,)), spaces.Discrete(2)
    reward_space = spaces.Box(0, 2, (2,))
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left = 10
        return np.ones(1, np.float32), {}
    def step(self, action):
        self.left -= 1
        reward = np.array([2.0, 0.0] if action == 0 else [0.0, 1.0])
        return np.full(1, self.left / 10, np.float32), reward, self.left == 0, False, {}

gymnasium.register("Share-v0", Share)
'''


@pytest.mark.slow
def test_an_environment_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["study", "own:Share-v0", "--algos", "a2c", "--seeds", 2, "--steps", 640, "--episodes", 3]
    ran = program(*words, "--set", "envs=4", "rollout=16", "hidden=[8]", "-o", "out", "--jobs", 1)
    assert ran.code == 0, ran.err
    assert "Each fair algorithm has a lower CV than its base" in ran.out
    record = json.loads((tmp_path / "out" / "results.json").read_text())
    (setting,) = record["settings"].values()
    assert setting["measure"] == "return"  # episodes end by themselves
    assert setting["objectives"] == ["ann", "bob"]
    assert record["command"].startswith("evenhand study own:Share-v0 --algos a2c --seeds 2 --steps 640")
    page = (tmp_path / "out" / "index.html").read_text()
    assert str(tmp_path) not in page
    assert (tmp_path / "out" / "figures" / "own-Share-v0-test-lorenz.pdf").exists()


# Kills and Ctrl-C


@pytest.mark.slow
def test_ctrl_c_stops_it_at_a_checkpoint_and_the_same_command_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    words = ["study", "species", *WORDS, "--seeds", "1", "--episodes", "2", "--checkpoint-seconds", "0", "-o", folder]
    words += ["--steps", "640000", "--jobs", "1"]
    with running([*PROGRAM, *words], stderr=subprocess.STDOUT) as process:
        until(lambda: saved(folder), process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert process.returncode == 130, out
    assert "the same command goes on" in out
    assert not (folder / "results.json").exists()
    (cell, *_) = folder.glob("cells/*")
    assert 0 < RunFolder.open(cell).progress(FIRST_SEED).step < 640_000
    assert "8 cells (2 to train), 0 done already" in program(*words, "--plan").out
