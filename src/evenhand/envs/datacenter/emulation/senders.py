"""All hosts' traffic, from one process: packets at the rates that stand in shared memory."""

from __future__ import annotations

import ctypes
import os
import random
import signal
import socket
import time
from typing import Any

from .memory import HEADERS, VARIETY

SET_DEATH_SIGNAL, SET_TIMER_SLACK = 1, 29
ORDERS = 64
TOO_LONG = 0.5
"""Of the time in which a port saves up its burst, from when on a pause counts."""


def send_for_ever(
    sockets: list[socket.socket],
    shared: Any,
    packet: int,
    rate: float,
    burst: float,
    seed: int,
    parent: int,
) -> None:
    """The life of the sender; it dies with its parent.

    What flows have sent in all is what their rates come to from the moments on from which they are meant to be in
    force, however late this process hears of them: else a policy that lets three hosts send in every third step, at
    full rate and to one port, would find a backlog there for good that only shows how irregularly it was asked.

    packet: its bytes on average, with all headers.
    rate, burst: of a port, in bytes a second and in bytes. What could not be sent in the time in which a port saves up
        its burst is given up: with more than that, a moment in which this process did not run would leave a backlog
        at every port that gets just what it can send, for the rest of the episode. A pause is too long from half of
        that time on.
    """
    libc = ctypes.CDLL(None)
    libc.prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    libc.prctl(SET_TIMER_SLACK, 1)
    if os.getppid() != parent:  # it died before the first line above
        return
    flows = range(len(sockets))
    luck = random.Random(seed)
    # Flows that are always served in the same order would keep it at a full queue too: the first would get all.
    orders = [luck.sample(flows, len(sockets)) for _ in range(ORDERS)]
    credit = [luck.uniform(0, packet) for _ in flows]
    # So would regular senders, and ports too, whose packets always find the next queue full, or always find a place in
    # it. Each packet is held back for a random part of the time between two, and has a size of its own.
    needed = [packet * (1 + luck.random()) for _ in flows]
    largest = int(packet * VARIETY)
    sizes = [packet + more for more in range(-largest, largest + 1)]
    payloads = [bytes(size - HEADERS) for size in sizes]
    kinds = len(sizes)
    rates, since, requested, sent, sent_bytes, ticked, still = (
        shared[name] for name in ("rates", "since", "requested", "sent", "sent_bytes", "ticked", "still")
    )
    wishes, begun = [0.0 for _ in flows], -1.0
    send = [out.send for out in sockets]
    tick, most_late = max(1e-4, 0.5 * packet / rate), burst / rate
    clock, sleep = time.monotonic, time.sleep
    before = clock()
    turn = 0
    while True:
        now = clock()
        elapsed = now - before
        if elapsed > TOO_LONG * most_late:
            still[0] += elapsed
        last, over = wishes, 0.0
        if since[0] != begun:
            begun = since[0]
            wishes, over = rates.tolist(), before - begun  # for so long it has gone by the last ones
        before = now
        turn = (turn + 1) % ORDERS
        for flow in orders[turn]:
            wish = wishes[flow]
            wanted = wish * elapsed + (wish - last[flow]) * over
            requested[flow] += wanted
            have = credit[flow] + wanted
            if have >= needed[flow]:
                have = min(have, 2 * packet + wish * most_late)
                count, total = 0, 0
                while have >= needed[flow]:
                    needed[flow] = packet * (1 + luck.random())
                    kind = int(kinds * luck.random())
                    try:
                        send[flow](payloads[kind], socket.MSG_DONTWAIT)
                    except (BlockingIOError, OSError):  # no memory for it: given up
                        have %= packet
                        break
                    have -= sizes[kind]
                    count += 1
                    total += sizes[kind]
                sent[flow] += count
                sent_bytes[flow] += total
            credit[flow] = have
        ticked[0] = now
        left = tick - (clock() - now)
        sleep(left if left > 0 else 0)
