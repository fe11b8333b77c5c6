"""The data-centre environment: what it promises, its rewards by hand, its baselines and optima."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check
from hypothesis import given, settings
from hypothesis import strategies as st
from jaxtyping import Array, Float, Int

import evenhand as eh
from evenhand.envs import resolve
from evenhand.envs.check import check_pure
from evenhand.envs.check.check_host import check_env
from evenhand.envs.datacenter import Datacenter, DatacenterState, allocation
from evenhand.envs.gym.gym_env import register
from evenhand.runs.declared import settings_of
from evenhand.types import Step
from evenhand.welfare import GGF

KEY = jax.random.key(0)
W = GGF.geometric(16)


def file_of(folder: Path, *pairs: tuple[int, int]) -> str:
    """Flows between hosts, counted from 0, as a file."""

    def address(host: int) -> str:
        return f"10.{host // 2 + 1}.0.{host % 2 + 1}"

    path = folder / "matrix.csv"
    path.write_text("src,dst\n" + "".join(f"{address(a)},{address(b)}\n" for a, b in pairs), "utf-8")
    return str(path)


def steps(env: Datacenter, rates: list[float], count: int) -> list[Step]:
    """Always the same rates."""
    state, _ = env.reset(KEY)
    step, seen = jax.jit(env.step), []
    for _ in range(count):
        seen.append(step(state, jnp.array(rates, jnp.float32), KEY))
        state = seen[-1].state
    return seen


class TestPromises:
    def test_check_env_finds_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With all that can be asked for beyond what is usual, which Gymnasium's check sees below."""
        arguments = {"fresh_traffic": True, "reward": "goodput", "traffic": "hotspot", "episode_steps": 40}
        monkeypatch.setattr(check_pure, "STEPS", 100)
        found = check_env("datacenter", arguments)
        assert [finding for finding in found if finding.severity != "fine"] == []

    def test_its_form(self) -> None:
        env = resolve("datacenter")
        assert isinstance(env, Datacenter)
        assert (env.observation_space.n, env.action_space.n, len(env.objectives)) == (336, 16, 16)
        assert env.objectives[::15] == ("host 1", "host 16")
        assert env.action_space == eh.types.Box.of(0, 10, 16)

    def test_a_larger_tree(self) -> None:
        env = Datacenter(k=8, traffic="bijection")
        assert (env.observation_space.n, env.action_space.n) == (4 * 640 + 128, 128)
        last = steps(env, [1.0] * 128, 2)[-1]
        np.testing.assert_allclose(last.reward, 1.0)
        np.testing.assert_allclose(last.state.delivered, 1.0, rtol=1e-5)

    def test_only_the_time_limit_ends_it(self) -> None:
        seen = steps(Datacenter(episode_steps=5), [5.0] * 16, 5)
        assert [bool(step.truncated) for step in seen] == [False] * 4 + [True]
        assert not any(bool(step.terminated) for step in seen)

    def test_the_same_seed_gives_the_same_bits(self) -> None:
        register()
        seen = []
        for _ in range(2):
            env = gymnasium.make("evenhand/datacenter-v0", fresh_traffic=True)
            observation, _ = env.reset(seed=5)
            env.action_space.seed(5)
            parts = [observation]
            for _ in range(20):
                observation, reward, *_ = env.step(env.action_space.sample())
                parts += [observation, reward]
            seen.append(b"".join(part.tobytes() for part in parts))
        assert seen[0] == seen[1]

    def test_it_can_be_sent_to_another_process(self) -> None:
        env = Datacenter("flows:2", fresh_traffic=True)
        assert env.baselines
        assert pickle.loads(pickle.dumps(env)) == env  # noqa: S301  (our own)

    def test_what_is_listed_can_be_set(self) -> None:
        listed = [setting.name for setting in settings_of("evenhand.envs.datacenter.env:Datacenter")]
        assert listed == [field.name for field in fields(Datacenter) if field.init]

    def test_fresh_traffic_is_fresh(self) -> None:
        env = Datacenter(fresh_traffic=True)
        queues = [np.asarray(env.reset(jax.random.key(seed))[0].queue) for seed in (1, 1, 2)]
        assert (queues[0] == queues[1]).all()
        assert (queues[0] != queues[2]).any()

    @pytest.mark.filterwarnings("ignore:.*The reward returned by `step..` must be a float:UserWarning")
    @pytest.mark.filterwarnings("ignore:.*we recommend using a symmetric and normalized space:UserWarning")
    def test_gymnasium_accepts_it(self) -> None:
        env = gymnasium.make("evenhand/datacenter-v0", render_mode="rgb_array").unwrapped
        gymnasium_check(env, skip_render_check=True)
        env.reset(seed=0)
        env.step(np.full(16, 5, np.float32))
        picture = env.render()
        assert isinstance(picture, np.ndarray)
        assert picture.shape[2] == 3

    def test_backends(self) -> None:
        register()
        assert gymnasium.make("evenhand/datacenter-v0", backend="simulated").observation_space.shape == (336,)
        with pytest.raises(eh.InputError, match="not 'mininet'"):
            gymnasium.make("evenhand/datacenter-v0", backend="mininet")
        with pytest.raises(eh.InputError, match="only an emulated network has a time_scale"):
            gymnasium.make("evenhand/datacenter-v0", time_scale=4)

    def test_goodput_stands_in_evaluations(self, tmp_path: Path) -> None:
        """Hosts 0 and 2 share the port of host 1 as 9 to 6, once it is full; the others have sent nothing."""
        env = Datacenter(file_of(tmp_path, (0, 1), (2, 1)), episode_steps=400)
        facts = eh.evaluate_policy(env, lambda _: np.array([9, 0, 6] + [0] * 13, np.float32), episodes=1).facts
        assert facts == {}  # a function of one's own is played step by step, without the states
        played = eh.evaluate_policy(env, "maximum", episodes=2)
        assert played.returns("average").max() < 0
        found = played.facts
        np.testing.assert_allclose(found["goodput average"], 10 / 16, rtol=1e-3)
        np.testing.assert_allclose(found["goodput maximum"], 5, rtol=1e-3)
        np.testing.assert_allclose(found["goodput minimum"], 0)
        np.testing.assert_allclose(found["goodput CV"], 7**0.5, rtol=1e-3)

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({"reward": "papers"}, "reward must be paper, goodput, path-local"),
            ({"interval": 0.0}, "interval must be a positive number"),
            ({"capacity": float("inf")}, "capacity must be a positive number"),
            ({"interval": -1}, "interval must be a positive number"),
            ({"capacity": 0.001}, "at least 0.01 Mbit/s"),
            ({"episode_steps": 0}, "at least one step"),
            ({"k": 3}, "even number of ports"),
            ({"traffic": "stride:4", "fresh_traffic": True}, "always the same traffic"),
            ({"traffic": "nonsense"}, "no file 'nonsense'"),
        ],
    )
    def test_errors(self, arguments: dict[str, object], message: str) -> None:
        with pytest.raises(eh.InputError, match=message):
            resolve("datacenter", arguments)

    def test_a_file_that_changes_makes_another_environment(self, tmp_path: Path) -> None:
        before = Datacenter(file_of(tmp_path, (0, 1)))
        after = Datacenter(file_of(tmp_path, (0, 2)))
        assert (before.flows, after.flows) == (((0, 1),), ((0, 2),))
        assert before != after


class TestRewards:
    """Hosts 0 and 2 send to host 1, whose port fills by 1/12.8 of its limit with each step at 9 and 6 Mbit/s."""

    PAIRS = ((0, 1), (2, 1), (8, 9))
    RATES = [9.0, 0.0, 6.0] + [0.0] * 5 + [4.0] + [0.0] * 7

    def played(self, folder: Path, reward: str) -> list[Step]:
        return steps(Datacenter(file_of(folder, *self.PAIRS), reward=reward), self.RATES, 40)

    def test_paper(self, tmp_path: Path) -> None:
        """The queue as it was before: empty in the first step, and 2/12.8 full in the third."""
        seen = self.played(tmp_path, "paper")
        rates = np.maximum(self.RATES, 0.01)
        for number, fill in ((0, 0.0), (1, 1 / 12.8), (2, 2 / 12.8), (39, 1.0)):
            np.testing.assert_allclose(seen[number].reward, rates * (1 - 2 * fill), rtol=1e-4)

    def test_path_local(self, tmp_path: Path) -> None:
        """Host 8 has nothing to do with the full queue, and host 1 sends nothing."""
        reward = np.asarray(self.played(tmp_path, "path-local")[39].reward)
        np.testing.assert_allclose(reward[[0, 2, 8]], [-9, -6, 4], rtol=1e-4)
        assert reward[1] == pytest.approx(0.01)

    def test_goodput(self, tmp_path: Path) -> None:
        """10 Mbit/s in all, as 9 to 6; and what host 8 sends."""
        reward = np.asarray(self.played(tmp_path, "goodput")[39].reward)
        np.testing.assert_allclose(reward[[0, 1, 2, 8]], [6, 0, 4, 4], rtol=1e-3)

    def test_observation(self, tmp_path: Path) -> None:
        seen = self.played(tmp_path, "paper")
        at = 4 * 16 + 1  # the port to host 1
        early, late = (np.asarray(seen[number].observation) for number in (2, 39))
        np.testing.assert_allclose(early[[at, 80 + at, 160 + at, 240 + at]], [3 / 12.8, 1, 62.5 / 1.5, 0], atol=1e-4)
        np.testing.assert_allclose(late[[at, 80 + at, 160 + at, 240 + at]], [1, 0, 62.5 / 1.5, 31.25 / 1.5], rtol=1e-3)
        np.testing.assert_allclose(late[320:], np.maximum(self.RATES, 0.01))
        assert np.count_nonzero(late[:320]) == 3

    def test_the_host_caps_all_of_its_flows(self, tmp_path: Path) -> None:
        env = Datacenter(file_of(tmp_path, (0, 1), (0, 8), (0, 12)))
        last = steps(env, [6.0] + [0.0] * 15, 3)[-1]
        assert float(last.state.delivered[0]) == pytest.approx(6.0, rel=1e-5)


def optima(env: Datacenter) -> dict[str, np.ndarray]:
    return {policy.name: np.array(policy.rates) for policy in env.baselines}


class TestAllocations:
    def test_by_hand(self, tmp_path: Path) -> None:
        """Hosts 0, 2 and 4 send to host 1 and share 10 Mbit/s; host 6 has its port for itself, as have idle ones."""
        env = Datacenter(file_of(tmp_path, (0, 1), (2, 1), (4, 1), (6, 7)))
        usage = allocation.usage(env.route, 16)
        np.testing.assert_allclose(allocation.equal_share(usage, 10), 10 / 3)
        expected = np.full(16, 10.0)
        expected[[0, 2, 4]] = 10 / 3
        np.testing.assert_allclose(allocation.max_min(usage, 10), expected)
        np.testing.assert_allclose(allocation.ggf(usage, 10, W.weights), expected, atol=1e-6)
        assert allocation.utilitarian(usage, 10).sum() == pytest.approx(140)

    def test_a_chain(self) -> None:
        """One user needs three links, three users one each: fair is 5 for all, and 30 in sum without the first one."""
        usage = np.array([[1.0, 1, 0, 0], [1, 0, 1, 0], [1, 0, 0, 1]])
        np.testing.assert_allclose(allocation.max_min(usage, 10), 5)
        np.testing.assert_allclose(allocation.utilitarian(usage, 10), [0, 10, 10, 10], atol=1e-7)
        flat = np.array([0.26, 0.25, 0.25, 0.24])  # hardly prefers the worst off
        np.testing.assert_allclose(allocation.ggf(usage, 10, flat), [0, 10, 10, 10], atol=1e-6)

    @settings(max_examples=20)
    @given(st.integers(0, 10_000), st.sampled_from(["staggered:0.2,0.3", "hotspot", "random"]))
    def test_water_filling_is_the_ggf_optimum(self, seed: int, traffic: str) -> None:
        """With one flow per host and weights that halve; and no optimum overloads a link."""
        env = Datacenter(traffic, traffic_seed=seed, routing_seed=seed)
        usage, best = allocation.usage(env.route, 16), optima(env)
        for name in ("equal share", "max-min fair", "GGF optimum", "utilitarian optimum"):
            assert (usage @ best[name]).max() <= 10 + 1e-5
        assert W.value(best["max-min fair"]) == pytest.approx(W.value(best["GGF optimum"]), abs=1e-5)
        assert best["utilitarian optimum"].sum() >= best["max-min fair"].sum() - 1e-5
        assert best["max-min fair"].min() == pytest.approx(best["equal share"].min())

    def test_fresh_traffic_has_no_optimum(self) -> None:
        assert [policy.name for policy in Datacenter(fresh_traffic=True).baselines] == ["maximum"]


@pytest.fixture(scope="module")
def mean_rewards() -> Callable[[str, str], list[np.ndarray]]:
    """The mean rewards of a baseline over an episode, for twelve matrices and routings of a pattern."""
    env = Datacenter()

    @jax.jit
    def play(queue: Int[Array, "5 F"], rates: Float[Array, " H"]) -> Float[Array, " H"]:
        def one(state: DatacenterState, _: None) -> tuple[DatacenterState, Float[Array, " H"]]:
            step = env.step(state, rates, KEY)
            return step.state, step.reward

        start = env.reset(KEY)[0]._replace(queue=queue)
        return jax.lax.scan(one, start, None, env.episode_steps)[1].mean(axis=0)

    def played(traffic: str, name: str) -> list[np.ndarray]:
        envs = [Datacenter(traffic, traffic_seed=seed, routing_seed=seed) for seed in range(12)]
        return [np.asarray(play(env.route.queue, optima(env)[name])) for env in envs]

    return played


class TestReference:
    """Sums and GGF of constant rates that were measured elsewhere, on one matrix of each kind and 12 routings.

    Ours are 12 matrices of the kind, which differ in how many flows meet at the narrowest place.
    """

    @pytest.mark.parametrize(
        ("traffic", "name", "total", "fair", "tolerance"),
        [
            ("staggered:0.2,0.3", "maximum", -154, -9.63, 0.01),
            ("random", "maximum", -154, -9.65, 0.01),
            ("hotspot", "maximum", -154, -9.64, 0.01),
            ("hotspot", "equal share", 52, 3.26, 0.1),
            ("hotspot", "max-min fair", 79, 3.28, 0.1),
            ("hotspot", "GGF optimum", 79, 3.28, 0.1),
        ],
    )
    def test_sum_and_ggf(
        self,
        mean_rewards: Callable[[str, str], list[np.ndarray]],
        traffic: str,
        name: str,
        total: float,
        fair: float,
        tolerance: float,
    ) -> None:
        rewards = mean_rewards(traffic, name)
        assert np.mean([reward.sum() for reward in rewards]) == pytest.approx(total, rel=tolerance)
        assert np.mean([W.value(reward) for reward in rewards]) == pytest.approx(fair, rel=tolerance)

    @pytest.mark.parametrize("traffic", ["staggered:0.2,0.3", "hotspot", "random"])
    def test_fairness_and_the_sum_are_at_odds(
        self, mean_rewards: Callable[[str, str], list[np.ndarray]], traffic: str
    ) -> None:
        """The utilitarian optimum loses most of the GGF; fairness costs a little of the sum."""
        fair, plain = (np.array(mean_rewards(traffic, name)) for name in ("max-min fair", "utilitarian optimum"))
        assert W.value(plain).mean() < 0.2 * W.value(fair).mean()
        assert 0.8 * plain.sum() < fair.sum() < 0.98 * plain.sum()

    def test_nothing_waits_at_an_optimum(self) -> None:
        env = Datacenter("random", traffic_seed=1)
        for name in ("max-min fair", "GGF optimum", "utilitarian optimum"):
            rates = optima(env)[name].tolist()
            last = steps(env, rates, 30)[-1]
            assert float(last.state.waiting.max()) < 1  # byte
            np.testing.assert_allclose(last.state.delivered, rates, rtol=1e-4)

    def test_evaluate_policy_knows_the_baselines(self) -> None:
        env = Datacenter("hotspot", episode_steps=40)
        fair = eh.evaluate_policy(env, "max-min fair", episodes=2)
        np.testing.assert_allclose(fair.returns("average"), optima(env)["max-min fair"], rtol=1e-3)
