"""Proximal policy optimisation for the welfare of D returns; plain PPO is the case D = 1.

Each objective has its own critic output and its own advantages; the D surrogate objectives are weighted by
W′(J) (the paper's section 4). Read from top to bottom: declaration, configuration, initialise, update, loss.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Shaped

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
from evenhand.agents.config import Count, Positive, Schedule, hyperparameters, scheduled
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
COLOUR = "#0072B2"
SPEED = 40_000.0
SEARCH: SearchSpace = {
    "learning_rate": Range(3e-5, 3e-3),
    "entropy": Range(1e-4, 3e-2),
    "gae_lambda": (0.9, 0.95, 0.98, 0.99),
    "rollout": (64, 128, 256),
    "clip": (0.1, 0.2, 0.3),
    "learning_rate_schedule": ("constant", "linear"),
}


@hyperparameters
class Config(ActorCriticConfig):
    """Hyperparameters of PPO."""

    learning_rate: Positive = 3e-4
    epochs: Count = 4
    """Passes over the steps of one update."""
    minibatches: Count = 4
    """Parts of one pass, each a gradient step."""
    adam_epsilon: Positive = 1e-5
    """Keeps Adam's steps small where gradients vanish."""
    clip: Positive = 0.2
    """How far the probability of an action may move in one update before its gradient is cut off."""
    clip_schedule: Schedule = "constant"
    """Constant, or falling to zero."""
    clip_of: Literal["objective", "welfare"] = "objective"
    """Clip the surrogate of each objective and then weight them (the paper), or weight advantages and clip once."""
    value_clip: Positive | None = None
    """How far a value may move in one update; no limit by default."""


class Samples(NamedTuple):
    """What the loss sees of B steps."""

    x: Float[Array, "B O"]
    action: Shaped[Array, "B *a"]
    log_prob: Float[Array, " B"]
    """Of the action when it was taken."""
    value: Float[Array, "B D"]
    advantage: Float[Array, "B D"]
    target: Float[Array, "B D"]
    """What the critic should have said."""


def impossible(config: Config) -> str | None:
    """What is impossible about the settings, in words."""
    if config.steps_per_update % config.minibatches:
        return (
            f"the {config.envs} × {config.rollout} steps of a rollout (envs, rollout) cannot be divided "
            f"into {config.minibatches} minibatches."
        )
    return None


def reported(problem: Problem) -> dict[str, tuple[int, ...]]:
    """The shapes of what `update` reports."""
    scalars = ("policy_loss", "value_loss", "entropy", "kl", "clipped", "explained_variance")
    return dict.fromkeys(scalars, ()) | {"J": (problem.D,), "weights": (problem.D,)}


def initialise(config: Config, problem: Problem, seed: int | None) -> State:
    """Random networks; nothing seen."""
    return new_state(config, problem, seed, _adam(config))


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
    log_prob = policy(config, problem, state.params, x[0]).log_prob(transitions.action)
    J, weights = welfare_weights(config, problem, state)
    target = advantage + value
    if config.normalise_advantages:
        advantage = _to_scale(advantage, weights)
    samples = jax.tree.map(flat, Samples(x[0], transitions.action, log_prob, value, advantage, target))

    clip = scheduled(config.clip, config.clip_schedule, remaining)
    entropy = scheduled(config.entropy, config.entropy_schedule, remaining)
    Learner = tuple[ActorCritic, optax.OptState]

    def descend(learner: Learner, minibatch: Samples) -> tuple[Learner, dict[str, Array]]:
        params, optimiser = learner
        gradient, metrics = jax.grad(loss, argnums=2, has_aux=True)(
            config, problem, params, minibatch, weights, clip, entropy
        )
        change, optimiser = _adam(config).update(clip_by_norm(gradient, config.gradient_norm), optimiser)
        return (apply_gradients(config, params, change, remaining), optimiser), metrics

    def epoch(learner: Learner, key: PRNGKey) -> tuple[Learner, dict[str, Array]]:
        order = _any_order(key, config.steps_per_update)
        shuffled = jax.tree.map(lambda y: y[order].reshape(config.minibatches, -1, *y.shape[1:]), samples)
        return jax.lax.scan(descend, learner, shuffled)

    keys = jax.random.split(key, config.epochs)
    (params, optimiser), metrics = jax.lax.scan(epoch, (state.params, state.optimiser), keys)
    report = {name: jnp.mean(values) for name, values in metrics.items()}
    report |= {"J": J, "weights": weights, "explained_variance": explained_variance(samples.value, samples.target)}
    return apply_update(config, state, params, optimiser, remaining), report


def loss(
    config: Config,
    problem: Problem,
    params: ActorCritic,
    samples: Samples,
    weights: Float[Array, " D"],
    clip: float | Float[Array, ""],
    entropy_weight: float | Float[Array, ""],
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """−Σ_k w_k mean(min(ρ A_k, clip(ρ, 1 ± ε) A_k)) + ½ c_v mean (V − target)² − c_e entropy."""
    pi = policy(config, problem, params, samples.x)
    log_ratio = pi.log_prob(samples.action) - samples.log_prob
    ratio = jnp.exp(log_ratio)[:, None]
    advantage, w = samples.advantage, jnp.broadcast_to(weights, samples.advantage.shape)
    if config.clip_of == "welfare":
        advantage, w = jnp.sum(w * advantage, axis=1, keepdims=True), jnp.ones_like(w[:, :1])
    clipped = jnp.clip(ratio, 1.0 - clip, 1.0 + clip)
    surrogate = jnp.mean(jnp.sum(w * jnp.minimum(ratio * advantage, clipped * advantage), axis=1))

    value = critic(config, params, samples.x)
    error = (value - samples.target) ** 2
    if config.value_clip is not None:
        near = samples.value + jnp.clip(value - samples.value, -config.value_clip, config.value_clip)
        error = jnp.maximum(error, (near - samples.target) ** 2)
    value_loss = 0.5 * jnp.mean(error)
    entropy = jnp.mean(pi.entropy())
    metrics = {
        "policy_loss": -surrogate,
        "value_loss": value_loss,
        "entropy": entropy,
        "kl": jnp.mean(ratio[:, 0] - 1.0 - log_ratio),
        "clipped": jnp.mean(jnp.abs(ratio[:, 0] - 1.0) > clip),
    }
    return -surrogate + config.value * value_loss - entropy_weight * entropy, metrics


def _any_order(key: PRNGKey, n: int) -> Int[Array, " n"]:
    """The numbers below n in random order: sorted by random bits, of which the last ones are the number itself.

    Sorting one array takes a fifth of the time of `jax.random.permutation`, which is a tenth of an epoch. Numbers whose
    random bits agree keep their order, which only matters where two minibatches meet.
    """
    own = 2 ** (n - 1).bit_length() - 1
    drawn = jax.random.bits(key, (n,), jnp.uint32)
    return (jnp.sort((drawn & ~jnp.uint32(own)) | jnp.arange(n, dtype=jnp.uint32)) & own).astype(jnp.int32)


def _to_scale(advantage: Float[Array, "T N D"], weights: Float[Array, " D"]) -> Float[Array, "T N D"]:
    """Centred, and divided by the deviation of their weighted sum: one scale for all, or the weights would lose
    their meaning."""
    advantage = advantage - jnp.mean(advantage, axis=(0, 1), keepdims=True)
    return advantage / (jnp.std(advantage @ weights) + 1e-8)


def _adam(config: Config) -> optax.GradientTransformation:
    return optax.scale_by_adam(eps=config.adam_epsilon)
