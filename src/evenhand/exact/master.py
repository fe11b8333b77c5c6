"""Master problems of column generation: the best mixture of the return vectors known so far.

A master answers with the mixture and with a cut (λ, c): an affine function λ·z + c that lies above the welfare of
every return vector z. With an oracle's bound on λ·z over all policies, a cut bounds the welfare of all policies.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import highspy
import numpy as np
from jaxtyping import Float, Integer

from evenhand.exact.equivalent import EqualEquivalent
from evenhand.exact.proofs import sums_of_smallest, value_of
from evenhand.welfare import Welfare

FEASIBILITY = 1e-10  # HiGHS's tolerances; certificates do not depend on them
GIVES = (0.0, 1e-9, 1e-6)  # how much below their floors sums may fall, where HiGHS finds a program infeasible


class Cut(NamedTuple):
    """welfare(z) ≤ weights·z + offset, for every z; with floors, for every z that reaches them."""

    weights: Float[np.ndarray, " D"]
    offset: float
    charges: Float[np.ndarray, " F"] = np.empty(0)
    """What a unit of each floor is worth; the offset is −charges·floors."""

    def mixed_with(self, other: Cut, share: float) -> Cut:
        """A convex combination of cuts, which is a cut."""
        rest = 1 - share
        return Cut(
            rest * self.weights + share * other.weights,
            rest * self.offset + share * other.offset,
            rest * self.charges + share * other.charges,
        )


@runtime_checkable
class Master(Protocol):
    """The welfare of mixtures of the columns added so far."""

    @property
    def is_linear(self) -> bool:
        """Whether all cuts have the same weights: then the first answer may be the last."""

    def add(self, returns: Float[np.ndarray, " D"]) -> None:
        """One more return vector to mix."""

    def first_cut(self) -> Cut:
        """A cut to begin with, before there are columns."""

    def solve(self) -> tuple[Float[np.ndarray, " K"], Cut]:
        """The best mixture, and the cut that is tight there."""

    def welfare(self, returns: Float[np.ndarray, " D"]) -> float:
        """What is maximised."""

    def unit(self, cut: Cut) -> float:
        """How much welfare changes if all returns change by one: what makes tolerances comparable."""


class OrderedMaster:
    """GGF, or one stage of leximin, as a linear program that grows by a variable per column.

    With Θ_k(z) the sum of the k smallest components, GGF_w(z) = Σ_k (w_k − w_{k+1}) Θ_k(z), w_{D+1} = 0, and
    Θ_k(z) = max_t k·t − Σ_i max(t − z_i, 0). Stages of leximin maximise one Θ_k and keep the former ones.
    """

    def __init__(
        self,
        prices: Float[np.ndarray, " D"],
        columns: list[Float[np.ndarray, " D"]],
        kept: Float[np.ndarray, " K"] | None = None,
    ) -> None:
        """prices: of Θ_1 … Θ_D in the objective. kept: a mixture of the columns; no Θ_j before the first that has a
        price may fall below what it is there."""
        self.prices = prices
        self._columns = list(columns)
        self._last = kept
        self._floors = np.empty(0)
        if kept is not None:
            self._floors = sums_of_smallest(kept @ np.array(columns))[: int(np.argmax(prices > 0))]
        self._kept = kept
        self._program: _OrderedProgram | None = None

    @property
    def is_linear(self) -> bool:
        """With equal weights, and thus with one user."""
        return not self.prices[:-1].any() and not len(self._floors)

    def add(self, returns: Float[np.ndarray, " D"]) -> None:
        """See `Master`."""
        self._columns.append(returns)
        if self._program is not None and not self._program.add(returns):
            self._program = None

    def first_cut(self) -> Cut:
        """All users alike: by symmetry in the middle of all weights that a cut can have."""
        D = len(self.prices)
        weights = self.prices @ np.arange(1, D + 1) / D
        return Cut(np.full(D, weights), 0.0, np.zeros(len(self._floors)))

    def solve(self) -> tuple[Float[np.ndarray, " K"], Cut]:
        """See `Master`. Where HiGHS has no answer, the last mixture and a cut that holds anyhow."""
        if self._program is None:
            self._program = _OrderedProgram(self.prices, np.array(self._columns), self._kept, len(self._floors))
        answer = self._program.solve()
        if answer is None:
            return self._last_mixture(), self.first_cut()
        self._last, charges, shares = answer
        # Rounding in the solver's multipliers must not make the cut invalid: prices are made exact, shares too.
        weights = np.zeros(len(self.prices))
        for k, price in enumerate(self.prices + np.pad(charges, (0, len(self.prices) - len(charges)))):
            if price > 0:
                weights += price * capped_simplex(shares[k] / price, k + 1)
        return self._last, Cut(weights, float(-charges @ self._floors), charges)

    def _last_mixture(self) -> Float[np.ndarray, " K"]:
        Z = np.array(self._columns)
        if self._last is None:
            return np.eye(len(Z))[np.argmax(sums_of_smallest(Z) @ self.prices)]
        return np.pad(self._last, (0, len(Z) - len(self._last)))

    def welfare(self, returns: Float[np.ndarray, " D"]) -> float:
        """Σ_k prices_k Θ_k(z)."""
        return float(sums_of_smallest(returns) @ self.prices)

    def unit(self, cut: Cut) -> float:
        """See `Master`."""
        return float(self.prices @ np.arange(1, len(self.prices) + 1))


class _OrderedProgram:
    """The linear program in HiGHS, on returns shifted and scaled to about [0, 1].

    Variables: z_i; t_k and d_ik ≥ t_k − z_i, d_ik ≥ 0 for each Θ_k that is needed; the share of each column.
    """

    def __init__(
        self,
        prices: Float[np.ndarray, " D"],
        columns: Float[np.ndarray, "K D"],
        kept: Float[np.ndarray, " kept"] | None,
        floors: int,
    ) -> None:
        D = len(prices)
        self.shift = float(columns.min())
        self.scale = float(columns.max() - self.shift) or 1.0
        columns = (columns - self.shift) / self.scale
        # From the same numbers that the program has: the mixture kept is feasible up to the last digit.
        self.floors = np.empty(0) if kept is None else sums_of_smallest(kept @ columns[: len(kept)])[:floors]
        # Θ_D is the plain sum of the z_i and needs no variables of its own.
        self.ks = [k for k in range(D - 1) if prices[k] > 0 or k < floors]
        h = self.highs = highspy.Highs()
        h.silent()
        h.setOptionValue("primal_feasibility_tolerance", FEASIBILITY)
        h.setOptionValue("dual_feasibility_tolerance", FEASIBILITY)
        h.setOptionValue("threads", 1)
        h.changeObjectiveSense(highspy.ObjSense.kMaximize)
        inf, none, nothing = highspy.kHighsInf, np.empty(0, dtype=np.int32), np.empty(0)
        for _ in range(D):
            h.addRow(0.0, 0.0, 0, none, nothing)  # z_i − Σ_j share_j Z_ji = 0
        h.addRow(1.0, 1.0, 0, none, nothing)  # Σ_j share_j = 1
        for i in range(D):
            h.addCol(prices[-1], -inf, inf, 1, np.array([i], dtype=np.int32), np.ones(1))
        self.floor_rows: list[int] = []
        self.cap_rows: list[Integer[np.ndarray, " D"]] = []
        for k in self.ks:
            t = D + len(self.cap_rows) * (D + 1)
            d = t + 1 + np.arange(D)
            h.addCol(prices[k] * (k + 1), -inf, inf, 0, none, nothing)
            for _ in range(D):
                h.addCol(-prices[k], 0.0, inf, 0, none, nothing)
            first = h.getNumRow()
            for i in range(D):
                h.addRow(0.0, inf, 3, np.array([d[i], t, i], dtype=np.int32), np.array([1.0, -1.0, 1.0]))
            self.cap_rows.append(first + np.arange(D))
            if k < floors:
                self.floor_rows.append(h.getNumRow())
                entries = np.append(t, d).astype(np.int32)
                h.addRow(self.floors[k], inf, D + 1, entries, np.append(k + 1.0, -np.ones(D)))
        self.first_share = h.getNumCol()
        self.D = D
        for column in columns:
            self._add_scaled(column)

    def add(self, returns: Float[np.ndarray, " D"]) -> bool:
        """Add a column; False if it lies so far out that the program should be scaled anew."""
        scaled = (returns - self.shift) / self.scale
        if np.abs(scaled).max() > 10:
            return False
        self._add_scaled(scaled)
        return True

    def _add_scaled(self, returns: Float[np.ndarray, " D"]) -> None:
        rows = np.arange(self.D + 1, dtype=np.int32)
        self.highs.addCol(0.0, 0.0, highspy.kHighsInf, self.D + 1, rows, np.append(-returns, 1.0))

    def solve(self) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " F"], Float[np.ndarray, "D D"]] | None:
        """The shares of the columns, the charges of the floors, and what each Θ_k charges each objective.

        None if HiGHS finds no optimum, although there always is one.
        """
        self.highs.run()
        for give in GIVES:
            if self.highs.getModelStatus() == highspy.HighsModelStatus.kOptimal:
                break
            self.highs.clearSolver()  # a cold start without presolve is slower, and safer
            self.highs.setOptionValue("presolve", "off")
            for k, row in enumerate(self.floor_rows):
                self.highs.changeRowBounds(row, self.floors[k] - (k + 1) * give, highspy.kHighsInf)
            self.highs.run()
        solution = self.highs.getSolution()
        mixture = np.maximum(np.array(solution.col_value)[self.first_share :], 0.0)
        if self.highs.getModelStatus() != highspy.HighsModelStatus.kOptimal or not 0.5 < mixture.sum() < 2:
            return None
        dual = np.array(solution.row_dual)
        shares = np.ones((self.D, self.D))
        for k, rows in zip(self.ks, self.cap_rows, strict=True):
            shares[k] = np.abs(dual[rows])
        charges = np.abs(dual[self.floor_rows]) if self.floor_rows else np.empty(0)
        return mixture / mixture.sum(), charges, shares


def capped_simplex(point: Float[np.ndarray, " D"], total: int) -> Float[np.ndarray, " D"]:
    """The point of {0 ≤ u ≤ 1, Σu = total} nearest to one that is there up to rounding: clip(point + shift)."""
    if total == len(point):
        return np.ones(len(point))
    # The sum is piecewise linear in the shift, with kinks where a component meets 0 or 1.
    kinks = np.sort(np.concatenate([-point, 1 - point]))
    sums = np.clip(point + kinks[:, None], 0, 1).sum(axis=1)
    return np.clip(point + np.interp(total, sums, kinks), 0, 1)


class SmoothMaster:
    """A smooth concave welfare over the simplex of mixtures, by Newton's method on a vanishing logarithmic barrier."""

    def __init__(
        self, welfare: Welfare, columns: list[Float[np.ndarray, " D"]], start: Float[np.ndarray, " K"]
    ) -> None:
        """start: a mixture of the columns at which the welfare is defined."""
        self._welfare, self._columns, self._best = welfare, list(columns), start

    @property
    def is_linear(self) -> bool:
        """What is linear goes to the other one."""
        return False

    def add(self, returns: Float[np.ndarray, " D"]) -> None:
        """See `Master`."""
        self._columns.append(returns)

    def first_cut(self) -> Cut:
        """The one at the mixture to start from."""
        return self._cut(self._best @ np.array(self._columns))

    def welfare(self, returns: Float[np.ndarray, " D"]) -> float:
        """W(z), −∞ where it is not defined."""
        return value_of(self._welfare, returns)

    def unit(self, cut: Cut) -> float:
        """See `Master`."""
        return float(cut.weights.sum())

    def solve(self) -> tuple[Float[np.ndarray, " K"], Cut]:
        """See `Master`."""
        Z = np.array(self._columns)
        known = np.pad(self._best, (0, len(Z) - len(self._best)))
        mixture = self._inside(known, Z)
        for barrier in 10.0 ** -np.arange(2, 15):
            mixture = self._centre(mixture, Z, barrier)
        few = np.where(mixture < 1e-7, 0.0, mixture)
        self._best = max(known, mixture, few / few.sum(), key=lambda shares: self.welfare(shares @ Z))
        return self._best, self._cut(self._best @ Z)

    def _cut(self, returns: Float[np.ndarray, " D"]) -> Cut:
        """The tangent, which lies above a concave function."""
        gradient = np.asarray(self._welfare.gradient(returns))
        return Cut(gradient, self.welfare(returns) - float(gradient @ returns))

    def _inside(self, mixture: Float[np.ndarray, " K"], Z: Float[np.ndarray, "K D"]) -> Float[np.ndarray, " K"]:
        """A point with all shares positive, near a mixture, at which the welfare is defined still."""
        middle = np.full(len(mixture), 1 / len(mixture))
        share = 0.1
        while not np.isfinite(self.welfare(((1 - share) * mixture + share * middle) @ Z)):
            share /= 2
        return (1 - share) * mixture + share * middle

    def _centre(
        self, mixture: Float[np.ndarray, " K"], Z: Float[np.ndarray, "K D"], barrier: float
    ) -> Float[np.ndarray, " K"]:
        """Maximise W(mixture·Z) + barrier·Σ log mixture over the simplex, with the scale of W taken out."""
        size = max(float(np.abs(Z @ np.asarray(self._welfare.gradient(mixture @ Z))).max()), 1e-300)

        def objective(m: Float[np.ndarray, " K"]) -> float:
            if (m <= 0).any():
                return -np.inf
            return self.welfare(m @ Z) / size + barrier * float(np.log(m).sum())

        for _ in range(50):
            z = mixture @ Z
            slope = Z @ np.asarray(self._welfare.gradient(z)) / size + barrier / mixture
            # Newton's step in coordinates scaled by the mixture, which keeps the system well conditioned.
            scaled = mixture[:, None] * Z
            M = scaled @ (-self._hessian(z) / size) @ scaled.T + barrier * np.eye(len(mixture))
            system = np.block([[M, mixture[:, None]], [mixture[None, :], np.zeros((1, 1))]])
            if not np.isfinite(system).all():  # a welfare of a person's own may have no curvature here
                break
            step = mixture * np.linalg.lstsq(system, np.append(slope * mixture, 0.0), rcond=1e-15)[0][:-1]
            decrement = float(slope @ step)
            if not decrement > 1e-16:
                break
            length, now = 1.0, objective(mixture)
            shrink = -step / mixture
            if shrink.max() > 0:
                length = min(1.0, 0.99 / float(shrink.max()))
            while length > 1e-12 and not objective(mixture + length * step) >= now + 1e-4 * length * decrement:
                length /= 2
            if length <= 1e-12:
                break
            mixture = mixture + length * step
            mixture /= mixture.sum()
        return mixture

    def _hessian(self, z: Float[np.ndarray, " D"]) -> Float[np.ndarray, "D D"]:
        """The welfare's own, or central differences of its gradient."""
        if isinstance(self._welfare, EqualEquivalent):
            return self._welfare.hessian(z)
        h = 1e-6 * (z if self._welfare.needs_positive else np.maximum(np.abs(z), 1e-3 * np.abs(z).max() + 1e-9))
        steps = np.diag(h)
        up, down = (np.array([self._welfare.gradient(z + sign * step) for step in steps]) for sign in (1, -1))
        rows = (up - down) / (2 * h[:, None])
        return np.asarray((rows + rows.T) / 2)
