"""The file that `export` writes, run by the very script of docs/deploy.md where JAX and evenhand are out of reach."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from scipy.stats import ks_2samp

import evenhand as eh
from evenhand import cli
from evenhand.envs.gym.host_env import HostEnv

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")

SMALL = {"envs": 2, "rollout": 64, "hidden": (16, 8)}
NORMALISED = {"normalise_observations": True}
DQN = {"learning_starts": 64}
SCRIPT = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[2] / "docs" / "deploy.md").read_text(), re.S)[0]
ALONE = """
import sys
for name in ("jax", "jaxlib", "evenhand", "safetensors"):
    sys.modules[name] = None  # importing it is an error
{script}
observations = json.load(sys.stdin)
reset()
certain = [np.asarray(act(np.array(o), noise=0)).tolist() for o in observations]
drawn = [np.asarray(act(np.array(observations[0]))).tolist() for _ in range({draws})]
print(json.dumps([certain, drawn]))
"""


class Parts(gymnasium.Env[Any, Any]):
    """A switch and a lever, seen as an image; two users."""

    observation_space = gymnasium.spaces.Box(0, 255, (2, 3), np.uint8)
    action_space = gymnasium.spaces.MultiDiscrete([2, 3], start=[0, -1])
    reward_space = gymnasium.spaces.Box(-1, 1, (2,))

    def reset(self, **given: Any) -> Any:
        super().reset(**given)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), np.float32(action), False, self.np_random.random() < 0.1, {}


def alone(file: Path, observations: Any, draws: int = 0) -> tuple[Any, Any]:
    """What the script does with these observations: the most probable actions, and draws for the first of them."""
    program = ALONE.format(script=SCRIPT.replace('"policy.safetensors"', repr(str(file))), draws=draws)
    told = json.dumps(np.asarray(observations, float).tolist())
    done = subprocess.run([sys.executable, "-c", program], input=told, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    certain, drawn = json.loads(done.stdout)
    return np.array(certain), np.array(drawn)


def trained(folder: Path, env: Any, algo: str, settings: dict[str, Any], welfare: str = "ggf", **more: Any) -> eh.Run:
    """A run that is long enough for all its numbers to have changed."""
    return eh.train(env, algo, welfare, 256, settings=SMALL | settings, folder=folder, episodes=0, **more)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], eh.Run]:
    """Runs by name, each trained when it is asked for the first time."""
    fast = NORMALISED | {"learning_rate": 0.03, "minibatches": 2, "epochs": 2}
    settings: dict[str, Any] = {
        "species ppo": ("species", "ppo", fast, "ggf", [3, 5]),
        "datacenter a2c": ("datacenter", "a2c", {}, "ggf", 1),
        "species dqn": ("species", "dqn", NORMALISED | DQN | {"output_activation": "relu"}, "leximin", 1),
        "Pendulum ppo": ("Pendulum-v1", "ppo", fast | {"activation": "relu"}, "ggf", 1),
        "Parts dqn": (Parts, "dqn", DQN, "ggf", 1),
    }

    @functools.cache
    def run(name: str) -> eh.Run:
        env, algo, more, welfare, seeds = settings[name]
        return trained(tmp_path_factory.mktemp("runs") / "run", env, algo, more, welfare, seeds=seeds, jobs=1)

    return run


def test_the_script_is_twenty_lines_of_numpy() -> None:
    assert len([line for line in SCRIPT.splitlines() if line.strip()]) <= 20
    assert set(re.findall(r"^(?:import|from) (\w+)", SCRIPT, re.M)) == {"json", "numpy"}


@pytest.mark.parametrize("name", ["species ppo", "datacenter a2c", "species dqn", "Pendulum ppo"])
def test_the_script_acts_as_evenhand_does(runs: Callable[[str], eh.Run], tmp_path: Path, name: str) -> None:
    run = runs(name)
    file = run.export(tmp_path / "policy.safetensors")
    policy = run.policy()
    observations = np.random.default_rng(0).normal(0, 3, (200, policy.task.observation_size)).astype(np.float32)
    observations[0] *= 1e4  # beyond where normalised ones are cut off
    certain, _ = alone(file, observations)
    ours = policy(observations, deterministic=True)
    if isinstance(policy.env, HostEnv):
        ours = np.array([policy.env.native_action(action) for action in ours])
    assert len(np.unique(ours)) > 1
    if ours.dtype.kind == "f":
        np.testing.assert_allclose(certain, ours, rtol=1e-5, atol=1e-5)
    else:
        np.testing.assert_array_equal(certain, ours)


def test_actions_of_several_parts_and_images(runs: Callable[[str], eh.Run], tmp_path: Path) -> None:
    """Combinations come out as the environment knows them; bytes go in as numbers from 0 to 1."""
    run = runs("Parts dqn")
    file = run.export(tmp_path / "policy.safetensors")
    images = np.random.default_rng(0).integers(0, 256, (50, 2, 3), np.uint8)
    certain, _ = alone(file, images / 255)
    policy = run.policy()
    np.testing.assert_array_equal(certain, [policy(image, deterministic=True) for image in images])
    assert all(Parts.action_space.contains(action) for action in certain)


@pytest.mark.parametrize("name", ["species ppo", "Pendulum ppo"])
def test_draws_have_the_policys_distribution(runs: Callable[[str], eh.Run], tmp_path: Path, name: str) -> None:
    run = runs(name)
    file = run.export(tmp_path / "policy.safetensors")
    policy = run.policy()
    observation = np.random.default_rng(0).normal(size=(1, policy.task.observation_size)).astype(np.float32)
    _, theirs = alone(file, observation, draws=4000)
    ours = policy(np.repeat(observation, 4000, axis=0))
    assert len(np.unique(ours)) > 1
    assert ks_2samp(np.ravel(theirs), np.ravel(ours)).pvalue > 1e-6  # the script draws anew each time


def test_the_file_says_where_it_comes_from_and_is_the_same_each_time(
    runs: Callable[[str], eh.Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runs("species ppo")
    files = [run.export(tmp_path / name, seed) for name, seed in (("a", None), ("b", 3), ("c", 5))]
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()
    data = files[2].read_bytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    about = json.loads(header["__metadata__"]["policy"])
    assert about["version"] == 1
    assert (about["environment"], about["steps"], about["name"]) == ("species", 256, "GGF-PPO seed 5")
    assert (about["algorithm"], about["welfare"], len(about["objectives"])) == ("ppo", "ggf:2", 2)

    file = tmp_path / "policy.safetensors"
    assert cli.main(["export", str(run.path), str(file), "--policy-seed", "5"]) == 0
    assert f"Wrote {file}: GGF-PPO for species, seed 5." in capsys.readouterr().out
    assert file.read_bytes() == data
    assert cli.main(["export", str(run.path), str(tmp_path / "nowhere" / "p")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert cli.main(["export", str(run.path), str(file), "--policy-seed", "7"]) == 2
    assert "has no seed 7" in capsys.readouterr().err
