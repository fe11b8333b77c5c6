"""What a study came to: the results of its cells, setting by setting, and the verdicts on its claims."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from evenhand.envs.optimum import Reference, reference_of
from evenhand.envs.registry import doubts_of, resolve
from evenhand.errors import InputError, Say
from evenhand.evaluation.result import Evaluation, mean_facts
from evenhand.metrics import STATISTICS
from evenhand.runs.metrics_file import Curve
from evenhand.runs.run import Run, read_evaluation
from evenhand.studies.cells import Cell, hashed, played_in
from evenhand.studies.claims import Claim, Judged, Samples, judge, statistic
from evenhand.studies.cost import seconds_in
from evenhand.studies.experiment import TRAINING, Experiment, Study, Test
from evenhand.welfare import welfare as named_welfare


class Setting(NamedTuple):
    """One test of one experiment, and what came out."""

    experiment: Experiment
    test: Test
    objectives: tuple[str, ...]
    returns: Samples
    """By method: what each user gets, one row for each seed."""
    optimum: Mapping[str, Float[np.ndarray, " D"]]
    """By welfare, the returns of the exact optimum, where it is known."""
    doubts: tuple[str, ...] = ()
    """Why some of it is not to be trusted."""

    @property
    def key(self) -> str:
        """As claims name it."""
        return f"{self.experiment.key}/{self.test.name}"

    @property
    def title(self) -> str:
        """For people."""
        return f"{self.experiment.title}: {self.test.about or self.test.name}"


def settings_of(
    study: Study, results: Sequence[Results], exact: bool = True, say: Say = lambda _: None
) -> list[Setting]:
    """Every test of every experiment.

    exact: whether to ask environments for their exact optimum, which takes some seconds where they know it.
    """
    found = []
    for result in results:
        for test in result.experiment.tests:
            best = _optima(study, result, test, say) if exact else {}
            doubts = tuple(doubts_of(result.experiment.env, mean_facts(result.evaluations[test.name])))
            found.append(Setting(result.experiment, test, result.objectives, result.returns(test), best, doubts))
    return found


def _optima(study: Study, result: Results, test: Test, say: Say) -> dict[str, Float[np.ndarray, " D"]]:
    env = resolve(result.experiment.env, {**result.experiment.arguments, **test.arguments})
    if getattr(env, "reference", None) is None:
        return {}
    say(f"computing the exact optima of {result.experiment.title}")
    played = next(iter(result.evaluations[test.name].values()))[0]
    found = {}
    for ratio in study.ratios:
        name = f"ggf:{ratio}"
        welfare = named_welfare(name, len(result.objectives))
        best = reference_of(env, welfare, test.measure, played.gamma, played.length)
        if isinstance(best, Reference):
            found[name] = best.returns
    return found


def verdicts(claims: Sequence[Claim], samples: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Judged]]:
    """For each claim, the verdict in each of its settings.

    samples: by setting, what each method brings; for theory, what was computed.
    """
    found = []
    for claim in claims:
        unknown = [setting for setting in claim.settings if setting not in samples]
        if unknown:
            raise InputError(f"the claim {claim.text!r} is about {unknown[0]}, which the study does not have.")
        found.append({setting: judge(claim, samples[setting]) for setting in claim.settings})
    return found


def curves_of(result: Results) -> list[Curve]:
    """The learning curves of all learners, but for those whose metrics are lost or whose seeds differ in length."""
    found = []
    for method, runs in result.runs.items():
        parts = [curve for run in runs if (curve := run.curve(method)) is not None]
        if parts and all(np.array_equal(parts[0].steps, part.steps) for part in parts):
            found.append(Curve(method, parts[0].steps, np.concatenate([part.rewards for part in parts])))
    return found


def levels_of(result: Results) -> dict[str, float]:
    """What simple policies get on average per step, in the episodes that learners are trained in."""
    return {
        method: float(np.mean([test.returns("average").mean() for test in tests]))
        for method, tests in result.evaluations.get(TRAINING, {}).items()
    }


def summaries(study: Study) -> list[str]:
    """The statistics that are shown of every method."""
    return [
        *(f"ggf:{ratio}" for ratio in study.ratios),
        *(name for name, statistic in STATISTICS.items() if name != "welfare" and not statistic.of_many),
    ]


# What programs read


def record(study: Study, settings: Sequence[Setting], found: Sequence[Mapping[str, Judged]]) -> dict[str, Any]:
    """All numbers of a study."""
    return {
        "study": study.key,
        "title": study.title,
        "settings": {
            setting.key: {
                "title": setting.title,
                "measure": setting.test.measure,
                "episodes": setting.test.episodes,
                "objectives": list(setting.objectives),
                "returns": {method: z.tolist() for method, z in setting.returns.items()},
                "optimum": {name: z.tolist() for name, z in setting.optimum.items()},
                "scores": {
                    method: {of: statistic(of, z).tolist() for of in summaries(study)}
                    for method, z in setting.returns.items()
                },
            }
            for setting in settings
        },
        "claims": claims_record(study.claims, found),
    }


def claims_record(claims: Sequence[Claim], found: Sequence[Mapping[str, Judged]]) -> list[dict[str, Any]]:
    """Claims and verdicts as plain data."""
    return [
        {
            "claim": claim.text,
            "source": claim.source,
            "note": claim.note,
            "verdicts": {
                setting: {"verdict": judged.verdict, "seen": [finding._asdict() for finding in judged.findings]}
                for setting, judged in by.items()
            },
        }
        for claim, by in zip(claims, found, strict=True)
    ]


def provenance(runs: Sequence[Any]) -> dict[str, Any]:
    """Versions and machines that runs were made with, each once, and the hours that they took together."""
    seen: dict[str, dict[str, Any]] = {}
    seconds = 0.0
    for run in runs:
        for entry in run.folder.made_with():
            entry = {name: value for name, value in entry.items() if name != "started"}
            seen[json.dumps(entry, sort_keys=True)] = entry
        timing = run.path / "timing.json"
        seconds += seconds_in(timing) if timing.exists() else 0.0
    return {"versions": list(seen.values()), "core_hours": seconds / 3600 if seconds else math.nan}


@dataclass(frozen=True)
class Results:
    """What an experiment has come to so far."""

    experiment: Experiment
    objectives: tuple[str, ...]
    evaluations: Mapping[str, Mapping[str, tuple[Evaluation, ...]]]
    """By test (and `TRAINING`) and method, one for each seed that is complete."""
    runs: Mapping[str, tuple[Run, ...]]
    """By learner, one for each seed that is complete."""

    def returns(self, test: Test) -> dict[str, np.ndarray]:
        """`[seeds, D]` for each method: what each user got on average over the episodes of a seed."""
        return {
            method: np.stack([played.returns(test.measure) for played in tests])  # type: ignore[arg-type]
            for method, tests in self.evaluations[test.name].items()
        }


def gather(experiment: Experiment, cells: Sequence[Cell], root: Path) -> Results:
    """The results of the cells that are complete."""
    cells = [cell for cell in cells if cell.experiment == experiment.key and cell.complete(root)]
    if not cells:
        raise InputError(f"nothing of {experiment.title} is done yet.")
    runs: dict[str, list[Run]] = {}
    found: dict[str, dict[str, list[Evaluation]]] = {}
    for cell in cells:
        files = dict(zip((hashed(test) for test in cell.tests), cell.results(root), strict=True))
        wanted = [(test.name, hashed(played_in(test))) for test in experiment.tests]
        if not cell.learns:
            wanted.append((TRAINING, hashed(cell.tests[-1])))
        for name, address in wanted:
            found.setdefault(name, {}).setdefault(cell.method, []).append(read_evaluation(files[address]))
        if cell.learns:
            runs.setdefault(cell.method, []).append(cell.run(root))
    some = next(iter(found[experiment.tests[0].name].values()))[0]
    for played in (played for by in found.values() for tests in by.values() for played in tests):
        if played.objectives != some.objectives:
            raise InputError(f"the results in {root} are damaged: they are of different users.")
    return Results(
        experiment,
        some.objectives,
        {name: {method: tuple(tests) for method, tests in by.items()} for name, by in found.items()},
        {method: tuple(of_method) for method, of_method in runs.items()},
    )
