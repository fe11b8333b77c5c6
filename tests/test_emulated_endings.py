"""Whatever ends, however: nothing of an emulated network is left behind."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from emulation import alive, interfaces, needs_network, planned
from evenhand.envs.datacenter import Datacenter
from processes import line_from, python, tell

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
