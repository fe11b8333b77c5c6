"""A Ray cluster of several nodes on this machine, on the loopback interface, in a process of its own.

Ray starts nodes by forking, which a process that has used JAX must not do. Told "add", it adds a node with one CPU and
says the process id of what runs it; when its input ends, it stops them all.
"""

from __future__ import annotations

import contextlib
import socket
import sys
from collections.abc import Callable
from typing import Any

from ray.cluster_utils import Cluster

PORTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
ATTEMPTS = 5


def node() -> dict[str, Any]:
    """Small, and with ports chosen here: a node gives its own helpers only 15 seconds to choose theirs."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in PORTS]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        ports = {name: one.getsockname()[1] for name, one in zip(PORTS, sockets, strict=True)}
    return {"num_cpus": 1, "object_store_memory": 80_000_000, "include_log_monitor": False} | ports


def started(start: Callable[[], Any]) -> Any:
    """On a busy machine even that may be too little, and a second attempt finds its files in memory."""
    for _ in range(ATTEMPTS - 1):
        with contextlib.suppress(Exception):
            return start()
    return start()


def main() -> None:
    head = {"include_dashboard": False, "no_monitor": True}
    cluster = started(lambda: Cluster(initialize_head=True, head_node_args=node() | head))
    try:
        print(cluster.address, flush=True)
        for _ in sys.stdin:
            added = started(lambda: cluster.add_node(**node()))
            print(added.all_processes["raylet"][0].process.pid, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
