"""A cluster of two nodes for the tests of Ray, and what must be the same on it as here."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evenhand.envs.gym.vector import VectorEnv
from evenhand.studies.cells import Cell
from evenhand.studies.ray_cluster import connected, cpus
from processes import alive, until

SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # which is to say: on the loopback interface
    "RAY_agent_register_timeout_ms": "300000",
    "RAY_health_check_period_ms": "300",  # who was killed is missed soon; who is slow may be as slow as ever
    "RAY_raylet_start_wait_time_s": "30",
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_worker_niceness": "10",  # Ray's own choice would starve them beside other tests
    "RAY_AUTH_MODE": "token",
}


class Machines:
    """Nodes of a cluster, one CPU each."""

    def __init__(self) -> None:
        words = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("ray_machines.py"))]
        self._process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self._answer()
        self.second: int | None = None

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        assert answer, "the cluster did not start"
        return answer

    def add(self) -> int:
        """One more; the process id of what runs it."""
        assert self._process.stdin is not None
        self._process.stdin.write("add\n")
        self._process.stdin.flush()
        return int(self._answer())

    def close(self) -> None:
        self._process.communicate()


def kill_machine(raylet: int) -> None:
    """As if its plug were pulled: everything that runs on it is killed."""
    children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
    for pid in (raylet, *map(int, children)):
        os.kill(pid, signal.SIGKILL)
    until(lambda: not alive(raylet))


def works_on(raylet: int, seed: Path) -> bool:
    """Whether a process on this machine has a file of a seed open; in a folder of its own, with the same names."""
    for pid in Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split():
        for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
            with contextlib.suppress(OSError):
                if f"/{seed.parent.name}/{seed.name}/" in os.readlink(descriptor):
                    return True
    return False


@pytest.fixture(scope="module")
def settings() -> Iterator[None]:
    """Of this cluster and of nobody else's."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        yield


@pytest.fixture(scope="module")
def machines(settings: None) -> Iterator[Machines]:
    cluster = Machines()
    yield cluster
    cluster.close()


@pytest.fixture(scope="module")
def connection(machines: Machines) -> Iterator[None]:
    """From this process."""
    with connected(machines.address):
        yield


@pytest.fixture
def second(machines: Machines, connection: None) -> int:
    """The process id of a second node, beside the head; made anew if it was killed."""
    if machines.second is None or not alive(machines.second):
        machines.second = machines.add()
        until(lambda: cpus() == 2)  # a node that was killed is counted until it is missed
    return machines.second


def results(cells: list[Cell], root: Path) -> list[bytes]:
    """All that may not depend on where it was done: tests, metrics and what was learnt."""
    files = [path for cell in cells for path in cell.results(root)]
    for cell in cells:
        if cell.learns:
            seed = cell.folder(root) / f"seed-{cell.seed}"
            files += [seed / "metrics.parquet", sorted(seed.glob("checkpoints/step-*"))[-1] / "state.safetensors"]
    return [path.read_bytes() for path in files]


def played(env: Any, start: Any, kill: Any = None) -> tuple[list[Any], list[str]]:
    """What 4 environments answer to the same actions, and what is said on the way."""
    said: list[str] = []
    with VectorEnv(env, 4, 7, 2, said.append, start) as environments:
        answers: list[Any] = [environments.reset()]
        for step in range(60):
            if kill is not None and step == 30:
                kill()
            answers.append(environments.step(np.array([0, 1, 1, 0]) if step % 3 else np.array([1, 0, 1, 0])))
    return answers, said


def same(some: list[Any], others: list[Any]) -> bool:
    return all(
        np.array_equal(a, b) for x, y in zip(some, others, strict=True) for a, b in zip(x[:5], y[:5], strict=True)
    )
