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
import json
import os
import platform
import re
import shlex
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, date, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

from evenhand.errors import InputError
from evenhand.runs.checkpoint import DiskFull, Say, as_json, make_folder, newest_record, write_atomically

SCHEMA = 1
"""The version of the layout; a folder of a later one is refused."""

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

    def __init__(self, path: Path, request: dict[str, Any], echo: Say | None = None) -> None:
        self.path = path
        self._request = request
        self.echo = echo

    @staticmethod
    def create(path: str | os.PathLike[str], request: Mapping[str, Any], echo: Say | None = None) -> RunFolder:
        """Start a run in a folder that does not exist or is empty.

        request: what is asked, as JSON can hold it, with at least "steps" and "seeds" (whole numbers).
        """
        path = _as_path(path)
        if "schema" in request:
            raise InputError('a request cannot have an entry "schema": that is the version of the run folder.')
        try:
            data = as_json({"schema": SCHEMA, **request})
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"a run can only ask for what JSON can hold: {error}.") from None
        checked = _check_request(json.loads(data), path)
        _refuse_taken(path)
        try:
            make_folder(path)
            run = RunFolder(path, checked, echo)
            with run.locked():
                _refuse_taken(path)  # another process may have been quicker
                write_atomically(path / _REQUEST, data)
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
            content = json.loads((path / _REQUEST).read_bytes())
        except FileNotFoundError:
            raise InputError(f"{path} is not a run: it has no {_REQUEST}{_suggestion(path)}") from None
        except OSError as error:
            raise InputError(f"{path / _REQUEST} cannot be read: {_reason(error)}.") from error
        except (ValueError, RecursionError):
            raise InputError(f"{path / _REQUEST} is damaged: it is not JSON.") from None
        return RunFolder(path, _check_request(content, path), echo)

    @property
    def request(self) -> dict[str, Any]:
        """What was asked, as it stands in run.json; a copy."""
        return json.loads(json.dumps(self._request))

    @property
    def steps(self) -> int:
        """The steps asked for each seed."""
        return int(self._request["steps"])

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds asked."""
        return tuple(self._request["seeds"])

    def seed_folder(self, seed: int) -> Path:
        """Where a seed's checkpoints and metrics lie; made if need be."""
        folder = self._inside(f"seed-{self._known(seed)}")
        make_folder(folder)
        return folder

    def checkpoints(self, seed: int) -> Path:
        """The folder for `save_checkpoint` and `load_newest`."""
        return self._inside(f"seed-{self._known(seed)}", "checkpoints")

    def evaluation(self, name: str) -> Path:
        """The file of an evaluation, `evaluations/NAME.json`; the folder is made if need be."""
        file = self._inside("evaluations", f"{safe_name(name)}.json")
        make_folder(file.parent)
        return file

    def write_json(self, path: Path, value: Any) -> None:
        """Write a JSON file of this run so that either the old or the new content is there, whole."""
        inside = self._inside(os.path.relpath(path, self.path))
        try:
            data = as_json(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InputError(f"{path.name} can only hold what JSON can: {error}.") from None
        write_atomically(inside, data)

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
        line = f"{_now()} {' '.join(message.split())}\n"
        with suppress(OSError), self._inside("log.txt").open("a", encoding="utf-8", errors="replace") as log:
            log.write(line)

    def record_versions(self) -> None:
        """Add the versions in use and the machine to versions.json; to be called at each start and resume."""
        file = self._inside("versions.json")
        try:
            so_far = json.loads(file.read_bytes())
            entries = so_far if isinstance(so_far, list) else [so_far]
        except FileNotFoundError:
            entries = []
        except (ValueError, RecursionError):
            self.say("versions.json is damaged; it is begun anew.")
            entries = []
        self.write_json(file, [*entries, versions()])

    @contextmanager
    def locked(self, seed: int | None = None, patience: float | int = 0.0) -> Iterator[None]:
        """Hold the run, or one of its seeds: a second process that tries to is refused, after `patience` seconds.

        The system lets go if this process dies.
        """
        import fcntl  # not on Windows, where reading a run should still work

        lock = (self.path if seed is None else self.seed_folder(seed)) / _LOCK
        try:
            # Never through a link, and never handed on to programs that this process starts.
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise InputError(f"{lock} cannot be opened: {_reason(error)}.") from error
        try:
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
                        f"{self.path} is being trained by {holder}: wait for it to end, or stop it first."
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

    def _known(self, seed: int) -> int:
        if seed not in self.seeds:
            raise InputError(f"{self.path} has no seed {seed}; its seeds are {', '.join(map(str, self.seeds))}.")
        return seed

    def _inside(self, *names: str) -> Path:
        """A path in this folder; neither ".." nor links may lead out of it."""
        path = self.path.joinpath(*names)
        if not path.resolve().is_relative_to(self.path.resolve()):
            raise InputError(f"{path} leads out of the run folder.")
        return path


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


def _check_request(content: Any, path: Path) -> dict[str, Any]:
    """What was asked, without the version of the layout; refuses what cannot be resumed."""
    schema: Any = content.get("schema") if isinstance(content, dict) else None
    if not _is_whole(schema, 1):
        raise InputError(f"{path} is not a run: its {_REQUEST} has no schema version.")
    if schema > SCHEMA:
        raise InputError(
            f"{path} was made by a newer version of evenhand (run folder version {schema}, "
            f"this one reads up to {SCHEMA}): update evenhand."
        )
    steps, seeds = content.get("steps"), content.get("seeds")
    if not _is_whole(steps, 1):
        raise InputError(f'the "steps" of a run must be a whole number of at least 1, not {steps!r}.')
    if not isinstance(seeds, list) or not seeds or not all(_is_whole(seed, 0) for seed in seeds):
        raise InputError(f'the "seeds" of a run must be a list of whole numbers of at least 0, not {seeds!r}.')
    if len(set(seeds)) < len(seeds):
        raise InputError(f'the "seeds" of a run must differ, but {seeds} has one twice.')
    return {name: value for name, value in content.items() if name != "schema"}


def _is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < 2**63


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
