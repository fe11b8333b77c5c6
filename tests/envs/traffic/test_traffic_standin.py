"""The compiled stand-in for SUMO: the driver's formulas, what may never happen on a road, and how close it comes."""

from __future__ import annotations

import math
import pickle

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import Array

import evenhand as eh
from evenhand.envs import resolve
from evenhand.envs.check import check_pure
from evenhand.envs.check.check_host import check_env
from evenhand.envs.traffic import FixedCycle, LongestQueue, TrafficEnv, standin
from evenhand.envs.traffic.demand import Arrivals, day
from evenhand.envs.traffic.junction import ARMS, LANE_LENGTH, MOVEMENTS
from evenhand.envs.traffic.standin import BRAKING, GREENS, NOWHERE, Cars, Junction
from evenhand.envs.traffic.standin_env import StandinEnv, StandinState, cars_of
from evenhand.types import Step


def standin_env(**settings: object) -> StandinEnv:
    made = resolve("traffic", {"backend": "standin", **settings})
    assert isinstance(made, StandinEnv)
    return made


class TestDrivers:
    """Against the sums that the formulas stand for."""

    @given(st.floats(0, 40))
    def test_braking_distance(self, speed: float) -> None:
        gone, left = 0.0, speed - BRAKING
        while left > 0:  # a second at each speed that is left after braking
            gone, left = gone + left, left - BRAKING
        assert float(standin.braking_distance(jnp.float32(speed))) == pytest.approx(gone, abs=1e-3)

    @given(st.floats(0.01, 200))
    def test_a_car_stops_within_its_room_and_wastes_none(self, room: float) -> None:
        speed = float(standin.stopping_speed(jnp.float32(room)))
        used = speed + float(standin.braking_distance(jnp.float32(speed)))
        assert used == pytest.approx(room, abs=2e-3)

    @given(st.floats(0, 150), st.floats(1, 14))
    def test_a_car_reaches_a_turn_at_its_speed(self, distance: float, target: float) -> None:
        """Going on at the speed allowed, and braking from then on, it is not faster than the target at the turn."""
        speed, left = float(standin.approaching_speed(jnp.float32(distance), jnp.float32(target))), distance
        assert speed >= target - 1e-4
        seconds = 0
        while left - speed > 1e-3 and speed > target:
            left, seconds = left - speed, seconds + 1
            allowed = float(standin.approaching_speed(jnp.float32(left), jnp.float32(target)))
            assert allowed >= speed - BRAKING - 1e-3  # braking suffices
            speed = min(speed, allowed)
        assert seconds < 60

    def test_golden_values(self) -> None:
        """By hand: from 13.9 m/s one brakes to 9.4, 4.9 and 0.4; 13.9 + 14.7 = 28.6 m with a second to react."""
        assert float(standin.braking_distance(jnp.float32(13.9))) == pytest.approx(14.7, abs=1e-4)
        assert float(standin.stopping_speed(jnp.float32(28.601))) == pytest.approx(13.9, abs=1e-4)
        assert float(standin.stopping_speed(jnp.float32(0.0))) == 0.0
        assert float(standin.approaching_speed(jnp.float32(0.0), jnp.float32(6.5))) == pytest.approx(6.5)


def alone(position: float, speed: float, lane: int = 0, right: bool = False) -> Cars:
    """One car on the road."""
    cars = standin.empty(jnp.int32(0)).cars
    return Cars(
        cars.position.at[0, lane].set(position),
        cars.speed.at[0, lane].set(speed),
        cars.wish,
        cars.right.at[0, lane].set(right),
        cars.waited,
    )


def driven(cars: Cars, green: bool, seconds: int) -> list[tuple[float, float]]:
    """Positions and speeds of the only car, second by second, if it never dawdles."""
    seen = []
    for _ in range(seconds):
        cars = a_second(cars, green)
        seen.append((float(cars.position[0, 0]), float(cars.speed[0, 0])))
    return seen


@jax.jit
def a_second(cars: Cars, green: Array) -> Cars:
    return standin.moved(cars, standin.leaders(cars), jnp.full(8, green), jnp.zeros_like(cars.position))


class TestLights:
    def test_at_red_one_stops_a_metre_before_the_line(self) -> None:
        position, speed = driven(alone(50, 13.9), green=False, seconds=30)[-1]
        assert LANE_LENGTH - 1.1 <= position <= LANE_LENGTH - 0.1
        assert speed < 0.1

    def test_who_cannot_stop_goes_on(self) -> None:
        position, speed = driven(alone(LANE_LENGTH - 14, 13.9), green=False, seconds=2)[-1]
        assert position > LANE_LENGTH
        assert speed == pytest.approx(13.9)

    def test_at_green_one_goes_on_and_slows_down_only_to_turn(self) -> None:
        assert min(speed for _, speed in driven(alone(50, 13.9), green=True, seconds=9)) == pytest.approx(13.9)
        turning = driven(alone(50, 13.9, right=True), green=True, seconds=12)
        after = [speed for position, speed in turning if LANE_LENGTH < position < LANE_LENGTH + 9]
        assert after
        assert max(after) == pytest.approx(6.51, abs=0.01)

    def test_from_a_standstill(self) -> None:
        speeds = [speed for _, speed in driven(alone(50, 0.0), green=True, seconds=6)]
        assert speeds == pytest.approx([2.6, 5.2, 7.8, 10.4, 13.0, 13.9])


class TestRoads:
    def test_nobody_overlaps_and_nobody_crosses_on_red(self) -> None:
        """While each phase has green for one decision, and then for four."""
        env = standin_env()
        state, _ = env.reset(jax.random.key(0))
        junction, rates = state.junction, env.rates

        @jax.jit
        def second(at: Junction, green: Array, bits: Array) -> Junction:
            return standin.second(at, standin.leaders(at.cars), green, rates.at(at.time), bits)

        held = [14] * 40 + [56] * 11
        seconds = [(phase, clock) for phase, length in enumerate(held, 1) for clock in range(length)]
        every_bit = np.asarray(standin.random_bits(jax.random.key(1), len(seconds)))
        crossed = 0
        for (phase, clock), bits in zip(seconds, every_bit, strict=True):
            green = GREENS[phase % 4] & (clock >= 4)  # it warmed up until phase 0 had green
            after: Junction = second(junction, green, bits)
            before, now = np.asarray(junction.cars.position), np.asarray(after.cars.position)
            crossing = (before <= LANE_LENGTH) & (now > LANE_LENGTH) & (now < NOWHERE)
            legal = green | (clock < 4) & GREENS[(phase - 1) % 4]
            assert not crossing[:, ~legal].any()
            crossed += crossing.sum()
            for lane, newest in enumerate(np.asarray(after.newest)):
                line = np.roll(now[:, lane], -int(newest) - 1)  # oldest first
                line = line[line < NOWHERE]
                line = line[line <= LANE_LENGTH]
                assert (line[:-1] - line[1:] >= standin.LENGTH - 1e-3).all()
            junction = after
        assert crossed > 500
        # Whoever came was refused, has left, or is still there: nobody is lost.
        assert float(junction.served.sum()) > 500

    def test_cars_are_neither_lost_nor_made(self) -> None:
        """All come in the first span and none from the west: what came is served in the end, and nobody waits there."""
        table = tuple(Arrivals(a, b, 0.0 if a == "W" else 0.1, 0, 600) for a, b in MOVEMENTS)
        env = standin_env(demand=table, episode_seconds=1400, warm_up=0)

        @jax.jit
        def step(state: StandinState, observation: Array, key: Array) -> Step:
            return env.step(state, LongestQueue().decide(observation[None], jnp.zeros(1, int))[0], key)

        state, observation = env.reset(jax.random.key(0))
        waited = np.zeros(4)
        for t in range(100):
            after: Step = step(state, observation, jax.random.key(t))
            state, observation = after.state, after.observation
            waited -= np.asarray(after.reward)
        assert waited[3] == 0
        assert (waited[:3] > 0).all()
        junction = state.junction
        assert (np.asarray(junction.cars.position) == NOWHERE).all()
        entered = float(junction.served.sum())
        # 9 movements, 600 s, one in ten; some are refused
        assert entered + float(junction.refused.sum()) == pytest.approx(540, abs=5 * math.sqrt(540 * 0.9))
        assert entered > 300


class TestEnvironment:
    def test_check(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """In forty episodes; thousands more would take as long as all other tests here."""
        monkeypatch.setattr(check_pure, "STEPS", 50)
        assert [
            finding for finding in check_env(standin_env(episode_seconds=140, warm_up=0)) if finding.severity != "fine"
        ] == []

    def test_the_same_everywhere(self) -> None:
        """As pure environment and behind TrafficEnv: the same spaces, the same kind of numbers."""
        pure, host = standin_env(), TrafficEnv(backend="standin")
        np.testing.assert_array_equal(pure.observation_space.high, host.observation_space.high)
        np.testing.assert_array_equal(pure.reward_space.low, host.reward_space.low)
        host.reset(seed=3)
        waits = np.array([host.step(t // 3 % 4)[1] for t in range(400)])
        played = eh.evaluate_policy(pure, FixedCycle(3), episodes=16)
        np.testing.assert_allclose(waits.mean(axis=0), played.returns("average"), rtol=0.08)

    def test_seeds(self) -> None:
        env = TrafficEnv(backend="standin", episode_seconds=140)

        def episode(seed: int | None) -> list[list[float]]:
            seen = [env.reset(seed=seed)[0].tolist()]
            return seen + [env.step(t % 4)[1].tolist() for t in range(10)]

        first = episode(5)
        assert episode(5) == first
        assert episode(None) != first
        assert pickle.loads(pickle.dumps(env)).reset(seed=5)[0].tolist() == first[0]  # noqa: S301  (our own)

    def test_several_in_one_process(self) -> None:
        one, other = TrafficEnv(backend="standin"), TrafficEnv(backend="standin")
        assert not one.one_per_process
        np.testing.assert_array_equal(one.reset(seed=1)[0], other.reset(seed=1)[0])
        np.testing.assert_array_equal(one.step(2)[1], other.step(2)[1])

    def test_info_and_pictures(self) -> None:
        env = gymnasium.make("evenhand/traffic-v0", backend="standin", episode_seconds=280, render_mode="rgb_array")
        env.reset(seed=0)
        for t in range(20):
            *_, info = env.step(t // 2 % 4)
        assert info["served"].sum() > 50
        assert info["summary"]["collisions"] == 0
        assert (info["wait_per_car"] > 0).all()
        picture = env.render()
        assert picture.std() > 10
        pure = standin_env()
        state, _ = pure.reset(jax.random.key(0))
        assert pure.draw([state]).shape == picture.shape

    def test_cars_are_drawn_on_their_roads(self) -> None:
        """From every lane through the junction: continuous, and out on the arm that the car wants to reach."""
        nobody = standin.empty(jnp.int32(0))
        for number, (origin, destination) in enumerate(MOVEMENTS):
            lane = MOVEMENTS[number].lane
            right = (ARMS.index(destination) - ARMS.index(origin)) % 4 == 3
            positions, cars = np.arange(100, LANE_LENGTH + 30, 1.0), alone(100, 5.0, lane, right)
            places = []
            for some in np.array_split(positions, math.ceil(len(positions) / standin.SLOTS)):  # all slots of the lane
                filled = np.array(cars.position)
                filled[: len(some), lane] = some
                turning = np.repeat(cars.right[:1], len(filled), axis=0)
                found = cars_of(nobody._replace(cars=cars._replace(position=filled, right=turning)))
                places += [(car.x, car.y) for car in found]
            assert len(places) == len(positions)
            steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
            assert steps.max() < 2.5
            outwards = {"N": (0, 1), "E": (1, 0), "S": (0, -1), "W": (-1, 0)}[destination]
            assert np.dot(places[-1], outwards) > 10

    def test_timings(self) -> None:
        """Seconds pass as the timing says, for decisions that change the phase and for those that keep it."""
        pure, host = standin_env(timing="literal"), TrafficEnv(backend="standin", timing="literal")
        state, _ = pure.reset(jax.random.key(0))
        host.reset(seed=0)
        for action in (0, 0, 1, 2, 2, 3):
            state = jax.jit(pure.step)(state, jnp.int32(action), jax.random.key(1)).state
            info = host.step(action)[4]
            assert int(state.junction.time) == info["seconds"]

    def test_a_day(self) -> None:
        rates = standin.rates_of(day())
        assert rates.since == (0, 25_000, 50_000, 75_000, 100_000)
        morning, night = rates.at(jnp.int32(-100)), rates.at(jnp.int32(80_000))
        np.testing.assert_allclose(night, 0.15 * morning, rtol=1e-6)
        assert float(rates.at(jnp.int32(100_000)).sum()) == 0
        east, west = (MOVEMENTS.index(("E", to)) for to in ("W", "N"))
        assert float(rates.at(jnp.int32(60_000))[east]) == pytest.approx(0.5)
        assert float(rates.at(jnp.int32(60_000))[west]) == pytest.approx(0.5)
