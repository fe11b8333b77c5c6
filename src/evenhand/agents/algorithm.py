"""What an algorithm declares of itself, and which ones there are.

An algorithm is a module, or any object, with the parts of `Algorithm`. Whatever has to know something about it (checks,
lists, searches, pictures, exports) reads it there. JAX is not imported before an algorithm is asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, runtime_checkable

from evenhand.errors import InputError
from evenhand.extensions import added

if TYPE_CHECKING:
    from jaxtyping import Array, Float, Shaped

    from evenhand.agents.networks import MLP
    from evenhand.agents.normalise import Running
    from evenhand.agents.problem import Problem
    from evenhand.types import Actions, PRNGKey, Transitions


class Range(NamedTuple):
    """A number between two, by its logarithm."""

    low: float
    high: float


SearchSpace = Mapping[str, Range | tuple[Any, ...]]
"""What is tried, by setting: a range, or some values."""


class Exported(NamedTuple):
    """A policy as a file holds it (see docs/deploy.md)."""

    observations: Running | None
    """By which observations are normalised."""
    layers: MLP
    activations: Sequence[str]
    """Of each layer."""
    greedy: bool
    """Whether outputs are the values of actions, of which the best is taken; else they make a distribution."""
    log_std: Float[Array, " n"] | None
    """The logarithm of a Gaussian policy's deviation; None where actions are discrete."""


@runtime_checkable
class Algorithm(Protocol):
    """An algorithm; modules such as `evenhand.agents.ppo` are ones. Its states are trees of arrays."""

    Config: type[Any]
    """The hyperparameters, made by `evenhand.agents.config.hyperparameters`."""
    REVISION: int
    """Raised when the same request leads to other results than before; a part of the key of a study's cells."""
    ACTIONS: tuple[type[Actions], ...]
    """The spaces that it can choose actions from."""
    SEARCH: SearchSpace
    """What a search for hyperparameters tries: of every algorithm about as much, so that equal budgets are fair."""
    COLOUR: str
    """In pictures, as in "#0072B2"."""
    SPEED: float
    """A guess at the steps of a compiled training per core-second, for environments where it was not measured."""

    def impossible(self, config: Any) -> str | None:
        """What is impossible about the settings, in words."""

    def reported(self, problem: Problem) -> dict[str, tuple[int, ...]]:
        """The shapes of what `update` reports."""

    def initialise(self, config: Any, problem: Problem, seed: int | None) -> Any:
        """The state before the first step; without a seed only shapes matter, and nothing is to be drawn."""

    def explore(
        self,
        config: Any,
        problem: Problem,
        state: Any,
        observation: Float[Array, "N O"],
        key: PRNGKey,
        remaining: Float[Array, ""],
    ) -> Shaped[Array, "N *a"]:
        """Raw actions while learning; `remaining` is the share of the training still to come."""

    def update(
        self,
        config: Any,
        problem: Problem,
        state: Any,
        transitions: Transitions,
        key: PRNGKey,
        remaining: Float[Array, ""],
    ) -> tuple[Any, dict[str, Array]]:
        """Learn from one rollout; the new state, and what there is to report."""

    def acting(self, state: Any) -> Any:
        """Only what the following need."""

    def act(
        self, config: Any, problem: Problem, state: Any, observation: Float[Array, "N O"], key: PRNGKey
    ) -> Shaped[Array, "N *a"]:
        """Raw actions of the policy that was learnt."""

    def mode(
        self, config: Any, problem: Problem, state: Any, observation: Float[Array, "N O"]
    ) -> Shaped[Array, "N *a"]:
        """Its most probable ones."""

    def exported(self, config: Any, state: Any) -> Exported:
        """The same policy for a file; the error says why there can be none."""


PARTS = tuple(part for part in (*Algorithm.__annotations__, *vars(Algorithm)) if not part.startswith("_"))
BUILT_IN = ("ppo", "a2c", "dqn")
"""Each a module of its own."""
_registered: dict[str, Algorithm] = {}


def names() -> tuple[str, ...]:
    """Of all algorithms."""
    return (*BUILT_IN, *_registered)


def algorithm(name: str) -> Algorithm:
    """An algorithm by its name."""
    if name in BUILT_IN:
        return cast(Algorithm, importlib.import_module(f"evenhand.agents.{name}"))
    if name not in _registered:
        raise InputError(f"there is no algorithm {name!r}: choose among {', '.join(names())}, or register your own.")
    return _registered[name]


def register(name: str, own: Any) -> None:
    """Make an algorithm of your own known by a name; `own` is a module, a class or an object.

    Processes that are started for it import the module that it is, or lies in, which should register it too.
    """
    if name in names():
        raise InputError(f"there is an algorithm {name!r} already: choose another name.")
    missing = [part for part in PARTS if not hasattr(own, part)]
    if missing:
        raise InputError(f"{name} is no algorithm, for it has no {', '.join(missing)}.")
    _registered[name] = own
    added(own)


if TYPE_CHECKING:  # so that mypy compares the modules with the protocol
    from evenhand.agents import a2c, dqn, ppo

    _module: Algorithm = ppo
    _module = a2c
    _module = dqn
