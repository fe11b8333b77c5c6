"""Advantage actor-critic for the welfare of D returns; plain A2C is the case D = 1.

One gradient step on every rollout: −Σ_k w_k log π(a|s) A_k with w = W′(J) (the paper's section 4).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Shaped

from evenhand.agents.actor_critic import (
    ActorCritic,
    ActorCriticConfig,
    State,
    act,
    acting,
    apply_gradients,
    apply_update,
    critic,
    explore,
    exported,
    flat,
    mode,
    new_state,
    observe,
    policy,
    welfare_weights,
)
from evenhand.agents.algorithm import Range, SearchSpace
from evenhand.agents.config import Count, Positive, Share, hyperparameters, scheduled
from evenhand.agents.estimators import advantages, explained_variance
from evenhand.agents.networks import clip_by_norm
from evenhand.agents.normalise import inputs
from evenhand.agents.problem import Problem
from evenhand.types import Actions, Box, Discrete, PRNGKey, Transitions

__all__ = [
    "ACTIONS",
    "COLOUR",
    "REVISION",
    "SEARCH",
    "SPEED",
    "Config",
    "State",
    "act",
    "acting",
    "explore",
    "exported",
    "impossible",
    "initialise",
    "mode",
    "reported",
    "update",
]

REVISION = 1
ACTIONS: tuple[type[Actions], ...] = (Discrete, Box)
COLOUR = "#E69F00"
SPEED = 60_000.0
SEARCH: SearchSpace = {
    "learning_rate": Range(1e-4, 1e-2),
    "entropy": Range(1e-4, 3e-2),
    "gae_lambda": (0.9, 0.95, 0.98, 1.0),
    "rollout": (5, 10, 30, 64),
    "normalise_advantages": (False, True),
    "learning_rate_schedule": ("constant", "linear"),
}


@hyperparameters
class Config(ActorCriticConfig):
    """Hyperparameters of A2C."""

    rollout: Count = 10
    learning_rate: Positive = 7e-4
    gae_lambda: Share = 1.0
    value: float = 0.25
    rmsprop_decay: Share = 0.99
    """How slowly RMSprop forgets the size of gradients."""
    rmsprop_epsilon: Positive = 1e-10
    """Keeps its steps small where gradients vanish. It stands under the root: where squared gradients are smaller than
    it, steps shrink with the scale of the rewards."""


def impossible(config: Config) -> str | None:
    """What is impossible about the settings, in words."""
    return None


def reported(problem: Problem) -> dict[str, tuple[int, ...]]:
    """The shapes of what `update` reports."""
    scalars = ("policy_loss", "value_loss", "entropy", "explained_variance")
    return dict.fromkeys(scalars, ()) | {"J": (problem.D,), "weights": (problem.D,)}


def initialise(config: Config, problem: Problem, seed: int | None) -> State:
    """Random networks; nothing seen."""
    return new_state(config, problem, seed, _rmsprop(config))


def update(
    config: Config,
    problem: Problem,
    state: State,
    transitions: Transitions,
    key: PRNGKey,
    remaining: Float[Array, ""],
) -> tuple[State, dict[str, Array]]:
    """Learn from one rollout; `remaining` is the share of the training still to come."""
    state, reward = observe(config, state, transitions)
    x = inputs(state.scales, jnp.stack([transitions.observation, transitions.next_observation]))
    value, next_value = critic(config, state.params, x)
    advantage = advantages(
        reward, value, next_value, transitions.terminated, transitions.truncated, config.gamma, config.gae_lambda
    )
    J, weights = welfare_weights(config, problem, state)
    weighted = advantage @ weights
    if config.normalise_advantages:
        weighted = weighted / (jnp.std(weighted) + 1e-8)
    target = advantage + value
    entropy = scheduled(config.entropy, config.entropy_schedule, remaining)
    gradient, metrics = jax.grad(loss, argnums=2, has_aux=True)(
        config, problem, state.params, flat(x[0]), flat(transitions.action), flat(weighted), flat(target), entropy
    )
    change, optimiser = _rmsprop(config).update(clip_by_norm(gradient, config.gradient_norm), state.optimiser)
    params = apply_gradients(config, state.params, change, remaining)
    report = metrics | {"J": J, "weights": weights, "explained_variance": explained_variance(value, target)}
    return apply_update(config, state, params, optimiser, remaining), report


def loss(
    config: Config,
    problem: Problem,
    params: ActorCritic,
    x: Float[Array, "B O"],
    action: Shaped[Array, "B *a"],
    advantage: Float[Array, " B"],
    target: Float[Array, "B D"],
    entropy_weight: float | Float[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """−mean(log π(a|s) Σ_k w_k A_k) + c_v mean (V − target)² − c_e entropy, given Σ_k w_k A_k."""
    pi = policy(config, problem, params, x)
    policy_loss = -jnp.mean(pi.log_prob(action) * advantage)
    value_loss = jnp.mean((critic(config, params, x) - target) ** 2)
    entropy = jnp.mean(pi.entropy())
    metrics = {"policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
    return policy_loss + config.value * value_loss - entropy_weight * entropy, metrics


def _rmsprop(config: Config) -> optax.GradientTransformation:
    return optax.scale_by_rms(
        decay=config.rmsprop_decay, eps=config.rmsprop_epsilon, eps_in_sqrt=True, bias_correction=True
    )
