"""Stable-Baselines3's side of `learning.py` (see peer.py)."""

import copy
from typing import Any

from peer import falling, make_env, serve, timed


def speed(case: dict[str, Any]) -> dict[str, float]:
    model = made(case, monitored=False)

    def learn(steps: int) -> int:
        before = model.num_timesteps
        model.learn(steps, reset_num_timesteps=before == 0)
        return model.num_timesteps - before

    return timed(case, learn)


def quality(case: dict[str, Any]) -> dict[str, list[float]]:
    """What each seed learns."""
    learnt = [learnt_by(case | {"seed": seed, "test_seeds": tests}) for seed, tests in case["tests"]]
    return {fact: [found[fact] for found in learnt] for fact in ("training", "test")}


def learnt_by(case: dict[str, Any]) -> dict[str, float]:
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
    from importlib.metadata import version

    names = {"Stable-Baselines3": "stable-baselines3", "SBX": "sbx-rl", "MORL-Baselines": "morl-baselines"}
    names |= {"PyTorch": "torch", "Gymnasium": "gymnasium", "MO-Gymnasium": "mo-gymnasium"}
    return {name: version(package) for name, package in names.items()}


def made(case: dict[str, Any], monitored: bool) -> Any:
    """The learner with its environments."""
    import stable_baselines3
    import torch
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    given = copy.deepcopy(case["settings"])  # for the next seed
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


if __name__ == "__main__":
    serve({"speed": speed, "quality": quality, "versions": versions})
