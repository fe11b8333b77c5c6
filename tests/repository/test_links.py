"""Pages lead to files that exist, and every picture that is kept is on a page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
LINK = re.compile(r"""\]\(([^)\s]+)\)|(?:src|href)="([^"]+)\"""")


def links(page: Path) -> set[Path]:
    """The files of this repository that a page leads to or shows; what stands in code is no link."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    targets = {(one or other).partition("#")[0] for one, other in LINK.findall(text)}
    return {(page.parent / target).resolve() for target in targets if target and "://" not in target}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [target for target in links(page) if not target.exists()] == []


def test_every_picture_is_shown() -> None:
    shown = set().union(*map(links, PAGES))
    pictures = [path.resolve() for path in (ROOT / "docs").rglob("*.png")]
    assert pictures
    assert [path for path in pictures if path not in shown] == []
