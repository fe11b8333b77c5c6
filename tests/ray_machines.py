"""A Ray cluster of several nodes on this machine, on the loopback interface, in a process of its own.

Ray starts nodes by forking, which a process that has used JAX must not do. Told "add", it adds a node with one CPU and
says the process id of what runs it; when its input ends, it stops them all.
"""

from __future__ import annotations

import sys

from ray.cluster_utils import Cluster

NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}


def main() -> None:
    cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
    try:
        print(cluster.address, flush=True)
        for _ in sys.stdin:
            node = cluster.add_node(**NODE)
            print(node.all_processes["raylet"][0].process.pid, flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
