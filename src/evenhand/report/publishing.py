"""From the results of a study to its files: a page, figures, claims as text, and all numbers for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from evenhand.disk import make_folder, read_json, write_atomically
from evenhand.errors import InputError, Say
from evenhand.report.page import command, page, paragraph
from evenhand.report.study_page import STYLE, claims_parts, how_parts, rules, study_page
from evenhand.report.study_pictures import Figure, curves_figure, figures_of
from evenhand.report.text import as_json
from evenhand.report.verdicts import claims_markdown
from evenhand.runs.folder import versions
from evenhand.studies.claims import Judged
from evenhand.studies.experiment import Study
from evenhand.studies.results import (
    Results,
    claims_record,
    curves_of,
    levels_of,
    provenance,
    record,
    settings_of,
    verdicts,
)

PAGE, RECORD, CLAIMS = "index.html", "results.json", "claims.md"


def publish(
    study: Study,
    results: Sequence[Results],
    folder: Path,
    line: str,
    notes: Sequence[str] = (),
    say: Say = lambda _: None,
) -> list[dict[str, Judged]]:
    """Write everything about a study that was run, and give the verdicts on its claims.

    line: the command that makes it again. notes: what the page must say at its beginning.
    """
    settings = settings_of(study, results, say=say)
    say("judging the claims")
    found = verdicts(study.claims, {setting.key: setting.returns for setting in settings})
    drawings: dict[str, list[Figure]] = {}
    for result in results:
        curves = curves_of(result)
        if curves:
            drawings[result.experiment.key] = [curves_figure(result.experiment, curves, levels_of(result))]
    drawings |= figures_of(study, settings)
    say("drawing the figures")
    figures = drawn(drawings, folder)
    runs = {f"{r.experiment.key}/{name}": runs[0] for r in results for name, runs in r.runs.items()}
    came = provenance([run for r in results for of_method in r.runs.values() for run in of_method])
    how = [command(line), *rules(), *how_parts(study.experiments, runs, came)]
    text = study_page(study, found, settings, figures, [*notes, *_gaps(results)], how)
    _write(folder, study, found, text, record(study, settings, found) | {"provenance": came, "command": line})
    return found


def publish_facts(
    study: Study, samples: Mapping[str, Any], drawings: Mapping[str, Sequence[Figure]], folder: Path, line: str
) -> list[dict[str, Judged]]:
    """The same for a study whose claims are computed, not sampled. samples: by setting and key."""
    found = verdicts(study.claims, samples)
    figures = drawn(drawings, folder)
    came = {"versions": [versions()], "core_hours": math.nan}
    text = study_page(study, found, [], figures, [], [command(line), *how_parts((), {}, came)])
    numbers = {
        "study": study.key,
        "title": study.title,
        "command": line,
        "claims": claims_record(study.claims, found),
        "provenance": came,
    }
    _write(folder, study, found, text, numbers)
    return found


def drawn(drawings: Mapping[str, Sequence[Figure]], folder: Path) -> dict[str, list[tuple[Figure, str]]]:
    """Every figure in the folder "figures", and as SVG."""
    make_folder(folder / "figures")
    return {key: [(figure, figure.save(folder / "figures")) for figure in some] for key, some in drawings.items()}


def _gaps(results: Sequence[Results]) -> list[str]:
    said = []
    for result in results:
        experiment = result.experiment
        of_first = result.evaluations[experiment.tests[0].name]
        short = {name: len(of_first.get(name, ())) for name in experiment.methods}
        short = {name: number for name, number in short.items() if number < len(experiment.seeds)}
        if short:
            listed = ", ".join(f"{name} {number}" for name, number in short.items())
            said.append(f"Not complete: of {len(experiment.seeds)} seeds in {experiment.title} there are: {listed}.")
    return said


def _write(
    folder: Path, study: Study, found: Sequence[Mapping[str, Judged]], text: str, numbers: dict[str, Any]
) -> None:
    write_atomically(folder / RECORD, as_json(numbers).encode())
    write_atomically(folder / CLAIMS, claims_markdown(study.title, study.claims, found).encode())
    write_atomically(folder / PAGE, text.encode())


def overview(root: Path, order: Sequence[str]) -> str:
    """A page with the claims of several studies, which leads to their own pages. order: of their folders in `root`."""
    parts = []
    for name in order:
        if (root / name / PAGE).exists():
            kept = read_json(root / name / RECORD)
            try:
                parts.append(f'<h2><a href="{escape(name)}/{PAGE}">{escape(kept.get("title", name))}</a></h2>')
                parts += claims_parts(kept["claims"])
            except (AttributeError, LookupError, TypeError, ValueError):
                raise InputError(
                    f"{root / name / RECORD} is damaged: it should have claims and verdicts. Do that part again."
                ) from None
    about = (
        "Claims and verdicts of each part. Their pages have figures, scores for other weights, and how it was all run."
    )
    return page("The paper, reproduced", [paragraph(about), *parts], STYLE)
