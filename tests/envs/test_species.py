"""Species conservation: the model by hand, the Gymnasium environment around it, and the exact reference."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import warnings
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import mo_gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import evenhand as eh
from evenhand.envs.core import PureEnv
from evenhand.envs.drawing import line_plot
from evenhand.envs.gym.gym_env import GymEnv, register
from evenhand.envs.species.env import Species
from evenhand.envs.species.reference import SpeciesReference
from evenhand.envs.species.state import CONTROL, ENFORCE, HALF, INTRODUCE, NOTHING, SpeciesState
from evenhand.errors import InputError
from evenhand.types import Box, Discrete, Step
from species_optima import reach_the_optimum, simulate

register()
GGF = eh.GGF.geometric(2)
NO_SPILL, MUCH, LITTLE = jnp.float32(1.0), jnp.float32(0.75), jnp.float32(0.25)
AREA = 295.7e6
K = (0.835 * 64.78 + 1.67 * 109.47 + 2.505 * 90.10 + 3.34 * 31.35) / 295.7
R = (1.05 * 64.78 + (1.05 + 0.55 / 3) * 109.47 + (1.05 + 1.1 / 3) * 90.10 + 1.6 * 31.35) / 295.7


def f32(x: Any) -> Any:
    return jnp.asarray(x, jnp.float32)


def action(a: int) -> Any:
    return jnp.int32(a)


def evenly(density: float) -> Any:
    return f32(np.full(10, density / 10))


# --- the parts of a year, by hand


def test_constants() -> None:
    species = Species()
    assert species.area == pytest.approx(AREA)
    assert species.carrying_density == pytest.approx(K) == pytest.approx(1.9186, abs=1e-4)
    assert species.growth_rate == pytest.approx(R) == pytest.approx(1.2879, abs=1e-4)
    assert np.abs(np.linalg.eigvals(species.leslie)).max() == pytest.approx(1)
    assert species.leslie[0] / species.leslie[9, 9] == pytest.approx(
        np.array(species.fecundities) * 0.5 * 0.857 / 0.818
    )
    # After 50 free years abalone are at the capacity of those years, in stable shares.
    assert species.initial_ages == pytest.approx(0.23 * species.stable_ages, rel=1e-4)
    assert species.leslie @ species.stable_ages == pytest.approx(species.stable_ages)


def test_growth_of_abalone_is_that_of_beverton_and_holt() -> None:
    species = Species()
    for density in (0.01, 0.5, 1.5):
        grown = species.abalone_grown(f32(density * species.stable_ages))
        rate = R * K / (R * density - density + K)
        assert np.asarray(grown) == pytest.approx(rate * density * species.stable_ages, rel=1e-5)
    # One abalone per m² of age 4 and nothing else: births by its fecundity, and the survivors are of age 5.
    alone = np.asarray(species.abalone_grown(f32(np.eye(10)[0])))
    rate = R * K / (R - 1 + K)
    assert alone[:2] == pytest.approx(rate * species.leslie[:2, 0], rel=1e-5)
    assert not alone[2:].any()
    # The oldest stay among the oldest, and age 12 joins them.
    pooled = np.asarray(species.abalone_grown(f32(0.5 * (np.eye(10)[8] + np.eye(10)[9]))))
    assert pooled[9] == pytest.approx(rate * species.leslie[9, 9], rel=1e-5)


def test_juvenile_survival_shapes_the_ages_only() -> None:
    high, low = Species(), Species(juvenile_survival="low")
    assert low.stable_ages[0] < high.stable_ages[0]
    assert Species(juvenile_survival=0.227).stable_ages == pytest.approx(low.stable_ages)
    grown = [float(s.abalone_grown(f32(s.stable_ages)).sum()) for s in (high, low)]
    assert grown[0] == pytest.approx(grown[1], rel=1e-5)


def test_otters_grow_and_spills_kill() -> None:
    species = Species()
    grown = 1000 * np.exp(0.191 * (1 - 1000 / 4073))
    assert species.otters_grown(f32(1000), NO_SPILL) == pytest.approx(grown, rel=1e-6)
    assert species.otters_grown(f32(4073), NO_SPILL) == 4073
    assert species.otters_grown(f32(0), f32(0.0)) == 0
    assert species.otters_grown(f32(1000), f32(0.0)) == pytest.approx(grown * (1 - 0.23), rel=1e-6)
    assert species.otters_grown(f32(1000), f32(0.05)) == pytest.approx(grown * (1 - 0.325), rel=1e-6)
    assert species.otters_grown(f32(1000), f32(0.0999999)) == pytest.approx(grown * (1 - 0.42), rel=1e-4)
    assert species.otters_grown(f32(1000), f32(0.1)) == pytest.approx(grown, rel=1e-6)
    # 12 · e^.19 · .58 = 8.4 < 10 die out; 12 · e^.19 · .77 = 11.2 do not; and without a spill even 5 live on.
    assert species.otters_grown(f32(12), f32(0.0999)) == 0
    assert species.otters_grown(f32(12), f32(0.0)) == pytest.approx(12 * np.exp(0.191 * (1 - 12 / 4073)) * 0.77)
    assert species.otters_grown(f32(5), NO_SPILL) > 5
    assert Species(spill_probability=0).otters_grown(f32(1000), f32(0.0)) == pytest.approx(grown, rel=1e-6)


def test_introduction() -> None:
    species, careful = Species(), Species(forbid_reintroduction=True)
    assert species.introduce(f32(0), action(INTRODUCE)) == 100
    assert species.introduce(f32(3000), action(INTRODUCE)) == 100
    assert species.introduce(f32(3000), action(ENFORCE)) == 3000
    assert careful.introduce(f32(0), action(INTRODUCE)) == 100
    assert careful.introduce(f32(3000), action(INTRODUCE)) == 3000


def test_action_mask() -> None:
    none = Species().reset(jax.random.key(0))[0]
    some = none._replace(otters=f32(50))
    assert Species().action_mask(some).all()
    careful = Species(forbid_reintroduction=True)
    assert careful.action_mask(none).all()
    assert careful.action_mask(some).tolist() == [True, False, True, True, True]


def test_culling() -> None:
    species, level = Species(), 0.6 * 4073
    assert species.control(f32(4000), action(CONTROL)) == pytest.approx(level)
    assert species.control(f32(4000), action(HALF)) == pytest.approx((4000 + level) / 2)
    assert species.control(f32(4000), action(NOTHING)) == 4000
    for a in (CONTROL, HALF):
        assert species.control(f32(1000), action(a)) == 1000
    adding = Species(half_control_adds=True)
    assert adding.control(f32(1000), action(HALF)) == pytest.approx((1000 + level) / 2)
    assert adding.control(f32(1000), action(CONTROL)) == 1000


@pytest.mark.parametrize(
    ("response", "index", "d_max", "p_max"),
    [("weak", 1, K, 6), ("medium", 2, K, 12), ("published", 3, 2 * K / 3, 18), ("strong", 4, K / 3, 18)],
)
def test_linear_response(response: str, index: int, d_max: float, p_max: int) -> None:
    for named in (response, index, (d_max / K, p_max)):
        species = Species(response=named)
        assert species.consumption(f32(d_max / 2)) == pytest.approx(p_max / 2, rel=1e-5)
        assert species.consumption(f32(3 * d_max)) == pytest.approx(p_max, rel=1e-5)
    assert Species(response=response, predation_saturates=False).consumption(f32(3 * d_max)) == pytest.approx(3 * p_max)


def test_hyperbolic_response() -> None:
    species = Species(response=(1, 18), functional_form="hyperbolic", foraging_success=0.13)
    most = 0.4 * 0.13 * 86400 / 166
    assert species.consumption(f32(K)) == pytest.approx(18, rel=1e-5)
    assert species.consumption(f32(1e6)) == pytest.approx(most, rel=1e-4)
    half = K * (most / 18 - 1)
    assert species.consumption(f32(half)) == pytest.approx(most / 2, rel=1e-5)


def test_predation_takes_the_same_from_each_age() -> None:
    species = Species()
    ages = f32(np.arange(1, 11) / 55)  # one abalone per m²
    removed = 18 / (2 * K / 3) * 365 * 2000 / AREA
    assert np.asarray(species.eaten(ages, f32(2000))) == pytest.approx(np.asarray(ages) - removed / 10, rel=1e-5)
    assert np.array_equal(species.eaten(ages, f32(0)), ages)
    # An age that has not as many loses all it has, and the others make up for it.
    one_missing = f32(np.append(0, np.full(9, 1 / 9)))
    left = np.asarray(species.eaten(one_missing, f32(2000)))
    assert left[0] == 0
    assert left[1:] == pytest.approx((1 - removed) / 9, rel=1e-5)
    # Otters that could eat more than there is leave nothing, and not less than nothing.
    hungry = Species(response=(0.01, 1000))
    assert not np.asarray(hungry.eaten(evenly(0.01), f32(4073))).any()


@pytest.mark.parametrize(
    ("a", "much", "little"),
    [
        (NOTHING, 0.23, 0.17),
        (INTRODUCE, 0.11, 0.09),
        (ENFORCE, 0.11, 0.09),
        (CONTROL, 0.23, 0.17),
        (HALF, 0.165, 0.135),
    ],
)
def test_poaching(a: int, much: float, little: float) -> None:
    species = Species()
    for luck, share in ((MUCH, much), (LITTLE, little)):
        assert np.asarray(species.poached(evenly(1.0), action(a), luck)) == pytest.approx(0.1 * (1 - share), rel=1e-5)
        assert np.asarray(species.poached(evenly(0.009), action(a), luck)) == pytest.approx(0.0009 * 0.99, rel=1e-5)
    assert Species(introduction_enforces=False).poaching_shares[INTRODUCE].tolist() == [0.23, 0.17]


def test_a_year_has_its_order() -> None:
    species = Species(response="strong")
    ages, otters = species.initial_ages, 3900.0
    grown = species.abalone_grown(f32(ages))
    many = min(otters * np.exp(0.191 * (1 - otters / 4073)), 4073)
    culled = 0.6 * 4073
    assert many > culled
    left = np.asarray(grown) - 0.1 * culled * 365 / AREA * 18 * float(grown.sum()) / (K / 3)
    after = species.year(SpeciesState(f32(ages), f32(otters), action(7)), action(CONTROL), NO_SPILL, MUCH)
    assert after.otters == pytest.approx(culled)
    assert np.asarray(after.ages) == pytest.approx(0.77 * left, rel=1e-4)
    assert after.year == 8


# --- observations and rewards


def test_observations() -> None:
    state = SpeciesState(f32(Species().stable_ages * K), f32(4073), action(0))
    assert np.asarray(Species().observe(state)) == pytest.approx(np.ones(11), rel=1e-5)
    raw = Species(observation="raw")
    assert np.asarray(raw.observe(state)) == pytest.approx(np.append(raw.stable_ages * K * AREA, 4073), rel=1e-5)
    for species in (Species(), raw):
        again = species.state_of(species.observe(state))
        assert np.asarray(again.ages) == pytest.approx(np.asarray(state.ages), rel=1e-5)
        assert again.otters == pytest.approx(4073)
    levels = Species(observation="levels")
    assert levels.observe(state).tolist() == [21, 39]
    assert levels.observe(SpeciesState(evenly(0.0), f32(0), action(0))).tolist() == [1, 1]
    assert levels.observe(SpeciesState(evenly(0.07), f32(203), action(0))).tolist() == [2, 2]
    with pytest.raises(InputError, match="levels"):
        levels.state_of(f32([1, 1]))


def test_rewards() -> None:
    state = SpeciesState(evenly(0.5), f32(4073 / 2), action(0))
    assert np.asarray(Species().worth(state)) == pytest.approx([0.5, 0.5])
    jr = Species(reward="JR")
    for density, worth in ((0, 0), (0.02, 0.3), (0.1, 0.4), (0.5, 0.6), (K, 1), (2.5, 1)):
        assert np.asarray(jr.worth(state._replace(ages=evenly(density)))) == pytest.approx([0.5, worth], abs=1e-5)
    densities = np.linspace(0, 2, 101)
    worths = np.array([jr.worth(state._replace(ages=evenly(d)))[1] for d in densities])
    assert (np.diff(worths) >= -1e-6).all()
    assert worths == pytest.approx(jr.joint_recovery(np.minimum(densities, K)), abs=1e-5)


def test_an_episode_is_truncated_and_never_terminated() -> None:
    species = Species(episode_steps=3)
    state, _ = species.reset(jax.random.key(0))
    truncated = []
    for key in jax.random.split(jax.random.key(1), 3):
        step = species.step(state, 0, key)
        state = step.state
        truncated.append(bool(step.truncated))
        assert not step.terminated
    assert truncated == [False, False, True]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"response": "strog"}, "did you mean strong"),
        ({"response": 5}, "response must be weak"),
        ({"response": (0, 18)}, "positive"),
        ({"juvenile_survival": "hi"}, "did you mean high"),
        ({"observation": "scale"}, "did you mean scaled"),
        ({"reward": "jr"}, "did you mean JR"),
        ({"functional_form": "linera"}, "did you mean linear"),
        ({"spill_probability": 1.5}, "spill_probability must lie between 0 and 1"),
        ({"spill_deaths": (0.2, 1.2)}, "spill_deaths"),
        ({"enforced_spread": 0.2}, "enforced_spread"),
        ({"episode_steps": 0}, "episode_steps must be positive"),
        ({"areas": (1, -1)}, "areas must not be negative"),
        ({"fecundities": (1, 1)}, "ten numbers"),
        ({"female_share": 0}, "female_share"),
        ({"growth_rates": (0.5, 0.9)}, "growth_rates"),
        ({"functional_form": "hyperbolic", "foraging_success": 0.05}, "can eat 10.4 a day"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Species(**given)


# --- properties

VARIANTS = [
    Species(),
    Species(response="strong", observation="raw", reward="JR"),
    Species(response="strong", predation_saturates=False, half_control_adds=True, observation="levels"),
    Species(response=(1, 18), functional_form="hyperbolic", juvenile_survival="low", forbid_reintroduction=True),
]
STEPS = [jax.jit(jax.vmap(species.step)) for species in VARIANTS]


@pytest.mark.parametrize("variant", range(len(VARIANTS)))
@given(data=st.data())
@settings(max_examples=25)
def test_populations_stay_within_bounds(variant: int, data: st.DataObject) -> None:
    """From any state within the bounds, whatever is done and happens."""
    species, n = VARIANTS[variant], 64
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    ages = rng.dirichlet(np.full(10, data.draw(st.sampled_from([0.05, 1.0, 20.0]))), n)
    ages *= species.largest_density * rng.uniform(0, 1, (n, 1)) ** data.draw(st.sampled_from([0, 1, 4]))
    ages = np.minimum(ages, species.largest_ages)
    otters = rng.choice([0.0, 10, 100, 4073], n) * rng.uniform(0, 1, n)
    states = SpeciesState(f32(ages), f32(otters), jnp.zeros(n, jnp.int32))
    keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), n)
    step = STEPS[variant](states, jnp.asarray(rng.integers(0, 5, n), jnp.int32), keys)
    for name, values, space in (
        ("observation", step.observation, species.observation_space),
        ("reward", step.reward, species.reward_space),
    ):
        values = np.asarray(values)
        assert (values >= space.low).all(), name
        assert (values <= space.high).all(), name
    after = np.asarray(step.state.ages)
    assert (after >= 0).all()
    assert (after <= (1 + 1e-5) * species.largest_ages).all()
    assert (after.sum(axis=1) <= (1 + 1e-5) * species.largest_density).all()
    assert ((np.asarray(step.state.otters) >= 0) & (np.asarray(step.state.otters) <= 4073)).all()


@given(ages=st.lists(st.floats(0, 1, width=32), min_size=10, max_size=10), otters=st.floats(0, 4073, width=32))
@settings(max_examples=50)
def test_what_is_eaten_is_what_otters_eat(ages: list[float], otters: float) -> None:
    species = Species(response=(0.05, 100))  # so hungry that ages run out
    density = float(np.sum(ages))
    before, left = f32(ages), np.asarray(species.eaten(f32(ages), f32(otters)), float)
    wanted = otters * float(species.consumption(f32(density))) * 365 / AREA
    assert (left >= 0).all()
    assert (left <= np.asarray(before) * (1 + 1e-5)).all()
    assert left.sum() == pytest.approx(density - min(wanted, density), rel=1e-4, abs=1e-6)


def simulator(species: Species, years: int, runs: int) -> Any:
    """Of an action in the first year and another ever after, a function that gives the rewards [runs, years, D]."""

    def run(key: Any, first: Any, then: Any) -> Any:
        def year(state: SpeciesState, key: Any) -> Any:
            step = species.step(state, jnp.where(state.year == 0, first, then), key)
            return step.state, step.reward

        return jax.lax.scan(year, species.reset(key)[0], jax.random.split(key, years))[1]

    many = jax.jit(jax.vmap(run, (0, None, None)))
    return lambda first, then: np.asarray(many(jax.random.split(jax.random.key(0), runs), first, then), float)


@pytest.mark.parametrize(
    ("response", "with_otters", "ggf"), [("published", (0.79, 0.57), 0.645), ("strong", (0.79, 0.08), 0.32)]
)
def test_measured_figures(response: str, with_otters: tuple[float, float], ggf: float) -> None:
    """Enforcement in 3,650 years, with otters introduced once, and without."""
    simulate = simulator(Species(response=response), 3650, 16)
    mean = simulate(INTRODUCE, ENFORCE).mean(axis=(0, 1))
    assert mean == pytest.approx(np.array(with_otters), abs=0.012)
    assert GGF.value(mean) == pytest.approx(ggf, abs=0.005)
    mean = simulate(ENFORCE, ENFORCE).mean(axis=(0, 1))
    assert mean == pytest.approx(np.array([0, 1.06]), abs=0.005)
    assert GGF.value(mean) == pytest.approx(0.352, abs=0.002)


def test_it_can_be_traced_and_batched() -> None:
    species = Species()
    assert isinstance(species, PureEnv)
    assert hash(species) == hash(Species())
    assert species == Species()
    assert species != dataclasses.replace(species, response="strong")
    assert pickle.loads(pickle.dumps(species)) == species  # noqa: S301
    states, _ = jax.vmap(species.reset)(jax.random.split(jax.random.key(0), 7))
    step = jax.jit(jax.vmap(species.step))(states, jnp.zeros(7, int), jax.random.split(jax.random.key(1), 7))
    assert step.reward.shape == (7, 2)
    assert step.reward.dtype == step.observation.dtype == step.state.ages.dtype == jnp.float32


# --- Gymnasium


@pytest.mark.parametrize("observation", ["scaled", "raw", "levels"])
def test_gym_and_pure_environment_agree_bit_for_bit(observation: str) -> None:
    species = Species(response="strong", observation=observation)
    env = GymEnv(species)
    seen, _ = env.reset(seed=5)
    key, sub = jax.random.split(jax.random.key(5))
    state, expected = jax.jit(species.reset)(sub)
    assert np.array_equal(seen, expected)
    step_by_hand = jax.jit(species.step)
    for a in np.random.default_rng(0).integers(0, 5, 100):
        key, sub = jax.random.split(key)
        step = step_by_hand(state, a, sub)
        state = step.state
        seen, reward, terminated, truncated, _ = env.step(a)
        assert np.array_equal(seen, step.observation)
        assert np.array_equal(reward, step.reward)
        assert (terminated, truncated) == (False, False)


def test_gym_resets() -> None:
    env = gymnasium.make("evenhand/species-v0", episode_steps=2)
    env.reset(seed=1)
    first = [env.step(1)[1].tolist(), env.step(1)[1].tolist()]
    env.reset()
    assert [env.step(1)[1].tolist(), env.step(1)[1].tolist()] != first  # the chain of keys goes on
    env.reset(seed=1)
    assert [env.step(1)[1].tolist(), env.step(1)[1].tolist()] == first
    ends = [(env.reset(), env.step(0), env.step(0))[2][2:4] for _ in range(2)]
    assert ends == [(False, True)] * 2
    for other in (GymEnv(Species()), GymEnv(Species())):  # from entropy, without a seed
        other.reset()
        other.step(0)


def test_gym_spaces_and_rewards() -> None:
    env = mo_gymnasium.make("evenhand/species-v0", response="strong")
    assert env.unwrapped.reward_space.shape == (2,)
    assert env.unwrapped.reward_dim == 2
    assert env.unwrapped.env == Species(response="strong")
    observation, _ = env.reset(seed=0)
    assert env.observation_space.contains(observation)
    rng = np.random.default_rng(0)
    for a in rng.integers(0, 5, 200):
        observation, reward, *_ = env.step(a)
        assert reward.dtype == np.float32
        assert env.observation_space.contains(observation)
        assert env.unwrapped.reward_space.contains(reward)
    linear = mo_gymnasium.wrappers.LinearReward(env, weight=np.array([0.5, 0.5]))
    linear.reset(seed=0)
    assert np.isscalar(linear.step(2)[1])


def test_gym_checks_out() -> None:
    register()  # as often as one likes
    with warnings.catch_warnings():
        # What remains is that rewards are vectors.
        warnings.filterwarnings("ignore", message=".*The reward returned by `step\\(\\)` must be a float.*")
        check_env(gymnasium.make("evenhand/species-v0").unwrapped)


def test_gym_mask_and_mistakes() -> None:
    env = GymEnv(Species(forbid_reintroduction=True))
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    assert env.action_mask().tolist() == [1, 1, 1, 1, 1]
    env.step(INTRODUCE)
    assert env.action_mask().tolist() == [1, 0, 1, 1, 1]
    assert env.action_space.sample(env.action_mask()) != INTRODUCE
    for wrong in (5, -1, 0.5, "enforce"):
        with pytest.raises(InputError, match="action"):
            env.step(wrong)
    with pytest.raises(InputError, match="rgb_array"):
        GymEnv(Species(), render_mode="human")
    with pytest.raises(InputError, match="pure environment"):
        GymEnv("species")


def test_gym_can_be_pickled_in_the_middle_of_an_episode() -> None:
    env = gymnasium.make("evenhand/species-v0", render_mode="rgb_array").unwrapped
    env.reset(seed=3)
    env.step(1)
    again = pickle.loads(pickle.dumps(env))  # noqa: S301
    for a in (2, 1, 4, 0):
        left, right = env.step(a), again.step(a)
        assert np.array_equal(left[0], right[0])
        assert np.array_equal(left[1], right[1])
    assert np.array_equal(env.render(), again.render())
    env.reset()
    again.reset()
    assert np.array_equal(env.step(2)[1], again.step(2)[1])
    fresh = pickle.loads(pickle.dumps(GymEnv(Species())))  # noqa: S301
    fresh.reset(seed=0)


def test_rendering_draws_both_populations() -> None:
    env = gymnasium.make("evenhand/species-v0", render_mode="rgb_array")
    env.reset(seed=0)
    start = env.render()
    for year in range(60):
        env.step(INTRODUCE if year == 10 else ENFORCE)
    image = env.render()
    assert image.dtype == np.uint8
    assert image.shape == start.shape == (320, 600, 3)
    assert (image != start).any()
    assert {(31, 119, 180), (255, 127, 14)} <= {tuple(pixel) for pixel in image.reshape(-1, 3).tolist()}
    blind = GymEnv(Species())
    blind.reset(seed=0)
    with pytest.warns(UserWarning, match="rgb_array"):
        assert blind.render() is None


@dataclasses.dataclass
class Walk:
    """An environment with a continuous action, no picture of its own, and no hash."""

    objectives: tuple[str, ...] = ("up", "down")
    observation_space: Box = dataclasses.field(default_factory=lambda: Box.of(-np.inf, np.inf, 1))
    action_space: Any = dataclasses.field(default_factory=lambda: Box.of(-1, 1, 1))
    reward_space: Box = dataclasses.field(default_factory=lambda: Box.of(-np.inf, np.inf, 2))

    def reset(self, key: Any) -> Any:
        return jnp.zeros(1), jnp.zeros(1)

    def step(self, state: Any, action: Any, key: Any) -> Step:
        state = state + action
        return Step(state, state, jnp.concatenate([state, -state]), jnp.bool_(False), jnp.bool_(False))


def test_any_pure_environment_can_be_wrapped() -> None:
    env = GymEnv(Walk(), render_mode="rgb_array")
    env.reset(seed=0)
    assert env.render().shape == (320, 600, 3)
    _, reward, *_ = env.step(np.array([0.5], np.float32))
    assert reward.tolist() == [0.5, -0.5]
    env.step(np.array([-1], np.float32))
    assert env.render().std() > 0
    with pytest.raises(InputError, match="finite"):
        env.action_mask()
    finite = GymEnv(Walk(action_space=Discrete(3)))
    finite.reset(seed=0)
    assert finite.action_mask().tolist() == [1, 1, 1]
    assert line_plot({"one": [1.0], "none": []}, across="x").dtype == np.uint8


def test_registering_does_not_wait_for_jax() -> None:
    code = "import sys, evenhand.envs.gym.gym_env as g; g.register(); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the exact reference


def test_reproductive_value_grows_by_the_rate_whatever_the_ages() -> None:
    reference = SpeciesReference(Species())
    for ages in np.random.default_rng(0).dirichlet(np.ones(10), 5):
        grown = np.asarray(reference.species.abalone_grown(f32(ages)), float)
        assert reference.values @ grown == pytest.approx(R * K / (R - 1 + K) * reference.values @ ages, rel=1e-5)
    assert reference.values @ reference.species.stable_ages == pytest.approx(1)


def test_settled_ages_are_those_of_the_environment() -> None:
    """After a hundred years with a constant number of otters, the ages are what the model takes them to be."""
    species = Species(response="strong", spill_probability=0, otter_growth=0, initial_otters=2000, enforced_spread=0)
    state, _ = species.reset(jax.random.key(0))
    step = jax.jit(species.step)
    for _ in range(100):
        state = step(state, ENFORCE, jax.random.key(0)).state
    reference = SpeciesReference(species)
    ages = np.asarray(state.ages, float)
    folded = reference.ages_of(np.array([reference.values @ ages]), np.array([2000.0]))[0]
    assert folded == pytest.approx(ages, rel=2e-3)
    assert abs(folded.sum() / ages.sum() - 1) < 2e-4
    assert abs(species.stable_ages - ages / ages.sum()).max() > 0.02  # which proportional predation would miss


@given(value=st.floats(0, 1.14), otters=st.floats(10, 4073))
@settings(max_examples=50)
def test_splitting_keeps_the_mean(value: float, otters: float) -> None:
    reference = SpeciesReference(Species(), 11, 9)
    value = max(value, float(reference.value_grid[0]))
    points, weights = reference.split(np.float64(value), np.float64(otters))
    assert weights.sum() == pytest.approx(1)
    assert (weights >= 0).all()
    assert weights @ reference.value_grid[points // 9] == pytest.approx(value)
    assert weights @ reference.otter_grid[points % 9] == pytest.approx(otters)
    points, weights = reference.split(np.float64(value), np.float64(0))
    assert (points[weights > 0] % 9 == 0).all()


def test_the_model_follows_the_environment_in_a_year() -> None:
    reference = SpeciesReference(Species(response="strong"), 21, 21)
    model, state = reference.model, 12 * 21 + 15
    value, otters = reference.value_grid[12], reference.otter_grid[15]
    ages = f32(reference.ages_of(np.array([value]), np.array([otters]))[0])
    start = SpeciesState(ages, f32(otters), action(0))
    many = jax.jit(jax.vmap(lambda key: reference.species.step(start, ENFORCE, key)))
    steps = many(jax.random.split(jax.random.key(0), 20_000))
    assert model.rewards[state, ENFORCE] == pytest.approx(np.asarray(steps.reward, float).mean(axis=0), rel=2e-3)
    row = model.transitions[[state * 5 + ENFORCE]].toarray()[0].reshape(21, 21)
    assert row.sum(axis=0) @ reference.otter_grid == pytest.approx(float(steps.state.otters.mean()), rel=2e-3)
    values = np.asarray(steps.state.ages, float) @ reference.values
    assert row.sum(axis=1) @ reference.value_grid == pytest.approx(values.mean(), rel=2e-3)


@pytest.mark.parametrize(("response", "then"), [("strong", ENFORCE), ("published", HALF)])
def test_constant_policies_bring_the_same_in_model_and_environment(response: str, then: int) -> None:
    """Introduce where there are no otters, and then always the same: discounted returns, to half a percent or so."""
    reference = SpeciesReference(Species(response=response), 61, 61)
    model = reference.model
    policy = np.where(np.arange(model.S) % 61 == 0, INTRODUCE, then)
    expected = 0.01 * eh.evaluate(model, policy, gamma=0.99)
    rewards = simulator(reference.species, 1000, 1000)(INTRODUCE, then)
    seen = np.einsum("nyd,y->d", rewards, 0.01 * 0.99 ** np.arange(1000)) / 1000
    assert expected == pytest.approx(seen, rel=0.008)


def test_small_reference_is_near_the_large_one() -> None:
    reference = SpeciesReference(Species(response="strong"), 31, 31)
    optimum = reference.discounted(GGF)
    assert optimum.solution.status == "optimal"
    assert optimum.gap < 1e-5
    assert optimum.welfare == pytest.approx(0.4811, rel=0.006)
    assert optimum.welfare > 0.465  # better than a draw between the two extremes
    assert reference.model.S == 31 * 31
    state, observation = reference.species.reset(jax.random.key(0))
    probabilities = optimum.policy.probabilities(state)
    assert probabilities.sum() == pytest.approx(1)
    chosen, _ = optimum.policy.step(jnp.zeros(1, int), observation[None], jax.random.key(0))
    assert chosen[0] == optimum.policy(state, jax.random.split(jax.random.key(0), 1)[0])
    played = eh.evaluate_policy(reference.species, optimum.policy, 200, 0.99, most_steps=800).returns("discounted")
    assert played.sum() == pytest.approx(optimum.returns.sum(), rel=0.03)
    score = simulate(reference, optimum.policy, jax.random.key(0), gamma=0.99, years=800, episodes=400)
    # Who gets more is a matter of small differences; what both get together is not.
    assert score.returns.sum() == pytest.approx(optimum.returns.sum(), rel=0.03)
    with pytest.raises(InputError, match="3 levels"):
        SpeciesReference(Species(), 2, 2)


@pytest.mark.slow
def test_the_optimum_is_reached_in_the_environment() -> None:
    """The test above has a discounted one, with the other response; `make soak` has all four."""
    reach_the_optimum("published", "average")
