"""Welfare functions: how good a vector of returns, one for each of D users, is for all of them together.

Everywhere in evenhand the welfare is that of the *expected* returns (SER, as in the paper): W(E[Z]), under
which luck may even out over many runs. It is not the expected welfare of single runs (ESR): E[W(Z)].

Every function is symmetric and concave, takes returns `v` of shape [..., D] and works along the last axis.
NumPy arrays, and anything array-like, are computed in float64 and checked: entries must be finite. JAX arrays
keep their precision and work under `jit`, `vmap` and `grad`; only their shape is checked, for traced values
are not known.
"""

from __future__ import annotations

import difflib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Float64

from evenhand.errors import InputError

KNOWN: tuple[tuple[str, str], ...] = (
    ("ggf", "generalized Gini, each weight half the one before it, the largest for the worst-off user"),
    ("ggf:RATIO", "generalized Gini, each weight RATIO times smaller than the one before it, as in ggf:10"),
    ("ggf:W1,W2,...", "generalized Gini with the weights given, largest first, as in ggf:0.5,0.3,0.2"),
    ("utilitarian", "the mean over the users"),
    ("maximin", "the worst-off user alone"),
    ("regularized-maximin:EPS", "weight 1 for the worst-off user and EPS for each other one, as in 0.01"),
    ("leximin", "the worst-off user first, then the second worst-off, and so on"),
    ("leximin:RATIO", "the same, with another RATIO than 1000 in the scalar stand-in used for learning"),
    ("nash", "the mean of the logarithms; returns must be positive"),
    ("alpha:ALPHA", "α-fairness: 0 is utilitarian, 1 is nash, large values approach maximin, as in alpha:2"),
)
"""What `welfare` understands: (spelling, meaning)."""

LARGEST = sys.float_info.max
FEW_USERS = 8
"""Up to this many, JAX arrays are sorted by a network of comparisons."""


@runtime_checkable
class Welfare(Protocol):
    """What a welfare function has to offer; anything that offers it will do."""

    @property
    def D(self) -> int:
        """The number of users, one objective each."""

    @property
    def name(self) -> str:
        """A short text from which `welfare` makes the same function again."""

    @property
    def needs_positive(self) -> bool:
        """Whether the welfare is defined for positive returns only."""

    def value(self, v: Any) -> Float[Any, "*batch"]:
        """W(v), for v of shape [..., D]."""

    def gradient(self, v: Any) -> Float[Any, "*batch D"]:
        """A supergradient g, the gradient where there is one: W(u) ≤ W(v) + g·(u − v) for every u."""


@dataclass(frozen=True, init=False, eq=False, repr=False)
class GGF:
    """The generalized Gini welfare function (the paper's section 2.3): GGF_w(v) = Σ_k w_k v↑_k.

    v↑ is v sorted increasingly. The weights w do not increase, are not negative and are scaled to sum to one,
    so that GGF_w(v) = min_σ Σ_k w_σ(k) v_k. The paper wants them positive and strictly decreasing: with zeros
    an optimum need not be efficient, with equal weights it need not be equitable. Both are taken here, for
    they make the minimum and the mean. GGFs are equal if their weights are, whatever their names.
    """

    weights: Float64[np.ndarray, " D"]
    """Largest first, read-only; they sum to one."""
    D: int
    name: str
    needs_positive: ClassVar[bool] = False

    def __init__(self, weights: Any) -> None:
        w = numbers("weights", weights) + 0.0  # a copy, in which −0 has become 0
        if w.ndim != 1 or not w.size:
            raise InputError(f"weights must be a list of one number per user, but have the shape {w.shape}.")
        if w.min() < 0:
            raise InputError(f"weights must not be negative, but the smallest is {w.min():g}.")
        if (np.diff(w) > 0).any():
            k = int(np.argmax(np.diff(w) > 0))
            raise InputError(
                f"weights must not increase, the first being that of the worst-off user, but weight {k + 2} "
                f"({w[k + 1]:.17g}) is larger than weight {k + 1} ({w[k]:.17g})."
            )
        with np.errstate(over="ignore"):
            total = w.sum()
        if not 0 < total < np.inf:
            raise InputError(f"weights must have a positive and finite sum, not {total:g}.")
        if abs(total - 1) > 1e-12 or len(w) == 1:  # scaling again would change last digits: names are read back exactly
            w /= total
        w.flags.writeable = False
        object.__setattr__(self, "weights", w)
        object.__setattr__(self, "D", len(w))
        object.__setattr__(self, "name", "ggf:" + ",".join(map(_text, w)))

    @staticmethod
    def geometric(D: int, ratio: float | int = 2.0) -> GGF:
        """Weights w_k ∝ ratio^−k, ratio ≥ 1."""
        _check_dimension(D)
        if not 1 <= ratio <= LARGEST:
            raise InputError(f"the ratio of a weight to the next must be at least 1 and finite, not {ratio}.")
        ggf = GGF(float(ratio) ** -np.arange(D))
        object.__setattr__(ggf, "name", f"ggf:{_text(ratio)}")
        return ggf

    def value(self, v: Any) -> Float[Any, "*batch"]:
        """Σ_k w_k v↑_k."""
        xp, v = _read(v, self.D)
        if xp is not np and self.D <= FEW_USERS:
            return sum(float(w) * column for w, column in zip(self.weights, _sorted_columns(xp, v), strict=True))
        w = xp.broadcast_to(xp.asarray(self.weights, dtype=v.dtype), v.shape)
        return xp.sum(w * xp.sort(v, axis=-1), axis=-1)

    def gradient(self, v: Any) -> Float[Any, "*batch D"]:
        """The weights placed by rank, g_i = w_rank(i); of equal users the first has the larger weight."""
        xp, v = _read(v, self.D)
        order = xp.argsort(v, axis=-1, stable=True)
        ranks = xp.argsort(order, axis=-1, stable=True)
        return xp.asarray(self.weights, dtype=v.dtype)[ranks]

    def smooth_gradient(self, v: Any, width: Any) -> Float[Any, "*batch D"]:
        """The gradient of a smoothed GGF: weights that pass gradually from one order of the users to another.

        It is argmin_u u·v + (τ/2)‖u‖² over the convex hull of the weights' permutations, over which without the
        second term the minimum is GGF_w(v); τ = width / (w_1 − w_D). Of two users, returns further apart than
        `width` get the weights w_1 and w_2, equal ones their mean, and others what lies between. Width 0 is
        `gradient`.

        That argmin is the projection of z = −v/τ, which for decreasing z is z minus the non-increasing regression
        of z − w (Lim and Wright 2016; Blondel et al. 2020). Here it comes from its minimax formula: D is small.
        """
        xp, v = _read(v, self.D)
        w = xp.asarray(self.weights, dtype=v.dtype)
        spread = float(self.weights[0] - self.weights[-1])
        if spread == 0:
            return xp.broadcast_to(w, v.shape)
        order = xp.argsort(v, axis=-1, stable=True)
        steps = xp.diff(xp.take_along_axis(v, order, axis=-1), axis=-1)
        # Where z falls by more than the weights' spread the projection comes apart: how much more does not matter.
        falls = xp.where(steps >= width, spread, spread * steps / xp.maximum(width, 1e-30))
        z = xp.concatenate([xp.zeros_like(v[..., :1]), -xp.cumsum(falls, axis=-1)], axis=-1)
        y = z - xp.broadcast_to(w, z.shape)
        total = xp.concatenate([xp.zeros_like(y[..., :1]), xp.cumsum(y, axis=-1)], axis=-1)
        first, last = np.arange(self.D)[:, None], np.arange(self.D)[None, :]
        means = total[..., None, 1:] - total[..., :-1, None]  # [..., j, k]: of y_j … y_k
        means = means / xp.asarray(np.maximum(last - first + 1, 1), dtype=v.dtype).reshape(
            (1,) * (v.ndim - 1) + means.shape[-2:]
        )
        real = np.broadcast_to(first <= last, means.shape)
        best = _max_from_here_on(xp, xp.where(real, means, -math.inf))
        fitted = xp.min(xp.where(real, best, math.inf), axis=-2)  # min over j ≤ i of the max over k ≥ i
        return xp.take_along_axis(z - fitted, xp.argsort(order, axis=-1, stable=True), axis=-1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GGF) and np.array_equal(self.weights, other.weights)

    def __hash__(self) -> int:
        return hash(self.weights.tobytes())

    def __repr__(self) -> str:
        return f"welfare({self.name!r}, {self.D})"


class Utilitarian(GGF):
    """The mean: GGF with weights 1/D. Efficient, and blind to who gets what."""

    def __init__(self, D: int) -> None:
        _check_dimension(D)
        super().__init__(np.ones(D))
        object.__setattr__(self, "name", "utilitarian")


class Maximin(GGF):
    """The minimum (egalitarian, Rawls): GGF with weights (1, 0, …, 0)."""

    def __init__(self, D: int) -> None:
        _check_dimension(D)
        super().__init__(np.arange(D) == 0)
        object.__setattr__(self, "name", "maximin")


class RegularizedMaximin(GGF):
    """The minimum with a little of everyone: GGF with weights ∝ (1, ε, …, ε), 0 ≤ ε ≤ 1."""

    def __init__(self, D: int, eps: float | int) -> None:
        _check_dimension(D)
        if not 0 <= eps <= 1:
            raise InputError(f"eps, the weight of the better-off users, must lie between 0 and 1, not {eps}.")
        super().__init__(np.where(np.arange(D) == 0, 1.0, eps))
        object.__setattr__(self, "name", f"regularized-maximin:{_text(eps)}")


@dataclass(frozen=True)
class Leximin:
    """Lexicographic maximin: the worst-off user first, among equals there the second worst-off, and so on.

    No number can stand for this order exactly: `key` and `prefers` do. `value` and `gradient`, for learning,
    are those of the GGF with weights ∝ ratio^−k, which tends to it as w_k/w_{k+1} → ∞ (section 2.3).
    """

    D: int
    ratio: float | int = 1000.0
    needs_positive: ClassVar[bool] = False

    def __post_init__(self) -> None:
        _ = self._stand_in  # checks both fields
        object.__setattr__(self, "ratio", float(self.ratio))  # as its text is read back

    @cached_property
    def _stand_in(self) -> GGF:
        return GGF.geometric(self.D, self.ratio)

    @property
    def name(self) -> str:
        """`leximin`, with the ratio where it is not the usual one."""
        return "leximin" if self.ratio == 1000 else f"leximin:{_text(self.ratio)}"

    def key(self, v: Any) -> Float[Any, "*batch D"]:
        """v sorted increasingly: of two keys, the lexicographically larger one is better."""
        xp, v = _read(v, self.D)
        return xp.sort(v, axis=-1)

    def prefers(self, u: Any, v: Any) -> Bool[Any, "*batch"]:
        """Whether u is strictly better than v, exactly: larger in the first place where their keys differ."""
        xp = _array_module(u, v)
        a, b = xp.broadcast_arrays(self.key(u), self.key(v))
        first = xp.argmax(a != b, axis=-1, keepdims=True)
        better = xp.take_along_axis(a, first, axis=-1) > xp.take_along_axis(b, first, axis=-1)
        return better[..., 0]

    def value(self, v: Any) -> Float[Any, "*batch"]:
        """The GGF that stands in for the order: Σ_k w_k v↑_k with w_k ∝ ratio^−k."""
        return self._stand_in.value(v)

    def gradient(self, v: Any) -> Float[Any, "*batch D"]:
        """The supergradient of `value`."""
        return self._stand_in.gradient(v)


@dataclass(frozen=True)
class Nash:
    """Nash welfare as the mean logarithm: (1/D) Σ_i log v_i.

    It orders returns as their product does, and the mean keeps sizes comparable over D. Returns that are not
    positive are an InputError; in JAX they give what the formula gives, −inf or NaN.
    """

    D: int
    name: ClassVar[str] = "nash"
    needs_positive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_dimension(self.D)

    def value(self, v: Any) -> Float[Any, "*batch"]:
        """(1/D) Σ_i log v_i."""
        xp, v = _read(v, self.D, positive=True)
        return xp.mean(xp.log(v), axis=-1)

    def gradient(self, v: Any) -> Float[Any, "*batch D"]:
        """1/(D v_i): the usual 1/v_i over D, because the value is a mean."""
        _, v = _read(v, self.D, positive=True)
        return 1 / (self.D * v)


@dataclass(frozen=True)
class AlphaFair:
    """α-fairness as a mean: (1/D) Σ_i v_i^(1−α)/(1−α), α ≥ 0; for α = 1 the mean logarithm.

    α = 0 is utilitarian and takes any returns; α > 0 needs positive ones, as `Nash` does. Close to α = 1 the
    value holds the constant 1/(1−α), which drowns the digits of log v: take α = 1 itself there.
    """

    D: int
    alpha: float | int

    def __post_init__(self) -> None:
        _check_dimension(self.D)
        if not 0 <= self.alpha <= LARGEST:
            raise InputError(f"alpha must be at least 0 and finite, not {self.alpha}.")
        object.__setattr__(self, "alpha", float(self.alpha))  # as its text is read back

    @property
    def name(self) -> str:
        """`alpha:` and the number."""
        return f"alpha:{_text(self.alpha)}"

    @property
    def needs_positive(self) -> bool:
        """True for α > 0."""
        return self.alpha > 0

    def value(self, v: Any) -> Float[Any, "*batch"]:
        """(1/D) Σ_i v_i^(1−α)/(1−α), or (1/D) Σ_i log v_i for α = 1."""
        xp, v = _read(v, self.D, self.needs_positive)
        power = 1 - self.alpha
        with np.errstate(over="ignore", under="ignore"):
            return xp.mean(v**power / power if power else xp.log(v), axis=-1)

    def gradient(self, v: Any) -> Float[Any, "*batch D"]:
        """v_i^−α / D."""
        _, v = _read(v, self.D, self.needs_positive)
        with np.errstate(over="ignore", under="ignore"):
            return v**-self.alpha / self.D


_BY_NAME: dict[str, tuple[Callable[..., Welfare], set[int]]] = {  # how many numbers may follow the name
    "ggf": (GGF.geometric, {0, 1}),
    "utilitarian": (Utilitarian, {0}),
    "maximin": (Maximin, {0}),
    "regularized-maximin": (RegularizedMaximin, {1}),
    "leximin": (Leximin, {0, 1}),
    "nash": (Nash, {0}),
    "alpha": (AlphaFair, {1}),
}


def welfare(text: str | Welfare, D: int) -> Welfare:
    """The welfare function for D users that a text names (see `KNOWN`); one that is made already is kept."""
    _check_dimension(D)
    if not isinstance(text, str):
        if not isinstance(text, Welfare):
            raise InputError(f"a welfare is a text such as 'ggf' or a welfare function, not {text!r}.")
        if text.D != D:
            raise InputError(f"the welfare {text.name} is for {text.D} users, but {_users(D)}.")
        return text
    name, colon, argument = text.strip().lower().partition(":")
    if name not in _BY_NAME:
        near = difflib.get_close_matches(name, _BY_NAME, n=1)
        hint = f"did you mean {near[0]!r}? Known are" if near else "known are"
        raise InputError(f"unknown welfare {text!r}: {hint} {', '.join(known for known, _ in KNOWN)}.")
    try:
        given = [float(part) for part in argument.split(",")] if colon else []
    except ValueError:
        raise InputError(f"{argument!r} in the welfare {text!r} is not a number.") from None
    if name == "ggf" and len(given) > 1:
        if len(given) != D:
            raise InputError(f"the welfare {text!r} has {len(given)} weights, but {_users(D)}.")
        return GGF(given)
    make, counts = _BY_NAME[name]
    if len(given) not in counts:
        spellings = " or ".join(known for known, _ in KNOWN if known.partition(":")[0] == name)
        raise InputError(f"the welfare {name!r} is written {spellings}, not {text!r}.")
    return make(D, *given)


def welfare_of(welfare: Welfare, v: Any) -> Float64[Any, "*batch"]:
    """W(v), for v of shape [..., D]; NaN where the welfare is not defined, since some user's return is not positive."""
    v = numbers("v", v)
    if not welfare.needs_positive:
        return np.asarray(welfare.value(v), float)[()]
    defined = (v > 0).all(axis=-1)
    return np.where(defined, welfare.value(np.where(defined[..., None], v, 1.0)), np.nan)[()]


def numbers(what: str, value: Any) -> Float64[np.ndarray, "*shape"]:
    """`value` as a float64 array of finite numbers, perhaps the same array; errors call it `what`."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} cannot be read as an array of numbers ({error}).") from None
    if array.dtype.kind not in "biuf":
        raise InputError(f"{what} must hold real numbers, not {array.dtype} values.")
    array = np.asarray(array, dtype=np.float64)
    bad = array[~np.isfinite(array)]
    if bad.size:
        raise InputError(f"{what} must hold finite numbers, but one of them is {bad[0]}.")
    return array


def _array_module(*arrays: Any) -> ModuleType:
    """jax.numpy if any JAX array or tracer is among these (or in lists of them), otherwise NumPy."""
    jax = sys.modules.get("jax")  # who has not imported JAX has no JAX arrays
    if jax and any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(arrays)):
        return jax.numpy
    return np


def _read(v: Any, D: int, positive: bool = False) -> tuple[ModuleType, Float[Any, "*batch D"]]:
    """The array module of v, and v as an array of floating-point numbers whose last axis has D entries."""
    xp = _array_module(v)
    v = numbers("v", v) if xp is np else xp.asarray(v)
    if v.shape[-1:] != (D,):
        got = v.shape[-1] if v.ndim else "a single number"
        raise InputError(f"v must have {D} entries along its last axis, one per user, not {got} (shape {v.shape}).")
    if xp is np and positive and (v <= 0).any():
        raise InputError(f"this welfare needs positive returns, but the smallest is {v.min():g}.")
    return xp, v.astype(xp.result_type(v, float))  # whole numbers become floats; floats stay what they are


def _max_from_here_on(xp: ModuleType, x: Float[Any, "*batch D"]) -> Float[Any, "*batch D"]:
    """The maximum of each entry and those after it."""
    if xp is np:
        return np.flip(np.maximum.accumulate(np.flip(x, axis=-1), axis=-1), axis=-1)
    return sys.modules["jax"].lax.cummax(x, axis=x.ndim - 1, reverse=True)


def _sorted_columns(xp: ModuleType, v: Float[Any, "*batch D"]) -> list[Float[Any, "*batch"]]:
    """The entries along the last axis in increasing order, by a network of comparisons: quicker than sort, compiled."""
    columns = [v[..., k] for k in range(v.shape[-1])]
    for turn in range(len(columns)):
        for k in range(turn % 2, len(columns) - 1, 2):
            one, other = columns[k : k + 2]
            stays = one <= other  # not minimum and maximum: derivatives should break ties as `gradient` does
            columns[k], columns[k + 1] = xp.where(stays, one, other), xp.where(stays, other, one)
    return columns


def _check_dimension(D: int) -> None:
    if isinstance(D, bool) or not isinstance(D, int) or D < 1:
        raise InputError(f"D, the number of users, must be a whole number of at least 1, not {D!r}.")


def _text(x: float | int) -> str:
    """The shortest text that is read back as x."""
    return repr(float(x)).removesuffix(".0")


def _users(D: int) -> str:
    return "there is one user" if D == 1 else f"there are {D} users"
