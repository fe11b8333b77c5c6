"""What is learnt in the data centre, beside the exact optima: PPO, A2C and their GGF versions, three kinds of traffic.

    python benchmarks/datacenter_learning.py [--seeds 10] [--folder benchmarks/runs] [TRAFFIC ...]

Runs are kept and resumed: a second call does only what is missing. Results go to
benchmarks/results/datacenter_learning.json and docs/datacenter-learning.md, each kind of traffic replacing only its own
part.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
from evenhand.envs import resolve
from evenhand.stats import bootstrap_interval, interval

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "datacenter_learning.json"
PAGE = HERE.parent / "docs" / "datacenter-learning.md"
TRAFFIC = {"staggered": "staggered:0.2,0.3", "hotspot": "hotspot:2,3", "random": "random"}
METHODS = [(algo, welfare, "tuned") for algo in ("ppo", "a2c") for welfare in ("utilitarian", "ggf")]
PUBLISHED = [(algo, welfare, "paper") for algo, welfare, _ in METHODS]
EPISODES = 20
HOSTS = 16
GGF = eh.GGF.geometric(HOSTS)
GOODPUT = ("goodput CV", "goodput minimum", "goodput maximum")


def learnt(traffic: str, algo: str, welfare: str, preset: str, seeds: int, folder: Path) -> dict[str, Any]:
    """Train all seeds and test them; what each host gets and how its goodput is spread, by seed."""
    path = folder / f"datacenter-{traffic}-{algo}-{welfare}-{preset}"
    arguments = {"traffic": TRAFFIC[traffic]}
    if (path / "run.json").exists():
        run = eh.resume(path)
    else:
        run = eh.train(
            "datacenter", algo, welfare, seeds=seeds, arguments=arguments, preset=preset, folder=path, episodes=0
        )
    rows, goodput = [], []
    for seed in run.seeds:
        file = run.folder.evaluation(f"learning-{EPISODES}-seed-{seed}")
        if not file.exists():
            test = eh.evaluate_policy(
                "datacenter", run.policy(seed), EPISODES, run.task.config.gamma, 1000 + seed, arguments
            )
            spread = [float(test.facts[name].mean()) for name in GOODPUT]
            run.folder.write_json(file, {"returns": test.returns("average").tolist(), "goodput": spread})
        found = json.loads(file.read_text())
        rows.append(found["returns"])
        goodput.append(found["goodput"])
    name = f"{run.name}{', published settings' if preset == 'paper' else ''}"
    return {"name": name, "steps": run.request.steps, "returns": rows, "goodput": goodput}


def simple(traffic: str) -> list[dict[str, Any]]:
    """The environment's own policies, the exact optima among them, and chance."""
    arguments = {"traffic": TRAFFIC[traffic]}
    env: Any = resolve("datacenter", arguments)
    found = []
    for policy in (*(baseline.name for baseline in env.baselines), "random"):
        test = eh.evaluate_policy("datacenter", policy, EPISODES, seed=1, arguments=arguments)
        spread = [float(test.facts[name].mean()) for name in GOODPUT]
        found.append({"name": policy, "returns": [test.returns("average").tolist()], "goodput": [spread]})
    return found


def section(traffic: str, results: dict[str, Any]) -> list[str]:
    rows = results["simple"] + results["learnt"]
    constant = [np.array(row["returns"][0]) for row in results["simple"]]
    best, most = max(float(GGF.value(z)) for z in constant), max(z.sum() for z in constant)
    lines = [
        f"## {TRAFFIC[traffic]}",
        "",
        f"GGF optimum {best:.3f}, utilitarian optimum {most:.1f}, both of constant rates and by linear programs. "
        f"{results['seeds']} seeds.",
        "",
        "| | GGF score | of the optimum | sum | of the utilitarian optimum | CV | minimum | maximum | "
        "goodput CV | goodput minimum | goodput maximum |",
        "|" + " --- |" * 11,
    ]
    for row in rows:
        z, goodput = np.array(row["returns"]), np.array(row["goodput"])
        score, total = np.asarray(GGF.value(z)), z.sum(1)
        cv = np.array([eh.metrics.cv_of_one_sign(x) for x in z])
        columns = (score, score / best, total, total / most, cv, z.min(1), z.max(1), *goodput.T)
        digits = (".3f", ".1%", ".1f", ".1%", ".3f", ".2f", ".2f", ".3f", ".2f", ".2f")
        cells = [_cell(column, form) for column, form in zip(columns, digits, strict=True)]
        lines.append(f"| {row['name']} | {' | '.join(cells)} |")
    by_name = {row["name"]: np.array(row["returns"]) for row in results["learnt"]}
    lines.append("")
    for name, z in by_name.items():
        base = by_name.get(name.removeprefix("GGF-"))
        if name.startswith("GGF-") and base is not None:
            gain = bootstrap_interval((z, base), lambda one, two: GGF.value(one).mean() - GGF.value(two).mean())
            difference = float(np.mean(GGF.value(z)) - np.mean(GGF.value(base)))
            lines.append(f"- {name}: GGF score {difference:+.2f} [{gain.low:+.2f}, {gain.high:+.2f}] beside its base.")
    return [*lines, ""]


def _cell(samples: np.ndarray, form: str) -> str:
    if np.isnan(samples).any():
        return "–"
    if len(samples) == 1:
        return f"{samples[0]:{form}}"
    low, high = interval(samples)
    return f"{samples.mean():{form}} [{low:{form}}, {high:{form}}]"


INTRODUCTION = """\
# What is learnt in the data centre

Written by `benchmarks/datacenter_learning.py`. Mean rewards of a step over test episodes of 200 steps, in the
simulator, by policies as they are, drawing their rates at random where they do; mean and 95 % interval over seeds, and
for differences the bootstrap's (BCa). Base and fair algorithms have the same settings; those that were tuned were tuned
with other seeds, as src/evenhand/presets/tuned.toml says. There is no CV (–) where the returns of some seed have both
signs. With weights that halve, an equal share for all is within a per cent of the best
score, so that the sum says more about what a fair learner has found: what it still leaves to those who could have more.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traffic", nargs="*", default=list(TRAFFIC), metavar="TRAFFIC", help=", ".join(TRAFFIC))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=HERE / "runs")
    asked = parser.parse_args()
    for traffic in asked.traffic:
        began = time.perf_counter()
        methods = METHODS + (PUBLISHED if traffic == "staggered" else [])
        found = {
            "seeds": asked.seeds,
            "simple": simple(traffic),
            "learnt": [learnt(traffic, *method, asked.seeds, asked.folder) for method in methods],
        }
        results = (json.loads(RESULTS.read_text()) if RESULTS.exists() else {}) | {traffic: found}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        lines = INTRODUCTION.splitlines()
        for name in TRAFFIC:
            lines += section(name, results[name]) if name in results else []
        PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")
        print("\n".join(section(traffic, found)), f"({traffic}: {time.perf_counter() - began:.0f} s)\n", flush=True)


if __name__ == "__main__":
    main()
