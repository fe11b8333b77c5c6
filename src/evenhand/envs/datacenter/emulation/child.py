"""The process that holds a network: it makes it, starts the sender, and answers what it is asked until its owner ends.

It is started with the numbers of two inherited file descriptors, the shared memory and one that stands for the owner's
process, and speaks JSON, a line for each command and answer, on its standard input and output.
"""

from __future__ import annotations

import json
import mmap
import os
import select
import signal
import socket
import sys
import time
from typing import Any

from .fabric import Fabric
from .memory import Layout
from .senders import send_for_ever

SENDER_DIED, OWNER_DIED = 3, 4
"""Exit codes."""


class Network:
    """The network and its sender."""

    def __init__(self, plan: dict[str, Any], memory: int) -> None:
        self._layout = Layout(plan["flows"], len(plan["queues"]))
        self._shared: Any = self._layout.views(memoryview(mmap.mmap(memory, self._layout.size)))
        self._plan = plan
        self._fabric = Fabric(plan)
        self._flows: list[list[int]] | None = None
        self.sender: tuple[int, int] | None = None
        """Its process, and a file descriptor that stands for it."""

    def answer(self, command: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked."""
        if command["do"] == "read":
            self._read()
        elif command["do"] == "begin":
            self._begin(command["flows"], command["seed"])
        else:
            raise ValueError(f"unknown command {command['do']!r}")
        return {"sender": self.sender[0] if self.sender else None}

    def _read(self) -> None:
        self._shared["read"][0] = time.monotonic()
        self._fabric.arrived(self._shared["delivered"])
        self._fabric.counts(self._shared["counts"])

    def _begin(self, flows: list[list[int]], seed: int) -> None:
        """Empty queues and, for flows that are new, new sinks and another sender; nothing is sent yet."""
        rates = self._shared["rates"]
        for flow in range(len(rates)):
            rates[flow] = 0.0
        self._shared["since"][0] = time.monotonic()
        if flows != self._flows or self.sender is None:
            self.stop_sender()
            self._flows = flows
            self._start_sender(self._fabric.connect_flows(flows), seed)
        else:
            time.sleep(0.002)  # the sender has seen that it is to be silent
        self._fabric.flush()
        self._read()

    def _start_sender(self, sockets: list[socket.socket], seed: int) -> None:
        this = os.getpid()
        process = os.fork()  # safe: there is a single thread, and no library that minds
        if not process:
            try:
                nothing = os.open(os.devnull, os.O_RDWR)
                for stream in (0, 1):  # else the owner would not notice that this process's parent has died
                    os.dup2(nothing, stream)
                plan = self._plan
                send_for_ever(sockets, self._shared, plan["packet"], plan["rate"], plan["burst"], seed, this)
            finally:
                os._exit(1)
        for out in sockets:
            out.close()
        self.sender = (process, os.pidfd_open(process))

    def stop_sender(self) -> None:
        """Return when it is gone."""
        if self.sender is not None:
            process, descriptor = self.sender
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(descriptor)
            self.sender = None


def main(memory: int, owner: int) -> int:
    """Make the network that the first line describes, and answer all others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the owner's to handle
    commands = _Lines(owner)
    network = None
    try:
        for line in commands:
            try:
                if network is None:
                    network = Network(json.loads(line), memory)
                    answer: dict[str, Any] = {}
                else:
                    answer = network.answer(json.loads(line))
            except OSError as error:
                about = error.filename or type(error).__name__
                answer = {"errno": error.errno, "error": error.strerror, "about": about}
            os.write(1, json.dumps(answer).encode() + b"\n")
            if "error" in answer:
                return 1
            commands.sender = network.sender[1] if network is not None and network.sender else None
    finally:  # whoever waits for this process knows then that all of it is gone
        if network is not None:
            network.stop_sender()
    return commands.why


class _Lines:
    """What comes in, line by line, until there is no more to come or somebody has died."""

    def __init__(self, owner: int) -> None:
        self.sender: int | None = None
        self.why = 0
        self._owner = owner
        self._heard = b""

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        while b"\n" not in self._heard:
            poll = select.poll()
            for descriptor in (0, self._owner, self.sender):
                if descriptor is not None:
                    poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self._owner in ready or self.sender in ready:
                self.why = OWNER_DIED if self._owner in ready else SENDER_DIED
                raise StopIteration
            heard = os.read(0, 1 << 16)
            if not heard:
                raise StopIteration
            self._heard += heard
        line, _, self._heard = self._heard.partition(b"\n")
        return line.decode()


def run() -> None:
    """The program."""
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
