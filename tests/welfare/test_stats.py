"""Statistics over seeds, against SciPy, closed forms and how often intervals hold what they promise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InputError
from evenhand.stats import bootstrap_interval, interval, iqm, probability_of_improvement

SAMPLES = np.random.default_rng(3).lognormal(size=12)


def test_interval_is_students() -> None:
    for confidence in (0.5, 0.95, 0.99):
        expected = scipy.stats.ttest_1samp(SAMPLES, 0).confidence_interval(confidence)
        np.testing.assert_allclose(interval(SAMPLES, confidence), (expected.low, expected.high), rtol=1e-12)


def test_interval_by_hand() -> None:
    # Two seeds: one degree of freedom, whose 97.5 % quantile is tan(0.475 π) = 12.706…; s / √2 = 1/2.
    half = math.tan(0.475 * math.pi) / 2
    np.testing.assert_allclose(interval([0, 1]), (0.5 - half, 0.5 + half), rtol=1e-9)


def test_interval_holds_what_it_promises() -> None:
    rng = np.random.default_rng(0)
    hits = [low <= 0 <= high for low, high in (interval(rng.normal(size=5)) for _ in range(2000))]
    assert np.mean(hits) == pytest.approx(0.95, abs=0.015)


@pytest.mark.parametrize("method", ["bca", "percentile"])
@pytest.mark.parametrize("statistic", [np.mean, np.median, lambda x: float(np.std(x) / np.mean(x))])
def test_bootstrap_is_scipys(method: Any, statistic: Any) -> None:
    # The same draws from the same generator, so the same to the last digits.
    expected = scipy.stats.bootstrap(
        (SAMPLES,), statistic, vectorized=False, n_resamples=500, method=method, rng=np.random.default_rng(5)
    ).confidence_interval
    found = bootstrap_interval(SAMPLES, statistic, method=method, resamples=500, seed=5)
    np.testing.assert_allclose(found, (expected.low, expected.high), rtol=1e-9)


@pytest.mark.parametrize("method", ["bca", "percentile"])
def test_bootstrap_of_two_strata_is_scipys(method: Any) -> None:
    def ratio(x: np.ndarray, y: np.ndarray) -> float:
        return float(x.mean() / y.mean())

    other = np.random.default_rng(4).gamma(2, size=7)
    expected = scipy.stats.bootstrap(
        (SAMPLES, other), ratio, vectorized=False, n_resamples=500, method=method, rng=np.random.default_rng(5)
    ).confidence_interval
    found = bootstrap_interval((SAMPLES, other), ratio, method=method, resamples=500, seed=5)
    np.testing.assert_allclose(found, (expected.low, expected.high), rtol=1e-9)


def test_bootstrap_draws_whole_vectors() -> None:
    # The two users' returns always sum to one, so the sum over users of the mean vector has no spread at all.
    first = np.random.default_rng(0).integers(0, 2**20, 10) / 2**20
    vectors = np.stack([first, 1 - first], axis=1)
    assert bootstrap_interval(vectors, lambda v: v.mean(axis=0).sum(), resamples=200) == pytest.approx(
        (1, 1), abs=1e-12
    )
    low, high = bootstrap_interval(vectors, lambda v: v.mean(axis=0).min(), resamples=200)
    assert low < high <= 0.5


def test_bootstrap_holds_about_what_it_promises() -> None:
    rng = np.random.default_rng(1)
    hits = []
    for trial in range(300):
        low, high = bootstrap_interval(rng.exponential(size=30), np.mean, 0.9, resamples=300, seed=trial)
        hits.append(low <= 1 <= high)
    assert np.mean(hits) == pytest.approx(0.88, abs=0.05)


def test_everything_is_deterministic_given_the_seed() -> None:
    assert bootstrap_interval(SAMPLES, iqm, seed=1) == bootstrap_interval(SAMPLES, iqm, seed=1)
    assert bootstrap_interval(SAMPLES, iqm, seed=1) != bootstrap_interval(SAMPLES, iqm, seed=2)
    assert probability_of_improvement(SAMPLES, SAMPLES + 0.1) == probability_of_improvement(SAMPLES, SAMPLES + 0.1)


def test_one_seed_says_nothing_about_others() -> None:
    for found in (interval([3.0]), bootstrap_interval([[3.0, 4.0]], np.mean)):
        assert np.isnan(found).all()
    value, low, high = probability_of_improvement([3.0], [1.0, 2.0])
    assert value == 1
    assert np.isnan([low, high]).all()


def test_the_same_for_all_seeds() -> None:
    assert interval([0.1] * 7) == (0.1, 0.1)
    assert bootstrap_interval(np.full((7, 2), 0.25), lambda v: v.mean(axis=0).min(), resamples=50) == (0.25, 0.25)
    assert iqm([0.25] * 7) == 0.25
    assert probability_of_improvement([1, 1], [1, 1, 1]) == (0.5, 0.5, 0.5)


def test_bca_is_percentile_where_it_is_not_defined() -> None:
    samples = [1.0, 1.0, 1.0, 2.0, 2.0]  # whichever is left out, the minimum is 1: no acceleration can be computed
    assert bootstrap_interval(samples, np.min) == bootstrap_interval(samples, np.min, method="percentile")


def test_iqm_by_hand() -> None:
    assert iqm([100, 1, 2, 3, 4, 5, 6, -100]) == 3.5  # without −100, 1, 6 and 100
    assert iqm([[1, 2], [3, 100]]) == 2.5
    assert iqm([5]) == 5
    assert iqm(SAMPLES[:11]) == pytest.approx(scipy.stats.trim_mean(SAMPLES[:11], 0.25))


def test_probability_of_improvement_by_hand() -> None:
    assert probability_of_improvement([1, 3], [2, 3]).value == pytest.approx((0 + 0 + 1 + 0.5) / 4)
    assert probability_of_improvement([5, 6], [1, 2, 3]) == (1, 1, 1)
    tasks = probability_of_improvement([[1, 0], [2, 0]], [[0, 1], [0, 1], [0, 1]])
    assert tasks == (0.5, 0.5, 0.5)


def test_probability_of_improvement_is_mann_and_whitneys() -> None:
    x, y = SAMPLES, np.random.default_rng(9).lognormal(0.3, size=9)
    value, low, high = probability_of_improvement(x, y)
    assert value == pytest.approx(scipy.stats.mannwhitneyu(x, y).statistic / (len(x) * len(y)))
    assert 0 <= low < value < high <= 1


numbers = st.lists(st.integers(-5, 5), min_size=1, max_size=6)


@given(numbers, numbers)
def test_improvements_of_both_sides_sum_to_one(x: list[int], y: list[int]) -> None:
    there = probability_of_improvement(x, y, resamples=5).value
    back = probability_of_improvement(y, x, resamples=5).value
    assert there + back == pytest.approx(1)


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda: interval([]), "at least one seed"),
        (lambda: interval(3.0), "at least one seed"),
        (lambda: interval([1.0, math.nan]), "finite"),
        (lambda: interval(["a"]), "numbers"),
        (lambda: interval([[1.0, 2.0]]), "one number for each seed"),
        (lambda: interval([1.0, 2.0], 95.0), "strictly between 0 and 1"),
        (lambda: iqm([[1], [2, 3]]), "numbers, as many for each seed"),
        (lambda: bootstrap_interval([1.0, 2.0], lambda x: math.nan), "finite for every choice"),
        (lambda: bootstrap_interval([1.0, 2.0], np.mean, resamples=0), "at least one resample"),
        (lambda: bootstrap_interval((), np.mean), "no samples"),
        (lambda: probability_of_improvement([[1.0]], [1.0]), "the same tasks"),
    ],
)
def test_what_is_refused(call: Any, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        call()
