"""Policies: what was learnt, and simple ones that need no learning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from evenhand.agents.distributions import to_environment
from evenhand.envs.core import PureEnv
from evenhand.envs.gym.host_env import HostEnv
from evenhand.errors import InputError
from evenhand.training.task import Task
from evenhand.types import Box, PRNGKey


@runtime_checkable
class Acts(Protocol):
    """A policy without memory that JAX can trace: actions of the environment for flat observations."""

    def act(self, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
        """Actions for N observations."""


@runtime_checkable
class Decides(Protocol):
    """A policy that may look at the clock as well, such as a fixed cycle; for arrays of NumPy and of JAX alike."""

    name: str

    def decide(self, observation: Any, step: Any) -> Any:
        """Actions for N observations, each so many steps after the beginning of its episode."""


@runtime_checkable
class Remembers(Protocol):
    """A policy with a memory that JAX can trace, such as one that is drawn at the start of an episode and kept to."""

    def initial_state(self, n: int, key: PRNGKey) -> Any:
        """The memory at the beginning of n episodes: a tree of arrays, whose first axis is that of the episodes."""

    def step(self, state: Any, observation: Float[Array, "N O"], key: PRNGKey) -> tuple[Any, Any]:
        """Actions for N observations, and the memory after them."""


class Life(NamedTuple):
    """Any of these policies as a pair of functions: how it begins, and how it goes on (see `Remembers`)."""

    initial_state: Callable[[int, PRNGKey], Any]
    step: Callable[[Any, Any, PRNGKey], tuple[Any, Any]]


def life_of(policy: Acts | Decides | Remembers) -> Life:
    """A policy with its memory: its own, the clock, or none, which costs nothing."""
    if isinstance(policy, Remembers):
        return Life(policy.initial_state, policy.step)
    if isinstance(policy, Decides):
        return Life(
            lambda n, key: np.zeros(n, np.int32),
            lambda clock, observation, key: (policy.decide(observation, clock), clock + 1),
        )
    return Life(lambda n, key: (), lambda state, observation, key: (policy.act(observation, key), state))


def chosen_actions(task: Task, agent: Any, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
    """Actions of the environment, by what an agent has learnt."""
    return to_environment(task.actions, task.agent.act(task.config, task.problem, agent, observation, key))


@dataclass(eq=False)
class Policy:
    """What was learnt, as a function from observations to actions.

    Policies of PPO and A2C are random where that is fair; `policy.seed(n)` makes their draws reproducible. Say
    `policy.reset()` at the start of an episode, or `policy.reset(n)` of n side by side: what it may remember of the
    last one is forgotten.
    """

    env: PureEnv | HostEnv
    task: Task
    agent: Any
    """The part of the agent's state that acting needs."""
    name: str = "policy"
    _key: Any = field(default=None, repr=False)
    _draws: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        self.seed(0)
        self._act = jax.jit(self._acted)
        self._mode = jax.jit(self._most_probable)

    def seed(self, seed: int) -> None:
        """Begin a new sequence of random draws."""
        self._key, self._draws = jax.random.key(seed), 0

    def reset(self, n: int = 1) -> None:
        """Begin n episodes; what was learnt so far has no memory, so that there is nothing to forget."""

    def act(self, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
        """Actions of the environment for N flat observations; can be traced."""
        return chosen_actions(self.task, self.agent, observation, key)

    def _acted(self, agent: Any, observation: Array, key: PRNGKey, draw: Array) -> Array:
        return chosen_actions(self.task, agent, observation, jax.random.fold_in(key, draw))

    def _most_probable(self, agent: Any, observation: Array) -> Array:
        task = self.task
        return to_environment(task.actions, task.agent.mode(task.config, task.problem, agent, observation))

    def __call__(self, observation: Any, deterministic: bool = False) -> Any:
        """The environment's own action for one of its observations, or actions for a batch of flat ones [N, O].

        deterministic: the most probable action instead of a random draw; a fair policy may then no longer be fair.
        """
        flat = self._flat(observation)
        batch = np.atleast_2d(flat)
        if deterministic:
            actions = np.asarray(self._mode(self.agent, batch))
        else:
            self._draws += 1
            actions = np.asarray(self._act(self.agent, batch, self._key, np.uint32(self._draws)))
        if flat.ndim == 2:
            return actions
        if isinstance(self.env, HostEnv):
            return self.env.native_action(actions[0])
        return actions[0] if isinstance(self.task.actions, Box) else int(actions[0])

    def _flat(self, observation: Any) -> Float[np.ndarray, "*N O"]:
        size = self.task.observation_size
        if isinstance(observation, (np.ndarray, jax.Array)) and observation.ndim in (1, 2):
            array = np.asarray(observation, np.float32)
            if array.shape[-1] == size:
                return array
        if isinstance(self.env, HostEnv):
            return self.env.flatten(observation)
        raise InputError(f"an observation of {self.env} is a vector of {size} numbers.")


@dataclass(frozen=True)
class RandomPolicy:
    """Every action equally likely."""

    env: PureEnv | HostEnv
    name: str = "random"

    def act(self, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
        """Draw actions."""
        space, N = self.env.action_space, observation.shape[0]
        if isinstance(space, Box):
            low, high = (jnp.broadcast_to(jnp.asarray(bound), (N, space.n)) for bound in (space.low, space.high))
            return jax.random.uniform(key, (N, space.n), minval=low, maxval=high)
        return jax.random.randint(key, (N,), 0, space.n)


@dataclass(frozen=True)
class ConstantPolicy:
    """Always the same action; of a box, the point at this share of the way from its low to its high end."""

    env: PureEnv | HostEnv
    action: int | float | Int[Array, ""]

    @property
    def name(self) -> str:
        """For tables."""
        return f"always {self.action}"

    def act(self, observation: Float[Array, "N O"], key: PRNGKey) -> Any:
        """The action."""
        space, N = self.env.action_space, observation.shape[0]
        if isinstance(space, Box):
            point = space.low + self.action * (space.high - space.low)
            return jnp.broadcast_to(jnp.asarray(point, jnp.float32), (N, space.n))
        return jnp.full(N, self.action, jnp.int32)


POLICIES = 'give what evenhand.load gives, "random", an action, or a function from observations to actions'


def as_policy(env: PureEnv | HostEnv, policy: Any) -> Any:
    """What `evaluate_policy` makes of a policy, by its name or as it is; refuses what does not suit the environment."""
    if isinstance(policy, str):
        own = {simple.name: simple for simple in getattr(env, "baselines", ())}
        if policy not in ("random", *own):
            also = f"; by name there are {', '.join(own)}" if own else ""
            raise InputError(f"{policy!r} is no policy: {POLICIES}{also}.")
        return RandomPolicy(env) if policy == "random" else own[policy]
    if isinstance(policy, (int, float, np.number)) and not isinstance(policy, bool):
        n = env.action_space.n
        if not isinstance(env.action_space, Box) and not (int(policy) == policy and 0 <= policy < n):
            raise InputError(f"there is no action {policy}: they are 0 … {n - 1}.")
        return ConstantPolicy(env, int(policy) if int(policy) == policy else float(policy))
    if isinstance(policy, Policy) and (policy.env.observation_space.n, policy.env.action_space) != (
        env.observation_space.n,
        env.action_space,
    ):
        raise InputError("the policy was trained with other observations or actions than this environment has.")
    if not isinstance(policy, Acts | Decides | Remembers) and not callable(policy):
        raise InputError(f"{policy!r} is no policy: {POLICIES}.")
    return policy


MOST_ACTIONS = 8
"""Up to so many actions, each has a policy that always takes it."""


def baselines(env: PureEnv | HostEnv) -> Iterator[tuple[str, Any]]:
    """Policies that need no learning, with their names: at random, and always the same action.

    An environment may bring better ones of its own, which then take the place of the latter.
    """
    yield "random", "random"
    own = getattr(env, "baselines", ())
    if own:
        yield from ((policy.name, policy) for policy in own)
    elif isinstance(env.action_space, Box):
        yield from ((f"always {name}", share) for name, share in (("low", 0.0), ("middle", 0.5), ("high", 1.0)))
    elif env.action_space.n <= MOST_ACTIONS:
        names = getattr(env, "action_names", None) or range(env.action_space.n)
        yield from ((f"always {name}", action) for action, name in enumerate(names))
