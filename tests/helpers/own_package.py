"""The examples of docs/extending.md, written as a package outside of this tree, and what calls it in new processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from calls import PROGRAM

PAGE = Path(__file__).parents[2] / "docs/extending.md"
BLOCK = re.compile(r"^```python\n# (my_package/\w+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
SMALL = "{'envs': 2, 'rollout': 8, 'hidden': [4], 'gamma': 0.9}"
WORDS = ["--steps", "160", "--episodes", "2", "--set", "envs=2", "rollout=8", "hidden=[4]", "gamma=0.9"]

Call = Callable[..., str]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package lies."""
    folder = tmp_path_factory.mktemp("somebody")
    (folder / "my_package").mkdir()
    for name, code in BLOCK.findall(PAGE.read_text("utf-8")):
        (folder / name).write_text(code, "utf-8")
    return folder


@pytest.fixture(scope="module")
def called(folder: Path) -> Call:
    """Calls Python with code, or the program with words, in a new process; what it prints."""

    def call(*words: str | Path, code: int = 0) -> str:
        paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        start = [sys.executable, "-c"] if len(words) == 1 else PROGRAM
        done = subprocess.run(
            [*start, *map(str, words)],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": paths, "COLUMNS": "140"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stderr
        return done.stdout if code == 0 else done.stderr

    return call
