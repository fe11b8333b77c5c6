"""The plan of a real network: which namespaces, cables and routes make the fat-tree and the paths of its table."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Int

from evenhand.envs.datacenter.simulator import PACKET, Port
from evenhand.envs.datacenter.topology import NO_QUEUE, FatTree

CLIMBING = 2
"""Layers in which switches choose among several ways, so that routes depend on the source too."""
BURST = 6
"""Packets that a port may send at once after a rest: with less, what a late timer costs could not be made good."""


def address(tree: FatTree, host: int) -> str:
    """The address of a host as Iroko has it, 10.E.0.H."""
    return f"10.{host // tree.half + 1}.0.{host % tree.half + 1}"


def plan(
    tree: FatTree,
    paths: Int[np.ndarray, "H H 5"],
    port: Port,
    capacity: float | int,
    flows: int,
    time_scale: float | int = 1,
) -> Any:
    """What `evenhand.envs.datacenter.emulation.fabric` is to make.

    time_scale: how many times faster it is to be.
    """
    # Twice the size, half the work: at several times the pace the machine would not keep up with usual packets.
    packet = PACKET if time_scale <= 1 else 2 * PACKET
    nodes = {f"host {host}": host for host in range(tree.hosts)}
    for host in range(tree.hosts):  # so that every host's only port is its first
        nodes.setdefault(tree.ends(4 * tree.hosts + host)[0], len(nodes))
    ports: dict[tuple[int, int], int] = {}  # of a node, towards another
    taken: dict[int, int] = {}
    links, queues = [], []
    for queue in range(tree.queues):
        near, far = (nodes.setdefault(name, len(nodes)) for name in tree.ends(queue))
        if (near, far) not in ports:
            for pair in ((near, far), (far, near)):
                ports[pair] = taken.get(pair[0], 0)
                taken[pair[0]] = ports[pair] + 1
            links.append([near, ports[near, far], far, ports[far, near]])
        queues.append([near, ports[near, far]])
    routes: dict[tuple[int, str | None, str], int] = {}
    addresses = [address(tree, host) for host in range(tree.hosts)]
    for source, destination in np.argwhere(paths[:, :, -1] != NO_QUEUE).tolist():
        for layer, place in enumerate(paths[source, destination].tolist()):
            if place != NO_QUEUE:
                node, way = queues[layer * tree.hosts + place]
                start = addresses[source] if layer < CLIMBING else None
                if routes.setdefault((node, start, addresses[destination]), way) != way:
                    raise AssertionError("two ways down to one host")
    return {
        "nodes": len(nodes),
        "hosts": addresses,
        "links": links,
        "queues": queues,
        "routes": [[*key, way] for key, way in routes.items()],
        "packet": packet,
        "rate": round(capacity * 1e6 / 8 * time_scale),
        "burst": BURST * packet,
        "limit": round(port.limit),
        "flows": flows,
    }
