"""Studies: from the results of cells to verdicts, tables and plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from rich.table import Table
from rich.text import Text

from evenhand.disk import read_json
from evenhand.errors import InputError
from evenhand.report import judging
from evenhand.report.claims import IN_WORDS, Claim, Judged, Samples, judge, statistic
from evenhand.report.learning import Curve, Outcome
from evenhand.report.text import plain_table
from evenhand.runs.study import TRAINING, Experiment, Results, Test, seconds_in
from evenhand.welfare import welfare as named_welfare

STYLES = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


@dataclass(frozen=True)
class Study:
    """Experiments, and the claims that they are to decide."""

    key: str
    title: str
    about: str
    experiments: tuple[Experiment, ...]
    claims: tuple[Claim, ...]
    ratios: tuple[int, ...] = (2,)
    """Vectors of weights 1/ratio^i whose GGF scores are drawn."""


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


def settings_of(study: Study, results: Sequence[Results], exact: bool = True) -> list[Setting]:
    """Every test of every experiment.

    exact: whether to compute the exact optimum where an experiment asks for it, which takes some seconds.
    """
    found = []
    for result in results:
        for test in result.experiment.tests:
            best = _optima(study, result, test) if exact and result.experiment.exact else {}
            doubts = tuple(_doubts(result, test))
            found.append(Setting(result.experiment, test, result.objectives, result.returns(test), best, doubts))
    return found


def _doubts(result: Results, test: Test) -> list[str]:
    counted: dict[str, dict[str, float]] = {}
    for method, played in result.evaluations[test.name].items():
        counted |= judging.facts(method, played)
    return judging.doubts(counted)


def _optima(study: Study, result: Results, test: Test) -> dict[str, Float[np.ndarray, " D"]]:
    from evenhand.envs import resolve

    env = resolve(result.experiment.env, {**result.experiment.arguments, **test.arguments})
    played = next(iter(result.evaluations[test.name].values()))[0]
    found = {}
    for ratio in study.ratios:
        name = f"ggf:{ratio}"
        welfare = named_welfare(name, len(result.objectives))
        best = judging.reference(env, welfare, test.measure, played.gamma, played.length)
        if isinstance(best, judging.Reference):
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
        parts = [curve for run in runs if (curve := judging.curve(method, run)) is not None]
        if parts and all(np.array_equal(parts[0].steps, part.steps) for part in parts):
            found.append(Curve(method, parts[0].steps, np.concatenate([part.rewards for part in parts])))
    return found


def levels_of(result: Results) -> dict[str, float]:
    """What simple policies get on average per step, in the episodes that learners are trained in."""
    return {
        method: float(np.mean([test.returns("average").mean() for test in tests]))
        for method, tests in result.evaluations.get(TRAINING, {}).items()
    }


def outcomes_of(setting: Setting) -> list[Outcome]:
    """For tables: learners first."""
    learners = {learner.name for learner in setting.experiment.learners}
    return [Outcome(name, z, "run" if name in learners else "baseline") for name, z in setting.returns.items()]


# What people read


def claims_table(claims: Sequence[Claim], found: Sequence[Mapping[str, Judged]]) -> Table:
    """One row for each claim, one column for each setting."""
    columns = columns_of(claims)
    table = plain_table()
    table.add_column("claim", ratio=2)
    for column in columns:
        table.add_column(column.replace("/", "\n"), vertical="top")
    for claim, by in zip(claims, found, strict=True):
        cells = [
            Text(by[column].verdict, style=STYLES[by[column].verdict]) if column in by else "" for column in columns
        ]
        table.add_row(Text(claim.text), *cells)
    return table


def columns_of(claims: Sequence[Claim]) -> list[str]:
    """All settings of all claims, in order."""
    return list(dict.fromkeys(setting for claim in claims for setting in claim.settings))


def claims_markdown(title: str, claims: Sequence[Claim], found: Sequence[Mapping[str, Judged]]) -> str:
    """The claims with all that was seen, as a page of text."""
    lines = [f"# {title}: claims and verdicts", ""]
    for claim, by in zip(claims, found, strict=True):
        lines += [f"## {claim.text}", "", f"Source: {claim.source}.{f' {claim.note}' if claim.note else ''}", ""]
        for setting, judged in by.items():
            lines.append(f"- {setting}: **{IN_WORDS[judged.verdict]}**")
            lines += [f"  - {finding.verdict}: {finding.text}." for finding in judged.findings]
        lines.append("")
    return "\n".join(lines)


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


def summaries(study: Study) -> list[str]:
    """The statistics that are shown of every method."""
    return [*(f"ggf:{ratio}" for ratio in study.ratios), "average", "minimum", "maximum", "cv"]


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
        for entry in _versions(run.path / "versions.json"):
            entry = {name: value for name, value in entry.items() if name != "started"}
            seen[json.dumps(entry, sort_keys=True)] = entry
        timing = run.path / "timing.json"
        seconds += seconds_in(timing) if timing.exists() else 0.0
    return {"versions": list(seen.values()), "core_hours": seconds / 3600 if seconds else math.nan}


def _versions(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    content = read_json(file)
    entries = content if isinstance(content, list) else [content]
    for entry in entries:
        known = entry if isinstance(entry, dict) else {}
        texts = all(isinstance(known.get(name), str) for name in ("python", "platform", "cpu"))
        if not texts or not isinstance(known.get("packages"), dict) or "cores" not in known:
            raise InputError(f"{file} is damaged: it should have versions and machines. Remove it to go on without it.")
    return entries
