"""Metrics of a training run: a Parquet table that is the same for an interrupted run, and live curves."""

from __future__ import annotations

import io
import math
import os
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from evenhand.disk import read_bytes, write_atomically
from evenhand.errors import InputError, Say

# Polars and tensorboardX are imported where they are used: whoever never trains need not wait for them.

MOST_ROWS = 10_000_000
"""Of one seed; a few bytes can stand for more than any memory holds."""
_LIVE_INTERVAL = 5.0
"""Seconds between two moments at which live curves are forced to the disk."""


class Metrics:
    """Rows of numbers, one for each step that is reported, in memory until `write` puts them into one Parquet file.

    path: the Parquet file; event files for TensorBoard go into the same folder.
    columns: the names of the numbers, next to "step". A vector has a column for each entry (see `spread`).
    live: whether to write event files at all.

    Write the metrics before the checkpoint of the same step: then the file is never behind a checkpoint, and
    `resume_at` has only to drop what came after it.
    """

    def __init__(self, path: str | os.PathLike[str], columns: Sequence[str], say: Say | None = None, live: bool = True):
        self.path = Path(path)
        self.columns = tuple(columns)
        if len(set(self.columns)) < len(self.columns) or "step" in self.columns:
            raise InputError(f'the columns of metrics must differ, and none may be "step": {", ".join(columns)}.')
        self._say = say or _warn
        self._rows: list[tuple[int | float | None, ...]] = []
        self._curves = _LiveCurves(self.path.parent, self._say) if live else None

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows so far."""
        return [dict(zip(("step", *self.columns), row, strict=True)) for row in self._rows]

    def add(self, step: int, values: Mapping[str, Any], live: Mapping[str, Any] | None = None) -> None:
        """Add a row.

        values: by column; a column that is left out has no value in this row.
        live: numbers for TensorBoard only, such as steps per second, which differ from run to run.
        """
        unknown = values.keys() - set(self.columns)
        if unknown:
            raise InputError(f"metrics have no column {min(unknown)!r}; there are {', '.join(self.columns)}.")
        if self._rows and step <= (last := self._rows[-1][0] or 0):
            raise InputError(f"metrics must be added in the order of their steps, but {step} comes after {last}.")
        numbers = {name: float(values[name]) for name in self.columns if name in values}
        self._rows.append((int(step), *(numbers.get(name) for name in self.columns)))
        if self._curves:
            self._curves.add(step, numbers | {name: float(value) for name, value in (live or {}).items()})

    def extend(self, steps: Any, values: Mapping[str, Any]) -> None:
        """Add many rows at once: arrays of the steps and, for each column, of the numbers at these steps."""
        by_column = {name: np.asarray(column, np.float64).tolist() for name, column in values.items()}
        for row, step in enumerate(np.asarray(steps).tolist()):
            self.add(step, {name: column[row] for name, column in by_column.items()})

    def write(self) -> None:
        """Put all rows into the file, which is replaced as a whole; the same rows give the same bytes."""
        import polars as pl

        table = pl.DataFrame(self._rows, schema=self._schema(), orient="row")
        buffer = io.BytesIO()
        table.write_parquet(buffer, compression="zstd", statistics=False)
        write_atomically(self.path, buffer.getvalue())
        if self._curves:
            self._curves.flush()

    def resume_at(self, step: int) -> None:
        """Take up the rows of the file up to a step; to be called before any row is added.

        A run that was stopped before its first checkpoint, and starts again from nothing, resumes at −1.
        Without a file, or with one that cannot be read, it says so and goes on: a run is worth more than its curves.
        """
        self._rows = [row for row in self._read(step) if (row[0] or 0) <= step]
        if self._curves:
            self._curves.resume_at(step)

    def close(self) -> None:
        """Close the event file; rows that `write` has not written are not kept."""
        if self._curves:
            self._curves.close()

    def __enter__(self) -> Metrics:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _schema(self) -> dict[str, Any]:
        import polars as pl

        return {"step": pl.Int64} | dict.fromkeys(self.columns, pl.Float64)

    def _read(self, step: int) -> list[tuple[int | float | None, ...]]:
        try:
            table = read_table(self.path)
        except FileNotFoundError:
            return self._lost("is missing", step)
        except (OSError, InputError) as error:
            return self._lost(f"is damaged ({error})", step)
        if list(table.schema.items()) != list(self._schema().items()):
            return self._lost("has other columns than this run", step)
        return table.rows()

    def _lost(self, why: str, step: int) -> list[tuple[int | float | None, ...]]:
        if step > 0:
            self._say(f"{self.path.name} {why}: the curves of the first {step} steps are lost, the training is not.")
        return []


def read_table(path: Path) -> Any:
    """A table of metrics, as Polars has it: "step" and columns of numbers; refused is what no run has written."""
    import polars as pl

    try:
        # From memory: a file that is mapped while it is replaced would be another way to fail.
        table = pl.read_parquet(io.BytesIO(read_bytes(path)), n_rows=MOST_ROWS + 1)
    except (OSError, InputError):
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # a damaged file may fail anywhere inside Polars
        raise InputError(f"{path} is damaged: it is no Parquet table ({type(error).__name__}).") from None
    kinds = dict(table.schema)
    if kinds.pop("step", None) != pl.Int64 or any(kind != pl.Float64 for kind in kinds.values()):
        raise InputError(f"{path} is damaged: it should have a column of steps, and numbers beside them.")
    steps = table["step"].to_list()
    if len(steps) > MOST_ROWS:
        raise InputError(f"{path} is damaged: it has more than {MOST_ROWS:,} rows.")
    if None in steps or any(later <= earlier for earlier, later in pairwise(steps)):
        raise InputError(f"{path} is damaged: its steps are out of order.")
    return table


@dataclass(frozen=True)
class Curve:
    """How the rewards of a run changed while it was trained."""

    name: str
    steps: Int[np.ndarray, " T"]
    rewards: Float[np.ndarray, "N T D"]


def curve_in(table: Any, name: str, objectives: Sequence[str]) -> Curve | None:
    """The rewards per step in a table of metrics of several seeds; None if they are lost."""
    columns = [f"reward/{objective}" for objective in objectives]
    if not set(columns) <= set(table.columns):
        return None
    by_seed = [part.select("step", *columns).to_numpy() for _, part in table.group_by("seed", maintain_order=True)]
    steps = [part[:, 0] for part in by_seed]
    if not all(np.array_equal(steps[0], other) for other in steps[1:]):
        return None
    return Curve(name, steps[0].astype(int), np.stack([part[:, 1:] for part in by_seed]))


def spread(name: str, entries: Sequence[str], vector: Iterable[Any]) -> dict[str, float]:
    """A vector as columns: `spread("reward", ["otters", "urchins"], r)` has "reward/otters" and "reward/urchins"."""
    return {f"{name}/{entry}": float(value) for entry, value in zip(entries, vector, strict=True)}


class _LiveCurves:
    """TensorBoard's event files. Whatever goes wrong with them is said once, and never stops a run.

    tensorboardX's own SummaryWriter writes from a thread, which dies when the disk is full; its queue then fills up
    and blocks for ever. So this writes with the parts below it, at once and in this thread.
    """

    def __init__(self, folder: Path, say: Say) -> None:
        self._folder = folder
        self._say = say
        self._resumed_at: int | None = None
        self._writer: Any = None
        self._broken = False
        self._flushed = -math.inf

    def resume_at(self, step: int) -> None:
        """Hide what an earlier process wrote for later steps."""
        self._resumed_at = step

    def add(self, step: int, numbers: Mapping[str, float]) -> None:
        if self._broken:
            return
        with self._never_mind():
            from tensorboardX.proto.summary_pb2 import Summary

            if self._writer is None:
                self._open()
            values = [Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()]
            self._write(step=step, summary=Summary(value=values))
        if time.monotonic() - self._flushed > _LIVE_INTERVAL:
            self.flush()

    def flush(self) -> None:
        if self._writer is not None:
            self._flushed = time.monotonic()
            with self._never_mind():
                self._writer.flush()

    def close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            with self._never_mind():
                writer.close()

    def _open(self) -> None:
        from tensorboardX.proto.event_pb2 import SessionLog
        from tensorboardX.record_writer import RecordWriter

        # TensorBoard reads the files of a folder in the order of their names.
        self._writer = RecordWriter(str(self._folder / f"events.out.tfevents.{time.time_ns()}"))
        self._write(file_version="brain.Event:2")
        if self._resumed_at is not None:
            self._write(step=self._resumed_at + 1, session_log=SessionLog(status=SessionLog.START))

    def _write(self, **event: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write(Event(wall_time=time.time(), **event).SerializeToString())

    @contextmanager
    def _never_mind(self) -> Iterator[None]:
        """Training matters more than its curves, whatever it is that fails."""
        try:
            yield
        except Exception as error:
            if not self._broken:
                self._broken = True
                self._say(f"TensorBoard's curves cannot be written ({error}); training goes on without them.")
            self.close()


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=4)
