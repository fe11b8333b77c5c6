"""The fair optimum of a finite model, with a certificate."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from evenhand.errors import IllConditioned, InputError
from evenhand.exact.columns import ColumnGeneration, Report
from evenhand.exact.lp import solve_ggf_program
from evenhand.exact.model import MOMDP
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
from evenhand.progress import Progress
from evenhand.welfare import GGF, AlphaFair, Leximin, Utilitarian, Welfare
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
    """Proven: no policy whatsoever has a welfare above `welfare + gap`. For leximin, which is no single number: the
    sum of the k smallest returns is within k times the gap of the best there is, given the smaller sums, for all k."""
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


class _Found(NamedTuple):
    best: Evaluated
    upper: float
    weights: Float[np.ndarray, " D"]
    method: Literal["lp", "columns"]
    queries: int
    interrupted: bool


def solve(
    model: MOMDP,
    welfare: Welfare | str,
    *,
    gamma: float | None = None,
    criterion: Criterion = "discounted",
    tol: float = 1e-8,
    method: Literal["auto", "lp", "columns"] = "auto",
    progress: bool | None = None,
    report: Report | None = None,
) -> Solution:
    """Find a policy that maximises the welfare of the vector of expected returns, with a bound on the gap.

    welfare: a welfare function, or its text, such as "ggf" or "nash".
    gamma: the discount, in [0, 1), for the discounted criterion; criterion="average" takes none.
    tol: stop when the gap is below this share of the widest difference that returns can have, span(R)/(1 − γ).
    method: "lp" solves one linear program, "columns" generates columns; "auto" decides by the size of the model.
    progress: show a bar with the closing gap; None means: on a terminal, if it takes more than a moment.
    report: called after each query with the welfare reached, its upper bound and the number of queries.

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
    oracle: Oracle = AverageOracle(part) if gamma == 1 else DiscountedOracle(part, gamma)
    # Where rewards hardly differ, their size says what rounding allows.
    widest = max(float(part.reward_span.max()), 1e-3 * float(np.abs(part.rewards).max()), 1e-300)
    goal = tol * widest * oracle.scale
    found = None
    with Progress(goal, progress, report) as watcher:
        if isinstance(welfare, GGF) and (method == "lp" or (method == "auto" and part.S * part.A <= LP_PAIRS)):
            found = _by_program(oracle, welfare, gamma, goal)
        if found is None or (method == "auto" and _gap(found, welfare) > goal):
            found = _by_columns(oracle, welfare, gamma, goal, watcher.report)
    gap = _gap(found, welfare)
    closed = gap <= goal * _unit(found.weights, welfare)
    status: Literal["optimal", "interrupted", "stalled"] = "interrupted" if found.interrupted else "stalled"
    return Solution(
        policy=_on_all_states(found.best.policy, model),
        returns=found.best.returns,
        welfare=_value(welfare, found.best.returns),
        gap=gap,
        weights=found.weights,
        status="optimal" if closed else status,
        method=found.method,
        queries=found.queries,
        seconds=time.perf_counter() - began,
        note=_note(found, closed, gamma),
    )


def _by_program(oracle: Oracle, welfare: GGF, gamma: float, goal: float) -> _Found | None:
    """One linear program; its own tolerances are not trusted, but its weights and its policy are both checked."""
    model = oracle.model
    answer = solve_ggf_program(model, welfare.weights, gamma)
    if answer is None:
        return None
    elsewhere, upper = oracle.best_response(answer.weights, 0.1 * goal)
    visits = Visits(answer.staying, answer.passing)
    best = _read_off(model, visits, elsewhere, welfare, gamma, upper, goal)
    return _Found(best, upper, answer.weights, "lp", 1, False)


def _by_columns(oracle: Oracle, welfare: Welfare, gamma: float, goal: float, report: Report) -> _Found:
    generation = ColumnGeneration(oracle, 0.5 * goal, report)  # half is left for reading off a stationary policy
    mix = generation.maximise(welfare)
    used = np.flatnonzero(mix.shares)
    mixture = Mixture(mix.shares[used], np.array([generation.policies[k] for k in used]))
    if len(used) == 1:  # nothing to read off: it is stationary already
        best = evaluated(oracle.model, np.eye(oracle.model.A)[mixture.policies[0]], gamma)
        return _Found(best, mix.upper, mix.cut.weights, "columns", generation.queries, generation.interrupted)
    goal = goal * _unit(mix.cut.weights, welfare)
    visits, elsewhere = visits_of(oracle.model, mixture, gamma), generation.policies[-1]
    best = _read_off(oracle.model, visits, elsewhere, welfare, gamma, mix.upper, goal)
    if gamma == 1 and mix.upper - _value(welfare, best.returns) > goal:
        as_drawn = evaluated(oracle.model, mixture, gamma)
        best = max(best, as_drawn, key=lambda candidate: _value(welfare, candidate.returns))
    return _Found(best, mix.upper, mix.cut.weights, "columns", generation.queries, generation.interrupted)


def _read_off(
    model: MOMDP,
    visits: Visits,
    elsewhere: Integer[np.ndarray, " S"],
    welfare: Welfare,
    gamma: float,
    upper: float,
    goal: float,
) -> Evaluated:
    """The first stationary policy that is good enough, or else the best."""
    best: Evaluated | None = None
    refusal: IllConditioned | None = None
    value = -np.inf
    loss = 0.25 * goal / max(float(model.reward_span.max()), 1e-300)
    for policy in candidates(model, visits, elsewhere, gamma, min(loss, 0.5)):
        try:
            candidate = evaluated(model, policy, gamma)
        except IllConditioned as error:  # another candidate may still be possible to evaluate
            refusal = error
            continue
        worth = _value(welfare, candidate.returns)
        if best is None or worth > value:
            best, value = candidate, worth
        if upper - value <= goal:
            break
    if best is None:
        raise refusal or IllConditioned("No policy of this model could be evaluated.")
    return best


def _gap(found: _Found, welfare: Welfare) -> float:
    """What is left between the bound and the policy, with what numerical errors in its returns may add."""
    # A bound that is below what was reached is wrong by that much, and says so.
    between = abs(found.upper - _value(welfare, found.best.returns))
    return float(between + found.best.error * _unit(found.weights, welfare))


def _unit(weights: Float[np.ndarray, " D"], welfare: Welfare) -> float:
    """How much the welfare changes at most if all returns change by one."""
    return 1.0 if isinstance(welfare, (GGF, Leximin)) else float(weights.sum())


def _value(welfare: Welfare, returns: Float[np.ndarray, " D"]) -> float:
    if welfare.needs_positive and returns.min() <= 0:
        return -np.inf
    return float(welfare.value(returns))


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
