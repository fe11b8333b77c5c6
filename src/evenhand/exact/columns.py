"""Column generation: the fair optimum of a large model from a few dozen scalar ones.

Returns of policies form a convex set whose corners are the returns of deterministic policies. A master problem mixes
the corners known so far; the weights λ of its cut make a scalar model, whose best policy is the next corner. What that
policy could gain at most bounds the distance to the optimum, so one knows when to stop.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from evenhand.errors import Infeasible
from evenhand.exact.master import Cut, Master, OrderedMaster, SmoothMaster
from evenhand.exact.oracle import Oracle
from evenhand.exact.proofs import Ceiling, Proof, Stage, Stages, sums_of_smallest, value_of
from evenhand.welfare import GGF, Leximin, Welfare

SMOOTHING, FIRMER, LOOSER = 0.7, 0.1, 0.1  # how far queries stay at the best cut, and how that share adapts
IDLE = 30  # queries that bring nothing new, or blurred answers, before it is believed that rounding forbids any more

Report = Callable[[float, float, int], None]
"""Called after each query with the welfare reached, the bound on it, and the number of queries."""


@dataclass
class Mix:
    """Policies, their returns and shares: the best mixture so far and what is proven of it."""

    shares: Float[np.ndarray, " K"]
    welfare: float
    upper: float
    cut: Cut

    @property
    def gap(self) -> float:
        """A bound on how much better any policy could be."""
        return max(0.0, self.upper - self.welfare)


class Answer(NamedTuple):
    """A mixture of the columns, and what is proven of all policies."""

    shares: Float[np.ndarray, " K"]
    weights: Float[np.ndarray, " D"]
    proof: Proof


class _Bound(NamedTuple):
    upper: float
    blur: float


@dataclass
class ColumnGeneration:
    """The columns found so far for one model, shared by the stages of a solve."""

    oracle: Oracle
    tol: float
    """The gap to reach, per unit of weight of a cut: in returns."""
    report: Report | None = None
    policies: list[Integer[np.ndarray, " S"]] = field(default_factory=list)
    returns: list[Float[np.ndarray, " D"]] = field(default_factory=list)
    best: Mix | None = None
    """The last complete answer, which an interrupt leaves behind."""
    stages: list[Stage] = field(default_factory=list)
    """What the stages of leximin have proven so far."""
    interrupted: bool = False
    last_stage: bool = False
    """Whether what is being maximised is the welfare itself, and not a step on the way to it."""
    queries: int = 0

    def maximise(self, welfare: Welfare) -> Answer:
        """The best mixture for a welfare function; after Ctrl-C, the best so far."""
        try:
            if isinstance(welfare, Leximin):
                for k in range(welfare.D):
                    self._leximin_stage(k, welfare.D)
            elif isinstance(welfare, GGF):
                self.last_stage = True
                self._run(OrderedMaster(welfare.weights - np.append(welfare.weights[1:], 0), self.returns))
            else:
                self._smooth(welfare)
        except KeyboardInterrupt:
            if self.best is None or (welfare.needs_positive and not self._everyone_gains(self.best)):
                raise  # there is nothing to return yet
            self.interrupted = True
        assert self.best is not None
        return Answer(self.best.shares, self.best.cut.weights, self._proof(welfare, self.best))

    def _proof(self, welfare: Welfare, mix: Mix) -> Proof:
        """What the queries have shown; for what an interrupt left undone, that no policy beats the largest rewards."""
        largest = self.oracle.model.rewards.max(axis=(0, 1)) * self.oracle.scale
        if isinstance(welfare, Leximin):
            done, sums = len(self.stages), sums_of_smallest(largest)
            return Stages((*self.stages, *(Stage(float(sums[k]), np.zeros(k)) for k in range(done, welfare.D))))
        upper = mix.upper if self.last_stage else value_of(welfare, largest)
        return Ceiling(welfare, upper, mix.cut.weights)

    def _everyone_gains(self, mix: Mix) -> bool:
        return bool((mix.shares @ np.array(self.returns[: len(mix.shares)]) > 0).all())

    def _leximin_stage(self, k: int, D: int) -> None:
        """Θ_1, then Θ_2 among the best for Θ_1, and so on, with Θ_k the sum of the k smallest returns."""
        mix = self._run(OrderedMaster(np.eye(D)[k], self.returns, kept=self.best.shares if self.best else None))
        self.stages.append(Stage(mix.upper - mix.cut.offset, mix.cut.charges))

    def _smooth(self, welfare: Welfare) -> None:
        """A mixture that gives everyone something positive may be needed first: maximin finds one if there is any."""

        def enough(mix: Mix) -> bool:
            return not welfare.needs_positive or mix.welfare > 0 or mix.upper <= 0

        start = self._run(OrderedMaster(np.eye(welfare.D)[0], self.returns), until=enough)
        if welfare.needs_positive and start.welfare <= 0:
            raise Infeasible(
                f"the welfare {welfare.name} needs positive returns for all {welfare.D} users, but no policy gives the "
                f"worst-off user more than {start.upper:.6g}: shift the rewards or choose another welfare."
            )
        self.last_stage = True
        self._run(SmoothMaster(welfare, self.returns, start.shares))

    def _run(self, master: Master, until: Callable[[Mix], bool] = lambda mix: False) -> Mix:
        """Query and solve in turn until the gap is closed, `until` says so, or nothing new comes."""
        widest = float(self.oracle.model.reward_span.max()) * self.oracle.scale
        bound, best_cut = np.inf, None
        if not self.returns:
            best_cut = master.first_cut()
            slack = 0.1 * self.tol if master.is_linear else 1e-3 * widest
            bound = self._query(master, best_cut, slack * master.unit(best_cut)).upper
        shares, cut = master.solve()
        mix = self._mix(master, shares, bound, best_cut or cut)
        if mix.gap <= self.tol * master.unit(mix.cut):
            if self.report is not None:
                self.report(mix.welfare, mix.upper, self.queries)
            return mix
        idle, plain, smoothing = 0, best_cut is None, SMOOTHING
        while True:
            # Staying near the best cut keeps queries from jumping about: with 16 objectives it saves two in three.
            query = cut if plain else cut.mixed_with(mix.cut, smoothing)
            unit = master.unit(query)
            goal = self.tol * unit
            upper, blur = self._query(master, query, max(0.1 * goal, min(0.1 * mix.gap, 1e-3 * widest * unit)))
            if not plain:
                # The answer tells on which side of the query the bound falls: stay closer, or go further, next time.
                beyond = float((cut.weights - mix.cut.weights) @ self.returns[-1]) + cut.offset - mix.cut.offset
                smoothing = smoothing + FIRMER * (1 - smoothing) if beyond >= 0 else max(0.0, smoothing - LOOSER)
            # Smoothed weights may find nothing that the master has not; then the next query is a plain one.
            gain = float(cut.weights @ self.returns[-1]) + cut.offset - mix.welfare
            plain = not plain and gain <= 0.1 * goal
            bound, best_cut = (upper, query) if upper < mix.upper else (mix.upper, mix.cut)
            before = mix.gap
            shares, cut = master.solve()
            mix = self._mix(master, shares, bound, best_cut)
            if self.report is not None:
                self.report(mix.welfare, mix.upper, self.queries)
            idle = 0 if mix.gap < 0.999 * before and blur < 0.5 * before else idle + 1
            if mix.gap <= goal or idle >= IDLE or until(mix):
                return mix

    def _query(self, master: Master, cut: Cut, slack: float) -> _Bound:
        """Ask the oracle, add its answer as a column, and return the bound that it proves."""
        self.queries += 1
        policy, upper, blur = self.oracle.best_response(cut.weights, slack)
        self.policies.append(policy.astype(np.min_scalar_type(self.oracle.model.A - 1)))
        self.returns.append(self.oracle.returns(policy, 0.01 * self.tol))
        master.add(self.returns[-1])
        return _Bound(upper + cut.offset, blur)

    def _mix(self, master: Master, shares: Float[np.ndarray, " K"], upper: float, cut: Cut) -> Mix:
        self.best = Mix(shares, master.welfare(shares @ np.array(self.returns)), upper, cut)
        return self.best
