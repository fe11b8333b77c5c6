"""The fat-tree: its hosts, switches and queues, and the path of every flow.

Hosts, edge, aggregation and core switches are counted from 0, pod by pod. A queue stands at each port by which a switch
sends. There are five layers of them, each with as many queues as there are hosts, and a packet passes at most one queue
of each layer, in this order:

    0  edge → aggregation   queue = edge · k/2 + aggregation switch within the pod
    1  aggregation → core   queue = aggregation · k/2 + which of its cores
    2  core → aggregation   queue = core · k + pod
    3  aggregation → edge   queue = aggregation · k/2 + edge switch within the pod
    4  edge → host          queue = host
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from jaxtyping import Int

from evenhand.errors import InputError

LAYERS = ("edge → aggregation", "aggregation → core", "core → aggregation", "aggregation → edge", "edge → host")
NO_QUEUE = -1
"""In a path: nothing of this layer is passed."""


@dataclass(frozen=True)
class FatTree:
    """A fat-tree of switches that have k ports each."""

    k: int = 4

    def __post_init__(self) -> None:
        if isinstance(self.k, bool) or not isinstance(self.k, int) or self.k < 4 or self.k % 2:
            raise InputError(f"the switches of a fat-tree have an even number of ports, k = 4 or more, not {self.k!r}.")

    @property
    def half(self) -> int:
        """Hosts of an edge switch, edge and aggregation switches of a pod, cores of an aggregation switch."""
        return self.k // 2

    @property
    def hosts(self) -> int:
        """How many hosts."""
        return self.k**3 // 4

    @property
    def hosts_of_pod(self) -> int:
        """How many hosts are in one pod."""
        return self.half**2

    @property
    def edges(self) -> int:
        """How many edge switches; there are as many aggregation switches."""
        return self.k * self.half

    @property
    def cores(self) -> int:
        """How many core switches."""
        return self.half**2

    @property
    def queues(self) -> int:
        """How many queues, of all layers."""
        return len(LAYERS) * self.hosts

    def inputs(self) -> tuple[int, ...]:
        """How many links can send to one queue, layer by layer."""
        return (self.half, self.half, self.k - 1, self.k - 1, self.k - 1)

    def ends(self, queue: int) -> tuple[str, str]:
        """The names of the two ends of a queue's link, the sender first; queues are counted through all layers."""
        layer, at = divmod(queue, self.hosts)
        switch, port = divmod(at, self.k if layer == 2 else self.half)
        pod = switch // self.half
        links = (
            (f"edge {switch}", f"aggregation {pod * self.half + port}"),
            (f"aggregation {switch}", f"core {switch % self.half * self.half + port}"),
            (f"core {switch}", f"aggregation {port * self.half + switch // self.half}"),
            (f"aggregation {switch}", f"edge {pod * self.half + port}"),
            (f"edge {switch}", f"host {at}"),
        )
        return links[layer]


def path_table(tree: FatTree, routing_seed: int) -> Int[np.ndarray, "H H 5"]:
    """The queue of each layer, or `NO_QUEUE`, on the way from each host to each other one.

    Of equal paths a flow takes one and keeps it (ECMP): on the way up each switch chooses a port by a hash of source,
    destination, the routing seed and the switch itself. With the same hash at every switch, all flows that one edge
    switch sends to an aggregation switch would go on to the same core. Whatever carries the traffic, simulated or real,
    follows this table.
    """
    half = tree.half
    paths = np.full((tree.hosts, tree.hosts, len(LAYERS)), NO_QUEUE)
    for source in range(tree.hosts):
        for destination in range(tree.hosts):
            if source == destination:
                continue
            paths[source, destination, 4] = destination
            up, down = source // half, destination // half
            if up == down:
                continue
            across = _choice(half, source, destination, routing_seed, "edge", up)
            climbing, falling = up // half * half + across, down // half * half + across
            paths[source, destination, 0] = up * half + across
            paths[source, destination, 3] = falling * half + down % half
            if climbing == falling:
                continue
            port = _choice(half, source, destination, routing_seed, "aggregation", climbing)
            core = across * half + port
            paths[source, destination, 1] = climbing * half + port
            paths[source, destination, 2] = core * tree.k + down // half
    return paths


def _choice(ports: int, source: int, destination: int, seed: int, kind: str, switch: int) -> int:
    """A good hash: with a linear one, such as a CRC, seeds would only permute the ports."""
    digest = blake2b(f"{source} {destination} {seed} {kind} {switch}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % ports
