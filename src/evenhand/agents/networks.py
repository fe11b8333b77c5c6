"""Multilayer perceptrons as plain tuples of arrays, which compile and dispatch faster than objects."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {"tanh": jnp.tanh, "relu": jax.nn.relu}
Initialisation = Literal["orthogonal", "uniform"]
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


def _affine(layer: Layer, x: Float[Array, "*batch fan_in"]) -> Float[Array, "*batch fan_out"]:
    weight = layer.weight
    if weight.shape[1] < NARROW and math.prod(x.shape[:-1]) > MANY:
        # The gradient is a product with few rows this way round, not one with few columns, which takes three times as
        # long; without the barrier the compiler would turn it back. Acting has no gradients and few rows, and would
        # only be slowed down.
        weight = jax.lax.optimization_barrier(weight.T).T  # type: ignore[no-untyped-call]
    y = x @ weight
    return y + jnp.broadcast_to(layer.bias, y.shape)
