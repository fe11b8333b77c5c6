"""Speed, memory and quality of learning, beside Stable-Baselines3 on the same problems with the same hyperparameters.

    python benchmarks/learning.py              speed and memory: about a quarter of an hour
    python benchmarks/learning.py --quality    what is learnt, over seeds: about half an hour
    python benchmarks/learning.py --quick      either of them with tiny runs, printed: about a minute or two

Results go to benchmarks/learning.json and docs/benchmarks-learning.md, each kind replacing only its own part; --quick
leaves both alone. Every figure comes from a process of its own. The two libraries take turns, so that neighbours on
the machine disturb both alike; read the ratios, not the seconds. Stable-Baselines3 is given its best case: a lean NumPy
environment (species_numpy.py) in a DummyVecEnv, one thread, and no recording of episodes.
"""

import argparse
import itertools
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
RESULTS = HERE / "learning.json"
PAGE = HERE.parent / "docs" / "benchmarks-learning.md"
EQUAL = {"reward_scale": 1.0}
"""What differs from our defaults wherever we compare: Stable-Baselines3 does not scale rewards."""

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
TRAINING = {"episode_steps": 200}
"""Arguments of the species environment."""
STEPS = {"ppo": 51_200, "a2c": 30_000, "dqn": 12_000}
"""Measured steps of Stable-Baselines3 in one repetition: several seconds."""
AHEAD = 8
"""We take so many times as many in the compiled loop, or there would be nothing to measure."""
AIMS = {("species", "ppo"): 15.0, ("species", "a2c"): 10.0, ("species", "dqn"): 10.0, ("CartPole-v1", "ppo"): 2.0}
SEEDS_AIM, COMPILE_AIM, CACHED_AIM = 25.0, 10.0, 2.0
PARTS = ("species", "cartpole", "seeds", "starting")
"""Of the speed."""

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
        | {"learning_rate": 1e-3, "learning_rate_schedule": "linear", "clip": 0.2, "clip_schedule": "linear"},
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
]
"""Environment, algorithm, steps and settings: those of RL Baselines3 Zoo, without state-dependent exploration in
Pendulum, and with fewer steps where it takes longest (the Zoo has 5e5 for A2C, and 1e6, 5e5 and 1e5 for Acrobot)."""


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

    from evenhand.runs.settings import settings as checked

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


# Our side, in a process of its own


def own(case: dict[str, Any]) -> dict[str, Any]:
    if case["cores"]:
        os.sched_setaffinity(0, case["cores"])
    from evenhand.runs.pool import ONE_THREAD

    os.environ.setdefault(ONE_THREAD, "1")  # as training runs set it
    return {"speed": own_speed, "quality": own_quality, "seeds": own_seeds}[case["job"]](case)


def own_speed(case: dict[str, Any]) -> dict[str, float]:
    """The loop itself: what a training run spends nearly all its time in."""
    from evenhand.runs.pool import prepare_jax

    prepare_jax()
    import evenhand as eh
    from evenhand.agents import ALGORITHMS
    from evenhand.envs import resolve
    from evenhand.loops import Task, loop_for

    env = resolve(case["env"], TRAINING if case["env"] == "species" else {})
    settings = case["settings"] | {"hidden": tuple(case["settings"]["hidden"])}
    config = ALGORITHMS[case["algo"]].Config(**settings)
    welfare = eh.welfare(case["welfare"], len(env.objectives))
    loop = loop_for(env, Task(case["algo"], config, welfare, env.observation_space.n, env.action_space))
    try:
        before, steps = max(1, case["warm_up"] // config.steps_per_update), case["steps"] // config.steps_per_update
        of = 1 + before + steps
        state = loop.start(case["seed"])
        compiled = loop.compile(state)
        state, _ = loop.advance(state, 1, of)
        start_wall, start_cpu = time.time() - case["began"], time.process_time()
        state, _ = loop.advance(state, before, of)
        wall, cpu = time.perf_counter(), time.process_time()
        loop.advance(state, steps, of)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        loop.close()
    return {
        "steps": steps * config.steps_per_update,
        "wall": wall,
        "cpu": cpu,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "start_wall": start_wall,
        "start_cpu": start_cpu,
        "compile": compiled,
    }


def own_seeds(case: dict[str, Any]) -> dict[str, float]:
    """A whole training run, as a user starts it."""
    import evenhand as eh

    asked = {"seeds": case["seeds"], "jobs": case["jobs"], "settings": case["settings"], "arguments": TRAINING}
    with tempfile.TemporaryDirectory() as folder:
        eh.train(case["env"], case["algo"], "utilitarian", case["steps"], folder=folder + "/run", episodes=0, **asked)
    wall = time.time() - case["began"]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "steps": case["steps"] * case["seeds"],
        "wall": wall,
        "cpu": sum(u.ru_utime + u.ru_stime for u in used),
        "memory": used[1].ru_maxrss / 1024,
    }


def own_quality(case: dict[str, Any]) -> dict[str, float]:
    """The mean return of the last tenth of the training, and of test episodes with the most probable actions."""
    import gymnasium
    import polars as pl

    import evenhand as eh

    with tempfile.TemporaryDirectory() as folder:
        run = eh.train(
            case["env"],
            case["algo"],
            "utilitarian",
            case["steps"],
            seeds=[case["seed"]],
            jobs=1,
            settings=case["settings"],
            folder=folder + "/run",
            episodes=0,
        )
        table, policy = run.metrics(), run.policy(case["seed"])
    last = table.filter((pl.col("step") > 0.9 * pl.col("step").max()) & (pl.col("episodes") > 0))
    [returns] = [name for name in table.columns if name.startswith("episode_return")]
    training = (last[returns] * last["episodes"]).sum() / last["episodes"].sum() if len(last) else float("nan")
    env, totals = gymnasium.make(case["env"]), []
    for seed in case["test_seeds"]:
        observation, total, ended = env.reset(seed=seed)[0], 0.0, False
        while not ended:
            observation, reward, terminated, truncated, _ = env.step(policy(observation, deterministic=True))
            total, ended = total + float(reward), terminated or truncated
        totals.append(total)
    return {"training": float(training), "test": statistics.fmean(totals)}


# Running cases


def run(side: str, case: dict[str, Any], cache: str | None = None) -> dict[str, Any]:
    """One case in a process of its own."""
    environment = os.environ | ({"XDG_CACHE_HOME": cache} if cache else {})
    command = [sys.executable, __file__, "--own"] if side == "evenhand" else [str(PEERS), str(HERE / "peer_sb3.py")]
    if side != "evenhand" and "settings" in case:
        case = case | {"settings": as_sb3(case["algo"], case["settings"])}
    told = json.dumps({"cores": [], "seed": 0} | case | {"began": time.time()})
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{side} failed on {case['job']} {case.get('env')} {case.get('algo')}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def one_core() -> list[int]:
    return [max(os.sched_getaffinity(0))] if hasattr(os, "sched_setaffinity") else []


def speed_case(env: str, algo: str, settings: dict[str, Any], scale: float) -> dict[str, Any]:
    from evenhand.envs.species import Species

    config = configured(algo, settings)
    per_update = config["envs"] * config["rollout"]
    constants = species_constants(Species(**TRAINING)) if env == "species" else None
    return {
        "job": "speed",
        "env": env,
        "algo": algo,
        "welfare": "utilitarian",
        "settings": config,
        "constants": constants,
        "cores": one_core(),
        "first": per_update,
        "warm_up": 2 * max(1500, per_update),  # beyond DQN's first 1,000 steps, in which it only looks
        "steps": max(per_update, int(scale * STEPS[algo]) // per_update * per_update),
    }


def throughput(env: str, repeats: int, scale: float, cache: str, console: Console) -> list[dict[str, Any]]:
    """Steps per CPU-second of one seed on one core, learning included; the two take turns."""
    rows = []
    for algo, settings in (SPECIES if env == "species" else CARTPOLE).items():
        case = speed_case(env, algo, settings, scale)
        ours = case | {"steps": case["steps"] * (AHEAD if env == "species" else 2)}
        welfares = ["utilitarian", "ggf"] if env == "species" else ["utilitarian"]
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in (*welfares, "peer")}
        for _ in range(repeats):
            for name in (welfares[0], "peer", *welfares[1:]):
                side = "sb3" if name == "peer" else "evenhand"
                done = run(side, case if name == "peer" else ours | {"welfare": name}, cache)
                taken[name].append(done)
        for name in welfares:
            rows.append({"env": env, "algo": algo, "welfare": name} | compared(taken[name], taken["peer"]))
            console.print(rows[-1])
    return rows


def compared(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> dict[str, Any]:
    """The ratios of speeds, repetition by repetition, and medians."""

    def speeds(taken: list[dict[str, float]], clock: str) -> list[float]:
        return [t["steps"] / t[clock] for t in taken]

    ratios = {
        clock: sorted(a / b for a, b in zip(speeds(ours, clock), speeds(theirs, clock), strict=True))
        for clock in ("cpu", "wall")
    }
    return {
        "ours": statistics.median(speeds(ours, "cpu")),
        "theirs": statistics.median(speeds(theirs, "cpu")),
        "ratio": statistics.median(ratios["cpu"]),
        "least": ratios["cpu"][0],
        "most": ratios["cpu"][-1],
        "wall_ratio": statistics.median(ratios["wall"]),
    }


def many_seeds(repeats: int, steps: int, seeds: int, peer_steps: int, console: Console) -> dict[str, Any]:
    """Whole runs of several seeds on two cores, from the command to the last checkpoint."""
    settings = EQUAL | SPECIES["ppo"]
    asked = {"job": "seeds", "env": "species", "algo": "ppo", "settings": settings}
    asked |= {"steps": steps, "seeds": seeds, "jobs": 2}
    peer = speed_case("species", "ppo", SPECIES["ppo"], 1.0) | {"cores": [], "steps": peer_steps}
    walls: dict[str, list[float]] = {"first": [], "cached": [], "two": [], "one": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            for name in ("first", "cached"):
                walls[name].append(run("evenhand", asked, cache)["wall"])
        for name, processes in (("two", 2), ("one", 1)):
            with ThreadPoolExecutor(processes) as pool:
                taken = list(pool.map(lambda seed: run("sb3", peer | {"seed": seed}), range(processes)))
            walls[name].append(steps * seeds / sum(t["steps"] / t["wall"] for t in taken))
    row: dict[str, Any] = {"steps": steps, "seeds": seeds, "peer_steps": peer_steps}
    row |= {name: statistics.median(taken) for name, taken in walls.items()}
    for ours, theirs in itertools.product(("first", "cached"), ("two", "one")):
        ratios = [b / a for a, b in zip(walls[ours], walls[theirs], strict=True)]
        row[f"{ours}_{theirs}"] = statistics.median(ratios)
    console.print(row)
    return row


def starting(repeats: int, console: Console) -> list[dict[str, Any]]:
    """From the command to the end of the first update, with nothing in the cache and again with what that left."""
    rows = []
    kinds = [("species", algo, welfare) for algo in SPECIES for welfare in ("utilitarian", "ggf")]
    kinds += [("CartPole-v1", algo, "utilitarian") for algo in CARTPOLE]
    for env, algo, welfare in kinds:
        settings = (SPECIES if env == "species" else CARTPOLE)[algo]
        case = speed_case(env, algo, settings, 0.0) | {"welfare": welfare, "cores": []}
        first, cached, theirs = [], [], []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                first.append(run("evenhand", case, cache))
                cached.append(run("evenhand", case, cache))
            if welfare == "utilitarian":
                theirs.append(run("sb3", case))
        row: dict[str, Any] = {"env": env, "algo": algo, "welfare": welfare}
        for name, taken in (("first", first), ("cached", cached), ("theirs", theirs)):
            for fact in ("compile", "start_wall", "start_cpu", "memory"):
                if taken and fact in taken[0]:
                    row[f"{name}_{fact}"] = statistics.median(t[fact] for t in taken)
        rows.append(row)
        console.print(row)
    return rows


def learnt(seeds: int, episodes: int, scale: float, cache: str, console: Console) -> Iterator[dict[str, Any]]:
    """Training and test returns of both, seed by seed."""
    for env, algo, steps, settings in QUALITY:
        config = configured(algo, settings)
        case = {"job": "quality", "env": env, "algo": algo, "steps": max(5_000, int(scale * steps))}
        case |= {"settings": config}

        def one(side_and_seed: tuple[str, int], case: dict[str, Any] = case) -> dict[str, Any]:
            side, seed = side_and_seed
            tests = [10_000 * (seed + 1) + episode for episode in range(episodes)]
            return run(side, case | {"seed": seed, "test_seeds": tests}, cache)

        who = [(side, seed) for seed in range(seeds) for side in ("evenhand", "sb3")]
        with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            results = dict(zip(who, pool.map(one, who), strict=True))
        row: dict[str, Any] = {"env": env, "algo": algo, "steps": case["steps"]}
        for fact in ("test", "training"):
            row[fact] = {side: [results[side, seed][fact] for seed in range(seeds)] for side in ("evenhand", "sb3")}
        console.print(row)
        yield row


# Saying what came out


def verdict(ours: Iterable[float], theirs: Iterable[float]) -> str:
    """By the 95 % intervals of the means: ahead or behind if they lie apart."""
    from evenhand.stats import interval

    mine, peer = (interval(known) if (known := finite(values)) else None for values in (ours, theirs))
    if mine is None or peer is None:
        return "–"
    if mine.low > peer.high:
        return "ahead"
    return "behind" if mine.high < peer.low else "level"


def spread(values: list[float]) -> str:
    """The mean and its 95 % interval; of seeds without any finished episode, how many there were."""
    from evenhand.stats import interval

    known = finite(values)
    if not known:
        return "–"
    bounds = interval(known)
    missing = f" ({len(values) - len(known)} without)" if len(known) < len(values) else ""
    return f"{statistics.fmean(known):.1f} ± {(bounds.high - bounds.low) / 2:.1f}{missing}"


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def called(row: Mapping[str, Any]) -> str:
    """As in GGF-PPO."""
    return ("GGF-" if row.get("welfare") == "ggf" else "") + row["algo"].upper()


def aimed(value: float, aim: float | None, at_most: bool = False) -> str:
    if aim is None:
        return "–"
    reached = value <= aim if at_most else value >= aim
    return f"{'≤' if at_most else '≥'} {aim:g}: {'yes' if reached else '**no**'}"


def speed_table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["", "evenhand (steps/s)", "peer (steps/s)", "ratio", "range", "ratio of wall times", "aim"]]
    for row in rows:
        aim = AIMS.get((row["env"], row["algo"])) if row["welfare"] == "utilitarian" else None
        lines.append(
            [
                called(row),
                f"{row['ours']:,.0f}",
                f"{row['theirs']:,.0f}",
                f"{row['ratio']:.1f} ×",
                f"{row['least']:.1f} – {row['most']:.1f}",
                f"{row['wall_ratio']:.1f} ×",
                aimed(row["ratio"], aim),
            ]
        )
    return lines


def seeds_table(row: Mapping[str, Any]) -> list[list[str]]:
    lines = [["", "evenhand (s)", "two peers (s)", "ratio", "aim", "one peer (s)", "ratio"]]
    for name, whose, aim in (("compiled before", "cached", SEEDS_AIM), ("first time, compiling", "first", None)):
        two, one = row[f"{whose}_two"], row[f"{whose}_one"]
        line = [name, f"{row[whose]:.1f}", f"{row['two']:.0f}", f"{two:.1f} ×", aimed(two, aim)]
        lines.append([*line, f"{row['one']:.0f}", f"{one:.1f} ×"])
    return lines


def compile_table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["", "first time (s)", "aim", "from the cache (s)", "aim"]]
    for row in rows:
        first, cached = row["first_compile"], row["cached_compile"]
        aims = aimed(first, COMPILE_AIM, at_most=True), aimed(cached, CACHED_AIM, at_most=True)
        lines.append([f"{called(row)}, {row['env']}", f"{first:.1f}", aims[0], f"{cached:.1f}", aims[1]])
    return lines


def start_table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["", "first time: wall, CPU (s)", "from the cache", "peer", "first time: MB", "from the cache", "peer"]]
    for row in rows:
        line = [f"{called(row)}, {row['env']}"]
        whose = [name for name in ("first", "cached", "theirs") if f"{name}_memory" in row]
        line += [f"{row[f'{name}_start_wall']:.1f}, {row[f'{name}_start_cpu']:.1f}" for name in whose]
        line += ["–"] * (3 - len(whose))
        line += [f"{row[f'{name}_memory']:.0f}" for name in whose] + ["–"] * (3 - len(whose))
        lines.append(line)
    return lines


def quality_table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["", "steps", "tested: evenhand", "peer", "", "last tenth of training: evenhand", "peer", ""]]
    for row in rows:
        line = [f"{called(row)}, {row['env']}", f"{row['steps']:,}"]
        for fact in ("test", "training"):
            ours, theirs = row[fact]["evenhand"], row[fact]["sb3"]
            line += [spread(ours), spread(theirs), verdict(ours, theirs)]
        lines.append(line)
    return lines


def shortfalls(results: Mapping[str, Any]) -> list[str]:
    """Where the peer is better, and where we fall short of our aims, in sentences."""
    speed, quality = results.get("speed", {}), results.get("quality", {})
    missing = [part for part in PARTS if part not in speed] + ([] if quality.get("rows") else ["quality"])
    found = [f"Not measured yet, so that nothing can be said: {', '.join(missing)}."] if missing else []
    found += speed.get("earlier", [])
    for row in quality.get("rows", []):
        for fact, when in (("test", "when tested"), ("training", "in the last tenth of training")):
            if verdict(row[fact]["evenhand"], row[fact]["sb3"]) == "behind":
                found.append(f"{called(row)} on {row['env']} returns less {when}.")
    for row in speed.get("species", []) + speed.get("cartpole", []):
        aim = AIMS.get((row["env"], row["algo"])) if row["welfare"] == "utilitarian" else None
        if row["ratio"] <= 1:
            found.append(f"{called(row)} on {row['env']} is slower: {row['ratio']:.2f} ×.")
        elif aim and row["ratio"] < aim:
            found.append(f"{called(row)} on {row['env']} is {row['ratio']:.1f} × as fast; we aim at {aim:g} ×.")
    if "seeds" in speed and speed["seeds"]["cached_two"] < SEEDS_AIM:
        two, one = speed["seeds"]["cached_two"], speed["seeds"]["cached_one"]
        found.append(
            f"Many seeds of PPO on two cores: {two:.1f} × as fast as two processes of the peer ({one:.1f} × as fast as "
            f"one); we aim at {SEEDS_AIM:g} ×."
        )
    for row in speed.get("starting", []):
        what = f"{called(row)} on {row['env']}"
        if row["first_compile"] > COMPILE_AIM or row["cached_compile"] > CACHED_AIM:
            found.append(
                f"Compiling {what} takes {row['first_compile']:.1f} s the first time and {row['cached_compile']:.1f} s "
                f"from the cache; we aim at {COMPILE_AIM:g} and {CACHED_AIM:g}."
            )
    slower = [row for row in speed.get("starting", []) if row.get("theirs_start_wall", 1e9) < row["first_start_wall"]]
    if slower:
        mine = sorted(row["first_start_wall"] for row in slower)
        peer = sorted(row["theirs_start_wall"] for row in slower)
        found.append(
            f"The first update of a new kind of run is there after {mine[0]:.0f} to {mine[-1]:.0f} s, the peer's after "
            f"{peer[0]:.0f} to {peer[-1]:.0f} s: it has nothing to compile. Later runs find theirs in the cache."
        )
    larger = [row for row in speed.get("starting", []) if row.get("theirs_memory", 1e9) < row["cached_memory"]]
    if larger:
        ours, first, theirs = (max(row[f"{name}_memory"] for row in larger) for name in ("cached", "first", "theirs"))
        found.append(
            f"Memory: a process takes up to {ours:.0f} MB, and {first:.0f} when it compiles; the peer's {theirs:.0f}."
        )
    return found


def markdown(lines: list[list[str]]) -> str:
    header, *rows = lines
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows))


def page(results: Mapping[str, Any]) -> str:
    """The whole page, from all that was measured last."""
    parts = [INTRODUCTION]
    found = shortfalls(results)
    parts.append("## Where evenhand is not ahead, or falls short of what we aim at\n")
    parts.append("\n".join(f"- {sentence}" for sentence in found) if found else "Nowhere in what was measured.")
    if "speed" in results:
        speed = results["speed"]
        parts.append(SPEED.format(about=about(speed), repeats=speed["repeats"]))
        for part, text, tables in (
            ("species", SPECIES_TEXT, [speed_table]),
            ("cartpole", CARTPOLE_TEXT, [speed_table]),
            ("seeds", SEEDS_TEXT, [seeds_table]),
            ("starting", STARTING_TEXT, [compile_table, start_table]),
        ):
            title, _, words = text.partition("\n")
            if part not in speed:
                parts.append(f"{title}\n\nNot measured yet.")
                continue
            facts = speed[part] if part == "seeds" else {}
            parts.append(title + "\n" + words.format(*(markdown(table(speed[part])) for table in tables), **facts))
    if "quality" in results:
        quality = results["quality"]
        parts.append(
            QUALITY_TEXT.format(
                about=about(quality),
                seeds=quality["seeds"],
                episodes=quality["episodes"],
                table=markdown(quality_table(quality["rows"])),
                mapping=MAPPING,
            )
        )
    if "quality" not in results:
        parts.append("## Quality\n\nNot measured yet.")
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def about(results: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    loads = ", ".join(f"{part} {load:.1f}" for part, load in results["loads"].items())
    said = f"Load averages when the parts began: {loads}." if loads else ""
    return " ".join(filter(None, [f"{results['machine']}. {versions}.", said, results.get("note", "")]))


INTRODUCTION = """\
# Benchmarks of learning

`make bench-learning` measures speed and memory anew, `make bench-quality` what is learnt; each replaces its part of
this page. The peer is Stable-Baselines3, in its own virtual environment (.venv-peers, from benchmarks/peers.txt), with
the same hyperparameters. Machines are noisy: the two take turns, every figure comes from a process of its own, and the
ratios are what counts.
"""

SPEED = """
## Speed

{about} Medians of {repeats} repetitions.
"""

SPECIES_TEXT = """\
### Species conservation, one seed on one core

Steps per CPU-second, learning included. PPO: 10 environments × 128 steps, 4 epochs of 4 minibatches; A2C: 10 × 10;
DQN: one environment, a batch of 64 every 4 steps; two hidden layers of 64. The peer steps a lean NumPy version of the
same model in a DummyVecEnv, on one thread, and learns from the summed reward. GGF rows have a critic for each user;
the peer beside them is still the scalar one.

{}
"""

CARTPOLE_TEXT = """\
### CartPole-v1, one seed on one core

Gymnasium's own environment on both sides, 8 of them; here only acting and learning are compiled.

{}
"""

SEEDS_TEXT = """\
### Many seeds on two cores

PPO on species conservation, {seeds} seeds of {steps:,} steps, from the command to the last checkpoint, in wall time,
with everything that a run keeps. The peer has nothing for several seeds: its times are those of two processes side by
side that share them, and of one that takes one seed after another, by their speed over {peer_steps:,} steps; starting
and saving are not counted.

{}
"""

STARTING_TEXT = """\
### Starting, and memory

Compiling, in seconds of wall time; compiled programs are kept in the user's cache folder.

{}

From the command to the end of the first update, imports and all; and the peak of the process. The peer has nothing to
compile.

{}
"""

QUALITY_TEXT = """
## Quality

{about}

Equal steps, equal hyperparameters (those of RL Baselines3 Zoo, without its state-dependent exploration, and with fewer
steps for A2C and Acrobot), {seeds} seeds each; mean ± 95 % interval over seeds. Tested: the final policy's most
probable actions over {episodes} episodes, the same for both. "level": the intervals overlap.

{table}

### How the settings correspond

{mapping}
"""


def show(console: Console, title: str, lines: list[list[str]]) -> None:
    table = Table(title=title)
    for k, column in enumerate(lines[0]):
        table.add_column(column, justify="left" if k == 0 else "right")
    for row in lines[1:]:
        table.add_row(*row)
    console.print(table)


def surroundings() -> dict[str, Any]:
    """The machine and the versions; no names."""
    from importlib.metadata import version

    model = "unknown processor"
    if Path("/proc/cpuinfo").exists():
        models = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
        model = models[0] if models else platform.machine()
    ours = {name: version(name) for name in ("evenhand", "jax", "numpy")}
    return {
        "machine": f"{os.cpu_count()} cores ({model}, {platform.machine()}), Python {platform.python_version()}",
        "versions": ours | run("sb3", {"job": "versions"}),
    }


def load() -> float:
    """How busy others, and what we did before, have kept the machine in the last minute."""
    return round(os.getloadavg()[0], 1)


def read() -> dict[str, Any]:
    """What was measured last."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(kind: str, results: dict[str, Any]) -> None:
    kept = read() | {kind: results}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(kept))


def measure_speed(quick: bool, repeats: int, parts: Iterable[str], console: Console) -> None:
    results = read().get("speed", {"loads": {}}) if set(parts) < set(PARTS) else {"loads": {}}
    results |= surroundings() | {"repeats": repeats}
    scale = 0.1 if quick else 1.0
    for part in parts:
        results["loads"][part] = load()
        with tempfile.TemporaryDirectory() as cache:
            if part == "species":
                results[part] = throughput("species", repeats, scale, cache, console)
                show(console, "Species conservation, one seed on one core", speed_table(results[part]))
            elif part == "cartpole":
                results[part] = throughput("CartPole-v1", repeats, scale, cache, console)
                show(console, "CartPole-v1, one seed on one core", speed_table(results[part]))
            elif part == "seeds":
                sizes = (20_480, 2, 10_240) if quick else (1_000_000, 8, 102_400)
                results[part] = many_seeds(repeats, *sizes, console)
                show(console, "PPO, many seeds on two cores", seeds_table(results[part]))
            else:
                results[part] = starting(repeats, console)
                show(console, "Compiling", compile_table(results[part]))
                show(console, "Starting, and memory", start_table(results[part]))
        if all(name in results for name in PARTS):
            results.pop("earlier", None)
        finish("speed", results, quick, console)  # after each part: a run that is cut short loses only the last one


def measure_quality(quick: bool, seeds: int, console: Console) -> None:
    episodes = 5 if quick else 50
    results: dict[str, Any] = surroundings() | {
        "loads": {"all": load()},
        "seeds": seeds,
        "episodes": episodes,
        "rows": [],
    }
    with tempfile.TemporaryDirectory() as cache:
        for row in learnt(seeds, episodes, 0.0 if quick else 1.0, cache, console):
            results["rows"].append(row)
            finish("quality", results, quick, console)
    show(console, f"Quality over {seeds} seeds", quality_table(results["rows"]))


def finish(kind: str, results: dict[str, Any], quick: bool, console: Console) -> None:
    for sentence in shortfalls({kind: results}):
        console.print(f"- {sentence}")
    if not quick:
        keep(kind, results)
        console.print(f"wrote {RESULTS.name} and {PAGE.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quality", action="store_true", help="what is learnt, instead of speed")
    parser.add_argument("--quick", action="store_true", help="tiny runs; the page is left alone")
    parser.add_argument("--repeats", type=int, default=3, help="repetitions of everything that is timed")
    parser.add_argument("--seeds", type=int, default=5, help="seeds of everything whose quality is compared")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="parts of the speed to measure anew")
    parser.add_argument("--page", action="store_true", help="only write the page anew from what was measured last")
    parser.add_argument("--own", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.own:
        print(json.dumps(own(json.load(sys.stdin))))
        return
    if asked.page:
        PAGE.write_text(page(read()))
        return
    if not PEERS.exists():
        raise SystemExit("there are no peers to compare with: run this by `make bench-learning`, which installs them.")
    console = Console(width=None if sys.stdout.isatty() else 130)
    if asked.quality:
        measure_quality(asked.quick, 2 if asked.quick else asked.seeds, console)
    else:
        measure_speed(asked.quick, 1 if asked.quick else asked.repeats, asked.only, console)


if __name__ == "__main__":
    main()
