"""The fair optima of species, reached in the environment itself."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import evenhand as eh
from evenhand.envs.species.env import Species
from evenhand.envs.species.reference import TOLERANCE, Optimum, ReferencePolicy, SpeciesReference
from evenhand.exact.policies import Criterion
from evenhand.exact.solver import solve

GGF = eh.GGF.geometric(2)
OPTIMA = {
    ("strong", "discounted"): 0.481,
    ("strong", "average"): 0.4995,
    ("published", "discounted"): 0.6157,
    ("published", "average"): 0.656,
}

NUDGE = 0.02
"""The share by which a weight is changed to find the policies on either side of an optimum."""


class Score(NamedTuple):
    """What a policy brought in the real environment."""

    returns: Any
    """The means over episodes, normalised as those of an optimum."""
    errors: Any
    """Their standard errors."""


def simulate(
    reference: SpeciesReference,
    policy: ReferencePolicy,
    key: Any,
    *,
    gamma: float | None = None,
    years: int = 1000,
    skip: int = 0,
    episodes: int = 500,
) -> Score:
    """What a policy of the model brings in the real environment.

    gamma: for (1 − γ) × discounted rewards; None for their average, of which the first `skip` years are left out.
    """
    first, second = jax.random.split(key)
    members = jax.vmap(policy.draw_member)(jax.random.split(first, episodes))
    returns = _episodes(reference, policy, members, second, gamma, years, skip)
    return Score(returns.mean(axis=0), returns.std(axis=0, ddof=1) / np.sqrt(episodes))


def calibrated(
    reference: SpeciesReference,
    optimum: Optimum,
    welfare: eh.Welfare,
    key: Any,
    *,
    years: int = 1000,
    skip: int = 0,
    episodes: int = 500,
) -> tuple[ReferencePolicy, Score]:
    """The optimum as a draw between two policies, in the shares that are best in the real environment.

    Which of the species gets more under a fair policy hangs on rare choices, which the least error of the model
    tips. So take the two deterministic policies that are optimal for weights a little to either side of the
    optimum's, see in the environment what each brings, and mix; then score the mixture on fresh episodes.
    """
    tables = []
    for nudge in (1 - NUDGE, 1 + NUDGE):
        scalar = reference._with_rewards(reference.model.rewards @ (optimum.solution.weights * [nudge, 1])[:, None])
        criterion: Criterion = "average" if optimum.gamma is None else "discounted"
        best = solve(scalar, eh.Utilitarian(1), gamma=optimum.gamma, criterion=criterion, tol=TOLERANCE)
        tables.append(reference._optimum(best, optimum.gamma).policy.tables[0])
    pair = ReferencePolicy(reference, np.array([0.5, 0.5]), np.array(tables))

    # Half of the episodes choose the shares, and the other half score them.
    members = jnp.tile(jnp.repeat(jnp.arange(2), episodes), 2)
    returns = _episodes(reference, pair, members, key, optimum.gamma, years, skip).reshape(2, 2, episodes, 2)
    (trial, final), spread = returns.mean(axis=2), returns[1].std(axis=1, ddof=1)
    shares = np.linspace(0, 1, 1001)
    mixes = np.stack([shares, 1 - shares], axis=1)
    mix = mixes[np.argmax(welfare.value(mixes @ trial))]
    errors = np.sqrt(mix**2 @ spread**2 / episodes)
    return ReferencePolicy(reference, mix, pair.tables), Score(mix @ final, errors)


def _episodes(
    reference: SpeciesReference,
    policy: ReferencePolicy,
    members: Any,
    key: Any,
    gamma: float | None,
    years: int,
    skip: int,
) -> Any:
    """Episodes in the environment, one for each of the members to follow."""
    species = reference.species
    weights = np.where(np.arange(years) < skip, 0, 1 / (years - skip))
    if gamma is not None:
        weights = (1 - gamma) * gamma ** np.arange(years)

    def episode(member: Any, key: Any) -> Any:
        def year(carry: Any, weight: Any) -> Any:
            state, key = carry
            key, choose, act = jax.random.split(key, 3)
            step = species.step(state, policy(state, choose, member), act)
            return (step.state, key), weight * step.reward

        state, _ = species.reset(key)
        return jax.lax.scan(year, (state, key), jnp.asarray(weights, jnp.float32))[1].sum(axis=0)

    return np.asarray(jax.jit(jax.vmap(episode))(members, jax.random.split(key, len(members))), float)


def reach_the_optimum(response: str, criterion: str) -> None:
    reference, known = SpeciesReference(Species(response=response), 61, 31), OPTIMA[response, criterion]
    key = jax.random.key(0)
    if criterion == "discounted":
        optimum = reference.discounted(GGF)
        _, score = calibrated(reference, optimum, GGF, key, years=800, episodes=500)
        tolerance = 0.01
    else:
        optimum = reference.average(GGF)
        _, score = calibrated(reference, optimum, GGF, key, years=1500, skip=300, episodes=100)
        tolerance = 0.015
    assert optimum.welfare == pytest.approx(known, rel=0.004)
    assert GGF.value(score.returns) == pytest.approx(known, rel=tolerance)
