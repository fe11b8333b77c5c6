"""MORL-Baselines' side of `learning.py` and of `morl.py` (see peer.py): speed, and the GGF of what is learnt.

- NLMOPPO: PPO for a utility of the expected returns, which is what evenhand's GGF-PPO maximises. Its networks (two
  layers of 64) also see the reward so far.
- EUPG: a policy gradient for the expected utility of single episodes, a different aim. It keeps observations as whole
  numbers.
- LCN: a network that is told which return to reach; trained on returns that no other one Lorenz-dominates.
"""

import contextlib
import io
import os
import tempfile
from collections.abc import Callable
from typing import Any

from peer import make_env, serve, timed

os.environ["WANDB_MODE"] = "disabled"
COMMANDS = 20
"""Returns that LCN is told to reach; the one that comes out best is tested."""
TRIALS = 3
"""Episodes by which it is chosen."""


def speed(case: dict[str, Any]) -> dict[str, float]:
    D = case["users"]
    model = nlmoppo(case, [2 ** (D - 1 - k) / (2**D - 1) for k in range(D)])

    def learn(steps: int) -> int:
        model.num_iterations = -(-steps // model.batch_size)
        model.train(None, model.utility)
        return model.num_iterations * model.batch_size

    return timed(case, learn)


def nlmoppo(case: dict[str, Any], weights: list[float]) -> Any:
    """The learner, with `utility` its GGF; settings have evenhand's names."""
    import torch
    from mo_gymnasium.wrappers.vector import MOSyncVectorEnv
    from morl_baselines.single_policy.ser.nl_mo_ppo import NLMOPPO

    s, w = case["settings"], torch.tensor(weights)
    torch.manual_seed(case["seed"])
    if (list(s["hidden"]), s["activation"]) != ([64, 64], "tanh"):
        raise ValueError("NLMOPPO's networks have two layers of 64, with tanh.")
    model = NLMOPPO(
        0,
        MOSyncVectorEnv([make_env(case, vector=True)] * s["envs"]),
        total_timesteps=case["steps"],
        num_steps=s["rollout"],
        learning_rate=s["learning_rate"],
        anneal_lr=s["learning_rate_schedule"] == "linear",
        gamma=s["gamma"],
        gae_lambda=s["gae_lambda"],
        num_minibatches=s["minibatches"],
        update_epochs=s["epochs"],
        norm_adv=s["normalise_advantages"],
        clip_coef=s["clip"],
        clip_vloss=s["value_clip"] is not None,
        ent_coef=s["entropy"],
        vf_coef=s["value"],
        max_grad_norm=s["gradient_norm"],
        device="cpu",
        seed=case["seed"],
    )
    model.utility = lambda v: torch.sort(v).values @ w
    model.policy_evaluate = lambda *_, **__: None  # a hundred episodes after each training: we test on our own
    return model


# What is learnt: each trains, and gives a function that plays an episode and tells its rewards [T, D]

Play = Callable[[Any], Any]


def fair(case: dict[str, Any]) -> dict[str, Any]:
    """The mean discounted returns of test episodes, for each seed."""
    import numpy as np

    trained = {"nlmoppo": trained_nlmoppo, "eupg": trained_eupg, "lcn": trained_lcn}[case["method"]]
    env, returns = make_env(case, vector=True)(), []
    for seed in case["seeds"]:
        with contextlib.redirect_stdout(io.StringIO()):
            play = trained(case | {"seed": seed})
        env.reset(seed=1_000_000 + seed)
        returns.append(np.mean([discounted(case, play(env)) for _ in range(case["episodes"])], axis=0).tolist())
    return {"returns": returns}


def discounted(case: dict[str, Any], rewards: Any) -> Any:
    import numpy as np

    return case["gamma"] ** np.arange(len(rewards)) @ np.asarray(rewards)


def played(case: dict[str, Any], act: Callable[[Any, Any, Any], int]) -> Play:
    """Episodes of what acts by the observation and the rewards so far, plain and discounted."""
    import numpy as np

    def play(env: Any) -> Any:
        observation, ended, rewards = env.reset()[0], False, [np.zeros(case["users"])]
        while not ended:
            so_far = np.sum(rewards, axis=0), discounted(case, rewards[1:]) if rewards[1:] else rewards[0]
            observation, reward, terminated, truncated, _ = env.step(act(observation, *so_far))
            ended = terminated or truncated
            rewards.append(reward)
        return rewards[1:]

    return play


def trained_nlmoppo(case: dict[str, Any]) -> Play:
    import torch

    model = nlmoppo(case, case["weights"])
    model.train(None, model.utility)

    def act(observation: Any, so_far: Any, discounted: Any) -> int:
        with torch.no_grad():
            return int(model.eval(observation, discounted))

    return played(case, act)


def trained_eupg(case: dict[str, Any]) -> Play:
    import numpy as np
    import torch
    from morl_baselines.single_policy.esr.eupg import EUPG

    w = torch.tensor(case["weights"])
    torch.manual_seed(case["seed"])

    def ggf(returns: Any, weights: Any = None) -> Any:
        return torch.sort(torch.as_tensor(returns)).values @ w

    env = make_env(case, vector=True)()
    env.reset(seed=case["seed"])
    model = EUPG(env, ggf, np.array(case["weights"]), gamma=case["gamma"], log=False, device="cpu", seed=case["seed"])
    model.train(case["steps"])
    return played(case, lambda observation, so_far, _: model.eval(np.float32(observation), so_far))


def trained_lcn(case: dict[str, Any]) -> Play:
    import numpy as np
    import torch
    from morl_baselines.multi_policy.lcn.lcn import LCN

    torch.manual_seed(case["seed"])
    D, most = case["users"], np.full(case["users"], 1000.0, np.float32)
    env, trial = (make_env(case, vector=True)() for _ in range(2))
    for k, one in enumerate((env, trial)):
        one.reset(seed=2 * case["seed"] + k)
        one.action_space.seed(case["seed"])
    scaling = np.array([1.0] * D + [0.1])  # as in the library's own example
    model = LCN(env, scaling, gamma=case["gamma"], log=False, device="cpu", seed=case["seed"])
    with tempfile.TemporaryDirectory() as folder:  # it saves itself a hundred times, and tests itself as often
        model.train(case["steps"], trial, np.zeros(D), **case["lcn"], max_return=most, num_points_pf=1, save_dir=folder)

    def reaching(wanted: Any, horizon: int) -> Play:
        def play(env: Any) -> Any:
            steps = model._run_episode(env, np.float32(wanted), np.float32(horizon), most, eval_mode=True)
            return [step.reward for step in steps]

        return play

    remembered = model._nlargest(min(COMMANDS, len(model.experience_replay)), model.cd_threshold)
    plays = [reaching(episode[0].reward, len(episode)) for _, _, episode in remembered]
    reached = [np.mean([discounted(case, play(trial)) for _ in range(TRIALS)], axis=0) for play in plays]
    return plays[int(np.argmax(np.sort(reached, axis=1) @ case["weights"]))]


if __name__ == "__main__":
    serve({"speed": speed, "fair": fair})
