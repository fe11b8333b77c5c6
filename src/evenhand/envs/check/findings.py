"""What checks have to say, and how."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from evenhand.envs.gym.failures import failed
from evenhand.errors import InputError

Severity = Literal["error", "warning", "fine"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "fine")


@dataclass(frozen=True)
class Finding:
    """One thing that was found: an error stops training, a warning is worth a thought, the rest is as it should be."""

    severity: Severity
    title: str
    explanation: str


@dataclass
class Findings:
    """What has been found so far; each title once."""

    findings: list[Finding] = field(default_factory=list)

    def error(self, title: str, explanation: str) -> None:
        """Training cannot do with this."""
        self._add("error", title, explanation)

    def warning(self, title: str, explanation: str) -> None:
        """It works, but is worth a thought."""
        self._add("warning", title, explanation)

    def fine(self, title: str, explanation: str) -> None:
        """As it should be, or merely good to know."""
        self._add("fine", title, explanation)

    def _add(self, severity: Severity, title: str, explanation: str) -> None:
        if all(finding.title != title for finding in self.findings):
            self.findings.append(Finding(severity, title, explanation))

    @property
    def has_errors(self) -> bool:
        """Whether something stops training."""
        return any(finding.severity == "error" for finding in self.findings)

    @contextlib.contextmanager
    def guard(self, title: str, where: Callable[[], str] = lambda: "In the trial") -> Iterator[None]:
        """Turn whatever is raised inside into an error with this title. where: the beginning of a sentence."""
        try:
            yield
        except InputError as error:
            self.error(title, str(error))
        except (Exception, SystemExit) as error:
            self.error(title, str(failed(where(), error)))


def first_place(where: np.ndarray) -> str:
    """Which entry of an array is the first that is true, as people write it."""
    place = np.argwhere(np.atleast_1d(where))[0]
    return str(int(place[0])) if len(place) == 1 else str(tuple(int(i) for i in place))


def short(thing: Any) -> str:
    """What something looks like, in a line at most."""
    text = repr(thing)
    return text if len(text) <= 100 else f"{text[:97]}..."


def reward_line(names: tuple[str, ...], low: Any, high: Any) -> str:
    """The users, and the range of their rewards."""
    ranges = ", ".join(f"{name} {span(a, b)}" for name, a, b in zip(names, low, high, strict=True))
    return f"Rewards: D = {len(names)} ({ranges})."


def span(low: float | int | np.floating, high: float | int | np.floating) -> str:
    """From one number to another."""
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"
