"""The metrics of a run: the same rows, however often it was stopped."""

from __future__ import annotations

import random
import struct
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

from evenhand.errors import InputError
from evenhand.runs import (
    Metrics,
    spread,
)
from processes import never

# ---------------------------------------------------------------------------------------------- metrics


def row(step: int) -> dict[str, float]:
    return {"loss": float(np.float32(1) / np.float32(step + 1)), **spread("reward", ["otters", "ørn"], [step, -0.0])}


COLUMNS = ["loss", "reward/otters", "reward/ørn", "late"]


def test_metrics_of_an_interrupted_run_are_those_of_an_undisturbed_one(tmp_path: Path) -> None:
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    with Metrics(tmp_path / "whole" / "metrics.parquet", COLUMNS, never) as whole:
        for step in range(100):
            whole.add(step, row(step), live={"steps/s": 1.0})
        whole.write()
    with Metrics(tmp_path / "broken" / "metrics.parquet", COLUMNS, never) as broken:
        for step in range(60):
            broken.add(step, row(step), live={"steps/s": 2.0})
        broken.write()
        broken.add(60, row(60))  # never written
    with Metrics(tmp_path / "broken" / "metrics.parquet", COLUMNS, never) as resumed:
        resumed.resume_at(49)
        for step in range(50, 100):
            resumed.add(step, row(step), live={"steps/s": 3.0})
        resumed.write()
    files = [tmp_path / name / "metrics.parquet" for name in ("whole", "broken")]
    assert files[0].read_bytes() == files[1].read_bytes()
    table = pl.read_parquet(files[0])
    assert table.columns == ["step", *COLUMNS]
    assert table["step"].to_list() == list(range(100))
    assert table["late"].null_count() == 100
    assert np.signbit(table["reward/ørn"].to_numpy()).all()


def test_metrics_keep_every_number(tmp_path: Path) -> None:
    values = [float("nan"), -np.inf, 5e-324, np.float32(0.1), jnp.float32(0.1), np.int64(3), True, 1 / 3]
    with Metrics(tmp_path / "m.parquet", ["x"], never, live=False) as metrics:
        metrics.extend(np.arange(8), {"x": np.array([float(value) for value in values])})
        metrics.add(10, {})
        metrics.write()
    again = Metrics(tmp_path / "m.parquet", ["x"], never, live=False)
    again.resume_at(10)
    assert [repr(entry["x"]) for entry in again.rows] == [*(repr(float(value)) for value in values), "None"]
    assert [entry["step"] for entry in again.rows] == [*range(8), 10]
    assert list(tmp_path.iterdir()) == [tmp_path / "m.parquet"]


def test_metrics_without_rows(tmp_path: Path) -> None:
    for _ in range(2):
        with Metrics(tmp_path / "m.parquet", ["x"], never) as metrics:
            metrics.resume_at(0)
            assert metrics.rows == []
            metrics.write()


def test_metrics_refuse_what_cannot_be_a_row(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "m.parquet", ["x"], never, live=False)
    metrics.add(3, {"x": 1})
    with pytest.raises(InputError, match="no column 'y'; there are x"):
        metrics.add(4, {"y": 1.0})
    with pytest.raises(InputError, match="3 comes after 3"):
        metrics.add(3, {"x": 1.0})
    for columns in (["x", "x"], ["step"]):
        with pytest.raises(InputError, match="must differ"):
            Metrics(tmp_path / "m.parquet", columns)


def test_metrics_that_are_lost_do_not_stop_a_run(tmp_path: Path) -> None:
    file = tmp_path / "metrics.parquet"
    with Metrics(file, COLUMNS, never, live=False) as metrics:
        metrics.resume_at(0)
        metrics.extend(range(50), {"loss": np.linspace(0, 1, 50)})
        metrics.write()
    good = file.read_bytes()

    def complaint(columns: list[str] = COLUMNS) -> str:
        said: list[str] = []
        metrics = Metrics(file, columns, said.append, live=False)
        metrics.resume_at(30)
        metrics.add(31, {columns[0]: 1.0})
        assert len(metrics.rows) == 1
        [message] = said
        assert message.endswith(": the curves of the first 30 steps are lost, the training is not.")
        return message

    for length in (0, 3, len(good) // 2, len(good) - 1):
        file.write_bytes(good[:length])
        assert complaint().startswith("metrics.parquet is damaged (")
    file.write_bytes(b"PAR1" + b"\xff" * 200 + b"PAR1")
    assert complaint().startswith("metrics.parquet is damaged (")
    file.write_bytes(good)
    assert complaint(["other"]).startswith("metrics.parquet has other columns")
    file.unlink()
    assert complaint().startswith("metrics.parquet is missing")


def test_no_flipped_bit_in_metrics_stops_a_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "metrics.parquet"
    with Metrics(file, ["a", "b"], never, live=False) as metrics:
        metrics.extend(range(50), {"a": np.sin(np.arange(50)), "b": np.arange(50)})
        metrics.write()
    good = file.read_bytes()
    chance = random.Random(0)
    for position in range(0, len(good), 3):
        bad = bytearray(good)
        bad[position] ^= 1 << chance.randrange(8)
        file.write_bytes(bad)
        Metrics(file, ["a", "b"], lambda _: None, live=False).resume_at(30)
    capfd.readouterr()  # Polars reports its panics there


def test_starting_again_from_nothing(tmp_path: Path) -> None:
    file = tmp_path / "metrics.parquet"
    for content in (b"", None):
        if content is not None:
            file.write_bytes(content)
        with Metrics(file, ["loss"], never) as metrics:
            metrics.resume_at(-1)
            metrics.add(0, {"loss": 1.0})
            metrics.write()
    assert [event.step for event in events_in(tmp_path) if event.HasField("session_log")] == [0, 0]


def test_two_thousand_rows_are_cheap(tmp_path: Path) -> None:
    columns = [f"c{i}" for i in range(40)]
    metrics = Metrics(tmp_path / "m.parquet", columns, never, live=False)
    metrics.extend(range(2000), {name: np.linspace(0, 1, 2000) for name in columns})
    metrics.write()
    assert (tmp_path / "m.parquet").stat().st_size < 1_000_000


def events_in(folder: Path) -> list[Any]:
    """The events of all event files, as TensorBoard would read them."""
    from tensorboardX.proto.event_pb2 import Event

    events = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            events.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return events


def test_live_curves_hide_what_a_resumed_run_does_again(tmp_path: Path) -> None:
    file = tmp_path / "metrics.parquet"
    with Metrics(file, ["loss"], never) as first:
        first.add(10, {"loss": 1.0}, live={"steps/s": 100.0})
        first.add(20, {"loss": 2.0})
        first.write()
    with Metrics(file, ["loss"], never) as second:
        second.resume_at(10)
        second.add(20, {"loss": 3.0})
    events = events_in(tmp_path)
    curves = [(event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in events]
    assert [curve for curve in curves if curve[1]] == [
        (10, {"loss": 1.0, "steps/s": 100.0}),
        (20, {"loss": 2.0}),
        (20, {"loss": 3.0}),
    ]
    [start] = [event for event in events if event.HasField("session_log")]
    assert start.step == 11, "TensorBoard hides what has this step or a later one"


def test_live_curves_that_fail_do_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setitem(sys.modules, "tensorboardX.record_writer", None)
    with Metrics(tmp_path / "metrics.parquet", ["loss"], said.append) as metrics:
        for step in range(3):
            metrics.add(step, {"loss": 1.0})
        metrics.write()
    [message] = said
    assert "training goes on without them" in message
    assert len(pl.read_parquet(tmp_path / "metrics.parquet")) == 3
