"""Stable-Baselines3's side of `learning.py`: one case as JSON on standard input, its result as JSON on standard output.

Runs in .venv-peers, where evenhand is not installed: everything it has to know comes with the case.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any


def main() -> None:
    case = json.load(sys.stdin)
    if case["cores"]:
        os.sched_setaffinity(0, case["cores"])  # before any library starts its threads
    import torch

    torch.set_num_threads(1)
    job = {"speed": speed, "quality": quality, "versions": versions}[case["job"]]
    print(json.dumps(job(case)))


def speed(case: dict[str, Any]) -> dict[str, float]:
    """Learn a little, so that everything has begun, and then measure."""
    model = made(case, monitored=False)
    model.learn(case["first"])
    since_start, cpu_since_start = time.time() - case["began"], time.process_time()
    model.learn(case["warm_up"], reset_num_timesteps=False)
    wall, cpu = time.perf_counter(), time.process_time()
    before = model.num_timesteps
    model.learn(case["steps"], reset_num_timesteps=False)
    wall, cpu, steps = time.perf_counter() - wall, time.process_time() - cpu, model.num_timesteps - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "steps": steps,
        "wall": wall,
        "cpu": cpu,
        "memory": memory,
        "start_wall": since_start,
        "start_cpu": cpu_since_start,
    }


def quality(case: dict[str, Any]) -> dict[str, float]:
    """The mean return of the last tenth of the training, and of test episodes with the most probable actions."""
    import numpy as np
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.vec_env import VecNormalize

    class Returns(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.ended: list[tuple[int, float]] = []

        def _on_step(self) -> bool:
            for info in self.locals["infos"]:
                if "episode" in info:
                    self.ended.append((self.num_timesteps, float(info["episode"]["r"])))
            return True

    model, returns = made(case, monitored=True), Returns()
    model.learn(case["steps"], callback=returns)
    last = [value for step, value in returns.ended if step > 0.9 * model.num_timesteps]
    normalised = model.get_env()
    env, totals = make_env(case)(), []
    for seed in case["test_seeds"]:
        observation, total, ended = env.reset(seed=seed)[0], 0.0, False
        while not ended:
            if isinstance(normalised, VecNormalize):
                observation = normalised.normalize_obs(observation)
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, ended = total + float(reward), terminated or truncated
        totals.append(total)
    return {"training": float(np.mean(last)) if last else float("nan"), "test": float(np.mean(totals))}


def versions(case: dict[str, Any]) -> dict[str, str]:
    import gymnasium
    import stable_baselines3
    import torch

    return {
        "Stable-Baselines3": stable_baselines3.__version__,
        "PyTorch": torch.__version__,
        "Gymnasium": gymnasium.__version__,
    }


def make_env(case: dict[str, Any]) -> Callable[[], Any]:
    """What makes one environment."""
    import gymnasium

    def make() -> Any:
        if case["env"] == "species":
            from species_numpy import SpeciesNumpy

            return SpeciesNumpy(case["constants"])
        env = gymnasium.make(case["env"])
        if isinstance(env.action_space, gymnasium.spaces.Box):
            env = gymnasium.wrappers.RescaleAction(env, -1.0, 1.0)  # as evenhand's policies see actions
        return env

    return make


def made(case: dict[str, Any], monitored: bool) -> Any:
    """The learner with its environments."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    given = dict(case["settings"])
    envs, normalise, network = given.pop("n_envs"), given.pop("normalise"), given.pop("policy_kwargs")
    network["activation_fn"] = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[network["activation_fn"]]
    for name in given.pop("falling"):
        given[name] = falling(given[name])
    make = make_env(case)
    vector: Any = DummyVecEnv([lambda: Monitor(make()) if monitored else make()] * envs)
    if normalise["norm_obs"] or normalise["norm_reward"]:
        vector = VecNormalize(vector, gamma=given["gamma"], **normalise)
    learner = getattr(stable_baselines3, case["algo"].upper())
    return learner("MlpPolicy", vector, policy_kwargs=network, seed=case["seed"], device="cpu", verbose=0, **given)


def falling(start: float) -> Callable[[float], float]:
    """Linearly to 0 with the share of the training that remains."""
    return lambda remaining: start * remaining


if __name__ == "__main__":
    main()
