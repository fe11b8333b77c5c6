"""A worker process that steps environments when told to.

It imports this module and nothing heavier: it must not import JAX.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

from evenhand import children
from evenhand.envs.gym.conversions import Conversions
from evenhand.envs.gym.stepper import Layout, Seeds, Stepper

# Worker processes

STEP, RESET = b"s", b"r"
DONE, MORE = b".", b"+"
"""What a worker answers: that it is done, and whether an object follows."""
LAST_GRACE = 0.5
"""Seconds that a step may still take when the parent process has died."""


def tell(connection: Any, signal: bytes) -> None:
    """Send one byte."""
    if os.name == "posix":  # a byte in a pipe takes a quarter of the time that a message does
        os.write(connection.fileno(), signal)
    else:
        connection.send_bytes(signal)


def waiting_for(connection: Any) -> Callable[[float | None], Any]:
    """What waits until something can be heard, so many seconds or for ever, and says whether; Ctrl-C interrupts it.

    Reading alone would not do: where a library has taken hold of Ctrl-C, as Polars does, the system goes on reading.
    """
    if os.name != "posix":
        return lambda seconds: connection.poll(seconds)
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return lambda seconds: poll.poll(None if seconds is None else math.ceil(1000 * seconds))


def hear(connection: Any) -> bytes:
    """Wait for one byte; an EOFError if there is nobody at the other end."""
    heard = os.read(connection.fileno(), 1) if os.name == "posix" else connection.recv_bytes()
    if not heard:
        raise EOFError
    return bytes(heard)


def serve(commands: Any, answers: Any, kind: Conversions, layout: Layout, memory: Any, seeds: list[Seeds]) -> None:
    """The life of a worker process: step its rows when told to, until the other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    children.leave_with_parent(LAST_GRACE)  # even if an environment hangs
    stepper = None
    try:
        first = seeds[0].number
        stepper = Stepper(kind, layout.over(memory).rows(first, first + len(seeds)), seeds)
        while True:
            if hear(commands) == STEP:
                infos = stepper.step()
                if infos:
                    _send_infos(answers, infos)
                    continue
            else:
                stepper.reset()
            tell(answers, DONE)
    except (EOFError, BrokenPipeError, ConnectionResetError):  # the parent has closed its end, or died
        pass
    except Exception as error:
        with contextlib.suppress(OSError):
            tell(answers, MORE)
            answers.send(error)
    finally:
        if stepper is not None:
            stepper.close()


def _send_infos(answers: Any, infos: list[dict[str, Any]]) -> None:
    tell(answers, MORE)
    try:
        message = ForkingPickler.dumps(infos)
    except Exception:
        message = ForkingPickler.dumps(sendable(infos))
    answers.send_bytes(message)  # this is all that `send` does


def sendable(infos: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Infos hold someone else's objects: those that cannot be sent to another process are left out."""
    return [{key: value for key, value in info.items() if _can_be_sent(value)} for info in infos]


def _can_be_sent(value: Any) -> bool:
    try:
        ForkingPickler.dumps(value)
    except Exception:
        return False
    return True
