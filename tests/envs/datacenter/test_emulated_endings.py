"""Whatever ends, however: nothing of an emulated network is left behind."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from emulation import needs_network
from network_kills import OWNER, kill_and_look, plan_file
from processes import alive, line_from, python, until

__all__ = ["plan_file"]


@needs_network
def test_kills_leave_nothing_behind(plan_file: Path) -> None:
    """`make soak` kills more of them."""
    assert kill_and_look(10, plan_file)


@needs_network
@pytest.mark.parametrize("ending", ["pass", "sys.exit(3)", "raise KeyError", "os.kill(os.getpid(), 15)"])
def test_ending_without_closing(ending: str, plan_file: Path) -> None:
    script = OWNER.replace("for line in sys.stdin:", "if True:").replace(
        "        while True:\n            network.read()\n            time.sleep(0.02)\n",
        f"        print(*network.pids, flush=True)\n        {ending}\n",
    )
    with python(script, plan_file, stderr=subprocess.DEVNULL) as process:
        assert line_from(process) == "ready"
        pids = [int(word) for word in line_from(process).split()]
        process.wait()
    assert len(pids) == 2
    until(lambda: not any(map(alive, pids)))
