"""How fast the data-centre simulator is: steps per core-second, beside a plain NumPy version of the same equations.

    python benchmarks/datacenter.py [--envs 1 10 64] [--repeats 5] [--traffic staggered:0.2,0.3] [--fresh]

All in one process and in turns, with random rates; every observation is written down, as a policy would need it, and
every reward kept. Then PPO, as it is trained by default, its learning included. CPU-seconds of all threads are counted,
after compiling; the median of the repeats is printed, with the least and the most. Results go to
benchmarks/results/datacenter.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np

import evenhand as eh
from datacenter_numpy import DatacenterNumpy
from evenhand.envs.datacenter import Datacenter
from evenhand.runs.hyperparameters import settings
from evenhand.training.host_loop import loop_for
from evenhand.training.task import Task
from evenhand.types import Discrete

RESULTS = Path(__file__).parent / "results" / "datacenter.json"
NUMPY_STEPS = 2_000
COMPILED_STEPS = 40_000
"""Of all environments together, in one measurement."""
TRAINED_STEPS = 40_000
"""The same while PPO learns."""


def numpy_version(env: Datacenter) -> tuple[int, Callable[[], object]]:
    plain = DatacenterNumpy(env.flows, env.paths, env.reward, env.interval, env.capacity)
    rates = np.random.default_rng(0).uniform(0, env.capacity, (NUMPY_STEPS, env.tree.hosts))

    def run() -> float:
        total = plain.reset().sum()
        for action in rates:
            observation, reward = plain.step(action)
            total += observation.sum() + reward.sum()
        return float(total)

    return NUMPY_STEPS, run


def compiled_version(env: Any, N: int) -> tuple[int, Callable[[], object]]:
    """Of any environment that is a pure function."""
    steps = COMPILED_STEPS // N
    key = jax.random.key(0)
    space = env.action_space
    if isinstance(space, Discrete):
        actions = jax.random.randint(key, (steps, N), 0, space.n)
    else:
        actions = jax.random.uniform(key, (steps, N, space.n), minval=space.low, maxval=space.high)

    @jax.jit
    def run(actions: jax.Array, keys: jax.Array) -> Any:
        def one(carry: Any, now: tuple[jax.Array, jax.Array]) -> tuple[Any, jax.Array]:
            after = env.step(carry[0], *now)
            return (after.state, after.observation), after.reward

        start = jax.vmap(env.reset)(jax.random.split(key, N))
        if N == 1:  # as one environment, not as a batch of one
            return jax.lax.scan(one, jax.tree.map(lambda x: x[0], start), (actions[:, 0], keys[:, 0]))
        return jax.lax.scan(jax.vmap(one), start, (actions, keys))

    given = actions, jax.random.split(key, (steps, N))
    jax.block_until_ready(run(*given))
    return steps * N, lambda: jax.block_until_ready(run(*given))


def trained_version(env: Datacenter, welfare: str) -> tuple[int, Callable[[], object]]:
    """PPO's loop: what a training run spends nearly all its time in."""
    config = settings("ppo", "datacenter", fair=welfare != "utilitarian").config
    of = eh.welfare(welfare, env.tree.hosts)
    loop = loop_for(env, Task("ppo", config, of, env.observation_space.n, env.action_space))
    updates = max(1, TRAINED_STEPS // config.steps_per_update)
    state = loop.start(0)
    loop.compile(state)
    state, _ = loop.advance(state, 1, updates + 1)

    def train() -> None:
        nonlocal state  # its memory is used again by the next
        state, _ = loop.advance(state, updates, updates + 1)

    return updates * config.steps_per_update, train


def per_core_second(steps: int, run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return steps / (time.process_time() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--envs", type=int, nargs="+", default=[1, 10, 64])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--traffic", default="staggered:0.2,0.3")
    parser.add_argument("--fresh", action="store_true", help="draw the traffic of every environment anew")
    asked = parser.parse_args()

    env = Datacenter(asked.traffic, fresh_traffic=asked.fresh)
    rows = {"NumPy, 1 environment": numpy_version(env)}
    rows |= {f"compiled, {N} environment{'s' * (N > 1)}": compiled_version(env, N) for N in asked.envs}
    for welfare, name in (("utilitarian", "PPO"), ("ggf", "GGF-PPO")):
        rows[f"training {name}"] = trained_version(env, welfare)
    measured: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(asked.repeats):
        for name, row in rows.items():
            measured[name].append(per_core_second(*row))
    medians = {name: statistics.median(values) for name, values in measured.items()}
    baseline = medians["NumPy, 1 environment"]
    for name, values in measured.items():
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        print(f"{name:26} {medians[name]:>12,.0f} steps per core-second ({spread}), {medians[name] / baseline:.0f} ×")
    record = {
        "traffic": asked.traffic,
        "fresh": asked.fresh,
        "steps per core-second": measured,
        "jax": version("jax"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
    }
    RESULTS.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
