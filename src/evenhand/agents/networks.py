"""Networks by their names: pairs of functions, one that draws parameters and one that applies them.

"mlp" are multilayer perceptrons as plain tuples of arrays, which compile and dispatch faster than objects."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evenhand.errors import InputError
from evenhand.extensions import added

if TYPE_CHECKING:
    from evenhand.agents.config import Common

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu}
Initialisation = Literal["orthogonal", "uniform"]
Params = Any
"""A tree of arrays."""
NARROW, MANY = 16, 32
"""Layers with fewer outputs are computed the other way round for more inputs than these (see `_affine`)."""


class Layer(NamedTuple):
    """x ↦ xW + b."""

    weight: Float[Array, "fan_in fan_out"]
    bias: Float[Array, " fan_out"]


MLP = tuple[Layer, ...]


def new_mlp(
    random: np.random.Generator | None, sizes: Sequence[int], initialisation: Initialisation, last_gain: float = 1.0
) -> MLP:
    """Draw the layers of a network with the given sizes, inputs first.

    "orthogonal": W orthogonal times √2, and times `last_gain` in the last layer; b = 0.
    "uniform": W and b uniform in ±1/√fan_in, as PyTorch does it.
    NumPy draws them: compiling a QR decomposition would take longer than everything else.
    random: None where only the shapes matter, and nothing is to be drawn.
    """
    layers = []
    for k, (fan_in, fan_out) in enumerate(itertools.pairwise(sizes)):
        if random is None:
            layers.append(Layer(jnp.zeros((fan_in, fan_out)), jnp.zeros(fan_out)))
            continue
        if initialisation == "orthogonal":
            gain = last_gain if k == len(sizes) - 2 else np.sqrt(2.0)
            weight, bias = gain * _orthogonal(random, fan_in, fan_out), np.zeros(fan_out)
        else:
            bound = fan_in**-0.5
            weight, bias = random.uniform(-bound, bound, (fan_in, fan_out)), random.uniform(-bound, bound, fan_out)
        layers.append(Layer(jnp.asarray(weight, jnp.float32), jnp.asarray(bias, jnp.float32)))
    return tuple(layers)


def generator(seed: int | None) -> np.random.Generator | None:
    """What draws a network; None where nothing is to be drawn."""
    return None if seed is None else np.random.default_rng(seed)


def _orthogonal(random: np.random.Generator, n: int, m: int) -> Float[np.ndarray, "n m"]:
    tall = random.standard_normal((max(n, m), min(n, m)))
    q, r = np.linalg.qr(tall)
    q *= np.sign(np.diag(r))  # without it the signs would not be uniform
    return q if n >= m else q.T


def apply_mlp(layers: MLP, x: Float[Array, "*batch fan_in"], activation: str) -> Float[Array, "*batch fan_out"]:
    """The network's outputs, which are linear."""
    for layer in layers[:-1]:
        x = ACTIVATIONS[activation](_affine(layer, x))
    return _affine(layers[-1], x)


def clip_by_norm(gradient: Params, most: float | Float[Array, ""]) -> Params:
    """The gradient, shortened to the length `most` if it is longer."""
    length = jnp.sqrt(sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(gradient)))
    factor = jnp.minimum(1.0, most / jnp.maximum(length, 1e-12))
    return jax.tree.map(lambda leaf: leaf * factor, gradient)


def _affine(layer: Layer, x: Float[Array, "*batch fan_in"]) -> Float[Array, "*batch fan_out"]:
    weight = layer.weight
    if weight.shape[1] < NARROW and math.prod(x.shape[:-1]) > MANY:
        # The gradient is a product with few rows this way round, not one with few columns, which takes three times as
        # long; without the barrier the compiler would turn it back. Acting has no gradients and few rows, and would
        # only be slowed down.
        weight = jax.lax.optimization_barrier(weight.T).T  # type: ignore[no-untyped-call]
    y = x @ weight
    return y + jnp.broadcast_to(layer.bias, y.shape)


# Networks by name


class Network(NamedTuple):
    """A kind of network."""

    initialise: Callable[[np.random.Generator | None, int, int, Any, float], Params]
    """Draws parameters, given a generator, the numbers of inputs and outputs, the hyperparameters, and the gain of the
    last layer: small for policies, which should hardly prefer any action at first. Without a generator only the shapes
    matter."""
    apply: Callable[[Params, Array, Any], Array]
    """Outputs [*batch, outputs], given the parameters, inputs [*batch, inputs] and the hyperparameters."""


def _new_perceptron(random: np.random.Generator | None, inputs: int, outputs: int, config: Common, gain: float) -> MLP:
    return new_mlp(random, (inputs, *config.hidden, outputs), config.initialisation, gain)


def _apply_perceptron(params: MLP, x: Float[Array, "*batch O"], config: Common) -> Float[Array, "*batch outputs"]:
    return apply_mlp(params, x, config.activation)


NETWORKS = {"mlp": Network(_new_perceptron, _apply_perceptron)}
"""All that the setting `network` can name."""


def register_network(
    name: str,
    initialise: Callable[[np.random.Generator | None, int, int, Any, float], Params],
    apply: Callable[[Params, Array, Any], Array],
) -> None:
    """Make a network of your own known by a name (see `Network`); best where its functions are defined."""
    if name in NETWORKS:
        raise InputError(f"there is a network {name!r} already: choose another name.")
    NETWORKS[name] = Network(initialise, apply)
    added(initialise)


def perceptron(config: Common, params: Params) -> MLP:
    """The layers of a network, if it is one that a policy's file can hold."""
    if config.network != "mlp":
        raise InputError(f"only perceptrons (network mlp) can be exported, and this policy is a {config.network}.")
    return params
