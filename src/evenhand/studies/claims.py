"""Claims as data, and what decides them: intervals over seeds, and the probability of improvement.

A claim is a sentence and the comparisons that it comes to, all of which must hold. A comparison *holds* if both the
95 % bootstrap interval of the difference (seeds of each method drawn by themselves) and that of the probability of
improvement lie on the side claimed; it *does not hold* if both lie on the other side, or if there is no difference at
all; else it is *undecided at this scale*. With fewer than `LEAST_SEEDS` seeds nothing is decided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from evenhand.errors import InputError
from evenhand.metrics import STATISTICS
from evenhand.welfare import Utilitarian, welfare_of
from evenhand.welfare import welfare as named_welfare

Verdict = Literal["holds", "does not hold", "undecided"]
HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
IN_WORDS = {HOLDS: "holds", FAILS: "does not hold", UNDECIDED: "undecided at this scale"}
LEAST_SEEDS = 4
"""With n seeds of each of two methods that do not differ, all of one lie above all of the other, or below, with
probability 2 / C(2n, n): one in ten for n = 3, one in 35 for n = 4."""

Samples = Mapping[str, Float[np.ndarray, "N D"]]
"""By method: what each user gets, one row for each seed."""


class Evidence(NamedTuple):
    """What was seen of one comparison."""

    verdict: Verdict
    text: str
    """In words and numbers."""


class Judged(NamedTuple):
    """What was seen of a claim."""

    verdict: Verdict
    findings: tuple[Evidence, ...]


# What is compared


def statistic(of: str, returns: Float[np.ndarray, "N D"]) -> Float[np.ndarray, " N"]:
    """One number for each seed: one of `metrics.STATISTICS`, or a welfare by its name, as in ggf:10."""
    if of in STATISTICS and of != "welfare":
        return np.asarray(STATISTICS[of].of(returns, Utilitarian(returns.shape[1])), float)
    return np.asarray(welfare_of(named_welfare(of, returns.shape[1]), returns), float)


def called(of: str) -> str:
    """A statistic in words."""
    if of in STATISTICS:
        return STATISTICS[of].heading.replace("\u00ad", "")
    if of.startswith("ggf"):
        ratio = of.partition(":")[2] or "2"
        return f"GGF score (weights 1/{ratio}^i)"
    return of


# Comparisons


@dataclass(frozen=True)
class Higher:
    """A statistic of x is higher than that of y."""

    x: str
    y: str
    of: str

    def judge(self, samples: Samples) -> Evidence:
        """By the difference of the means."""
        return _difference(self.x, self.y, self.of, samples, +1)


@dataclass(frozen=True)
class Lower:
    """A statistic of x is lower than that of y."""

    x: str
    y: str
    of: str

    def judge(self, samples: Samples) -> Evidence:
        """By the difference of the means."""
        return _difference(self.x, self.y, self.of, samples, -1)


@dataclass(frozen=True)
class Equivalent:
    """A statistic of x differs from that of y by less than a margin, a share of the latter's size.

    Two one-sided tests: it holds if the whole 95 % interval of the relative difference lies within the margin, and
    does not hold if the whole interval lies beyond it.
    """

    x: str
    y: str
    of: str
    margin: float

    def judge(self, samples: Samples) -> Evidence:
        """By the relative difference of the means."""
        found = _both(self.x, self.y, self.of, samples)
        if isinstance(found, Evidence):
            return found
        x, y = found
        value, low, high = _interval((x, y), lambda a, b: (a.mean(-1) - b.mean(-1)) / abs(b.mean(-1)))
        text = (
            f"{called(self.of)} of {self.x} differs from that of {self.y} by {value:+.1%} [{low:+.1%}, {high:+.1%}]; "
            f"the margin is ±{self.margin:.0%}"
        )
        if -self.margin < low and high < self.margin:
            return Evidence("holds", text)
        return Evidence("does not hold" if low > self.margin or high < -self.margin else "undecided", text)


@dataclass(frozen=True)
class PriceBelow:
    """The part of the average that the fair method gives up, of its base's, is less than a limit."""

    fair: str
    base: str
    limit: float

    def judge(self, samples: Samples) -> Evidence:
        """By the relative difference of the averages."""
        found = _both(self.fair, self.base, "average", samples)
        if isinstance(found, Evidence):
            return found
        value, low, high = _interval(found, lambda a, b: (b.mean(-1) - a.mean(-1)) / abs(b.mean(-1)))
        text = (
            f"the price of fairness of {self.fair} is {value:.1%} [{low:.1%}, {high:.1%}] of the average of "
            f"{self.base}; the limit is {self.limit:.0%}"
        )
        if high < self.limit:
            return Evidence("holds", text)
        return Evidence("does not hold" if low > self.limit else "undecided", text)


@dataclass(frozen=True)
class Exactly:
    """Something that was computed, not sampled: it is so or not."""

    key: str
    """In what was computed: a truth value, and the sentence that goes with it."""

    def judge(self, samples: Mapping[str, Any]) -> Evidence:
        """Look it up."""
        if self.key not in samples:
            return Evidence("undecided", f"{self.key} was not computed")
        true, text = samples[self.key]
        return Evidence("holds" if true else "does not hold", text)


Comparison = Higher | Lower | Equivalent | PriceBelow | Exactly


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence, and the comparisons that decide it."""

    text: str
    parts: tuple[Comparison, ...]
    source: str
    """Where it stands."""
    settings: tuple[str, ...]
    """In which of a study's settings it is judged, "experiment/test"; the first is that of the paper."""
    note: str = ""
    """What a reader should know about the outcome."""


def judge(claim: Claim, samples: Mapping[str, Any]) -> Judged:
    """All comparisons must hold; one that does not hold is enough for the claim not to."""
    findings = tuple(part.judge(samples) for part in claim.parts)
    if not findings:
        raise InputError(f"nothing decides the claim {claim.text!r}.")
    verdicts = [finding.verdict for finding in findings]
    verdict: Verdict = "does not hold" if FAILS in verdicts else "undecided" if UNDECIDED in verdicts else "holds"
    return Judged(verdict, findings)


# The statistics


def _difference(x: str, y: str, of: str, samples: Samples, sign: int) -> Evidence:
    from evenhand.stats import probability_of_improvement

    found = _both(x, y, of, samples)
    if isinstance(found, Evidence):
        return found
    one, other = found
    value, low, high = _interval((one, other), lambda a, b: a.mean(-1) - b.mean(-1))
    chance = probability_of_improvement(sign * one, sign * other)
    digits = _digits(one, other)
    which = "higher" if sign > 0 else "lower"
    text = (
        f"{called(of)} of {x} {one.mean():.{digits}f}, of {y} {other.mean():.{digits}f}: difference "
        f"{value:+.{digits}f} [{low:+.{digits}f}, {high:+.{digits}f}]; a run of {x} has the {which} one with "
        f"probability {chance.value:.2f} [{chance.low:.2f}, {chance.high:.2f}]"
    )
    nearest, farthest = (low, high) if sign > 0 else (-high, -low)
    if nearest > 0 and chance.low > 0.5:
        return Evidence("holds", text)
    # The same number from every seed of both is no difference, and certain.
    if (farthest < 0 and chance.high < 0.5) or low == high == 0:
        return Evidence("does not hold", text)
    return Evidence("undecided", text)


def _both(x: str, y: str, of: str, samples: Samples) -> tuple[np.ndarray, np.ndarray] | Evidence:
    """The statistic of both methods, or why it cannot be had."""
    values = []
    for method in (x, y):
        if method not in samples:
            return Evidence("undecided", f"{method} was not part of this study")
        returns = np.asarray(samples[method], float)
        if len(returns) < LEAST_SEEDS:
            return Evidence(
                "undecided", f"{method} has {len(returns)} seeds, and nothing is decided with fewer than {LEAST_SEEDS}"
            )
        value = statistic(of, returns)
        if not np.isfinite(value).all():
            return Evidence("undecided", f"{called(of)} of {method} is not defined for what its users get")
        values.append(value)
    return values[0], values[1]


def _interval(samples: tuple[np.ndarray, np.ndarray], statistic: Any) -> tuple[float, float, float]:
    from evenhand.stats import bootstrap_interval

    low, high = bootstrap_interval(samples, statistic, batched=True)
    return float(statistic(*samples)), low, high


def _digits(*values: Sequence[float] | np.ndarray) -> int:
    """Decimals that show four digits of the largest."""
    largest = max(float(np.abs(value).max()) for value in values)
    return int(np.clip(3 - math.floor(math.log10(largest)), 0, 6)) if largest > 0 else 3
