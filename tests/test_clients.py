"""MORL-Baselines and Stable-Baselines3, as they are, learn on evenhand's environments.

They live in .venv-peers, which `make test` sets up, and run in processes of their own (clients.py).
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
STEPS = 2048

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("CI" not in os.environ and not PEERS.exists(), reason="no .venv-peers: `make test` makes it"),
]


@pytest.mark.parametrize(("env", "users"), [("species", 2), ("traffic", 4), ("datacenter", 16)])
@pytest.mark.parametrize("library", ["morl", "sb3"])
def test_other_libraries_train_on_our_environments(library: str, env: str, users: int) -> None:
    command = [str(PEERS), str(HERE / "clients.py"), library, env, str(STEPS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    # MO-Gymnasium's vector environments spend a step on each reset.
    assert 0.95 * STEPS <= found["steps"] <= STEPS
    assert found["wrong"] == 0
    assert found["users"] == users
    assert found["moved"] > 1e-3
