"""Claims and verdicts, as a table and as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from evenhand.evaluation.result import Outcome
from evenhand.report.text import plain_table
from evenhand.studies.claims import IN_WORDS, Claim, Judged
from evenhand.studies.results import Setting

STYLES = {"holds": "green", "does not hold": "red", "undecided": "yellow"}


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
