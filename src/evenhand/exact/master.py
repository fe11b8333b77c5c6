"""Master problems of column generation: the best mixture of the return vectors known so far.

A master answers with the mixture and with a cut (λ, c): an affine function λ·z + c that lies above the welfare of
every return vector z. With an oracle's bound on λ·z over all policies, a cut bounds the welfare of all policies.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

import highspy
import numpy as np
from jaxtyping import Float, Integer

from evenhand.welfare import Welfare

FEASIBILITY = 1e-10  # HiGHS's tolerances; certificates do not depend on them
GIVE = 1e-9  # how much below its floor a sum may fall, so that rounding does not make a program infeasible


class Cut(NamedTuple):
    """welfare(z) ≤ weights·z + offset, for every z."""

    weights: Float[np.ndarray, " D"]
    offset: float

    def mixed_with(self, other: Cut, share: float) -> Cut:
        """A convex combination of cuts, which is a cut."""
        return Cut((1 - share) * self.weights + share * other.weights, (1 - share) * self.offset + share * other.offset)


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
        floors: Float[np.ndarray, " F"] | None = None,
    ) -> None:
        """prices: of Θ_1 … Θ_D in the objective. floors: Θ_1 ≥ floors[0], Θ_2 ≥ floors[1] and so on."""
        self.prices = prices
        self._columns = list(columns)
        self._floors = np.empty(0)
        if floors is not None:
            widest = np.ptp(np.array(columns)) if columns else 0.0
            self._floors = floors - GIVE * widest * np.arange(1, len(floors) + 1)
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
        return Cut(np.full(D, weights), 0.0)

    def solve(self) -> tuple[Float[np.ndarray, " K"], Cut]:
        """See `Master`."""
        if self._program is None:
            self._program = _OrderedProgram(self.prices, self._floors, np.array(self._columns))
        mixture, multipliers, shares = self._program.solve()
        # Rounding in the solver's multipliers must not make the cut invalid: prices are made exact, shares too.
        multipliers = np.maximum(multipliers, 0.0)
        weights = np.zeros(len(self.prices))
        for k, price in enumerate(self.prices + np.pad(multipliers, (0, len(self.prices) - len(multipliers)))):
            if price > 0:
                weights += price * capped_simplex(shares[k] / price, k + 1)
        return mixture, Cut(weights, float(-multipliers @ self._floors))

    def welfare(self, returns: Float[np.ndarray, " D"]) -> float:
        """Σ_k prices_k Θ_k(z)."""
        return float(np.cumsum(np.sort(returns)) @ self.prices)

    def unit(self, cut: Cut) -> float:
        """See `Master`."""
        return float(self.prices @ np.arange(1, len(self.prices) + 1))


class _OrderedProgram:
    """The linear program in HiGHS, on returns shifted and scaled to about [0, 1].

    Variables: z_i; t_k and d_ik ≥ t_k − z_i, d_ik ≥ 0 for each Θ_k that is needed; the share of each column.
    """

    def __init__(
        self, prices: Float[np.ndarray, " D"], floors: Float[np.ndarray, " F"], columns: Float[np.ndarray, "K D"]
    ) -> None:
        D = len(prices)
        self.shift = float(columns.min())
        self.scale = float(columns.max() - self.shift) or 1.0
        self.floors = floors
        # Θ_D is the plain sum of the z_i and needs no variables of its own.
        self.ks = [k for k in range(D - 1) if prices[k] > 0 or k < len(floors)]
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
            if k < len(floors):
                self.floor_rows.append(h.getNumRow())
                floor = (floors[k] - (k + 1) * self.shift) / self.scale
                h.addRow(floor, inf, D + 1, np.append(t, d).astype(np.int32), np.append(k + 1.0, -np.ones(D)))
        self.first_share = h.getNumCol()
        self.D = D
        for column in columns:
            self.add(column)

    def add(self, returns: Float[np.ndarray, " D"]) -> bool:
        """Add a column; False if it lies so far out that the program should be scaled anew."""
        scaled = (returns - self.shift) / self.scale
        if np.abs(scaled).max() > 10:
            return False
        rows = np.arange(self.D + 1, dtype=np.int32)
        self.highs.addCol(0.0, 0.0, highspy.kHighsInf, self.D + 1, rows, np.append(-scaled, 1.0))
        return True

    def solve(
        self,
    ) -> tuple[Float[np.ndarray, " K"], Float[np.ndarray, " F"], Float[np.ndarray, "D D"]]:
        """The shares of the columns, the multipliers of the floors, and what each Θ_k charges each objective."""
        self.highs.run()
        if self.highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            self.highs.clearSolver()  # a cold start without presolve is slower, and safer
            self.highs.setOptionValue("presolve", "off")
            self.highs.run()
            if self.highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
                raise RuntimeError(f"HiGHS did not solve a master program: {self.highs.getModelStatus()}.")
        solution = self.highs.getSolution()
        mixture = np.maximum(np.array(solution.col_value)[self.first_share :], 0.0)
        dual = np.array(solution.row_dual)
        shares = np.ones((self.D, self.D))
        for k, rows in zip(self.ks, self.cap_rows, strict=True):
            shares[k] = np.abs(dual[rows])
        multipliers = np.abs(dual[self.floor_rows]) if self.floor_rows else np.empty(0)
        return mixture / mixture.sum(), multipliers, shares


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
        defined = not self._welfare.needs_positive or (returns > 0).all()
        return float(self._welfare.value(returns)) if defined else -np.inf

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
            curvature = -self._curvature(z) / size
            hessian = (Z * curvature) @ Z.T + np.diag(barrier / mixture**2)
            # Newton's step in coordinates scaled by the mixture, which keeps the system well conditioned.
            M = hessian * np.outer(mixture, mixture)
            system = np.block([[M, mixture[:, None]], [mixture[None, :], np.zeros((1, 1))]])
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

    def _curvature(self, z: Float[np.ndarray, " D"]) -> Float[np.ndarray, " D"]:
        """The diagonal of the Hessian, by central differences of the gradient: these welfares are separable sums."""
        h = 1e-6 * (z if self._welfare.needs_positive else np.maximum(np.abs(z), 1e-3 * np.abs(z).max() + 1e-9))
        up, down = (np.asarray(self._welfare.gradient(z + sign * h)) for sign in (1, -1))
        return np.asarray((up - down) / (2 * h))
