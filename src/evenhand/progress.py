"""Progress bars: how far the gap of a solve has closed, and how far each seed of a training run has come."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from rich import progress
from rich.markup import escape

from evenhand.interrupt import deferred_interrupt
from evenhand.terminal import Console

A_MOMENT = 2.0  # seconds


class SolveProgress:
    """Shows the closing gap on standard error, if asked to, or if that is a terminal and the solve takes a while.

    Gaps shrink by factors, so the bar shows how many of the digits asked for have been reached.

    While it is open, the first Ctrl-C waits for the query under way, so that none is lost in the middle of something;
    the second one takes effect at once.
    """

    def __init__(self, wanted: bool | None) -> None:
        console = Console(stderr=True)
        self._wanted = console.is_terminal if wanted is None else wanted
        self._patience = A_MOMENT if wanted is None else 0.0
        self._began = time.monotonic()
        self._first_gap = 0.0
        self._bar = progress.Progress(
            progress.BarColumn(bar_width=16),
            progress.TextColumn("{task.description}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("[dim]Ctrl-C: best so far"),
            console=console,
            transient=True,
        )
        self._task: progress.TaskID | None = None
        self._open = ExitStack()
        self._interrupted: Callable[[], bool] = lambda: False
        self._heard = False

    def __enter__(self) -> SolveProgress:
        self._interrupted = self._open.enter_context(deferred_interrupt())
        return self

    def update(self, search: Any) -> None:
        """One more query has been answered; an interrupt that came meanwhile is raised now."""
        if self._interrupted():
            self._heard = True
            raise KeyboardInterrupt
        reached, bound, goal = search
        gap = max(bound - reached, goal)
        if math.isfinite(gap):
            self._first_gap = max(self._first_gap, gap)
        if not self._wanted or time.monotonic() - self._began < self._patience or not math.isfinite(gap):
            return
        if self._task is None:
            self._task = self._bar.add_task("", total=1.0)
            self._bar.start()
        digits = math.log(max(self._first_gap / goal, 1 + 1e-9))
        done = math.log(self._first_gap / gap) / digits
        self._bar.update(self._task, completed=done, description=f"gap {gap:.1e}, welfare {reached:.6g}")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._open.close()
        if self._task is not None:
            self._bar.stop()
        if self._interrupted() and not self._heard and kind is None:
            raise KeyboardInterrupt  # there was no query to wait for, and who loops over small models wants to get out


Bars = TypeVar("Bars", bound="_Bars")


class _Bars:
    """What shows bars while it is open, if they are wanted."""

    _bar: progress.Progress
    _wanted: bool

    def __enter__(self: Bars) -> Bars:
        if self._wanted:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._wanted:
            self._bar.stop()

    def say(self, message: str) -> None:
        """A sentence above the bars."""
        self._bar.console.print(message, highlight=False, markup=False)


class TrainingProgress(_Bars):
    """One line for each seed: its phase, steps per second, time left, and who gets what."""

    def __init__(self, seeds: Sequence[int], steps: int, objectives: Sequence[str], wanted: bool | None) -> None:
        console = Console(stderr=True)
        self._wanted = console.is_terminal if wanted is None else wanted
        self._steps, self._objectives = steps, objectives
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=16),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[speed]}"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("[dim]{task.fields[note]}"),
            console=console,
        )
        self._tasks = {
            seed: self._bar.add_task(f"seed {seed}", total=steps, start=False, speed="", note="waiting")
            for seed in seeds
        }
        self._training: set[int] = set()

    def update(self, report: Mapping[str, Any]) -> None:
        """Show what a seed reports."""
        seed, step, phase = report["seed"], report["step"], report["phase"]
        task = self._tasks[seed]
        if phase == "training" and seed not in self._training:
            self._training.add(seed)
            self._bar.reset(task, completed=step)  # so that compiling does not count as time per step
            compiled = report.get("compiled", 0.0)
            self._bar.update(task, note=f"compiled in {compiled:.1f} s" if compiled else "")
        note = None if phase == "training" else {"done": "done", "testing": "test episodes"}.get(phase, phase)
        if "reward" in report:
            note = "per step: " + shares(self._objectives, report["reward"])
            self._bar.update(task, speed=f"{report['speed']:,.0f} steps/s")
        if "share" in report:
            note = f"test episodes, {report['share']:.0%}"
        if note is not None:
            self._bar.update(task, note=note)
        self._bar.update(task, completed=step)


class TestProgress(_Bars):
    """How far test episodes have come, where standard error is a terminal."""

    __test__ = False  # no test of pytest's

    def __init__(self, description: str) -> None:
        console = Console(stderr=True)
        self._wanted = console.is_terminal
        self._bar = progress.Progress(
            progress.TextColumn("[dim]{task.description}", markup=True),
            progress.BarColumn(bar_width=16),
            progress.TaskProgressColumn(),
            progress.TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task(escape(description), total=1.0)

    def update(self, share: float) -> None:
        """Show the share that is done."""
        self._bar.update(self._task, completed=share)


def shares(objectives: Sequence[str], values: Sequence[float], most: int = 4) -> str:
    """Who gets what, on one line."""
    shown = [f"{name} {value:.3g}" for name, value in zip(objectives[:most], values[:most], strict=True)]
    if len(values) > most:
        shown.append(f"… worst {min(values):.3g}")
    return ", ".join(shown)


class StudyProgress(_Bars):
    """A live table of a study: all cells, the cells of each method, and what every process is at.

    Where standard error is no terminal, a line for each cell that is done.
    """

    def __init__(self, methods: Mapping[str, tuple[int, int]], steps: int, wanted: bool | None = None) -> None:
        """methods: how many cells of each are done, and of how many; steps: of training that are left."""
        self._console = Console(stderr=True)
        self._wanted = self._console.is_terminal if wanted is None else wanted
        self._bar = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=16),
            progress.TextColumn("{task.fields[count]}"),
            progress.TimeRemainingColumn(),
            progress.TextColumn("[dim]{task.fields[note]}"),
            console=self._console,
        )
        done, of = (sum(numbers) for numbers in zip(*methods.values(), strict=True))
        self._all = self._bar.add_task("all", total=max(steps, 1), count=f"{done}/{of} cells", note="")
        self._methods = {
            name: self._bar.add_task(name, total=total, completed=made, count=f"{made}/{total}", note="")
            for name, (made, total) in methods.items()
        }
        self._done = {name: made for name, (made, _) in methods.items()}
        self._of = {name: total for name, (_, total) in methods.items()}
        self._steps: dict[Any, int] = {}
        self._running: dict[str, dict[str, str]] = {name: {} for name in methods}

    def update(self, method: str, which: str, report: Mapping[str, Any]) -> None:
        """Show what a cell reports. which: of the method's cells, as in "seed 3"."""
        phase, step = report["phase"], report["step"]
        running, key = self._running[method], (method, which)
        before = self._steps.setdefault(key, step)
        self._bar.advance(self._all, max(0, step - before))
        self._steps[key] = max(step, before)
        if phase in ("done", "stopped"):
            running.pop(which, None)
            if phase == "done":
                self._done[method] += 1
                done, of = self._done[method], self._of[method]
                self._bar.update(self._methods[method], completed=done, count=f"{done}/{of}")
                whole = f"{sum(self._done.values())}/{sum(self._of.values())} cells"
                self._bar.update(self._all, count=whole)
                if not self._wanted:
                    self.say(f"{method}, {which}: done ({whole})")
        else:
            speed = f" {report['speed']:,.0f} steps/s" if "speed" in report else ""
            running[which] = f"{which} {phase}{speed}"
        self._bar.update(self._methods[method], note="; ".join(running.values()))
