"""Many machines: the cells of a study, or the environments of one run, on a Ray cluster.

Machines need not share files. A cell is done in a folder of its own wherever Ray puts it, and at every checkpoint its
files come back to the keeper, beside the program that was started, which puts them into the study's folder. What is
lost with a machine Ray begins again on another, with the files that had come back.
"""

from __future__ import annotations

import contextlib
import importlib
import itertools
import os
import shutil
import socket
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evenhand.disk import make_folder, write_atomically
from evenhand.envs.gym.conversions import Conversions
from evenhand.envs.gym.stepper import Layout, Seeds, Stepper
from evenhand.envs.gym.worker import RESET, sendable
from evenhand.errors import InputError, Say
from evenhand.interrupt import deferred_interrupt
from evenhand.runs.checkpoint import put_checkpoint
from evenhand.runs.pool import ONE_THREAD, Added, Failure, Perform, Report, cores, failure_of, prepare_jax
from evenhand.runs.trainer import CHECKPOINT_SECONDS
from evenhand.studies.cells import Cell, worker
from evenhand.studies.executor import Executor, ExecutorKind, Failures

RETRIES = 5
"""How often a cell that was lost with its process or machine is begun again."""
PULSE = 0.5
"""Seconds between two reports of a cell that has nothing new to say but its step."""
PATIENCE = 60.0
"""Seconds that machines have to answer before any work starts."""
STORE = 200_000_000
"""Bytes for objects on their way, on a cluster of our own; checkpoints are far smaller."""
_HOST_SHARE = 0.001  # of a CPU: a machine that has none takes part in nothing, and else all environments find a place


# Connecting


@contextlib.contextmanager
def connected(address: str | None = None, jobs: int | None = None) -> Iterator[None]:
    """To a Ray cluster that is there, or to one on this machine alone that lasts as long as this.

    address: HOST:PORT of the cluster, or "auto" for the one that this machine is part of.
    jobs: how many CPUs a cluster of our own has; by default one for each core.
    """
    if address is not None:
        _check_address(address)
    ray = _ray(alone=address is None)
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    try:
        if address is None:
            ray.init("local", num_cpus=jobs or cores(), include_dashboard=False, object_store_memory=STORE, **quiet)
        else:
            ray.init(address, **quiet)
    except Exception as error:  # of many kinds, some of them no more than that
        where = "Ray could not be started on this machine" if address is None else f"no Ray cluster at {address}"
        raise InputError(f"{where}: {_first_line(error)}") from error
    try:
        if address is not None:
            _check_machines(ray)
        yield
    finally:
        ray.shutdown()


def cpus() -> int:
    """How many the cluster has."""
    return int(_ray().cluster_resources().get("CPU", 0))


def _ray(alone: bool = False) -> Any:
    """Ray, which is only imported by whoever uses it. alone: listen to this machine only, if nobody has imported it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if alone:  # Ray reads its name for "clusters are not supported here", and then stays on the loopback interface
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise InputError(f"the executor ray needs Ray ({error}): pip install 'evenhand[ray]'.") from None


def _check_address(address: str) -> None:
    """Ray itself would try for minutes, and then end the program."""
    if address == "auto":
        return
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or "/" in host:
        raise InputError(f"--address takes HOST:PORT, as in 10.0.0.1:6379, or auto, not {address!r}.")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=5).close()
    except (OSError, OverflowError) as error:
        raise InputError(
            f"nobody answers at {address} ({error}): is the head of the cluster running? On it: ray start --head."
        ) from None


def _check_machines(ray: Any) -> None:
    """Every machine that may get work must have the same packages, for the numbers to be the same."""
    machines = _machines(ray)
    if not machines:
        raise InputError("no machine of the Ray cluster has a CPU for work: ray start --address=... adds machines.")
    ask, here = ray.remote(_packages), _packages()
    asked = [ask.options(num_cpus=0, scheduling_strategy=_on(ray, machine["NodeID"])).remote() for machine in machines]
    for machine, answer in zip(machines, asked, strict=True):
        name = machine["NodeManagerAddress"]
        try:
            there = ray.get(answer, timeout=PATIENCE)
        except ray.exceptions.RayError as error:
            if machine["NodeID"] not in {other["NodeID"] for other in _machines(ray)}:
                continue  # it was dead all the time, but the cluster had not missed it yet: others do the work
            raise InputError(
                f"{name} of the Ray cluster cannot run evenhand ({_first_line(error)}): install it there as here."
            ) from error
        if there != here:
            raise InputError(f"{name} of the Ray cluster has {_listed(there)}, but this machine {_listed(here)}.")


def _packages() -> dict[str, str]:
    return {name: metadata.version(name) for name in ("evenhand", "jax", "jaxlib", "numpy")}


def _listed(packages: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in packages.items())


def _on(ray: Any, machine: str, soft: bool = False) -> Any:
    """Where to put something. soft: elsewhere, if that machine is gone."""
    strategies = importlib.import_module("ray.util.scheduling_strategies")
    return strategies.NodeAffinitySchedulingStrategy(machine, soft=soft)


def _machines(ray: Any) -> list[Any]:
    """Those that may get work."""
    return [machine for machine in ray.nodes() if machine["Alive"] and machine["Resources"].get("CPU")]


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


# Cells of a study


@dataclass(frozen=True)
class OnRay:
    """The cluster that this program is connected to; an `evenhand.studies.executor.Executor`."""

    checkpoint_seconds: float = CHECKPOINT_SECONDS

    @property
    def processes(self) -> int:
        """How many cells can be done at a time."""
        return cpus()

    def map(self, cells: Sequence[Cell], root: Path, report: Report, say: Say) -> tuple[Failures, bool]:
        """Do the cells; which of them where and in which order is Ray's to decide, and so is what to do again."""
        ray = _ray()
        here = _on(ray, ray.get_runtime_context().get_node_id())
        added = Added.here()
        keeper = ray.remote(Keeper).options(num_cpus=0, scheduling_strategy=here).remote(str(root.absolute()), added)
        task = ray.remote(do_cell).options(num_cpus=1, max_retries=RETRIES)
        failures: Failures = []
        try:
            with deferred_interrupt() as stop:
                asked = (keeper, added, self.checkpoint_seconds)
                going = {task.remote(i, cell, *asked): cell for i, cell in enumerate(cells)}
                while going:
                    ready, _ = ray.wait(list(going), num_returns=len(going), timeout=0.2)
                    for what, content in ray.get(keeper.heard.remote(stop())):
                        (report if what == "report" else say)(content)
                    for done in ready:
                        cell, problem = going.pop(done), _outcome(ray, done)
                        if problem:
                            failures.append((cell, problem))
        except ray.exceptions.RayError as error:
            raise InputError(f"the Ray cluster was lost ({_first_line(error)}); the same command goes on.") from error
        finally:
            ray.kill(keeper)
        return failures, stop()


def _outcome(ray: Any, done: Any) -> Failure | None:
    try:
        return ray.get(done)
    except ray.exceptions.RayError as error:
        return Failure(f"it was lost with its process or machine {RETRIES + 1} times, or could not be begun: {error}")


class Keeper:
    """An actor beside the program that was started: keeps what cells send, and passes on what they say."""

    def __init__(self, root: str, added: Added) -> None:
        added.take_over()
        self._root = Path(root)
        self._attempts: Counter[int] = Counter()
        self._heard: list[tuple[str, Any]] = []
        self._halted = False

    def begin(self, number: int, cell: Cell) -> tuple[int, dict[str, bytes]] | None:
        """Which attempt at a cell this is, and the files there are of it; None if everything is to stop."""
        if self._halted:
            return None
        self._attempts[number] += 1
        found = files_of(cell, self._root)
        return self._attempts[number], {name: (self._root / name).read_bytes() for name in found}

    def hear(self, number: int, attempt: int, content: dict[str, Any], files: Mapping[str, bytes]) -> bool:
        """Keep files, and pass on a report; whether to stop at the next checkpoint."""
        if attempt != self._attempts[number]:
            return True  # of a machine that was given up, but is not dead: the cell is done elsewhere by now
        put(files, self._root)
        self._heard.append(("report", content))
        return self._halted

    def say(self, message: str) -> None:
        """Pass on a sentence."""
        self._heard.append(("say", message))

    def heard(self, halt: bool) -> list[tuple[str, Any]]:
        """What was said since the last time. halt: whether to have all cells stop."""
        self._halted = halt
        heard, self._heard = self._heard, []
        return heard


def do_cell(number: int, cell: Cell, keeper: Any, added: Added, checkpoint_seconds: float) -> Failure | None:
    """Do a cell on the machine where Ray has put it; what went wrong, or None."""
    try:
        added.take_over()
    except ImportError as error:
        return Failure(f"{error} on {socket.gethostname()} of the Ray cluster: install it there as here.")
    folder, perform = _prepared(keeper, checkpoint_seconds)
    root = Path(folder.name)
    begun = _asked(keeper.begin.remote(number, cell))
    if begun is None:
        return None
    attempt, files = begun
    put(files, root)
    try:
        line = _Line(number, attempt, cell, keeper, root)
        return failure_of(perform, cell, line.report, lambda: line.halted)
    finally:
        for name in ("cells", "simple"):
            shutil.rmtree(root / name, ignore_errors=True)


@lru_cache(maxsize=1)
def _prepared(keeper: Any, checkpoint_seconds: float) -> tuple[tempfile.TemporaryDirectory[str], Perform]:
    """A folder and what does cells in it, for as long as this process lives: what is compiled serves many cells."""
    os.environ.setdefault(ONE_THREAD, "1")
    prepare_jax()
    folder = tempfile.TemporaryDirectory(prefix="evenhand-")
    return folder, worker((folder.name, checkpoint_seconds), lambda message: _asked(keeper.say.remote(message)))


class _Line:
    """From a cell to the keeper: what is new of its files goes with the reports."""

    def __init__(self, number: int, attempt: int, cell: Cell, keeper: Any, root: Path) -> None:
        self.halted = False
        self._number, self._attempt, self._cell, self._keeper, self._root = number, attempt, cell, keeper, root
        self._sent = files_of(cell, root)
        self._told, self._phase = 0.0, ""

    def report(self, content: dict[str, Any]) -> None:
        """Tell the keeper, unless there is hardly anything to tell."""
        files = self._unsent()
        if files or content["phase"] != self._phase or time.monotonic() - self._told > PULSE:
            self._phase = content["phase"]
            self.halted = _asked(self._keeper.hear.remote(self._number, self._attempt, content, files))
            self._told = time.monotonic()

    def _unsent(self) -> dict[str, bytes]:
        """What has changed, if that is a checkpoint or a result; between those nothing is worth sending."""
        now = files_of(self._cell, self._root)
        if not any("step-" in name or name.endswith(".json") for name in now.keys() - self._sent.keys()):
            return {}
        changed = {name: (self._root / name).read_bytes() for name in now if now[name] != self._sent.get(name)}
        self._sent = now
        return changed


def files_of(cell: Cell, root: Path) -> dict[str, tuple[int, int]]:
    """The files of a cell by their names in the study's folder, each with what tells whether it has changed."""
    paths = cell.folder(root).rglob("*") if cell.learns else cell.results(root)
    found = {}
    for path in paths:
        name = path.relative_to(root)
        if (
            path.is_file()
            and not path.is_symlink()
            and path.name != "lock"
            and not any(part.startswith(".") for part in name.parts)
        ):
            known = path.stat()
            found[name.as_posix()] = (known.st_size, known.st_mtime_ns)
    return found


def put(files: Mapping[str, bytes], root: Path) -> None:
    """Write files of a cell in an order in which a kill in between does no harm: a checkpoint before its results."""
    checkpoints: dict[Path, dict[str, bytes]] = {}
    others = []
    for name, data in files.items():
        path = root / name
        if path.parent.parent.name == "checkpoints":
            checkpoints.setdefault(path.parent, {})[path.name] = data
        else:
            others.append((path, data))
    results = [(path, data) for path, data in others if path.parent.name in ("evaluations", "simple")]
    first = [(path, data) for path, data in others if path.name == "run.json"]
    for path, data in first + [other for other in others if other not in first + results]:
        _put_file(path, data)
    for path in sorted(checkpoints):
        put_checkpoint(path, checkpoints[path])
    for path, data in results:
        _put_file(path, data)


def _put_file(path: Path, data: bytes) -> None:
    make_folder(path.parent)
    write_atomically(path, data)


def _asked(answer: Any, timeout: float | None = None) -> Any:
    """What an actor says, within so many seconds; its own errors are raised as they were there."""
    ray = _ray()
    try:
        return ray.get(answer, timeout=timeout)
    except ray.exceptions.RayTaskError as error:
        raise error.cause from None


# Environments of one run


class Rows:
    """An actor that steps some of the environments of one learner."""

    def __init__(self, kind: Conversions, layout: Layout, seeds: list[Seeds]) -> None:
        self._kind, self._seeds = kind, seeds
        own = layout._replace(N=len(seeds))
        self._buffers = own.over(bytearray(own.size))
        self._stepper: Stepper | None = None

    def obey(self, command: bytes, action: np.ndarray) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
        """Reset or step; what that has put into the buffers, and the infos of episodes that ended."""
        if self._stepper is None:  # not sooner: what an environment raises should be an answer
            self._stepper = Stepper(self._kind, self._buffers, self._seeds)
        self._buffers.action[...] = action
        if command == RESET:  # says nothing of the step before, which may be that with which others were lost
            self._stepper.reset()
            return {"observation": self._buffers.observation}, []
        infos = self._stepper.step()
        return {name: array for name, array in self._buffers._asdict().items() if name != "action"}, sendable(infos)

    def close(self) -> None:
        """Close the environments."""
        if self._stepper is not None:
            self._stepper.close()


class OnMachines:
    """Environments hosted by a Ray actor; an `evenhand.envs.gym.vector.Remote`. One machine after another gets one."""

    _turn = itertools.count()
    _lost: ClassVar[str | None] = None  # the last machine that lost one: that it is dead may not be known yet

    def __init__(self, kind: Conversions, layout: Layout, memory: Any, seeds: list[Seeds]) -> None:
        self._ray = _ray()
        first = seeds[0].number
        self._buffers = layout.over(memory).rows(first, first + len(seeds))
        machines = [machine["NodeID"] for machine in _machines(self._ray)]
        machines = [machine for machine in machines if machine != self._lost] or machines
        self._machine = machines[next(self._turn) % len(machines)]
        place = _on(self._ray, self._machine, soft=True)
        rows = self._ray.remote(Rows).options(num_cpus=_HOST_SHARE, scheduling_strategy=place)
        self._actor = rows.remote(kind, layout, seeds)
        self._answer: Any = None
        self._how = "it was closed"

    def tell(self, command: bytes) -> None:
        """Have it reset or step."""
        self._answer = self._actor.obey.remote(command, self._buffers.action.copy())

    def hear(self, timeout: float | None) -> list[dict[str, Any]]:
        """Wait until it has, and copy what it says to our rows."""
        exceptions = self._ray.exceptions
        try:
            arrays, infos = _asked(self._answer, timeout)
        except exceptions.GetTimeoutError:
            raise TimeoutError from None
        except (exceptions.RayActorError, exceptions.ObjectLostError) as error:
            self._how, OnMachines._lost = _first_line(error), self._machine
            raise EOFError from error
        for name, array in arrays.items():
            getattr(self._buffers, name)[...] = array
        return infos

    def hang_up(self) -> None:
        """Have it close its environments."""
        self._answer = self._actor.close.remote()

    def end(self, patience: float) -> str:
        """Wait until it has, but not for long."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.get(self._answer, timeout=patience)
        self._ray.kill(self._actor)
        return self._how


@contextlib.contextmanager
def _on_ray(address: str | None, jobs: int | None, checkpoint_seconds: float) -> Iterator[Executor]:
    with connected(address, jobs):
        yield OnRay(checkpoint_seconds)


RAY = ExecutorKind(_on_ray, takes_address=True, start=OnMachines)
