"""The fair optimum of a finite model, with a certificate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from evenhand.errors import IllConditioned, Infeasible, InputError
from evenhand.exact.columns import ColumnGeneration, Report
from evenhand.exact.equivalent import EqualEquivalent
from evenhand.exact.lp import solve_ggf_program
from evenhand.exact.momdp import MOMDP
from evenhand.exact.oracle import AverageOracle, DiscountedOracle, Oracle
from evenhand.exact.policies import (
    Criterion,
    Evaluated,
    Mixture,
    Policy,
    PolicyOfAPart,
    Visits,
    candidates,
    check_criterion,
    evaluated,
    visits_of,
)
from evenhand.exact.proofs import ROUNDING, Ceiling, Proof, value_of
from evenhand.welfare import GGF, AlphaFair, Leximin, Nash, Utilitarian, Welfare
from evenhand.welfare import welfare as named_welfare

LP_PAIRS = 400  # measured: with fewer pairs of state and action the whole linear program is the quickest way


@dataclass(frozen=True, eq=False)
class Solution:
    """A fair policy, what it brings, and how far from the optimum it can be at most."""

    policy: Policy
    """`[S, A]` probabilities of the actions in each state; or a `Mixture`, where no stationary policy is optimal."""
    returns: Float[np.ndarray, " D"]
    """Expected discounted return, or average reward, of each user."""
    welfare: float
    """The welfare of the returns."""
    gap: float
    """Proven: no policy whatsoever has a welfare above `welfare + gap`. For leximin, which is no single number: for
    every k, no policy whose sums of the 1, …, k − 1 smallest returns reach those of this one has a sum of the k
    smallest returns that is larger by more than k times the gap."""
    weights: Float[np.ndarray, " D"]
    """What one more unit of return of each user would be worth, at the optimum."""
    status: Literal["optimal", "interrupted", "stalled"]
    """Stalled: rounding did not allow to close the gap to the tolerance asked for."""
    method: Literal["lp", "columns"]
    queries: int
    """How many scalar models were solved."""
    seconds: float
    note: str
    """In plain words, what a reader should know about this answer; mostly empty."""


class Convergence(NamedTuple):
    """How far a search has come, in the units that it computes in."""

    reached: float
    bound: float
    goal: float
    """The gap between the two at which it ends."""


Watch = Callable[[Convergence], None]


class _Found(NamedTuple):
    best: Evaluated
    proof: Proof
    weights: Float[np.ndarray, " D"]
    method: Literal["lp", "columns"]
    queries: int
    interrupted: bool

    @property
    def gap(self) -> float:
        return self.proof.gap(self.best.returns, self.best.error)


def solve(
    model: MOMDP,
    welfare: Welfare | str,
    *,
    gamma: float | None = None,
    criterion: Criterion = "discounted",
    tol: float = 1e-8,
    method: Literal["auto", "lp", "columns"] = "auto",
    report: Report | None = None,
    watch: Watch | None = None,
) -> Solution:
    """Find a policy that maximises the welfare of the vector of expected returns, with a bound on the gap.

    welfare: a welfare function, or its text, such as "ggf" or "nash".
    gamma: the discount, in [0, 1), for the discounted criterion; criterion="average" takes none.
    tol: stop when the gap is below this share of the widest difference that returns can have, span(R)/(1 − γ).
    method: "lp" solves one linear program, "columns" generates columns; "auto" decides by the size of the model.
    report: called after each query with the welfare reached, its upper bound and the number of queries.
    watch: called before that with how far the search has come; it may raise KeyboardInterrupt.

    Ctrl-C ends the search and returns the best policy so far with its gap.
    """
    began = time.perf_counter()
    gamma = check_criterion(model, gamma, criterion)
    welfare = named_welfare(welfare, model.D)
    if isinstance(welfare, AlphaFair) and welfare.alpha == 0:
        welfare = Utilitarian(model.D)  # which is linear, and takes any returns
    if isinstance(tol, bool) or not isinstance(tol, (int, float, np.number)) or not tol > 0:
        raise InputError(f"tol must be positive, not {tol!r}.")
    if method not in ("auto", "lp", "columns"):
        raise InputError(f'method must be "auto", "lp" or "columns", not {method!r}.')
    if method == "lp" and not isinstance(welfare, GGF):
        raise InputError(f'{welfare.name} is not one linear program; use method="columns".')
    part = model.restricted_to(model.reachable)
    objective = _objective(welfare)
    size = _size(part, objective)
    if size != 1:
        part = MOMDP.from_interleaved(part.transitions, part.rewards / size, part.initial)
    oracle: Oracle = AverageOracle(part) if gamma == 1 else DiscountedOracle(part, gamma)
    # Where rewards hardly differ, their size says what rounding allows.
    widest = max(float(part.reward_span.max()), 1e-3 * float(np.abs(part.rewards).max()), 1e-300)
    goal = tol * widest * oracle.scale
    in_welfare = report and _in_welfare(report, objective, size)

    def told(reached: float, bound: float, queries: int) -> None:
        if watch is not None:
            watch(Convergence(reached, bound, goal))
        if in_welfare is not None:
            in_welfare(reached, bound, queries)

    found = None
    if isinstance(objective, GGF) and (method == "lp" or (method == "auto" and part.S * part.A <= LP_PAIRS)):
        found = _by_program(oracle, objective, gamma, goal)
    if found is None or (method == "auto" and found.gap > goal):
        found = _by_columns(oracle, objective, gamma, goal, told)
    closed = found.gap <= goal * found.proof.unit
    status: Literal["optimal", "interrupted", "stalled"] = "interrupted" if found.interrupted else "stalled"
    answer = _in_units(found, welfare, objective, size)
    return Solution(
        policy=_on_all_states(found.best.policy, model),
        returns=answer.returns,
        welfare=answer.welfare,
        gap=answer.gap,
        weights=answer.weights,
        status="optimal" if closed else status,
        method=found.method,
        queries=found.queries,
        seconds=time.perf_counter() - began,
        note=" ".join(filter(None, (_note(found, closed, gamma), answer.note))),
    )


def _objective(welfare: Welfare) -> Welfare:
    """What is maximised for a welfare: the same, or what orders returns alike and computes better."""
    if isinstance(welfare, Nash):
        return EqualEquivalent(welfare.D, 1.0)
    return EqualEquivalent(welfare.D, float(welfare.alpha)) if isinstance(welfare, AlphaFair) else welfare


def _size(model: MOMDP, objective: Welfare) -> float:
    """The unit to count rewards in: 1, or, where products and tolerances would leave the range of doubles, a power of
    two near their size, which changes no digit. A welfare of a person's own need not allow for that."""
    largest = float(np.abs(model.rewards).max())
    if not isinstance(objective, (GGF, Leximin, EqualEquivalent)) or largest == 0 or 1e-100 < largest < 1e100:
        return 1.0
    return float(np.exp2(np.floor(np.log2(largest))))


def _in_welfare(report: Report, objective: Welfare, size: float) -> Report:
    """The report that a person asked for, told the welfare and its bound in their own units."""

    def told(reached: float, bound: float, queries: int) -> None:
        reached, bound = reached * size, bound * size
        if isinstance(objective, EqualEquivalent):
            reached, bound = (objective.welfare(x) if x > 0 else -np.inf for x in (reached, bound))
        report(reached, bound, queries)

    return told


class _InUnits(NamedTuple):
    returns: Float[np.ndarray, " D"]
    welfare: float
    gap: float
    weights: Float[np.ndarray, " D"]
    note: str = ""


def _in_units(found: _Found, welfare: Welfare, objective: Welfare, size: float) -> _InUnits:
    """What was found, in the person's own units of reward and of welfare."""
    returns, gap = found.best.returns * size, found.gap * size
    value = value_of(welfare, returns)
    if welfare.needs_positive and returns.min() <= 0:  # what looked positive while searching was rounding
        raise Infeasible(
            f"the welfare {welfare.name} needs positive returns for all {welfare.D} users, but no policy was found "
            "that gives the worst-off user anything: shift the rewards or choose another welfare."
        )
    if not isinstance(objective, EqualEquivalent):
        return _InUnits(returns, value, gap, found.weights)
    level = float(objective.value(found.best.returns)) * size
    weights = objective.welfare_weights(level, found.weights)
    if np.isfinite(value) and abs(value) > np.finfo(float).tiny:
        in_welfare = objective.welfare_gain(level, gap) + ROUNDING * abs(value)
        return _InUnits(returns, value, in_welfare, weights)
    note = (
        f"The welfare {welfare.name} of these returns is too {'small' if np.isfinite(value) else 'large'} a number for "
        f"double precision. It is as good as {level:.6g} for everyone, which no policy exceeds by more than {gap:.1e}."
    )
    return _InUnits(returns, value, 5e-324 if np.isfinite(value) else np.inf, weights, note)


def _by_program(oracle: Oracle, welfare: GGF, gamma: float, goal: float) -> _Found | None:
    """One linear program; its own tolerances are not trusted, but its weights and its policy are both checked."""
    model = oracle.model
    answer = solve_ggf_program(model, welfare.weights, gamma)
    if answer is None:
        return None
    elsewhere, upper, _ = oracle.best_response(answer.weights, 0.1 * goal)
    proof = Ceiling(welfare, upper, answer.weights)
    visits = Visits(answer.staying, answer.passing)
    best = _read_off(model, visits, elsewhere, proof, gamma, goal)
    return _Found(best, proof, answer.weights, "lp", 1, False)


def _by_columns(oracle: Oracle, welfare: Welfare, gamma: float, goal: float, report: Report) -> _Found:
    generation = ColumnGeneration(oracle, 0.5 * goal, report)  # half is left for reading off a stationary policy
    answer = generation.maximise(welfare)
    used, proof = np.flatnonzero(answer.shares), answer.proof
    mixture = Mixture(answer.shares[used], np.array([generation.policies[k] for k in used]))
    if len(used) == 1:  # nothing to read off: it is stationary already
        best = evaluated(oracle.model, np.eye(oracle.model.A)[mixture.policies[0]], gamma)
    else:
        goal = goal * proof.unit
        visits, elsewhere = visits_of(oracle.model, mixture, gamma), generation.policies[-1]
        best = _read_off(oracle.model, visits, elsewhere, proof, gamma, goal)
        if gamma == 1 and proof.gap(best.returns) > goal:
            best = min(best, evaluated(oracle.model, mixture, gamma), key=lambda found: proof.gap(found.returns))
    return _Found(best, proof, answer.weights, "columns", generation.queries, generation.interrupted)


def _read_off(
    model: MOMDP, visits: Visits, elsewhere: Integer[np.ndarray, " S"], proof: Proof, gamma: float, goal: float
) -> Evaluated:
    """The first stationary policy that is good enough, or else the best."""
    best: Evaluated | None = None
    refusal: IllConditioned | None = None
    loss = 0.25 * goal / max(float(model.reward_span.max()), 1e-300)
    for policy in candidates(model, visits, elsewhere, gamma, min(loss, 0.5)):
        try:
            candidate = evaluated(model, policy, gamma)
        except IllConditioned as error:  # another candidate may still be possible to evaluate
            refusal = error
            continue
        if best is None or proof.gap(candidate.returns) < proof.gap(best.returns):
            best = candidate
        if proof.gap(best.returns) <= goal:
            break
    if best is None:
        raise refusal or IllConditioned("No policy of this model could be evaluated.")
    return best


def _on_all_states(policy: PolicyOfAPart, model: MOMDP) -> Policy:
    """The policy of the reachable part, with any action where no policy ever comes."""
    if isinstance(policy, Mixture):
        everywhere = np.zeros((len(policy.shares), model.S), dtype=policy.policies.dtype)
        everywhere[:, model.reachable] = policy.policies
        return Mixture(policy.shares, everywhere)
    anywhere = np.full((model.S, model.A), 1 / model.A)
    anywhere[model.reachable] = policy
    return anywhere


def _note(found: _Found, closed: bool, gamma: float) -> str:
    policy = found.best.policy
    if not isinstance(policy, Mixture):
        if found.method == "lp" and gamma == 1 and not closed:
            return (
                "The linear program gives no stationary policy that reaches its optimum, and in the long run perhaps "
                'none does; method="columns" finds a mixture of policies that does.'
            )
        return ""
    return (
        f"This is a mixture: draw one of {len(policy.shares)} policies by its share at the start, and keep to it; "
        "returns are expectations over that draw. In the long run a stationary policy as good need not exist, "
        "as some state may have to be left for good in a part of the runs and kept in the others; none was found."
    )
