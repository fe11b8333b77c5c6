"""Is what was learnt fair? Each algorithm and its GGF version, over ten seeds, beside the exact optimum.

    python benchmarks/fairness.py [--seeds 10] [--folder benchmarks/results] [STUDY ...]

Runs are kept and resumed: a second call does only what is missing. Writes docs/fairness.md.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import evenhand as eh
from evenhand.stats import interval

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "fairness.md"
STRONG = {"response": "strong"}


@dataclass(frozen=True)
class Study:
    title: str
    env: str
    about: str
    measures: tuple[tuple[str, str, int, dict[str, Any]], ...]
    """(heading, measure, episodes, arguments of the environment while testing)"""
    arguments: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Changes to the preset, by algorithm; the same for base and fair version."""
    steps: dict[str, int] = field(default_factory=dict)
    algos: tuple[str, ...] = ("ppo", "a2c", "dqn")
    welfares: tuple[str, ...] = ("utilitarian", "ggf")
    training: dict[str, Any] = field(default_factory=dict)


DISCOUNTED = ("discounted returns from the start, × (1 − γ)", "discounted", 2000, {"episode_steps": 1000})
LONG_RUN = ("mean reward over 3,650 years", "average", 100, {"episode_steps": 3650})
STUDIES = {
    "strong": Study(
        "Species, strong predation (d_max = K/3), γ = 0.99",
        "species",
        "The response with real tension between the species. It is not the one the paper's figures come from: it was "
        "chosen, after other runs, because there fair and utilitarian policies differ.",
        (DISCOUNTED, LONG_RUN),
        STRONG,
    ),
    "smooth": Study(
        "The same with weights that pass gradually from one order to another (weight_width = 0.1)",
        "species",
        "A smoothed GGF instead of the paper's jump of the weights.",
        (DISCOUNTED,),
        STRONG,
        {"ppo": {"weight_width": 0.1}, "a2c": {"weight_width": 0.1}},
        algos=("ppo", "a2c"),
        welfares=("ggf",),
    ),
    "patient": Study(
        "Species, strong predation, γ = 0.999",
        "species",
        "A learner that looks further ahead, in episodes of 1,000 years.",
        (LONG_RUN,),
        STRONG,
        {
            "ppo": {"gamma": 0.999, "gae_lambda": 0.995, "rollout": 256},
            "a2c": {"gamma": 0.999, "reward_scale": 0.1, "entropy": 0.002},
            "dqn": {"gamma": 0.999},
        },
        steps={"ppo": 1_500_000, "a2c": 2_000_000},
        training={"episode_steps": 1000},
    ),
    "published": Study(
        "Species, the published response (d_max = 2K/3), γ = 0.99",
        "species",
        "Here the utilitarian and the fair optimum nearly coincide.",
        (DISCOUNTED, LONG_RUN),
    ),
    "fruit-tree": Study(
        "MO-Gymnasium's fruit-tree-v0",
        "fruit-tree-v0",
        "Six nutrients; each of 64 fruits has another mix of them, and six steps lead to one.",
        (("episode returns", "return", 500, {}),),
        steps={"ppo": 200_000, "a2c": 200_000, "dqn": 100_000},
        settings={"a2c": {"reward_scale": 0.1}},
    ),
    "four-room": Study(
        "MO-Gymnasium's four-room-v0",
        "four-room-v0",
        "Three kinds of items are collected in four rooms.",
        (("episode returns", "return", 200, {}),),
        steps={"ppo": 400_000, "a2c": 400_000, "dqn": 200_000},
        settings={"ppo": {"reward_scale": 1.0}, "a2c": {"reward_scale": 1.0}, "dqn": {"reward_scale": 1.0}},
    ),
    "resource-gathering": Study(
        "MO-Gymnasium's resource-gathering-v0",
        "resource-gathering-v0",
        "Gold and gems, and an enemy on the way who may take both (a negative first reward).",
        (("episode returns", "return", 500, {}),),
        steps={"ppo": 300_000, "a2c": 300_000, "dqn": 100_000},
        settings={"ppo": {"reward_scale": 1.0}, "a2c": {"reward_scale": 1.0}, "dqn": {"reward_scale": 1.0}},
    ),
}


def run_of(study: Study, name: str, algo: str, welfare: str, seeds: int, folder: Path) -> eh.Run:
    path = folder / f"{name}-{algo}-{welfare}"
    if (path / "run.json").exists():
        return eh.resume(path)
    return eh.train(
        study.env,
        algo,
        welfare,
        steps=study.steps.get(algo),
        seeds=seeds,
        arguments=study.arguments,
        training=study.training,
        settings=study.settings.get(algo, {}),
        folder=path,
        episodes=0,
    )


def means(run: eh.Run, study: Study, measure: str, episodes: int, test: dict[str, Any]) -> np.ndarray:
    """[seeds, D]: what each user gets, by seed; kept in the run folder."""
    rows = []
    for seed in run.seeds:
        file = run.folder.evaluation(f"{measure}-{episodes}-seed-{seed}")
        if not file.exists():
            evaluation = eh.evaluate_policy(
                study.env,
                run.policy(seed),
                episodes,
                gamma=run.task.config.gamma,
                seed=1000 + seed,
                arguments=study.arguments | test,
            )
            run.folder.write_json(file, {"returns": evaluation.returns(measure).tolist()})
        rows.append(json.loads(file.read_text())["returns"])
    return np.array(rows)


def optimum(study: Study, measure: str, gamma: float) -> float | None:
    if study.env != "species":
        return None
    from evenhand.envs.species import Species
    from evenhand.envs.species_reference import SpeciesReference

    reference = SpeciesReference(Species(**study.arguments))
    found = reference.discounted("ggf", gamma) if measure == "discounted" else reference.average("ggf")
    return float(found.welfare)


def with_interval(samples: np.ndarray) -> str:
    low, high = interval(samples)
    return f"{samples.mean():.3f} [{low:.3f}, {high:.3f}]"


def section(name: str, study: Study, seeds: int, folder: Path) -> list[str]:
    lines = [f"## {study.title}", "", study.about, ""]
    runs = {
        (algo, welfare): run_of(study, name, algo, welfare, seeds, folder)
        for algo in study.algos
        for welfare in study.welfares
    }
    first = next(iter(runs.values()))
    D = len(first.request["objectives"])
    ggf = eh.GGF.geometric(D)
    for heading, measure, episodes, test in study.measures:
        best = optimum(study, measure, first.task.config.gamma)
        fraction = " | of the optimum" if best else ""
        lines += [
            f"Measured on {heading} ({episodes} test episodes for each of {seeds} seeds; mean and 95 % interval over "
            f"the seeds){f'; the exact optimum has a GGF score of {best:.4f}' if best else ''}.",
            "",
            f"| | {' | '.join(first.request['objectives'])} | GGF score | CV | minimum | average{fraction} |",
            "| --- |" + " --- |" * (D + 4 + bool(best)),
        ]
        verdicts = []
        for algo in study.algos:
            scores = {}
            for welfare in study.welfares:
                z = means(runs[algo, welfare], study, measure, episodes, test)
                columns = [ggf.value(z), np.abs(z).std(1) / np.abs(z).mean(1), z.min(1), z.mean(1)]
                scores[welfare] = columns
                cells = [f"{x:.3f}" for x in z.mean(0)] + [with_interval(column) for column in columns]
                if best:
                    cells.append(f"{columns[0].mean() / best:.1%}")
                lines.append(f"| {runs[algo, welfare].name} | {' | '.join(cells)} |")
            if len(study.welfares) == 2:
                verdicts.append(_verdict(runs[algo, "ggf"].name, *(scores[w] for w in ("utilitarian", "ggf"))))
        lines += ["", *verdicts, ""] if verdicts else [""]
    return lines


def _verdict(name: str, base: list[np.ndarray], fair: list[np.ndarray]) -> str:
    """Whether the intervals of the base and of the fair version separate, in the right direction."""
    words = []
    for label, sign, one, other in zip(("GGF score", "CV", "minimum"), (1, -1, 1), base, fair, strict=False):
        (low, high), (below, above) = interval(one), interval(other)
        apart = below > high if sign > 0 else above < low
        reverse = above < low if sign > 0 else below > high
        better = "higher" if sign > 0 else "lower"
        worse = "lower" if sign > 0 else "higher"
        words.append(
            f"{label} {better}" if apart else f"**{label} {worse}**" if reverse else f"*{label} not separated*"
        )
    return f"- {name} against its base: {', '.join(words)}."


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", default=list(STUDIES), metavar="STUDY", help=", ".join(STUDIES))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--folder", type=Path, default=HERE / "results")
    asked = parser.parse_args()
    warnings.filterwarnings("ignore", message=".*precision lowered by casting")
    lines = [
        "# Is what was learnt fair?",
        "",
        "Every algorithm with the utilitarian welfare (its base) and with the GGF of weights ∝ 1/2^i, same settings "
        "for both, from the preset `tuned` unless the study says otherwise. Written by `benchmarks/fairness.py`; "
        "scores are of trained policies as they are, drawing actions at random where they do. A verdict says that "
        "something is higher or lower only where the 95 % intervals over the seeds do not overlap.",
        "",
    ]
    for name in asked.studies:
        began = time.perf_counter()
        lines += section(name, STUDIES[name], asked.seeds, asked.folder)
        print("\n".join(lines[-30:]), f"\n({name}: {time.perf_counter() - began:.0f} s)\n", flush=True)
    if set(asked.studies) == set(STUDIES):
        PAGE.write_text("\n".join(lines).rstrip() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
