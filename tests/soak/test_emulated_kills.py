"""Fifty times something of an emulated network is killed, and nothing of it is left behind."""

from __future__ import annotations

from pathlib import Path

from emulation import needs_network
from network_kills import kill_and_look, plan_file

__all__ = ["plan_file"]


@needs_network
def test_kills_leave_nothing_behind(plan_file: Path) -> None:
    assert kill_and_look(50, plan_file) == {0, 1, 2}
