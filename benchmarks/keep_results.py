"""Keep what `evenhand reproduce` has found: claims, numbers and some pictures, from its folder to docs/results/.

    python benchmarks/keep_results.py reproduction "evenhand reproduce --scale quick"

The second argument says how it was made. docs/results/README.md is written anew; pages (index.html), PDFs and the
pictures that it does not show are left where they are, for their size.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from evenhand.report.study_page import explanations

RESULTS = Path(__file__).parent.parent / "docs" / "results"
PARTS = ("species", "traffic", "datacenter", "theory")
SHOWN = ("curves", "-ggf-2", "-cv", "-objectives")
"""The endings of pictures that are kept and on the page; of the theory all are."""
MARKS = {"holds": "holds", "does not hold": "**does not hold**", "undecided": "undecided"}


def verdict(found: Any) -> str:
    return MARKS[found["verdict"]]


def table(claims: list[dict[str, Any]]) -> list[str]:
    """One row for each claim, one column for each setting that any of them is judged in."""
    settings = list(dict.fromkeys(name for claim in claims for name in claim["verdicts"]))
    lines = [f"| claim | {' | '.join(settings)} |", "|" + " --- |" * (1 + len(settings))]
    for claim in claims:
        cells = [verdict(claim["verdicts"][name]) if name in claim["verdicts"] else "" for name in settings]
        lines.append(f"| {claim['claim']} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    source, command = Path(sys.argv[1]), sys.argv[2]
    if RESULTS.exists():
        shutil.rmtree(RESULTS)
    body, counts, facts = [], Counter[str](), ""
    for part in (name for name in PARTS if (source / name / "results.json").exists()):
        (RESULTS / part).mkdir(parents=True)
        for file in ("claims.md", "results.json"):
            shutil.copyfile(source / part / file, RESULTS / part / file)
        pictures = sorted((source / part / "figures").glob("*.png"))
        shown = [picture for picture in pictures if part == "theory" or picture.stem.endswith(SHOWN)]
        for picture in shown:
            shutil.copyfile(picture, RESULTS / part / picture.name)
        record = json.loads((RESULTS / part / "results.json").read_text("utf-8"))
        counts.update(found["verdict"] for claim in record["claims"] for found in claim["verdicts"].values())
        body += [
            f"## {record['title']}",
            "",
            *table(record["claims"]),
            "",
            *(line for note in explanations(record["claims"]) for line in (note, "")),
            f"All that was seen of each: [{part}/claims.md]({part}/claims.md); ",
        ]
        body[-1] += f"what each user got, by seed: [{part}/results.json]({part}/results.json)."
        body += ["", f"{len(shown)} of {len(pictures)} pictures:", ""]
        body += [*(f'<img src="{part}/{picture.name}" alt="{picture.stem}" width="420">' for picture in shown), ""]
        for used in record.get("provenance", {}).get("versions", [])[:1]:
            packages = ", ".join(f"{name} {version}" for name, version in used["packages"].items())
            facts = f"{used['cores']} cores ({used['cpu']}), Python {used['python']}; {packages}."
    seen = ", ".join(f"{counts[name]} × {name}" for name in MARKS)
    head = [
        "# The paper, reproduced: what came out",
        "",
        f"By `{command}`; kept here by `benchmarks/keep_results.py`. {facts}",
        "",
        "[reproduce.md](../reproduce.md) says how verdicts come about. A claim holds in a setting only if all of its",
        "comparisons do, each with 95 % intervals over seeds; undecided means that more seeds are needed or that",
        f"there is too little to tell apart. Over all claims and settings: {seen}.",
        "",
    ]
    (RESULTS / "README.md").write_text("\n".join(head + body).rstrip() + "\n", "utf-8")
    print(f"{seen}; {RESULTS / 'README.md'}")


if __name__ == "__main__":
    main()
