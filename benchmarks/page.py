"""The page that leads to all benchmarks: docs/benchmarks.md, from what was measured last.

    python benchmarks/page.py

Where evenhand is not ahead comes first, then what we aim at with what came out, then the tables that matter most.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import environments
import exact
import learning_page
import morl

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "benchmarks.md"
ENVIRONMENTS_AIM = 5
"""On so many of MO-Gymnasium's environments the fair algorithms' score should be above every peer's."""
PPO = ("ppo", "utilitarian")


def read(name: str) -> dict[str, Any]:
    return json.loads((HERE / "results" / f"{name}.json").read_text(encoding="utf-8"))


def aims(solver: dict[str, Any], learning: dict[str, Any], fair: dict[str, Any]) -> list[list[str]]:
    """What we aim at, and what came out."""
    speed, yes = learning["speed"], {True: "yes", False: "**no**"}
    lines = [["", "aim", "measured", "met"]]
    [ppo] = [row for row in learning_page.beside_sb3(speed["species"]) if (row["algo"], row["welfare"]) == PPO]
    shares = learning_page.shares_table(speed)[1:]
    lines.append(
        [
            "PPO on species, one seed on one core, beside Stable-Baselines3",
            "≥ 15 ×",
            f"{ppo['ratio']:.1f} × ({shares[0][-1]} of what the core can compute)",
            yes[ppo["ratio"] >= 15],
        ]
    )
    many = speed["seeds"]
    for whom, ratio in (("one process", many["cached_one"]), ("a process on each core", many["cached_two"])):
        lines.append(
            [
                f"PPO on species, {many['seeds']} seeds on two cores, beside {whom} of Stable-Baselines3",
                "≥ 25 ×",
                f"{ratio:.1f} × ({shares[-1][-1]} of what the cores can compute)",
                yes[ratio >= learning_page.SEEDS_AIM],
            ]
        )
    host = [row for part in ("cartpole", "mountaincar") for row in learning_page.beside_others(speed[part])]
    sbx = [row["ratio"] for row in host if row["peer"] == "sbx"]
    lines.append(
        [
            "PPO and DQN on CartPole and mo-mountaincar, beside SBX",
            "≥ 1 ×",
            f"{min(sbx):.1f} to {max(sbx):.1f} ×",
            yes[min(sbx) >= 1],
        ]
    )
    for row in solver["versus"]:
        if row["case"]["states"] == 10_000:
            cells = exact.beside(row)
            met = exact.ratio(row) >= exact.HIGHS_AIM and row["ours"]["gap"] <= exact.GAP
            lines.append(
                [
                    f"Exact solver, {cells[0]}, beside HiGHS; certified gap",
                    f"≥ {exact.HIGHS_AIM:g} ×; ≤ {exact.GAP:g}",
                    f"{cells[6]}; {cells[2]}",
                    yes[met],
                ]
            )
    for kind, when in (("early", "from few steps"), ("quality", "in the end")):
        rows = learning.get(kind, {"rows": [], "seeds": 0})
        verdicts = [learning_page.verdict(row["test"]["evenhand"], row["test"]["sb3"]) for row in rows["rows"]]
        lines.append(
            [
                f"PPO, A2C, DQN {when}, {len(verdicts)} cases × {rows['seeds']} seeds, beside Stable-Baselines3",
                "none behind",
                ", ".join(f"{verdicts.count(word)} {word}" for word in ("ahead", "level", "behind")),
                yes["behind" not in verdicts],
            ]
        )
    above = [env for env, found in fair.items() if morl.above_all(env, found, ("ahead", "level"))]
    apart = [env for env, found in fair.items() if morl.above_all(env, found)]
    lines.append(
        [
            f"GGF-PPO's score above all of MORL-Baselines' on MO-Gymnasium's environments ({len(fair)} measured)",
            f"≥ {ENVIRONMENTS_AIM}",
            f"{len(above)}; with intervals apart {len(apart)}",
            yes[len(above) >= ENVIRONMENTS_AIM],
        ]
    )
    return lines


def fairness_table(fair: dict[str, Any]) -> list[list[str]]:
    """One row for each environment: the scores, and what the intervals say."""
    marks = {"ahead": "", "level": " (level)", "behind": " (**ahead of us**)", "": ""}
    lines = [["", *(morl.TITLES[name] for name in (morl.OURS, *morl.PEERS))]]
    for env, measured in fair.items():
        found = morl.compared(env, measured)
        lines.append([env])
        for name in (morl.OURS, *morl.PEERS):
            one = found.get(name)
            lines[-1].append(f"{one.score:.3f} ± {(one.high - one.low) / 2:.3f}{marks[one.verdict]}" if one else "–")
    return lines


def page() -> str:
    solver, learning, fair, speeds = (read(name) for name in ("exact", "learning", "morl", "environments"))
    behind = [*exact.shortfalls(solver), *learning_page.shortfalls(learning), *morl.shortfalls(fair)]
    behind += environments.shortfalls(speeds)
    table = learning_page.markdown
    return TEXT.format(
        about=learning_page.about(learning["speed"] | {"loads": {}}),
        shortfalls="\n".join(f"- {sentence}" for sentence in behind),
        aims=table(aims(solver, learning, fair)),
        species=table(learning_page.everyone_table(learning["speed"]["species"])),
        cartpole=table(learning_page.everyone_table(learning["speed"]["cartpole"])),
        mountaincar=table(learning_page.everyone_table(learning["speed"]["mountaincar"])),
        seeds=table(learning_page.seeds_table(learning["speed"]["seeds"])),
        many=learning["speed"]["seeds"]["seeds"],
        steps=learning["speed"]["seeds"]["steps"],
        shares=table(learning_page.shares_table(learning["speed"])),
        early=table(learning_page.quality_table(learning["early"]["rows"])),
        seeds_early=learning["early"]["seeds"],
        fair=table(fairness_table(fair)),
        versus=exact.markdown(exact.VERSUS, map(exact.beside, solver["versus"])),
        scalar=exact.markdown(exact.SCALAR, map(exact.beside, solver["scalar"])),
        own=exact.markdown(exact.ALONE, map(exact.by_itself, solver["alone"])),
        growth=exact.grown(solver),
        environments=table(environments.table(speeds)),
    )


TEXT = """\
# Benchmarks

`make bench` measures this anew, back to back in one run of less than an hour, and writes this page. Three things are
measured by themselves and kept, because they take too long: what is learnt "in the end" (`make bench-quality`), the
sentences on the first update and on memory (`python benchmarks/learning.py --only starting`), and a million states with
16 users (`python benchmarks/exact.py --largest`). Machines are noisy: the ratios count, not the seconds. {about}

## Where evenhand is not ahead, or falls short of what we aim at

{shortfalls}

## What we aim at

{aims}

## Speed of learning

Steps per CPU-second of one seed on one core, learning included, all with the same hyperparameters. Stable-Baselines3
and SBX have one reward, the sum; MORL-Baselines' PPO (NLMOPPO) has vectors, and stands beside our GGF version.
Compiling and the first update are of a process with nothing in a cache, and so is the time of a run of 500,000 steps;
"again" is with what that left in the cache. More of this, and the settings:
[benchmarks-learning.md](benchmarks-learning.md).

### Species conservation

{species}

### CartPole-v1, which nobody can compile

{cartpole}

### mo-mountaincar-v0, likewise, with three rewards

{mountaincar}

### {many} seeds of {steps:,} steps on two cores

{seeds}

{shares}

## What is learnt beside Stable-Baselines3

{seeds_early} seeds each, at equal steps and settings; mean ± 95 % interval.
[benchmarks-learning.md](benchmarks-learning.md) has longer runs too.

{early}

## How fair it is beside MORL-Baselines

The GGF of the mean discounted returns, ± 95 % interval over ten seeds, at equal steps; how it was measured, and the
returns themselves: [benchmarks-morl.md](benchmarks-morl.md).

{fair}

## Exact solver

[benchmarks-exact.md](benchmarks-exact.md) says how. Beside HiGHS's interior point:

{versus}

One reward, beside quantecon:

{scalar}

Alone:

{own}

How it grows with the states; the power is that of the last step:

{growth}

## Environments

Steps per CPU-second with random actions and no learning; the traffic light makes decisions of 14 simulated seconds in a
fixed cycle ([more](benchmarks-traffic.md)). The NumPy versions are our own, and lean.

{environments}
"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.name}")
