"""The numbers that the environment, the network's process and the sender share, in one piece of memory."""

from __future__ import annotations

from typing import Any, NamedTuple

ETHERNET, HEADERS = 14, 14 + 20 + 8
"""Bytes of a packet that are headers: of Ethernet, and of all including IP and UDP. The kernel's queues count them."""
VARIETY = 0.1
"""Packets are up to so much larger or smaller than their mean."""
COUNTS = 6
"""Numbers that are read of each queue: see `netlink.Counts`."""


class Layout(NamedTuple):
    """Where what lies, for F flows and Q queues; all numbers have eight bytes."""

    flows: int
    queues: int

    def places(self) -> dict[str, tuple[str, int, int]]:
        """The kind (d, double; Q, whole) of each array, its first byte and its length."""
        sizes = {
            "rates": ("d", self.flows),  # bytes a second that each flow is to send
            "since": ("d", 1),  # from when on; written after the rates, which count as new when this has changed
            "requested": ("d", self.flows),  # bytes that each should have sent by `ticked`
            "sent": ("Q", self.flows),  # packets
            "sent_bytes": ("Q", self.flows),
            "delivered": ("Q", self.flows),  # packets that arrived, when last read
            "counts": ("Q", self.queues * COUNTS),  # of every queue, when last read
            "ticked": ("d", 1),  # when the sender was last at work
            "still": ("d", 1),  # seconds of pauses in which it was not, of those that were too long
            "read": ("d", 1),  # when the rest was read
        }
        found, at = {}, 0
        for name, (kind, length) in sizes.items():
            found[name] = (kind, at, length)
            at += 8 * length
        return found

    @property
    def size(self) -> int:
        """Bytes of it all."""
        return 8 * (5 * self.flows + self.queues * COUNTS + 4)

    def views(self, memory: Any) -> dict[str, Any]:
        """The arrays, without NumPy."""
        return {
            name: memory[start : start + 8 * length].cast("B").cast(kind)
            for name, (kind, start, length) in self.places().items()
        }
