"""Other libraries train on evenhand's environments: `python clients.py LIBRARY ENVIRONMENT STEPS`, in .venv-peers.

They know nothing of evenhand, and evenhand nothing of them: both know Gymnasium and MO-Gymnasium. Prints, as JSON, how
many steps were taken, whether all of them lay in the spaces, and how far the networks' parameters moved.
"""

import json
import sys
import time
from typing import Any

import gymnasium
import mo_gymnasium
import numpy as np
import torch
from mo_gymnasium.wrappers import LinearReward
from mo_gymnasium.wrappers.vector import MOSyncVectorEnv
from morl_baselines.single_policy.ser.mo_ppo import MOPPO, MOPPONet
from morl_baselines.single_policy.ser.nl_mo_ppo import NLMOPPO
from stable_baselines3 import A2C, PPO

import evenhand

SHORT = {"species": {"episode_steps": 200}, "traffic": {"episode_seconds": 1200}, "datacenter": {}}
"""Episodes that end a few times in so few steps."""


class Counted(gymnasium.Wrapper):
    """Counts steps and looks at what they lead to; rewards are seen before anyone weighs them."""

    steps = 0
    wrong = 0
    total: Any = 0.0

    def step(self, action: Any) -> Any:
        observation, reward, *rest = self.env.step(action)
        self.steps += 1
        self.total = self.total + reward
        own = self.env.unwrapped
        self.wrong += observation not in own.observation_space or reward not in own.reward_space
        return observation, reward, *rest


def made(name: str) -> Any:
    return Counted(mo_gymnasium.make(f"evenhand/{name}-v0", **SHORT[name]))


def morl(name: str, steps: int) -> tuple[list[Any], torch.nn.Module, Any]:
    """MORL-Baselines: PPO for a utility that is not linear, here a GGF; for continuous actions, the linear one."""
    several = 1 if name == "traffic" else 2  # a process holds only one SUMO
    continuous = name == "datacenter"
    # A Gaussian policy knows no bounds; MORL-Baselines clips its actions by the same wrapper.
    envs = MOSyncVectorEnv([lambda: gymnasium.wrappers.ClipAction(made(name)) if continuous else made(name)] * several)
    D = envs.envs[0].unwrapped.reward_dim
    if not continuous:
        weights = torch.tensor(evenhand.GGF.geometric(D).weights, dtype=torch.float32)
        learner = NLMOPPO(0, envs, total_timesteps=steps, num_steps=256 // several, seed=0, device="cpu")
        network, before = learner.agent, parameters(learner.agent)
        # It tests what it has learnt over a hundred episodes: short ones, without another SUMO.
        brief = gymnasium.wrappers.TimeLimit(
            mo_gymnasium.make("evenhand/traffic-standin-v0" if name == "traffic" else f"evenhand/{name}-v0"), 2
        )
        learner.train(brief, lambda v: torch.sort(v).values @ weights)
    else:
        shapes = envs.single_observation_space.shape, envs.single_action_space.shape
        network = MOPPONet(*shapes, D, [64, 64])
        before = parameters(network)
        even = np.full(D, 1 / D, np.float32)
        learner = MOPPO(0, network, even, envs, log=False, steps_per_iteration=256 // several, seed=0, device="cpu")
        for k in range(steps // 256):
            learner.train(time.time(), k + 1, steps // 256)
    return list(envs.envs), network, before


def sb3(name: str, steps: int) -> tuple[list[Any], torch.nn.Module, Any]:
    """Stable-Baselines3, which learns from one number: a weighted sum, by MO-Gymnasium's own wrapper."""
    env = made(name)
    D = env.unwrapped.reward_dim
    learner = {"species": PPO, "traffic": A2C, "datacenter": PPO}[name](
        "MlpPolicy", LinearReward(env, np.full(D, 1 / D)), n_steps=256, seed=0, device="cpu"
    )
    before = parameters(learner.policy)
    learner.learn(steps)
    return [env], learner.policy, before


def parameters(network: torch.nn.Module) -> torch.Tensor:
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach().clone()


def main() -> None:
    library, name, asked = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    envs, network, before = {"morl": morl, "sb3": sb3}[library](name, int(asked))
    moved = (parameters(network) - before).abs().max().item()
    steps, wrong = (sum(env.get_wrapper_attr(what) for env in envs) for what in ("steps", "wrong"))
    users = len(envs[0].get_wrapper_attr("total"))
    print(json.dumps({"steps": steps, "wrong": wrong, "moved": moved, "users": users}))


if __name__ == "__main__":
    main()
