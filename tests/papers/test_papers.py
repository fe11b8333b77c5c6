"""The paper's theory as it is reproduced: every fact that decides a claim, and the figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from evenhand.papers import theory
from evenhand.welfare import GGF
from theory_facts import come_out_as_in_docs_theory


def test_the_example_by_hand() -> None:
    """After Up in s1: Up-Up brings (7, 7), Up-Down (12, 5); from s2 it is (0, 7) or (5, 5)."""
    scores = theory.example_scores(GGF([5 / 9, 4 / 9]))
    assert scores["Up"] == pytest.approx((7, 28 / 9))
    assert scores["Down"] == pytest.approx((73 / 9, 5))
    scores = theory.example_scores(GGF([4 / 5, 1 / 5]))
    assert scores["Up"] == pytest.approx((7, 7 / 5))
    assert scores["Down"] == pytest.approx((32 / 5, 5))


@pytest.mark.slow
def test_the_theory_comes_out_as_in_docs_theory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With few random models; `make soak` has all of them."""
    monkeypatch.setattr(theory, "MODELS", 4)
    come_out_as_in_docs_theory(tmp_path)
