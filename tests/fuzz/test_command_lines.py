"""No command line, however strange, ends in a traceback; EVENHAND_FUZZ says what share of them is tried."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from budget import LOTS, share_of

COUNT = share_of(8_000)
AT_ONCE = 500
"""Command lines for one process: what they compile piles up."""
SCRIPT = Path(__file__).with_name("command_lines.py")


@pytest.mark.parametrize("seed", range(-(-COUNT // AT_ONCE)))
def test_command_lines(tmp_path: Path, seed: int) -> None:
    count = min(AT_ONCE, COUNT - seed * AT_ONCE)
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(count), str(LOTS + seed), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    last = (tmp_path / "lines.txt").read_text("utf-8").splitlines()[-1:]
    assert done.returncode == 0, f"it ended with {last}: {done.stderr[-5000:]}"
    result = json.loads(done.stdout[done.stdout.index("{") :])
    assert result["tried"] == count
    assert result["problems"] == {}, f"EVENHAND_LOTS={LOTS}"
