"""What takes minutes, in full: `make test` has a short version of each."""

from __future__ import annotations

import numpy as np
import pytest

from test_learning import learn_fair_policies
from test_traffic_training import program


@pytest.mark.parametrize("users", [3, 4])
@pytest.mark.parametrize("algorithm", ["ppo", "a2c"])
def test_fair_policies_are_learnt(algorithm: str, users: int) -> None:
    learn_fair_policies(algorithm, users)


def test_the_stand_in_is_close_to_sumo() -> None:
    """Within 5 % for each arm and controller, beyond what chance may do; and the same ranking."""
    found = program("calibrate", "traffic", "--episodes", 3)
    assert len(found["controllers"]) >= 7
    for controller in found["controllers"]:
        off, chance = np.abs(controller["difference"]), np.array(controller["uncertainty"])
        assert (off < 0.05 + 1.5 * chance).all(), controller
    assert found["same_ranking"]
