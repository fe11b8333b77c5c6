"""Run folders of version 0.1, made before training, evaluation and studies had rooms of their own, are still read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import evenhand as eh
from evenhand.runs.folder import RunFolder
from evenhand.runs.run import Run

OLD = Path(__file__).parents[1] / "data" / "runs_of_0.1"


@pytest.fixture(params=["ppo", "dqn"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLD / request.param, tmp_path / request.param))


def test_it_plays_as_it_did_and_is_exported(old: Path, tmp_path: Path) -> None:
    run = Run(RunFolder.open(old))
    kept, now = run.evaluations()[0], run.play(0, 2)
    np.testing.assert_allclose(now.total, kept.total, rtol=1e-4)
    assert run.name == f"GGF-{run.request.algo.upper()}"
    assert run.metrics().height > 0
    assert run.export(tmp_path / "policy.safetensors").stat().st_size > 500


def test_it_goes_on(old: Path) -> None:
    asked = json.loads((old / "run.json").read_text())
    (old / "run.json").write_text(json.dumps(asked | {"steps": 256}))
    assert eh.resume(old).folder.progress(0).step == 256


def test_of_a_state_that_does_not_fit_it_is_said_who_made_it(old: Path) -> None:
    versions = json.loads((old / "versions.json").read_text())
    versions[0]["packages"]["evenhand"] = "0.0.7"
    (old / "versions.json").write_text(json.dumps(versions))
    asked = json.loads((old / "run.json").read_text())
    (old / "run.json").write_text(json.dumps(asked | {"settings": asked["settings"] | {"hidden": [5]}}))
    with pytest.raises(eh.InputError, match=r"does not fit.* made by evenhand 0\.0\.7, and this is"):
        eh.load(old)
