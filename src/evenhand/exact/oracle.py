"""The best response to given weights of the objectives: what column generation asks for, again and again.

An oracle turns weights λ into an almost optimal deterministic policy of the scalar model with rewards λ·R, and into
an upper bound on λ·returns that holds for every policy, stationary or not.
"""

from __future__ import annotations

from itertools import count
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csgraph

from evenhand.exact.chain import discounted_occupation, occupation
from evenhand.exact.linear import CHECK, DAMPING, lu_price, solve_linear, sweeps_to_go
from evenhand.exact.momdp import MOMDP
from evenhand.exact.scalar import ScalarSolver


class Response(NamedTuple):
    """A policy, one action per state, and a bound that no policy can beat."""

    policy: Integer[np.ndarray, " S"]
    upper: float
    blur: float
    """How much of the bound may be due to the search for the policy, which rounding can end early."""


@runtime_checkable
class Oracle(Protocol):
    """What column generation needs to know of a model and a criterion."""

    model: MOMDP
    scale: float
    """Returns per unit of reward: 1/(1 − γ), or 1 for the average."""

    def best_response(self, weights: Float[np.ndarray, " D"], tol: float) -> Response:
        """A policy that is best for λ·R up to `tol` (in returns), and a bound that holds for all policies."""

    def returns(self, policy: Integer[np.ndarray, " S"], tol: float) -> Float[np.ndarray, " D"]:
        """The vector of returns of a policy, each right to about `tol`: good enough to go on with, not to prove."""


class DiscountedOracle:
    """Best responses for discounted rewards."""

    def __init__(self, model: MOMDP, gamma: float) -> None:
        self.model, self.gamma, self.scale = model, gamma, 1 / (1 - gamma)
        self._solver = ScalarSolver(model.transitions, model.initial, gamma)
        self._last_occupation = model.initial

    def best_response(self, weights: Float[np.ndarray, " D"], tol: float) -> Response:
        """See `Oracle`."""
        reward = self.model.rewards.reshape(-1, self.model.D) @ weights
        policy, bounds = self._solver.solve(reward, tol / self.scale)
        return Response(policy, float(bounds.upper[0]) * self.scale, bounds.width * self.scale)

    def best_from_anywhere(self, weights: Float[np.ndarray, " D"], tol: float) -> float:
        """A bound on (1 − γ) max_s V*(s) for the rewards λ·R, in units of reward."""
        reward = self.model.rewards.reshape(-1, self.model.D) @ weights
        self._solver.solve(reward, tol)
        return self._solver.highest_value(reward)

    def returns(self, policy: Integer[np.ndarray, " S"], tol: float) -> Float[np.ndarray, " D"]:
        """See `Oracle`."""
        P, rewards = _chain_of(self.model, policy)
        enough = _tolerance(rewards, tol / self.scale)
        x = _occupation_by_sweeps(P, self.model.initial, self.gamma, enough, start=self._last_occupation)
        if x is None and self._solver.can_factorise:
            x = self._solver.occupation(policy, P)
        elif x is None:
            x = discounted_occupation(P, self.model.initial, self.gamma)
        self._last_occupation = x
        return np.asarray(x @ rewards) * self.scale


class AverageOracle:
    """Best responses for the long-run average reward, on any model, multichain ones too.

    Every policy ends in one of the end components, in each of which the best gain is the same from all states. So:
    solve the components, then choose where to end: a problem without cycles on the model in which each component
    is a single node that may be left by the actions that lead out of it.
    """

    scale = 1.0

    def __init__(self, model: MOMDP) -> None:
        self.model = model
        self.components = components = model.end_components
        self._inside = np.flatnonzero(components.labels >= 0)
        labels, allowed = components.labels[self._inside], components.allowed[self._inside]
        self._rows = (self._inside[:, None] * model.A + np.arange(model.A)).ravel()
        within = model.transitions[self._rows][:, self._inside]
        self._solver = ScalarSolver(
            within,
            np.zeros(len(labels)),
            1.0,
            allowed=None if allowed.all() else allowed,
            groups=None if components.number == 1 else labels,
        )
        self._where_to_end = None if components.number == 1 else _Destination(model)

    def best_response(self, weights: Float[np.ndarray, " D"], tol: float) -> Response:
        """See `Oracle`."""
        reward = self.model.rewards.reshape(-1, self.model.D) @ weights
        policy = np.zeros(self.model.S, dtype=np.intp)
        policy[self._inside], bounds = self._solver.solve(reward[self._rows], tol)
        if self._where_to_end is None:
            return Response(policy, float(bounds.upper[0]), bounds.width)
        return Response(*self._where_to_end.choose(bounds.upper, policy), bounds.width)

    def returns(self, policy: Integer[np.ndarray, " S"], tol: float) -> Float[np.ndarray, " D"]:
        """See `Oracle`."""
        P, rewards = _chain_of(self.model, policy)
        x = _occupation_by_sweeps(P, self.model.initial, 1.0, _tolerance(rewards, tol), start=self.model.initial)
        if x is None:
            x = occupation(P, self.model.initial)
        return np.asarray(x @ rewards)


def _chain_of(model: MOMDP, policy: Integer[np.ndarray, " S"]) -> tuple[sp.csr_array, Float[np.ndarray, "S D"]]:
    return model.under_deterministic(policy), model.rewards[np.arange(model.S), policy]


def _tolerance(rewards: Float[np.ndarray, "S D"], tol: float) -> float:
    """How far shares of time may be off, in sum, for average rewards to be right to `tol`."""
    return 2 * tol / max(float((rewards.max(axis=0) - rewards.min(axis=0)).max()), 1e-300)


def _occupation_by_sweeps(
    P: sp.csr_array, initial: Float[np.ndarray, " S"], gamma: float, tol: float, start: Float[np.ndarray, " S"]
) -> Float[np.ndarray, " S"] | None:
    """The (discounted) shares of time, from x ← (1 − γ) d0 + γ x P; None if a direct solution would be quicker.

    Every step keeps the mass of x at one, so errors shrink as fast as the chain mixes, whatever γ. Damped, and begun at
    d0, the same sweeps find the long-run shares of any chain, also of periodic and multichain ones.
    """
    x, source, backwards = start, (1 - gamma) * initial, P.T
    before = np.inf
    for sweep in count(1):
        step = source + gamma * (backwards @ x) - x
        x = x + (step if gamma < 1 else DAMPING * step)
        if sweep % CHECK:
            continue
        change = float(np.abs(step).sum())
        if change <= 1e-15:
            return x
        if sweep > CHECK:
            rate = (change / before) ** (1 / CHECK)
            if change * rate <= tol * (1 - rate):
                return x
            if sweeps_to_go(before, change, tol * (1 - rate)) > lu_price(len(x)):
                return None
        before = change
    raise AssertionError("unreachable")


class _Destination:
    """The choice of the end component to end in, as a model whose nodes are components and transient states.

    A node is left by one of its exits; how often one tries until it is left does not matter in the long run, so exits
    are conditioned on success. No policy can go on for ever: each linear system is regular.
    """

    def __init__(self, model: MOMDP) -> None:
        self.model = model
        labels, allowed, self.components = model.end_components
        transient = labels < 0
        self.node = labels.copy()
        self.node[transient] = self.components + np.arange(int(transient.sum()))
        self.nodes = self.components + int(transient.sum())
        to_node = sp.csr_array((np.ones(model.S), (np.arange(model.S), self.node)), shape=(model.S, self.nodes))
        self.exit_row = np.flatnonzero(~allowed.ravel())
        self.exit_node = self.node[self.exit_row // model.A]
        moves = sp.coo_array(model.transitions[self.exit_row] @ to_node)
        exit_, target = moves.coords
        away = target != self.exit_node[exit_]
        exit_, target, chance = exit_[away], target[away], moves.data[away]
        chance = chance / np.bincount(exit_, chance, len(self.exit_row))[exit_]
        self.exits = sp.csr_array((chance, (exit_, target)), shape=(len(self.exit_row), self.nodes))
        self.start = model.initial @ to_node
        # The longest that any policy can be on its way: what an error of one step can add up to.
        _, self.longest, _ = self._optimise(1.0, np.zeros(self.components))

    def choose(
        self, gains: Float[np.ndarray, " G"], staying: Integer[np.ndarray, " S"]
    ) -> tuple[Integer[np.ndarray, " S"], float]:
        """The policy that ends where it is best, and a bound for all policies."""
        low, span = float(gains.min()), float(np.ptp(gains))
        chosen, value, error = self._optimise(0.0, (gains - low) / (span or 1.0))
        reached = float(self.start @ value) + error * float(self.start @ self.longest)
        return self._as_policy(chosen, staying), low + span * reached

    def _optimise(
        self, pay: float, gains: Float[np.ndarray, " G"]
    ) -> tuple[Integer[np.ndarray, " N"], Float[np.ndarray, " N"], float]:
        """Policy iteration: the exit of each node (−1: stay for ever), its value, and how far a step is from optimal.

        Each exit taken pays `pay`, and staying for ever the component's gain.
        """
        chosen = np.full(self.nodes, -1)
        first = np.unique(self.exit_node, return_index=True)
        chosen[first[0]] = np.where(first[0] >= self.components, first[1], -1)  # transient states cannot stay
        stay = np.full(self.nodes, -np.inf)
        stay[: self.components] = gains
        for _ in range(10 * self.nodes + 100):  # rounding must not make it go round in circles
            moving = chosen >= 0
            value = np.where(moving, 0.0, stay)
            if moving.any():
                out = self.exits[chosen[moving]]
                value[moving] = solve_linear(out[:, moving], pay + out[:, ~moving] @ value[~moving])
            offer = pay + self.exits @ value
            best = stay.copy()
            np.maximum.at(best, self.exit_node, offer)
            rounding = 1e-15 * max(1.0, float(np.abs(value).max()))
            improve = best > value + rounding
            if not improve.any():
                break
            chosen[improve] = -1
            is_best = (offer >= best[self.exit_node]) & improve[self.exit_node]
            chosen[self.exit_node[is_best]] = np.flatnonzero(is_best)
        return chosen, value, rounding + float(np.max(best - value, initial=0.0))

    def _as_policy(
        self, chosen: Integer[np.ndarray, " N"], staying: Integer[np.ndarray, " S"]
    ) -> Integer[np.ndarray, " S"]:
        """Actions in the model: stay, or go to the state whose exit was chosen and take it."""
        policy, A = staying.copy(), self.model.A
        moving = np.flatnonzero(chosen >= 0)
        row = self.exit_row[chosen[moving]]
        leaving = moving < self.components
        if leaving.any():
            bound_for = np.isin(self.node, moving[leaving])
            policy = _towards(self.model, row[leaving] // A, bound_for, policy)
        policy[row // A] = row % A
        return policy


def _towards(
    model: MOMDP,
    targets: Integer[np.ndarray, " T"],
    states: Bool[np.ndarray, " S"],
    policy: Integer[np.ndarray, " S"],
) -> Integer[np.ndarray, " S"]:
    """Let `states` walk to the target of their own component by actions that stay inside it."""
    _, allowed, _ = model.end_components
    P = model.transitions
    row = np.repeat(np.arange(P.shape[0]), np.diff(P.indptr))
    usable = allowed.ravel()[row] & states[row // model.A]
    row, target = row[usable], P.indices[usable]
    source = row // model.A
    # Shortest paths backwards from all targets at once, through one more node that leads to each of them.
    S = model.S
    backwards = sp.csr_array(
        (
            np.ones(len(row) + len(targets)),
            (np.concatenate([target, np.full(len(targets), S)]), np.concatenate([source, targets])),
        ),
        shape=(S + 1, S + 1),
    )
    _, nearer = csgraph.breadth_first_order(backwards, S)
    policy = policy.copy()
    on_path = nearer[source] == target
    policy[source[on_path]] = row[on_path] % model.A
    return policy
