"""Whole training runs: what they leave behind, what interrupts them, and what they refuse."""

import json
import shutil
import signal
import sys
from pathlib import Path

import gymnasium
import jax
import numpy as np
import pytest

import evenhand as eh
from evenhand.agents import names
from evenhand.evaluation.playing import TEST_SEED
from evenhand.runs import DiskFull, RunFolder
from evenhand.runs.hyperparameters import settings
from kills import after, learnt, resuming, saved, training
from processes import running, until

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")  # MO-Gymnasium's own

STRONG = {"response": "strong"}
TINY = {"envs": 4, "rollout": 16, "hidden": [8]}


def train_species(folder, **changes):
    asked = {"algo": "a2c", "welfare": "ggf", "steps": 2560, "settings": TINY, "arguments": STRONG, "episodes": 2}
    return eh.train("species", folder=folder, **(asked | changes))


def final_files(run, seed=0):
    """The bytes of what a seed has learnt and of its metrics."""
    (newest,) = sorted((run / f"seed-{seed}" / "checkpoints").glob("step-*"))[-1:]
    return (newest / "state.safetensors").read_bytes(), (run / f"seed-{seed}" / "metrics.parquet").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that came to its end, which nobody may change."""
    return train_species(tmp_path_factory.mktemp("whole") / "run", seeds=[3], checkpoint_seconds=0)


# What a person gets


def test_a_run_leaves_everything_behind(whole):
    run = whole
    asked = json.loads((run.path / "run.json").read_text())
    assert asked["env"] == "species"
    assert asked["arguments"] == STRONG
    assert asked["training"] == {"episode_steps": 200}
    assert asked["seeds"] == [3]
    assert asked["settings"]["hidden"] == [8]
    assert json.loads((run.path / "versions.json").read_text())[0]["packages"]["jax"] == jax.__version__
    assert list((run.path / "seed-3").glob("events.out.tfevents*"))
    table = run.metrics()
    assert table["step"].max() == 2560
    assert {"reward/otters", "reward/abalone", "J/otters", "weights/abalone", "entropy"} <= set(table.columns)
    (evaluation,) = run.evaluations().values()
    assert evaluation.episodes == 2
    assert (evaluation.length == 3650).all()
    again = eh.Evaluation.from_record(json.loads((run.path / "evaluations" / "seed-3.json").read_text()))
    np.testing.assert_array_equal(again.total, evaluation.total)


def test_a_loaded_policy_acts_on_observations(whole):
    policy = eh.load(whole.path)
    observation = np.zeros(11, np.float32)
    policy.seed(1)
    first = [policy(observation) for _ in range(30)]
    policy.seed(1)
    assert [policy(observation) for _ in range(30)] == first
    assert len(set(first)) > 1
    assert {policy(observation, deterministic=True) for _ in range(5)} <= set(range(5))
    assert policy(np.zeros((7, 11), np.float32)).shape == (7,)
    with pytest.raises(eh.InputError, match="vector of 11 numbers"):
        policy(np.zeros(3))
    with pytest.raises(eh.InputError, match="no seed 5"):
        eh.load(whole.path, seed=5)


def test_evaluations_reproduce_and_baselines_work():
    env = ("species", {"response": "strong", "episode_steps": 300})
    one, two = (eh.evaluate_policy(env[0], "random", episodes=4, arguments=env[1], seed=7) for _ in range(2))
    np.testing.assert_array_equal(one.total, two.total)
    other = eh.evaluate_policy(env[0], "random", episodes=4, arguments=env[1], seed=8)
    assert not np.array_equal(one.total, other.total)
    nothing = eh.evaluate_policy(env[0], 0, episodes=4, arguments=env[1])
    np.testing.assert_array_equal(nothing.total[:, 0], 0)  # nobody introduces otters
    assert nothing.name == "always 0"
    assert nothing.natural_measure == "average"
    np.testing.assert_allclose(nothing.returns(), nothing.total.mean(0) / 300)
    summary = nothing.summary(eh.GGF.geometric(2))
    assert summary["welfare"] == pytest.approx(nothing.returns()[1] / 3)
    assert summary["cv"] == pytest.approx(1.0)
    with pytest.raises(eh.InputError, match="no action 9"):
        eh.evaluate_policy(env[0], 9)
    with pytest.raises(eh.InputError, match="no policy"):
        eh.evaluate_policy(env[0], "greedy")


def test_a_function_is_a_policy_and_the_discount_is_right():
    evaluation = eh.evaluate_policy("CartPole-v1", lambda observation: int(observation[2] > 0), episodes=3, gamma=0.9)
    length = evaluation.length
    np.testing.assert_allclose(evaluation.total[:, 0], length)
    np.testing.assert_allclose(evaluation.discounted[:, 0], 1 - 0.9**length)
    assert evaluation.natural_measure == "return"
    assert evaluation.terminated.all()


def test_test_episodes_are_no_training_episodes():
    assert TEST_SEED > 2**30


def test_dqn_refuses_numbers_as_actions(tmp_path):
    with pytest.raises(eh.InputError, match="continuous: use ppo or a2c"):
        eh.train("Pendulum-v1", "dqn", folder=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("env", "algo"), [("CartPole-v1", "ppo"), ("deep-sea-treasure-v0", "dqn"), ("Pendulum-v1", "a2c")]
)
def test_other_peoples_environments(tmp_path, env, algo):
    changes = {"hidden": [8]} | ({} if algo == "dqn" else {"envs": 2, "rollout": 16})
    run = eh.train(env, algo, steps=128, settings=changes, folder=tmp_path / "run", episodes=1)
    policy = eh.load(run.path)
    made = gymnasium.make(env) if env != "deep-sea-treasure-v0" else policy.env.make()
    observation, _ = made.reset(seed=0)
    assert made.action_space.contains(policy(observation))
    made.close()
    assert run.evaluations()[0].episodes == 1


class Corridor(gymnasium.Env):
    """An environment made by a Python program: two users, one served at a time."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    reward_space = gymnasium.spaces.Box(0, 1, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1, np.float32), np.eye(2, dtype=np.float32)[action], False, self.t == 20, {}


def test_an_environment_from_python(tmp_path):
    small = {"envs": 4, "rollout": 50, "hidden": [16]}
    run = eh.train(Corridor, steps=20_000, settings=small, folder=tmp_path / "run", episodes=20)
    assert run.evaluations()[0].summary(run.welfare)["cv"] < 0.3
    with pytest.raises(eh.InputError, match="only its Python program can make"):
        eh.load(run.path)
    assert eh.load(run.path, env=Corridor)(np.zeros(1, np.float32)) in (0, 1)
    assert eh.resume(run.path, env=Corridor).evaluations()


# What interrupts them


IGNORING = "import os, signal, sys; signal.signal(2, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"


def interrupted(process, run):
    """Press Ctrl-C when something new was saved of the first seed."""
    there = saved(run)
    until(lambda: any(path.match("seed-0/*/*") for path in saved(run) - there), process)
    process.send_signal(signal.SIGINT)


@pytest.mark.slow
def test_interrupted_and_killed_it_goes_on_to_the_same_end(tmp_path):
    """Seeds side by side and one after another. `make soak` kills a hundred times, at random, every algorithm."""
    run, steps = tmp_path / "run", 102_400
    alone = train_species(tmp_path / "alone", steps=steps, seeds=2)
    stopped = [training(run, steps=steps, seeds=2, jobs=2), resuming(run)]
    before = 0
    for command in stopped:  # Ctrl-C stops at a checkpoint
        with running(command) as process:
            interrupted(process, run)
            _, err = process.communicate()
        assert process.returncode != 0
        assert "KeyboardInterrupt" in err
        assert before < RunFolder.open(run).progress(0).step < steps
        before = RunFolder.open(run).progress(0).step
    # A shell starts what runs in the background like this: Ctrl-C is meant for another program.
    with running([sys.executable, "-c", IGNORING, *resuming(run)]) as process:
        interrupted(process, run)
        assert after(saves=3)(process, run)
    assert not RunFolder.open(run).finished(0)
    eh.resume(run)
    assert learnt(run) == learnt(alone.path)
    assert final_files(run, 0) != final_files(run, 1)


@pytest.mark.slow
def test_a_second_process_is_refused(tmp_path):
    run = tmp_path / "run"
    with running(training(run, steps=50_000_000)) as process:
        until((run / "seed-0").exists, process)
        with pytest.raises(eh.InputError, match=f"being trained by process {process.pid}"):
            eh.resume(run)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(whole, tmp_path):
    run = Path(shutil.copytree(whole.path, tmp_path / "run"))
    older, newest = sorted((run / "seed-3" / "checkpoints").glob("step-*"))
    assert older.name < newest.name
    state = newest / "state.safetensors"
    state.write_bytes(state.read_bytes()[:-5])
    (run / "evaluations" / "seed-3.json").unlink()
    eh.resume(run)
    assert "is damaged" in (run / "log.txt").read_text()
    assert final_files(run, 3) == final_files(whole.path, 3)


def test_a_full_disk_is_named_and_nothing_is_lost(whole, tmp_path, monkeypatch):
    import evenhand.runs.trainer as training

    save, saved = training.save_checkpoint, []

    def full_from_the_third_on(*arguments, **more):
        saved.append(arguments[1])
        if len(saved) == 3:
            raise DiskFull("there is no room")
        return save(*arguments, **more)

    monkeypatch.setattr(training, "save_checkpoint", full_from_the_third_on)
    with pytest.raises(DiskFull):
        train_species(tmp_path / "run", seeds=[3], checkpoint_seconds=0)
    monkeypatch.undo()
    eh.resume(tmp_path / "run")
    assert final_files(tmp_path / "run", 3) == final_files(whole.path, 3)


def test_a_finished_run_is_left_as_it_is(whole):
    run = whole
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.name not in ("lock",)}
    eh.resume(run.path)
    assert before == {path: path.stat().st_mtime_ns for path in run.path.rglob("*") if path.name not in ("lock",)}
    with pytest.raises(eh.InputError, match="evenhand resume"):
        train_species(run.path)


# What they refuse, before anything is made


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algo": "pqo"}, "did you mean ppo"),
        ({"welfare": "gfg"}, "ggf"),
        ({"welfare": eh.GGF([0.5, 0.3, 0.2])}, "2 users .otters, abalone., but the welfare is for 3"),
        ({"welfare": "ggf:0.5,0.3,0.2"}, "2"),
        ({"settings": {"learning_rat": 1.0}}, "did you mean learning_rate"),
        ({"settings": {"learning_rate": "fast"}}, "learning_rate must be a number"),
        ({"settings": {"learning_rate": -1}}, "learning_rate must be positive"),
        ({"settings": {"gamma": 1.0}}, "gamma must lie in"),
        ({"settings": {"gamma": float("nan")}}, "gamma must be a number"),
        ({"settings": {"envs": 2.5}}, "envs must be a whole number"),
        ({"settings": {"hidden": [8, -1]}}, "hidden must be a list of positive whole numbers"),
        ({"settings": {"activation": "tahn"}}, "did you mean tanh"),
        ({"algo": "ppo", "settings": {"minibatches": 7}}, "cannot be divided"),
        ({"algo": "dqn", "settings": {"batch": 100, "memory": 50}}, "batch of 100"),
        ({"algo": "dqn", "settings": {"learning_starts": 100, "memory": 90}}, "learning starts"),
        ({"steps": 10, "settings": {}}, "fewer than a2c takes"),
        ({"steps": 0.5}, "whole number"),
        ({"seeds": 0}, "at least one seed"),
        ({"seeds": [1, 1]}, "different"),
        ({"preset": "papper"}, "did you mean paper"),
        ({"arguments": {"respones": "strong"}}, "response"),
        ({"arguments": {"response": "strnog"}}, "strong"),
        ({"workers": 2}, "needs no worker processes"),
    ],
)
def test_refusals(tmp_path, changes, message):
    with pytest.raises(eh.InputError, match=message):
        train_species(tmp_path / "run", **changes)
    assert not (tmp_path / "run").exists()


def test_unknown_environments(tmp_path):
    with pytest.raises(eh.InputError, match="did you mean species"):
        eh.train("speceis", folder=tmp_path / "run")
    with pytest.raises(eh.InputError, match="cannot be imported"):
        eh.train("no_such_module:thing-v0", folder=tmp_path / "run")


def test_rewards_that_are_no_numbers_are_named(tmp_path):
    class Broken(Corridor):
        def step(self, action):
            observation, reward, *rest = super().step(action)
            return observation, reward * (np.nan if self.t == 13 else 1), *rest

    with pytest.raises(eh.InputError, match=r"step 13\b"):
        eh.train(Broken, "a2c", steps=400, settings={"envs": 2, "rollout": 50}, folder=tmp_path / "run")


# Presets


@pytest.mark.parametrize("preset", ["tuned", "paper"])
@pytest.mark.parametrize("environment", ["species", "traffic", "datacenter", "CartPole-v1"])
@pytest.mark.parametrize("algo", names())
@pytest.mark.parametrize("fair", [False, True])
def test_every_preset_can_be_built(preset, environment, algo, fair):
    if preset == "paper" and (environment == "CartPole-v1" or (environment, algo) == ("datacenter", "dqn")):
        with pytest.raises(eh.InputError, match="has no settings"):
            settings(algo, environment, fair, preset)
    else:
        assert settings(algo, environment, fair, preset).steps > 0


def test_the_papers_tables():
    """Some numbers of each table, base against GGF version."""

    def of(algo, environment, fair):
        return settings(algo, environment, fair, "paper").config

    assert [of("ppo", e, False).learning_rate for e in ("species", "traffic", "datacenter")] == [1e-3, 5e-4, 1e-4]
    assert [of("ppo", e, True).learning_rate for e in ("species", "traffic", "datacenter")] == [5e-5, 5e-4, 5e-5]
    assert [of("ppo", e, True).clip for e in ("species", "traffic", "datacenter")] == [0.1, 0.2, 0.5]
    assert [of("ppo", e, True).envs for e in ("species", "traffic", "datacenter")] == [10, 10, 1]
    assert [of("a2c", e, False).rollout for e in ("species", "traffic", "datacenter")] == [10, 5, 5]
    assert [of("a2c", e, True).rollout for e in ("species", "traffic", "datacenter")] == [30, 30, 30]
    assert [of("a2c", e, True).learning_rate for e in ("species", "traffic", "datacenter")] == [1e-4, 1e-4, 5e-4]
    assert [of("dqn", e, False).learning_rate for e in ("species", "traffic")] == [1e-4, 5e-4]
    assert [of("dqn", e, True).learning_rate for e in ("species", "traffic")] == [5e-3, 5e-4]
    assert [of("dqn", e, False).batch for e in ("species", "traffic")] == [64, 128]
    assert of("dqn", "species", True).batch == 128
    assert of("dqn", "species", True).output_activation == "relu"
    assert Path(eh.__file__).with_name("presets").joinpath("paper.toml").exists()
