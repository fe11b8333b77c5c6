"""The traffic light as an environment: Gymnasium's contract, the same numbers again, one simulation a process."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import gymnasium
import mo_gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

import evenhand  # noqa: F401  (registers the environments)
from evenhand.envs import resolve
from evenhand.envs.traffic import ARMS, Arrivals, FixedCycle, LongestQueue, TrafficEnv
from evenhand.envs.traffic.junction import CAPACITY
from evenhand.errors import InputError

SHORT = 140


@pytest.fixture
def env() -> Iterator[TrafficEnv]:
    made = TrafficEnv(episode_seconds=SHORT)
    yield made
    made.close()


def episode(env: TrafficEnv, seed: int | None, actions: Any = (0, 1, 1, 2, 3, 0, 3, 1, 2, 0)) -> list[list[float]]:
    """Everything that is seen in an episode, as plain numbers."""
    seen = [env.reset(seed=seed)[0].tolist()]
    for action in actions:
        observation, reward, *_ = env.step(action)
        seen += [observation.tolist(), reward.tolist()]
    return seen


class TestContract:
    @pytest.mark.filterwarnings("ignore:.*The reward returned by `step..` must be a float:UserWarning")
    @pytest.mark.filterwarnings("ignore:.*Not able to test alternative render modes:UserWarning")
    def test_gymnasiums_own_check(self) -> None:
        made = gymnasium.make("evenhand/traffic-v0", episode_seconds=SHORT, render_mode="rgb_array").unwrapped
        with closing(made):
            # With a spec it would begin a second simulation beside the first to draw it, which SUMO cannot do.
            gymnasium_check(made, skip_render_check=True)
            made.spec = None
            gymnasium_check(made)

    @pytest.mark.slow
    def test_evenhands_own_check(self) -> None:
        # In another process: here the checks of types draw from the global random generator.
        short = ["--env", "episode_seconds=70", "warm_up=14"]
        words = [sys.executable, "-m", "evenhand.cli", "check-env", "traffic", *short, "--json"]
        said = subprocess.run(words, capture_output=True, text=True, check=True)
        findings = json.loads(said.stdout)["findings"]
        assert {finding["severity"] for finding in findings} == {"fine"}
        assert any("same seed" in finding["title"] for finding in findings)

    def test_mo_gymnasium_makes_it_too(self) -> None:
        with closing(mo_gymnasium.make("evenhand/traffic-v0", episode_seconds=SHORT)) as made:
            assert made.unwrapped.reward_space.shape == (4,)
            assert made.unwrapped.reward_dim == 4
            made.reset(seed=0)
            assert made.step(1)[1].shape == (4,)

    @pytest.mark.parametrize(
        ("name", "setting", "value"),
        [("day", "demand", "day"), ("literal", "timing", "literal"), ("authors", "timing", "authors")],
    )
    def test_variants_by_name(self, name: str, setting: str, value: str) -> None:
        with closing(gymnasium.make(f"evenhand/traffic-{name}-v0", episode_seconds=SHORT)) as made:
            assert getattr(made.unwrapped, setting) == value
        assert resolve(f"traffic-{name}", {"episode_seconds": SHORT}).objectives == ARMS

    def test_observations_rewards_and_infos(self, env: TrafficEnv) -> None:
        observation, info = env.reset(seed=0)
        assert observation.shape == (20,)
        for step in range(1, 11):
            action = step % 4
            observation, reward, terminated, truncated, info = env.step(action)
            assert env.observation_space.contains(observation)
            assert env.reward_space.contains(reward)
            np.testing.assert_array_equal(observation[:4], np.eye(4)[action])
            np.testing.assert_array_equal(reward, -info["waiting"])
            by_arm = observation[4:12].reshape(4, 2).sum(axis=1) * CAPACITY * 100
            np.testing.assert_allclose(by_arm, info["waiting"], rtol=1e-5)
            assert (terminated, truncated) == (False, step == 10)
            assert info["seconds"] == 14 * step
            assert info["collisions"] == info["teleports"] == 0
        assert info["served"].sum() > 0
        assert info["refused"].sum() > 0
        assert info["summary"]["cars served, N"] == info["served"][0]
        assert info["summary"]["wait per car served (s), W"] == info["wait_per_car"][3]
        assert len(info["summary"]) == 14

    def test_bounds_hold_where_cars_wait_longest(self) -> None:
        with closing(TrafficEnv(episode_seconds=2800)) as starving:
            starving.reset(seed=1)
            truncated = False
            while not truncated:
                observation, reward, _, truncated, _ = starving.step(0)
                assert starving.observation_space.contains(observation)
                assert starving.reward_space.contains(reward)
        assert observation[4:12].max() > 20  # nobody has forgotten how long they waited
        assert observation[12:].max() == pytest.approx(19 / CAPACITY)

    @pytest.mark.parametrize(
        ("timing", "kept", "changed"), [("fixed", 14, 14), ("literal", 10, 14), ("authors", 20, 20)]
    )
    def test_timings(self, timing: str, kept: int, changed: int) -> None:
        with closing(TrafficEnv(timing=timing, episode_seconds=SHORT, warm_up=0)) as made:
            made.reset(seed=0)
            assert made.step(0)[4]["seconds"] == kept
            assert made.step(2)[4]["seconds"] == kept + changed
            assert made.step(2)[4]["seconds"] == 2 * kept + changed

    def test_cars_come_from_where_and_when_the_table_says(self) -> None:
        nobody = [Arrivals(*way, 0.0) for way in ("EW", "SN", "WE")]
        table = (Arrivals("N", "S", 0.2, 0, 280), *nobody)
        with closing(TrafficEnv(demand=table, episode_seconds=560)) as made:
            _, info = made.reset(seed=0)
            served = []
            for _ in range(40):
                _, reward, _, _, info = made.step(1)  # always green for them
                served.append(info["served"][0])
                assert reward[1:].tolist() == [0, 0, 0]
        assert served[19] == pytest.approx(0.2 * 280, abs=25)
        assert served[-1] - served[21] <= 1  # nobody came any more
        assert 0 < info["refused"][0] < 20  # those who came a second after another, which is too near
        assert info["refused"][1:].tolist() == [0, 0, 0]

    def test_mistakes(self, env: TrafficEnv) -> None:
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(0)
        env.reset(seed=0)
        for wrong in (4, -1, 0.5, "NSL"):
            with pytest.raises(InputError, match="0 to 3, for NSL, NSSR, EWL, EWSR"):
                env.step(wrong)

    def test_a_copy_keeps_settings_and_chance_and_wants_a_reset(self, env: TrafficEnv) -> None:
        env.reset(seed=3)
        env.step(1)
        copy = pickle.loads(pickle.dumps(env))  # noqa: S301
        expected = episode(env, None)
        env.close()
        with closing(copy):
            assert copy.episode_seconds == SHORT
            with pytest.raises(gymnasium.error.ResetNeeded):
                copy.step(0)
            assert episode(copy, None) == expected


ELSEWHERE = """
import json, sys
sys.path.insert(0, {tests!r})
from test_traffic_env import SHORT, episode
from evenhand.envs.traffic import TrafficEnv
print(json.dumps(episode(TrafficEnv(episode_seconds=SHORT), 11)))
"""


class TestAgain:
    def test_the_seed_decides(self, env: TrafficEnv) -> None:
        first, other = episode(env, 11), episode(env, 12)
        assert first != other
        assert episode(env, 11) == first

    def test_episodes_differ_and_their_order_is_reproduced(self, env: TrafficEnv) -> None:
        first = [episode(env, 11), episode(env, None), episode(env, None)]
        assert first[0] != first[1] != first[2]
        assert [episode(env, 11), episode(env, None), episode(env, None)] == first

    def test_another_process_sees_the_same(self, env: TrafficEnv) -> None:
        code = ELSEWHERE.format(tests=str(Path(__file__).parent))
        there = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert json.loads(there.stdout) == episode(env, 11)

    def test_nor_does_an_unfinished_episode_leave_anything_behind(self, env: TrafficEnv) -> None:
        expected = episode(env, 11)
        episode(env, 5, (0, 0, 3))
        assert episode(env, 11) == expected
        env.close()
        assert episode(env, 11) == expected


def _fork(env: TrafficEnv, answers: Any) -> None:
    said = []
    for attempt in (lambda: env.step(0), lambda: TrafficEnv().reset()):
        try:
            attempt()
        except InputError as error:
            said.append(str(error))
    answers.send(said)


class TestOneSimulationPerProcess:
    def test_a_second_one_is_refused_and_the_first_goes_on(self, env: TrafficEnv) -> None:
        expected = episode(env, 11)
        env.reset(seed=11)
        second = TrafficEnv(episode_seconds=SHORT)
        with pytest.raises(InputError, match="already a simulation of SUMO in this process"):
            second.reset(seed=0)
        seen = [env.step(action)[0].tolist() for action in (0, 1, 1)]
        assert seen == expected[1:6:2]
        env.close()
        second.reset(seed=0)
        second.close()

    def test_one_that_is_forgotten_frees_its_process(self, env: TrafficEnv) -> None:
        TrafficEnv(episode_seconds=SHORT).reset(seed=0)
        env.reset(seed=0)

    def test_somebody_elses_simulation_is_not_replaced(self, env: TrafficEnv) -> None:
        import libsumo

        from evenhand.envs.traffic.network import compiled

        libsumo.start(["sumo", "-n", str(compiled("split")), "--no-step-log", "true"])
        try:
            with pytest.raises(InputError, match="already a simulation of SUMO in this process"):
                env.reset(seed=0)
            assert libsumo.isLoaded()
        finally:
            libsumo.close()

    @pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="nothing is ever forked here")
    @pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
    def test_a_forked_process_is_told_so(self, env: TrafficEnv) -> None:
        env.reset(seed=0)
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe()
        process = context.Process(target=_fork, args=(env, theirs))
        process.start()
        assert ours.poll(60)
        said = ours.recv()
        process.join(60)
        assert len(said) == 2
        assert all("forked" in sentence for sentence in said)
        env.step(1)


class TestPolicies:
    def test_the_cycle_holds_each_phase(self) -> None:
        cycle = FixedCycle(2)
        assert [int(cycle.decide(np.zeros(20), step)) for step in range(10)] == [0, 0, 1, 1, 2, 2, 3, 3, 0, 0]
        np.testing.assert_array_equal(cycle.decide(np.zeros((3, 20)), np.array([0, 5, 7])), [0, 2, 3])
        for wrong in (0, -1, True):
            with pytest.raises(InputError, match="at least 1"):
                FixedCycle(wrong)

    def test_the_longest_queue_goes_first(self) -> None:
        observation = np.zeros((3, 20), np.float32)
        observation[:, 1] = 1  # NSSR has green
        observation[0, 12 + np.array([3, 7])] = 0.1, 0.2  # left turns from east and west
        observation[1, 12 + np.array([0, 2])] = 0.3, 0.3  # as many from the north as from the east: keep
        np.testing.assert_array_equal(LongestQueue().decide(observation, np.zeros(3)), [2, 1, 1])
        assert LongestQueue().decide(observation[0], 0) == 2


class TestPictures:
    def test_a_picture_shows_the_signals(self) -> None:
        with closing(TrafficEnv(episode_seconds=SHORT, render_mode="rgb_array")) as made:
            with pytest.raises(gymnasium.error.ResetNeeded):
                made.render()
            made.reset(seed=0)
            made.step(1)
            picture = made.render()
        assert picture.shape == (720, 720, 3)
        assert picture.dtype == np.uint8
        green, red = (
            np.all(np.abs(picture.astype(int) - colour) < 8, axis=2) for colour in ([22, 179, 100], [229, 72, 77])
        )
        # The lane from the north that goes straight on has green, the one from the east red.
        assert green[300:335, 325:350].any()
        assert not green[330:390, 390:420].any()
        assert red[330:390, 390:420].any()

    def test_a_film_changes_nothing(self, env: TrafficEnv) -> None:
        expected = episode(env, 11)
        env.close()
        with closing(TrafficEnv(episode_seconds=SHORT, render_mode="rgb_array_list")) as filmed:
            assert episode(filmed, 11) == expected
            frames = filmed.render()
            assert filmed.render() == []
        assert len(frames) == 10 * 7
        assert len({frame.tobytes() for frame in frames}) > 60

    def test_nothing_is_drawn_unasked(self, env: TrafficEnv) -> None:
        with pytest.warns(UserWarning, match="nothing to render"):
            assert env.render() is None


def test_every_arm_is_a_user() -> None:
    assert TrafficEnv().objectives == ARMS
