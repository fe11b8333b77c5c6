"""How fast the emulated network is made, read and stepped, and how well it keeps its pace.

    python benchmarks/datacenter_emulated.py [--steps 200]

Needs Linux and no root. Each requirement is printed with what was measured; the exit code is 1 if one is not met. Run
it on a machine that has little else to do: the network goes in real time.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.envs.datacenter import Datacenter
from evenhand.envs.datacenter.emulated import EmulatedEnv
from evenhand.envs.datacenter.network import Network
from evenhand.envs.datacenter.trust import BEHIND, LATE, SENT, STILL, UNEVEN
from evenhand.envs.datacenter.wiring import plan

RESULTS = Path(__file__).parent / "results" / "datacenter_emulated.json"
REPEATS = 10


def seconds(action: Any) -> tuple[float, Any]:
    start = time.perf_counter()
    result = action()
    return time.perf_counter() - start, result


def made_and_read(k: int) -> dict[str, float]:
    """Set-up until packets can be sent, a reading of all queues while hosts send, a new episode, and the end."""
    env = Datacenter(k=k, traffic="staggered:0.2,0.3")
    wanted = plan(env.tree, env.paths, env.port, env.capacity, len(env.flows))
    times: dict[str, list[float]] = {"set up": [], "read idle": [], "read busy": [], "begin again": [], "close": []}
    for _ in range(REPEATS if k == 4 else 3):
        spent, network = seconds(lambda: Network(wanted))
        begun, _ = seconds(lambda network=network: network.begin(env.flows, 0))
        times["set up"].append(spent + begun)
        times["read idle"] += [seconds(network.read)[0] for _ in range(20)]
        network.send(5e6 / 8 / (1 if k == 4 else 8))
        time.sleep(0.3)
        for _ in range(20):
            times["read busy"].append(seconds(network.read)[0])
            time.sleep(0.02)
        times["begin again"].append(seconds(lambda network=network: network.begin(env.flows, 0))[0])
        times["close"].append(seconds(network.close)[0])
    return {name: float(np.median(found)) for name, found in times.items()}


def reachable() -> int:
    """How many of the 240 ordered pairs of hosts get packets through."""
    env = Datacenter("flows:15")
    network = Network(plan(env.tree, env.paths, env.port, env.capacity, len(env.flows)))
    try:
        network.begin(env.flows, 0)
        network.send(0.1e6 / 8)
        time.sleep(2)
        return int((network.read().delivered > 0).sum())
    finally:
        network.close()


def paced(time_scale: int, rates: str, steps: int) -> dict[str, float]:
    """Steps a second with constant rates, chosen in no time."""
    env = EmulatedEnv(Datacenter(episode_steps=steps), time_scale)
    chosen = {policy.name: policy.rates for policy in env.baselines}[rates]
    action = np.clip(np.array(chosen), 0, 10).astype(np.float32)
    try:
        env.reset(seed=0)
        start, truncated = time.perf_counter(), False
        while not truncated:
            *_, truncated, info = env.step(action)
        elapsed = time.perf_counter() - start
    finally:
        env.close()
    return {"steps a second": steps / elapsed} | {
        name: info["summary"][name] for name in (SENT, BEHIND, STILL, UNEVEN, LATE)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    asked = parser.parse_args()
    found: dict[str, Any] = {
        "machine": {"processors": os.cpu_count(), "kernel": platform.release(), "load before": os.getloadavg()[0]},
        "pairs": reachable(),
        "k = 4": made_and_read(4),
        "k = 8": made_and_read(8),
    }
    for time_scale in (1, 4):
        for rates in ("max-min fair", "maximum"):
            found[f"x{time_scale}, {rates}"] = paced(time_scale, rates, asked.steps * time_scale)
    found["machine"]["load after"] = os.getloadavg()[0]
    requirements = {
        "all 240 ordered pairs are reachable": found["pairs"] == 240,
        "set up in 0.5 s": found["k = 4"]["set up"] <= 0.5,
        "80 queues are read in 5 ms": found["k = 4"]["read busy"] <= 0.005,
        "20 steps a second": found["x1, max-min fair"]["steps a second"] >= 19.8,
        "80 steps a second at four times the pace": found["x4, max-min fair"]["steps a second"] >= 79.2,
        "0.97 is sent of what is requested": found["x1, max-min fair"][SENT] >= 0.97,
        "and so it is at four times the pace": found["x4, max-min fair"][SENT] >= 0.97,
    }
    print(json.dumps(found, indent=2))
    for requirement, met in requirements.items():
        print("✓" if met else "✗", requirement)
    RESULTS.write_text(json.dumps({**found, "requirements": requirements}, indent=2) + "\n", "utf-8")
    return 0 if all(requirements.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
