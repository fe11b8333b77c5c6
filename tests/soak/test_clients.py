"""MORL-Baselines and Stable-Baselines3, as they are, learn on evenhand's environments; and the benchmarks' peers run.

They live in .venv-peers, which `make soak` sets up, and run in processes of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import exact
import learning
import morl

TESTS = Path(__file__).parents[1]
PEERS = TESTS.parent / ".venv-peers" / "bin" / "python"
STEPS = 512
"""Two updates of 256 each."""

pytestmark = pytest.mark.skipif(
    "CI" not in os.environ and not PEERS.exists(), reason="no .venv-peers: `make soak` makes it"
)


@pytest.mark.parametrize(("env", "users"), [("species", 2), ("traffic", 4), ("datacenter", 16)])
@pytest.mark.parametrize("library", ["morl", "sb3"])
def test_other_libraries_train_on_our_environments(library: str, env: str, users: int) -> None:
    command = [str(PEERS), str(TESTS / "helpers" / "clients.py"), library, env, str(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    # MO-Gymnasium's vector environments spend a step on each reset.
    assert 0.95 * STEPS <= found["steps"] <= STEPS
    assert found["wrong"] == 0
    assert found["users"] == users
    assert found["moved"] > 1e-3


@pytest.mark.parametrize(
    ("peer", "env", "algo"),
    [
        ("sb3", "mo-mountaincar-v0", "a2c"),
        ("sbx", "species", "ppo"),
        ("sbx", "CartPole-v1", "dqn"),
        ("cleanrl", "species", "ppo"),
        ("cleanrl", "CartPole-v1", "a2c"),
        ("cleanrl", "mo-mountaincar-v0", "dqn"),
        ("morl", "species", "ppo"),
        ("morl", "mo-mountaincar-v0", "ppo"),
    ],
)
def test_peers_of_the_benchmark_learn_as_long_as_they_are_told(peer: str, env: str, algo: str) -> None:
    settings = (learning.SPECIES if env == "species" else learning.CARTPOLE)[algo]
    case = learning.speed_case(env, algo, settings, 0.0) | {"cores": [], "warm_up": 1200, "steps": 500}
    found = learning.run(peer, case)
    assert 500 <= found["steps"] < 500 + settings["envs"] * settings["rollout"]
    assert found["taken"] >= 1200
    assert 0 < found["start_wall"] < found["before"]
    assert (found["compile"] > 0) == (peer == "sbx")


@pytest.mark.parametrize("side", ["evenhand", "sb3"])
def test_several_seeds_are_learnt_in_one_process(side: str) -> None:
    """Each as if it were alone, and no two alike."""
    [settings] = [settings for env, algo, _, settings in learning.QUALITY if (env, algo) == ("Pendulum-v1", "a2c")]
    case = {"job": "quality", "env": "Pendulum-v1", "algo": "a2c", "steps": 4096}
    case |= {"settings": learning.configured("a2c", settings)}
    both = learning.run(side, case | {"tests": [(0, [7, 8]), (1, [7, 8])]})
    alone = learning.run(side, case | {"tests": [(1, [7, 8])]})
    for fact in ("training", "test"):
        assert both[fact][1:] == alone[fact]
        assert both[fact][0] != both[fact][1]


@pytest.mark.parametrize("method", ["nlmoppo", "eupg", "lcn"])
def test_what_morl_baselines_learns_is_tested(method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A submarine that is at most 100 steps under way, with treasures of up to 124."""
    monkeypatch.setattr(morl, "EPISODES", 2)
    [(treasure, time)] = morl.returns("deep-sea-treasure-v0", method, [0], 0.1, str(tmp_path))
    assert 0 <= treasure <= 124
    assert -64 <= time <= -0.99  # Σ 0.99ᵗ of 100 steps


def test_quantecon_finds_the_same_optimum() -> None:
    case: dict[str, Any] = {"kind": "garnet", "states": 200, "objectives": 1}
    ours, theirs = (exact.measure(exact.Case(**case, solver=solver)) for solver in ("evenhand", "quantecon"))
    assert theirs["welfare"] == pytest.approx(ours["welfare"], abs=1e-6)
