"""Playing whole test episodes with a policy, compiled or step by step."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from evenhand import metrics
from evenhand.envs import resolve
from evenhand.envs.core import PureEnv
from evenhand.envs.gym.conversions import CUT_OFF
from evenhand.envs.gym.failures import blamed
from evenhand.envs.gym.gym_env import GymEnv
from evenhand.envs.gym.host_env import HostEnv
from evenhand.envs.gym.vector import VectorEnv
from evenhand.errors import InputError, Say
from evenhand.evaluation.policy import (
    Acts,
    ConstantPolicy,
    Decides,
    Life,
    Policy,
    RandomPolicy,
    Remembers,
    as_policy,
    chosen_actions,
    life_of,
)
from evenhand.evaluation.result import Evaluation
from evenhand.training.episodes import Episodes, advance, new_episodes, restart
from evenhand.training.task import Task
from evenhand.types import Box, PRNGKey

MOST_STEPS = 100_000
"""Where an episode of a pure environment is cut off if nothing else ends it."""
MOST_HOST_STEPS = 10_000
"""The same for those of other people, which are stepped one by one; not if the environment has a time limit."""
TEST_SEED = 2**31
"""Added to seeds of evaluations, so that they are none of those used in training."""
LARGEST_SEED = 2**62
PULSE = 64
"""Steps between two reports of how far test episodes have come."""
BEGINNING = 2**32 - 1
"""Folded into keys, from here downwards, for what policies draw at the beginning of episodes."""
AnyLife = (Acts, Decides, Remembers)


def evaluate_policy(
    env: Any,
    policy: Any,
    episodes: int = 50,
    gamma: float = 0.99,
    seed: int = 0,
    arguments: Mapping[str, Any] | None = None,
    most_steps: int | None = None,
    *,
    workers: int = 0,
    step_timeout: float | int | None = None,
    say: Say | None = None,
    progress: Callable[[float], None] | None = None,
) -> Evaluation:
    """Play whole test episodes with a policy.

    env: an environment, or its name (see `evenhand.envs.resolve`), with `arguments` for it.
    policy: what `evenhand.load` gives; "random"; a number, for always that action; one of the environment's own simple
        policies, itself or by its name; a function from one observation of the environment to one of its actions; or
        an object with `act`, `decide`, or a memory (see `evenhand.evaluation.policy`).
    seed: the same seed gives the same episodes; it is none of those used in training.
    most_steps: where to cut off episodes that nothing else ends; by default after 10,000 steps if the environment is
        stepped one by one and has no time limit, and else after 100,000.
    workers, step_timeout: processes that step environments which may crash or hang, and the seconds that a step may
        take (see `evenhand.envs.gym.vector.VectorEnv`); an episode that is lost with its process is played again. Not
        for policies that are functions.
    say: told, in a sentence, if episodes had to be cut off; by default it is logged.
    progress: told now and then which share of the episodes is done, where they are stepped one by one.
    """
    env = resolve(env, arguments or {})
    most = _most_steps(env) if most_steps is None else most_steps
    if episodes < 1 or most < 1:
        raise InputError(f"there must be at least one episode and one step, not {episodes} and {most}.")
    if not 0 <= seed <= LARGEST_SEED:
        raise InputError(f"the seed of test episodes must lie between 0 and 2^62, not {seed}.")
    policy = as_policy(env, policy)
    if isinstance(env, PureEnv) and isinstance(policy, AnyLife):
        played = _play_pure(env, policy, episodes, gamma, seed, most)
    else:
        host = env if isinstance(env, HostEnv) else _hosted(env)
        if isinstance(policy, AnyLife):
            stepped = partial(VectorEnv, host.ending_after(most), workers=workers, step_timeout=step_timeout)
            played = _play_host(host, policy, episodes, gamma, seed, most, stepped, progress)
        else:
            played = _play_single(host, policy, episodes, gamma, seed, most, progress)
    if played.cut_off.any():
        (say or logging.getLogger("evenhand").warning)(
            f"test episodes of {getattr(env, 'name', type(env).__name__)} that nothing had ended were cut off after "
            f"{most:,} steps: they end where they should if the environment has a time limit (max_episode_steps, or "
            "gymnasium.wrappers.TimeLimit)."
        )
    sums = played.episodes
    for name, values in (("total", sums.total), ("discounted", sums.discounted)):
        if not np.isfinite(values).all():
            raise InputError(f"the {name} rewards of an episode are not finite: look at the environment's rewards.")
    return Evaluation(
        env.objectives,
        np.asarray(sums.total, float),
        np.asarray(sums.discounted, float),
        np.asarray(sums.length),
        np.asarray(played.terminated),
        gamma,
        seed,
        str(getattr(policy, "name", getattr(policy, "__name__", "policy"))),
        played.facts,
    )


class Played(NamedTuple):
    """What E episodes came to."""

    episodes: Episodes
    terminated: Bool[Any, " E"]
    """Whether the episode ended by itself, not by a time limit."""
    cut_off: Bool[Any, " E"]
    """Whether nothing had ended it."""
    facts: Mapping[str, Any]
    """What else was counted: numbers for each episode; while a pure environment is played, sums for each user."""


def _most_steps(env: PureEnv | HostEnv) -> int:
    if isinstance(env, HostEnv):
        return MOST_HOST_STEPS if env.time_limit is None else env.time_limit
    return MOST_STEPS


def _play_pure(
    env: PureEnv, policy: Acts | Decides | Remembers, episodes: int, gamma: float, seed: int, most_steps: int
) -> Played:
    key = jax.random.key(TEST_SEED + seed)
    if isinstance(policy, Policy | RandomPolicy | ConstantPolicy):
        kind, given = _parts(policy)
        try:
            play = _player(env, kind, episodes)  # type: ignore[arg-type]  # see below
        except TypeError:  # somebody's environment or welfare that cannot be hashed
            play = _player.__wrapped__(env, kind, episodes)
        played = jax.device_get(play(given, key, gamma, most_steps))
    else:
        # Somebody's own policy may have changed since it was last played, and is looked at anew.
        once = jax.jit(partial(play_pure, env, life_of(policy), episodes=episodes))
        played = jax.device_get(once(key=key, gamma=gamma, most=most_steps))
    return played._replace(facts=_spreads(played.facts, played.episodes.length))


def _parts(policy: Policy | RandomPolicy | ConstantPolicy) -> tuple[Any, Any]:
    """What is compiled of a policy, and what is handed over: seeds, and always this or that action, share a program."""
    if isinstance(policy, Policy):
        return policy.task, policy.agent
    if isinstance(policy, ConstantPolicy) and not isinstance(policy.env.action_space, Box):
        return dataclasses.replace(policy, action=0), np.int32(policy.action)
    return policy, None


@lru_cache(maxsize=16)
def _player(env: PureEnv, kind: Task | RandomPolicy | ConstantPolicy, episodes: int) -> Callable[..., Played]:
    """Plays with any policy of a kind (see `_parts`)."""

    def play(given: Any, key: PRNGKey, gamma: Array, most: Array) -> Played:
        def step(state: Any, observation: Array, key: PRNGKey) -> tuple[Any, Any]:
            if isinstance(kind, Task):
                return chosen_actions(kind, given, observation, key), state
            policy = kind if given is None else dataclasses.replace(kind, action=given)
            return policy.act(observation, key), state

        return play_pure(env, Life(lambda n, key: (), step), key, episodes, gamma, most)

    return jax.jit(play)


def play_pure(env: PureEnv, life: Life, key: PRNGKey, episodes: int, gamma: Any, most: Any) -> Played:
    """Play whole episodes side by side, each at most `most` steps long; can be traced.

    life: the policy's, as `life_of` gives it.
    """
    resetting, key = jax.random.split(key)
    envs, observation = jax.vmap(env.reset)(jax.random.split(resetting, episodes))
    none = jnp.zeros(episodes, bool)
    facts = jax.vmap(env.facts) if hasattr(env, "facts") else lambda states: {}
    Carry = tuple[Any, Array, Any, Array, Played, PRNGKey, Array]

    def goes_on(carry: Carry) -> Bool[Array, ""]:
        return jnp.any(~carry[3]) & (carry[6] < most)

    def step(carry: Carry) -> Carry:
        envs, observation, memory, over, played, key, t = carry
        key, acting, stepping = jax.random.split(key, 3)
        action, memory = life.step(memory, observation, acting)
        after = jax.vmap(env.step)(envs, action, jax.random.split(stepping, episodes))
        reward = jnp.where(over[:, None], 0.0, after.reward)
        played = Played(
            advance(played.episodes, reward, gamma, jnp.where(over, 0, 1)),
            played.terminated | (after.terminated & ~over),
            ~(over | after.terminated | after.truncated),
            jax.tree.map(lambda sum, now: sum + jnp.where(over[:, None], 0.0, now), played.facts, facts(after.state)),
        )
        over = over | after.terminated | after.truncated
        return after.state, after.observation, memory, over, played, key, t + 1

    discount = 1.0 - jnp.asarray(gamma, jnp.float32)
    begun = new_episodes(episodes, len(env.objectives), discount)
    nothing = Played(begun, none, ~none, jax.tree.map(jnp.zeros_like, facts(envs)))
    memory = life.initial_state(episodes, jax.random.fold_in(key, BEGINNING))
    return jax.lax.while_loop(goes_on, step, (envs, observation, memory, none, nothing, key, jnp.array(0)))[4]


def _spreads(facts: Mapping[str, Any], length: Any) -> Mapping[str, np.ndarray]:
    """Of each fact about users, what they came to in each episode: the average, the extremes and the CV."""
    steps = np.maximum(length, 1)[:, None]
    found: dict[str, np.ndarray] = {}
    for name, sums in facts.items():
        of_episodes = [metrics.spread(name, row) for row in np.asarray(sums, float) / steps]
        found |= {key: np.array([episode[key] for episode in of_episodes]) for key in of_episodes[0]}
    return found


Share = Callable[[float], None]


def _play_host(
    host: HostEnv,
    policy: Acts | Decides | Remembers,
    episodes: int,
    gamma: float,
    seed: int,
    most: int,
    stepped: Callable[..., VectorEnv],
    progress: Share | None,
) -> Played:
    """One episode after another in each of a few environments, so that long ones count as much as short ones."""
    N = 1 if host.real_time else min(episodes, 8)
    life = life_of(policy)
    act = life.step if isinstance(policy, Decides) else jax.jit(life.step)
    key = jax.random.key(TEST_SEED + seed)
    left = np.array([episodes // N + (i < episodes % N) for i in range(N)])
    done: list[_Episode] = []
    running = new_episodes(N, host.D, 1 - gamma, np)
    memory = life.initial_state(N, jax.random.fold_in(key, BEGINNING))
    with stepped(N=N, seed=TEST_SEED + seed) as envs:
        observation = envs.reset()
        t = 0
        while left.any():
            t += 1
            action, memory = act(memory, observation, jax.random.fold_in(key, t))
            after = envs.step(np.asarray(action))
            running = advance(running, after.reward, gamma)
            ended = after.terminated | after.truncated
            for i, info in zip(np.flatnonzero(ended), after.info, strict=True):
                if left[i] and "lost" not in info:  # an episode whose process died is played again
                    left[i] -= 1
                    done.append(_Episode(Episodes(*(of[i] for of in running)), bool(after.terminated[i]), info))
            if ended.any():
                running = restart(running, ended, 1 - gamma, np)
                memory = _begun_anew(life, memory, ended, jax.random.fold_in(key, BEGINNING - t))
            observation = after.observation
            if progress is not None and t % PULSE == 0:
                progress((len(done) + float(running.length[left > 0].sum()) / most) / episodes)
    return _together(done)


def _begun_anew(life: Life, memory: Any, ended: Bool[np.ndarray, " N"], key: PRNGKey) -> Any:
    """What a policy remembers, but for episodes that have just begun."""
    if not jax.tree.leaves(memory):
        return memory
    fresh = life.initial_state(len(ended), key)
    return jax.tree.map(lambda new, old: np.where(ended.reshape(-1, *(1,) * (old.ndim - 1)), new, old), fresh, memory)


def _play_single(
    env: HostEnv, policy: Any, episodes: int, gamma: float, seed: int, most: int, progress: Share | None
) -> Played:
    """With a policy that takes the environment's own observations one at a time."""
    made, done = env.ending_after(most).make(), []
    try:
        for episode in range(episodes):
            where = f"test episode {episode} of {env.name}"
            if callable(reset := getattr(policy, "reset", None)):
                reset(1)
            with blamed(f"{where} could not be begun"):
                observation, info = made.reset(seed=(TEST_SEED + 1000 * seed + episode) % 2**32)
            running, ended, terminated = new_episodes(1, env.D, 1 - gamma, np), False, False
            while not ended:
                action = policy(observation)
                length = int(running.length[0])
                with blamed(f"step {length + 1} of {where} failed"):
                    observation, reward, terminated, truncated, info = made.step(action)
                running = advance(running, np.asarray(reward).reshape(1, -1), gamma)
                ended = terminated or truncated
                if progress is not None and (length + 1) % PULSE == 0:
                    progress((episode + (length + 1) / most) / episodes)
            done.append(_Episode(Episodes(*(of[0] for of in running)), bool(terminated), info))
    finally:
        made.close()
    return _together(done)


class _Episode(NamedTuple):
    """One that was stepped one by one, and what its environment said at the end."""

    episodes: Episodes
    terminated: bool
    info: Mapping[str, Any]


def _together(done: list[_Episode]) -> Played:
    """Episodes as arrays; of the facts, those that every episode has."""
    sums, terminated, infos = zip(*done, strict=True)
    told = [info["summary"] for info in infos if isinstance(info.get("summary"), Mapping)]
    common = [name for name in told[0] if all(name in summary for summary in told)] if len(told) == len(done) else []
    return Played(
        Episodes(*map(np.array, zip(*sums, strict=True))),
        np.array(terminated),
        np.array([CUT_OFF in info for info in infos]),
        {name: np.array([summary[name] for summary in told], float) for name in common},
    )


def _hosted(env: PureEnv) -> HostEnv:
    return HostEnv.of(partial(GymEnv, env), type(env).__name__)
