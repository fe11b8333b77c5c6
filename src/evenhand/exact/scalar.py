"""One scalar reward: an almost optimal deterministic policy, and a proven bound on how much better any could be.

Discounted (γ < 1) and average reward (γ = 1) share one method and one proof. For every v, with Tv the Bellman
backup and all policies π, by monotonicity of T:

    (1 − γ) d0·V_π ≤ (1 − γ) d0·v + max(Tv − v),

and the greedy policy reaches at least the same with min in place of max. So it does not matter how v was found, and
modified policy iteration is free to be fast and careless. Values are in reward units: (1 − γ) times the return, or
the gain.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Integer
from scipy.sparse.linalg import SuperLU

from evenhand.exact.linear import CHECK, DAMPING, factorise, lu_is_affordable, lu_price, sweeps_to_go

ALMOST_ONE = 1 - 1e-9  # the discount at which the average reward is factorised; refinement removes what it adds
PATIENCE = 50  # policies without progress before single backups take over (γ = 1) or rounding is blamed
LONG_PATIENCE = 5000  # backups without progress before rounding is blamed; half as many each time it was in vain


class Bounds(NamedTuple):
    """What a backup proves: the greedy policy reaches `lower`, and none exceeds `upper`, in each group of states."""

    lower: Float[np.ndarray, " G"]
    upper: Float[np.ndarray, " G"]
    rounding: float
    """What floating-point errors may have added to either; no bounds can be closer than that."""

    @property
    def width(self) -> float:
        """The largest difference over the groups."""
        return float(np.max(self.upper - self.lower))


@dataclass
class ScalarSolver:
    """Modified policy iteration on one transition matrix, for one reward after another, each started from the last."""

    transitions: sp.csr_array
    """[S·A, S], row s·A + a."""
    initial: Float[np.ndarray, " S"]
    gamma: float
    allowed: Bool[np.ndarray, "S A"] | None = None
    """Actions that may be taken; all, if None."""
    groups: Integer[np.ndarray, " S"] | None = None
    """For γ = 1: the end component of each state, each of which has a gain of its own; a single one, if None."""
    values: Float[np.ndarray, " S"] = field(init=False)
    backups: int = field(default=0, init=False)
    sweeps: int = field(default=0, init=False)
    factorisations: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        S = self.transitions.shape[1]
        self.values = np.zeros(S)
        self._actions = self.transitions.shape[0] // S
        self._first_row = np.arange(S) * self._actions
        self._lu: tuple[Integer[np.ndarray, " S"], SuperLU] | None = None
        self._long_patience = LONG_PATIENCE
        # Each group's values are kept relative to those of its first state.
        self._anchor = 0 if self.groups is None else np.unique(self.groups, return_index=True)[1][self.groups]

    def solve(self, reward: Float[np.ndarray, " SA"], tol: float) -> tuple[Integer[np.ndarray, " S"], Bounds]:
        """A policy proven to be within `tol` of the optimum, or as close as rounding allows, and the proof."""
        v = self._start(reward)
        policy, backup = self._greedy(reward, v)
        largest = float(np.abs(reward).max())
        best = policy, self._bounds(backup - v, v, largest)
        narrowest, idle, single = best[1].width, 0, False
        while narrowest > max(tol, 4 * best[1].rounding) and idle < (self._long_patience if single else PATIENCE):
            # Evaluating policies that fall apart into classes may lead nowhere when γ = 1; single backups never do.
            single = single or (self.gamma == 1 and idle == PATIENCE - 1)
            if single:
                v = self._centred(v + DAMPING * (backup - v))
            else:
                v = self._evaluate(policy, reward, backup, 0.1 * narrowest)
            policy, backup = self._greedy(reward, v)
            bounds = self._bounds(backup - v, v, largest)
            idle = 0 if bounds.width < 0.99 * narrowest else idle + 1
            if bounds.width < narrowest:
                narrowest, best = bounds.width, (policy, bounds)
        if single and idle >= self._long_patience:
            self._long_patience = max(PATIENCE, self._long_patience // 2)
        self.values = self._centred(backup)
        return best

    def _start(self, reward: Float[np.ndarray, " SA"]) -> Float[np.ndarray, " S"]:
        """The values of the last policy for this reward, where its factors are at hand; else the last values."""
        if self._lu is None:
            return self.values
        rows = self._first_row + self._lu[0]
        return self._evaluate_directly(self._lu[0], self.transitions[rows], reward[rows], self.values)

    def highest_value(self, reward: Float[np.ndarray, " SA"]) -> float:
        """A bound on (1 − γ) max_s V*(s), from the values of the last solve."""
        v = self.values
        _, backup = self._greedy(reward, v)
        from_initial = float(self._bounds(backup - v, v, float(np.abs(reward).max())).upper[0])
        return from_initial + (1 - self.gamma) * float(v.max() - self.initial @ v)

    def _greedy(
        self, reward: Float[np.ndarray, " SA"], v: Float[np.ndarray, " S"]
    ) -> tuple[Integer[np.ndarray, " S"], Float[np.ndarray, " S"]]:
        self.backups += 1
        q = (self.transitions @ v) * self.gamma
        q += reward
        q = q.reshape(-1, self._actions)
        if self.allowed is not None:
            q[~self.allowed] = -np.inf
        policy = q.argmax(axis=1)
        return policy, np.take_along_axis(q, policy[:, None], axis=1)[:, 0]

    def _bounds(self, change: Float[np.ndarray, " S"], v: Float[np.ndarray, " S"], largest_reward: float) -> Bounds:
        # `change` carries the rounding of a few operations on numbers as large as these.
        rounding = 8 * np.finfo(float).eps * (largest_reward + 2 * max(float(v.max()), -float(v.min())))
        lowest, highest = self._extremes(change)
        base = (1 - self.gamma) * (self.initial * v).sum()  # a dot product would start threads, which cost more
        return Bounds(base + lowest - rounding, base + highest + rounding, rounding)

    def _extremes(self, change: Float[np.ndarray, " S"]) -> tuple[Float[np.ndarray, " G"], Float[np.ndarray, " G"]]:
        if self.groups is None:
            return np.array([change.min()]), np.array([change.max()])
        highest = np.full(self.groups.max() + 1, -np.inf)
        lowest = -highest
        np.maximum.at(highest, self.groups, change)
        np.minimum.at(lowest, self.groups, change)
        return lowest, highest

    def _evaluate(
        self,
        policy: Integer[np.ndarray, " S"],
        reward: Float[np.ndarray, " SA"],
        v: Float[np.ndarray, " S"],
        target: float,
    ) -> Float[np.ndarray, " S"]:
        """Values of a policy, well enough that its residual varies by less than `target` over the states of a group.

        By sweeps v ← r + γPv, unless what they have achieved so far says that a factorisation would be quicker.
        """
        P, r = self.transitions[self._first_row + policy], reward[self._first_row + policy]
        price = lu_price(len(v))
        before = np.inf
        for sweep in count(1):
            residual = P @ v
            residual *= self.gamma
            residual += r
            residual -= v
            v = v + (residual if self.gamma < 1 else DAMPING * residual)
            self.sweeps += 1
            if sweep % CHECK:
                continue
            lowest, highest = self._extremes(residual)
            spread = float(np.max(highest - lowest))
            if spread <= target:
                break
            if sweep > CHECK and sweeps_to_go(before, spread, target) > price:
                if self.can_factorise:
                    return self._evaluate_directly(policy, P, r, v)
                if sweep >= price:
                    break
            before = spread
        return self._centred(v)

    def _evaluate_directly(
        self,
        policy: Integer[np.ndarray, " S"],
        P: sp.csr_array,
        r: Float[np.ndarray, " S"],
        v: Float[np.ndarray, " S"],
    ) -> Float[np.ndarray, " S"]:
        """The same by sparse LU. At γ = 1 a slightly smaller discount keeps I − γP regular, whatever the policy's
        classes; corrections of the residual, whose common part is irrelevant, remove what that costs."""
        lu = self.factors(policy, P)
        for _ in range(3):
            residual = r + self.gamma * (P @ v) - v
            residual -= (residual.max() + residual.min()) / 2
            v = self._centred(v + lu.solve(residual))
        return v

    def occupation(self, policy: Integer[np.ndarray, " S"], P: sp.csr_array) -> Float[np.ndarray, " S"]:
        """The discounted shares of time x = (1 − γ) d0 (I − γP_π)⁻¹ by the same factors."""
        lu, source = self.factors(policy, P), (1 - self.gamma) * self.initial
        x = np.zeros_like(source)
        for _ in range(2):
            x = x + lu.solve(source + self.gamma * (x @ P) - x, "T")  # type: ignore[call-overload]  # not in the stubs
        return x

    def factors(self, policy: Integer[np.ndarray, " S"], P: sp.csr_array) -> SuperLU:
        """The LU factors of I − γP_π; those of the last policy are kept."""
        if self._lu is None or not np.array_equal(self._lu[0], policy):
            self._lu = None  # two at a time would be too much memory
            self.factorisations += 1
            self._lu = policy, factorise(min(self.gamma, ALMOST_ONE) * P)
        return self._lu[1]

    @cached_property
    def can_factorise(self) -> bool:
        """Whether the factors of policies stay sparse."""
        P = self.transitions
        S = P.shape[1]
        return lu_is_affordable(sp.csr_array((P.data, P.indices, P.indptr[:: self._actions]), shape=(S, S)))

    def _centred(self, v: Float[np.ndarray, " S"]) -> Float[np.ndarray, " S"]:
        """v less a constant per group, which changes no bound and keeps the digits for the differences."""
        return v - v[self._anchor]
