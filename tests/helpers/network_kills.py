"""Processes of an emulated network, killed at random moments; and what is left of it then."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from emulation import interfaces, planned
from evenhand.envs.datacenter import Datacenter
from processes import alive, line_from, python, tell, until

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
        network.send(600_000)
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


def begun(owner: int, members: int) -> bool:
    """Whether there are so many of the owner, the network's process and the sender."""
    return len(children(owner)) >= members


def nothing_left(pids: list[int], held: set[str]) -> bool:
    everybody = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return not any(map(alive, pids)) and not held & namespaces(everybody)


def kill_and_look(kills: int, plan_file: Path) -> set[int]:
    """Kill the owner (0), the network's process (1) or the sender (2) at random moments; which of them were."""
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
        until(partial(begun, owner.pid, luck.choice([2, 3])))
        family = children(owner.pid)
        held = namespaces(family) - mine
        kind = luck.randrange(len(family))
        kinds.add(kind)
        os.kill(family[kind], signal.SIGKILL)
        if kind == 0:
            owner.wait()
            for stream in (owner.stdin, owner.stdout):
                assert stream is not None
                stream.close()
            owner = None
        else:
            assert line_from(owner) == "failed"
        until(partial(nothing_left, family if kind == 0 else family[1:], held))
    if owner is not None:
        owner.kill()
        owner.communicate()
    assert interfaces() == links
    return kinds
