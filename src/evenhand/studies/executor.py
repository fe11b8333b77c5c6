"""Where the cells of a study are done."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

from evenhand.disk import make_folder
from evenhand.envs.registry import loaded
from evenhand.errors import InputError, Say
from evenhand.runs.folder import locked
from evenhand.runs.hyperparameters import check_name
from evenhand.runs.pool import Failure, Report, cores, spread_out
from evenhand.runs.trainer import CHECKPOINT_SECONDS
from evenhand.studies.cells import Cell, missing_of, worker

if TYPE_CHECKING:
    from evenhand.envs.gym.vector import Start

Failures = list[tuple[Cell, Failure]]


@runtime_checkable
class Executor(Protocol):
    """Where cells are done: this machine, or others. All that is asked of it is that missing cells get done."""

    @property
    def processes(self) -> int:
        """How many cells are done at a time."""

    def map(self, cells: Sequence[Cell], root: Path, report: Report, say: Say) -> tuple[Failures, bool]:
        """Do the cells; those that failed and why, and whether Ctrl-C was pressed."""


class Connection(Protocol):
    """Gives an executor, connected to other machines where it needs them, for as long as it is open."""

    def __call__(
        self, address: str | None, jobs: int | None, checkpoint_seconds: float
    ) -> AbstractContextManager[Executor]:
        """address: of other machines; jobs: how many processes, if this one alone."""


class ExecutorKind(NamedTuple):
    """What a name on the command line stands for."""

    connect: Connection
    takes_address: bool = False
    start: Start | None = None
    """What starts processes that step the environments of one run (see `evenhand.envs.gym.vector.VectorEnv`), if they
    are to be elsewhere; while the executor is connected."""


@dataclass(frozen=True)
class ThisMachine:
    """Spawned processes, by default one for each core."""

    jobs: int | None = None
    checkpoint_seconds: float = CHECKPOINT_SECONDS

    @property
    def processes(self) -> int:
        """How many cells are done at a time."""
        return self.jobs or cores()

    def map(self, cells: Sequence[Cell], root: Path, report: Report, say: Say) -> tuple[Failures, bool]:
        """Do the cells."""
        argument = (str(root), self.checkpoint_seconds)
        named = {cell.request.env for cell in cells}
        return spread_out(worker, argument, cells, self.processes, report, say, lambda cell: cell.kind, named)


def carry_out(cells: Sequence[Cell], root: Path, executor: Executor, report: Report, say: Say) -> Failures:
    """Do the cells that are missing; those that failed, and why. Ctrl-C stops at a checkpoint."""
    make_folder(root)
    with locked(root):
        missing = missing_of(cells, root)
        if not missing:
            return []
        failures, stopped = executor.map(missing, root, report, say)
        if stopped and missing_of(missing, root):
            raise KeyboardInterrupt
    return failures


def _this_machine(address: str | None, jobs: int | None, checkpoint_seconds: float) -> AbstractContextManager[Executor]:
    return nullcontext(ThisMachine(jobs, checkpoint_seconds))


EXECUTORS: dict[str, ExecutorKind | str] = {
    "local": ExecutorKind(_this_machine),
    "ray": "evenhand.studies.ray_cluster:RAY",
}
"""By name; a text is `module:name` of one that is imported when it is used."""


def register_executor(name: str, kind: ExecutorKind) -> None:
    """Add an executor of your own, for the option --executor."""
    if name in EXECUTORS:
        raise InputError(f"there is an executor {name!r} already: choose another name.")
    EXECUTORS[name] = kind


def executor_kind(name: str) -> ExecutorKind:
    """One of them."""
    check_name("executor", name, EXECUTORS)
    found = EXECUTORS[name]
    return loaded(found) if isinstance(found, str) else found
