"""A policy and a vector critic side by side: what PPO and A2C have in common."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Shaped

from evenhand.agents.algorithm import Exported
from evenhand.agents.config import Common, Count, Schedule, Share, hyperparameters, scheduled
from evenhand.agents.distributions import Distribution, distribution
from evenhand.agents.fairness import InitialStates, mean_over, no_initial_states, objective_weights, remember
from evenhand.agents.networks import NETWORKS, Params, generator, perceptron
from evenhand.agents.normalise import Scales, inputs, new_scales, reward_factor, update_scales
from evenhand.agents.problem import Problem
from evenhand.types import Box, PRNGKey, Transitions


@hyperparameters
class ActorCriticConfig(Common):
    """The hyperparameters that both have."""

    critic_schedule: Schedule = "constant"
    """The learning rate's schedule for the critic, which should not lag behind the policy."""
    gae_lambda: Share = 0.95
    """λ of the advantage estimates: 0 looks one step ahead; 1 makes them n-step returns to the end of the rollout."""
    entropy: float = 0.01
    """Weight of the policy's entropy."""
    entropy_schedule: Schedule = "constant"
    """Constant, or falling to zero: explore first, settle later."""
    value: float = 0.5
    """Weight of the critic's loss."""
    normalise_advantages: bool = True
    """Scale advantages so that their weighted sum has deviation 1: the entropy then fits rewards of any size."""
    weight_width: float = 0.0
    """A GGF's weights pass from one order of the users to another over this band of returns, relative to their mean
    size; 0, the paper's rule, is a jump."""
    average: Share = 0.25
    """The policy in the end has the mean parameters over this last share of the training; 0 for the last ones."""
    initial_states: Count = 64
    """Over how many of the latest initial states J is averaged, rounded up to a multiple of the environments."""


class ActorCritic(NamedTuple):
    """The parameters of two separate networks."""

    actor: Params
    critic: Params
    log_std: Float[Array, " n"] | None
    """The logarithm of a Gaussian policy's deviation; None where actions are discrete."""


class Averaged(NamedTuple):
    """The mean of the policy's parameters over the last updates."""

    actor: Params
    log_std: Float[Array, " n"] | None
    updates: Float[Array, ""]


class State(NamedTuple):
    """All that changes while learning."""

    params: ActorCritic
    averaged: Averaged
    optimiser: optax.OptState
    initial: InitialStates
    scales: Scales


def new_state(
    config: ActorCriticConfig, problem: Problem, seed: int | None, optimiser: optax.GradientTransformation
) -> State:
    """Random networks, which at first hardly prefer any action; nothing seen."""
    random, new = generator(seed), NETWORKS[config.network].initialise
    params = ActorCritic(
        actor=new(random, problem.observation_size, problem.actions.n, config, 0.01),
        critic=new(random, problem.observation_size, problem.D, config, 1.0),
        log_std=jnp.zeros(problem.actions.n) if isinstance(problem.actions, Box) else None,
    )
    return State(
        params=params,
        averaged=jax.tree.map(jnp.copy, Averaged(params.actor, params.log_std, jnp.array(0.0))),
        optimiser=optimiser.init(params),
        initial=no_initial_states(-(-config.initial_states // config.envs), config.envs, problem.observation_size),
        scales=new_scales(config, problem.observation_size, problem.D),
    )


def act(
    config: ActorCriticConfig, problem: Problem, state: State, observation: Float[Array, "N O"], key: PRNGKey
) -> Shaped[Array, "N *a"]:
    """Draw raw actions from the policy that was learnt, the averaged one."""
    return policy(config, problem, _settled(state), inputs(state.scales, observation)).sample(key)


def explore(
    config: ActorCriticConfig,
    problem: Problem,
    state: State,
    observation: Float[Array, "N O"],
    key: PRNGKey,
    remaining: Float[Array, ""],
) -> Shaped[Array, "N *a"]:
    """Draw raw actions from the policy as it is now: it explores by itself."""
    return policy(config, problem, state.params, inputs(state.scales, observation)).sample(key)


def acting(state: Any) -> Any:
    """Only what acting needs."""
    return state._replace(optimiser=(), initial=None, scales=state.scales._replace(rewards=None))


def mode(
    config: ActorCriticConfig, problem: Problem, state: State, observation: Float[Array, "N O"]
) -> Shaped[Array, "N *a"]:
    """The most probable raw actions."""
    return policy(config, problem, _settled(state), inputs(state.scales, observation)).mode()


def exported(config: ActorCriticConfig, state: State) -> Exported:
    """The same policy for a file."""
    layers = perceptron(config, state.averaged.actor)
    activations = [config.activation] * len(config.hidden) + ["linear"]
    return Exported(state.scales.observations, layers, activations, greedy=False, log_std=state.averaged.log_std)


def _settled(state: State) -> ActorCritic:
    return state.params._replace(actor=state.averaged.actor, log_std=state.averaged.log_std)


def apply_update(
    config: ActorCriticConfig, state: State, params: ActorCritic, optimiser: optax.OptState, remaining: Float[Array, ""]
) -> State:
    """The state with new parameters, and with their average over the last share of the training.

    Where users change places the weights jump, and the policy is pushed to and fro around the fair one: the last
    iterate is anywhere around it, the mean of many is close to it, as for all saddle points.
    """
    ending = remaining <= config.average
    updates = jnp.where(ending, state.averaged.updates + 1.0, 1.0)

    def averaged(mean: Array, new: Array) -> Array:
        return mean + (new - mean) / updates

    actor, log_std = jax.tree.map(
        averaged, (state.averaged.actor, state.averaged.log_std), (params.actor, params.log_std)
    )
    # Before the end begins, `updates` is 1 and the mean is what is new.
    return state._replace(params=params, optimiser=optimiser, averaged=Averaged(actor, log_std, updates))


def apply_gradients(
    config: ActorCriticConfig, params: ActorCritic, change: ActorCritic, remaining: Float[Array, ""]
) -> ActorCritic:
    """Follow the optimiser. The critic need not slow down with the policy: one that lags behind misplaces weights."""
    policy_rate = scheduled(config.learning_rate, config.learning_rate_schedule, remaining)
    critic_rate = scheduled(config.learning_rate, config.critic_schedule, remaining)
    rates = ActorCritic(policy_rate, critic_rate, policy_rate)

    def part(rate: Any, old: Any, step: Any) -> Any:
        return jax.tree.map(lambda p, c: p - rate * c, old, step)

    return ActorCritic(*(part(*three) for three in zip(rates, params, change, strict=True)))


def policy(
    config: ActorCriticConfig, problem: Problem, params: ActorCritic, x: Float[Array, "*batch O"]
) -> Distribution:
    """π(· | x)."""
    return distribution(problem.actions, NETWORKS[config.network].apply(params.actor, x, config), params.log_std)


def critic(config: ActorCriticConfig, params: ActorCritic, x: Float[Array, "*batch O"]) -> Float[Array, "*batch D"]:
    """V(x), one number per objective."""
    return NETWORKS[config.network].apply(params.critic, x, config)


def observe(config: ActorCriticConfig, state: State, transitions: Transitions) -> tuple[State, Float[Array, "T N D"]]:
    """Count what was seen, and bring the rewards to scale."""
    state = state._replace(initial=remember(state.initial, transitions.observation, transitions.initial))
    state = state._replace(scales=update_scales(config, state.scales, transitions))
    return state, reward_factor(config, state.scales) * transitions.reward


def welfare_weights(
    config: ActorCriticConfig, problem: Problem, state: State
) -> tuple[Float[Array, " D"], Float[Array, " D"]]:
    """J, the critic's mean over the stored initial states, and w = W′(J)."""
    J = mean_over(state.initial, critic(config, state.params, inputs(state.scales, state.initial.observations)))
    return J, objective_weights(problem.welfare, J, config.weight_width)


def flat(x: Shaped[Array, "T N *rest"]) -> Shaped[Array, "B *rest"]:
    """All steps in one row."""
    return x.reshape(-1, *x.shape[2:])
