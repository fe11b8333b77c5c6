"""How much of a long test is done: all of it, or the share that EVENHAND_FUZZ says, as in EVENHAND_FUZZ=0.05."""

from __future__ import annotations

import math
import os
import random

SHARE = float(os.environ.get("EVENHAND_FUZZ", 1))


def share_of(number: int) -> int:
    return max(1, math.ceil(SHARE * number))


LOTS = int(os.environ.get("EVENHAND_LOTS", random.SystemRandom().randrange(10**9)))
"""Other lots in every run; whoever fails names them, so that the run can be repeated by EVENHAND_LOTS."""


def lots(name: str) -> random.Random:
    print(f"EVENHAND_LOTS={LOTS}")
    return random.Random(f"{name} {LOTS}")
