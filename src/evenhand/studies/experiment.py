"""What a study is: experiments, what is compared in them, and how it is tested."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from evenhand.studies.claims import Claim

FIRST_SEED = 1000
"""Studies take seeds from here on, and searches for hyperparameters those below: nothing is tuned on a test seed."""
TRAINING = "training"
"""The name of the test in which simple policies play as learners do while they are trained."""


@dataclass(frozen=True, kw_only=True)
class Learner:
    """An algorithm with a welfare."""

    name: str
    """What people call it, as in GGF-PPO."""
    algo: str
    welfare: str = "utilitarian"
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Changes to the preset."""
    steps: int | None = None
    """Of training; the preset's by default."""


@dataclass(frozen=True, kw_only=True)
class Simple:
    """A policy that needs no learning: "random", an action, or one of the environment's own by its name."""

    name: str
    policy: str | int | float


@dataclass(frozen=True, kw_only=True)
class Test:
    """Episodes that are played with what was learnt, and what counts of them."""

    __test__ = False  # no test of pytest's

    name: str
    measure: str
    """average, return or discounted."""
    episodes: int = 50
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the environment that differ from the experiment's."""
    about: str = ""
    """The measure in words."""
    brief: bool = False
    """Whether only scores and averages are drawn of it, since another test shows the rest."""


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One environment, what is compared in it, and how it is tested."""

    key: str
    title: str
    env: str
    learners: tuple[Learner, ...]
    simple: tuple[Simple, ...]
    tests: tuple[Test, ...]
    seeds: tuple[int, ...]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the environment that differ while training."""
    preset: str = "tuned"
    about: str = ""

    @property
    def methods(self) -> tuple[str, ...]:
        """The names of all that is compared."""
        return tuple(learner.name for learner in self.learners) + tuple(simple.name for simple in self.simple)


@dataclass(frozen=True, kw_only=True)
class Study:
    """Experiments, and the claims that they are to decide."""

    key: str
    title: str
    about: str
    experiments: tuple[Experiment, ...]
    claims: tuple[Claim, ...]
    ratios: tuple[int, ...] = (2,)
    """Vectors of weights 1/ratio^i whose GGF scores are drawn."""
