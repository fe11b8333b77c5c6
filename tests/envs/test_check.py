"""The checker: one fault, one finding, in words that help."""

from __future__ import annotations

import random
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import faulty_envs
from evenhand.envs.check import check_host, check_pure
from evenhand.envs.check.check_host import Finding, check_env
from evenhand.envs.gym.host_env import HostEnv
from evenhand.types import Box, Discrete, Step

# Several environments of MO-Gymnasium give their bounds in double precision.
pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")


@pytest.fixture(autouse=True)
def short_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_host, "MOST_STEPS", 2000)
    monkeypatch.setattr(check_pure, "STEPS", 50)


def complaints(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.title) for finding in findings if finding.severity != "fine"]


def seen(findings: list[Finding]) -> str:
    return next(finding.explanation for finding in findings if finding.title == "What was seen")


@pytest.mark.parametrize(
    "make",
    [faulty_envs.Sound, faulty_envs.Vectors, faulty_envs.Numbers, faulty_envs.Switches, faulty_envs.TellsItsProcess],
)
def test_sound_environments_have_no_faults(make: Any) -> None:
    assert complaints(check_env(make)) == []


@pytest.mark.parametrize("name", ["deep-sea-treasure-v0", "resource-gathering-v0"])
def test_sound_environments_of_other_people(name: str) -> None:
    assert complaints(check_env(name)) == []


@pytest.mark.parametrize(
    ("make", "severity", "title", "words"),
    [
        (faulty_envs.ScalarReward, "warning", "The reward is a single number", ["D = 1", "np.array", "Wrapper"]),
        (faulty_envs.NoRewardSpace, "warning", "There is no reward_space", ["3 users", "self.reward_space"]),
        (faulty_envs.WrongRewardLength, "error", "A reward has the wrong shape", ["step 4", "(2,)", "(3,)"]),
        (faulty_envs.OneRewardForThree, "error", "A reward has the wrong shape", ["step 1", "()", "(3,)"]),
        (faulty_envs.RewardAsList, "warning", "Rewards are not arrays of floats", ["a list", "np.float32"]),
        (faulty_envs.RewardOfText, "error", "A reward is no number", ["much"]),
        (faulty_envs.RewardOutsideSpace, "warning", "A reward lies outside reward_space", ["step 1", "component 0"]),
        (faulty_envs.NanReward, "error", "A reward is not a finite number", ["step 7", "component 1", "nan"]),
        (faulty_envs.InfiniteObservation, "error", "An observation is not a finite number", ["step 5", "entry 2"]),
        (faulty_envs.NanFirstObservation, "error", "An observation is not a finite number", ["first reset", "nan"]),
        (faulty_envs.ObservationOutsideSpace, "warning", "An observation lies outside its space", ["was 3", "[0, 1]"]),
        (faulty_envs.ObservationOfWrongShape, "error", "An observation does not fit its space", ["step 3", "(1,)"]),
        (
            faulty_envs.ObservationOfWrongDtype,
            "warning",
            "Observations have another kind of number than their space",
            ["float64", "float32"],
        ),
        (faulty_envs.SameArray, "warning", "The same array is returned every step", ["copy()"]),
        (faulty_envs.IgnoresSeed, "warning", "The same seed gives different runs", ["super().reset(seed=seed)"]),
        (faulty_envs.LeftOvers, "warning", "A seed has no effect on an environment in use", ["reset()"]),
        (faulty_envs.GlobalRandomness, "warning", "It draws from a global random generator", ["NumPy's", "np_random"]),
        (faulty_envs.GlobalPythonRandomness, "warning", "It draws from a global random generator", ["Python's"]),
        (faulty_envs.NeverEnds, "warning", "No episode has ended", ["2,000", "max_episode_steps", "TimeLimit"]),
        (
            faulty_envs.TerminatesAtTimeLimit,
            "warning",
            "Every episode terminates after the same number of steps",
            ["20", "truncated=True"],
        ),
        (
            faulty_envs.BothAtTimeLimit,
            "warning",
            "Episodes end as terminated and truncated at once",
            ["20 of 20", "only truncated"],
        ),
        (faulty_envs.ResetWithoutInfo, "error", "reset() does not return two values", ["(observation, info)"]),
        (faulty_envs.ResetWithoutSeed, "error", "reset() takes no seed", ["seed=None"]),
        (faulty_envs.FourValues, "error", "step() does not return five values", ["4 values", "truncated"]),
        (faulty_envs.UnequalUsers, "warning", "The users' rewards are of very different size", ["scale"]),
        (faulty_envs.FailsInStep, "error", "The environment failed", ["the wheel came off", "faulty_envs.py"]),
        (faulty_envs.FailsInReset, "error", "The environment failed", ["OSError: no simulator to be found"]),
        (faulty_envs.FailsToBeMade, "error", "The environment cannot be made", ["no simulator to be found"]),
        (faulty_envs.NoStepFunction, "error", "The environment failed", ["not callable"]),
        (faulty_envs.WrongObjectives, "error", "evenhand cannot run the environment", ["2 names", "3 rewards"]),
        (faulty_envs.TextObservations, "error", "The observation space is not supported", ["Text", "use a Box"]),
    ],
)
def test_one_fault_one_finding(make: Any, severity: str, title: str, words: list[str]) -> None:
    findings = check_env(make)
    assert complaints(findings) == [(severity, title)]
    assert all(word in findings[0].explanation for word in words), findings[0].explanation


@pytest.mark.parametrize("make", [faulty_envs.DictActions, faulty_envs.UnboundedActions, faulty_envs.ManyCombinations])
def test_actions_that_are_not_supported(make: Any) -> None:
    assert ("error", "The action space is not supported") in complaints(check_env(make))


def test_what_cannot_be_sent_to_workers() -> None:
    assert complaints(check_env(lambda: faulty_envs.Sound())) == [("warning", "It cannot be run in worker processes")]


def test_a_time_limit_that_is_not_reached() -> None:
    def limited() -> Any:
        return gymnasium.wrappers.TimeLimit(faulty_envs.NeverEnds(), 100_000)

    findings = check_env(limited)
    assert (
        Finding("fine", "No episode has ended", "The time limit of 100,000 steps was not reached in 2,000.") in findings
    )


def test_flags_and_infos_of_another_kind() -> None:
    class Odd(faulty_envs.Sound):
        def step(self, action: Any) -> Any:
            observation, reward, terminated, truncated, _ = super().step(action)
            return observation, reward, int(terminated), truncated, None

    titles = [title for _, title in complaints(check_env(Odd))]
    assert "terminated is no bool" in titles
    assert "info is no dict" in titles


def test_rewards_changed_by_a_wrapper() -> None:
    class Sum(gymnasium.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            observation, reward, *rest = super().step(action)
            return observation, float(np.sum(reward)), *rest

    findings = complaints(check_env(lambda: Sum(faulty_envs.Sound())))
    assert ("warning", "The reward is a single number") in findings
    assert not any(severity == "error" for severity, _ in findings)


@pytest.mark.parametrize("error", [KeyError("x"), SystemExit(3), AssertionError(), RecursionError("deep")])
@pytest.mark.parametrize("where", ["__init__", "reset", "step", "close"])
def test_nothing_an_environment_raises_gets_out(error: BaseException, where: str) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise error

    class Fails(faulty_envs.Sound):
        pass

    setattr(Fails, where, fail)
    assert any(finding.severity == "error" for finding in check_env(Fails))


@pytest.mark.parametrize("env", ["CartPol-v1", 3, "no_such_module:x-v0", dict])
def test_what_is_no_environment(env: Any) -> None:
    assert complaints(check_env(env)) == [("error", "The environment cannot be made")]


def test_what_was_seen() -> None:
    text = seen(check_env(faulty_envs.Sound))
    assert "Discrete(2)" in text
    assert "5 numbers" in text
    assert "D = 3 (ann 0 to 1, bob 0 to 1, cem -1 to 0)" in text
    assert "20 ended in 400 random steps, after 20 steps" in text
    assert "steps per second" in text
    assert "time limit 500" in seen(check_env("CartPole-v1"))


def test_the_worst_comes_first() -> None:
    order = [finding.severity for finding in check_env(faulty_envs.NanReward)]
    assert order == sorted(order, key=["error", "warning", "fine"].index)


def test_global_generators_are_left_as_they_were() -> None:
    before = repr(np.random.get_state())  # noqa: NPY002
    check_env(faulty_envs.GlobalRandomness)
    assert repr(np.random.get_state()) == before  # noqa: NPY002
    pythons = random.getstate()
    with check_host._same_global_randomness():
        random.random()
    assert random.getstate() == pythons


def test_descriptions_and_arguments() -> None:
    assert complaints(check_env(HostEnv.of(faulty_envs.Sound))) == []
    assert "3 numbers" in seen(check_env(faulty_envs.Sound, {"size": 3}))


class Pure:
    """A pure environment: two users, who like different numbers; twenty steps."""

    objectives: tuple[str, ...] = ("low", "high")
    observation_space = Box.of(-10, 10, 1)
    action_space: Discrete | Box = Discrete(3)
    reward_space = Box.of(0, 1, 2)

    def reset(self, key: Any) -> Any:
        state = (jax.random.uniform(key), jnp.int32(0))
        return state, self.observe(state)

    def observe(self, state: Any) -> Any:
        return state[0][None]

    def reward(self, state: Any) -> Any:
        return jnp.stack([state[0] < 0, state[0] >= 0]).astype(jnp.float32)

    def step(self, state: Any, action: Any, key: Any) -> Any:
        place, time = state
        state = (jnp.clip(place + jnp.sum(action) - 1 + jax.random.uniform(key), -10, 10), time + 1)
        return Step(state, self.observe(state), self.reward(state), jnp.bool_(False), self.truncated(state))

    def truncated(self, state: Any) -> Any:
        return state[1] >= 20


class TestPure:
    def test_sound(self) -> None:
        findings = check_env(Pure())
        assert complaints(findings) == []
        text = seen(findings)
        assert "D = 2 (low 0 to 1, high 0 to 1)" in text
        assert "after 20 steps" in text
        assert "compiled" in text

    def test_species(self) -> None:
        assert complaints(check_env("species", {"episode_steps": 20})) == []

    def test_not_traceable(self) -> None:
        class Branches(Pure):
            def step(self, state: Any, action: Any, key: Any) -> Any:
                return super().step(state, action if action > 0 else action + 1, key)

        [finding] = check_env(Branches())
        assert (finding.severity, finding.title) == ("error", "It cannot be compiled")
        assert "TracerBoolConversionError" in finding.explanation

    def test_hidden_randomness(self) -> None:
        class Impure(Pure):
            def reset(self, key: Any) -> Any:
                state, _ = super().reset(key)
                return (state[0] + random.random(), state[1]), self.observe(state)

        class Remembers(Pure):
            calls = 0

            def step(self, state: Any, action: Any, key: Any) -> Any:
                self.calls += 1
                return super().step((state[0] + self.calls, state[1]), action, key)

        for make in (Impure, Remembers):
            assert complaints(check_env(make())) == [("error", "The same step has different results")]

    @pytest.mark.parametrize(
        ("change", "title"),
        [
            ({"objectives": ("one", "two", "three")}, "Names and rewards do not match"),
            ({"reward": lambda self, state: jnp.zeros(3)}, "The reward has the wrong form"),
            ({"reward": lambda self, state: jnp.zeros(2, int)}, "The reward has the wrong form"),
            ({"observe": lambda self, state: jnp.zeros(2)}, "The observation has the wrong form"),
            ({"truncated": lambda self, state: jnp.float32(0)}, "The truncated has the wrong form"),
        ],
    )
    def test_errors(self, change: dict[str, Any], title: str) -> None:
        assert ("error", title) in complaints(check_env(type("Odd", (Pure,), change)()))

    def test_numbers_that_are_none(self) -> None:
        class NoNumbers(Pure):
            def observe(self, state: Any) -> Any:
                return jnp.full(1, jnp.nan)

            def reward(self, state: Any) -> Any:
                return jnp.zeros(2) / (state[1] - 5)

        assert complaints(check_env(NoNumbers())) == [
            ("error", "An observation is not a finite number"),
            ("error", "A reward is not a finite number"),
        ]

    def test_a_state_that_changes_its_form(self) -> None:
        class Grows(Pure):
            def step(self, state: Any, action: Any, key: Any) -> Any:
                step = super().step(state, action, key)
                return step._replace(state=(step.state[0], step.state[1].astype(float)))

        assert complaints(check_env(Grows())) == [("error", "step() gives a state of another form than it takes")]

    def test_numbers_outside_their_spaces_and_two_endings_at_once(self) -> None:
        class Outside(Pure):
            observation_space = Box.of(0, 0.001, 1)
            reward_space = Box.of(0, 0.5, 2)

            def step(self, state: Any, action: Any, key: Any) -> Any:
                step = super().step(state, action, key)
                return step._replace(terminated=step.truncated)

        assert complaints(check_env(Outside())) == [
            ("warning", "Observations lie outside their space"),
            ("warning", "Rewards lie outside their space"),
            ("warning", "Episodes end as terminated and truncated at once"),
        ]

    def test_no_ending_with_vectors_as_actions(self) -> None:
        """The actions are fine, and not complained about."""

        class NeverEnds(Pure):
            action_space = Box.of(-1, np.inf, 2)

            def truncated(self, state: Any) -> Any:
                return jnp.bool_(False)

        assert complaints(check_env(NeverEnds)) == [("warning", "No episode has ended")]
