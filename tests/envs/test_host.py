"""Finding environments by name, and describing those of other people."""

from __future__ import annotations

import functools
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

import faulty_envs
from evenhand.envs.core import PureEnv
from evenhand.envs.gym.host_env import HostEnv
from evenhand.envs.registry import DOMAINS, known, resolve
from evenhand.errors import InputError
from evenhand.types import Box, Discrete

# Several environments of MO-Gymnasium give their bounds in double precision.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")


def host(env: Any, **arguments: Any) -> HostEnv:
    found = resolve(env, arguments)
    assert isinstance(found, HostEnv)
    return found


class TestNames:
    @pytest.mark.parametrize("name", ["species", "evenhand/species-v0"])
    def test_ours_are_pure(self, name: str) -> None:
        env = resolve(name)
        assert isinstance(env, PureEnv)
        assert not isinstance(env, HostEnv)

    def test_ours_take_arguments(self) -> None:
        assert getattr(resolve("species", {"episode_steps": 7}), "episode_steps", None) == 7

    @pytest.mark.parametrize(
        ("name", "D", "observations", "actions"),
        [
            ("CartPole-v1", 1, 4, 2),
            ("deep-sea-treasure-v0", 2, 2, 4),
            ("resource-gathering-v0", 3, 4, 4),
            ("four-room-v0", 3, 14, 4),
            ("fruit-tree-v0", 6, 2, 2),
            ("minecart-v0", 3, 7, 6),
        ],
    )
    def test_other_peoples(self, name: str, D: int, observations: int, actions: int) -> None:
        env = host(name)
        assert env.name == name
        assert (env.D, env.reward_space.n, env.scalar_reward) == (D, D, D == 1)
        assert env.objectives == tuple(f"user {i}" for i in range(1, D + 1))
        assert env.observation_space.n == observations
        assert env.action_space == Discrete(actions)

    def test_vectors_as_actions(self) -> None:
        assert host("Pendulum-v1").action_space == Box.of(-2, 2, 1)

    def test_bounds_of_rewards_are_kept(self) -> None:
        assert host("resource-gathering-v0").reward_space == Box.of([-1, 0, 0], [0, 1, 1], 3)
        assert not host("CartPole-v1").reward_space.bounded

    def test_the_time_limit_stays(self) -> None:
        env = host("CartPole-v1").make()
        assert isinstance(env, gymnasium.wrappers.TimeLimit)
        env.close()

    def test_the_time_limit_can_be_chosen(self) -> None:
        env = host("CartPole-v1", max_episode_steps=3).make()
        env.reset(seed=0)
        assert [env.step(i % 2)[3] for i in range(3)] == [False, False, True]
        env.close()

    def test_mo_gymnasium_need_not_be_imported_by_the_user(self) -> None:
        code = "from evenhand.envs import resolve; print(len(resolve('deep-sea-treasure-v0').objectives))"
        result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
        assert result.stdout == "2\n", result.stderr

    def test_importing_the_package_imports_nothing_heavy(self) -> None:
        code = "import evenhand.envs, sys; print({'jax', 'mo_gymnasium'} & {*sys.modules})"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"

    def test_a_module_that_registers(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "someones_module.py").write_text(
            "import gymnasium\n"
            "gymnasium.register('someones/walk-v3', 'faulty_envs:Sound', max_episode_steps=9, kwargs={'size': 6})\n"
        )
        monkeypatch.syspath_prepend(tmp_path)
        env = host("someones_module:someones/walk-v3", wind=0.5)
        assert env.name == "someones/walk-v3"
        assert env.observation_space.n == 6
        assert env.objectives == ("ann", "bob", "cem")
        made = pickle.loads(pickle.dumps(env)).make()  # noqa: S301  (ours)
        assert (made.unwrapped.size, made.unwrapped.wind) == (6, 0.5)

    def test_known(self) -> None:
        assert [name for name, _ in known()] == [
            *DOMAINS,
            *(variant for domain in DOMAINS.values() for variant in domain.variants),
        ]
        assert all(about and "\n" not in about for _, about in known())


class TestWrongNames:
    @pytest.mark.parametrize(
        ("name", "near"),
        [("CartPol-v1", "CartPole-v1"), ("specis", "species"), ("deep-sea-tresure-v0", "deep-sea-treasure-v0")],
    )
    def test_the_nearest_are_suggested(self, name: str, near: str) -> None:
        with pytest.raises(InputError, match=f"no environment is called '{name}' .*did you mean.*{near}"):
            resolve(name)

    def test_nothing_near(self) -> None:
        with pytest.raises(InputError, match="no environment is called 'xyzzy'; ours are species"):
            resolve("xyzzy")

    def test_no_such_module(self) -> None:
        with pytest.raises(InputError, match="'no_such_module', which should register 'x-v0', cannot be imported"):
            resolve("no_such_module:x-v0")

    def test_something_not_installed(self) -> None:
        gymnasium.register("needs/missing-v0", "no_such_module:Env")
        try:
            with pytest.raises(InputError, match="needs something that is not installed"):
                resolve("needs/missing-v0")
        finally:
            del gymnasium.registry["needs/missing-v0"]

    def test_wrong_arguments(self) -> None:
        with pytest.raises(InputError, match=r"no argument 'sutton_barto' \(did you mean sutton_barto_reward"):
            resolve("CartPole-v1", {"sutton_barto": True})
        with pytest.raises(InputError, match=r"no argument 'colour'; it accepts size, wind\."):
            resolve(faulty_envs.Sound, {"colour": "red"})
        with pytest.raises(InputError, match=r"species has no argument 'respons' \(did you mean response"):
            resolve("species", {"respons": "weak"})

    def test_wrong_values_of_arguments(self) -> None:
        with pytest.raises(InputError, match="Sound could not be made: "):
            resolve(faulty_envs.Sound, {"size": "large"})

    def test_arguments_that_come_too_late(self) -> None:
        with pytest.raises(InputError, match="already made: the arguments size come too late"):
            resolve(HostEnv.of(faulty_envs.Sound), {"size": 3})

    @pytest.mark.parametrize("env", [3, None, faulty_envs.Sound()])
    def test_what_is_no_environment(self, env: Any) -> None:
        with pytest.raises(InputError, match="function"):
            resolve(env)

    def test_a_function_that_makes_something_else(self) -> None:
        with pytest.raises(InputError, match=r"should make a gymnasium.Env or a pure environment, but made a dict"):
            resolve(dict)
        with pytest.raises(InputError, match="but made the class Sound"):
            resolve(lambda: faulty_envs.Sound)

    def test_a_function_that_fails(self) -> None:
        with pytest.raises(InputError, match="FailsToBeMade could not be made: OSError: no simulator"):
            resolve(faulty_envs.FailsToBeMade)


class TestFunctions:
    def test_classes_and_functions(self) -> None:
        def small() -> gymnasium.Env[Any, Any]:
            return faulty_envs.Sound(size=2)

        assert host(faulty_envs.Sound, size=3).observation_space.n == 3
        assert host(small).observation_space.n == 2
        assert host(functools.partial(faulty_envs.Sound, 4)).observation_space.n == 4

    def test_what_is_already_one_stays(self) -> None:
        env = host("CartPole-v1")
        assert resolve(env) is env
        pure = resolve("species")
        assert resolve(pure) is pure

    def test_a_function_may_make_a_pure_environment(self) -> None:
        pure = resolve("species")
        assert resolve(lambda: pure) is pure
        assert isinstance(resolve(type(pure)), PureEnv)

    def test_the_example_is_closed(self) -> None:
        closed = []

        class Closes(faulty_envs.Sound):
            def close(self) -> None:
                closed.append(self)

        resolve(Closes)
        assert len(closed) == 1
        with pytest.raises(InputError):
            resolve(type("Fails", (Closes,), {"objectives": ("ann",)}))
        assert len(closed) == 2


class TestRewards:
    def test_counted_in_a_trial_step_where_none_are_declared(self) -> None:
        env = host(faulty_envs.NoRewardSpace)
        assert (env.D, env.scalar_reward, env.reward_space.bounded) == (3, False, False)
        env = host(faulty_envs.ScalarReward)
        assert (env.D, env.scalar_reward, env.objectives) == (1, True, ("user 1",))

    def test_a_wrapper_that_changes_them_is_noticed(self) -> None:
        class First(gymnasium.Wrapper[Any, Any, Any, Any]):
            def step(self, action: Any) -> Any:
                observation, reward, *rest = super().step(action)
                return observation, float(reward[0]), *rest  # type: ignore[index]

        class FirstTwo(gymnasium.Wrapper[Any, Any, Any, Any]):
            def __init__(self, env: Any) -> None:
                super().__init__(env)
                self.reward_space = spaces.Box(-1, 1, (2,))

        one = host(lambda: First(faulty_envs.Sound()))
        assert (one.D, one.scalar_reward) == (1, True)
        with pytest.raises(InputError, match="3 names in `objectives`, but 2 rewards"):
            host(lambda: FirstTwo(faulty_envs.Sound()))

    def test_no_trial_step_where_they_are_declared(self) -> None:
        assert host(faulty_envs.FailsInReset).D == 3

    def test_a_trial_step_that_fails(self) -> None:
        class Fails(faulty_envs.FailsInReset):
            reward_space = property(lambda self: None, lambda self, space: None)

        with pytest.raises(InputError, match="trial step to count its rewards failed: OSError: no simulator"):
            host(Fails)

    @pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.Box(0, 1, (2, 2)), spaces.Box(0, 1, (0,))])
    def test_spaces_that_are_none(self, space: Any) -> None:
        class Odd(faulty_envs.Sound):
            reward_space = property(lambda self: space, lambda self, _: None)

        with pytest.raises(InputError, match="reward_space must be a gymnasium Box"):
            host(Odd)

    @pytest.mark.parametrize("reward", [np.zeros((2, 2)), np.zeros(0)])
    def test_rewards_that_are_none(self, reward: np.ndarray) -> None:
        class Odd(faulty_envs.NoRewardSpace):
            def reward(self) -> Any:
                return reward

        with pytest.raises(InputError, match="must be one number or D numbers, not shape"):
            host(Odd)

    def test_names_that_do_not_match(self) -> None:
        with pytest.raises(InputError, match="2 names in `objectives`, but 3 rewards"):
            host(faulty_envs.WrongObjectives)


class TestObservations:
    def test_mixed_spaces_are_flattened_and_images_scaled(self) -> None:
        env = host(faulty_envs.Numbers)
        flat = env.flatten(faulty_envs.Numbers().observe())
        # In the order of Gymnasium's Dict, which sorts its keys: image, pair, place.
        np.testing.assert_allclose(flat, [0.2] * 4 + [1, 0, 1, 0, 0, 0, 1] + [1, 0, 0])
        assert flat.dtype == np.float32
        assert env.observation_space == Box.of(0, 1, 14)

    def test_images_are_scaled_to_one(self) -> None:
        class Image(faulty_envs.Sound):
            observation_space = property(lambda self: spaces.Box(0, 255, (4, 3, 3), np.uint8), lambda self, _: None)

        env = host(Image)
        assert env.observation_space == Box.of(0, 1, 36)
        assert env.flatten(np.full((4, 3, 3), 255, np.uint8)) == pytest.approx(np.ones(36))

    def test_shapes_are_flattened_and_checked(self) -> None:
        env = host(faulty_envs.Vectors)
        np.testing.assert_array_equal(env.flatten([[1, 2], [3, 4]]), np.array([1, 2, 3, 4], np.float32))
        with pytest.raises(ValueError, match=r"shape \(3,\)"):
            env.flatten(np.zeros(3))

    def test_the_result_is_a_copy(self) -> None:
        observation = np.zeros(5, np.float32)
        flat = host(faulty_envs.Sound).flatten(observation)
        observation[0] = 9
        assert flat[0] == 0

    @pytest.mark.parametrize(
        "space",
        [
            spaces.Text(5),
            spaces.Sequence(spaces.Discrete(2)),
            spaces.Graph(spaces.Discrete(2), None),
            spaces.Tuple((spaces.Discrete(2), spaces.Text(3))),
            spaces.Dict({"deep": spaces.Dict({"down": spaces.Text(3)})}),
        ],
    )
    def test_what_is_no_vector_is_refused(self, space: Any) -> None:
        class Odd(faulty_envs.Sound):
            observation_space = property(lambda self: space, lambda self, _: None)

        with pytest.raises(InputError, match=r"Odd: observations of .* are not vectors of a fixed length: use a Box"):
            host(Odd)

    def test_an_empty_observation_is_refused(self) -> None:
        with pytest.raises(InputError, match="no entries"):
            host(faulty_envs.Sound, size=0)


class TestActions:
    def test_whole_numbers_may_count_from_elsewhere(self) -> None:
        env = host(faulty_envs.Numbers)
        assert env.action_space == Discrete(3)
        assert [env.native_action(i) for i in range(3)] == [5, 6, 7]
        assert isinstance(env.native_action(0), np.int64)

    @pytest.mark.parametrize(
        "space",
        [
            spaces.MultiDiscrete([2, 3], start=[0, 10]),
            spaces.MultiBinary(3),
            spaces.MultiBinary((2, 2)),
            spaces.MultiDiscrete([[2, 2], [1, 3]]),
            spaces.MultiDiscrete([32, 32]),
        ],
    )
    def test_combinations_are_numbered(self, space: Any) -> None:
        env = host(faulty_envs.Switches, space=space)
        assert isinstance(env.action_space, Discrete)
        natives = [env.native_action(i) for i in range(env.action_space.n)]
        assert all(space.contains(action) for action in natives)
        sizes = space.nvec if isinstance(space, spaces.MultiDiscrete) else np.full(space.shape, 2)
        assert len({action.tobytes() for action in natives}) == len(natives) == np.prod(sizes)

    @pytest.mark.parametrize("dtype", ["float64", "float32", "int32"])
    def test_vectors_are_clipped_and_given_their_shape(self, dtype: str) -> None:
        env = host(faulty_envs.Vectors, dtype=dtype)
        assert env.action_space == Box.of(-2, 3, 4)
        native = env.native_action(np.array([-1e30, 0.6, 2.4, 1e30], np.float32))
        expected = [[-2, 1], [2, 3]] if dtype == "int32" else [[-2, np.float32(0.6)], [np.float32(2.4), 3]]
        np.testing.assert_array_equal(native, np.array(expected, dtype))
        assert native.dtype == dtype

    def test_bounds_in_doubles_are_respected_in_doubles(self) -> None:
        class Tenths(faulty_envs.Sound):
            action_space = property(lambda self: spaces.Box(-0.1, 0.1, (1,), np.float64), lambda self, _: None)

        env = host(Tenths)
        assert Tenths().action_space.contains(env.native_action(np.array([0.1], np.float32)))

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (faulty_envs.DictActions, "neither whole numbers nor vectors: wrap"),
            (faulty_envs.UnboundedActions, "infinite bounds: give it finite ones"),
            (faulty_envs.ManyCombinations, "1,056 combinations, and at most 1,024"),
        ],
    )
    def test_other_spaces_are_refused(self, make: Any, message: str) -> None:
        with pytest.raises(InputError, match=message):
            host(make)

    def test_very_many_combinations(self) -> None:
        with pytest.raises(InputError, match="combinations"):
            host(faulty_envs.Switches, space=spaces.MultiBinary(5000))


def test_descriptions_can_be_pickled() -> None:
    for env in (host("CartPole-v1"), host("minecart-v0"), host(faulty_envs.Numbers), host(faulty_envs.Switches)):
        again = pickle.loads(pickle.dumps(env))  # noqa: S301  (ours)
        assert (again.name, again.objectives, again.action_space) == (env.name, env.objectives, env.action_space)
        again.make().close()
