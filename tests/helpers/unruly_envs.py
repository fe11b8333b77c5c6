"""Environments that hang, end the program, print, fail or never end, by name: what strangers' code may do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium

from faulty_envs import Sound


class Unruly(Sound):
    """Sound, but for what it does once, in a step of its life or in the reset before.

    deed: see `DEEDS`. step: when; -1 is never, and 0 in the reset after the first episode.
    marker: a file that is made just before. once: only while that file is not there yet.
    """

    def __init__(self, deed: str, step: int = 30, marker: str = "", once: bool = False) -> None:
        super().__init__()
        self.deed, self.step_of_deed, self.marker, self.once = deed, step, marker, once
        self.steps = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        if self.step_of_deed == 0 and self.steps:
            self.act_up()
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.step_of_deed:
            self.act_up()
        return super().step(action)

    def act_up(self) -> None:
        if self.marker:
            if self.once and Path(self.marker).exists():
                return
            Path(self.marker).touch()
        DEEDS[self.deed]()


def swallow() -> None:
    """Hang, whatever is raised."""
    while True:
        with contextlib.suppress(BaseException):
            time.sleep(0.05)


def fall() -> None:
    raise ZeroDivisionError("the wheel came off")


def speak() -> None:
    """In every way there is."""
    print("spoken by Python")
    sys.__stdout__.write("spoken by Python's own stream\n")
    os.write(1, b"spoken to the descriptor\n")
    ctypes.CDLL(None).puts(b"spoken by C")
    subprocess.run(["echo", "spoken by another program"], check=True)


DEEDS = {
    "sleep": lambda: time.sleep(10_000),
    "swallow": swallow,
    "exit": lambda: sys.exit(0),
    "os_exit": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "fall": fall,
    "speak": speak,
}


class Endless(Sound):
    def step(self, action: Any) -> Any:
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


gymnasium.register("unruly-v0", Unruly, disable_env_checker=True)
gymnasium.register("endless-v0", Endless, disable_env_checker=True)
