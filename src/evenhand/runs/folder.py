"""Run folders: what was asked, who trains, how far it has come, and where everything lies.

RUN/
  run.json          what was asked; written first, never changed
  versions.json     the versions and the machine of each start and resume
  lock              held by the process that trains
  log.txt           what was said on the way
  seed-0/           one folder for each seed
    checkpoints/step-000000512000/
    metrics.parquet
    events.out.tfevents…
  evaluations/
"""

from __future__ import annotations

import difflib
import os
import platform
import re
import shlex
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from evenhand.disk import DiskFull, as_json, make_folder, read_json, write_atomically
from evenhand.errors import InputError, Say, visible
from evenhand.runs.checkpoint import Checkpoint, load_newest, newest_record
from evenhand.runs.request import Request, whole

SCHEMA = 1
"""The version of the layout; a folder of a later one is refused."""

MOST_ASKED = 2**24
"""Bytes of run.json."""

_REQUEST, _LOCK = "run.json", "lock"
_MAY_BE_THERE = {_LOCK, f".{_REQUEST}.writing"}  # what a creation that was interrupted leaves
_PACKAGES = ("evenhand", "jax", "jaxlib", "numpy", "scipy", "optax", "gymnasium", "polars", "safetensors")


class Progress(NamedTuple):
    """How far one seed has come."""

    seed: int
    step: int
    """The step of the newest whole checkpoint; 0 without one."""
    steps: int
    """The steps asked."""

    @property
    def finished(self) -> bool:
        """Whether nothing is left to do."""
        return self.step >= self.steps


class RunFolder:
    """A training run on disk; made by `create` or `open`. Nothing outside its folder is ever touched."""

    path: Path
    """Where it lies."""
    echo: Say | None
    """Told, besides the log, what `say` says."""

    request: Request
    """What was asked, as it stands in run.json."""

    def __init__(self, path: Path, request: Request, echo: Say | None = None) -> None:
        self.path = path
        self.request = request
        self.echo = echo

    @staticmethod
    def create(path: str | os.PathLike[str], request: Request, echo: Say | None = None) -> RunFolder:
        """Start a run in a folder that does not exist or is empty."""
        path = _as_path(path)
        _refuse_taken(path)
        try:
            make_folder(path)
            run = RunFolder(path, request, echo)
            with run.locked():
                _refuse_taken(path)  # another process may have been quicker
                write_atomically(path / _REQUEST, as_json({"schema": SCHEMA, **request.to_json()}))
        except DiskFull:
            raise
        except OSError as error:
            raise InputError(f"the run folder {path} cannot be made: {_reason(error)} ({error.filename}).") from error
        return run

    @staticmethod
    def open(path: str | os.PathLike[str], echo: Say | None = None) -> RunFolder:
        """A run that is there already."""
        path = _as_path(path)
        if not path.is_dir():
            what = "is a file, not a run folder" if path.exists() else "does not exist"
            raise InputError(f"{path} {what}{_suggestion(path)}")
        try:
            content = read_json(inside(path, _REQUEST), MOST_ASKED)
        except FileNotFoundError:
            raise InputError(f"{path} is not a run: it has no {_REQUEST}{_suggestion(path)}") from None
        except OSError as error:
            raise InputError(f"{path / _REQUEST} cannot be read: {_reason(error)}.") from error
        return RunFolder(path, _request_in(content, path), echo)

    @property
    def steps(self) -> int:
        """The steps asked for each seed."""
        return self.request.steps

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds asked."""
        return self.request.seeds

    def seed_folder(self, seed: int) -> Path:
        """Where a seed's checkpoints and metrics lie; made if need be."""
        folder = self._inside(f"seed-{self._known(seed)}")
        make_folder(folder)
        return folder

    def checkpoints(self, seed: int) -> Path:
        """The folder for `save_checkpoint` and `load_newest`."""
        return self._inside(f"seed-{self._known(seed)}", "checkpoints")

    def metrics(self, seed: int) -> Path:
        """The table of a seed's metrics."""
        return self._inside(f"seed-{self._known(seed)}", "metrics.parquet")

    def evaluation(self, name: str) -> Path:
        """The file of an evaluation, `evaluations/NAME.json`."""
        return self._inside("evaluations", f"{safe_name(name)}.json")

    def write_json(self, path: Path, value: Any) -> None:
        """Write a JSON file of this run so that either the old or the new content is there, whole."""
        file = self._inside(os.path.relpath(path, self.path))
        try:
            data = as_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{path.name} can only hold what JSON can: {error}.") from None
        make_folder(file.parent)
        write_atomically(file, data)

    def newest(self, seed: int, like: Any, say: Say | None = None, part: bool = False) -> Checkpoint | None:
        """The newest whole checkpoint of a seed (see `load_newest`); of one that does not fit, who has made it."""
        try:
            return load_newest(self.checkpoints(seed), like, say or self.say, part)
        except InputError as error:
            here = versions()["packages"].get("evenhand")
            made = {entry["packages"].get("evenhand") for entry in self.made_with()} - {here}
            by = f" It was made by evenhand {', '.join(sorted(map(str, made)))}, and this is {here}." if made else ""
            raise InputError(f"{error}{by}") from None

    def made_with(self) -> list[dict[str, Any]]:
        """The versions and the machine of each start and resume."""
        file = self._inside("versions.json")
        if not file.exists():
            return []
        content = read_json(file)
        entries = content if isinstance(content, list) else [content]
        for entry in entries:
            known = entry if isinstance(entry, dict) else {}
            texts = all(isinstance(known.get(name), str) for name in ("python", "platform", "cpu"))
            if not texts or not isinstance(known.get("packages"), dict) or "cores" not in known:
                raise InputError(
                    f"{file} is damaged: it should have versions and machines. Remove it to go on without it."
                )
        return entries

    def progress(self, seed: int) -> Progress:
        """How far a seed has come, by its newest whole checkpoint."""
        newest = newest_record(self.checkpoints(seed), say=lambda _: None)  # whoever resumes it will hear of damage
        return Progress(seed, newest.step if newest else 0, self.steps)

    def finished(self, seed: int) -> bool:
        """Whether a seed has taken all the steps asked."""
        return self.progress(seed).finished

    def status(self) -> list[Progress]:
        """How far each seed has come."""
        return [self.progress(seed) for seed in self.seeds]

    def say(self, message: str) -> None:
        """Tell whoever listens, and put it into log.txt; a log that cannot be written never stops a run."""
        if self.echo:
            self.echo(message)
        line = f"{_now()} {visible(' '.join(message.split()))}\n"
        with suppress(OSError):
            # Not waiting for a reader, should somebody have put a pipe in its place.
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
            descriptor = os.open(self._inside("log.txt"), flags, 0o666)
            with open(descriptor, "a", encoding="utf-8", errors="replace") as log:
                log.write(line)

    def record_versions(self) -> None:
        """Add the versions in use and the machine to versions.json; to be called at each start and resume."""
        file = self._inside("versions.json")
        try:
            so_far = read_json(file)
            entries = so_far if isinstance(so_far, list) else [so_far]
        except FileNotFoundError:
            entries = []
        except InputError:
            self.say("versions.json is damaged; it is begun anew.")
            entries = []
        self.write_json(file, [*entries, versions()])

    @contextmanager
    def locked(self, seed: int | None = None, patience: float | int = 0.0) -> Iterator[None]:
        """Hold the run, or one of its seeds: a second process that tries to is refused, after `patience` seconds.

        The system lets go if this process dies.
        """
        with locked(self.path if seed is None else self.seed_folder(seed), self.path, patience):
            yield

    def _known(self, seed: int) -> int:
        if seed not in self.seeds:
            raise InputError(f"{self.path} has no seed {seed}; its seeds are {', '.join(map(str, self.seeds))}.")
        return seed

    def _inside(self, *names: str) -> Path:
        return inside(self.path, *names)


def inside(folder: Path, *names: str) -> Path:
    """A path in a run folder; neither ".." nor links may lead out of it."""
    path = folder.joinpath(*names)
    try:
        within = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # links in a circle
        within = False
    if not within:
        raise InputError(f"{path} leads out of the run folder.")
    return path


@contextmanager
def locked(folder: Path, called: Path | None = None, patience: float | int = 0.0) -> Iterator[None]:
    """Hold a folder; a second process that tries to is refused, after `patience` seconds. called: what to call it."""
    import fcntl  # not on Windows, where reading a run should still work

    lock = folder / _LOCK
    try:
        # Never through a link, and never handed on to programs that this process starts.
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise InputError(f"{lock} cannot be opened: {_reason(error)}.") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"{lock} is not a regular file: remove it.")
        deadline = time.monotonic() + patience
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                holder = os.pread(descriptor, 1000, 0).decode(errors="replace").strip() or "another process"
                raise InputError(
                    f"{called or folder} is being trained by {holder}: wait for it to end, or stop it first."
                ) from None
            except OSError as error:
                raise InputError(f"{lock} cannot be locked: {_reason(error)}.") from error
        _overwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n")
        try:
            yield
        finally:
            _overwrite(descriptor, "")
    finally:
        os.close(descriptor)


def new_run_path(
    environment: str, algorithm: str, welfare: str, parent: str | os.PathLike[str] = "runs", day: date | None = None
) -> Path:
    """The first free name `runs/<environment>-<algorithm>-<welfare>-<date>-<n>`."""
    name = "-".join(safe_name(part) for part in (environment, algorithm, welfare))
    stem = f"{name}-{(day or date.today()).isoformat()}"
    number = 1
    while os.path.lexists(path := Path(parent) / f"{stem}-{number}"):
        number += 1
    return path


def safe_name(text: str) -> str:
    """The text with only letters, digits, dots, dashes and underscores, for the name of a file."""
    return re.sub(r"(?:[^A-Za-z0-9._]|\.{2,})+", "-", text).strip("-.")[:60] or "unnamed"


def _request_in(content: Any, path: Path) -> Request:
    """What was asked, without the version of the layout."""
    schema: Any = content.get("schema") if isinstance(content, dict) else None
    if not whole(schema, 1):
        raise InputError(f"{path} is not a run: its {_REQUEST} has no schema version.")
    if schema > SCHEMA:
        raise InputError(
            f"{path} was made by a newer version of evenhand (run folder version {schema}, "
            f"this one reads up to {SCHEMA}): update evenhand."
        )
    try:
        return Request.from_json({name: value for name, value in content.items() if name != "schema"})
    except InputError as error:
        raise InputError(f"{path / _REQUEST} is damaged: {error}") from None


def _refuse_taken(path: Path) -> None:
    """A new run needs a folder of its own."""
    try:
        if os.path.lexists(path / _REQUEST):
            resume = f"evenhand resume {shlex.quote(str(path))}"
            raise InputError(f"{path} is a run already: go on with `{resume}`, or choose another name.")
        if path.is_dir() and {entry.name for entry in path.iterdir()} - _MAY_BE_THERE:
            raise InputError(f"{path} is not empty and not a run: choose another name for the new run.")
        if os.path.lexists(path) and not path.is_dir():
            raise InputError(f"{path} is not a folder: choose another name for the new run.")
    except OSError as error:
        raise InputError(f"{path} cannot be used for a run: {_reason(error)}.") from error


def _suggestion(path: Path) -> str:
    """The end of a complaint: the runs that may have been meant."""
    runs: dict[str, Path] = {}
    for parent in (path, path.parent, Path("runs")):
        with suppress(OSError):
            runs |= {entry.name: entry for entry in parent.iterdir() if (entry / _REQUEST).is_file()}
    close = difflib.get_close_matches(path.name, runs, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(str(runs[name]) for name in close)}?" if close else "."


def _as_path(path: str | os.PathLike[str]) -> Path:
    if "\0" in os.fspath(path):
        raise InputError("the name of a run folder cannot contain a zero character.")
    return Path(path)


def _overwrite(descriptor: int, text: str) -> None:
    """Who holds the lock is only for people to know: a full disk is no reason to stop."""
    with suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, text.encode(), 0)


def _reason(error: OSError) -> str:
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, Any]:
    """What may make a difference to the numbers."""
    packages = {}
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            packages[package] = metadata.version(package)
    return {
        "started": _now(),
        "python": platform.python_version(),
        "packages": packages,
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
    }


def _cpu() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
