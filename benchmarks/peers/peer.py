"""What the peers' scripts share: one case as JSON on standard input, its result as JSON in the last line they print.

They run in .venv-peers. Everything that they have to know of the problem and the settings comes with the case.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1]))  # species_numpy

Job = Callable[[dict[str, Any]], dict[str, Any]]


def serve(jobs: Mapping[str, Job]) -> None:
    case = json.load(sys.stdin)
    if case["cores"]:
        os.sched_setaffinity(0, case["cores"])  # before any library starts its threads
    import torch

    torch.set_num_threads(1)
    print(json.dumps(jobs[case["job"]](case)))


def timed(case: Mapping[str, Any], learn: Callable[[int], int]) -> dict[str, float]:
    """Learn a little, so that everything has begun, and then measure; `learn` tells how many steps it took."""
    taken = learn(case["first"])
    start_wall, start_cpu = time.time() - case["began"], time.process_time()
    taken += learn(case["warm_up"])
    before, wall, cpu = time.time() - case["began"], time.perf_counter(), time.process_time()
    steps = learn(case["steps"])
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {
        "steps": steps,
        "wall": wall,
        "cpu": cpu,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "start_wall": start_wall,
        "start_cpu": start_cpu,
        "before": before,
        "taken": taken,
        "compile": 0.0,
    }


def make_env(case: Mapping[str, Any], vector: bool = False) -> Callable[[], Any]:
    """What makes one environment; several rewards are summed unless all are wanted."""

    def make() -> Any:
        import gymnasium

        if case["env"] == "species":
            from species_numpy import SpeciesNumpy

            return SpeciesNumpy(case["constants"], vector)
        if case.get("users", 1) > 1:
            import mo_gymnasium
            import numpy as np

            env = mo_gymnasium.make(case["env"])
            return env if vector else mo_gymnasium.wrappers.LinearReward(env, np.ones(case["users"]))
        env = gymnasium.make(case["env"])
        if isinstance(env.action_space, gymnasium.spaces.Box):
            env = gymnasium.wrappers.RescaleAction(env, -1.0, 1.0)  # as evenhand's policies see actions
        return env

    return make


def falling(start: float) -> Callable[[float], float]:
    """Linearly to 0 with the share of the training that remains."""
    return lambda remaining: start * remaining
