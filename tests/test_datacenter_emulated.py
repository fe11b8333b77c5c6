"""The emulated network: real packets through real queues, made by anybody, gone when anything ends."""

from __future__ import annotations

import errno
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

import evenhand as eh
from evenhand import cli
from evenhand.cli.doctor import TRIALS
from evenhand.envs import resolve
from evenhand.envs.datacenter import Datacenter
from evenhand.envs.datacenter.backends import Backend
from evenhand.envs.datacenter.emulated import BEHIND, LATE, SENT, EmulatedEnv
from evenhand.envs.datacenter.network import Network, NetworkFailed, explained, trial
from evenhand.envs.datacenter.topology import NO_QUEUE
from evenhand.envs.datacenter.wiring import plan
from evenhand.envs.host import HostEnv
from processes import line_from, python, tell

MBIT = 1e6 / 8


@pytest.fixture(scope="module")
def possible() -> None:
    """Namespaces can be made here; in CI they must be."""
    try:
        trial()
    except eh.InputError as error:
        if "CI" in os.environ:
            raise
        pytest.skip(str(error))


needs_network = pytest.mark.usefixtures("possible")


def planned(env: Datacenter, time_scale: float | int = 1) -> dict[str, Any]:
    return plan(env.tree, env.paths, env.port, env.capacity, len(env.flows), time_scale)


@pytest.fixture
def made(possible: None) -> Iterator[Any]:
    """Makes networks, and closes them."""
    networks: list[Network] = []

    def make(env: Datacenter, time_scale: float | int = 1) -> Network:
        networks.append(Network(planned(env, time_scale)))
        return networks[-1]

    yield make
    for network in networks:
        network.close()


@pytest.fixture
def emulated(possible: None) -> Iterator[Any]:
    """Makes environments, and closes them."""
    envs: list[EmulatedEnv] = []

    def make(**settings: Any) -> EmulatedEnv:
        env = gymnasium.make("evenhand/datacenter-v0", backend="emulated", **settings).unwrapped
        assert isinstance(env, EmulatedEnv)
        envs.append(env)
        return env

    yield make
    for env in envs:
        env.close()


def interfaces() -> list[str]:
    return sorted(line.split(":")[0].strip() for line in Path("/proc/net/dev").read_text().splitlines()[2:])


# Plans


class TestPlans:
    @pytest.mark.parametrize(("k", "nodes", "links"), [(4, 36, 48), (8, 208, 384)])
    def test_every_switch_has_k_ports(self, k: int, nodes: int, links: int) -> None:
        env = Datacenter(k=k, traffic="bijection")
        found = planned(env)
        assert (found["nodes"], len(found["links"]), len(found["queues"])) == (nodes, links, env.tree.queues)
        ports = [(node, port) for link in found["links"] for node, port in (link[:2], link[2:])]
        assert len(set(ports)) == len(ports) == 2 * links
        counts = np.bincount([node for node, _ in ports])
        assert (counts[: env.tree.hosts] == 1).all()
        assert (counts[env.tree.hosts :] == k).all()
        assert len({tuple(queue) for queue in found["queues"]}) == env.tree.queues

    def test_routes_follow_the_path_table(self) -> None:
        """Walk all 240 ways by the routes alone, and compare the ports with the queues of the table."""
        env = Datacenter(routing_seed=5)
        found = planned(env)
        far = {}
        for node, port, other, other_port in found["links"]:
            far[node, port], far[other, other_port] = other, node
        routes = {(node, source, destination): port for node, source, destination, port in found["routes"]}
        names = [tuple(queue) for queue in found["queues"]]
        for source, start in enumerate(found["hosts"]):
            for destination, end in enumerate(found["hosts"]):
                if source == destination:
                    continue
                node, passed = far[source, 0], []
                while node != destination:
                    port = routes.get((node, start, end), routes.get((node, None, end)))
                    passed.append(names.index((node, port)))
                    node = far[node, port]
                table = [16 * layer + q for layer, q in enumerate(env.paths[source, destination]) if q != NO_QUEUE]
                assert passed == table

    def test_at_another_pace(self) -> None:
        usual, fast = planned(Datacenter()), planned(Datacenter(), 4)
        assert (usual["rate"], fast["rate"]) == (1_250_000, 5_000_000)
        assert usual["limit"] == fast["limit"] == 400_000


# The network


class TestNetwork:
    def test_all_pairs_are_reachable(self, made: Any) -> None:
        env = Datacenter("flows:15")
        network = made(env)
        network.begin(env.flows, 0)
        network.rates[:] = 0.05 * MBIT  # a packet every quarter of a second
        deadline = time.monotonic() + 20
        while not (reading := network.read()).delivered.all():
            assert time.monotonic() < deadline, f"{(reading.delivered == 0).sum()} of 240 pairs"
            time.sleep(0.1)
        assert len(set(env.flows)) == len(reading.delivered) == 240
        assert reading.counts[:, 2].sum() == 0  # nothing is dropped

    def test_packets_take_the_ways_of_the_table(self, made: Any) -> None:
        env = Datacenter("random", routing_seed=3)
        network = made(env)
        for source, destination in ((0, 15), (15, 0), (4, 5), (6, 9)):
            flows = [(source, destination), *env.flows[1:]]
            before = network.begin(flows, 0)
            network.rates[0] = 2 * MBIT
            time.sleep(0.2)
            network.rates[0] = 0
            time.sleep(0.05)
            after = network.read()
            packets = (after.counts[:, 1] - before.counts[:, 1]).reshape(5, 16)
            sent = after.sent[0] - before.sent[0]
            expected = np.zeros((5, 16))
            for layer, queue in enumerate(env.paths[source, destination]):
                if queue != NO_QUEUE:
                    expected[layer, queue] = sent
            assert sent > 10
            np.testing.assert_array_equal(packets, expected)
            assert after.delivered[0] == sent

    def test_a_port_sends_at_its_rate_and_keeps_its_limit(self, made: Any, tmp_path: Path) -> None:
        (tmp_path / "matrix.csv").write_text("src,dst\n10.1.0.1,10.1.0.2\n10.2.0.1,10.1.0.2\n", "utf-8")
        env = Datacenter(str(tmp_path / "matrix.csv"))
        network = made(env)
        network.begin(env.flows, 0)
        network.rates[:] = 8 * MBIT
        time.sleep(1.5)  # 6 Mbit/s too much fill it in half a second
        before = network.read()
        time.sleep(1)
        after = network.read()
        at = 64 + 1
        assert 0.97 * 400_000 < after.counts[at, 5] <= 400_000
        carried = float(after.counts[at, 0] - before.counts[at, 0]) / (after.time - before.time) / MBIT
        assert carried == pytest.approx(10, rel=0.05)
        assert after.counts[at, 2] > before.counts[at, 2]
        arrived = (after.delivered - before.delivered).sum()
        assert arrived == pytest.approx(after.counts[at, 1] - before.counts[at, 1], abs=3)
        assert network.begin(env.flows, 0).counts[:, 5].sum() == 0  # a new episode begins empty

    def test_it_is_made_and_read_quickly(self, made: Any) -> None:
        """Generous, because machines are busy; benchmarks/datacenter_emulated.py has the figures."""
        env = Datacenter()
        start = time.perf_counter()
        network = made(env)
        network.begin(env.flows, 0)
        assert time.perf_counter() - start < 5
        times = []
        for _ in range(50):
            start = time.perf_counter()
            network.read()
            times.append(time.perf_counter() - start)
        assert np.median(times) < 0.05

    @pytest.mark.slow
    def test_a_larger_tree(self, made: Any) -> None:
        env = Datacenter(k=8, traffic="bijection")
        network = made(env)
        network.begin(env.flows, 0)
        network.rates[:] = 0.3 * MBIT
        time.sleep(1)
        assert network.read().delivered.all()

    def test_interfaces_of_this_machine_are_left_alone(self, made: Any) -> None:
        before = interfaces()
        network = made(Datacenter())
        assert interfaces() == before
        network.close()
        assert interfaces() == before

    def test_two_at_once_do_not_meet(self, made: Any) -> None:
        """They have the same addresses, and one never sees a packet of the other."""
        env = Datacenter()
        busy, silent = made(env), made(env)
        silent.begin(env.flows, 0)
        busy.begin(env.flows, 0)
        busy.rates[:] = 5 * MBIT
        time.sleep(0.5)
        assert busy.read().delivered.sum() > 500
        reading = silent.read()
        assert reading.delivered.sum() == reading.sent.sum() == reading.counts.sum() == 0

    def test_it_outlives_the_thread_that_made_it(self, made: Any) -> None:
        env = Datacenter()
        found: list[Network] = []
        thread = threading.Thread(target=lambda: found.append(made(env)))
        thread.start()
        thread.join()
        time.sleep(0.1)
        assert found[0].begin(env.flows, 0).counts.shape == (80, 6)

    def test_an_interrupt_closes_it(self, made: Any) -> None:
        """Else the next command would get the answer to the one before."""
        env = Datacenter()
        network = made(env)
        network.begin(env.flows, 0)
        os.kill(network.pids[0], signal.SIGSTOP)  # so that there is no answer until the interrupt
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        threading.Timer(0.4, os.kill, (network.pids[0], signal.SIGCONT)).start()
        with pytest.raises(KeyboardInterrupt):
            network.read()
        with pytest.raises(NetworkFailed, match="closed"):
            network.read()
        time.sleep(0.4)  # until the second timer has found its process, or not

    def test_closed(self, made: Any) -> None:
        network = made(Datacenter())
        network.close()
        network.close()
        with pytest.raises(NetworkFailed, match="closed"):
            network.read()


WITHOUT_ROOT = """
import os, sys, time
from evenhand.envs.datacenter import Datacenter
from evenhand.envs.datacenter.network import Network
from evenhand.envs.datacenter.wiring import plan

env = Datacenter("flows:15")
network = Network(plan(env.tree, env.paths, env.port, env.capacity, len(env.flows)))
network.begin(env.flows, 0)
network.rates[:] = 6250
deadline = time.monotonic() + 20
while not network.read().delivered.all() and time.monotonic() < deadline:
    time.sleep(0.1)
capabilities = [line for line in open("/proc/self/status") if line.startswith("CapEff")]
print(os.geteuid(), int(capabilities[0].split()[1], 16), int((network.read().delivered > 0).sum()), flush=True)
network.close()
"""


READ_ANY_FILE = 1 << 2
"""The capability CAP_DAC_READ_SEARCH."""


@needs_network
def test_without_root() -> None:
    """As the user that is nobody, who may at most read files: Python itself may lie where only root can."""
    command = [sys.executable, "-W", "ignore", "-c", WITHOUT_ROOT]
    if os.geteuid() == 0:
        nobody = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
        reading = [
            f"--{which}={keep}"
            for which, keep in zip(
                ("inh-caps", "ambient-caps", "bounding-set"), ["-all,+dac_read_search"] * 3, strict=True
            )
        ]
        if not shutil.which("setpriv"):
            assert "CI" not in os.environ
            pytest.skip("no setpriv to become somebody else with")
        command = [*nobody, *reading, *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    user, capabilities, reached = map(int, done.stdout.split())
    assert user != 0
    assert capabilities in (0, READ_ANY_FILE)
    assert reached == 240


# Nothing is left behind

OWNER = """
import importlib.util, json, os, sys, time, types

# Only what the network needs: to import the rest takes seconds, for every owner that is killed.
folder = importlib.util.find_spec("evenhand").submodule_search_locations[0]
for name in ("evenhand", "evenhand.envs", "evenhand.envs.datacenter"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [folder + name.removeprefix("evenhand").replace(".", "/")]
from evenhand.envs.datacenter.network import Network, NetworkFailed

wanted = json.load(open(sys.argv[1]))
flows = [(host, (host + 5) % 16) for host in range(16)]
print("ready", flush=True)
for line in sys.stdin:
    try:
        network = Network(wanted)
        network.begin(flows, 0)
        network.rates[:] = 600_000
        while True:
            network.read()
            time.sleep(0.02)
    except NetworkFailed:
        print("failed", flush=True)
"""


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    (tmp_path / "plan.json").write_text(json.dumps(planned(Datacenter())), "utf-8")
    return tmp_path / "plan.json"


def children(pid: int) -> list[int]:
    """Processes below one, as they are now."""
    found, parents = [pid], {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:
            continue
        name, rest = int(path.parent.name), text.rpartition(")")[2].split()
        if rest[0] != "Z":
            parents[name] = int(rest[1])
    for parent in found:
        found += [child for child, above in parents.items() if above == parent]
    return found


def namespaces(pids: list[int]) -> set[str]:
    """The network namespaces that processes are in or hold open."""
    found = set()
    for pid in pids:
        for path in (Path(f"/proc/{pid}/ns/net"), *Path(f"/proc/{pid}/fd").glob("*")):
            try:
                target = os.readlink(path)
            except OSError:
                continue
            if target.startswith("net:["):
                found.add(target)
    return found


def everybody() -> list[int]:
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@needs_network
@pytest.mark.parametrize("kills", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_kills_leave_nothing_behind(kills: int, plan_file: Path) -> None:
    """At random moments, while a network is made too, of the owner, the network's process or the sender."""
    luck = random.Random(kills)
    mine, links = namespaces([os.getpid()]), interfaces()
    kinds = set()
    owner = None
    for _ in range(kills):
        if owner is None:
            owner = python(OWNER, plan_file)
            assert line_from(owner) == "ready"
        tell(owner, "make")
        time.sleep(luck.uniform(0.02, 0.6))
        family = children(owner.pid)
        while len(family) == 1 and (family := children(owner.pid)) == [owner.pid]:
            time.sleep(0.005)  # it has not even begun
        held = namespaces(family) - mine
        kind = luck.randrange(len(family))
        kinds.add(kind)
        os.kill(family[kind], signal.SIGKILL)
        if kind == 0:
            owner.wait(10)
            for stream in (owner.stdin, owner.stdout):
                assert stream is not None
                stream.close()
            owner = None
        else:
            assert line_from(owner) == "failed"
        deadline = time.monotonic() + 10
        gone = family if kind == 0 else family[1:]
        while any(map(alive, gone)) or held & namespaces(everybody()):
            assert time.monotonic() < deadline, (kind, [pid for pid in gone if alive(pid)])
            time.sleep(0.01)
    if owner is not None:
        owner.kill()
        owner.communicate()
    assert interfaces() == links
    assert kills < 50 or kinds == {0, 1, 2}


@needs_network
@pytest.mark.parametrize("ending", ["pass", "sys.exit(3)", "raise KeyError", "os.kill(os.getpid(), 15)"])
def test_ending_without_closing(ending: str, plan_file: Path) -> None:
    script = OWNER.replace("for line in sys.stdin:", "if True:").replace(
        "        while True:\n            network.read()\n            time.sleep(0.02)\n",
        f"        print(*network.pids, flush=True)\n        {ending}\n",
    )
    with python(script, plan_file, stderr=subprocess.DEVNULL) as process:
        assert line_from(process) == "ready"
        pids = [int(word) for word in line_from(process).split()]
        process.wait(20)
    assert len(pids) == 2
    deadline = time.monotonic() + 10
    while any(map(alive, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
        env = emulated(episode_steps=30)
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
        assert len(rewards) == 30
        np.testing.assert_allclose(total / 30, rates, rtol=0.1, atol=0.1)
        np.testing.assert_allclose(rewards[0], rates)  # the queues were empty when the rates were chosen
        np.testing.assert_allclose(observation[320:], rates)
        summary = info["summary"]
        assert summary["goodput average"] == pytest.approx(rates.mean(), rel=0.1)
        assert {SENT, BEHIND, LATE, "goodput CV", "goodput minimum", "goodput maximum"} < summary.keys()

    def test_congestion_shows(self, emulated: Any) -> None:
        """Three senders at full rate fill the port of a hot host in a fifth of a second, and the reward turns."""
        env = emulated(traffic="hotspot:2,3")
        observation, _ = env.reset(seed=0)
        assert not observation[:320].any()
        for _ in range(20):
            observation, reward, *_, info = env.step(np.full(16, 10, np.float32))
        assert observation[:80].max() > 0.97
        assert -10 <= reward.min() == reward.max() < -9
        assert observation[240:320].sum() == pytest.approx(info["dropped"], rel=0.05)
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
        """At the pace of its own and at four times that; generous for busy machines."""
        for time_scale, steps, longest in ((1, 20, 2.5), (4, 80, 2.5)):
            env = emulated(time_scale=time_scale)
            env.reset(seed=0)
            start = time.perf_counter()
            for _ in range(steps):
                env.step(np.full(16, 1, np.float32))
            elapsed = time.perf_counter() - start
            assert 0.95 < elapsed < longest
            env.close()

    def test_the_first_step_begins_with_its_rates(self, emulated: Any) -> None:
        """However long the policy has thought about them."""
        env = emulated()
        env.reset(seed=0)
        time.sleep(0.5)
        info = env.step(np.full(16, 5, np.float32))[4]
        assert info["late"] == 0
        assert info["delivered"].mean() > 2.5

    def test_rates_that_come_too_late_are_counted(self, emulated: Any) -> None:
        env = emulated()
        env.reset(seed=0)
        env.step(np.full(16, 1, np.float32))
        time.sleep(0.2)
        assert env.step(np.full(16, 1, np.float32))[4]["late"] == pytest.approx(0.2, abs=0.1)

    def test_senders_that_cannot_keep_up_are_reported(self, emulated: Any) -> None:
        """Sixteen senders of 2 Gbit/s are too much for one process."""
        env = emulated(time_scale=200, interval=10, episode_steps=4, traffic="stride:1")
        env.reset(seed=0)
        for _ in range(4):
            *_, info = env.step(np.full(16, 10, np.float32))
        assert info["sent_of_requested"] < 0.97
        assert re.match(r"the senders sent only \d+% of what they were asked to", info["warning"])
        assert info["summary"][SENT] < 0.97
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
            time.sleep(0.2)
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

    def played(env: EmulatedEnv) -> tuple[float, float]:
        env.reset(seed=0)
        fill, delivered = [], []
        for _ in range(60):
            observation, *_, info = env.step(np.full(16, 5, np.float32))
            fill.append(observation[:80].max())
            delivered.append(info["delivered"].sum())
        return float(np.mean(fill)), float(np.mean(delivered))

    first, second = emulated(), emulated()
    alone = played(first)
    together: dict[int, tuple[float, float]] = {}
    threads = [
        threading.Thread(target=lambda n=n, env=env: together.__setitem__(n, played(env)))
        for n, env in enumerate((first, second))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for found in together.values():
        assert found[0] == pytest.approx(alone[0], abs=0.05)
        assert found[1] == pytest.approx(alone[1], rel=0.05)


# Where it cannot be made


class TestRefusals:
    @pytest.mark.parametrize("kind", ["user", "net"])
    def test_a_machine_that_forbids_namespaces(self, kind: str) -> None:
        """Really: inside a user namespace, in which none may be made."""
        script = (
            "from evenhand.envs.datacenter.network import trial\n"
            "try: trial()\nexcept Exception as error: print(type(error).__name__, error)"
        )
        setting = f"/proc/sys/user/max_{kind}_namespaces"
        inside = ["unshare", "-Ur", "sh", "-c", f'echo 0 > {setting} && exec "$@"', "sh"]
        if not shutil.which("unshare") or subprocess.run([*inside, "true"], check=False).returncode:
            assert "CI" not in os.environ
            pytest.skip("no user namespace to try it in")
        done = subprocess.run(
            [*inside, sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
        )
        about = "user" if kind == "user" else "network"
        assert done.stdout.startswith(f"InputError a {about} namespace could not be made: No space left on device. ")
        assert f"`sudo sysctl -w user.max_{kind}_namespaces=10000` allows it" in done.stdout
        assert done.stdout.count("\n") == 1  # one paragraph

    def test_missing_modules(self) -> None:
        said = explained(errno.ENOENT, "giving an interface a rate (htb): Specified qdisc kind is unknown", "Refused")
        assert "sudo modprobe -a veth sch_htb" in said
        assert "Specified qdisc kind is unknown" in said

    def test_containers(self) -> None:
        assert "seccomp=unconfined" in explained(errno.EPERM, "Operation not permitted", "user")

    def test_strict_routers(self) -> None:
        said = explained(errno.EROFS, "Read-only file system", "/proc/sys/net/ipv4/conf/all/rp_filter")
        assert "net.ipv4.conf.all.rp_filter=2" in said

    def test_not_linux(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "platform", "darwin")
        with pytest.raises(eh.InputError, match="Linux only, and this is darwin"):
            gymnasium.make("evenhand/datacenter-v0", backend="emulated")


# Commands


def program(capsys: pytest.CaptureFixture[str], *words: Any, code: int | None = 0) -> Any:
    result = cli.main([*map(str, words), "--json"])
    assert code is None or result == code
    return json.loads(capsys.readouterr().out)


@needs_network
class TestCommands:
    def test_calibrate(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Six policies, compared step by step; the limits are for quiet machines and whole episodes."""
        given = ("--env", "traffic=hotspot:2,3", "--env", "episode_steps=30")
        found = program(capsys, "calibrate", "datacenter", *given, code=None)
        policies = [pair["policy"] for pair in found["pairs"]]
        assert policies == ["maximum", "equal share", "max-min fair", "utilitarian optimum", "random", "back off"]
        assert found["limits"]["queue"] == 0.02
        assert found["within"] == (not any(pair["beyond"] for pair in found["pairs"]))
        for pair in found["pairs"]:
            assert pair["queue"] < 0.1
            assert abs(pair["delivered"]) < 0.2
        assert found["pairs"][0]["correlation"] > 0.97
        assert found["pairs"][1]["correlation"] is None  # nothing waits

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
        words = ["train", "datacenter", "--steps", "4000", "--seeds", "1", "--env", "episode_steps=30", "-o", run]
        assert cli.main(list(map(str, words))) == 0
        capsys.readouterr()
        found = program(capsys, "evaluate", run, "--backend", "emulated", "--episodes", 1)
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
        found = program(capsys, "doctor", "emulated")
        assert found["emulated"]["severity"] in ("fine", "warning")
        assert re.search(r"packets arrived at \d+% of the rate", found["emulated"]["explanation"])

    @pytest.mark.slow
    def test_doctor_tries_everything(self, capsys: pytest.CaptureFixture[str]) -> None:
        found = program(capsys, "doctor")
        assert list(found) == list(TRIALS)
        assert found["learning"]["severity"] == found["sumo"]["severity"] == "fine"
        assert cli.main(["doctor", "sumi"]) == 2
        assert "did you mean sumo?" in capsys.readouterr().err

    def test_list_has_the_backend(self, capsys: pytest.CaptureFixture[str]) -> None:
        names = [row["name"] for row in program(capsys, "list", "datacenter")["settings"]]
        assert names[-2:] == ["backend", "time_scale"]
