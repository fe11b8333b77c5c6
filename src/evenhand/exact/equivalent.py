"""Nash welfare and α-fairness in units of returns: what everyone would have to get, all alike, to be as well off.

W(v) = (1/D) Σ v_i^(1−α)/(1−α) overflows or vanishes where returns are very large or small and α is; the return m
with W(m, …, m) = W(v) does not. It orders returns in the same way, is concave as well, and grows in proportion to
them. So it is what the solver maximises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from evenhand.welfare import AlphaFair


@dataclass(frozen=True)
class EqualEquivalent:
    """The equally distributed equivalent (Atkinson 1970) of positive v: M(v) = ((1/D) Σ v_i^p)^(1/p), p = 1 − α."""

    D: int
    alpha: float
    needs_positive: ClassVar[bool] = True

    @property
    def name(self) -> str:
        """For errors: that of the welfare."""
        return "nash" if self.alpha == 1 else AlphaFair(self.D, self.alpha).name

    def value(self, v: Any) -> Float[Any, "*batch"]:
        """M(v); by logarithms relative to the smallest or largest return, so that nothing overflows."""
        p = 1 - self.alpha
        logs = np.log(np.asarray(v, dtype=float))
        base = logs.min(axis=-1) if p < 0 else logs.max(axis=-1)
        away = logs - base[..., None]
        mean = np.log1p(np.expm1(p * away).mean(axis=-1)) / p if p else away.mean(axis=-1)
        return np.exp(base + mean)

    def gradient(self, v: Any) -> Float[Any, "*batch D"]:
        """(1/D) (M/v_i)^α."""
        v = np.asarray(v, dtype=float)
        away = np.log(self.value(v))[..., None] - np.log(v)
        return np.exp(self.alpha * away) / self.D

    def hessian(self, v: Float[np.ndarray, " D"]) -> Float[np.ndarray, "D D"]:
        """α (g gᵀ/M − diag(g/v))."""
        g = self.gradient(v)
        return self.alpha * (np.outer(g, g) / self.value(v) - np.diag(g / v))

    def welfare(self, m: float) -> float:
        """W of everyone getting m; an infinity or zero where no double is so large or small."""
        p = 1 - self.alpha
        with np.errstate(over="ignore", under="ignore"):
            return float(np.float64(m) ** p / p if p else np.log(m))

    def welfare_gain(self, m: float, more: float) -> float:
        """W(m + more) − W(m), without taking the difference of two numbers that are nearly equal."""
        p, growth = 1 - self.alpha, np.log1p(more / m)
        with np.errstate(over="ignore", under="ignore"):
            return float(np.float64(m) ** p * (np.expm1(p * growth) / p) if p else growth)

    def welfare_weights(self, m: float, weights: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """The weights of M in units of W: dW/dM = M^−α."""
        with np.errstate(over="ignore", under="ignore", divide="ignore"):
            return np.asarray(np.exp(np.log(weights) - self.alpha * np.log(m)))
