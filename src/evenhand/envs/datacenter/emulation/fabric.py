"""Namespaces that are routers and hosts, the cables between them, and the counters of their ports.

The plan of a network, as JSON can hold it:

    nodes     how many namespaces
    hosts     the address of each host; hosts are the first of the nodes
    links     [node, port, node, port] of each cable; ports of a node are counted from 0
    queues    [node, port] of each port that has a rate and a queue, in the order in which they are read
    routes    [node, source or null, destination, port]: by which port a node sends what goes there; with a source,
              only what comes from there
    packet    bytes of a packet on average, with all headers
    rate      bytes a second of each of these ports
    burst     bytes that it may send at once after a rest
    limit     bytes of its queue
    flows     how many flows there will be
"""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from typing import Any

from . import netlink
from .memory import ETHERNET, VARIETY

NEW_USER, NEW_NET = 0x10000000, 0x40000000
FIRST_INDEX = 2
"""Of interfaces; 1 is the loopback."""
FIRST_PORT = 10_000
MAC = bytes.fromhex("020000000001")
"""The same at both ends of every cable: without ARP an interface takes its own for that of the other end."""
OWN = "192.0.2.1"
"""An address for every port of a switch, set aside for documentation; some kernels pass on nothing without one."""
SO_ATTACH_FILTER, SO_MEMINFO = 26, 55
DROPS = 8
"""Of the nine numbers of SO_MEMINFO: packets that the socket has dropped."""
RP_FILTER = "/proc/sys/net/ipv4/conf/all/rp_filter"

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(what: int) -> None:
    """Move this process into new namespaces."""
    if _libc.unshare(what):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), "user" if what & NEW_USER else "network")


class Fabric:
    """A network; it lasts as long as this object's file descriptors, and so no longer than its process."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.namespaces: list[int] = []
        self.links: list[netlink.Netlink] = []
        self.sinks: list[socket.socket] = []
        self._flushes = 0
        unshare(NEW_USER)
        for _ in range(plan["nodes"]):
            unshare(NEW_NET)
            self.namespaces.append(os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
            self.links.append(netlink.Netlink())
            self._allow_other_ways_back()
        self._connect()
        self._configure()
        self._of_node: dict[int, list[tuple[int, int]]] = {}
        for place, (node, port) in enumerate(plan["queues"]):
            self._of_node.setdefault(node, []).append((place, FIRST_INDEX + port))

    def _allow_other_ways_back(self) -> None:
        """A router may be set to drop what did not come by the way that its answer would take."""
        with open(RP_FILTER) as file:
            if file.read().strip() != "1":
                return
        with open(RP_FILTER, "w") as file:
            file.write("0")

    def _connect(self) -> None:
        of_node: dict[int, list[netlink.Message]] = {}
        mtu = int(self.plan["packet"] * (1 + VARIETY)) - ETHERNET
        for node, port, other, far_port in self.plan["links"]:
            cable = netlink.veth(FIRST_INDEX + port, FIRST_INDEX + far_port, self.namespaces[other], MAC, mtu)
            of_node.setdefault(node, []).append(cable)
        for node, messages in of_node.items():
            self.links[node].do(messages)

    def _configure(self) -> None:
        plan, hosts = self.plan, len(self.plan["hosts"])
        indices: list[list[int]] = [[] for _ in range(plan["nodes"])]
        for node, port, other, far_port in plan["links"]:
            indices[node].append(FIRST_INDEX + port)
            indices[other].append(FIRST_INDEX + far_port)
        messages: list[list[netlink.Message]] = []
        for node, own in enumerate(indices):
            self.links[node].do([netlink.quiet(index) for index in own], forgiving=True)
            ip = plan["hosts"][node] if node < hosts else OWN
            todo = [netlink.up(index, forwarding=node >= hosts) for index in own]
            todo += [netlink.address(index, ip) for index in own]
            messages.append(todo)
        for node, port in plan["queues"]:
            messages[node] += netlink.port(FIRST_INDEX + port, plan["rate"], plan["burst"], plan["limit"])
        for node, own in enumerate(indices):
            # Of a host the only way. Of a switch none that is ever taken: but where rp_filter is 2, a packet is passed
            # on only if there is some way back to its source.
            messages[node].append(netlink.route(None, own[0]))
        tables: dict[tuple[int, str], int] = {}
        for node, source, destination, port in plan["routes"]:
            table = netlink.MAIN_TABLE
            if source is not None:
                table = tables.setdefault((node, source), netlink.FIRST_TABLE + len(tables))
            messages[node].append(netlink.route(destination, FIRST_INDEX + port, table))
        for (node, source), table in tables.items():
            messages[node].append(netlink.rule(source, table))
        for node, todo in enumerate(messages):
            self.links[node].do(todo)

    # --- while it runs

    def counts(self, into: memoryview) -> None:
        """Read all queues."""
        width = len(netlink.Counts._fields)
        for node, queues in self._of_node.items():
            found = self.links[node].counts()
            for place, index in queues:
                for i, value in enumerate(found[index], place * width):
                    into[i] = value

    def flush(self) -> None:
        """Throw away all that waits."""
        self._flushes += 1
        for node, queues in self._of_node.items():
            todo = [netlink.fifo(index, self.plan["limit"], 1 + self._flushes % 2) for _, index in queues]
            self.links[node].do(todo)

    def arrived(self, into: memoryview) -> None:
        """Read how many packets of each flow have arrived."""
        for flow, sink in enumerate(self.sinks):
            into[flow] = struct.unpack_from("=9I", sink.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 36))[DROPS]

    def connect_flows(self, flows: list[list[int]]) -> list[socket.socket]:
        """A sink for each flow, from host to host, and a socket by which to send to it."""
        for sink in self.sinks:
            sink.close()
        self.sinks, sending = [], []
        for number, (_, destination) in enumerate(flows):
            self.sinks.append(self._sink(destination, FIRST_PORT + number))
        for number, (source, destination) in enumerate(flows):
            out = self._udp(source)
            out.connect((self.plan["hosts"][destination], FIRST_PORT + number))
            sending.append(out)
        return sending

    def _sink(self, host: int, port: int) -> socket.socket:
        """A socket that drops whatever arrives, which the kernel counts, and nobody has to read."""
        sink = self._udp(host)
        nothing = ctypes.create_string_buffer(struct.pack("=HBBI", 0x06, 0, 0, 0))  # the filter "keep 0 bytes"
        program = struct.pack("HL", 1, ctypes.addressof(nothing))
        sink.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        sink.bind((self.plan["hosts"][host], port))
        return sink

    def _udp(self, host: int) -> socket.socket:
        if _libc.setns(self.namespaces[host], NEW_NET):
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code), "network")
        return socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
