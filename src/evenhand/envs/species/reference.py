"""The exact fair optimum of species conservation, to hold learned policies against.

The ten ages of abalone are folded into one number, their reproductive value V = v·ages, with v the left eigenvector of
the Leslie matrix (scaled so that V is the density where the ages are in stable shares). A year's growth multiplies V
by exactly the Beverton–Holt rate, whatever the ages, and predation takes the mean of v from it for each abalone eaten.
Only that rate and the reward need the density itself. It is V times a factor near one, found from the age
distribution that the year's predation would lead to if it went on: predation takes the same number of each age, so the
old become rare. (With the stable shares instead, as if otters ate in proportion, the model would be wrong by a tenth
and more.) Then (V, otters) are put on a grid. What a year leads to is split between the four grid points around it so
that its expectation is right, which adds some variance; it falls with the square of the grid's spacing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.sparse as sp
from jaxtyping import Array, Float, Int

from evenhand.envs.species.state import ACTIONS, SpeciesState
from evenhand.errors import InputError
from evenhand.exact.momdp import MOMDP
from evenhand.exact.policies import Mixture
from evenhand.exact.solver import Solution, solve
from evenhand.types import PRNGKey
from evenhand.welfare import Welfare

if TYPE_CHECKING:
    from evenhand.envs.species.env import Species

SPILL_POINTS = 4
"""Points of the Gauss–Legendre rule for the share of otters that an oil spill kills."""
LOWEST_VALUE = 1e-3
"""The grid's least abalone per m²: it must not be 0, where splitting would make them die out."""
DENSER_BELOW = 1.5
"""The power that spaces the grids: relative changes count where there are few animals."""
TOLERANCE = 1e-6
"""How exactly the model is solved."""
PREDATION_TABLE = 200
"""Shares of abalone eaten in a year, for which age distributions are tabulated."""


class Optimum(NamedTuple):
    """The fairest there is in the model."""

    returns: Float[np.ndarray, "2"]
    """What each species gets in a year: (1 − γ) × discounted return, or the long-run average."""
    welfare: float
    """The welfare of these."""
    gap: float
    """No policy of the model is better by more than this."""
    policy: ReferencePolicy
    gamma: float | None
    """The discount; None for the average."""
    solution: Solution
    """What the solver said."""


@dataclass(frozen=True, eq=False)
class ReferencePolicy:
    """A policy of the model for the real environment, to be played like any other (`evenhand.evaluate_policy`).

    In the long run the optimum may be a mixture: then one of its members is drawn at the start of an episode, and
    remembered (see `evenhand.evaluation.policy.Remembers`). Observations must be scaled or raw ones.
    """

    reference: SpeciesReference
    shares: Float[np.ndarray, " M"]
    """The probability of each member."""
    tables: Float[np.ndarray, "M S 5"]
    """The probabilities of the actions in each state of the grid."""

    def draw_member(self, key: PRNGKey) -> Int[Array, ""]:
        """Which member to follow in an episode."""
        return jax.random.choice(key, len(self.shares), p=jnp.asarray(self.shares, jnp.float32))

    def probabilities(self, state: SpeciesState, member: Any = 0) -> Float[Array, "5"]:
        """Those of the four grid points around the state, weighted as the model splits them."""
        value = jnp.sum(jnp.asarray(self.reference.values, jnp.float32) * state.ages)
        points, weights = self.reference.split(value, state.otters, jnp)
        return weights @ jnp.asarray(self.tables, jnp.float32)[member, points]

    def __call__(self, state: SpeciesState, key: PRNGKey, member: Any = 0) -> Int[Array, ""]:
        """An action for a state of the environment."""
        return jax.random.choice(key, len(ACTIONS), p=self.probabilities(state, member))

    def initial_state(self, n: int, key: PRNGKey) -> Int[Array, " n"]:
        """Which member to follow in each of n episodes."""
        return jax.vmap(self.draw_member)(jax.random.split(key, n))

    def step(
        self, state: Int[Array, " N"], observation: Float[Array, "N O"], key: PRNGKey
    ) -> tuple[Int[Array, " N"], Int[Array, " N"]]:
        """Actions for N observations."""
        seen = jax.vmap(self.reference.species.state_of)(observation)
        return jax.vmap(self)(seen, jax.random.split(key, len(state)), state), state


@dataclass(frozen=True, eq=False)
class SpeciesReference:
    """The finite model of a `Species` environment, and its optima.

    Measured with the usual GGF: on 81 × 61 levels the optima are .1 to .3 % below what finer grids tend to, and
    policies that are mixed with care (as in its tests) reach them in the real environment, to the same precision.
    Where `forbid_reintroduction` is set the long-run average is hard to solve, as otters hardly ever die out.
    """

    species: Species
    abalone_levels: int = 81
    otter_levels: int = 61

    def __post_init__(self) -> None:
        if min(self.abalone_levels, self.otter_levels) < 3:
            raise InputError("the model needs at least 3 levels of each species.")

    def discounted(self, welfare: Welfare | str = "ggf", gamma: float = 0.99) -> Optimum:
        """The best (1 − γ) × discounted returns from the environment's start."""
        scaled = self._with_rewards((1 - gamma) * self.model.rewards)
        return self._optimum(solve(scaled, welfare, gamma=gamma, tol=TOLERANCE), gamma)

    def average(self, welfare: Welfare | str = "ggf") -> Optimum:
        """The best long-run averages."""
        return self._optimum(solve(self.model, welfare, criterion="average", tol=TOLERANCE), None)

    def _with_rewards(self, rewards: Float[np.ndarray, "S A D"]) -> MOMDP:
        return MOMDP.from_interleaved(self.model.transitions, rewards, self.model.initial)

    def _optimum(self, solution: Solution, gamma: float | None) -> Optimum:
        policy = solution.policy
        if isinstance(policy, Mixture):
            members = ReferencePolicy(self, policy.shares, np.eye(len(ACTIONS))[policy.policies])
        else:
            members = ReferencePolicy(self, np.ones(1), policy[None])
        return Optimum(solution.returns, solution.welfare, solution.gap, members, gamma, solution)

    # --- from ten ages to one number

    @cached_property
    def values(self) -> Float[np.ndarray, "10"]:
        """v, the reproductive value of each age: V = v·ages."""
        eigenvalues, vectors = np.linalg.eig(self.species.leslie.T)
        v = np.abs(vectors[:, np.argmax(eigenvalues.real)].real)
        return np.asarray(v / (v @ self.species.stable_ages))

    @cached_property
    def _settled(self) -> tuple[Float[np.ndarray, " H"], Float[np.ndarray, "H 10"]]:
        """Shares of abalone eaten in a year; for each the ages, scaled to V = 1, that it leads to in the long run."""
        eaten = np.linspace(0, 1, PREDATION_TABLE, endpoint=False)
        ages = np.tile(self.species.stable_ages, (len(eaten), 1))
        for _ in range(200):  # the slowest part of the ages falls by a third or more in a year
            grown = ages @ self.species.leslie.T
            left = np.maximum(grown - 0.1 * eaten[:, None] * grown.sum(axis=1, keepdims=True), 0)
            ages = left / left.sum(axis=1, keepdims=True)
        return eaten, ages / (ages @ self.values)[:, None]

    def ages_of(self, value: Float[np.ndarray, " n"], otters: Float[np.ndarray, " n"]) -> Float[np.ndarray, "n 10"]:
        """The ten ages that a pair (V, otters) of the model stands for."""
        table, settled = self._settled
        densities = settled.sum(axis=1)
        density = value
        for _ in range(20):  # what is eaten depends on the density, and that, weakly, on what is eaten
            daily = np.asarray(self.species.consumption(jnp.asarray(density, jnp.float32)), float)
            eaten = otters * daily * self.species.days / self.species.area / density
            density = value * np.interp(eaten, table, densities)
        return np.stack([value * np.interp(eaten, table, column) for column in settled.T], axis=1)

    # --- the grid

    @cached_property
    def value_grid(self) -> Float[np.ndarray, " V"]:
        """From next to nothing to the most that poachers leave, denser below."""
        species = self.species
        kept = 1 - float(species.poaching_shares.min())
        most = species.carrying_density * (kept * species.growth_rate - 1) / (species.growth_rate - 1)
        most = max(most, float(self.values @ species.initial_ages))
        return LOWEST_VALUE + (most - LOWEST_VALUE) * np.linspace(0, 1, self.abalone_levels) ** DENSER_BELOW

    @cached_property
    def otter_grid(self) -> Float[np.ndarray, " O"]:
        """None; and from the fewest that survive to the capacity, denser below."""
        fewest = max(float(self.species.extinct_below), 1.0)
        steps = np.linspace(0, 1, self.otter_levels - 1) ** DENSER_BELOW
        return np.append(0.0, fewest + (self.species.otter_capacity - fewest) * steps)

    def split(self, value: Any, otters: Any, xp: Any = np) -> tuple[Any, Any]:
        """The four states of the model around a pair (V, otters), and weights that make it their mean.

        xp: numpy, or jax.numpy. No otters is a state of its own, of which others get no share.
        """
        i, up = _place(value, self.value_grid, 0, xp)
        j, right = _place(otters, self.otter_grid, 1, xp)
        j, right = xp.where(otters > 0, j, 0), xp.where(otters > 0, right, 0.0)
        corner = i * self.otter_levels + j
        points = [corner, corner + 1, corner + self.otter_levels, corner + self.otter_levels + 1]
        weights = [(1 - up) * (1 - right), (1 - up) * right, up * (1 - right), up * right]
        return xp.stack(points, axis=-1), xp.stack(weights, axis=-1)

    # --- the model

    @cached_property
    def model(self) -> MOMDP:
        """The finite model: state i · otter_levels + j is the pair (value_grid[i], otter_grid[j])."""
        species = self.species
        value, otters = (x.ravel() for x in np.meshgrid(self.value_grid, self.otter_grid, indexing="ij"))
        S, A = len(value), len(ACTIONS)
        states = SpeciesState(
            jnp.asarray(self.ages_of(value, otters), jnp.float32), jnp.asarray(otters, jnp.float32), jnp.zeros(S, int)
        )

        @jax.jit
        def outcomes(spill: Any, luck: Any) -> Any:
            def year(state: SpeciesState, action: Any) -> Any:
                after = species.year(state, action, spill, luck)
                return after.ages, after.otters, species.worth(after)

            return jax.vmap(jax.vmap(year, (None, 0)), (0, None))(states, jnp.arange(A))

        matrix, rewards = sp.csr_array((S * A, S)), np.zeros((S, A, 2))
        for spill, luck, probability in self._chances():
            ages, otters, worth = (np.asarray(x, float) for x in outcomes(jnp.float32(spill), jnp.float32(luck)))
            rewards += probability * worth
            points, weights = self.split(ages @ self.values, otters)
            rows = np.arange(0, 4 * S * A + 1, 4)
            matrix = matrix + sp.csr_array((probability * weights.ravel(), points.ravel(), rows), shape=(S * A, S))
        points, weights = self.split(self.values @ species.initial_ages, np.float64(species.initial_otters))
        return MOMDP.from_interleaved(matrix, rewards, np.bincount(points, weights, minlength=S), copy=False)

    def _chances(self) -> list[tuple[float, float, float]]:
        """Pairs of the two uniform numbers of a year, and their probabilities: a quadrature of what chance does."""
        nodes, weights = np.polynomial.legendre.leggauss(SPILL_POINTS)
        often = float(self.species.spill_probability)
        spills = [(1.0, 1 - often), *zip(often * (nodes + 1) / 2, often * weights / 2, strict=True)]
        return [(float(u), luck, float(p) / 2) for u, p in spills if p > 0 for luck in (0.25, 0.75)]


def _place(x: Any, grid: Float[np.ndarray, " n"], first: int, xp: Any) -> tuple[Any, Any]:
    """The interval of the grid, from point `first` on, that holds x, and how far in x is, from 0 to 1."""
    grid = xp.asarray(grid, x.dtype)
    i = xp.clip(xp.searchsorted(grid, x, side="right") - 1, first, len(grid) - 2)
    return i, xp.clip((x - grid[i]) / (grid[i + 1] - grid[i]), 0.0, 1.0)
