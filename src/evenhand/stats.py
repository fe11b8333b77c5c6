"""What a handful of seeds allow to say: means and welfare with confidence intervals, and comparisons.

Seeds are few and dear, so every function takes one number (or vector) for each seed and says how far the result would
move with other seeds. Everything is deterministic, given `seed`. One seed says nothing about others: its intervals
are (nan, nan). Samples that are all the same have an interval of that one value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy import special

from evenhand.errors import InputError

RESAMPLES = 4000
"""How often the bootstrap draws seeds anew: the ends of a 95 % interval then move by about a hundredth of its width."""


class Interval(NamedTuple):
    """Between which two values a number lies, with the confidence that was asked."""

    low: float
    high: float


class Estimate(NamedTuple):
    """A number and its interval."""

    value: float
    low: float
    high: float


def interval(samples: Any, confidence: float = 0.95) -> Interval:
    """Student's interval for the mean of samples `[n]`: mean ± t · s / √n, with t of n − 1 degrees of freedom."""
    [values] = _checked((samples,), confidence)
    if values.ndim != 1:
        raise InputError(f"interval takes one number for each seed, not an array of shape {values.shape}.")
    n = len(values)
    if n == 1:
        return Interval(math.nan, math.nan)
    if (values == values[0]).all():  # rounding in the mean is no spread
        return Interval(float(values[0]), float(values[0]))
    half = special.stdtrit(n - 1, (1 + confidence) / 2) * values.std(ddof=1) / math.sqrt(n)
    return Interval(float(values.mean() - half), float(values.mean() + half))


def bootstrap_interval(
    samples: Any,
    statistic: Callable[..., Any],
    confidence: float = 0.95,
    *,
    method: Literal["bca", "percentile"] = "bca",
    batched: bool = False,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interval:
    """An interval for any number that is computed from all seeds, such as the welfare of the mean vector.

    samples: an array `[seeds, ...]`, whose rows are drawn with replacement; or a tuple of such arrays (strata, for
        example one for each task or algorithm), each of which is drawn from by itself.
    statistic: from as many arrays of the same shapes to a number.
    method: "percentile" takes the quantiles of the statistic over the resamples; "bca" corrects them for bias and
        skewness (Efron 1987), and is the same as "percentile" where these corrections are not defined.
    batched: whether the statistic also takes arrays with one more axis in front, for many resamples at once, as
        `lambda x, y: x.mean(-1) - y.mean(-1)` does.
    """
    strata = _checked(samples if isinstance(samples, tuple) else (samples,), confidence)
    if method not in ("bca", "percentile"):
        raise InputError(f'the method of a bootstrap must be "bca" or "percentile", not {method!r}.')
    if resamples < 1:
        raise InputError(f"a bootstrap needs at least one resample, not {resamples}.")
    if min(map(len, strata)) == 1:
        return Interval(math.nan, math.nan)
    rng = np.random.default_rng(seed)
    draws = [rng.integers(0, len(stratum), (resamples, len(stratum))) for stratum in strata]
    pairs = list(zip(strata, draws, strict=True))
    if batched:
        replicates = np.asarray(statistic(*(stratum[draw] for stratum, draw in pairs)), float)
    else:
        replicates = np.array(
            [float(statistic(*(stratum[draw[i]] for stratum, draw in pairs))) for i in range(resamples)]
        )
    if not np.isfinite(replicates).all():
        raise InputError("the statistic of a bootstrap must be finite for every choice of seeds.")
    if (replicates == replicates[0]).all():
        return Interval(float(replicates[0]), float(replicates[0]))
    tails = np.array([(1 - confidence) / 2, (1 + confidence) / 2])
    if method == "bca":
        tails = _corrected(tails, replicates, strata, statistic)
    low, high = np.quantile(replicates, tails)
    return Interval(float(low), float(high))


def _corrected(
    tails: Float[np.ndarray, "2"],
    replicates: Float[np.ndarray, " B"],
    strata: tuple[np.ndarray, ...],
    statistic: Callable[..., Any],
) -> Float[np.ndarray, "2"]:
    """The quantiles of Efron's BCa interval: Φ(z₀ + (z₀ + z) / (1 − a (z₀ + z))) for z = Φ⁻¹(tail).

    z₀ = Φ⁻¹(share of replicates below the estimate, ties by half) is the bias; a, the acceleration, comes from leaving
    out one row after the other: a = Σ U³ / n³ / (6 (Σ U² / n²)^{3/2}), U = (n − 1)(mean of θ₍ᵢ₎ − θ₍ᵢ₎).
    """
    estimate = float(statistic(*strata))
    below = ((replicates < estimate).mean() + (replicates <= estimate).mean()) / 2
    cubes = squares = 0.0
    for which, stratum in enumerate(strata):
        n = len(stratum)
        without = np.array(
            [float(statistic(*strata[:which], np.delete(stratum, i, axis=0), *strata[which + 1 :])) for i in range(n)]
        )
        influence = (n - 1) * (without.mean() - without)
        cubes += (influence**3).sum() / n**3
        squares += (influence**2).sum() / n**2
    if not 0 < below < 1 or squares == 0:
        return tails
    acceleration = cubes / (6 * squares**1.5)
    bias = special.ndtri(below)
    z = bias + special.ndtri(tails)
    return special.ndtr(bias + z / (1 - acceleration * z))


def iqm(samples: Any) -> float:
    """The interquartile mean: that of what is left without the lowest and the highest quarter (rounded down).

    Of `[seeds, tasks]` all numbers count alike, as Agarwal et al. (2021) propose. For an interval:
    `bootstrap_interval(samples, iqm)`.
    """
    [values] = _checked((samples,), 0.5)
    cut = values.size // 4
    return float(np.sort(values, axis=None)[cut : values.size - cut].mean())


def probability_of_improvement(
    x: Any, y: Any, confidence: float = 0.95, *, resamples: int = RESAMPLES, seed: int = 0
) -> Estimate:
    """How probable it is that a run of x does better than one of y: P(X > Y) + ½ P(X = Y), averaged over tasks.

    x, y: one number for each seed, `[seeds]`, or `[seeds, tasks]`; they may have different numbers of seeds.

    The interval is the percentile bootstrap's, stratified: seeds of x and of y are drawn by themselves, for each task
    anew. If every x beats every y it is (1, 1), which says less than it seems to with few seeds.
    """
    x, y = _checked((x, y), confidence)
    if x.ndim > 2 or x.shape[1:] != y.shape[1:]:
        raise InputError(
            f"probability_of_improvement compares [seeds] or [seeds, tasks] with the same tasks, "
            f"not shapes {x.shape} and {y.shape}."
        )
    tasks = (*x.reshape(len(x), -1).T, *y.reshape(len(y), -1).T)
    value = float(_mean_share_of_wins(*tasks))
    bounds = bootstrap_interval(
        tasks, _mean_share_of_wins, confidence, method="percentile", batched=True, resamples=resamples, seed=seed
    )
    return Estimate(value, *bounds)


def _mean_share_of_wins(*tasks: Float[np.ndarray, "*batch _"]) -> Float[Any, "*batch"]:
    """Over tasks of x, followed by the same tasks of y."""
    half = len(tasks) // 2
    shares = []
    for x, y in zip(tasks[:half], tasks[half:], strict=True):
        x, y = x[..., :, None], y[..., None, :]
        shares.append(((x > y).mean(axis=(-2, -1)) + (x >= y).mean(axis=(-2, -1))) / 2)
    return np.mean(shares, axis=0)


def _checked(samples: tuple[Any, ...], confidence: float) -> tuple[np.ndarray, ...]:
    """Samples as arrays of floats, each with a row for at least one seed."""
    if not 0 < confidence < 1:
        raise InputError(f"a confidence must lie strictly between 0 and 1, not {confidence!r}.")
    if not samples:
        raise InputError("there are no samples.")
    arrays = []
    for sample in samples:
        try:
            array = np.asarray(sample, np.float64)
        except (TypeError, ValueError):
            raise InputError("samples must be numbers, as many for each seed.") from None
        if array.ndim < 1 or array.size < 1:
            raise InputError(f"samples need at least one seed, [seeds, ...], not shape {array.shape}.")
        if not np.isfinite(array).all():
            raise InputError("samples must be finite: a seed that failed is to be left out, and said to be.")
        arrays.append(array)
    return tuple(arrays)
