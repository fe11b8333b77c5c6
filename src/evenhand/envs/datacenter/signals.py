"""What a controller sees and what the hosts gain, whoever carries the traffic."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from evenhand.envs.datacenter.simulator import PACKET, Port, Queues, Route
from evenhand.envs.datacenter.topology import NO_QUEUE, FatTree

REWARDS = ("paper", "goodput", "path-local")
LEAST_RATE = 0.01
"""Mbit/s: what a host may send at least."""
STEADY = 1.0
"""Bytes: a smaller change of a backlog is rounding."""
ROUNDING = 1e-5
"""Bounds are wider by this share: float32 may round upwards."""


def observed(queues: Queues, rates: Float[Array, " H"], port: Port, steady: float = STEADY) -> Float[Array, " O"]:
    """Of each queue, layer by layer: backlog / limit; then of each the sign of its change; packets over limit; drops.

    At the end, the rates in force, in Mbit/s.
    steady: bytes; a change that is smaller counts as none.
    """
    change = jnp.where(jnp.abs(queues.change) < steady, 0.0, jnp.sign(queues.change))
    seen = jnp.stack([queues.backlog / port.limit, change, queues.over_limit, queues.dropped])
    return jnp.concatenate([seen.reshape(-1), rates])


def observation_bounds(
    tree: FatTree, port: Port, capacity: float | int
) -> tuple[Float[np.ndarray, " O"], Float[np.ndarray, " O"]]:
    """The least and the most that can be observed: no more can be dropped than all links to a port can bring."""
    Q = tree.queues
    packets = port.service / PACKET
    dropped = packets * np.repeat(tree.inputs(), tree.hosts)
    low = np.concatenate([np.zeros(Q), -np.ones(Q), np.zeros(2 * Q + tree.hosts)])
    high = np.concatenate([np.ones(2 * Q), np.full(Q, packets), dropped, np.full(tree.hosts, capacity)])
    return low, high * (1 + ROUNDING)


def rewarded(
    kind: str,
    rates: Float[Array, " H"],
    fill: Float[Array, "5 Q"],
    delivered: Float[Array, " H"],
    route: Route,
) -> Float[Array, " H"]:
    """What each host gains by a step.

    paper: a − 2 a max_i q_i, with a the host's rate and q how full each queue was when the rates were chosen;
    path-local: the same, but q of the queues that the host's own flows pass; goodput: what was delivered, in Mbit/s.
    """
    if kind == "goodput":
        return delivered
    if kind == "paper":
        return rates * (1 - 2 * jnp.max(fill))
    return rates * (1 - 2 * _fullest_of_own(fill, route, len(rates)))


def _fullest_of_own(fill: Float[Array, "5 Q"], route: Route, hosts: int) -> Float[Array, " H"]:
    met: Any = jnp.take_along_axis(fill, jnp.asarray(route.queue) % fill.shape[1], axis=1)
    of_flow = jnp.max(jnp.where(jnp.asarray(route.queue) == NO_QUEUE, 0.0, met), axis=0)
    return jnp.zeros(hosts).at[route.source].max(of_flow)
