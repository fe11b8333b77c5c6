"""Run folders: what belongs to a run, and one process at a time."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.errors import InputError
from evenhand.runs import (
    RunFolder,
    new_run_path,
    save_checkpoint,
)
from evenhand.runs.folder import safe_name
from evenhand.runs.request import Request
from evenhand.studies.cells import hashed
from processes import line_from, python, tell
from small_requests import SMALLEST, asked

REQUEST = asked()


# ---------------------------------------------------------------------------------------------- run folders


def test_a_run_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "a run with spaces" / "und Ümläuten 🦦"
    request = asked(arguments={"weights": (0.7, 0.3), "ent": np.float32(0.5)}, name="Ü")
    made = RunFolder.create(path, request)
    found = RunFolder.open(str(path))
    assert made.request == found.request == asked(arguments={"weights": [0.7, 0.3], "ent": 0.5}, name="Ü")
    assert found.seeds == (0, 7)
    assert found.steps == 100
    assert json.loads((path / "run.json").read_bytes())["schema"] == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.request.steps = 5  # type: ignore[misc]
    assert found.seed_folder(7) == path / "seed-7"
    assert (path / "seed-7").is_dir()


def test_the_file_is_what_was_asked_and_nothing_else(tmp_path: Path) -> None:
    """As versions before the request had a class of its own wrote it, so that names of cells stay the same, too."""
    RunFolder.create(tmp_path / "run", REQUEST)
    text = json.dumps(SMALLEST | {"schema": 1}, indent=2, sort_keys=True, ensure_ascii=False)
    assert (tmp_path / "run/run.json").read_text("utf-8") == f"{text}\n"
    assert hashed(REQUEST.to_json()) == hashed(SMALLEST)
    assert Request.from_json(json.loads(json.dumps(REQUEST.to_json()))) == REQUEST


def test_progress_is_that_of_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    assert [(seed.seed, seed.step, seed.finished) for seed in run.status()] == [(0, 0, False), (7, 0, False)]
    for step in (50, 100):
        save_checkpoint(run.checkpoints(7), step, ())
    assert run.finished(7)
    assert not run.finished(0)
    (run.checkpoints(7) / "step-000000000100" / "state.safetensors").write_bytes(b"")
    assert run.progress(7) == (7, 50, 100)
    with pytest.raises(InputError, match="has no seed 1; its seeds are 0, 7"):
        run.progress(1)


def test_create_refuses_what_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "my run"
    RunFolder.create(path, REQUEST)
    with pytest.raises(InputError, match=r"is a run already: go on with `evenhand resume '.*/my run'`, or choose"):
        RunFolder.create(path, REQUEST)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="is not empty and not a run: choose another name"):
        RunFolder.create(other, REQUEST)
    assert [entry.name for entry in other.iterdir()] == ["thesis.tex"]
    with pytest.raises(InputError, match="is not a folder"):
        RunFolder.create(other / "thesis.tex", REQUEST)
    with pytest.raises(InputError, match=r"cannot be made: file exists \(.*/thesis\.tex\)"):
        RunFolder.create(other / "thesis.tex" / "run", REQUEST)
    with pytest.raises(InputError, match="file name too long"):
        RunFolder.create(tmp_path / ("x" * 300), REQUEST)
    with pytest.raises(InputError, match="zero character"):
        RunFolder.create("a\0b", REQUEST)


def test_create_goes_on_where_a_creation_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / ".run.json.writing").write_text('{"sche')
    RunFolder.create(tmp_path, REQUEST)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["lock", "run.json"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"steps": 0}, '"steps" must be a whole number of at least 1, not 0'),
        ({"steps": 1e6}, '"steps"'),
        ({"steps": True}, '"steps"'),
        ({"seeds": []}, '"seeds" must be a list'),
        ({"seeds": [-1]}, '"seeds"'),
        ({"seeds": ["../../etc"]}, '"seeds"'),
        ({"seeds": [1, 1]}, "must differ"),
        ({"arguments": {"rate": float("inf")}}, "JSON"),
        ({"arguments": {"activation": print}}, "JSON"),
        ({"schema": 1}, "no entry of a run called 'schema'"),
    ],
)
def test_create_refuses_what_could_not_be_resumed(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        RunFolder.create(tmp_path / "run", asked(**change))
    assert not (tmp_path / "run").exists()


def test_open_explains_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^nowhere does not exist\.$"):
        RunFolder.open("nowhere")
    for name in ("species-ppo-1", "species-dqn-1"):
        RunFolder.create(Path("runs") / name, REQUEST)
    with pytest.raises(InputError, match=r"species-ppo does not exist; did you mean runs/species-ppo-1 or runs/spec"):
        RunFolder.open("species-ppo")
    with pytest.raises(InputError, match=r"runs is not a run: it has no run\.json"):
        RunFolder.open("runs")
    with pytest.raises(InputError, match="is a file, not a run folder"):
        RunFolder.open("runs/species-ppo-1/run.json")
    file = Path("runs/species-ppo-1/run.json")
    for content, complaint in [
        ("{", "is damaged: it is not JSON"),
        ("[" * 100_000, "is damaged: it is not JSON"),
        ("[]", "not a run"),
        ("{}", "not a run"),
        ('{"schema": 99}', r"newer version of evenhand \(run folder version 99, this one reads up to 1\): update"),
        ('{"schema": 1, "steps": 5, "seeds": [0]}', 'run.json is damaged: it has no "env"'),
    ]:
        file.write_text(content)
        with pytest.raises(InputError, match=complaint):
            RunFolder.open(file.parent)


def test_nothing_leads_out_of_the_run(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    outside = tmp_path / "outside"
    outside.mkdir()
    (run.path / "seed-0").symlink_to(outside, target_is_directory=True)
    for act in (run.seed_folder, run.checkpoints, run.progress):
        with pytest.raises(InputError, match="leads out of the run folder"):
            act(0)
    (run.seed_folder(7) / "checkpoints").symlink_to(outside, target_is_directory=True)
    with pytest.raises(InputError, match="leads out"):
        run.checkpoints(7)
    with pytest.raises(InputError, match="leads out"):
        run.write_json(run.path / ".." / "x.json", {})
    assert run.evaluation("../../x y").relative_to(run.path) == Path("evaluations/x-y.json")
    (run.path / "lock").unlink()
    (run.path / "lock").symlink_to(outside / "lock")
    with pytest.raises(InputError, match="lock"), run.locked():
        pass
    assert list(outside.iterdir()) == []


def test_a_run_that_is_itself_a_link_works(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "real", REQUEST)
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    run = RunFolder.open(tmp_path / "link")
    save_checkpoint(run.checkpoints(0), 100, ())
    assert run.finished(0)


def test_versions_and_log_are_added_to(tmp_path: Path) -> None:
    heard: list[str] = []
    run = RunFolder.create(tmp_path / "run", REQUEST, heard.append)
    run.record_versions()
    run.record_versions()
    entries = json.loads((run.path / "versions.json").read_bytes())
    assert len(entries) == 2
    assert entries[0]["packages"]["numpy"] == np.__version__
    (run.path / "versions.json").write_text("[")
    run.record_versions()
    run.say("two\nlines")
    assert heard == ["versions.json is damaged; it is begun anew.", "two\nlines"]
    lines = (run.path / "log.txt").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["versions.json is damaged; it is begun anew.", "two lines"]


def test_names_of_new_runs(tmp_path: Path) -> None:
    day = date(2025, 3, 1)
    first = new_run_path("mo/deep-sea v0", "ppo", "ggf:1,0.5", tmp_path, day)
    assert first == tmp_path / "mo-deep-sea-v0-ppo-ggf-1-0.5-2025-03-01-1"
    RunFolder.create(first, REQUEST)
    assert new_run_path("mo/deep-sea v0", "ppo", "ggf:1,0.5", tmp_path, day).name.endswith("-2")


@given(st.text())
def test_safe_names_are_safe(text: str) -> None:
    name = safe_name(text)
    assert 0 < len(name) <= 60
    assert ".." not in name
    assert not name.startswith((".", "-"))
    assert all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in name)


# ---------------------------------------------------------------------------------------------- the lock


HOLDS_THE_LOCK = """
    import sys
    from evenhand.runs.folder import RunFolder
    with RunFolder.open(sys.argv[1]).locked():
        print("locked", flush=True)
        sys.stdin.readline()
    print("released", flush=True)
    sys.stdin.readline()
"""


def test_one_process_at_a_time(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    with python(HOLDS_THE_LOCK, run.path) as other:
        assert line_from(other) == "locked"
        held = rf"run is being trained by process {other.pid} on \S+: wait for it to end, or stop it first\."
        with pytest.raises(InputError, match=held), run.locked():
            pass
        tell(other, "release")
        assert line_from(other) == "released"
        with run.locked(), pytest.raises(InputError, match=f"process {os.getpid()} "), run.locked():
            pass
        with run.locked():
            assert str(os.getpid()) in (run.path / "lock").read_text()
        assert (run.path / "lock").read_text() == ""
        tell(other, "end")


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    with python(HOLDS_THE_LOCK, run.path) as other:
        assert line_from(other) == "locked"
        other.send_signal(signal.SIGKILL)
        other.wait()
        with run.locked():
            assert str(os.getpid()) in (run.path / "lock").read_text()


def test_the_lock_is_released_when_training_fails(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    with pytest.raises(ZeroDivisionError), run.locked():
        raise ZeroDivisionError
    with run.locked():
        pass
