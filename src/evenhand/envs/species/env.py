"""Conservation of two endangered species: sea otters, and the northern abalone they eat.

After the model of Chadès, Curtis and Martin (2012) as the paper on fair reinforcement learning simplified it. One step
is one year: growth of both species, oil spill, culling, predation, poaching, in this order.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from evenhand.envs.drawing import line_plot
from evenhand.envs.optimum import Reference, reference_from
from evenhand.envs.species.reference import Optimum, SpeciesReference
from evenhand.envs.species.state import ACTIONS, CONTROL, HALF, INTRODUCE, SpeciesState
from evenhand.errors import InputError
from evenhand.types import Box, Discrete, PRNGKey, Step
from evenhand.welfare import Welfare

RESPONSES: Mapping[str, tuple[float, float]] = {
    "weak": (1.0, 6.0),
    "medium": (1.0, 12.0),
    "published": (2 / 3, 18.0),
    "strong": (1 / 3, 18.0),
}
"""What otters eat: p_max abalones a day from the density d_max on, as (d_max / K, p_max)."""

JUVENILE_SURVIVAL: Mapping[str, float] = {"high": 0.857, "medium": 0.542, "low": 0.227}

FORMS = ("linear", "hyperbolic")
OBSERVATIONS = ("scaled", "raw", "levels")
REWARDS = ("linear", "JR")

OTTER_LEVELS, ABALONE_LEVELS = 21, 39
"""How many levels of the two populations the observation "levels" tells apart."""
LEVEL_WIDTH = 0.05
"""The abalones per m² between two levels: 39 of them cover the carrying density."""

SHARES = (
    *("female_share", "adult_survival", "spill_probability", "culling_level", "enforced_poaching"),
    *("scarce_poaching", "foraging_share", "foraging_success"),
)
"""The fields that must lie between 0 and 1."""

ROUNDING = 1e-5
"""Bounds of observations and rewards are wider by this share: float32 may round upwards."""


@dataclass(frozen=True)
class Species:
    """Keep sea otters and abalone, of which otters live, in balance.

    Actions: 0 nothing; 1 introduce otters; 2 enforce the ban on poaching; 3 control (cull) otters; 4 half of 2 and
    half of 3. The reward is that of the populations at the end of the year. An episode is only ever truncated.
    """

    response: str | int | tuple[float | int, float | int] = "published"
    """How much otters eat: weak, medium, published or strong, also as 1, 2, 3 or 4, which stand for (d_max, p_max) =
    (K, 6), (K, 12), (2K/3, 18) and (K/3, 18); or a pair (d_max / K, p_max) of one's own."""
    functional_form: str = "linear"
    """linear: an otter eats p_max · density / d_max abalones a day, and p_max above d_max; hyperbolic: c · density /
    (h + density), with c from the time spent foraging and handling, and h such that it eats p_max at d_max. (In the
    cited study all hyperbolas pass through 18 a day at K, the pair (1, 18).)"""
    juvenile_survival: str | float | int = "high"
    """high (.857), medium (.542), low (.227), or a number: it shapes the age distribution, not the rate of growth."""
    observation: str = "scaled"
    """scaled: the 10 ages, 1 being what the age has at carrying capacity, and otters / capacity; raw: the 10 numbers of
    abalones and that of otters; levels: the paper's pair of levels 1 … 21 of otters (1: none) and 1 … 39 of abalone."""
    reward: str = "linear"
    """linear: (otters / capacity, abalones per m²); JR: the cited study's functions, which make .02, .1, .5 abalones
    per m² and the carrying density worth as much as otters at 30, 40, 60 and 100 % of theirs."""
    episode_steps: int = 3650
    """Years until an episode is truncated. The paper tests with 3,650; 200 are better to learn from."""
    forbid_reintroduction: bool = False
    """Introducing leaves the otters as they are while there are any, and `action_mask` refuses it, as in the study.
    Otherwise it sets their number, even to fewer than there were."""
    introduction_enforces: bool = True
    """Whether poaching is as low in a year of introduction as under enforcement, as in the authors' code."""
    predation_saturates: bool = True
    """Whether otters eat no more than p_max. False repeats a slip in the authors' code, whose linear response goes on
    growing above d_max."""
    half_control_adds: bool = False
    """Whether half control also moves otters halfway *up* to the culling level: the excess formula without a guard."""

    areas: tuple[float | int, ...] = (64.78, 109.47, 90.10, 31.35)
    """The kinds of habitat, in km²."""
    growth_rates: tuple[float | int, float | int] = (1.05, 1.6)
    """The abalone's largest yearly growth in the first and the last habitat, evenly spaced between; the mean by area
    is used."""
    carrying_densities: tuple[float | int, float | int] = (0.835, 3.34)
    """Abalones per m² that the first and the last habitat carry, evenly spaced between; the mean by area is K."""
    initial_densities: tuple[float | int, ...] = (0.047, 0.056, 0.040, 0.023, 0.018, 0.007, 0.011, 0.003, 0.0, 0.025)
    """Abalones per m² by age (4 to 13 and older), before the free years."""
    free_years: int = 50
    """Years without otters and poaching that settle the age distribution before the start."""
    free_capacity: float | int = 0.23
    """The carrying density, per m², of the free years."""
    female_share: float | int = 0.5
    """Females among the abalones."""
    adult_survival: float | int = 0.818
    """The share of abalones of one age that reach the next, before scaling to the year's growth."""
    fecundities: tuple[float | int, ...] = (0.136, 0.26, 0.38, 0.491, 0.593, 0.683, 0.745, 0.795, 0.835, 1.166)
    """Millions of eggs of a female of each age."""

    otter_growth: float | int = 0.191
    """The growth rate of otters where they are few."""
    otter_capacity: float | int = 4073
    """The number of otters that the habitat carries."""
    initial_otters: float | int = 0
    """Otters at the start."""
    introduced_otters: float | int = 100
    """Otters that there are after "introduce"."""
    spill_probability: float | int = 0.1
    """The probability of an oil spill in a year."""
    spill_deaths: tuple[float | int, float | int] = (0.23, 0.42)
    """The smallest and the largest share of the otters that a spill kills; uniform between."""
    extinct_below: float | int = 10
    """Fewer otters than this after a spill die out."""
    culling_level: float | int = 0.6
    """The share of their capacity above which otters may be culled."""
    foraging_share: float | int = 0.4
    """Hyperbolic form: the share of the day that otters forage."""
    foraging_success: float | int = 0.36
    """Hyperbolic form: the share of dives that find something, between .13 and .36 in the study."""
    handling_seconds: float | int = 166
    """Hyperbolic form: how long an otter handles one abalone."""
    days: float | int = 365
    """Days of predation in a year."""

    poaching: tuple[float | int, float | int] = (0.23, 0.17)
    """The shares of abalones poached without enforcement: high and medium, each in half of the years."""
    enforced_poaching: float | int = 0.10
    """The share poached under enforcement. Under half enforcement it is halfway between this and `poaching`."""
    enforced_spread: float | int = 0.01
    """By how much the share under enforcement is higher or lower, each in half of the years."""
    scarce_density: float | int = 0.01
    """Abalones per m² below which poachers hardly find any."""
    scarce_poaching: float | int = 0.01
    """The share poached then."""

    def __post_init__(self) -> None:
        for declared in fields(self):
            name, example, value = declared.name, declared.default, getattr(self, declared.name)
            if isinstance(value, list):  # as JSON and TOML have them
                object.__setattr__(self, name, value := tuple(value))
            numbers = value if isinstance(value, tuple) else (value,)
            if not isinstance(example, str) and any(isinstance(x, str) or not np.isfinite(x) for x in numbers):
                raise InputError(f"{name} must be made of numbers, as in {example}, not {value!r}.")
        if not isinstance(self.response, tuple):
            names: Iterable[str | int] = [*RESPONSES, *range(1, len(RESPONSES) + 1)]
            _known("response", self.response, names, "or a pair (d_max / K, p_max)")
        elif len(self.response) != 2 or min(self.response) <= 0:
            raise InputError(f"response as a pair needs two positive numbers (d_max / K, p_max), not {self.response}.")
        if isinstance(self.juvenile_survival, str):
            _known("juvenile_survival", self.juvenile_survival, JUVENILE_SURVIVAL, "or a number in (0, 1]")
        for field, known in (("functional_form", FORMS), ("observation", OBSERVATIONS), ("reward", REWARDS)):
            _known(field, getattr(self, field), known)
        self._check_numbers()

    def _check_numbers(self) -> None:
        for field in SHARES:
            _between(field, getattr(self, field), 0, 1)
        for field, pair in (("spill_deaths", self.spill_deaths), ("poaching", self.poaching)):
            _between(field, min(pair), 0, 1)
            _between(field, max(pair), 0, 1)
        _between("enforced_spread", self.enforced_spread, 0, min(self.enforced_poaching, 1 - self.enforced_poaching))
        _between("juvenile_survival", self._juvenile_survival, 1e-9, 1)
        _between("initial_otters", self.initial_otters, 0, self.otter_capacity)
        _between("introduced_otters", self.introduced_otters, 0, self.otter_capacity)
        _between("otter_growth", self.otter_growth, 0, 1)  # above 1 the logistic map would overshoot the capacity
        for field in ("episode_steps", "otter_capacity", "handling_seconds", "days", "free_capacity"):
            if not getattr(self, field) > 0:
                raise InputError(f"{field} must be positive, not {getattr(self, field)}.")
        for field in ("areas", "initial_densities", "fecundities", "free_years", "extinct_below", "scarce_density"):
            if np.min(getattr(self, field)) < 0:
                raise InputError(f"{field} must not be negative, but holds {np.min(getattr(self, field)):g}.")
        if len(self.initial_densities) != 10 or len(self.fecundities) != 10:
            raise InputError("initial_densities and fecundities must each hold ten numbers, for the ages 4 to 13.")
        for field in ("female_share", "adult_survival", "fecundities", "areas"):
            if not np.max(getattr(self, field)) > 0:
                raise InputError(f"abalone cannot live here: {field} must not be nothing but 0.")
        if self.growth_rate <= 1 or min(self.carrying_densities) <= 0:
            raise InputError("abalone cannot live here: growth_rates must average above 1, carrying_densities above 0.")
        if self.functional_form == "hyperbolic" and self._most_eaten <= self._eating[1]:
            raise InputError(
                f"an otter that handles abalones for {self.handling_seconds} seconds each can eat "
                f"{self._most_eaten:.3g} a day, fewer than the p_max = {self._eating[1]:g} of the response."
            )

    # --- constants, computed once (float64)

    @cached_property
    def area(self) -> float:
        """The habitat of the abalone, in m²."""
        return float(np.sum(self.areas)) * 1e6

    @cached_property
    def growth_rate(self) -> float:
        """r, the abalone's largest yearly growth."""
        return float(np.average(np.linspace(*self.growth_rates, len(self.areas)), weights=self.areas))

    @cached_property
    def carrying_density(self) -> float:
        """K, abalones per m²."""
        return float(np.average(np.linspace(*self.carrying_densities, len(self.areas)), weights=self.areas))

    @property
    def _juvenile_survival(self) -> float:
        given = self.juvenile_survival
        return JUVENILE_SURVIVAL[given] if isinstance(given, str) else float(given)

    @cached_property
    def leslie(self) -> Float[np.ndarray, "10 10"]:
        """The Leslie matrix divided by its dominant eigenvalue: multiplied by a rate, it grows by that rate.

        First row: fecundity × share of females × juvenile survival; below the diagonal (and at the end of it, for the
        pooled ages): adult survival.
        """
        matrix = np.diag(np.full(9, float(self.adult_survival)), -1)
        matrix[9, 9] = self.adult_survival
        matrix[0] = np.array(self.fecundities) * self.female_share * self._juvenile_survival
        return matrix / np.abs(np.linalg.eigvals(matrix)).max()

    @cached_property
    def stable_ages(self) -> Float[np.ndarray, "10"]:
        """The shares of the ages in a population that grows undisturbed."""
        values, vectors = np.linalg.eig(self.leslie)
        dominant = np.abs(vectors[:, np.argmax(values.real)].real)
        return np.asarray(dominant / dominant.sum())

    @cached_property
    def initial_ages(self) -> Float[np.ndarray, "10"]:
        """Abalones per m² by age at the start, after the free years."""
        ages = np.array(self.initial_densities, float)
        for _ in range(self.free_years):
            ages = self._growth(ages.sum(), self.free_capacity) * (self.leslie @ ages)
        return ages

    def _growth(self, density: Any, capacity: float | int) -> Any:
        """The rate of Beverton and Holt: r K / (r N − N + K)."""
        return self.growth_rate * capacity / ((self.growth_rate - 1) * density + capacity)

    @cached_property
    def _eating(self) -> tuple[float, float]:
        """d_max (per m²) and p_max (a day) of the response."""
        given = self.response
        if not isinstance(given, tuple):
            given = RESPONSES[given] if isinstance(given, str) else list(RESPONSES.values())[given - 1]
        return float(given[0]) * self.carrying_density, float(given[1])

    @property
    def _most_eaten(self) -> float:
        """c of the hyperbolic form: what an otter that found abalones at once would eat in a day."""
        return float(self.foraging_share * self.foraging_success * 86_400 / self.handling_seconds)

    @cached_property
    def poaching_shares(self) -> Float[np.ndarray, "5 2"]:
        """The share poached under each action, in years of much and of little poaching."""
        high, medium = self.poaching
        low, spread = self.enforced_poaching, self.enforced_spread
        free, enforced = (high, medium), (low + spread, low - spread)
        half = (0.5 * (high + low), 0.5 * (medium + low))
        return np.array([free, enforced if self.introduction_enforces else free, enforced, free, half])

    @cached_property
    def largest_density(self) -> float:
        """Abalones per m² that no sequence of actions and accidents can exceed.

        With q the most that a year's births and survivals leave of one abalone, N' ≤ q r K N / ((r − 1) N + K), which
        increases with N and has the fixed point K (q r − 1) / (r − 1).
        """
        most = float(self.leslie.sum(axis=0).max()) * self._least_poached
        fixed = self.carrying_density * (most * self.growth_rate - 1) / (self.growth_rate - 1)
        return max(float(self.initial_ages.sum()), fixed, self.scarce_density)

    @cached_property
    def largest_ages(self) -> Float[np.ndarray, "10"]:
        """The same for each age: what it can be at most follows from the most of the age before.

        A part of the population grows fastest where there is nothing else, and the more the larger it is.
        """

        def grown(density: float) -> float:
            return self._least_poached * density * float(self._growth(density, self.carrying_density))

        largest = np.maximum(self.initial_ages, self.scarce_density)
        largest[0] = max(largest[0], self.leslie[0].max() * grown(self.largest_density))
        for age in range(1, 9):
            largest[age] = max(largest[age], self.leslie[age, age - 1] * grown(largest[age - 1]))
        pooled = self.largest_density
        for _ in range(100):  # the oldest ages feed themselves too: from a bound to a better one
            pooled = max(largest[9], self.leslie[9, 8] * grown(largest[8] + pooled))
        largest[9] = pooled
        return np.minimum(largest, self.largest_density)

    @property
    def _least_poached(self) -> float:
        """The most that poachers leave, where abalone are not scarce."""
        return 1 - float(self.poaching_shares.min())

    @cached_property
    def joint_recovery(self) -> Any:
        """JR of abalone: what a density is worth, in shares of the otters' capacity (monotone cubic)."""
        from scipy.interpolate import PchipInterpolator  # which takes a quarter of a second, and few need it

        densities = [0.0, 0.02, 0.1, 0.5, self.carrying_density]
        return PchipInterpolator(densities, [0.0, 0.3, 0.4, 0.6, 1.0])

    @cached_property
    def _scales(self) -> Float[np.ndarray, "11"]:
        """What observations are multiplied by."""
        if self.observation == "raw":
            return np.append(np.full(10, self.area), 1.0)
        return np.append(1 / (self.carrying_density * self.stable_ages), 1 / self.otter_capacity)

    # --- the environment

    @property
    def objectives(self) -> tuple[str, ...]:
        """The two species."""
        return ("otters", "abalone")

    @property
    def observation_space(self) -> Box:
        """See the field `observation`; the bounds hold for whatever can happen."""
        if self.observation == "levels":
            return Box.of(1, [OTTER_LEVELS, ABALONE_LEVELS], 2)
        return Box.of(0, (1 + ROUNDING) * self._scales * np.append(self.largest_ages, self.otter_capacity), 11)

    @property
    def action_space(self) -> Discrete:
        """See `ACTIONS`."""
        return Discrete(len(ACTIONS))

    @property
    def reward_space(self) -> Box:
        """Between nothing and the most that there can be of each species."""
        return Box.of(0, [1, 1 if self.reward == "JR" else (1 + ROUNDING) * self.largest_density], 2)

    def reset(self, key: PRNGKey) -> tuple[SpeciesState, Float[Array, " O"]]:
        """The start is always the same: no otters (unless `initial_otters`), abalone as after the free years."""
        del key
        state = SpeciesState(
            jnp.asarray(self.initial_ages, jnp.float32), jnp.float32(self.initial_otters), jnp.int32(0)
        )
        return state, self.observe(state)

    def step(self, state: SpeciesState, action: Any, key: PRNGKey) -> Step:
        """One year. All chance is in two uniform numbers: the oil spill with its deaths, and the poachers' luck."""
        action = jnp.asarray(action)
        spill, luck = jax.random.uniform(key, (2,), jnp.float32)
        state = self.year(state, action, spill, luck)
        return Step(
            state,
            self.observe(state),
            self.worth(state),
            terminated=jnp.bool_(False),
            truncated=state.year >= self.episode_steps,
        )

    def year(
        self, state: SpeciesState, action: Int[Array, ""], spill: Float[Array, ""], luck: Float[Array, ""]
    ) -> SpeciesState:
        """What a year makes of a state, given the two uniform numbers."""
        otters = self.control(self.otters_grown(self.introduce(state.otters, action), spill), action)
        ages = self.poached(self.eaten(self.abalone_grown(state.ages), otters), action, luck)
        return SpeciesState(ages, otters, state.year + 1)

    def action_mask(self, state: SpeciesState) -> Bool[Array, "5"]:
        """The actions that make sense: all, but for introduction where `forbid_reintroduction` forbids it."""
        introduce = jnp.asarray(np.arange(len(ACTIONS)) == INTRODUCE)
        return ~(introduce & (state.otters > 0)) if self.forbid_reintroduction else jnp.ones(len(ACTIONS), bool)

    # --- the parts of a year

    def introduce(self, otters: Float[Array, ""], action: Int[Array, ""]) -> Float[Array, ""]:
        """Introduction sets the number of otters, before they grow."""
        applies = action == INTRODUCE
        if self.forbid_reintroduction:
            applies &= otters <= 0
        return jnp.where(applies, jnp.float32(self.introduced_otters), otters)

    def otters_grown(self, otters: Float[Array, ""], spill: Float[Array, ""]) -> Float[Array, ""]:
        """N exp(g (1 − N / capacity)); then, where the uniform number `spill` is below its probability, an oil spill.

        Given that there is a spill, the same number is uniform below the probability, and says how many die.
        """
        grown = otters * jnp.exp(self.otter_growth * (1 - otters / self.otter_capacity))
        grown = jnp.minimum(grown, self.otter_capacity)
        if self.spill_probability == 0:
            return grown
        fewest, most = self.spill_deaths
        left = grown * (1 - fewest - (most - fewest) / self.spill_probability * spill)
        left = jnp.where(left < self.extinct_below, 0.0, left)
        return jnp.where(spill < self.spill_probability, left, grown)

    def control(self, otters: Float[Array, ""], action: Int[Array, ""]) -> Float[Array, ""]:
        """Cull the otters above the level, all or half of them."""
        excess = otters - self.culling_level * self.otter_capacity
        culled = jnp.maximum(excess, 0.0)
        half = 0.5 * (excess if self.half_control_adds else culled)
        return otters - jnp.where(action == CONTROL, culled, jnp.where(action == HALF, half, 0.0))

    def abalone_grown(self, ages: Float[Array, "10"]) -> Float[Array, "10"]:
        """The Leslie matrix, scaled so that its dominant eigenvalue is the Beverton–Holt rate of the density."""
        survival = float(self.leslie[9, 9])
        births = jnp.sum(jnp.asarray(self.leslie[0], jnp.float32) * ages)
        pooled = survival * (ages[8] + ages[9])
        grown = jnp.concatenate([births[None], survival * ages[:8], pooled[None]])
        return self._growth(jnp.sum(ages), self.carrying_density) * grown

    def consumption(self, density: Float[Array, "*n"]) -> Float[Array, "*n"]:
        """How many abalones an otter eats in a day."""
        d_max, p_max = self._eating
        if self.functional_form == "hyperbolic":
            half = d_max * (self._most_eaten / p_max - 1)
            return self._most_eaten * density / (half + density)
        eaten = p_max / d_max * density
        return jnp.minimum(eaten, p_max) if self.predation_saturates else eaten

    def eaten(self, ages: Float[Array, "10"], otters: Float[Array, ""]) -> Float[Array, "10"]:
        """Predation takes the same number from each age; where one has not as many, the others make up for it."""
        density = jnp.sum(ages)
        removed = jnp.minimum(otters * self.consumption(density) * (self.days / self.area), density)
        left = jnp.maximum(ages - 0.1 * removed, 0.0)
        return left * ((density - removed) / jnp.maximum(jnp.sum(left), 1e-30))

    def poached(self, ages: Float[Array, "10"], action: Int[Array, ""], luck: Float[Array, ""]) -> Float[Array, "10"]:
        """Poachers take the same share of each age."""
        shares = jnp.asarray(self.poaching_shares, jnp.float32)[action]
        share = jnp.where(luck > 0.5, shares[0], shares[1])
        share = jnp.where(jnp.sum(ages) < self.scarce_density, self.scarce_poaching, share)
        return ages * (1 - share)

    def observe(self, state: SpeciesState) -> Float[Array, " O"]:
        """What the field `observation` says."""
        if self.observation == "levels":
            otters = 1 + jnp.ceil(state.otters * ((OTTER_LEVELS - 1) / self.otter_capacity))
            abalone = 1 + jnp.floor(jnp.sum(state.ages) / LEVEL_WIDTH)
            return jnp.stack([jnp.minimum(otters, OTTER_LEVELS), jnp.minimum(abalone, ABALONE_LEVELS)])
        return jnp.append(state.ages, state.otters) * jnp.asarray(self._scales, jnp.float32)

    def state_of(self, observation: Float[Array, " O"], year: int = 0) -> SpeciesState:
        """The state that a scaled or raw observation shows; levels tell too little."""
        if self.observation == "levels":
            raise InputError('a state cannot be told from levels: observe "scaled" or "raw".')
        numbers = observation / jnp.asarray(self._scales, jnp.float32)
        return SpeciesState(numbers[:10], numbers[10], jnp.int32(year))

    def worth(self, state: SpeciesState) -> Float[Array, "2"]:
        """The reward of a state: one number for each species."""
        otters, density = state.otters / self.otter_capacity, jnp.sum(state.ages)
        if self.reward == "linear":
            return jnp.stack([otters, density])
        knots = self.joint_recovery.x
        piece = jnp.sum(density >= jnp.asarray(knots[1:-1], jnp.float32))
        x = jnp.minimum(density, float(knots[-1])) - jnp.asarray(knots[:-1], jnp.float32)[piece]
        a, b, c, d = jnp.asarray(self.joint_recovery.c, jnp.float32)[:, piece]
        return jnp.stack([otters, jnp.clip(((a * x + b) * x + c) * x + d, 0.0, 1.0)])

    @property
    def action_names(self) -> tuple[str, ...]:
        """What the actions are called."""
        return ACTIONS

    def reference(self, welfare: Welfare, measure: str, gamma: float, lengths: Any) -> Reference | str:
        """The exact optimum of a finite model of it (see `evenhand.envs.core.PureEnv`)."""

        def optimum(gamma: float | None) -> Optimum:
            model = SpeciesReference(self)
            return model.average(welfare) if gamma is None else model.discounted(welfare, gamma)

        response = f"a {self.response}" if isinstance(self.response, str) else "its own"
        return reference_from(optimum, f"a finite model of species with {response} response", measure, gamma, lengths)

    def draw(self, history: Sequence[SpeciesState]) -> np.ndarray:
        """A picture of both populations so far."""
        otters = np.array([state.otters for state in history])
        density = np.array([np.sum(state.ages) for state in history])
        return line_plot(
            {"sea otters / capacity": otters / self.otter_capacity, "abalones per m²": density}, across="year"
        )


def _known(field: str, value: Any, known: Iterable[str | int], else_: str = "") -> None:
    """Refuse a name that does not exist, and say which one may have been meant."""
    known = list(known)
    if isinstance(value, (str, int)) and not isinstance(value, bool) and value in known:
        return
    lowered = {str(name).lower(): name for name in known}
    close = difflib.get_close_matches(str(value).lower(), lowered, 1, 0.4)
    meant = f"; did you mean {lowered[close[0]]}?" if close else "."
    raise InputError(f"{field} must be {', '.join(map(str, known))} {else_}".rstrip() + f", not {value!r}{meant}")


def _between(field: str, value: float | int, low: float | int, high: float | int) -> None:
    if not low <= value <= high:
        raise InputError(f"{field} must lie between {low:g} and {high:g}, not at {value}.")
