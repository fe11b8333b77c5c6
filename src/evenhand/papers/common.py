"""What the domains share: the six algorithms, and the claims that come back in each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from evenhand.runs.request import method_name
from evenhand.studies.claims import Claim, Higher, Lower
from evenhand.studies.experiment import FIRST_SEED, Learner

NOTHING: Mapping[str, Any] = MappingProxyType({})


def seeds(count: int) -> tuple[int, ...]:
    """Seeds that no search for hyperparameters has seen."""
    return tuple(range(FIRST_SEED, FIRST_SEED + count))


def fair(algo: str, ratio: int = 2) -> str:
    """What the fair version is called; with weights 1/10^i, GGF10-PPO."""
    return method_name(algo, f"ggf:{ratio}")


def pairs(
    algos: tuple[str, ...], steps: Mapping[str, int] = NOTHING, ratios: tuple[int, ...] = (2,)
) -> tuple[Learner, ...]:
    """Each algorithm, and its fair version for each vector of weights."""
    welfares = ("utilitarian", *("ggf" if ratio == 2 else f"ggf:{ratio}" for ratio in ratios))
    return tuple(
        Learner(name=method_name(algo, welfare), algo=algo, welfare=welfare, steps=steps.get(algo))
        for algo in algos
        for welfare in welfares
    )


def better_score(algos: tuple[str, ...], ratio: int, source: str, settings: tuple[str, ...], note: str = "") -> Claim:
    """Each fair version has a higher GGF score than its base."""
    return Claim(
        text=f"Each fair algorithm has a higher GGF score than its base (weights 1/{ratio}^i)",
        parts=tuple(Higher(fair(algo, ratio), algo.upper(), f"ggf:{ratio}") for algo in algos),
        source=source,
        settings=settings,
        note=note,
    )


def lower_cv(algos: tuple[str, ...], ratio: int, source: str, settings: tuple[str, ...], note: str = "") -> Claim:
    """Each fair version has a lower CV than its base."""
    return Claim(
        text=f"Each fair algorithm has a lower CV than its base{_trained(ratio)}",
        parts=tuple(Lower(fair(algo, ratio), algo.upper(), "cv") for algo in algos),
        source=source,
        settings=settings,
        note=note,
    )


def higher_minimum(algos: tuple[str, ...], ratio: int, source: str, settings: tuple[str, ...]) -> Claim:
    """Each fair version has a higher minimum than its base."""
    return Claim(
        text=f"Each fair algorithm leaves its worst-off user more than its base{_trained(ratio)}",
        parts=tuple(Higher(fair(algo, ratio), algo.upper(), "minimum") for algo in algos),
        source=source,
        settings=settings,
    )


def base_has_higher_average(what: str, algos: tuple[str, ...], source: str, settings: tuple[str, ...]) -> Claim:
    """Each base has a higher average than its fair version."""
    return Claim(
        text=what,
        parts=tuple(Higher(algo.upper(), fair(algo), "average") for algo in algos),
        source=source,
        settings=settings,
    )


def _trained(ratio: int) -> str:
    return "" if ratio == 2 else f" (trained with weights 1/{ratio}^i)"
