"""Deep Q-learning for the welfare of D returns; plain DQN is the case D = 1.

The network has outputs Q(s, a) ∈ ℝ^D for every action. The target of Q(s, a) is r + γ Q̄(s′, a*), with Q̄ the target
network and a* the action for which the welfare of r + γ Q̄(s′, ·) is largest (the paper's section 4). Its policies are
deterministic, and greedy for the welfare of what is still to come in each state: where fair policies must be random,
or remember what was already shared out, this is a limit that no training overcomes.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from evenhand.agents.algorithm import Exported, Range, SearchSpace
from evenhand.agents.config import Common, Count, Positive, Share, hyperparameters, scheduled
from evenhand.agents.fairness import welfare_of_estimates
from evenhand.agents.networks import NETWORKS, Initialisation, Params, clip_by_norm, generator, perceptron
from evenhand.agents.normalise import Scales, inputs, new_scales, reward_factor, update_scales
from evenhand.agents.problem import Problem
from evenhand.agents.replay import Memory, Sample, draw, empty_memory, store
from evenhand.types import Actions, Discrete, PRNGKey, Transitions

REVISION = 1
ACTIONS: tuple[type[Actions], ...] = (Discrete,)
COLOUR = "#009E73"
SPEED = 15_000.0
SEARCH: SearchSpace = {
    "learning_rate": Range(3e-5, 3e-3),
    "batch": (32, 64, 128),
    "target_interval": (250, 500, 2000, 10_000),
    "exploration_fraction": (0.1, 0.3, 0.5),
    "learning_rate_schedule": ("constant", "linear"),
}


@hyperparameters
class Config(Common):
    """Hyperparameters of DQN."""

    envs: Count = 1
    rollout: Count = 4
    activation: Literal["tanh", "relu"] = "relu"
    gradient_norm: Positive = 10.0
    gradient_steps: Count = 1
    """Gradient steps in each round."""
    batch: Count = 64
    """Remembered steps in one gradient step."""
    memory: Count = 50_000
    """How many steps are remembered."""
    learning_starts: int = 1_000
    """Steps before the first round of learning."""
    adam_epsilon: Positive = 1e-8
    """Keeps Adam's steps small where gradients vanish."""
    target_interval: Count = 500
    """Steps between two copies of the network to the target network."""
    double: bool = False
    """Let the network itself, not the target network, choose a* (double DQN)."""
    exploration_start: Share = 1.0
    """Probability of a random action at the beginning."""
    exploration_end: Share = 0.02
    """Probability of a random action in the end."""
    exploration_fraction: Share = 0.1
    """Share of the training over which it falls, linearly."""
    output_activation: Literal["linear", "relu"] = "linear"
    """Of the outputs; relu, as in the paper's table, cannot learn negative returns."""

    @property
    def room(self) -> int:
        """Steps remembered, rounded up to whole rollouts."""
        return -(-self.memory // self.steps_per_update) * self.steps_per_update

    @property
    def initialisation(self) -> Initialisation:
        """How the layers of a perceptron are drawn."""
        return "uniform"


class State(NamedTuple):
    """All that changes while learning."""

    network: Params
    target: Params
    optimiser: optax.OptState
    memory: Memory
    steps: Int[Array, ""]
    scales: Scales


def impossible(config: Config) -> str | None:
    """What is impossible about the settings, in words."""
    if config.batch > config.memory:
        return f"a batch of {config.batch} steps cannot be drawn from a memory of {config.memory}."
    if config.learning_starts > config.memory:
        return f"learning starts after {config.learning_starts} steps, but only {config.memory} are remembered."
    if config.steps_per_update > config.memory:
        return f"a rollout of {config.envs} × {config.rollout} steps does not fit in a memory of {config.memory}."
    return None


def reported(problem: Problem) -> dict[str, tuple[int, ...]]:
    """The shapes of what `update` reports."""
    return {"value_loss": (), "mean_q": ()}


def initialise(config: Config, problem: Problem, seed: int | None) -> State:
    """A random network; nothing seen."""
    new, outputs = NETWORKS[config.network].initialise, problem.actions.n * problem.D
    network = new(generator(seed), problem.observation_size, outputs, config, 1.0)
    return State(
        network=network,
        target=jax.tree.map(jnp.copy, network),
        optimiser=_adam(config).init(network),
        memory=empty_memory(config.room, problem.observation_size, problem.D),
        steps=jnp.array(0, jnp.int32),
        scales=new_scales(config, problem.observation_size, problem.D),
    )


def acting(state: Any) -> Any:
    """Only what acting needs."""
    return state._replace(target=(), optimiser=(), memory=None, steps=None, scales=state.scales._replace(rewards=None))


def mode(config: Config, problem: Problem, state: State, observation: Float[Array, "N O"]) -> Int[Array, " N"]:
    """The action whose Q has the largest welfare."""
    Q = action_values(config, problem, state.network, inputs(state.scales, observation))
    return jnp.argmax(welfare_of_estimates(problem.welfare, Q), axis=-1).astype(jnp.int32)


def act(
    config: Config, problem: Problem, state: State, observation: Float[Array, "N O"], key: PRNGKey
) -> Int[Array, " N"]:
    """The same: what was learnt is a deterministic policy."""
    return mode(config, problem, state, observation)


def exported(config: Config, state: State) -> Exported:
    """The same policy for a file."""
    layers = perceptron(config, state.network)
    activations = [config.activation] * len(config.hidden) + [config.output_activation]
    return Exported(state.scales.observations, layers, activations, greedy=True, log_std=None)


def explore(
    config: Config,
    problem: Problem,
    state: State,
    observation: Float[Array, "N O"],
    key: PRNGKey,
    remaining: Float[Array, ""],
) -> Int[Array, " N"]:
    """Now and then a random action."""
    done = jnp.clip((1.0 - remaining) / jnp.maximum(config.exploration_fraction, 1e-9), 0.0, 1.0)
    epsilon = config.exploration_start + done * (config.exploration_end - config.exploration_start)
    N, A = observation.shape[0], problem.actions.n
    drawn = jax.random.uniform(key, (2, N))
    anything = jnp.minimum((drawn[0] * A).astype(jnp.int32), A - 1)
    return jnp.where(drawn[1] < epsilon, anything, mode(config, problem, state, observation))


def update(
    config: Config,
    problem: Problem,
    state: State,
    transitions: Transitions,
    key: PRNGKey,
    remaining: Float[Array, ""],
) -> tuple[State, dict[str, Array]]:
    """Remember the rollout and learn from what is remembered; `remaining` is the share of the training to come."""
    state = state._replace(
        memory=store(state.memory, transitions),
        steps=state.steps + config.steps_per_update,
        scales=update_scales(config, state.scales, transitions),
    )
    learning_rate = scheduled(config.learning_rate, config.learning_rate_schedule, remaining)
    factor = reward_factor(config, state.scales)

    def descend(
        learner: tuple[Params, optax.OptState], key: PRNGKey
    ) -> tuple[tuple[Params, optax.OptState], dict[str, Array]]:
        network, optimiser = learner
        sample = draw(state.memory, key, config.batch)
        sample = sample._replace(
            observation=inputs(state.scales, sample.observation),
            next_observation=inputs(state.scales, sample.next_observation),
            reward=factor * sample.reward,
        )
        target = targets(config, problem, network, state.target, sample)
        gradient, metrics = jax.grad(loss, argnums=2, has_aux=True)(config, problem, network, sample, target)
        change, optimiser = _adam(config).update(clip_by_norm(gradient, config.gradient_norm), optimiser)
        network = jax.tree.map(lambda p, c: p - learning_rate * c, network, change)
        return (network, optimiser), metrics

    def learn(_: None) -> tuple[tuple[Params, optax.OptState], dict[str, Array]]:
        keys = jax.random.split(key, config.gradient_steps)
        learner, metrics = jax.lax.scan(descend, (state.network, state.optimiser), keys)
        return learner, {name: jnp.mean(values) for name, values in metrics.items()}

    def wait(_: None) -> tuple[tuple[Params, optax.OptState], dict[str, Array]]:
        return (state.network, state.optimiser), {"value_loss": jnp.array(0.0), "mean_q": jnp.array(0.0)}

    (network, optimiser), metrics = jax.lax.cond(state.steps >= config.learning_starts, learn, wait, None)
    before = state.steps - config.steps_per_update
    due = state.steps // config.target_interval > before // config.target_interval
    target = jax.tree.map(lambda new, old: jnp.where(due, new, old), network, state.target)
    return state._replace(network=network, target=target, optimiser=optimiser), metrics


def targets(config: Config, problem: Problem, network: Params, target: Params, sample: Sample) -> Float[Array, "B D"]:
    """r + γ Q̄(s′, a*), a* maximising the welfare of r + γ Q̄(s′, ·); r alone where the episode has ended."""
    goes_on = jnp.where(sample.terminated, 0.0, config.gamma)[:, None, None]
    reward = sample.reward[:, None, :]
    possible = reward + goes_on * action_values(config, problem, target, sample.next_observation)
    judged = possible
    if config.double:
        judged = reward + goes_on * action_values(config, problem, network, sample.next_observation)
    best = jnp.argmax(welfare_of_estimates(problem.welfare, judged), axis=-1)
    return _chosen(possible, best)


def loss(
    config: Config, problem: Problem, network: Params, sample: Sample, target: Float[Array, "B D"]
) -> tuple[Float[Array, ""], dict[str, Array]]:
    """Huber's loss of Q(s, a) − target: quadratic up to 1 and linear beyond."""
    chosen = _chosen(action_values(config, problem, network, sample.observation), sample.action)
    value_loss = jnp.mean(optax.losses.huber_loss(chosen, target))
    return value_loss, {"value_loss": value_loss, "mean_q": jnp.mean(chosen)}


def action_values(config: Config, problem: Problem, network: Params, x: Float[Array, "B O"]) -> Float[Array, "B A D"]:
    """Q(x, ·)."""
    Q = NETWORKS[config.network].apply(network, x, config).reshape(x.shape[0], problem.actions.n, problem.D)
    return jax.nn.relu(Q) if config.output_activation == "relu" else Q


def _chosen(values: Float[Array, "B A D"], action: Int[Array, " B"]) -> Float[Array, "B D"]:
    # A one-hot product, not a gather: its derivative is a product again, not a scatter.
    chosen: Bool[Array, "B A"] = action[:, None] == jnp.arange(values.shape[1])[None, :]
    return jnp.sum(jnp.where(chosen[..., None], values, 0.0), axis=1)


def _adam(config: Config) -> optax.GradientTransformation:
    return optax.scale_by_adam(eps=config.adam_epsilon)
