"""Verdicts: every kind of comparison with planted data, and the numbers behind them by hand and by scipy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

from evenhand.errors import InputError
from evenhand.studies.claims import (
    LEAST_SEEDS,
    Claim,
    Equivalent,
    Exactly,
    Higher,
    Lower,
    PriceBelow,
    judge,
    statistic,
)

RNG = np.random.default_rng(0)
LOW = np.array([[1.0, 3.0], [1.2, 3.1], [0.9, 2.8], [1.1, 3.2], [1.0, 2.9]])
HIGH = LOW + 1
NOISY = LOW + RNG.normal(0, 1, LOW.shape)
SAMPLES = {"low": LOW, "high": HIGH, "noisy": NOISY, "same": LOW.copy(), "still": np.tile([2.0, 2.0], (5, 1))}


def verdict(part: Any, samples: Any = SAMPLES) -> str:
    return judge(Claim(text="", parts=(part,), source="", settings=()), samples).verdict


# Statistics


def test_statistics_by_hand() -> None:
    z = np.array([[1.0, 3.0], [4.0, 0.0]])
    assert statistic("average", z).tolist() == [2, 2]
    assert statistic("minimum", z).tolist() == [1, 0]
    assert statistic("maximum", z).tolist() == [3, 4]
    assert statistic("cv", z) == pytest.approx([0.5, 1.0])  # σ = 1 and 2, μ = 2
    assert statistic("ggf", z) == pytest.approx([5 / 3, 4 / 3])  # weights 2/3 and 1/3
    assert statistic("ggf:10", z) == pytest.approx([13 / 11, 4 / 11])  # weights 10/11 and 1/11
    assert np.isnan(statistic("cv", np.array([[-1.0, 1.0]]))).all()


def test_the_interval_of_a_difference_is_scipys() -> None:
    text = Higher("noisy", "low", "average").judge(SAMPLES).text
    x, y = NOISY.mean(axis=1), LOW.mean(axis=1)
    expected = scipy.stats.bootstrap(
        (x, y),
        lambda a, b, axis=-1: a.mean(axis=axis) - b.mean(axis=axis),
        n_resamples=20_000,
        method="BCa",
        rng=np.random.default_rng(1),
    ).confidence_interval
    low, high = (float(part) for part in text.split("difference ")[1].split("[")[1].split("]")[0].split(", "))
    width = expected.high - expected.low
    assert low == pytest.approx(expected.low, abs=0.05 * width)
    assert high == pytest.approx(expected.high, abs=0.05 * width)
    wins = scipy.stats.mannwhitneyu(x, y).statistic / (len(x) * len(y))
    assert f"probability {wins:.2f}" in text


# Verdicts


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Higher("high", "low", "average"), "holds"),
        (Higher("low", "high", "average"), "does not hold"),
        (Higher("noisy", "low", "average"), "undecided"),
        (Lower("low", "high", "average"), "holds"),
        (Lower("high", "low", "average"), "does not hold"),
        (Lower("still", "low", "cv"), "holds"),  # all the same is as even as can be
        (Higher("still", "still", "average"), "does not hold"),  # no difference, and certain
        (Higher("low", "same", "average"), "undecided"),  # the same distribution, but seeds differ
        (Higher("high", "low", "ggf:10"), "holds"),
        (Equivalent("low", "low", "average", 0.5), "holds"),
        (Equivalent("noisy", "low", "average", 0.01), "undecided"),
        (Equivalent("high", "low", "average", 0.1), "does not hold"),
        (PriceBelow("low", "high", 0.6), "holds"),
        (PriceBelow("low", "high", 0.1), "does not hold"),
        (PriceBelow("low", "high", 1 / 3), "undecided"),
        (PriceBelow("high", "low", 0.0), "holds"),  # nothing is given up
    ],
    ids=str,
)
def test_planted_verdicts(part: Any, expected: str) -> None:
    assert verdict(part) == expected


def test_equivalence_by_hand() -> None:
    """Differences that are the same for every seed have an interval of one point."""
    samples = {"x": np.full((4, 2), -104.0), "y": np.full((4, 2), -100.0)}
    assert verdict(Equivalent("x", "y", "average", 0.05), samples) == "holds"
    assert verdict(Equivalent("x", "y", "average", 0.03), samples) == "does not hold"
    assert "by -4.0% [-4.0%, -4.0%]" in Equivalent("x", "y", "average", 0.05).judge(samples).text


def test_the_price_of_losses_by_hand() -> None:
    """Waiting 110 instead of 100 seconds costs a tenth."""
    samples = {"fair": np.full((4, 2), -110.0), "base": np.full((4, 2), -100.0)}
    assert "is 10.0% [10.0%, 10.0%]" in PriceBelow("fair", "base", 0.2).judge(samples).text


def test_few_seeds_decide_nothing() -> None:
    few = {name: z[: LEAST_SEEDS - 1] for name, z in SAMPLES.items()}
    found = judge(Claim(text="", parts=(Higher("high", "low", "average"),), source="", settings=()), few)
    assert found.verdict == "undecided"
    assert "nothing is decided with fewer than 4" in found.findings[0].text
    assert 2 / scipy.special.comb(2 * LEAST_SEEDS, LEAST_SEEDS) < 0.05 < 2 / scipy.special.comb(6, 3)


def test_one_lucky_seed_decides_nothing() -> None:
    """A mean that is higher by one outlier alone is no improvement of most runs."""
    lucky = LOW.copy()
    lucky[0] += 100
    assert verdict(Higher("lucky", "low", "average"), {"lucky": lucky, "low": LOW + 0.05}) == "undecided"


def test_what_is_missing_or_not_defined_is_undecided() -> None:
    assert verdict(Higher("nobody", "low", "average")) == "undecided"
    mixed = {"x": np.tile([-1.0, 1.0], (5, 1)), "y": LOW}
    found = judge(Claim(text="", parts=(Lower("x", "y", "cv"),), source="", settings=()), mixed)
    assert found.verdict == "undecided"
    assert "not defined" in found.findings[0].text


def test_a_claim_holds_if_all_of_it_does() -> None:
    yes, no, perhaps = (
        Higher("high", "low", "average"),
        Higher("low", "high", "average"),
        Higher("noisy", "low", "average"),
    )

    def of(*parts: Any) -> str:
        return judge(Claim(text="", parts=parts, source="", settings=()), SAMPLES).verdict

    assert of(yes, yes) == "holds"
    assert of(yes, perhaps) == "undecided"
    assert of(yes, perhaps, no) == "does not hold"
    with pytest.raises(InputError, match="nothing decides"):
        of()


def test_computed_facts() -> None:
    facts = {"a": (True, "seen"), "b": (False, "counterexample")}
    assert verdict(Exactly("a"), facts) == "holds"
    assert verdict(Exactly("b"), facts) == "does not hold"
    assert verdict(Exactly("c"), facts) == "undecided"


def test_verdicts_are_right_about_as_often_as_promised() -> None:
    """Of methods that do not differ, few are said to: 5 % of intervals miss, and the probability must agree."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(100):
        samples = {"x": rng.normal(size=(8, 2)), "y": rng.normal(size=(8, 2))}
        wrong += verdict(Higher("x", "y", "average"), samples) != "undecided"
    assert wrong <= 15
