"""Finite models as environments: what is learnt on them can be compared with what is computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Float32, Int, Int32

from evenhand.envs.optimum import Reference, reference_from
from evenhand.errors import InputError
from evenhand.exact.momdp import MOMDP
from evenhand.exact.solver import Solution, solve
from evenhand.types import Box, Discrete, PRNGKey, Step
from evenhand.welfare import Welfare


class FiniteState(NamedTuple):
    """Where one is, and since how many steps."""

    state: Int[Array, ""]
    steps: Int[Array, ""]


class Tables(NamedTuple):
    """A model in the form in which it is drawn from; row s·A + a belongs to state s and action a."""

    starts: Int[Any, " I"]
    start_cumulative: Float[Any, " I"]
    successors: Int[Any, "SA K"]
    cumulative: Float[Any, "SA K"]
    rewards: Float[Any, "SA D"]
    terminal: Bool[Any, " S"]


class FiniteEnv:
    """A finite model, observed as one-hot vectors [S].

    episode_steps: when episodes are truncated; None lets them go on for ever.
    terminal_states: states whose entering ends an episode. To mean the same to `solve` and `evaluate` they must pay
        nothing and never be left, and no episode may begin in one.
    objectives: the names of the D users.
    """

    def __init__(
        self,
        model: MOMDP,
        episode_steps: int | None = None,
        terminal_states: Sequence[int] = (),
        objectives: Sequence[str] | None = None,
    ) -> None:
        if episode_steps is not None and episode_steps < 1:
            raise InputError(f"an episode must have at least one step, not {episode_steps}.")
        names = tuple(objectives) if objectives is not None else tuple(f"user {i + 1}" for i in range(model.D))
        if len(names) != model.D:
            raise InputError(f"there are {len(names)} names for the {model.D} objectives of the model.")
        self.model, self.episode_steps, self._names = model, episode_steps, names
        starts = np.flatnonzero(model.initial).astype(np.int32)
        self.tables = Tables(
            starts,
            _cumulative(model.initial[starts]),
            *_inverse(model),
            model.rewards.reshape(-1, model.D).astype(np.float32),
            _terminal(model, terminal_states),
        )

    @property
    def objectives(self) -> tuple[str, ...]:
        """The names of the users."""
        return self._names

    @property
    def observation_space(self) -> Box:
        """One-hot vectors."""
        return Box.of(0.0, 1.0, self.model.S)

    @property
    def action_space(self) -> Discrete:
        """The actions of the model."""
        return Discrete(self.model.A)

    @property
    def reward_space(self) -> Box:
        """The smallest and the largest reward of each user."""
        rewards = self.model.rewards
        return Box.of(rewards.min((0, 1)), rewards.max((0, 1)), self.model.D)

    def reset(self, key: PRNGKey) -> tuple[FiniteState, Float[Array, " S"]]:
        """Draw from the initial distribution."""
        tables = _on_device(self.tables)
        first = tables.starts[_drawn(tables.start_cumulative, key)]
        state = FiniteState(first, jnp.array(0, jnp.int32))
        return state, self._observed(state)

    def step(self, state: FiniteState, action: Int[Array, ""], key: PRNGKey) -> Step:
        """Draw from the transition probabilities of state and action."""
        tables = _on_device(self.tables)
        row = state.state * self.model.A + action
        after = FiniteState(tables.successors[row, _drawn(tables.cumulative[row], key)], state.steps + 1)
        return Step(
            state=after,
            observation=self._observed(after),
            reward=tables.rewards[row],
            terminated=tables.terminal[after.state],
            truncated=jnp.array(False) if self.episode_steps is None else after.steps >= self.episode_steps,
        )

    def reference(self, welfare: Welfare, measure: str, gamma: float, lengths: Any) -> Reference | str:
        """The exact optimum of the model (see `evenhand.envs.core.PureEnv`)."""
        if self.tables.terminal.any() and measure != "discounted":
            return "where episodes end by themselves there is an exact optimum of discounted returns only."

        def optimum(gamma: float | None) -> Solution:
            if gamma is None:
                return solve(self.model, welfare, criterion="average")
            scaled = MOMDP.from_interleaved(
                self.model.transitions, (1 - gamma) * self.model.rewards, self.model.initial
            )
            return solve(scaled, welfare, gamma=gamma)

        # Where episodes end by themselves nothing is cut off, however short they are.
        endless = np.inf if self.tables.terminal.any() else lengths
        return reference_from(optimum, f"the model of {self.model.S:,} states", measure, gamma, endless)

    def _observed(self, state: FiniteState) -> Float[Array, " S"]:
        return jax.nn.one_hot(state.state, self.model.S, dtype=jnp.float32)


def _on_device(tables: Tables) -> Tables:
    return Tables(*map(jnp.asarray, tables))


def _terminal(model: MOMDP, states: Sequence[int]) -> Bool[np.ndarray, " S"]:
    flags = np.zeros(model.S, bool)
    for state in states:
        if not 0 <= state < model.S:
            raise InputError(f"terminal states must lie between 0 and {model.S - 1}, which {state} does not.")
        rows = model.transitions[state * model.A : (state + 1) * model.A].toarray()
        if (rows[:, state] < 1).any() or model.rewards[state].any():
            raise InputError(f"state {state} cannot be terminal: it pays something, or some action leaves it.")
        if model.initial[state]:
            raise InputError(f"state {state} cannot be terminal: episodes may begin there.")
        flags[state] = True
    return flags


def _inverse(model: MOMDP) -> tuple[Int32[np.ndarray, "SA K"], Float32[np.ndarray, "SA K"]]:
    """The successors of each row of the transitions and their cumulative probabilities, K being the most there are."""
    P = model.transitions
    sizes = np.diff(P.indptr)
    successors = np.zeros((P.shape[0], int(sizes.max())), np.int32)
    cumulative = np.ones(successors.shape, np.float32)
    for row, (begin, size) in enumerate(zip(P.indptr, sizes, strict=False)):
        successors[row, :size] = P.indices[begin : begin + size]
        cumulative[row, :size] = _cumulative(P.data[begin : begin + size])
    return successors, cumulative


def _cumulative(chances: Float[np.ndarray, " K"]) -> Float32[np.ndarray, " K"]:
    total = np.cumsum(chances)
    total[np.flatnonzero(chances)[-1] :] = 1.0  # what rounding leaves belongs to the last that is possible
    return total.astype(np.float32)


def _drawn(cumulative: Float[Array, " K"], key: PRNGKey) -> Int[Array, ""]:
    """The first entry above a uniform number in [0, 1): impossible ones are never drawn."""
    return jnp.sum(cumulative <= jax.random.uniform(key), dtype=jnp.int32)
