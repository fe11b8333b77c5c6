"""What test episodes came to: the vector returns of each, and those of several seeds together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Integer

from evenhand import metrics
from evenhand.errors import InputError
from evenhand.welfare import Welfare

Measure = Literal["average", "return", "discounted"]
MEASURES: Mapping[str, str] = {
    "average": "average reward per step",
    "return": "sum of the rewards of an episode",
    "discounted": "(1 − γ) × discounted return",
}
"""What can count of test episodes, in words."""


@dataclass(frozen=True)
class Evaluation:
    """Test episodes of one policy."""

    objectives: tuple[str, ...]
    total: Float[np.ndarray, "E D"]
    """Sums of the rewards of each episode."""
    discounted: Float[np.ndarray, "E D"]
    """(1 − γ) Σ γᵗ r_t of each episode: the size of a reward, weighted towards the start."""
    length: Integer[np.ndarray, " E"]
    terminated: Bool[np.ndarray, " E"]
    gamma: float
    seed: int
    name: str = "policy"
    facts: Mapping[str, Float[np.ndarray, " E"]] = field(default_factory=dict)
    """What else the environment said of each episode at its end: the numbers in its info's "summary"."""

    @property
    def episodes(self) -> int:
        """How many were played."""
        return len(self.length)

    @property
    def natural_measure(self) -> Measure:
        """Sums where episodes end by themselves, rewards per step where only a time limit ends them."""
        return "return" if self.terminated.any() else "average"

    def of(self, measure: Measure | None = None) -> Float[np.ndarray, "E D"]:
        """What each user got in each episode, by the measure asked for."""
        measure = measure or self.natural_measure
        if measure == "average":
            return self.total / np.maximum(self.length, 1)[:, None]
        if measure not in ("return", "discounted"):
            raise InputError(f'a measure is "average", "return" or "discounted", not {measure!r}.')
        return self.total if measure == "return" else self.discounted

    def returns(self, measure: Measure | None = None) -> Float[np.ndarray, " D"]:
        """What each user got, on average over the episodes."""
        return self.of(measure).mean(axis=0)

    def summary(self, welfare: Welfare, measure: Measure | None = None) -> dict[str, float]:
        """The welfare of the mean returns (for a GGF the paper's "GGF score"), and how evenly they are shared out."""
        z = self.returns(measure)
        return {name: float(statistic.of(z, welfare)) for name, statistic in metrics.STATISTICS.items()}

    def record(self) -> dict[str, Any]:
        """All of it, as JSON can hold it."""
        return {
            "name": self.name,
            "objectives": list(self.objectives),
            "gamma": self.gamma,
            "seed": self.seed,
            "total": self.total.tolist(),
            "discounted": self.discounted.tolist(),
            "length": self.length.tolist(),
            "terminated": self.terminated.tolist(),
            "facts": {name: values.tolist() for name, values in self.facts.items()},
        }

    @staticmethod
    def from_record(record: Any) -> Evaluation:
        """An evaluation from what `record` made of it; the error says what it cannot be."""
        if not isinstance(record, Mapping):
            raise InputError("it should be an object with the entries of an evaluation.")
        try:
            objectives, facts = record["objectives"], record.get("facts", {})
            arrays = {name: np.array(record[name], float) for name in ("total", "discounted", "length", "terminated")}
            counted = {name: np.array(values, float) for name, values in dict(facts).items()}
            gamma, seed, name = float(record["gamma"]), record["seed"], record["name"]
        except KeyError as error:
            raise InputError(f"it has no {error}.") from None
        except (TypeError, ValueError, OverflowError):
            raise InputError("its numbers are none, or not as many in each row.") from None
        if not isinstance(objectives, list) or not objectives or not all(isinstance(x, str) for x in objectives):
            raise InputError("its objectives should be a list of names.")
        E = arrays["length"].size
        shapes = {"total": (E, len(objectives)), "discounted": (E, len(objectives)), "length": (E,), "terminated": (E,)}
        for what, array in (arrays | counted).items():
            if array.shape != shapes.get(what, (E,)) or not E or (what in arrays and not np.isfinite(array).all()):
                raise InputError(f"its {what} should be finite numbers for each of its episodes and users.")
        length, terminated = arrays["length"], arrays["terminated"]
        if (length < 0).any() or (length != np.rint(length)).any() or (length >= 2**53).any():
            raise InputError("the lengths of its episodes should be whole numbers.")
        if not np.isin(terminated, (0, 1)).all() or not 0 <= gamma <= 1:
            raise InputError("its discount should lie in [0, 1], and its episodes have terminated or not.")
        if not isinstance(seed, int) or not isinstance(name, str):
            raise InputError("its seed should be a whole number, and its name a text.")
        return Evaluation(
            objectives=tuple(objectives),
            total=arrays["total"],
            discounted=arrays["discounted"],
            length=length.astype(int),
            terminated=terminated.astype(bool),
            gamma=gamma,
            seed=seed,
            name=name,
            facts=counted,
        )


@dataclass(frozen=True)
class Outcome:
    """What one policy, or one way of learning policies, brings its users."""

    name: str
    returns: Float[np.ndarray, "N D"]
    """One row for each seed; a single one for policies that were not learnt."""
    kind: str = "run"
    """run, baseline or exact."""

    @staticmethod
    def of(name: str, tests: Sequence[Evaluation], measure: str, kind: str = "run") -> Outcome:
        """From test episodes, one evaluation for each seed."""
        return Outcome(name, np.stack([test.returns(measure) for test in tests]), kind)  # type: ignore[arg-type]

    @property
    def mean(self) -> Float[np.ndarray, " D"]:
        """What each user gets, on average over seeds."""
        return np.asarray(self.returns.mean(axis=0))


def measure_of(asked: str | None, tests: Iterable[Evaluation]) -> str:
    """The measure asked for, or sums where any episode ended by itself, and averages otherwise."""
    return asked or ("return" if any(test.natural_measure == "return" for test in tests) else "average")


def meaning(measure: str, gamma: float) -> str:
    """A measure in words."""
    return MEASURES[measure] + (f", γ = {gamma:g}" if measure == "discounted" else "")


def mean_facts(tests: Mapping[str, Sequence[Evaluation]]) -> dict[str, dict[str, float]]:
    """What else the environment counted, on average over the episodes of each policy; none of those without any."""
    return {
        name: {fact: float(np.mean([test.facts[fact].mean() for test in of_policy])) for fact in of_policy[0].facts}
        for name, of_policy in tests.items()
        if of_policy[0].facts
    }
