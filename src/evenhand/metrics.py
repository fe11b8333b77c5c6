"""How even returns are over users, for arrays of shape [..., D]: measures to report, not to optimise.

NumPy only; entries must be finite. Users who all have 0 are equal, and any loss of a total of 0 is infinite.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64

from evenhand.errors import InputError
from evenhand.welfare import Welfare, numbers, welfare_of


def minimum(v: Any) -> Float64[Any, "*batch"]:
    """min_i v_i, the return of the worst-off user."""
    return _read(v).min(axis=-1)


def maximum(v: Any) -> Float64[Any, "*batch"]:
    """max_i v_i, the return of the best-off user."""
    return _read(v).max(axis=-1)


def cv(v: Any) -> Float64[Any, "*batch"]:
    """The coefficient of variation, σ/|μ|, with the population standard deviation: 0 if all are equal.

    It is infinite if the mean is 0 and not all are.
    """
    v = _scaled(_read(v))
    with np.errstate(divide="ignore", over="ignore"):
        return v.std(axis=-1) / np.abs(v.mean(axis=-1))


def cv_of_one_sign(v: Any) -> Float64[Any, "*batch"]:
    """The coefficient of variation where it means something: all of several users gain, or all lose; else NaN."""
    v = _read(v)
    one_sign = (v.min(axis=-1) >= 0) | (v.max(axis=-1) <= 0)
    return np.where(one_sign & v.any(axis=-1) & (v.shape[-1] > 1), cv(v), np.nan)[()]


def gini(v: Any) -> Float64[Any, "*batch"]:
    """The Gini index, Σ_i Σ_j |v_i − v_j| / (2 D Σ_i v_i), for v ≥ 0.

    0 if all are equal (or all 0), (D − 1)/D if one user has everything. The sum over pairs is taken as
    2 Σ_k k (D − k) (v↑_{k+1} − v↑_k): the step from rank k to k + 1 parts k users from D − k.
    """
    v = np.sort(_scaled(_nonnegative(_read(v), "the Gini index")), axis=-1)
    D = v.shape[-1]
    k = np.arange(1, D)
    return (k * (D - k) * np.diff(v, axis=-1)).sum(axis=-1) / (D * v.sum(axis=-1))


def jain(v: Any) -> Float64[Any, "*batch"]:
    """Jain's index, (Σ_i v_i)² / (D Σ_i v_i²): 1 if all are equal (or all 0), 1/D if one has everything."""
    v = _scaled(_read(v))
    return v.sum(axis=-1) ** 2 / (v.shape[-1] * (v**2).sum(axis=-1))


def lorenz(v: Any, generalized: bool = False) -> Float64[Any, "*batch E"]:
    """The Lorenz curve at 0, 1/D, …, 1, of shape [..., D + 1]: L_k = Σ_{j≤k} v↑_j / Σ_j v_j, for v ≥ 0.

    It is the share of the k worst-off users together, k/D if all are 0. The generalized curve,
    Σ_{j≤k} v↑_j / D, keeps the size as well (its last point is the mean) and takes negative values, too.
    """
    v = _read(v)
    if not generalized:
        v = _scaled(_nonnegative(v, "the Lorenz curve of shares"))
    sums = np.cumsum(np.sort(v, axis=-1), axis=-1)
    curve = sums / (v.shape[-1] if generalized else sums[..., -1:])
    return np.concatenate([np.zeros_like(curve[..., :1]), curve], axis=-1)


def price_of_fairness(utilitarian_returns: Any, fair_returns: Any) -> Float64[Any, "*batch"]:
    """The part of the total lost for fairness: (Σ_i u_i − Σ_i f_i) / |Σ_i u_i|, 0 if both totals are 0.

    Of the two one may be a single vector, and the other many.
    """
    u, f = _read(utilitarian_returns, "utilitarian_returns"), _read(fair_returns, "fair_returns")
    if u.shape != f.shape and (u.shape[-1] != f.shape[-1] or min(u.ndim, f.ndim) > 1):
        raise InputError(f"utilitarian_returns {u.shape} and fair_returns {f.shape} differ in shape.")
    best = u.sum(axis=-1)
    loss = best - f.sum(axis=-1)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(loss == 0, 0.0, loss / np.abs(best))[()]


class Statistic(NamedTuple):
    """One number of what D users get, and how tables show it."""

    of: Callable[[Any, Welfare], Any]
    """From returns [..., D], and the welfare they are judged by, to [...]; NaN where it is not defined."""
    heading: str
    """Of its column; with a soft hyphen where a narrow one may break it."""
    format: str = ""
    """How it is written, as in ".3f"; if empty, like the returns themselves."""
    of_many: bool = False
    """Whether it is shown only where there are too many users for a column each."""


STATISTICS: dict[str, Statistic] = {
    "welfare": Statistic(lambda v, welfare: welfare_of(welfare, v), "wel\u00adfare"),
    "sum": Statistic(lambda v, _: np.sum(v, axis=-1), "sum", of_many=True),
    "average": Statistic(lambda v, _: np.mean(v, axis=-1), "aver\u00adage"),
    "minimum": Statistic(lambda v, _: minimum(v), "mini\u00admum"),
    "maximum": Statistic(lambda v, _: maximum(v), "maxi\u00admum"),
    "cv": Statistic(lambda v, _: cv_of_one_sign(v), "CV", ".3f"),
}
"""What is said of returns wherever they are shown: in tables, figures and files for programs, and by claims."""


def spread(name: str, v: Any) -> dict[str, float]:
    """What each user got, in four numbers that are named after it."""
    v = _read(v)
    return {
        f"{name} average": float(v.mean()),
        f"{name} minimum": float(v.min()),
        f"{name} maximum": float(v.max()),
        f"{name} CV": float(cv(v)),
    }


def _read(v: Any, what: str = "v") -> Float64[np.ndarray, "*batch D"]:
    array = numbers(what, v)
    if not array.ndim or not array.shape[-1]:
        raise InputError(f"{what} needs at least one value along its last axis, but has the shape {array.shape}.")
    return array


def _nonnegative(v: Float64[np.ndarray, "*batch D"], measure: str) -> Float64[np.ndarray, "*batch D"]:
    if (v < 0).any():
        raise InputError(f"{measure} needs values that are not negative, but the smallest is {v.min():g}.")
    return v


def _scaled(v: Float64[np.ndarray, "*batch D"]) -> Float64[np.ndarray, "*batch D"]:
    """v over its largest magnitude: no ratio changes and no square overflows; zeros alone become ones."""
    size = np.abs(v).max(axis=-1, keepdims=True)
    return np.where(size == 0, 1.0, v / np.where(size == 0, 1.0, size))
