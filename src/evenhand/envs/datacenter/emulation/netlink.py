"""Links, addresses, routes and queues of a network namespace, by netlink messages to the kernel.

A socket talks to the namespace in which it was made, wherever its process has moved since. All that is sent and read is
described in the kernel's headers linux/rtnetlink.h, linux/if_link.h, linux/fib_rules.h and linux/pkt_sched.h.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

HEADER = struct.Struct("=IHHII")  # struct nlmsghdr: length, type, flags, sequence, port
LINK = struct.Struct("=BxHiII")  # struct ifinfomsg: family, type, index, flags, change
ADDRESS = struct.Struct("=BBBBi")  # struct ifaddrmsg: family, prefix length, flags, scope, index
ROUTE = struct.Struct("=BBBBBBBBI")  # struct rtmsg: family, lengths, tos, table, protocol, scope, type, flags
QUEUE = struct.Struct("=BxxxiIII")  # struct tcmsg: family, index, handle, parent, info
ATTRIBUTE = struct.Struct("=HH")  # struct nlattr: length, type
COUNTS = struct.Struct("=QIIIIIII")  # struct tc_stats: bytes, packets, drops, overlimits, bps, pps, qlen, backlog

ERROR, DONE = 2, 3
REQUEST, ACK, DUMP = 0x1, 0x4, 0x300
CREATE, EXCLUSIVE, REPLACE = 0x400, 0x200, 0x100
NEW_LINK, SET_LINK, NEW_ADDRESS, NEW_ROUTE, NEW_RULE = 16, 19, 20, 24, 32
NEW_QUEUE, GET_QUEUE, NEW_CLASS = 36, 38, 40

ROOT = 0xFFFFFFFF
SHAPER, CLASS, FIFO = 0x10000, 0x10001, 0x20000
"""Handles of a port's three parts."""
MAIN_TABLE = 254
FIRST_TABLE = 1000
UP, NO_ARP = 0x1, 0x80
KIND, OPTIONS, STATISTICS = 1, 2, 3  # attributes of queues
AF_INET6 = 10
TICK = 64e-9
"""Seconds: in what the kernel's schedulers count time."""
BATCH = 64
"""Messages at a time: the answers to more might not fit into the socket's buffer."""


class Refused(OSError):
    """The kernel did not do what it was asked to."""


class Counts(NamedTuple):
    """What a port has sent and refused since it was made, and what waits."""

    bytes: int
    packets: int
    drops: int
    over_limit: int
    waiting_packets: int
    waiting: int


def attribute(kind: int, value: bytes) -> bytes:
    """One attribute, padded to whole words."""
    return ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def number(kind: int, value: int) -> bytes:
    """An attribute that is a number of 32 bits."""
    return attribute(kind, struct.pack("=I", value))


def text(kind: int, value: str) -> bytes:
    """An attribute that is a text."""
    return attribute(kind, value.encode() + b"\0")


# What can be asked


class Message(NamedTuple):
    """Something to be done, with words for what it is if it fails."""

    kind: int
    flags: int
    body: bytes
    what: str


def veth(index: int, peer: int, peer_namespace: int, mac: bytes, mtu: int) -> Message:
    """A cable to another namespace, given by a file descriptor; the indices at both ends are ours to choose."""
    single = number(31, 1) + number(32, 1)  # one queue each way: they would be as many as processors
    both = attribute(1, mac) + number(4, mtu) + single
    far = LINK.pack(0, 0, peer, 0, 0) + both + text(3, f"port{peer}") + number(28, peer_namespace)
    info = text(1, "veth") + attribute(2, attribute(1, far))
    body = LINK.pack(0, 0, index, 0, 0) + both + text(3, f"port{index}") + attribute(18, info)
    return Message(NEW_LINK, CREATE | EXCLUSIVE, body, "making a pair of virtual interfaces (veth)")


def quiet(index: int) -> Message:
    """No addresses of IPv6, and so none of its packets in the queues."""
    body = LINK.pack(0, 0, index, 0, 0) + attribute(26, attribute(AF_INET6, attribute(8, b"\1")))
    return Message(SET_LINK, 0, body, "leaving IPv6 out")


def up(index: int, forwarding: bool) -> Message:
    """Switch an interface on, without ARP; and let packets that come by it be passed on.

    They are (forwarding, 1), whatever way the answer would take (rp_filter, 8), and their sources are not looked up
    (accept_local, 23), which would take a fifth of the time.
    """
    body = LINK.pack(0, 0, index, UP | NO_ARP, UP | NO_ARP)
    if forwarding:
        body += attribute(26, attribute(socket.AF_INET, attribute(1, number(1, 1) + number(8, 0) + number(23, 1))))
    return Message(SET_LINK, 0, body, "switching an interface on")


def address(index: int, ip: str) -> Message:
    """An address of its own for an interface."""
    packed = socket.inet_aton(ip)
    body = ADDRESS.pack(socket.AF_INET, 32, 0, 0, index) + attribute(2, packed) + attribute(1, packed)
    return Message(NEW_ADDRESS, CREATE | EXCLUSIVE, body, "giving an interface an address")


def route(destination: str | None, index: int, table: int = MAIN_TABLE) -> Message:
    """What goes to a destination, or to any, leaves by this interface."""
    length = 0 if destination is None else 32
    body = ROUTE.pack(socket.AF_INET, length, 0, 0, 0, 4, 253, 1, 0)  # a static, direct, unicast route
    if destination is not None:
        body += attribute(1, socket.inet_aton(destination))
    body += number(4, index) + number(15, table)
    return Message(NEW_ROUTE, CREATE | EXCLUSIVE, body, "making a route")


def rule(source: str, table: int) -> Message:
    """What comes from a source is routed by a table of its own, and else by the main one."""
    body = ROUTE.pack(socket.AF_INET, 0, 32, 0, 0, 0, 0, 1, 0) + attribute(2, socket.inet_aton(source))
    return Message(NEW_RULE, CREATE | EXCLUSIVE, body + number(15, table) + number(6, 100), "making a routing rule")


def port(index: int, rate: int, burst: int, limit: int) -> list[Message]:
    """A port that sends so many bytes a second, and behind it a queue of so many bytes."""
    return [shaper(index), shaped(index, rate, burst), fifo(index, limit)]


def shaper(index: int) -> Message:
    """The hierarchical token bucket, with one class for everything."""
    options = attribute(2, struct.pack("=5I", 3, 10, 1, 0, 0))  # struct tc_htb_glob: version, rate/quantum, class
    body = QUEUE.pack(0, index, SHAPER, ROOT, 0) + text(KIND, "htb") + attribute(OPTIONS, options)
    return Message(NEW_QUEUE, CREATE | EXCLUSIVE, body, "giving an interface a rate (htb)")


def shaped(index: int, rate: int, burst: int) -> Message:
    """Its rate."""
    speed = struct.pack("=BBHhHI", 0, 1, 0, 0, 0, rate)  # struct tc_ratespec: of Ethernet, no tables needed
    saved = int(burst / rate / TICK)
    options = attribute(1, speed + speed + struct.pack("=5I", saved, saved, 15000, 0, 0))  # struct tc_htb_opt
    body = QUEUE.pack(0, index, CLASS, SHAPER, 0) + text(KIND, "htb") + attribute(OPTIONS, options)
    return Message(NEW_CLASS, CREATE | EXCLUSIVE, body, "setting the rate of an interface (htb)")


def fifo(index: int, limit: int, generation: int = 0) -> Message:
    """Its queue; one of another generation takes the place of the one before, which is thrown away with all in it."""
    body = QUEUE.pack(0, index, FIFO + (generation << 16), CLASS, 0) + text(KIND, "bfifo")
    body += attribute(OPTIONS, struct.pack("=I", limit))
    return Message(NEW_QUEUE, CREATE | REPLACE, body, "giving an interface a queue (bfifo)")


# The socket


class Netlink:
    """A conversation with the kernel about the namespace that this process is in now."""

    def __init__(self) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self.socket.bind((0, 0))
        for option in (10, 11):  # short acknowledgements, with the kernel's own words for what is wrong
            self.socket.setsockopt(270, option, 1)
        self._sequence = 0

    def do(self, messages: Iterable[Message], forgiving: bool = False) -> None:
        """Have everything done, in order. forgiving: go on where the kernel refuses."""
        messages = list(messages)
        for start in range(0, len(messages), BATCH):
            batch = messages[start : start + BATCH]
            first = self._sequence + 1
            self.socket.send(b"".join(self._packed(m.kind, m.flags | ACK, m.body) for m in batch))
            heard = 0
            while heard < len(batch):
                for kind, sequence, body in _messages(self.socket.recv(1 << 16)):
                    if kind != ERROR:
                        continue
                    heard += 1
                    code = -struct.unpack_from("=i", body)[0]
                    if code and not forgiving:
                        said = _words(body)
                        raise Refused(code, f"{batch[sequence - first].what}: {said or os.strerror(code)}")

    def counts(self) -> dict[int, Counts]:
        """What each port with a shaper has counted, by the index of its interface."""
        self.socket.send(self._packed(GET_QUEUE, DUMP, QUEUE.pack(0, 0, 0, 0, 0)))
        found: dict[int, Counts] = {}
        while True:
            for kind, _, body in _messages(self.socket.recv(1 << 16)):
                if kind == DONE:
                    return found
                if kind == ERROR:
                    raise Refused(-struct.unpack_from("=i", body)[0], "reading the queues")
                _, index, handle, _, _ = QUEUE.unpack_from(body)
                if handle != SHAPER:
                    continue
                at = QUEUE.size
                while at < len(body):
                    length, name = ATTRIBUTE.unpack_from(body, at)
                    if name == STATISTICS:
                        size, packets, drops, over, _, _, waiting_packets, waiting = COUNTS.unpack_from(body, at + 4)
                        found[index] = Counts(size, packets, drops, over, waiting_packets, waiting)
                        break
                    at += (length + 3) & ~3

    def _packed(self, kind: int, flags: int, body: bytes) -> bytes:
        self._sequence += 1
        return HEADER.pack(HEADER.size + len(body), kind, REQUEST | flags, self._sequence, 0) + body


def _messages(received: bytes) -> Iterator[tuple[int, int, memoryview]]:
    view, at = memoryview(received), 0
    while at < len(view):
        length, kind, _, sequence, _ = HEADER.unpack_from(view, at)
        yield kind, sequence, view[at + HEADER.size : at + length]
        at += (length + 3) & ~3


def _words(body: memoryview) -> str:
    """The kernel's explanation, if it gives one: an attribute after the error and the header it belongs to."""
    at = 4 + HEADER.size
    while at + 4 <= len(body):
        length, name = ATTRIBUTE.unpack_from(body, at)
        if length < 4:
            break
        if name == 1:
            return bytes(body[at + 4 : at + length]).rstrip(b"\0").decode(errors="replace")
        at += (length + 3) & ~3
    return ""


MISSING = {errno.EOPNOTSUPP, errno.ENOENT, errno.EPROTONOSUPPORT, errno.EAFNOSUPPORT}
"""What the kernel says to something that it has no module for."""
