"""Queues that fill and empty: a fluid model of the fat-tree, as pure functions.

In a step, which lasts `interval` seconds, the five layers are passed in order, and what leaves one arrives at the next
within the same step. Traffic is a fluid, counted in bytes per flow. With b what a flow has waiting in a queue, a what
arrives of it during the step, sums over the flows of the queue in capitals, and c the bytes that the port can send:

    accepted = min(A, limit + c − B)            the rest is dropped (tail drop), of each flow in proportion to a
    sent     = min(B + accepted, c)             of each flow in proportion to what there is of it (well mixed)
    backlog  = B + accepted − sent ≤ limit

A flow that does not pass the layer arrives at the next one as it is.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from evenhand.envs.datacenter.topology import LAYERS
from evenhand.envs.datacenter.traffic import Flows

PACKET = 1500
"""Bytes of a packet: drops and packets over limit are counted in packets, as the kernel does."""
NOTHING = 1e-20
"""Bytes, to divide by where there is nothing to share out."""


class Route(NamedTuple):
    """Flows on their paths."""

    source: Int[Any, " F"]
    share: Float[Any, " F"]
    """Of its host's rate: hosts give all of their flows the same."""
    queue: Int[Any, "5 F"]
    """The queue in each layer, or `NO_QUEUE`."""


class Port(NamedTuple):
    """What is the same for all queues."""

    service: float
    """The bytes that are sent in a step, at most."""
    limit: float
    """The bytes that can wait."""


class Queues(NamedTuple):
    """What happened in the queues of all layers during a step."""

    backlog: Float[Array, "5 Q"]
    """Bytes that wait at its end."""
    change: Float[Array, "5 Q"]
    """By how many bytes that is more than at its beginning."""
    over_limit: Float[Array, "5 Q"]
    """Packets sent while others waited: each of them found the port over the limit of its rate."""
    dropped: Float[Array, "5 Q"]
    """Packets."""


class Passed(NamedTuple):
    """What a step made of the traffic, in bytes."""

    backlog: Float[Array, "5 F"]
    delivered: Float[Array, " F"]
    queues: Queues


def port(capacity: float | int, interval: float | int) -> Port:
    """The port of a link of so many Mbit/s, for steps of so many seconds; its limit is Iroko's.

    limit = max(4 · 10⁶ bytes · capacity / (1 Gbit/s), 4 · 10⁵ bytes)
    """
    return Port(service=capacity * 1e6 / 8 * interval, limit=max(4e6 * capacity / 1e3, 4e5))


def route(flows: Flows, paths: Int[np.ndarray, "H H 5"]) -> Route:
    """Put flows on their paths; destinations may be traced, sources not."""
    source = np.asarray(flows.source)
    share = (1 / np.bincount(source)[source]).astype(np.float32)
    if isinstance(flows.destination, np.ndarray):
        return Route(source, share, paths[source, flows.destination].T)
    return Route(source, share, jnp.asarray(paths)[source, flows.destination].T)


def passed(
    backlog: Float[Array, "5 F"], sent: Float[Array, " F"], queue: Int[Any, "5 F"], Q: int, port: Port
) -> Passed:
    """What becomes of the bytes that hosts send in a step.

    Q: how many queues a layer has.
    """
    left, seen = [], []
    arriving = sent
    for layer in range(len(LAYERS)):
        # NO_QUEUE is the last of Q + 1 places: flows that pass no queue here meet there, and keep everything.
        totals = jnp.zeros((2, Q + 1)).at[:, queue[layer]].add(jnp.stack([arriving, backlog[layer]]))
        arrived, waiting = totals[0, :Q], totals[1, :Q]
        accepted = jnp.minimum(arrived, port.limit + port.service - waiting)
        present = waiting + accepted
        leaving = jnp.minimum(present, port.service)
        shares = jnp.stack([accepted / jnp.maximum(arrived, NOTHING), leaving / jnp.maximum(present, NOTHING)])
        kept, served = jnp.pad(shares, ((0, 0), (0, 1)), constant_values=1.0)[:, queue[layer]]
        of_flow = backlog[layer] + kept * arriving
        arriving = served * of_flow
        left.append(of_flow - arriving)
        after = present - leaving
        over = port.service * busy(arrived, waiting, after, port.service)
        seen.append(Queues(after, after - waiting, over / PACKET, (arrived - accepted) / PACKET))
    return Passed(jnp.stack(left), arriving, Queues(*map(jnp.stack, zip(*seen, strict=True))))


def busy(
    arrived: Float[Any, " *Q"], waiting: Float[Any, " *Q"], after: Float[Any, " *Q"], service: float
) -> Float[Array, " *Q"]:
    """The share of the step in which something waits: with steady arrivals, until the backlog has been worked off.

    Less than a packet counts as that part of one: else rounding would decide in a queue that gets exactly what it can
    send, as all do that follow a full one.
    """
    share = jnp.where(waiting + arrived > service, 1.0, waiting / jnp.maximum(service - arrived, 1.0))
    return share * jnp.minimum(jnp.maximum(waiting, after) / PACKET, 1.0)
