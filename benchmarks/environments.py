"""How fast evenhand's three environments are, beside what one would use without it; nobody learns.

    python benchmarks/environments.py             two minutes; benchmarks/results/environments.json
    python benchmarks/environments.py --quick     printed only

Species conservation and the data centre stand beside lean NumPy versions of the same equations, in one process and in
turns, after compiling; the traffic light on SUMO beside sumo-rl and SUMO itself, each figure from a process of its own
(`traffic.py` has the details). Everything is counted in CPU-seconds of one core.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import datacenter
import traffic
from evenhand.envs.datacenter import Datacenter
from evenhand.envs.species.env import Species
from learning_cases import species_constants
from species_numpy import SpeciesNumpy

RESULTS = Path(__file__).parent / "results" / "environments.json"
SIDE_BY_SIDE = (1, 10, 64)


def species_numpy(env: Species) -> tuple[int, Callable[[], object]]:
    plain = SpeciesNumpy(species_constants(env), vector=True)
    choices = np.random.default_rng(0).integers(0, env.action_space.n, datacenter.NUMPY_STEPS)

    def run() -> float:
        total, ended = float(plain.reset(seed=0)[0].sum()), False
        for action in choices.tolist():
            if ended:
                plain.reset()
            observation, reward, _, ended, _ = plain.step(action)
            total += float(observation.sum()) + float(reward.sum())
        return total

    return len(choices), run


def compiled_and_not(
    env: Any, plain: tuple[int, Callable[[], object]], repeats: int, batches: tuple[int, ...]
) -> dict[str, list[float]]:
    """Steps per CPU-second of the plain version, and of so many compiled ones side by side."""
    rows = {"NumPy": plain} | {str(N): datacenter.compiled_version(env, N) for N in batches}
    speeds: dict[str, list[float]] = {name: [] for name in rows}
    for _ in range(repeats):
        for name, row in rows.items():
            speeds[name].append(datacenter.per_core_second(*row))
    return speeds


def measured(repeats: int, turns: int, batches: tuple[int, ...] = SIDE_BY_SIDE) -> dict[str, Any]:
    species, network = Species(episode_steps=200), Datacenter("staggered:0.2,0.3")
    return {
        "species": compiled_and_not(species, species_numpy(species), repeats, batches),
        "datacenter": compiled_and_not(network, datacenter.numpy_version(network), repeats, batches),
        "traffic": traffic.measured(turns, 200) if turns else None,
    }


def table(results: dict[str, Any]) -> list[list[str]]:
    """Who makes how many steps, and how many times as many as the first of its kind."""
    lines = [["", "steps per CPU-second", "evenhand : other", "range"]]
    names = {"species": "Species conservation", "datacenter": "Data centre"}
    for env, title in names.items():
        speeds = results[env]
        lines.append([f"{title}, lean NumPy", f"{statistics.median(speeds['NumPy']):,.0f}", "", ""])
        for N in (name for name in speeds if name != "NumPy"):
            ratios = [a / b for a, b in zip(speeds[N], speeds["NumPy"], strict=True)]
            what = f"{title}, evenhand, {N} side by side" if N != "1" else f"{title}, evenhand"
            lines.append([what, f"{statistics.median(speeds[N]):,.0f}", *spread(ratios)])
    if results["traffic"]:
        speeds = {kind: np.array(values, float) for kind, values in results["traffic"]["speeds"].items()}
        for kind, about in traffic.ROWS.items():
            ratio = speeds["evenhand"] / speeds[kind]
            beside = ["", ""] if kind in ("evenhand", "two-lane", "stand-in") else spread(ratio[np.isfinite(ratio)])
            lines.append([f"Traffic light, {about}", f"{np.nanmedian(speeds[kind]):,.0f}", *beside])
    return lines


def spread(ratios: Any) -> list[str]:
    return [f"{np.median(ratios):.3g} ×", f"{np.min(ratios):.3g} – {np.max(ratios):.3g}"]


def shortfalls(results: dict[str, Any]) -> list[str]:
    if not results["traffic"]:
        return []
    speeds = {kind: np.array(values, float) for kind, values in results["traffic"]["speeds"].items()}
    found = []
    for one, other, aim in traffic.RATIOS:
        ratio = float(np.nanmedian(speeds[one] / speeds[other]))
        if ratio < (aim or 1.0) or ratio < 1.0:
            wanted = f"; we aim at {aim:g} ×" if aim else ""
            found.append(f"{traffic.ROWS[one]} is {ratio:.2f} × as fast as {traffic.ROWS[other]}{wanted}.")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="without SUMO, and nothing is written")
    asked = parser.parse_args()
    if hasattr(os, "sched_setaffinity"):  # several threads would only add CPU-seconds
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    results = measured(2, 0, (1,)) if asked.quick else measured(5, 4)
    for line in table(results)[1:]:
        print(": ".join(filter(None, line)))
    if not asked.quick:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
