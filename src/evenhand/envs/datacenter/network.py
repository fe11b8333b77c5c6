"""A network of namespaces in a process of its own, as seen by whoever started it."""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float64, UInt64

from evenhand.envs.datacenter.emulation import netlink
from evenhand.envs.datacenter.emulation.child import OWNER_DIED, SENDER_DIED
from evenhand.envs.datacenter.emulation.memory import COUNTS, Layout
from evenhand.errors import InputError

START = "import sys; sys.path.append(sys.argv.pop()); from emulation.child import run; run()"
"""A fresh interpreter with neither evenhand nor NumPy, whose threads would not let it make a user namespace."""
PATIENCE = 20.0
"""Seconds that the process has for an answer."""
NEEDED = "The emulated network needs Linux network namespaces, which any user may make"


class NetworkFailed(RuntimeError):
    """The network has ended by itself."""


class Reading(NamedTuple):
    """Everything that has been counted since the network was made."""

    time: float
    requested: Float64[np.ndarray, " F"]
    """Bytes that each flow should have sent."""
    sent: UInt64[np.ndarray, " F"]
    """Packets."""
    sent_bytes: UInt64[np.ndarray, " F"]
    delivered: UInt64[np.ndarray, " F"]
    """Packets."""
    still: float
    """Seconds of the sender's pauses that were too long."""
    counts: UInt64[np.ndarray, "Q 6"]
    """Of each queue: see `evenhand.envs.datacenter.emulation.netlink.Counts`."""


class Network:
    """Made, used and closed; whatever happens to this process, nothing of it remains.

    plan: see `evenhand.envs.datacenter.emulation.fabric`.
    """

    def __init__(self, plan: Any) -> None:
        check_system()
        layout = Layout(plan["flows"], len(plan["queues"]))
        memory = os.memfd_create("evenhand")
        owner = os.pidfd_open(os.getpid())
        try:
            os.ftruncate(memory, layout.size)
            self._memory = mmap.mmap(memory, layout.size)
            folder = Path(__file__).parent
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", START, str(memory), str(owner), str(folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(memory, owner),
            )
        finally:
            os.close(memory)
            os.close(owner)
        self._finalizer = weakref.finalize(self, _end, self._process)
        self._shared = {
            name: np.frombuffer(self._memory, {"d": np.float64, "Q": np.uint64}[kind], length, start)
            for name, (kind, start, length) in layout.places().items()
        }
        self.pids: list[int] = [self._process.pid]
        """Of the network's process and, once flows have begun, of the sender."""
        self._ask(plan)

    @property
    def rates(self) -> Float64[np.ndarray, " F"]:
        """Bytes a second that each flow is to send."""
        return self._shared["rates"].copy()

    def send(self, rates: Any, since: float | None = None) -> None:
        """Let flows send so many bytes a second, from a moment on: now, or one just past, whose bytes are made good."""
        self._shared["rates"][:] = rates
        self._shared["since"][0] = time.monotonic() if since is None else since

    def begin(self, flows: Sequence[Sequence[int]], seed: int) -> Reading:
        """Empty all queues and let these flows, from host to host, send nothing until they get rates."""
        answer = self._ask({"do": "begin", "flows": [list(flow) for flow in flows], "seed": seed})
        self.pids = [self._process.pid, answer["sender"]]
        return self._reading()

    def read(self) -> Reading:
        """Read every counter."""
        self._ask({"do": "read"})
        return self._reading()

    def close(self) -> None:
        """End the processes; namespaces and interfaces go with them."""
        self._finalizer()

    def _reading(self) -> Reading:
        shared = self._shared
        read = float(shared["read"][0])
        ticked = float(shared["ticked"][0])
        idle = max(0.0, read - ticked) if ticked else 0.0  # a sender that hangs should have sent something all the same
        return Reading(
            read,
            shared["requested"] + idle * shared["rates"],
            shared["sent"].copy(),
            shared["sent_bytes"].copy(),
            shared["delivered"].copy(),
            float(shared["still"][0]),
            shared["counts"].reshape(-1, COUNTS).copy(),
        )

    def _ask(self, command: Any) -> Any:
        stream_in, stream_out = self._process.stdin, self._process.stdout
        assert stream_in is not None
        assert stream_out is not None
        if self._process.poll() is not None or stream_in.closed:
            self._lost()
        try:
            stream_in.write(json.dumps(command).encode() + b"\n")
            stream_in.flush()
            line = stream_out.readline()
        except BrokenPipeError:
            line = b""
        except BaseException:  # such as Ctrl-C: the answer would be taken for that of the next command
            self.close()
            raise
        if not line:
            self._lost()
        answer = json.loads(line)
        if "error" in answer:
            self.close()
            raise InputError(explained(answer["errno"], answer["error"], answer["about"]))
        return answer

    def _lost(self) -> None:
        if self._process.stdin is not None and self._process.stdin.closed:
            raise NetworkFailed("the emulated network has been closed.")
        code = self._process.wait(PATIENCE)
        said = (self._process.stderr.read().decode(errors="replace").strip() if self._process.stderr else "")[-2000:]
        self.close()
        why = {SENDER_DIED: "its sender was killed", OWNER_DIED: "it took this process for dead"}.get(
            code, f"its process ended with the code {code}" + (f":\n\n{said}" if said else "")
        )
        raise NetworkFailed(f"the emulated network is gone: {why}. Reset the environment to make another.")


def _end(process: subprocess.Popen[bytes]) -> None:
    """The end of its input is the end of the process."""
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
    try:
        process.wait(2.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stderr is not None:
        process.stderr.close()


class Trial(NamedTuple):
    """What became of a small network."""

    arrived: float
    """Of the rate of its port."""
    still: float
    """The share of the time in which the sender stood still."""


def trial() -> Trial:
    """Make a switch with two hosts, and let one send at twice the rate of its port for a moment."""
    rate, seconds = 1_250_000, 0.5
    addresses = ["10.1.0.1", "10.1.0.2"]
    network = Network(
        {
            "nodes": 3,
            "hosts": addresses,
            "links": [[2, 0, 0, 0], [2, 1, 1, 0]],
            "queues": [[2, 1]],
            "routes": [[2, None, address, port] for port, address in enumerate(addresses)],
            "packet": 1500,
            "rate": rate,
            "burst": 9000,
            "limit": 400_000,
            "flows": 1,
        }
    )
    try:
        before = network.begin([[0, 1]], 0)
        network.send(2 * rate)
        time.sleep(seconds)
        after = network.read()
    finally:
        network.close()
    took = after.time - before.time
    return Trial(
        float(after.delivered[0] - before.delivered[0]) * 1500 / (rate * took), (after.still - before.still) / took
    )


# Where it cannot be


def check_system() -> None:
    """Refuse to begin where there is no Linux."""
    if sys.platform != "linux":
        raise InputError(
            f'{NEEDED} on Linux only, and this is {sys.platform}: use backend="simulated", or a virtual machine.'
        )


def explained(code: int, said: str, about: str) -> str:
    """Why a network could not be made, and what to do, in one paragraph."""
    if about == "Refused" and code in netlink.MISSING:
        return (
            f"the kernel could not do this: {said}. The emulated network needs the modules veth, sch_htb and sch_fifo: "
            "`sudo modprobe -a veth sch_htb` loads them; a kernel without them has to be replaced."
        )
    if about in ("user", "network") and code in (errno.EPERM, errno.ENOSPC, errno.EUSERS, errno.EINVAL, errno.ENOSYS):
        return f"a {about} namespace could not be made: {said}. {NEEDED} where that is allowed. {_what_forbids_it()}"
    if about.startswith("/proc/sys"):
        return (
            f"{about} cannot be set: {said}. Here routers drop what did not come by the way back (rp_filter = 1), and "
            "that cannot be changed in a container with a read-only /proc/sys. On the machine itself `sudo sysctl "
            "net.ipv4.conf.all.rp_filter=2` allows it."
        )
    return f"the emulated network could not be made ({about}): {said}."


SETTINGS = (
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "kernel.apparmor_restrict_unprivileged_userns=0"),
    ("kernel/unprivileged_userns_clone", "0", "kernel.unprivileged_userns_clone=1"),
    ("user/max_user_namespaces", "0", "user.max_user_namespaces=10000"),
    ("user/max_net_namespaces", "0", "user.max_net_namespaces=10000"),
)
"""Where the kernel forbids namespaces, by which value, and what allows them."""


def _what_forbids_it() -> str:
    forbidding = []
    for name, value, remedy in SETTINGS:
        try:
            if Path("/proc/sys", name).read_text().strip() == value:
                forbidding.append(remedy)
        except OSError:
            continue
    if forbidding:
        commands = " and ".join(f"`sudo sysctl -w {remedy}`" for remedy in forbidding)
        return f"A setting of this machine forbids it; {commands} allows it until the next start."
    return (
        "No setting of the kernel forbids it, so that it is probably a container: start it with "
        "`--security-opt seccomp=unconfined`, or run outside of it."
    )
