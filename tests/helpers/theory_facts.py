"""What the paper's theory comes out as when it is computed anew."""

from __future__ import annotations

from pathlib import Path

from evenhand.papers import theory
from evenhand.report.publishing import publish_facts

TRUE = {
    "stationary discounted",
    "deterministic",
    "state-dependent",
    "unichain gain",
    "published bound, random models",
    "rigorous bound",
    "error vanishes, random models",
}
FALSE = {"stationary average", "example as printed", "constant gain", "published bound", "error vanishes"}


def come_out_as_in_docs_theory(tmp_path: Path) -> None:
    said: list[str] = []
    computed = theory.compute(said.append)
    assert len(said) == 4
    facts = {key: true for key, (true, _) in computed.facts.items()}
    assert {key for key, true in facts.items() if true} == TRUE
    assert {key for key, true in facts.items() if not true} == FALSE
    assert "the error is 0.401 and the bound 0.033" in computed.facts["published bound"][1]  # as docs/theory.md has it
    assert {part.key for claim in theory.CLAIMS for part in claim.parts} == TRUE | FALSE  # type: ignore[union-attr]
    found = publish_facts(
        theory.STUDY, {theory.SETTING: computed.facts}, theory.figures(computed), tmp_path, "evenhand reproduce theory"
    )
    verdicts = [judged.verdict for by in found for judged in by.values()]
    assert (verdicts.count("holds"), verdicts.count("does not hold")) == (5, 5)
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert names == {
        f"theory-{name}.{kind}"
        for name in ("bound-1", "bound-2", "bound-3", "state-dependence")
        for kind in ("png", "pdf")
    }
    page = (tmp_path / "index.html").read_text("utf-8")
    assert page.index("Claims and verdicts") < page.index("The error of discounting")
