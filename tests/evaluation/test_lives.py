"""Policies with a memory: begun at the start of each episode, carried from step to step, one for each environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

import evenhand as eh
from evenhand.envs.gym.host_env import HostEnv
from evenhand.evaluation.policy import Decides, Remembers, life_of
from evenhand.types import Discrete
from probes import Probe

USERS = 3


def pays_whom_it_is_told(steps: int) -> Probe:
    """The action says which of three users gets 1."""
    return Probe(
        USERS,
        1,
        Discrete(USERS),
        lambda key: jnp.ones(1),
        lambda o, a, t, k: (o, jax.nn.one_hot(a, USERS)),
        steps,
        terminates=False,
    )


class PaysWhomItIsTold(gymnasium.Env[Any, Any]):
    """The same, stepped one by one, with episodes of different length."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.Discrete(USERS)
    reward_space = spaces.Box(0, 1, (USERS,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.left = int(self.np_random.integers(2, 9))
        return np.ones(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        return np.ones(1, np.float32), np.eye(USERS, dtype=np.float32)[action], self.left == 0, False, {}


class TakesTurns:
    """Remembers whose turn it is; who begins is drawn at the start of the episode."""

    name = "turns"

    def initial_state(self, n: int, key: Any) -> Any:
        return {"turn": jax.random.randint(key, (n,), 0, USERS)}

    def step(self, state: Any, observation: Any, key: Any) -> Any:
        return state["turn"], {"turn": (state["turn"] + 1) % USERS}


class Favours(TakesTurns):
    """Draws a user at the start of the episode, and keeps to them."""

    name = "lots"

    def step(self, state: Any, observation: Any, key: Any) -> Any:
        return state["turn"], state


class Clock:
    """A policy of the time alone."""

    name = "clock"

    def decide(self, observation: Any, step: Any) -> Any:
        return step % USERS


def test_in_a_compiled_environment() -> None:
    turns = eh.evaluate_policy(pays_whom_it_is_told(6), TakesTurns(), 40)
    assert (turns.total == 2).all()
    lots = eh.evaluate_policy(pays_whom_it_is_told(6), Favours(), 400)
    assert (np.sort(lots.total) == [0, 0, 6]).all()  # one user has everything, but not the same in each episode
    assert (np.abs((lots.total == 6).mean(axis=0) - 1 / 3) < 0.1).all()


@pytest.mark.parametrize("workers", [0, 2])
def test_in_environments_that_are_stepped_one_by_one(workers: int) -> None:
    """Episodes end at different times, and each begins with a memory of its own."""
    env = HostEnv.of(PaysWhomItIsTold)
    turns = eh.evaluate_policy(env, TakesTurns(), 60, workers=workers)
    assert len(set(turns.length)) > 3
    assert (np.ptp(turns.total, axis=1) <= 1).all()
    lots = eh.evaluate_policy(env, Favours(), 60, workers=workers)
    assert (np.sort(lots.total)[:, :2] == 0).all()
    assert len(set(np.argmax(lots.total, axis=1))) == USERS


def test_the_clock_is_a_memory() -> None:
    assert isinstance(Clock(), Decides)
    for env in (pays_whom_it_is_told(7), HostEnv.of(PaysWhomItIsTold)):
        played = eh.evaluate_policy(env, Clock(), 20)
        first = -(-played.length // USERS)  # whose turn it is at the start, gets it most often
        assert (played.total[:, 0] == first).all()


def test_the_same_seed_gives_the_same_draws() -> None:
    env = pays_whom_it_is_told(3)
    once, again, other = (eh.evaluate_policy(env, Favours(), 30, seed=seed).total for seed in (1, 1, 2))
    assert (once == again).all()
    assert (once != other).any()


def test_those_without_a_memory_carry_nothing() -> None:
    class Always:
        def act(self, observation: Any, key: Any) -> Any:
            return jnp.zeros(observation.shape[0], int)

    life = life_of(Always())
    assert not jax.tree.leaves(life.initial_state(5, jax.random.key(0)))
    assert not isinstance(Always(), Remembers)


def test_functions_with_a_reset_are_told_of_each_episode() -> None:
    class Counts:
        begun = 0

        def reset(self, n: int) -> None:
            self.begun += n

        def __call__(self, observation: Any) -> int:
            return 0

    policy = Counts()
    eh.evaluate_policy(PaysWhomItIsTold, policy, 5)
    assert policy.begun == 5
