"""Plain PyTorch, in the manner of CleanRL: each algorithm one loop that reads from top to bottom (see peer.py).

Our own lines, with what CleanRL does: synchronous Gymnasium environments, no bootstrapping beyond a time limit. A2C is
the case of one pass over everything, without clipping. Settings have evenhand's names.
"""

import itertools
import random
from collections.abc import Iterator
from typing import Any

from peer import make_env, serve, timed


def speed(case: dict[str, Any]) -> dict[str, float]:
    loop = (dqn if case["algo"] == "dqn" else actor_critic)(case)

    def learn(steps: int) -> int:
        taken = 0
        while taken < steps:
            taken += next(loop)
        return taken

    return timed(case, learn)


def vectorised(case: dict[str, Any]) -> Any:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    return SyncVectorEnv(
        [make_env(case)] * case["settings"]["envs"], copy=False, autoreset_mode=AutoresetMode.SAME_STEP
    )


def perceptron(sizes: list[int], activation: str, last_gain: float | None) -> Any:
    """Orthogonal where the last layer's gain is given, else as PyTorch draws it."""
    from torch import nn

    layers: list[Any] = []
    for k, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        layer = nn.Linear(fan_in, fan_out)
        if last_gain is not None:
            nn.init.orthogonal_(layer.weight, last_gain if k == len(sizes) - 2 else 2**0.5)
            nn.init.zeros_(layer.bias)
        layers += [layer, {"tanh": nn.Tanh, "relu": nn.ReLU}[activation]()]
    return nn.Sequential(*layers[:-1])


def actor_critic(case: dict[str, Any]) -> Iterator[int]:
    """PPO and A2C; yields the steps of each update."""
    import torch
    from torch.distributions import Categorical

    s, clipped = case["settings"], case["algo"] == "ppo"
    torch.manual_seed(case["seed"])
    envs = vectorised(case)
    T, N, O = s["rollout"], s["envs"], envs.single_observation_space.shape[0]  # noqa: E741
    actor = perceptron([O, *s["hidden"], int(envs.single_action_space.n)], s["activation"], 0.01)
    critic = perceptron([O, *s["hidden"], 1], s["activation"], 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    if clipped:
        optimiser: Any = torch.optim.Adam(parameters, s["learning_rate"], eps=s["adam_epsilon"])
    else:
        optimiser = torch.optim.RMSprop(parameters, s["learning_rate"], s["rmsprop_decay"], s["rmsprop_epsilon"] ** 0.5)
    epochs, minibatches = (s["epochs"], s["minibatches"]) if clipped else (1, 1)
    observations, actions = torch.zeros(T, N, O), torch.zeros(T, N, dtype=torch.long)
    log_probs, rewards, ends, values = (torch.zeros(T, N) for _ in range(4))
    now = torch.as_tensor(envs.reset(seed=case["seed"])[0], dtype=torch.float32)
    while True:
        for t in range(T):
            observations[t] = now
            with torch.no_grad():
                pi = Categorical(logits=actor(now))
                actions[t] = pi.sample()
                log_probs[t], values[t] = pi.log_prob(actions[t]), critic(now)[:, 0]
            observation, reward, terminated, truncated, _ = envs.step(actions[t].numpy())
            now = torch.as_tensor(observation, dtype=torch.float32)
            rewards[t], ends[t] = torch.as_tensor(reward), torch.as_tensor(terminated | truncated)

        with torch.no_grad():
            advantages, following, ahead = torch.zeros(T, N), critic(now)[:, 0], torch.zeros(N)
            for t in reversed(range(T)):
                goes_on = s["gamma"] * (1 - ends[t])
                ahead = rewards[t] + goes_on * following - values[t] + s["gae_lambda"] * goes_on * ahead
                advantages[t], following = ahead, values[t]
        targets = (advantages + values).reshape(-1)
        x, a, old, advantage = (part.flatten(0, 1) for part in (observations, actions, log_probs, advantages))

        for _ in range(epochs):
            for some in torch.randperm(T * N).chunk(minibatches):
                pi = Categorical(logits=actor(x[some]))
                log_prob, A = pi.log_prob(a[some]), advantage[some]
                if s["normalise_advantages"]:
                    A = (A - A.mean()) / (A.std() + 1e-8)
                if clipped:
                    ratio = (log_prob - old[some]).exp()
                    gain = torch.min(ratio * A, ratio.clamp(1 - s["clip"], 1 + s["clip"]) * A).mean()
                else:
                    gain = (log_prob * A).mean()
                error = (critic(x[some])[:, 0] - targets[some]).square().mean()
                weight = 0.5 * s["value"] if clipped else s["value"]
                optimiser.zero_grad()
                (weight * error - gain - s["entropy"] * pi.entropy().mean()).backward()
                torch.nn.utils.clip_grad_norm_(parameters, s["gradient_norm"])
                optimiser.step()
        yield T * N


def dqn(case: dict[str, Any]) -> Iterator[int]:
    """Yields the steps of each round."""
    import numpy as np
    import torch

    s = case["settings"]
    torch.manual_seed(case["seed"])
    draw, dice = np.random.default_rng(case["seed"]), random.Random(case["seed"])
    envs = vectorised(case)
    N, O, A = s["envs"], envs.single_observation_space.shape[0], int(envs.single_action_space.n)  # noqa: E741
    network, target = (perceptron([O, *s["hidden"], A], s["activation"], None) for _ in range(2))
    target.load_state_dict(network.state_dict())
    optimiser = torch.optim.Adam(network.parameters(), s["learning_rate"], eps=s["adam_epsilon"])
    room = s["memory"] // N
    before, after = (np.zeros((room, N, O), np.float32) for _ in range(2))
    actions, rewards, ends = np.zeros((room, N), np.int64), np.zeros((room, N), np.float32), np.zeros((room, N), bool)
    now, step = envs.reset(seed=case["seed"])[0], 0
    whole = s["exploration_fraction"] * (case["first"] + case["warm_up"] + case["steps"])
    while True:
        for _ in range(s["rollout"]):
            share = min(1.0, step / max(whole, 1))
            if dice.random() < s["exploration_start"] + share * (s["exploration_end"] - s["exploration_start"]):
                action = envs.action_space.sample()
            else:
                with torch.no_grad():
                    action = network(torch.as_tensor(now, dtype=torch.float32)).argmax(1).numpy()
            place = step // N % room
            before[place], actions[place] = now, action
            now, rewards[place], ends[place], truncated, info = envs.step(action)
            after[place] = now
            for k in np.flatnonzero(ends[place] | truncated):
                after[place, k] = info["final_obs"][k]
            step += N
            if step // s["target_interval"] > (step - N) // s["target_interval"]:
                target.load_state_dict(network.state_dict())
        for _ in range(s["gradient_steps"] if step >= s["learning_starts"] else 0):
            which = draw.integers(min(step // N, room), size=s["batch"]), draw.integers(N, size=s["batch"])
            x, y, a, r, end = (torch.as_tensor(part[which]) for part in (before, after, actions, rewards, ends))
            with torch.no_grad():
                goal = r + s["gamma"] * target(y).max(1).values * ~end
            chosen = network(x).gather(1, a[:, None])[:, 0]
            optimiser.zero_grad()
            torch.nn.functional.smooth_l1_loss(chosen, goal).backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), s["gradient_norm"])
            optimiser.step()
        yield s["rollout"] * N


if __name__ == "__main__":
    serve({"speed": speed})
