"""The environment on the emulated network, and the commands that use it."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

import evenhand as eh
from emulation import needs_network
from evenhand import cli
from evenhand.cli.doctor import TRIALS
from evenhand.envs import resolve
from evenhand.envs.datacenter import Datacenter
from evenhand.envs.datacenter.backends import Backend
from evenhand.envs.datacenter.emulated import EmulatedEnv
from evenhand.envs.datacenter.network import NetworkFailed
from evenhand.envs.datacenter.trust import BEHIND, DOUBTFUL, LATE, SENT, STILL, UNEVEN
from evenhand.envs.gym.host_env import HostEnv
from processes import alive, until

# The environment


class TestEnvironment:
    def test_it_is_the_simulators(self, emulated: Any) -> None:
        real, model = emulated(), gymnasium.make("evenhand/datacenter-v0").unwrapped
        for name in ("observation_space", "action_space", "reward_space", "reward_dim"):
            assert getattr(real, name) == getattr(model, name)
        np.testing.assert_array_equal(real.reset(seed=1)[0], model.reset(seed=1)[0])
        env = resolve("datacenter-emulated", {"traffic": "hotspot"})
        assert isinstance(env, HostEnv)
        assert env.real_time
        assert [policy.name for policy in env.baselines] == [policy.name for policy in Datacenter("hotspot").baselines]

    @pytest.mark.filterwarnings("ignore:.*The reward returned by `step..` must be a float:UserWarning")
    @pytest.mark.filterwarnings("ignore:.*we recommend using a symmetric and normalized space:UserWarning")
    def test_gymnasium_accepts_it(self, emulated: Any) -> None:
        env = emulated(time_scale=4, render_mode="rgb_array")
        assert env.spec.nondeterministic
        gymnasium_check(env, skip_render_check=True)
        env.reset(seed=0)
        env.step(np.full(16, 5, np.float32))
        assert env.render().shape[2] == 3

    def test_a_quiet_network_delivers_what_is_sent(self, emulated: Any) -> None:
        env = emulated(episode_steps=20)
        env.reset(seed=0)
        rates = np.linspace(0.5, 3, 16).astype(np.float32)
        rewards, total, truncated = [], np.zeros(16), False
        while not truncated:
            observation, reward, terminated, truncated, info = env.step(rates)
            assert env.observation_space.contains(observation)
            assert env.reward_space.contains(reward)
            assert not terminated
            total += info["delivered"]
            rewards.append(reward)
        assert len(rewards) == 20
        if not info["summary"][DOUBTFUL]:
            np.testing.assert_allclose(total / 20, rates, rtol=0.1, atol=0.1)
        np.testing.assert_allclose(rewards[0], rates)  # the queues were empty when the rates were chosen
        np.testing.assert_allclose(observation[320:], rates)
        summary = info["summary"]
        assert summary["goodput average"] == pytest.approx(total.mean() / 20)
        assert {
            SENT,
            BEHIND,
            STILL,
            UNEVEN,
            LATE,
            DOUBTFUL,
            "goodput CV",
            "goodput minimum",
            "goodput maximum",
        } < summary.keys()

    def test_congestion_shows(self, emulated: Any) -> None:
        """Three senders at full rate fill the port of a hot host in a fifth of a second, and the reward turns."""
        env = emulated(traffic="hotspot:2,3", episode_steps=20)
        observation, _ = env.reset(seed=0)
        assert not observation[:320].any()
        for _ in range(20):
            observation, reward, *_, info = env.step(np.full(16, 10, np.float32))
        assert -10 <= reward.min() == reward.max()
        assert observation[240:320].sum() == pytest.approx(info["dropped"], rel=0.05)
        if not info["summary"][DOUBTFUL]:  # else the machine may be too busy to send so much
            assert observation[:80].max() > 0.97
            assert reward.max() < -9
            assert info["dropped"] > 100
            assert 25 < observation[160:240].max() < 42  # full ports send packets all the time, 41.7 in a step
        again, _ = env.reset()
        assert not again[:320].any()

    @pytest.mark.parametrize("reward", ["goodput", "path-local"])
    def test_other_rewards(self, emulated: Any, reward: str) -> None:
        env = emulated(reward=reward)
        env.reset(seed=0)
        for _ in range(4):
            _, gained, *_, info = env.step(np.full(16, 2, np.float32))
        expected = info["delivered"] if reward == "goodput" else np.full(16, 2)
        np.testing.assert_allclose(gained, expected, rtol=1e-3, atol=0.2)

    def test_fresh_traffic(self, emulated: Any) -> None:
        env = emulated(fresh_traffic=True, traffic="random")
        found = []
        for seed in (1, 1, 2):
            env.reset(seed=seed)
            found.append(env._route.queue.tolist())
            _, _, _, _, info = env.step(np.full(16, 4, np.float32))
            assert info["delivered"].sum() > 0
        assert found[0] == found[1] != found[2]

    def test_steps_keep_time(self, emulated: Any) -> None:
        """At the pace of its own and at four times that; how much longer they take is a matter of the machine."""
        for time_scale, steps in ((1, 10), (4, 40)):
            env = emulated(time_scale=time_scale)
            env.reset(seed=0)
            start = time.perf_counter()
            for _ in range(steps):
                env.step(np.full(16, 1, np.float32))
            assert time.perf_counter() - start > 0.45
            env.close()

    def test_the_first_step_begins_with_its_rates(self, emulated: Any) -> None:
        """However long the policy has thought about them."""
        env = emulated()
        env.reset(seed=0)
        time.sleep(0.5)
        info = env.step(np.full(16, 5, np.float32))[4]
        assert info["late"] == 0
        assert info["delivered"].mean() > 2.5 or info["sent_of_requested"] < 0.97

    def test_rates_that_come_too_late_are_counted(self, emulated: Any) -> None:
        env = emulated()
        env.reset(seed=0)
        env.step(np.full(16, 1, np.float32))
        time.sleep(0.2)
        info = env.step(np.full(16, 1, np.float32))[4]
        assert info["late"] > 0.15
        assert info["lag"] == pytest.approx(info["late"] / 0.05)

    def test_senders_that_cannot_keep_up_are_reported(self, emulated: Any) -> None:
        """Sixteen senders of 2 Gbit/s are too much for one process."""
        env = emulated(time_scale=200, interval=10, episode_steps=4, traffic="stride:1")
        env.reset(seed=0)
        warnings = [env.step(np.full(16, 10, np.float32))[4] for _ in range(4)]
        info = warnings[-1]
        assert all(info["sent_of_requested"] < 0.97 for info in warnings[1:])
        assert re.match(r"the senders sent only \d+% of what they were asked to", warnings[2]["warning"])
        assert re.match(r"not to be trusted: only \d.*% was sent of what was requested", info["warning"])
        assert info["summary"][SENT] < 0.97
        assert info["summary"][DOUBTFUL] == 1
        assert info["summary"][BEHIND] >= 1

    def test_it_can_be_sent_to_another_process(self, emulated: Any) -> None:
        env = emulated(traffic="hotspot", time_scale=2)
        env.reset(seed=3)
        copy = pickle.loads(pickle.dumps(env))  # noqa: S301  (our own)
        with pytest.raises(gymnasium.error.ResetNeeded):
            copy.step(np.ones(16, np.float32))
        assert (copy.model, copy.time_scale) == (env.model, 2)
        env.step(np.ones(16, np.float32))  # and is itself untouched

    def test_after_a_kill_a_reset_makes_another(self, emulated: Any) -> None:
        env = emulated()
        env.reset(seed=0)
        for which in (0, 1):
            os.kill(env._network.pids[which], signal.SIGKILL)
            until(lambda: not alive(env._network.pids[0]))  # which ends when the sender does
            with pytest.raises(NetworkFailed, match="the emulated network is gone"):
                env.step(np.ones(16, np.float32))
            with pytest.raises(gymnasium.error.ResetNeeded):
                env.step(np.ones(16, np.float32))
            env.reset()
            assert env.step(np.ones(16, np.float32))[4]["delivered"].shape == (16,)

    def test_closing(self, emulated: Any) -> None:
        env = emulated()
        env.close()
        env.reset(seed=0)
        pids = list(env._network.pids)
        env.close()
        env.close()
        assert not any(map(alive, pids))
        with pytest.raises(gymnasium.error.ResetNeeded):
            env.step(np.ones(16, np.float32))
        env.reset()
        with env:
            pids = list(env._network.pids)
        assert not any(map(alive, pids))

    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"time_scale": 0}, "time_scale must be a positive number"),
            ({"time_scale": float("nan")}, "time_scale must be a positive number"),
            ({"render_mode": "human"}, "render_mode"),
            ({"interval": -1}, "interval must be a positive number"),
            ({"traffic": "nonsense"}, "no file 'nonsense'"),
        ],
    )
    def test_errors(self, settings: dict[str, Any], message: str) -> None:
        with pytest.raises(eh.InputError, match=message):
            gymnasium.make("evenhand/datacenter-v0", backend="emulated", **settings)

    def test_misspelt_settings(self) -> None:
        with pytest.raises(eh.InputError, match=r"no argument 'timescale' \(did you mean time_scale"):
            resolve("datacenter", {"backend": "emulated", "timescale": 4})
        with pytest.raises(eh.InputError, match="backend must be simulated or emulated"):
            Backend("mininet")

    def test_an_action_outside(self, emulated: Any) -> None:
        env = emulated()
        env.reset(seed=0)
        with pytest.raises(eh.InputError, match="the action must lie in"):
            env.step(np.full(16, 11, np.float32))


@pytest.mark.slow
def test_two_at_once_lead_to_the_same(emulated: Any) -> None:
    """The same congested episode alone and beside another network, in two threads."""

    def played(env: EmulatedEnv) -> tuple[float, float, float]:
        env.reset(seed=0)
        fill, delivered = [], []
        for _ in range(40):
            observation, *_, info = env.step(np.full(16, 5, np.float32))
            fill.append(observation[:80].max())
            delivered.append(info["delivered"].sum())
        return float(np.mean(fill)), float(np.mean(delivered)), info["summary"][DOUBTFUL]

    first, second = emulated(episode_steps=40), emulated(episode_steps=40)
    alone = played(first)
    together: dict[int, tuple[float, float, float]] = {}
    threads = [
        threading.Thread(target=lambda n=n, env=env: together.__setitem__(n, played(env)))
        for n, env in enumerate((first, second))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together.keys() == {0, 1}
    for found in (found for found in together.values() if not (found[2] or alone[2])):
        assert found[0] == pytest.approx(alone[0], abs=0.05)
        assert found[1] == pytest.approx(alone[1], rel=0.05)


# Commands


def program(capsys: pytest.CaptureFixture[str], *words: Any, code: int | None = 0) -> Any:
    result = cli.main([*map(str, words), "--json"])
    assert code is None or result == code
    return json.loads(capsys.readouterr().out)


@needs_network
class TestCommands:
    def test_calibrate(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Six policies, compared step by step; the limits are for quiet machines and whole episodes."""
        given = ("--env", "traffic=hotspot:2,3", "--env", "episode_steps=20")
        found = program(capsys, "calibrate", "datacenter", *given, code=None)
        policies = [pair["policy"] for pair in found["pairs"]]
        assert policies == ["maximum", "equal share", "max-min fair", "utilitarian optimum", "random", "back off"]
        assert found["limits"]["queue"] == 0.02
        assert found["within"] == (not any(pair["beyond"] for pair in found["pairs"]))
        assert found["trusted"] == (not any(pair["doubts"] for pair in found["pairs"]))
        for pair in found["pairs"]:
            if not pair["doubts"]:
                assert pair["queue"] < 0.1
                assert abs(pair["delivered"]) < 0.2
        maximum, equal_share = found["pairs"][:2]
        assert maximum["doubts"] or maximum["correlation"] > 0.97
        assert equal_share["doubts"] or equal_share["correlation"] is None  # nothing waits

    def test_calibrate_in_words(self, capsys: pytest.CaptureFixture[str]) -> None:
        words = ["calibrate", "datacenter", "--env", "traffic=stride:4", "--env", "episode_steps=4"]
        assert cli.main(words) in (0, 1)
        shown = capsys.readouterr().out
        assert "The simulator beside the emulated network" in shown
        assert "max-min fair" in shown

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--episodes", "3"], "leave --episodes out"),
            (["--env", "backend=emulated"], "leave the setting backend out"),
            (["--env", "fresh_traffic=true"], "leave the setting fresh_traffic out"),
        ],
    )
    def test_what_cannot_be_calibrated(
        self, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert cli.main(["calibrate", "datacenter", *words]) == 2
        assert message in capsys.readouterr().err

    @pytest.mark.slow
    def test_evaluate_on_both(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        run = tmp_path / "run"
        words = ["train", "datacenter", "--steps", 64, "--seeds", 1, "--env", "episode_steps=20", "--episodes", 0]
        small = ["--set", "envs=2", "rollout=32", "minibatches=2", "epochs=1"]
        assert cli.main(list(map(str, [*words, *small, "-o", run]))) == 0
        capsys.readouterr()
        found = program(capsys, "evaluate", run, "--backend", "emulated")
        assert found["backends"] == ["simulated", "emulated"]
        names = [policy["name"] for policy in found["policies"]]
        assert names[:4] == ["GGF-PPO, simulated", "GGF-PPO, emulated", "random, simulated", "random, emulated"]
        by_name = {policy["name"]: policy for policy in found["policies"]}
        for name in ("maximum", "max-min fair", "GGF optimum"):
            model, real = (by_name[f"{name}, {backend}"]["sum"]["value"] for backend in ("simulated", "emulated"))
            assert real == pytest.approx(model, abs=0.15 * 160)
        facts = found["facts"]
        assert facts["GGF-PPO, emulated"].keys() > facts["GGF-PPO, simulated"].keys() >= {"goodput CV"}
        assert cli.main(["evaluate", str(run), "--backend", "emulated", "--no-baselines", "--env", "time_scale=2"]) == 0
        shown = capsys.readouterr().out
        assert "50 test episodes simulated, 1 test episode emulated" in shown
        assert "sent /" in shown
        for wrong, message in (
            (["--backend", "mininet"], "backend must be simulated or emulated"),
            (["--backend", "emulated", "--env", "backend=simulated"], "leave backend out of --env"),
        ):
            assert cli.main(["evaluate", str(run), *wrong]) == 2
            assert message in capsys.readouterr().err

    def test_doctor(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = program(capsys, "doctor", "emulated", code=None)  # 1 if the machine is busy
        assert found["emulated"]["severity"] in ("fine", "warning")
        assert re.search(r"packets arrived at \d+% of the rate", found["emulated"]["explanation"])

    @pytest.mark.slow
    def test_doctor_tries_everything(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = program(capsys, "doctor", code=None)  # 1 if the machine is busy
        assert list(found) == list(TRIALS)
        assert [found[name]["severity"] for name in ("learning", "sumo", "ray")] == ["fine"] * 3
        assert cli.main(["doctor", "sumi"]) == 2
        assert "did you mean sumo?" in capsys.readouterr().err

    def test_list_has_the_backend(self, capsys: pytest.CaptureFixture[str]) -> None:
        names = [row["name"] for row in program(capsys, "list", "datacenter")["settings"]]
        assert names[-2:] == ["backend", "time_scale"]
