"""The emulated network: real packets through real queues, made by anybody."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import evenhand as eh
from emulation import interfaces, needs_network, planned
from evenhand.envs.datacenter import Datacenter
from evenhand.envs.datacenter.network import Network, NetworkFailed, explained
from evenhand.envs.datacenter.topology import NO_QUEUE
from processes import until

MBIT = 1e6 / 8


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


def has_sent(network: Network, packets: int) -> bool:
    return bool(network.read().sent[0] >= packets)


def at_rest(network: Network, before: np.ndarray) -> bool:
    """Whether all that was sent since then has arrived, and nothing more is sent."""
    first = network.read().sent
    time.sleep(0.05)
    second = network.read()
    return bool((first == second.sent).all() and (second.sent - before == second.delivered).all())


class TestNetwork:
    def test_all_pairs_are_reachable(self, made: Any) -> None:
        env = Datacenter("flows:15")
        network = made(env)
        network.begin(env.flows, 0)
        network.send(0.05 * MBIT)  # a packet every quarter of a second
        until(lambda: network.read().delivered.all())
        reading = network.read()
        assert len(set(env.flows)) == len(reading.delivered) == 240
        assert reading.counts[:, 2].sum() == 0  # nothing is dropped

    def test_packets_take_the_ways_of_the_table(self, made: Any) -> None:
        env = Datacenter("random", routing_seed=3)
        network = made(env)
        for source, destination in ((0, 15), (15, 0), (4, 5), (6, 9)):
            flows = [(source, destination), *env.flows[1:]]
            before = network.begin(flows, 0)
            network.send([2 * MBIT, *(0.0 for _ in flows[1:])])
            until(partial(has_sent, network, int(before.sent[0]) + 10))
            network.send(0)
            until(partial(at_rest, network, before.sent))
            after = network.read()
            packets = (after.counts[:, 1] - before.counts[:, 1]).reshape(5, 16)
            sent = after.sent[0] - before.sent[0]
            expected = np.zeros((5, 16))
            for layer, queue in enumerate(env.paths[source, destination]):
                if queue != NO_QUEUE:
                    expected[layer, queue] = sent
            assert sent >= 10
            np.testing.assert_array_equal(packets, expected)
            assert after.delivered[0] == sent

    def test_a_port_sends_at_its_rate_and_keeps_its_limit(self, made: Any, tmp_path: Path) -> None:
        (tmp_path / "matrix.csv").write_text("src,dst\n10.1.0.1,10.1.0.2\n10.2.0.1,10.1.0.2\n", "utf-8")
        env = Datacenter(str(tmp_path / "matrix.csv"))
        network = made(env)
        network.begin(env.flows, 0)
        network.send(80 * MBIT)  # too much, even where the sender seldom runs
        at = 64 + 1
        until(lambda: network.read().counts[at, 5] > 0.97 * 400_000)
        carried = 0.0
        while carried < 9.5:  # a sender that has to wait for a busy machine lets it run empty
            before = network.read()
            time.sleep(1)
            after = network.read()
            carried = float(after.counts[at, 0] - before.counts[at, 0]) / (after.time - before.time) / MBIT
            assert carried < 10.5
            assert after.counts[at, 5] <= 400_000
        assert after.counts[at, 2] > before.counts[at, 2]
        arrived = int((after.delivered - before.delivered).sum())  # signed: either may be the larger by a packet
        assert arrived == pytest.approx(int(after.counts[at, 1] - before.counts[at, 1]), abs=3)
        assert network.begin(env.flows, 0).counts[:, 5].sum() == 0  # a new episode begins empty

    @pytest.mark.slow
    def test_a_larger_tree(self, made: Any) -> None:
        env = Datacenter(k=8, traffic="bijection")
        network = made(env)
        network.begin(env.flows, 0)
        network.send(0.3 * MBIT)
        until(lambda: network.read().delivered.all())

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
        busy.send(5 * MBIT)
        until(lambda: busy.read().delivered.sum() > 500)
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
        asking = threading.get_ident()

        def press() -> None:
            until(lambda: sys._current_frames()[asking].f_code.co_name == "_ask")
            os.kill(os.getpid(), signal.SIGINT)
            with contextlib.suppress(ProcessLookupError):
                os.kill(network.pids[0], signal.SIGCONT)

        pressing = threading.Thread(target=press)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            network.read()
        with pytest.raises(NetworkFailed, match="closed"):
            network.read()
        pressing.join()

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
network.send(6250)
while not network.read().delivered.all():
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
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    user, capabilities, reached = map(int, done.stdout.split())
    assert user != 0
    assert capabilities in (0, READ_ANY_FILE)
    assert reached == 240


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
        done = subprocess.run([*inside, sys.executable, "-c", script], capture_output=True, text=True, check=True)
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
