"""Traffic lights in parallel: a process for each simulation, workers that are killed, judging, and the program."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import evenhand as eh
from evenhand import cli
from evenhand.cli.cycle import best_cycle, cycles
from evenhand.envs import resolve
from evenhand.envs.gym.host_env import HostEnv
from evenhand.envs.gym.stepper import Seeds
from evenhand.envs.gym.vector import VectorEnv
from evenhand.envs.traffic import PHASES, FixedCycle, TrafficEnv, calibration
from evenhand.errors import InputError
from evenhand.evaluation.policy import baselines
from evenhand.training.host_loop import HostLoop

SHORT = {"episode_seconds": 140}


@pytest.fixture(scope="module", autouse=True)
def wide() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "100")
        yield


@pytest.fixture(scope="module")
def env() -> HostEnv:
    return resolve("traffic", SHORT)


def kill(environments: VectorEnv, number: int) -> None:
    """Kill the process of one environment, and wait until it is dead."""
    process = environments._stepping._workers[number].remote.process  # type: ignore[attr-defined]
    os.kill(process.pid, signal.SIGKILL)
    process.join(30)
    assert not process.is_alive()


@pytest.fixture(scope="module")
def run(wide: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has learnt next to nothing, and one of whose simulations was killed on the way."""
    folder = tmp_path_factory.mktemp("runs") / "fair"
    advance, calls = HostLoop.advance, []

    def advance_and_kill(loop: HostLoop, *arguments: Any) -> Any:
        calls.append(loop)
        if len(calls) == 2:
            assert loop._envs is not None
            kill(loop._envs, 1)
        return advance(loop, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostLoop, "advance", advance_and_kill)
        eh.train(
            "traffic",
            algo="a2c",
            steps=96,
            arguments=SHORT,
            settings={"envs": 2, "rollout": 16},
            folder=folder,
            episodes=2,
            progress=False,
        )
    assert len(calls) == 3
    return folder


class TestProcesses:
    def test_each_environment_has_one_of_its_own_and_may_lose_it(self, env: HostEnv) -> None:
        """Unasked, with the same numbers as in this process; one that is killed is reported and begun anew."""
        assert env.one_per_process
        said: list[str] = []
        with VectorEnv(env, 2, 7, warn=said.append) as together:
            workers = together._stepping._workers  # type: ignore[attr-defined]
            assert len({worker.remote.process.pid for worker in workers} - {os.getpid()}) == 2
            seen = [together.reset()]
            for actions in ([0, 1], [3, 1], [3, 3]):
                step = together.step(actions)
                seen += [step.observation, step.reward]
            assert said == []
            kill(together, 1)
            step = together.step([2, 2])
            np.testing.assert_array_equal(step.truncated, [False, True])
            np.testing.assert_array_equal(step.final_observation[1], seen[-2][1])
            assert step.info == [{"lost": "its worker process ended"}]
            after = together.step([3, 3])
            assert not after.truncated.any()
            assert (after.reward < 0).all()
        assert len(said) == 1
        assert "the worker process of environment 1 of traffic ended (signal SIGKILL)" in said[0]
        alone = TrafficEnv(**SHORT)
        expected = [alone.reset(seed=Seeds(7, 1, 0).draw()[0])[0]]
        for action in (1, 1, 3):
            expected += alone.step(action)[:2]
        alone.close()
        for there, here in zip(seen, expected, strict=True):
            np.testing.assert_array_equal(there[1], here)

    def test_a_run_goes_on_after_a_kill_and_says_so(self, run: Path) -> None:
        assert "environment 1 of traffic ended (signal SIGKILL)" in (run / "log.txt").read_text()
        found = eh.load(run)
        assert found(np.zeros(20, np.float32)) in range(4)

    @pytest.mark.slow
    def test_an_episode_that_is_lost_is_played_again(self, env: HostEnv, monkeypatch: pytest.MonkeyPatch) -> None:
        step, calls = VectorEnv.step, []

        def step_and_kill(environments: VectorEnv, actions: Any) -> Any:
            calls.append(actions)
            if len(calls) == 5:
                kill(environments, 0)
            return step(environments, actions)

        monkeypatch.setattr(VectorEnv, "step", step_and_kill)
        found = eh.evaluate_policy(env, FixedCycle(1), episodes=2)
        assert found.length.tolist() == [10, 10]


class TestJudging:
    def test_a_policy_may_follow_the_clock(self, env: HostEnv) -> None:
        """By name or as it is, and with the traffic that the environment has alone."""
        policies = ("cycle, hold 2", FixedCycle(2))
        named, given = (eh.evaluate_policy(env, policy, episodes=1, seed=5) for policy in policies)
        assert given.name == "cycle, hold 2"
        np.testing.assert_array_equal(named.total, given.total)
        alone = TrafficEnv(**SHORT)
        alone.reset(seed=Seeds(2**31 + 5, 0, 0).draw()[0])
        total = sum(alone.step(int(FixedCycle(2).decide(None, step)))[1].astype(float) for step in range(10))
        alone.close()
        np.testing.assert_array_equal(given.total[0], total)
        assert given.natural_measure == "average"
        assert 0 < given.summary(eh.GGF.geometric(4))["cv"] < 1
        again = type(given).from_record(json.loads(json.dumps(given.record())))
        assert again.facts.keys() == given.facts.keys()
        assert given.facts["collisions"].tolist() == [0]
        with pytest.raises(InputError, match=r"by name there are cycle, hold 1, .*longest queue"):
            eh.evaluate_policy(env, "hold 2", episodes=1)

    def test_a_function_takes_one_observation_at_a_time(self, env: HostEnv) -> None:
        found = eh.evaluate_policy(env, lambda observation: int(np.argmax(observation[12:16])), episodes=2)
        assert found.episodes == 2
        assert found.facts["cars served, N"].shape == (2,)

    def test_simple_policies_stand_beside_what_was_learnt(self, env: HostEnv) -> None:
        names = [name for name, _ in baselines(env)]
        assert names == ["random", *(f"cycle, hold {m}" for m in (1, 2, 3, 4)), "longest queue"]
        assert env.action_names == PHASES

    def test_the_best_cycle_depends_on_what_is_best(self) -> None:
        def test(*returns: float) -> eh.Evaluation:
            one = np.array([returns])
            return eh.Evaluation(tuple("NESW"), one, one, np.array([1]), np.array([False]), 0.99, 0)

        tests = {1: test(-5.0, -1.0, -1.0, -1.0), 2: test(-3.0, -3.0, -3.0, -3.0), 3: test(-3.0, -3.0, -3.0, -3.0)}
        assert best_cycle(tests, eh.Utilitarian(4)) == 1
        assert best_cycle(tests, eh.Maximin(4)) == 2
        with pytest.raises(InputError, match="only traffic lights"):
            cycles(resolve("species"), [1], 1)


def program(*words: Any) -> Any:
    """What the program, in this process, prints for programs."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert cli.main([*map(str, words), "--json"]) == 0
    return json.loads(out.getvalue())


class TestProgram:
    @pytest.mark.slow
    def test_cycle(self) -> None:
        found = program("cycle", "traffic", "--holds", "1,3", "--episodes", 1, "--env", "episode_seconds=700")
        assert [cycle["hold"] for cycle in found["cycles"]] == [1, 3]
        assert found["best"] == 3
        assert found["cycles"][0]["facts"]["teleports"] == 0

    def test_cycle_in_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["cycle", "traffic", "--holds", "2", "--episodes", "1", "--env", "episode_seconds=140"]) == 0
        said = capsys.readouterr().out
        assert "Best: hold each phase for 2 decisions." in said
        assert "wait per car served (s), N" in said

    @pytest.mark.slow
    def test_the_stand_in_is_close_to_sumo(self) -> None:
        """With one controller in short episodes, in which chance may do much; `make soak` has all and whole ones."""
        pair = next(calibration.compare({"episode_seconds": 700}, eh.evaluate_policy, 2, 0, print))
        assert (np.abs(pair.difference) < 0.05 + 2 * pair.uncertainty).all(), pair

    @pytest.mark.slow
    def test_trained_in_the_stand_in_and_tested_in_sumo(self, tmp_path: Path) -> None:
        words = ["train", "traffic", "--training", "backend=standin", "--env", "episode_seconds=140", "warm_up=0"]
        small = ["--algo", "a2c", "--set", "envs=4", "--steps", 128, "--seeds", 1, "--jobs", 1, "--episodes", 0]
        program(*words, *small, "--output", tmp_path / "run")
        found = program("evaluate", tmp_path / "run", "--episodes", 1, "--no-baselines")
        assert found["facts"][found["policies"][0]["name"]]["cars served, N"] > 0  # SUMO counts them

    def test_what_cannot_be_calibrated(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert cli.main(["calibrate", "species"]) == 2
        assert "only traffic and datacenter have a simulator" in capsys.readouterr().err
        assert cli.main(["calibrate", "traffic", "--env", "backend=sumo"]) == 2
        assert "both backends are compared" in capsys.readouterr().err
        assert cli.main(["calibrate", "traffic", "--episodes", "1"]) == 2
        assert "at least 2 episodes" in capsys.readouterr().err

    @pytest.mark.slow
    def test_evaluate(self, run: Path) -> None:
        found = program("evaluate", run, "--episodes", 1)
        assert [policy["name"] for policy in found["policies"]][:3] == ["GGF-A2C", "random", "cycle, hold 1"]
        assert found["facts"]["longest queue"]["collisions"] == 0
        assert found["policies"][0]["cv"]["value"] > 0
        compared = program("compare", run, run)
        assert all(of_run["teleports"] == 0 for of_run in compared["facts"].values())

    def test_play_draws_a_film(self, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        film, still = tmp_path / "film.gif", tmp_path / "still.png"
        assert cli.main(["play", "traffic", str(run), "--steps", "3", "--render", str(film)]) == 0
        said = capsys.readouterr().out
        assert any(phase in said for phase in PHASES)
        with Image.open(film) as moving:
            assert moving.size == (720, 720)
            assert 18 <= getattr(moving, "n_frames", 1) <= 21  # seven in each step; frames that are alike are joined
        assert cli.main(["play", "-", str(run), "--steps", "1", "--render", str(still)]) == 0
        with Image.open(still) as picture:
            assert picture.size == (720, 720)

    def test_what_is_refused(self) -> None:
        """In a process without the checks of types, which would speak first."""
        expected = {
            "green=2.5": "green must be a whole number of seconds",
            "roads=three-lane": "roads must be split or two-lane",
            "demand=none.csv": "cannot be read",
        }
        code = "import sys; from evenhand import cli; print([cli.main(['train', 'traffic', '--env', x]) for x in {!r}])"
        words = [sys.executable, "-c", code.format(list(expected))]
        said = subprocess.run(words, capture_output=True, text=True, check=True)
        assert said.stdout == "[2, 2, 2]\n"
        for message, line in zip(expected.values(), said.stderr.splitlines(), strict=True):
            assert message in line


def test_workers_import_no_jax() -> None:
    code = "import sys, evenhand.envs.traffic.env; print({'jax', 'matplotlib', 'PIL', 'libsumo'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
