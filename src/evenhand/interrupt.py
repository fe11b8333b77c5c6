"""Ctrl-C: put off to a better moment, and heard where nobody listens."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

GRACE = 0.8
"""Seconds that a program has to end by itself after the second Ctrl-C."""
A_MOMENT = 0.02


@contextlib.contextmanager
def last_resort(code: int) -> Iterator[None]:
    """While open, the second Ctrl-C ends the program with this exit code, whatever it is at.

    Python looks at Ctrl-C only between two of its own instructions, and then anybody's `except` may swallow it: code
    that waits outside Python, or in a loop that catches everything, would never hear of it.
    """
    in_charge = threading.current_thread() is threading.main_thread()
    if not in_charge or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
        yield
        return
    heard, pressed = os.pipe()
    os.set_blocking(pressed, False)
    before, hook = signal.set_wakeup_fd(pressed, warn_on_full_buffer=False), sys.unraisablehook

    def again(lost: Any) -> None:
        """One that came where errors are only printed, as in a callback of the garbage collector's, comes once more."""
        if lost.exc_type is KeyboardInterrupt:
            threading.Timer(A_MOMENT, os.kill, (os.getpid(), signal.SIGINT)).start()
        else:
            hook(lost)

    sys.unraisablehook = again
    threading.Thread(target=_watch, args=(heard, code), daemon=True).start()
    try:
        yield
    finally:
        sys.unraisablehook = hook
        signal.set_wakeup_fd(before)
        os.close(pressed)


def _watch(heard: int, code: int) -> None:
    """Count until the other end is closed."""
    presses = 0
    while presses < 2 and (signals := os.read(heard, 1)):
        presses += signals == bytes([signal.SIGINT])
    if presses == 2 and not _ends(heard):
        shown = "\x1b[?25h" if sys.stderr.isatty() else ""  # a progress bar may have hidden the cursor
        with contextlib.suppress(OSError):
            os.write(2, f"{shown}evenhand: interrupted\n".encode())
        os._exit(code)
    os.close(heard)


def _ends(heard: int) -> bool:
    """Whether the program ends in time, of which the closing of the other end is the sign."""
    while select.select([heard], [], [], GRACE)[0]:
        if not os.read(heard, 1):
            return True
    return False


@contextlib.contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """While open, the first Ctrl-C only makes the function given say True; the second one takes effect at once."""
    pressed = threading.Event()

    def note(number: int, frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    in_charge = threading.current_thread() is threading.main_thread()
    if in_charge and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, note)
        try:
            yield pressed.is_set
        finally:
            signal.signal(signal.SIGINT, signal.default_int_handler)
    else:
        yield pressed.is_set
