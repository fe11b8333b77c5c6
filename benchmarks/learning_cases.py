"""What is compared: problems, hyperparameters, and how ours are said in the peer's words."""

from collections.abc import Mapping
from typing import Any, NamedTuple

EQUAL = {"reward_scale": 1.0}
"""What differs from our defaults wherever we compare: Stable-Baselines3 does not scale rewards."""


class Other(NamedTuple):
    """A peer beside Stable-Baselines3; its script is peers/peer_NAME.py."""

    title: str
    algos: tuple[str, ...]
    least_users: int = 1


OTHERS = {
    "sbx": Other("SBX", ("ppo", "dqn")),
    "cleanrl": Other("plain PyTorch", ("ppo", "a2c", "dqn")),
    "morl": Other("MORL-Baselines", ("ppo",), least_users=2),
}

SPECIES = {
    "ppo": {"envs": 10, "rollout": 128, "epochs": 4, "minibatches": 4, "hidden": [64, 64], "activation": "tanh"},
    "a2c": {"envs": 10, "rollout": 10, "hidden": [64, 64], "activation": "tanh"},
    "dqn": {"envs": 1, "rollout": 4, "batch": 64, "hidden": [64, 64], "activation": "relu"},
}
CARTPOLE = {
    "ppo": SPECIES["ppo"] | {"envs": 8},
    "a2c": SPECIES["a2c"] | {"envs": 8},
    "dqn": SPECIES["dqn"] | {"envs": 8, "gradient_steps": 8},  # a gradient step for every fourth step, as above
}
NETWORK = {"hidden": [64, 64], "activation": "tanh", "gradient_norm": 0.5, "gamma": 0.99, "entropy": 0.0}
PPO = NETWORK | {"value": 1.0, "adam_epsilon": 1e-5, "learning_rate": 3e-4, "gae_lambda": 0.95, "clip": 0.2}
PPO |= {"normalise_advantages": True}
A2C = NETWORK | {"value": 0.5, "rmsprop_epsilon": 1e-10, "learning_rate": 7e-4, "gae_lambda": 1.0, "rollout": 5}
A2C |= {"normalise_advantages": False}
DQN = {
    "hidden": [256, 256],
    "activation": "relu",
    "gradient_norm": 10.0,
    "gamma": 0.99,
    "adam_epsilon": 1e-8,
    "envs": 1,
}
"""Stable-Baselines3's defaults in our words; nothing is left to ours."""
NORMALISED = {"normalise_observations": True, "normalise_rewards": True}
QUALITY: list[tuple[str, str, int, dict[str, Any]]] = [
    (
        "CartPole-v1",
        "ppo",
        100_000,
        PPO
        | {"envs": 8, "rollout": 32, "epochs": 20, "minibatches": 1, "gamma": 0.98, "gae_lambda": 0.8}
        | {"learning_rate": 1e-3, "learning_rate_schedule": "linear", "critic_schedule": "linear"}
        | {"clip": 0.2, "clip_schedule": "linear"},
    ),
    ("CartPole-v1", "a2c", 200_000, A2C | {"envs": 8}),
    (
        "CartPole-v1",
        "dqn",
        50_000,
        DQN
        | {"learning_rate": 2.3e-3, "memory": 100_000, "learning_starts": 1000, "target_interval": 10, "batch": 64}
        | {"rollout": 256, "gradient_steps": 128, "exploration_fraction": 0.16, "exploration_end": 0.04},
    ),
    (
        "Acrobot-v1",
        "ppo",
        200_000,
        PPO | NORMALISED | {"envs": 16, "rollout": 256, "epochs": 4, "minibatches": 64, "gae_lambda": 0.94},
    ),
    ("Acrobot-v1", "a2c", 200_000, A2C | NORMALISED | {"envs": 16}),
    (
        "Acrobot-v1",
        "dqn",
        50_000,
        DQN
        | {"learning_rate": 6.3e-4, "memory": 50_000, "learning_starts": 0, "target_interval": 250, "batch": 128}
        | {"rollout": 4, "gradient_steps": 4, "exploration_fraction": 0.12, "exploration_end": 0.1},
    ),
    (
        "Pendulum-v1",
        "ppo",
        100_000,
        PPO | {"envs": 4, "rollout": 1024, "epochs": 10, "minibatches": 64, "gamma": 0.9, "learning_rate": 1e-3},
    ),
    (
        "Pendulum-v1",
        "a2c",
        200_000,
        A2C
        | NORMALISED
        | {"envs": 8, "rollout": 8, "gamma": 0.9, "gae_lambda": 0.9, "value": 0.4}
        | {"learning_rate_schedule": "linear", "critic_schedule": "linear"},
    ),
]
"""Environment, algorithm, steps and settings: those of RL Baselines3 Zoo, without state-dependent exploration in
Pendulum, and with fewer steps where it takes longest (the Zoo has 5e5 for A2C, 1e6 in Pendulum, and 1e6, 5e5 and 1e5
for Acrobot)."""


# The same hyperparameters in the peer's words


def as_sb3(algo: str, ours: Mapping[str, Any]) -> dict[str, Any]:
    """Our settings (all fields of a `Config`) as arguments of Stable-Baselines3, for `peer_sb3.made`.

    The table on the page says the same in words. Refuses what the peer cannot do.
    """
    if not ours["normalise_rewards"] and ours["reward_scale"] != 1.0:
        raise ValueError("Stable-Baselines3 does not scale rewards: reward_scale must be 1.")
    names = {"learning_rate": "learning_rate", "gamma": "gamma", "gradient_norm": "max_grad_norm"}
    layers = list(ours["hidden"])
    network: dict[str, Any] = {"activation_fn": ours["activation"], "net_arch": layers}
    more: dict[str, Any] = {}
    if algo == "dqn":
        if ours["double"] or ours["output_activation"] != "linear":
            raise ValueError("Stable-Baselines3 has neither double DQN nor other outputs than linear ones.")
        names |= {"memory": "buffer_size", "learning_starts": "learning_starts", "batch": "batch_size"}
        names |= {"rollout": "train_freq", "gradient_steps": "gradient_steps"}
        names |= {"target_interval": "target_update_interval", "exploration_fraction": "exploration_fraction"}
        names |= {"exploration_start": "exploration_initial_eps", "exploration_end": "exploration_final_eps"}
        network["optimizer_kwargs"] = {"eps": ours["adam_epsilon"]}
    else:
        names |= {"rollout": "n_steps", "gae_lambda": "gae_lambda", "entropy": "ent_coef"}
        names |= {"normalise_advantages": "normalize_advantage"}
        network["net_arch"] = {"pi": layers, "vf": layers}
        if ours["critic_schedule"] != ours["learning_rate_schedule"]:
            raise ValueError("Stable-Baselines3 has one learning rate for policy and critic: give both one schedule.")
    if algo == "ppo":
        names |= {"epochs": "n_epochs", "clip": "clip_range", "value_clip": "clip_range_vf"}
        more["batch_size"] = ours["envs"] * ours["rollout"] // ours["minibatches"]
        more["vf_coef"] = 0.5 * ours["value"]  # our loss has a factor ½ that the peer's has not
        network["optimizer_kwargs"] = {"eps": ours["adam_epsilon"]}
    elif algo == "a2c":
        if ours["rmsprop_decay"] != 0.99:
            raise ValueError("Stable-Baselines3 has RMSprop with a decay of 0.99 only.")
        more["vf_coef"] = ours["value"]
        more["rms_prop_eps"] = ours["rmsprop_epsilon"] ** 0.5  # √(v + ε²) there is about √v + ε here
    falling = {"learning_rate": "learning_rate_schedule", "clip": "clip_schedule"}
    return {theirs: ours[name] for name, theirs in names.items()} | {
        **more,
        "n_envs": ours["envs"],
        "normalise": {"norm_obs": ours["normalise_observations"], "norm_reward": ours["normalise_rewards"]},
        "falling": [names[name] for name, schedule in falling.items() if ours.get(schedule) == "linear"],
        "policy_kwargs": network,
    }


MAPPING = """\
| evenhand | Stable-Baselines3 | |
| --- | --- | --- |
| `envs`, `rollout` | `n_envs`, `n_steps` (DQN: `train_freq`) | |
| `minibatches` | `batch_size` = `envs` · `rollout` / `minibatches` | |
| `epochs`, `gamma`, `gae_lambda`, `clip`, `entropy` | `n_epochs`, `gamma`, `gae_lambda`, `clip_range`, `ent_coef` | |
| `value` | PPO: `vf_coef` = `value` / 2; A2C: `vf_coef` = `value` | PPO's critic loss has a factor ½ in evenhand |
| `gradient_norm` | `max_grad_norm` | |
| `adam_epsilon` | `eps` of Adam | 1e-5 for PPO, 1e-8 for DQN |
| `rmsprop_epsilon` | `rms_prop_eps` = √`rmsprop_epsilon` | inside the root in evenhand, outside in the peer |
| `normalise_advantages` | `normalize_advantage` | over the rollout in evenhand, over each minibatch in the peer |
| `normalise_observations`, `normalise_rewards` | `VecNormalize` | updated after each rollout, or each step |
| `reward_scale` = 1 | – | evenhand's default is 1 − γ |
| `hidden`, `activation` | `net_arch`, `activation_fn` | orthogonal, gains √2, 0.01, 1 in both (DQN: uniform) |
| actions of a box | wrapper `RescaleAction(-1, 1)` | evenhand's policies see every box as [−1, 1] |
| `memory`, `batch`, `target_interval` | `buffer_size`, `batch_size`, `target_update_interval` | |"""


def configured(algo: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """All our settings, the given ones and the defaults, as JSON can hold them."""
    import dataclasses

    from evenhand.runs.hyperparameters import settings as checked

    found = checked(algo, "any", False, "tuned", EQUAL | dict(settings), 10**9)
    return dataclasses.asdict(found.config)


def species_constants(species: Any) -> dict[str, Any]:
    """What `SpeciesNumpy` has to know, as JSON can hold it."""
    plain = {"functional_form": "linear", "reward": "linear", "observation": "scaled"}
    plain |= {"predation_saturates": True, "half_control_adds": False}
    for field, value in plain.items():
        if getattr(species, field) != value:
            raise ValueError(f"the NumPy model knows only {field} = {value!r}.")
    same = ("initial_otters", "introduced_otters", "otter_growth", "otter_capacity", "spill_probability")
    same += ("spill_deaths", "extinct_below", "culling_level", "days", "scarce_density", "scarce_poaching")
    same += ("forbid_reintroduction", "episode_steps", "area", "growth_rate", "carrying_density")
    arrays = {"leslie": species.leslie, "poaching_shares": species.poaching_shares}
    arrays |= {"initial_ages": species.initial_ages, "high": species.observation_space.high}
    arrays |= {"scales": species._scales, "eating": species._eating}
    return {name: getattr(species, name) for name in same} | {
        name: [list(map(float, row)) if hasattr(row, "__len__") else float(row) for row in array]
        for name, array in arrays.items()
    }
