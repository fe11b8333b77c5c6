"""Policies of finite models: what they bring, and how to read one off the time spent in each state and action."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Integer

from evenhand.errors import InputError
from evenhand.exact import chain
from evenhand.exact.momdp import MOMDP

Criterion = Literal["discounted", "average"]
ROUNDING = 1e-12  # shares of time below this are taken as rounding


@dataclass(frozen=True, eq=False)
class Mixture:
    """Draw one of several deterministic stationary policies at the start, and follow it for ever."""

    shares: Float[np.ndarray, " K"]
    """The probability of each policy."""
    policies: Integer[np.ndarray, "K S"]
    """The action of each policy in each state."""


Policy = Float[np.ndarray, "S A"] | Mixture
PolicyOfAPart = Float[np.ndarray, "part A"] | Mixture
"""The same on some of the states of a model."""


class Evaluated(NamedTuple):
    """A policy, its returns, and a bound on the numerical error of each of them."""

    policy: Policy
    returns: Float[np.ndarray, " D"]
    error: float


class Visits(NamedTuple):
    """Where a policy, or a mixture of policies, spends its time, by state and action."""

    staying: Float[np.ndarray, "S A"]
    """The (discounted, or long-run) share of time."""
    passing: Float[np.ndarray, "S A"]
    """For the average reward: how often pairs are passed through on the way to where the policy stays."""


def evaluate(
    model: MOMDP, policy: Any, *, gamma: float | None = None, criterion: Criterion = "discounted"
) -> Float[np.ndarray, " D"]:
    """The vector of expected returns of a policy from the initial distribution, exactly.

    policy: `[S, A]` probabilities, `[S]` actions, or a `Mixture`.
    gamma: the discount, in [0, 1); criterion="average" takes none and gives the long-run average rewards.
    """
    gamma = check_criterion(model, gamma, criterion)
    return evaluated(model, check_policy(model, policy), gamma).returns


def check_criterion(model: Any, gamma: Any, criterion: Any) -> float:
    """The discount to compute with: 1 for the average reward."""
    if not isinstance(model, MOMDP):
        raise InputError(f"a model must be an evenhand MOMDP, not {type(model).__name__}.")
    if criterion not in ("discounted", "average"):
        raise InputError(f'criterion must be "discounted" or "average", not {criterion!r}.')
    if criterion == "average":
        if gamma is not None:
            raise InputError('the average reward has no discount: leave gamma out, or criterion="average".')
        return 1.0
    if gamma is None:
        raise InputError('discounted rewards need gamma, in [0, 1); or ask for criterion="average".')
    if isinstance(gamma, bool) or not isinstance(gamma, (int, float, np.integer, np.floating)) or not 0 <= gamma < 1:
        raise InputError(f'gamma must lie in [0, 1), not {gamma!r}; for no discount ask for criterion="average".')
    return float(gamma)


def check_policy(model: MOMDP, policy: Any) -> Policy:
    """Refuse what is no policy of the model; actions by number become probabilities."""
    if isinstance(policy, Mixture):
        shares, actions = _array(policy.shares), _array(policy.policies)
        if shares.ndim != 1 or actions.shape != (len(shares), model.S):
            raise InputError(f"a mixture of K policies needs K shares and policies of shape [K, {model.S}].")
        if shares.dtype.kind not in "fiu" or not ((shares >= 0).all() and abs(shares.sum() - 1) <= 1e-6):
            raise InputError("the shares of a mixture must be non-negative and sum to one.")
        _check_actions(actions, model)
        return Mixture(shares.astype(np.float64), actions)
    array = _array(policy)
    if array.shape == (model.S,) and array.dtype.kind in "iu":
        _check_actions(array, model)
        return np.eye(model.A)[array]
    if array.shape != (model.S, model.A) or array.dtype.kind not in "fiu":
        raise InputError(
            f"a policy must be [S, A] = {(model.S, model.A)} probabilities or [S] whole numbers, "
            f"not {array.dtype} of shape {array.shape}."
        )
    array = array.astype(np.float64)
    possible = (array >= 0) & (array <= 2)  # more is wrong, and might overflow
    wrong = ~possible.all(axis=1) | (np.abs(np.where(possible, array, 0.0).sum(axis=1) - 1) > 1e-6)
    if wrong.any():
        state = int(np.argmax(wrong))
        raise InputError(f"the policy's row for state {state} is no probability distribution: {array[state]}.")
    return np.asarray(array / array.sum(axis=1, keepdims=True))


def _array(value: Any) -> np.ndarray:
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        return np.empty((), dtype=object)


def _check_actions(actions: np.ndarray, model: MOMDP) -> None:
    if actions.dtype.kind not in "iu" or actions.min() < 0 or actions.max() >= model.A:
        raise InputError(f"actions must be whole numbers from 0 to {model.A - 1}.")


def evaluated(model: MOMDP, policy: Policy, gamma: float) -> Evaluated:
    """The returns of a checked policy; γ = 1 means the average reward."""
    if isinstance(policy, Mixture):
        parts = [evaluated(model, np.eye(model.A)[actions], gamma) for actions in policy.policies]
        shares = policy.shares / policy.shares.sum()
        returns = shares @ np.array([part.returns for part in parts])
        return Evaluated(policy, returns, float(shares @ np.array([part.error for part in parts])))
    P, rewards = model.under(policy)
    if gamma == 1:
        x = chain.occupation(P, model.initial)
        return Evaluated(policy, x @ rewards, 0.0)
    x = chain.discounted_occupation(P, model.initial, gamma)
    scale = 1 / (1 - gamma)
    # The true x differs by residual·(I − γP)⁻¹, whose sum of absolute values is at most 1/(1 − γ) times as large.
    residual = np.abs((1 - gamma) * model.initial + gamma * (x @ P) - x).sum()
    largest = float(np.abs(rewards).max())
    return Evaluated(policy, x @ rewards * scale, float(residual) * largest * scale**2)


def visits_of(model: MOMDP, mixture: Mixture, gamma: float) -> Visits:
    """The time that a mixture spends in each state and action."""
    staying, passing = np.zeros((2, model.S, model.A))
    every = np.arange(model.S)
    for share, actions in zip(mixture.shares, mixture.policies, strict=True):
        P = model.under_deterministic(actions)
        if gamma == 1:
            staying[every, actions] += share * chain.occupation(P, model.initial)
            passing[every, actions] += share * chain.transient_visits(P, model.initial)
        else:
            staying[every, actions] += share * chain.discounted_occupation(P, model.initial, gamma)
    return Visits(staying, passing)


def candidates(
    model: MOMDP, visits: Visits, elsewhere: Integer[np.ndarray, " S"], gamma: float, loss: float
) -> Iterator[Float[np.ndarray, "S A"]]:
    """Stationary policies that spend their time as asked for, the most natural one first.

    Where no time is spent, they follow the policy `elsewhere`.

    For discounted rewards π(a|s) = x(s, a)/x(s) always does. For the average reward it need not: what stays in a state
    and what passes through it may want different actions, and parts of the model may come apart. Then the second
    candidate walks at random inside each end component, for a share `loss` of the time, which joins the parts.
    """
    unseen = np.eye(model.A)[elsewhere]
    natural = _proportional(visits.staying, _proportional(visits.passing, unseen))
    yield natural
    if gamma < 1:
        return
    labels, allowed, count = model.end_components
    walking = _proportional(allowed.astype(float), unseen)
    inside = labels >= 0
    mass = np.bincount(labels[inside], visits.staying.sum(axis=1)[inside], count)
    P, _ = model.under(walking)
    anywhere = np.zeros(model.S)
    for component in np.flatnonzero(mass > ROUNDING):
        states = np.flatnonzero(labels == component)
        anywhere[states] = mass[component] * chain.stationary_of_class(P[states][:, states])
    yield _proportional((1 - loss) * visits.staying + loss * anywhere[:, None] * walking, natural)


def _proportional(visits: Float[np.ndarray, "S A"], otherwise: Float[np.ndarray, "S A"]) -> Float[np.ndarray, "S A"]:
    """visits(s, a)/visits(s) where the state is visited at all."""
    total = visits.sum(axis=1, keepdims=True)
    seen = total > ROUNDING * max(1.0, float(total.max()))
    return np.where(seen, visits / np.where(seen, total, 1.0), otherwise)
