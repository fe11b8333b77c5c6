"""A policy and a vector critic side by side: what PPO and A2C have in common."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Shaped

from evenhand.agents.distributions import Distribution, distribution
from evenhand.agents.fairness import InitialStates, mean_over, no_initial_states, objective_weights, remember
from evenhand.agents.networks import MLP, apply_mlp, new_mlp
from evenhand.agents.normalise import (
    RewardScale,
    Running,
    no_rewards_seen,
    normalised,
    nothing_seen,
    reward_factor,
    rewards_seen,
    seen,
)
from evenhand.agents.problem import Problem
from evenhand.types import Box, PRNGKey, Transitions


@runtime_checkable
class Settings(Protocol):
    """The hyperparameters that both have."""

    @property
    def gamma(self) -> float: ...  # noqa: D102
    @property
    def envs(self) -> int: ...  # noqa: D102
    @property
    def hidden(self) -> tuple[int, ...]: ...  # noqa: D102
    @property
    def activation(self) -> str: ...  # noqa: D102
    @property
    def normalise_observations(self) -> bool: ...  # noqa: D102
    @property
    def normalise_rewards(self) -> bool: ...  # noqa: D102
    @property
    def reward_scale(self) -> float | None: ...  # noqa: D102
    @property
    def weight_width(self) -> float: ...  # noqa: D102
    @property
    def initial_states(self) -> int: ...  # noqa: D102


class ActorCritic(NamedTuple):
    """The parameters of two separate networks."""

    actor: MLP
    critic: MLP
    log_std: Float[Array, " n"] | None
    """The logarithm of a Gaussian policy's deviation; None where actions are discrete."""


class State(NamedTuple):
    """All that changes while learning."""

    params: ActorCritic
    optimiser: optax.OptState
    initial: InitialStates
    observations: Running | None
    rewards: RewardScale | None


def new_state(config: Settings, problem: Problem, seed: int, optimiser: optax.GradientTransformation) -> State:
    """Random networks, which at first hardly prefer any action; nothing seen."""
    random = np.random.default_rng(seed)
    sizes = (problem.observation_size, *config.hidden)
    params = ActorCritic(
        actor=new_mlp(random, (*sizes, problem.actions.n), "orthogonal", 0.01),
        critic=new_mlp(random, (*sizes, problem.D), "orthogonal", 1.0),
        log_std=jnp.zeros(problem.actions.n) if isinstance(problem.actions, Box) else None,
    )
    return State(
        params=params,
        optimiser=optimiser.init(params),
        initial=no_initial_states(-(-config.initial_states // config.envs), config.envs, problem.observation_size),
        observations=nothing_seen(problem.observation_size) if config.normalise_observations else None,
        rewards=no_rewards_seen(config.envs, problem.D) if config.normalise_rewards else None,
    )


def act(
    config: Settings, problem: Problem, state: State, observation: Float[Array, "N O"], key: PRNGKey
) -> Shaped[Array, "N *a"]:
    """Draw raw actions from the policy."""
    return policy(config, problem, state.params, inputs(state, observation)).sample(key)


def explore(
    config: Settings,
    problem: Problem,
    state: State,
    observation: Float[Array, "N O"],
    key: PRNGKey,
    remaining: Float[Array, ""],
) -> Shaped[Array, "N *a"]:
    """The same: the policy explores by itself."""
    return act(config, problem, state, observation, key)


def acting(state: Any) -> Any:
    """Only what acting needs."""
    return state._replace(optimiser=(), initial=None, rewards=None)


def mode(config: Settings, problem: Problem, state: State, observation: Float[Array, "N O"]) -> Shaped[Array, "N *a"]:
    """The most probable raw actions."""
    return policy(config, problem, state.params, inputs(state, observation)).mode()


def inputs(state: State, observation: Float[Array, "*batch O"]) -> Float[Array, "*batch O"]:
    """Observations as the networks see them."""
    return observation if state.observations is None else normalised(state.observations, observation)


def policy(config: Settings, problem: Problem, params: ActorCritic, x: Float[Array, "*batch O"]) -> Distribution:
    """π(· | x)."""
    return distribution(problem.actions, apply_mlp(params.actor, x, config.activation), params.log_std)


def critic(config: Settings, params: ActorCritic, x: Float[Array, "*batch O"]) -> Float[Array, "*batch D"]:
    """V(x), one number per objective."""
    return apply_mlp(params.critic, x, config.activation)


def take_in(config: Settings, state: State, transitions: Transitions) -> tuple[State, Float[Array, "T N D"]]:
    """Count what was seen, and bring the rewards to scale."""
    state = state._replace(initial=remember(state.initial, transitions.observation, transitions.initial))
    factor: Float[Array, ""] | float = 1.0 - config.gamma if config.reward_scale is None else config.reward_scale
    if state.rewards is not None:
        ended = transitions.terminated | transitions.truncated
        rewards = rewards_seen(state.rewards, transitions.reward, ended, config.gamma)
        state, factor = state._replace(rewards=rewards), reward_factor(rewards)
    if state.observations is not None:
        state = state._replace(observations=seen(state.observations, flat(transitions.observation)))
    return state, factor * transitions.reward


def welfare_weights(config: Settings, problem: Problem, state: State) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """J, the critic's mean over the stored initial states, and w = W′(J)."""
    J = mean_over(state.initial, critic(config, state.params, inputs(state, state.initial.observations)))
    return J, objective_weights(problem.welfare, J, config.weight_width)


def flat(x: Shaped[Array, "T N *rest"]) -> Shaped[Array, "B *rest"]:
    """All steps in one row."""
    return x.reshape(-1, *x.shape[2:])


def shortened(gradient: ActorCritic, most: float | Float[Array, ""]) -> ActorCritic:
    """The gradient, shortened to the length `most` if it is longer."""
    length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    factor = jnp.minimum(1.0, most / jnp.maximum(length, 1e-12))
    return jax.tree.map(lambda leaf: leaf * factor, gradient)
