"""How long the paper's species experiment takes on this machine: 50 seeds × six algorithms × a million steps.

    python benchmarks/paper_scale.py [--seeds 4] [--steps 1000000]

Some seeds of all six are really trained and tested, by what `evenhand reproduce` does cells with, and the time is
multiplied up to 50. The peer's is extrapolated from the speed of Stable-Baselines3 in the same run, with the same
hyperparameters: of one process, and of one for each core, started by hand; its fair versions, which do not exist, are
counted as if they cost no more than their bases, and its tests as nothing. Results go to
benchmarks/results/paper_scale.json.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from evenhand.papers.common import pairs, seeds
from evenhand.papers.species_plan import ALGOS, LONG_RUN, PUBLISHED
from evenhand.runs.pool import cores
from evenhand.studies.cells import cells_of
from evenhand.studies.executor import ThisMachine, carry_out
from learning import run, speed_case, surroundings
from learning_cases import EQUAL, SPECIES

RESULTS = Path(__file__).parent / "results" / "paper_scale.json"
PAPER_SEEDS = 50
PAPER_STEPS = 1_000_000


def own(count: int, steps: int) -> dict[str, float]:
    """Wall seconds of a few seeds of each algorithm, by algorithm."""
    found = {}
    for algo in ALGOS:
        learners = [replace(learner, settings=EQUAL | SPECIES[algo]) for learner in pairs((algo,), {algo: steps})]
        experiment = replace(
            PUBLISHED, learners=tuple(learners), simple=(), tests=(LONG_RUN,), seeds=seeds(count), exact=False
        )
        with tempfile.TemporaryDirectory() as folder:
            cells = cells_of(experiment)
            began = time.perf_counter()
            failures = carry_out(cells, Path(folder), ThisMachine(), lambda content: None, print)
            found[algo] = time.perf_counter() - began
        if failures:
            raise SystemExit(f"{failures[0][0].name}: {failures[0][1]}")
        print(f"{algo}: {found[algo]:.0f} s for {len(cells)} cells", flush=True)
    return found


def peer(algo: str, processes: int) -> float:
    """Steps per second of all processes together."""
    case = speed_case("species", algo, SPECIES[algo], 1.0) | {"cores": []}
    with ThreadPoolExecutor(processes) as pool:
        taken = list(pool.map(lambda seed: run("sb3", case | {"seed": seed}), range(processes)))
    return sum(t["steps"] / t["wall"] for t in taken)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--steps", type=int, default=PAPER_STEPS)
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    speeds = {str(n): {algo: peer(algo, n) for algo in ALGOS} for n in sorted({1, cores()})}
    ours = own(asked.seeds, asked.steps)
    scale = PAPER_SEEDS * PAPER_STEPS / (asked.seeds * asked.steps)
    whole = sum(ours.values()) * scale
    theirs = {n: sum(2 * PAPER_SEEDS * PAPER_STEPS / speed for speed in by.values()) for n, by in speeds.items()}
    results: dict[str, Any] = {"seeds": asked.seeds, "steps": asked.steps, "load": load, "seconds": ours}
    results |= {"hours": whole / 3600, "peer speeds": speeds, "surroundings": surroundings()}
    results["peer hours"] = {n: seconds / 3600 for n, seconds in theirs.items()}
    results["ratios"] = {n: seconds / whole for n, seconds in theirs.items()}
    print(f"{PAPER_SEEDS} seeds × {2 * len(ALGOS)} algorithms × {PAPER_STEPS:,} steps: {whole / 60:.0f} minutes")
    for n, seconds in theirs.items():
        print(f"Stable-Baselines3, processes at a time: {n}: {seconds / 3600:.1f} hours, {seconds / whole:.1f} ×")
    if asked.steps == PAPER_STEPS:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
