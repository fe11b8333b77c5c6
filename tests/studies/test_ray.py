"""A real Ray cluster of two nodes: the same numbers as here, whatever fails and whoever is killed."""

from __future__ import annotations

import dataclasses
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calls import PROGRAM, program, refused
from evenhand.envs import resolve
from evenhand.studies.cells import cells_of
from evenhand.studies.executor import Executor, carry_out
from evenhand.studies.ray_cluster import OnMachines, OnRay, cpus
from processes import finished, running, until
from ray_fixtures import Machines, connection, machines, played, results, same, second, settings
from tiny_studies import TINY, Here, ignore

__all__ = ["connection", "machines", "second", "settings"]


# Cells


def test_local_and_ray_can_be_mixed_and_a_cell_that_fails_stops_no_other(second: int, tmp_path: Path) -> None:
    assert isinstance(OnRay(), Executor)
    assert (cpus(), OnRay().processes) == (2, 2)
    cells = [cell for cell in cells_of(TINY) if cell.method in ("A2C", "random")]
    here, mixed = tmp_path / "here", tmp_path / "mixed"
    assert carry_out(cells, here, Here(), ignore, ignore) == []
    assert carry_out(cells[::2], mixed, Here(), ignore, ignore) == []
    broken = dataclasses.replace(cells[-1], request=dataclasses.replace(cells[-1].request, policy="nobody"))
    seen: list[Any] = []
    failures = carry_out([broken, *cells], mixed, OnRay(), seen.append, ignore)
    assert [(cell, "'nobody' is no policy" in why.said) for cell, why in failures] == [(broken, True)]
    assert sorted(content["cell"].name for content in seen if content["phase"] == "done") == sorted(
        cell.name for cell in cells[1::2]
    )
    assert results(cells, mixed) == results(cells, here)


def study(folder: Path, *more: str) -> list[str]:
    words = ["study", "species", "--algos", "a2c", "--welfare", "ggf", "--env", "response=strong", "episode_steps=20"]
    words += ["--steps", "64000", "--seeds", "1", "--episodes", "1", "--checkpoint-seconds", "0", "-o", str(folder)]
    return [*PROGRAM, *words, *more, "--set", "envs=2", "rollout=16", "hidden=[8]"]


@pytest.mark.slow
def test_ctrl_c_stops_at_a_checkpoint_and_this_machine_goes_on(machines: Machines, tmp_path: Path) -> None:
    with running(
        study(tmp_path, "--executor", "ray", "--address", machines.address), stderr=subprocess.STDOUT
    ) as process:
        until(lambda: list(tmp_path.glob("cells/*/seed-*/checkpoints/step-*")), process)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate()
    assert process.returncode == 130, out
    assert "the same command goes on" in out
    with running(study(tmp_path, "--jobs", "1")) as process:
        finished(process)
    (versions,) = tmp_path.glob("cells/*/versions.json")
    assert len(json.loads(versions.read_text())) == 2  # it was resumed, not begun anew


# Environments of one run


def test_environments_on_two_machines_give_the_same_numbers(second: int) -> None:
    env = resolve("CartPole-v1")
    here, _ = played(env, None)
    there, said = played(env, OnMachines)
    assert same(here, there)
    assert said == []


@pytest.mark.slow
def test_sumo_on_two_machines_feeds_one_learner(machines: Machines, second: int, tmp_path: Path) -> None:
    words = ["train", "traffic", "--env", "episode_seconds=140", "--steps", "32", "--seeds", "1", "--episodes", "0"]
    words += ["--set", "envs=2", "rollout=8", "minibatches=1", "epochs=1"]
    for name, more in (("here", []), ("there", ["--executor", "ray", "--address", machines.address])):
        ran = subprocess.run([*PROGRAM, *words, "-o", str(tmp_path / name), *more], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
    here, there = ((tmp_path / name / "seed-0" / "metrics.parquet").read_bytes() for name in ("here", "there"))
    assert here == there


# What is refused, and who may listen


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("study species --executor cloud", "there is no executor 'cloud'"),
        ("reproduce --address 10.0.0.1:6379", "add --executor ray"),
        ("tune species --executor ray --address 10.0.0.1:6379 --jobs 3", "--jobs is for this machine"),
        ("study species --executor ray --address ray://10.0.0.1", "--address takes HOST:PORT"),
        ("study species --executor ray --address 127.0.0.1:1", "nobody answers at 127.0.0.1:1"),
        ("train CartPole-v1 --address 127.0.0.1:1", "add --executor ray"),
        ("train CartPole-v1 --executor ray --address 127.0.0.1:1", "nobody answers at 127.0.0.1:1"),
    ],
)
def test_bad_input_gets_one_sentence_and_no_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(program(*words.split()))
    assert list(tmp_path.iterdir()) == []


def test_without_ray_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert "pip install 'evenhand[ray]'" in refused(program("study", "species", "--executor", "ray"))


@pytest.mark.slow
def test_a_compiled_environment_is_not_spread(machines: Machines, tmp_path: Path) -> None:
    words = [*PROGRAM, "train", "species", "--executor", "ray", "--address", machines.address, "-o", "run"]
    ran = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (ran.returncode, "evenhand study species --executor ray" in ran.stderr) == (2, True)
    assert list(tmp_path.iterdir()) == []


ALONE = """
import socket
from evenhand.studies.ray_cluster import connected, cpus
with connected(None, 1):
    import ray
    print(cpus(), ray.get_runtime_context().gcs_address)
    host, port = ray.get_runtime_context().gcs_address.rsplit(":", 1)
    socket.create_connection((host, int(port)), 5).close()
    outside = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        outside.connect(("192.0.2.1", 9))  # sends nothing, but tells which of our addresses others see
        socket.create_connection((outside.getsockname()[0], int(port)), 5).close()
    except OSError as error:
        print("from outside:", type(error).__name__)
"""


@pytest.mark.slow
def test_a_cluster_of_our_own_listens_to_this_machine_only(settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
    ran = subprocess.run([sys.executable, "-c", ALONE], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    first, second = ran.stdout.splitlines()
    assert first.startswith("1 127.0.0.1:")
    assert second in ("from outside: ConnectionRefusedError", "from outside: OSError")
