"""How much average reward is lost by optimising a discounted one: the published bound, rigorous ones, and the truth.

π_γ maximises the welfare of the discounted returns, π_1 that of the average rewards. All bounds are on
GGF(μ(π_1)) − GGF(μ(π_γ)), μ(π) being the vector of average rewards. See docs/theory.md for proofs and counterexamples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float
from scipy.sparse import csgraph

from evenhand.errors import InputError
from evenhand.exact import chain
from evenhand.exact.momdp import MOMDP
from evenhand.exact.oracle import DiscountedOracle
from evenhand.exact.policies import Mixture, Policy, PolicyOfAPart, check_criterion, evaluated, visits_of
from evenhand.exact.solver import Solution, solve
from evenhand.welfare import GGF, Welfare
from evenhand.welfare import welfare as named_welfare

DENSE_STATES = 1_000  # bounds that need all eigenvalues or norms of an S × S matrix stop here
DISTINCT = 1e-8  # eigenvalues closer than this count as equal


@dataclass(frozen=True, eq=False)
class ErrorBound:
    """Bounds on the average welfare that a γ-optimal policy loses; None where one does not apply."""

    gamma: float
    true_gap: float
    """GGF(μ(π_1)) − GGF(μ(π_γ)), from both exact solutions."""
    published: float | None
    """Theorem 3.6 as printed: R̄(1−γ)(ρ(γ, σ(H_π1)) + ρ(γ, σ(H_πγ))), σ the spectral radius. It is no bound in
    general, even where its condition, `applicable`, holds: see docs/theory.md."""
    applicable: bool
    """Whether Theorem 3.6's condition holds: weakly communicating, and γ > σ/(σ + 1) for both policies."""
    corollary: float | None
    """Corollary 3.7 as printed, for one objective: the same with the Euclidean norm of the rewards."""
    rigorous: float
    """span(R)·(TV(π_1) + TV(π_γ)), plus what the two solutions fall short of their optima: for any model, any γ."""
    rigorous_inf: float | None
    """The same with TV ≤ ½(1−γ)ρ(γ, ‖H‖_∞), where γ > h/(1 + h): the form closest to the published one."""
    rigorous_2: float | None
    """The same with R̄₂(1−γ)ρ(γ, ‖H‖₂) per policy: the published bound with the norm in place of the spectral radius."""
    kakade: float | None
    """Theorem 3.4 (Kakade, 2001), for one objective, where P_π1 has distinct eigenvalues."""
    certificate: float
    """(1−γ) max_s V*_λ(s) − GGF(μ(π_γ)): needs no average-optimal policy, only the optimal weights λ."""
    discounted: Solution
    average: Solution


def error_bound(
    model: MOMDP,
    welfare: Welfare | str,
    gamma: float,
    *,
    average: Solution | None = None,
    tol: float = 1e-10,
    solve: Callable[..., Solution] = solve,
) -> ErrorBound:
    """All bounds for one model and one discount.

    welfare: a GGF, or its text; the theory is about those.
    average: the solution for the average reward, if it is known already from another discount.
    tol: as for `solve`, which is called for both criteria. Ctrl-C ends it all.
    solve: what to call in its place, such as one that shows how far it has come.
    """
    gamma = check_criterion(model, gamma, "discounted")
    welfare = named_welfare(welfare, model.D)
    if not isinstance(welfare, GGF):
        raise InputError(f"error bounds are for the GGF and its special cases, not for {welfare.name}.")
    if average is None:
        average = solve(model, welfare, criterion="average", tol=tol)
    discounted = solve(model, welfare, gamma=gamma, tol=tol)
    if "interrupted" in (average.status, discounted.status):
        raise KeyboardInterrupt

    seen = model.reachable
    part = model.restricted_to(seen)
    policies = [_restricted(solution.policy, seen) for solution in (average, discounted)]
    reached = float(welfare.value(evaluated(part, policies[1], 1.0).returns))
    # What the solutions themselves fall short of their optima.
    missed = (1 - gamma) * discounted.gap + average.gap
    span = float(part.reward_span.max())
    one_norm, two_norm = _reward_norm(part, 1), _reward_norm(part, 2)
    distance = sum(_total_variation(part, policy, gamma) for policy in policies)
    published = by_inf = by_two = kakade = None
    if part.S <= DENSE_STATES:
        by_inf = _sum_of_rho(part, policies, gamma, lambda P: float(np.linalg.norm(chain.deviation(P), np.inf)))
        by_two = _sum_of_rho(part, policies, gamma, lambda P: float(np.linalg.norm(chain.deviation(P), 2)))
        if not isinstance(policies[0], Mixture):  # the theorem is about stationary policies
            published = _sum_of_rho(part, policies, gamma, _spectral_radius)
            kakade = _kakade(part, policies[0], gamma) if part.D == 1 else None
    return ErrorBound(
        gamma=gamma,
        true_gap=average.welfare - reached,
        published=None if published is None else one_norm * (1 - gamma) * published,
        applicable=published is not None and part.end_components.number == 1,
        corollary=None if published is None or part.D > 1 else two_norm * (1 - gamma) * published,
        rigorous=span * distance + missed,
        rigorous_inf=None if by_inf is None else span * (1 - gamma) * by_inf / 2 + missed,
        rigorous_2=None if by_two is None else two_norm * (1 - gamma) * by_two + missed,
        kakade=kakade,
        certificate=DiscountedOracle(part, gamma).best_from_anywhere(discounted.weights, tol) - reached,
        discounted=discounted,
        average=average,
    )


def rho(gamma: float, size: float) -> float | None:
    """ρ(γ, σ) = σ/(γ − (1 − γ)σ), where γ > σ/(1 + σ): what is left of Σ_{n≥1} ((1−γ)/γ)^n σ^n, over 1 − γ."""
    return size / (gamma - (1 - gamma) * size) if gamma > size / (1 + size) else None


def _restricted(policy: Policy, states: Bool[np.ndarray, " S"]) -> PolicyOfAPart:
    if isinstance(policy, Mixture):
        return Mixture(policy.shares, policy.policies[:, states])
    return policy[states]


def _reward_norm(model: MOMDP, order: int) -> float:
    """max_π max_i ‖R_π,i‖ over the states; taking the largest reward in every state attains it."""
    return float(np.linalg.norm(np.abs(model.rewards).max(axis=1), order, axis=0).max())


def _total_variation(model: MOMDP, policy: Policy, gamma: float) -> float:
    """½‖x_γ − x_1‖₁: how much the discounted shares of time differ from those in the long run."""
    if isinstance(policy, Mixture):
        difference = visits_of(model, policy, gamma).staying - visits_of(model, policy, 1.0).staying
    else:
        P, _ = model.under(policy)
        difference = chain.discounted_occupation(P, model.initial, gamma) - chain.occupation(P, model.initial)
    return float(np.abs(difference).sum() / 2)


def _sum_of_rho(
    model: MOMDP, policies: list[Policy], gamma: float, size_of_deviation: Callable[[sp.csr_array], float]
) -> float | None:
    """Σ_π ρ(γ, size of H_π), a mixture's being the mean over its policies; None where the condition on γ fails."""
    total = 0.0
    for policy in policies:
        if isinstance(policy, Mixture):
            chains = (model.under_deterministic(actions) for actions in policy.policies)
            parts = list(zip(policy.shares.tolist(), chains, strict=True))
        else:
            parts = [(1.0, model.under(policy)[0])]
        for share, P in parts:
            term = rho(gamma, size_of_deviation(P))
            if term is None:
                return None
            total += share * term
    return total


def _spectral_radius(P: sp.csr_array) -> float:
    """The largest |eigenvalue| of H: 1/|1 − λ| for the eigenvalues λ of P, but 0 for the λ = 1 of each closed class.

    Eigenvalues are taken by strongly connected components: P is block triangular, and long walks, whose eigenvalues
    no method finds accurately in a full matrix, fall apart into single states.
    """
    closed, _ = chain.closed_classes(P)
    count, component = csgraph.connected_components(P, connection="strong")
    radius = 0.0
    for c in range(count):
        states = np.flatnonzero(component == c)
        distance = np.abs(1 - np.linalg.eigvals(P[states][:, states].toarray()))
        if closed[states[0]] >= 0:
            distance = np.delete(distance, np.argmin(distance))
        radius = max(radius, float((1 / distance).max(initial=0.0)))
    return radius


def _kakade(model: MOMDP, policy: Float[np.ndarray, "S A"], gamma: float) -> float | None:
    """κ₂(U)‖r‖(1 − γ)/(1 − γ|λ₂|), with U the unit eigenvectors of P_π1; None unless its eigenvalues are distinct."""
    P, rewards = model.under(policy)
    eigenvalues, U = np.linalg.eig(P.toarray())
    apart = np.abs(eigenvalues[:, None] - eigenvalues) + np.eye(len(eigenvalues))
    if apart.min() < DISTINCT:
        return None
    second = np.sort(np.abs(eigenvalues))[-2] if len(eigenvalues) > 1 else 0.0
    return float(np.linalg.cond(U) * np.linalg.norm(rewards) * (1 - gamma) / (1 - gamma * min(second, 1.0)))
