"""The whole problem as one linear program: best for small models, and the yardstick for everything else.

Variables are the occupation measure x(s, a), the (discounted) share of time spent in s taking a, for the average
reward also y(s, a), how the policy gets from where it starts to where it stays, and the few that express the GGF of
the returns z = x·R (see `master.OrderedMaster`).

    discounted:  Σ_a x(s, a) − γ Σ P x = (1 − γ) d0(s)
    average:     Σ_a x(s, a) − Σ P x = 0   and   Σ_a x(s, a) + Σ_a y(s, a) − Σ P y = d0(s)
"""

from __future__ import annotations

from typing import Any, NamedTuple

import highspy
import numpy as np
import scipy.sparse as sp
from jaxtyping import Float

from evenhand.exact.master import FEASIBILITY, capped_simplex
from evenhand.exact.momdp import MOMDP


class Occupation(NamedTuple):
    """An optimal solution: where the time goes, and the weights of the objectives that prove it."""

    staying: Float[np.ndarray, "S A"]
    passing: Float[np.ndarray, "S A"]
    """How often each pair is passed through on the way; 0 for discounted rewards."""
    weights: Float[np.ndarray, " D"]
    value: float
    """The optimum in units of reward: (1 − γ) times the GGF of the returns, or the GGF of the averages."""


def reward_units(model: MOMDP) -> tuple[float, float]:
    """The program counts rewards as (R − low)/size, from 0 to 1: HiGHS's tolerances are absolute."""
    low = float(model.rewards.min())
    return low, float(model.rewards.max()) - low or 1.0


def ggf_program(model: MOMDP, ggf_weights: Float[np.ndarray, " D"], gamma: float) -> highspy.HighsLp:
    """The linear program in HiGHS's form, in `reward_units`; γ = 1 means the average reward."""
    S, A, D = model.S, model.A, model.D
    n, K = S * A, D - 1  # the sum of all D components needs no variables of its own
    average = gamma == 1
    flow_out = sp.kron(sp.eye_array(S), np.ones((1, A)), format="csr")
    balance = sp.csr_array(flow_out - gamma * model.transitions.T)
    low, size = reward_units(model)
    returns = sp.csr_array(((model.rewards.reshape(n, D) - low) / size).T)
    steps = ggf_weights - np.append(ggf_weights[1:], 0)
    # The variables of the GGF in the order z (D), t (K), d (K·D); the last rows are d_ik − t_k + z_i ≥ 0.
    ggf_cost = np.concatenate([np.full(D, steps[-1]), steps[:K] * np.arange(1, D), -np.repeat(steps[:K], D)])
    wide = [None] if average else []
    rows: list[list[Any]] = [[balance, *wide, None], [-returns, *wide, sp.eye_array(D, len(ggf_cost))]]
    if average:
        rows.insert(1, [flow_out, balance, None])
    if K:
        z, t = sp.kron(np.ones((K, 1)), sp.eye_array(D)), sp.kron(sp.eye_array(K), np.ones((D, 1)))
        rows.append([None, *wide, sp.hstack([z, -t, sp.eye_array(K * D)])])
    matrix = sp.csc_array(sp.block_array(rows))
    starts = [np.zeros(S), model.initial] if average else [(1 - gamma) * model.initial]
    equalities = np.concatenate([*starts, np.zeros(D)])
    occupations = len(starts) * n
    inf = highspy.kHighsInf

    lp = highspy.HighsLp()
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.num_col_, lp.num_row_ = matrix.shape[1], matrix.shape[0]
    lp.col_cost_ = np.concatenate([np.zeros(occupations), ggf_cost])
    lp.col_lower_ = np.concatenate([np.zeros(occupations), np.full(D + K, -inf), np.zeros(K * D)])
    lp.col_upper_ = np.full(matrix.shape[1], inf)
    lp.row_lower_ = np.concatenate([equalities, np.zeros(K * D)])
    lp.row_upper_ = np.concatenate([equalities, np.full(K * D, inf)])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = matrix.indptr, matrix.indices, matrix.data
    return lp


def solve_ggf_program(
    model: MOMDP,
    ggf_weights: Float[np.ndarray, " D"],
    gamma: float,
    solver: str = "simplex",
    crossover: bool = True,
) -> Occupation | None:
    """Solve it; None if HiGHS gives up. Whoever needs a proof checks the answer: HiGHS works to tolerances."""
    D = model.D
    highs = highspy.Highs()
    highs.silent()
    highs.setOptionValue("solver", solver)
    highs.setOptionValue("run_crossover", "on" if crossover else "off")
    highs.setOptionValue("primal_feasibility_tolerance", FEASIBILITY)
    highs.setOptionValue("dual_feasibility_tolerance", FEASIBILITY)
    highs.passModel(ggf_program(model, ggf_weights, gamma))
    highs.run()
    solution = highs.getSolution()
    # Interior point without crossover may end as "unknown" with a fine solution.
    good = (highspy.HighsModelStatus.kOptimal, highspy.HighsModelStatus.kUnknown)
    if highs.getModelStatus() not in good or not solution.value_valid or not solution.dual_valid:
        return None
    x = np.maximum(np.array(solution.col_value), 0.0)
    n = model.S * model.A
    average = gamma == 1
    duals = np.abs(np.array(solution.row_dual)[-(D - 1) * D :]).reshape(D - 1, D) if D > 1 else np.empty((0, 1))
    steps = ggf_weights - np.append(ggf_weights[1:], 0)
    weights = np.full(D, steps[-1])
    for k in np.flatnonzero(steps[:-1]):
        weights += steps[k] * capped_simplex(duals[k] / steps[k], int(k) + 1)
    low, size = reward_units(model)
    return Occupation(
        x[:n].reshape(model.S, model.A),
        x[n : 2 * n].reshape(model.S, model.A) if average else np.zeros((model.S, model.A)),
        weights,
        low + size * float(highs.getObjectiveValue()),
    )
