"""What is wrong with an environment, in plain words, before anybody trains on it."""

from __future__ import annotations

import contextlib
import copy
import random
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import gymnasium
import numpy as np
from gymnasium import spaces

from evenhand.envs.check.check_pure import check_pure
from evenhand.envs.check.findings import SEVERITIES, Finding, Findings, first_place, reward_line, short, span
from evenhand.envs.gym.conversions import Observe, act_of
from evenhand.envs.gym.host_env import HostEnv, declared_reward_space, time_limit
from evenhand.envs.gym.vector import VectorEnv
from evenhand.envs.registry import NONE, call, factory
from evenhand.errors import InputError
from evenhand.types import Box

__all__ = ["Finding", "check_env"]

MOST_STEPS = 10_000
MOST_SECONDS = 5.0
ENOUGH_EPISODES = 20
"""A trial ends after this many steps, seconds or episodes, whichever comes first."""
STEPS_COMPARED = 200
ROUNDING = 1e-6
"""Rewards in float32 may exceed bounds in float64 by this share."""
VERY_DIFFERENT = 100.0
"""Users whose average rewards differ by more than this factor deserve a hint."""


def check_env(env: Any, arguments: Mapping[str, Any] = NONE, seed: int = 0) -> list[Finding]:
    """Try an environment out and say what is wrong with it, the worst first; whatever it raises becomes a finding.

    env, arguments: as for `evenhand.envs.resolve`.
    """
    found = Findings()
    with _same_global_randomness(), found.guard("The environment cannot be made"):
        name, make = factory(env, arguments)
        made = call(name, make)
        if isinstance(made, HostEnv):
            make = made.make
            made = call(name, make)
        if isinstance(made, gymnasium.Env):
            _check_host(made, make, name, seed, found)
        else:
            check_pure(made, seed, found)
    return sorted(found.findings, key=lambda finding: SEVERITIES.index(finding.severity))


@contextlib.contextmanager
def _same_global_randomness() -> Iterator[None]:
    """Leave the global random generators as they were found."""
    numpys, pythons = np.random.get_state(), random.getstate()  # noqa: NPY002  (other people's code may use it)
    try:
        yield
    finally:
        np.random.set_state(numpys)  # noqa: NPY002
        random.setstate(pythons)


# Gymnasium environments


def _check_host(env: Any, make: Callable[[], Any], name: str, seed: int, found: Findings) -> None:
    trial = _Trial(env, seed, found)
    try:
        with found.guard("The observation space is not supported"):
            trial.observe = Observe.of(env.observation_space)
        with found.guard("The action space is not supported"):
            act_of(env.action_space)
        with found.guard("reward_space is not supported"):
            trial.reward_space, trial.reward_space_is_final = declared_reward_space(env, name)
        with found.guard("The environment failed", lambda: trial.where), contextlib.suppress(_Stop):
            trial.run()
    finally:
        with found.guard("close() failed"):
            env.close()
    if trial.complete:
        _judge_rewards(trial, found)
        _judge_endings(trial, found)
        with found.guard("The environment failed when it was run again"):
            _check_seeds(make, seed, found)
    host = None
    if not found.has_errors:  # the last word: what training does
        with found.guard("evenhand cannot run the environment"):
            host = HostEnv.of(make, name)
            with VectorEnv(host, 2, seed) as environments:
                environments.reset()
                rng = np.random.default_rng(seed)
                for _ in range(20):
                    environments.step(_random_actions(host.action_space, 2, rng))
    if host is not None:
        try:
            host.check_picklable()
        except InputError as error:
            found.warning("It cannot be run in worker processes", str(error))
    if trial.steps:
        _say_what_was_seen(trial, host, found)


def _random_actions(space: Any, N: int, rng: np.random.Generator) -> Any:
    if isinstance(space, Box):
        return rng.uniform(space.low, space.high, (N, space.n))
    return rng.integers(space.n, size=N)


def _seeded(space: spaces.Space[Any], seed: int) -> spaces.Space[Any]:
    """A copy to draw actions from, whatever the environment does with its own."""
    own = copy.deepcopy(space)
    own.seed(seed)
    return own


class _Stop(Exception):
    """The trial cannot go on, and why has been said."""


class _Trial:
    """Some episodes with random actions, looked at step by step."""

    def __init__(self, env: Any, seed: int, found: Findings) -> None:
        self.env = env
        self.seed = seed
        self.found = found
        self.observe: Observe | None = None
        self.reward_space: spaces.Box | None = None
        self.reward_space_is_final = False
        self.rewards: list[np.ndarray] = []
        self.lengths: list[int] = []
        self.terminated: list[bool] = []
        self.truncated: list[bool] = []
        self.scalar = False
        self.complete = False
        self.steps = 0
        self.seconds = 0.0

    def run(self) -> None:
        actions = _seeded(self.env.action_space, self.seed)
        observation = self._reset(seed=self.seed)
        began = time.perf_counter()
        length = 0
        while (
            self.steps < MOST_STEPS
            and len(self.lengths) < ENOUGH_EPISODES
            and time.perf_counter() - began < MOST_SECONDS
        ):
            before, kept = observation, copy.deepcopy(observation)
            started = time.perf_counter()
            self.steps += 1
            result = self.env.step(actions.sample())
            self.seconds += time.perf_counter() - started
            length += 1
            observation, ended = self._look_at_step(result)
            if observation is before and not _equal(observation, kept):
                self.found.warning(
                    "The same array is returned every step",
                    "The environment changes the array it returned before. evenhand copies it, but others who keep "
                    "observations will find them changed: return a copy, as in `self.state.copy()`.",
                )
            if ended:
                self.lengths.append(length)
                length = 0
                observation = self._reset()
        self.complete = True

    def _stop(self, title: str, explanation: str) -> NoReturn:
        self.found.error(title, explanation)
        raise _Stop

    def _reset(self, **seed: int) -> Any:
        try:
            result = self.env.reset(**seed)
        except TypeError as error:
            if "seed" not in str(error):
                raise
            self._stop(
                "reset() takes no seed",
                "Declare it as `def reset(self, *, seed=None, options=None)`, and begin with "
                "`super().reset(seed=seed)`, so that runs can be repeated.",
            )
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            self._stop(
                "reset() does not return two values",
                f"It should be (observation, info) with a dict as info, but it was {short(result)}.",
            )
        self._look_at_observation(result[0])
        return result[0]

    def _look_at_step(self, result: Any) -> tuple[Any, bool]:
        """The observation, and whether the episode has ended."""
        if not isinstance(result, tuple) or len(result) != 5:
            size = f"{len(result)} values" if isinstance(result, tuple) else f"a {type(result).__name__}"
            self._stop(
                "step() does not return five values",
                f"It returned {size}. Return (observation, reward, terminated, truncated, info): where older code had "
                "one `done`, say whether the episode is over for good (terminated) or out of time (truncated).",
            )
        observation, reward, terminated, truncated, info = result
        self._look_at_observation(observation)
        self._look_at_reward(reward)
        for flag, value in (("terminated", terminated), ("truncated", truncated)):
            if not isinstance(value, bool | np.bool_):
                self.found.warning(f"{flag} is no bool", f"It is a {type(value).__name__}: return True or False.")
        if not isinstance(info, dict):
            self.found.error("info is no dict", f"It is a {type(info).__name__}: return {{}} if there is none.")
        if not (terminated or truncated):
            return observation, False
        self.terminated.append(bool(terminated))
        self.truncated.append(bool(truncated))
        return observation, True

    def _look_at_observation(self, observation: Any) -> None:
        if self.observe is None:  # which has been said
            return
        try:
            vector = self.observe(observation)
        except (TypeError, ValueError) as error:
            self._stop("An observation does not fit its space", f"{self.where}: {error}.")
        if not np.isfinite(vector).all():
            wrong = ~np.isfinite(vector)
            self._stop(
                "An observation is not a finite number",
                f"{self.where}, entry {first_place(wrong)} of the observation was {vector[wrong][0]}. Look for a "
                "division by zero, or an overflow.",
            )
        space = self.env.observation_space
        if not isinstance(space, spaces.Box):
            if not space.contains(observation):
                self.found.warning(
                    "An observation lies outside its space",
                    f"{self.where} it was {short(observation)}, which is not in {short(space)}. Bounds, shapes or "
                    "kinds of number (int64 is not int32) differ.",
                )
            return
        array = np.asarray(observation)
        if array.dtype != space.dtype:
            self.found.warning(
                "Observations have another kind of number than their space",
                f"They are {array.dtype}, but the space says {space.dtype}. evenhand converts them; correct the space, "
                "or the observations with `.astype`.",
            )
        outside = (array < space.low) | (array > space.high)
        if outside.any():
            self.found.warning(
                "An observation lies outside its space",
                f"{self.where}, entry {first_place(outside)} was {array[outside][0]:.6g}, but the bounds are "
                f"[{space.low[outside][0]:.6g}, {space.high[outside][0]:.6g}]. Correct the bounds or the numbers.",
            )

    def _look_at_reward(self, reward: Any) -> None:
        try:
            vector = np.asarray(reward, np.float64)
        except (TypeError, ValueError):
            self._stop("A reward is no number", f"{self.where} it was {short(reward)}: return an array of D floats.")
        self.scalar = vector.shape == ()
        vector = np.atleast_1d(vector)
        if not self.rewards:
            self._forget_a_space_that_wrappers_have_changed(vector)
        space = self.reward_space
        before = self.rewards[0].shape if self.rewards else vector.shape
        expected = before if space is None else space.shape or (1,)
        if vector.ndim > 1 or vector.size == 0 or vector.shape != expected:
            said = f"reward_space says {expected}" if space is not None else f"it should be {expected}, as at first"
            self._stop(
                "A reward has the wrong shape",
                f"{self.where} it had shape {np.shape(reward)}, but {said if vector.ndim == 1 else 'should be (D,)'}. "
                "Return one number for each user, in every step.",
            )
        if not np.isfinite(vector).all():
            wrong = ~np.isfinite(vector)
            self._stop(
                "A reward is not a finite number",
                f"{self.where}, component {first_place(wrong)} of the reward was {vector[wrong][0]}. Look for a "
                "division by zero, or an overflow.",
            )
        if not self.scalar and not (isinstance(reward, np.ndarray) and reward.dtype.kind == "f"):
            kind = f"an array of {reward.dtype}" if isinstance(reward, np.ndarray) else f"a {type(reward).__name__}"
            self.found.warning(
                "Rewards are not arrays of floats",
                f"They are {kind}. evenhand converts them; MO-Gymnasium's convention is "
                "`np.array([...], dtype=np.float32)`.",
            )
        if space is not None:
            low, high = (np.atleast_1d(bound).astype(float) for bound in (space.low, space.high))
            outside = (vector < low - ROUNDING * np.abs(low)) | (vector > high + ROUNDING * np.abs(high))
            if outside.any():
                self.found.warning(
                    "A reward lies outside reward_space",
                    f"{self.where}, component {first_place(outside)} was {vector[outside][0]:.6g}, but the bounds are "
                    f"[{low[outside][0]:.6g}, {high[outside][0]:.6g}]. Correct the bounds.",
                )
        self.rewards.append(vector)

    def _forget_a_space_that_wrappers_have_changed(self, reward: np.ndarray) -> None:
        space = self.reward_space
        if space is not None and not self.reward_space_is_final and reward.shape != (space.shape or (1,)):
            self.reward_space = None

    @property
    def where(self) -> str:
        """The beginning of a sentence."""
        return f"In step {self.steps} of the trial" if self.steps else "At the first reset"


def _equal(a: Any, b: Any) -> bool:
    """Whether two observations are the same, whatever they are made of."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    if isinstance(a, tuple | list) and isinstance(b, tuple | list):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return np.array_equal(np.asarray(a), np.asarray(b))


def _judge_rewards(trial: _Trial, found: Findings) -> None:
    if trial.scalar:
        found.warning(
            "The reward is a single number",
            "So there is one user (D = 1), and nothing to be fair about; training works as usual. For several users "
            "return an array with one number for each, `np.array([...], dtype=np.float32)`, or wrap the environment in "
            "a gymnasium.Wrapper whose step() does, and set "
            "`self.reward_space = gymnasium.spaces.Box(low, high, (D,))`.",
        )
        return
    rewards = np.array(trial.rewards)
    D = rewards.shape[1]
    if trial.reward_space is None:
        found.warning(
            "There is no reward_space",
            f"It works: {D} users were counted in a trial step. To save that step, and to tell the bounds, set "
            f"`self.reward_space = gymnasium.spaces.Box(low, high, ({D},))` in the environment's __init__.",
        )
    size = np.abs(rewards).mean(axis=0)
    silent = np.flatnonzero(size == 0)
    if silent.size:
        found.fine(
            "Some users got nothing in the trial",
            f"Components {', '.join(str(i) for i in silent)} of the reward were always 0 under random actions. That is "
            "natural where rewards are rare.",
        )
    heard = size[size > 0]
    if heard.size > 1 and heard.max() / heard.min() > VERY_DIFFERENT:
        most, least = int(np.argmax(size)), int(np.argmin(np.where(size > 0, size, np.inf)))
        found.warning(
            "The users' rewards are of very different size",
            f"Component {most} is {size[most]:.3g} on average (without its sign), component {least} {size[least]:.3g}. "
            "A fair policy compares them as they are, so that the smaller ones decide: if they are in different units, "
            "scale them, for example by what each user could get at best.",
        )


def _judge_endings(trial: _Trial, found: Findings) -> None:
    limit = time_limit(trial.env)
    lengths = trial.lengths
    if not lengths:
        if limit is None:
            found.warning(
                "No episode has ended",
                f"None of {trial.steps:,} random steps ended one, and there is no time limit. Training needs episodes "
                "that end: register the environment with max_episode_steps, or wrap it in "
                "gymnasium.wrappers.TimeLimit.",
            )
        else:
            found.fine("No episode has ended", f"The time limit of {limit:,} steps was not reached in {trial.steps:,}.")
        return
    both = sum(a and b for a, b in zip(trial.terminated, trial.truncated, strict=True))
    if both:
        found.warning(
            "Episodes end as terminated and truncated at once",
            f"{both} of {len(lengths)} did. Terminated counts: nothing is to be gained afterwards. At a mere time "
            "limit set only truncated, or learning will undervalue the last states.",
        )
    at_same_time = len(lengths) >= 3 and len(set(lengths)) == 1 and lengths[0] > 1
    if at_same_time and all(trial.terminated) and not any(trial.truncated):
        found.warning(
            "Every episode terminates after the same number of steps",
            f"All {len(lengths)} did after {lengths[0]}. If that is a time limit, return truncated=True and "
            "terminated=False there, or use gymnasium.wrappers.TimeLimit: terminated means that nothing would have "
            "come after. If every task is really done by then, all is well.",
        )


def _check_seeds(make: Callable[[], Any], seed: int, found: Findings) -> None:
    """Two runs with the same seed and actions must be the same; if not, find out where the chance comes from."""
    first, uses_global = _record(make, seed)
    second, _ = _record(make, seed)
    differs = next((step for step, (a, b) in enumerate(zip(first, second, strict=False)) if not _equal(a, b)), None)
    if differs is None and len(first) != len(second):
        differs = min(len(first), len(second))
    if uses_global:
        library = " and ".join(f"{name}'s" for name in uses_global)
        called = "`np.random.…`" if "NumPy" in uses_global else "`random.…`"
        seen = (
            f"two runs with the same seed differed from step {differs} on"
            if differs is not None
            else "two short runs agreed all the same"
        )
        found.warning(
            "It draws from a global random generator",
            f"{library} global generator was used ({seen}). Its numbers do not follow the seed "
            f"of reset() and depend on everything else in the process: replace {called} by `self.np_random.…`.",
        )
    elif differs is not None:
        found.warning(
            "The same seed gives different runs",
            f"Two runs with seed {seed} and the same actions differed from step {differs} on. Call "
            "`super().reset(seed=seed)` first in reset(), and draw from `self.np_random` only. Something else, such as "
            "a clock, an outside program or the order of a set, may also play a part.",
        )
    elif not _equal(first[0], first[-1]):
        found.warning(
            "A seed has no effect on an environment in use",
            f"reset(seed={seed}) began differently after {STEPS_COMPARED} steps than in a new environment: something "
            "of earlier episodes is left over. Set everything anew in reset().",
        )
    else:
        found.fine("The same seed gives the same run", f"Two runs of {STEPS_COMPARED} random steps were compared.")


class _Record(NamedTuple):
    seen: list[tuple[Any, ...]]
    """Some random steps; last of all the first observation, with the same seed again."""
    uses_global: list[str]
    """Whose global random generators were used."""


def _record(make: Callable[[], Any], seed: int) -> _Record:
    before = _global_states()
    env = make()
    try:
        observation, _ = env.reset(seed=seed)
        actions = _seeded(env.action_space, seed)
        seen: list[tuple[Any, ...]] = [(copy.deepcopy(observation),)]
        for _ in range(STEPS_COMPARED):
            observation, reward, terminated, truncated, _ = env.step(actions.sample())
            seen.append((copy.deepcopy(observation), copy.deepcopy(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                seen.append((copy.deepcopy(env.reset()[0]),))
        seen.append((copy.deepcopy(env.reset(seed=seed)[0]),))
    finally:
        env.close()
    after = _global_states()
    return _Record(seen, [name for name in before if before[name] != after[name]])


def _global_states() -> dict[str, Any]:
    state = repr(np.random.get_state())  # noqa: NPY002  (whether others use it is the question)
    return {"NumPy": state, "Python": random.getstate()}


def _say_what_was_seen(trial: _Trial, host: HostEnv | None, found: Findings) -> None:
    env = trial.env
    lines = [f"Observations: {env.observation_space}{f', {host.observation_space.n} numbers' if host else ''}."]
    lines.append(f"Actions: {env.action_space}.")
    if trial.rewards:
        rewards = np.array(trial.rewards)
        names = host.objectives if host else tuple(f"user {i + 1}" for i in range(rewards.shape[1]))
        lines.append(reward_line(names, rewards.min(axis=0), rewards.max(axis=0)))
    limit = time_limit(env)
    lines.append(
        f"Episodes: {len(trial.lengths)} ended in {trial.steps:,} random steps"
        + (f", after {span(min(trial.lengths), max(trial.lengths))} steps" if trial.lengths else "")
        + (f"; time limit {limit:,}." if limit else "; no TimeLimit wrapper.")
    )
    lines.append(f"Speed: {trial.steps / max(trial.seconds, 1e-9):,.0f} steps per second, one environment.")
    found.fine("What was seen", "\n".join(lines))
