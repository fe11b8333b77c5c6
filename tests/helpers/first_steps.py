"""What a person does first with evenhand, as it is installed: train, evaluate, export, solve; in the current folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

import evenhand as eh

SMALL = ["--steps", "2560", "--seeds", "1", "--episodes", "1", "--set", "hidden=[8]"]


def evenhand(*words: str) -> str:
    """The program that was installed."""
    done = subprocess.run([Path(sys.executable).with_name("evenhand"), *words], capture_output=True, text=True)
    assert done.returncode == 0, f"evenhand {' '.join(words)}\n{done.stdout}{done.stderr}"
    return done.stdout


def main() -> None:
    assert Path(eh.__file__).is_relative_to(sys.prefix), f"{eh.__file__} is not what was installed"
    for algo in ("ppo", "a2c", "dqn"):
        evenhand("train", "species", "--env", "response=strong", "--algo", algo, *SMALL, "-o", algo)
    evenhand("train", "CartPole-v1", "--algo", "ppo", *SMALL, "-o", "cart")
    found = json.loads(evenhand("evaluate", "ppo", "--episodes", "2", "--json"))
    assert found["policies"][0]["name"] == "GGF-PPO"
    assert "GGF-A2C" in evenhand("compare", "ppo", "a2c", "--picture", "who.png")
    assert Path("who.png").stat().st_size > 10_000
    evenhand("export", "ppo", "policy.safetensors")
    assert load_file("policy.safetensors")
    assert eh.load("ppo")(np.zeros(11, np.float32)) in range(5)
    evenhand("model", "grid", "--side", "5", "--seed", "3", "-o", "grid.npz")
    fair = json.loads(evenhand("solve", "grid.npz", "--gamma", "0.9", "--json", "-o", "policy.npz"))["fair"]
    assert fair["status"] == "optimal"
    assert fair["gap"] < 1e-6
    print(f"evenhand {eh.__version__} trains, evaluates, exports and solves with Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
