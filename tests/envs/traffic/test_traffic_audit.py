"""An audit of every second: nobody crosses on red, in a wrong phase or from a wrong lane; nothing collides."""

from __future__ import annotations

import pytest

from auditor import Controller, adversarial, at_random, audit, cyclic, waits
from evenhand.envs.traffic.network import Roads


@pytest.mark.slow
@pytest.mark.parametrize(
    ("roads", "controller", "seconds"),
    [
        ("split", at_random, 1400),
        ("split", cyclic, 1400),
        ("split", adversarial, 4200),
        ("two-lane", adversarial, 2800),
    ],
)
def test_audit(roads: Roads, controller: Controller, seconds: int) -> None:
    """`make soak` has longer ones."""
    found = audit(roads, controller, seconds)
    assert found.crossed > 300
    assert found.in_yellow > 10  # the law allows it, and cars that could not stop do it


def test_split_and_ordinary_roads_wait_equally_long() -> None:
    """Once; `make soak` has several, and looks at every arm."""
    split, ordinary = (waits(roads, 3, 0).sum() for roads in ("split", "two-lane"))
    assert split == pytest.approx(ordinary, rel=0.05)
