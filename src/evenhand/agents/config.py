"""Hyperparameters as frozen dataclasses that compiled functions take as arguments."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Collection
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import jax

from evenhand.agents.networks import NETWORKS, Initialisation

T = TypeVar("T")


class Within(NamedTuple):
    """Which numbers a setting can be; where nothing is said, `NOT_NEGATIVE`."""

    allows: Callable[[float], bool]
    words: str
    """What a setting must do, as in "be positive"."""


class Among(NamedTuple):
    """Which names a setting can be, and what they are names of."""

    what: str
    names: Collection[str]


NOT_NEGATIVE = Within(lambda x: x >= 0, "not be negative")
Positive = Annotated[float, Within(lambda x: x > 0, "be positive")]
Count = Annotated[int, Within(lambda x: x > 0, "be positive")]
Share = Annotated[float, Within(lambda x: 0 <= x <= 1, "lie in [0, 1]")]
Discount = Annotated[float, Within(lambda x: 0 <= x < 1, "lie in [0, 1), as in 0.99")]
Schedule = Literal["constant", "linear", "quadratic"]


def hyperparameters(cls: type[T]) -> type[T]:
    """Make a frozen dataclass whose numbers are traced and whose other fields are part of the compiled program.

    Fields of type float (or float | None) may then change without compiling again.
    """
    cls = dataclasses.dataclass(frozen=True)(cls)
    hints = typing.get_type_hints(cls)
    names = [f.name for f in dataclasses.fields(cls)]  # type: ignore[arg-type]
    traced = [name for name in names if float in (hints[name], *typing.get_args(hints[name]))]
    static = [name for name in names if name not in traced]

    def flatten(config: T) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(getattr(config, name) for name in traced), tuple(getattr(config, name) for name in static)

    def unflatten(rest: tuple[Any, ...], numbers: tuple[Any, ...]) -> T:
        config = object.__new__(cls)  # not through __init__: inside jit the numbers are tracers
        for name, value in zip((*traced, *static), (*numbers, *rest), strict=True):
            object.__setattr__(config, name, value)
        return config

    jax.tree_util.register_pytree_node(cls, flatten, unflatten)
    return cls


def scheduled(value: Any, schedule: Schedule, remaining: Any) -> Any:
    """A value as it is, or falling to 0 with the share of the training that remains, or with its square."""
    return value * remaining ** {"constant": 0, "linear": 1, "quadratic": 2}[schedule]


@hyperparameters
class Common:
    """What every algorithm has; each sets the defaults that suit it."""

    gamma: Discount = 0.99
    """Discount factor; up to 0.99999."""
    envs: Count = 10
    """Environments side by side."""
    rollout: Count = 128
    """Steps in each environment between two updates."""
    learning_rate: Positive = 1e-3
    """Step size of the optimiser."""
    learning_rate_schedule: Schedule = "constant"
    """Constant, or falling to zero: linear or quadratic."""
    gradient_norm: Positive = 0.5
    """Longer gradients are shortened to this."""
    network: Annotated[str, Among("network", NETWORKS)] = "mlp"
    """Which kind of network, by its name."""
    hidden: tuple[int, ...] = (64, 64)
    """Hidden layers of each network."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Of the hidden layers."""
    normalise_observations: bool = False
    """By their running mean and deviation."""
    normalise_rewards: bool = False
    """Divide all rewards by one running deviation of the discounted returns."""
    reward_scale: Positive | None = None
    """Multiply rewards by this; 1 − γ by default, so that returns have the size of rewards."""

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one rollout."""
        return self.envs * self.rollout

    @property
    def initialisation(self) -> Initialisation:
        """How the layers of perceptrons are drawn."""
        return "orthogonal"
