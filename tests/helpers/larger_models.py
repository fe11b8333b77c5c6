"""Larger models, solved in two ways."""

import pytest

import evenhand as eh
from evenhand.exact.lp import solve_ggf_program
from models import (
    horizon,
    question,
)


def agrees(model, gamma, value):
    solution = eh.solve(model, "ggf", method="columns", **question(gamma))
    assert solution.status == "optimal"
    assert solution.welfare / horizon(gamma) == pytest.approx(value, abs=1e-6)
    assert solution.gap / horizon(gamma) <= 1e-7
    again = eh.evaluate(model, solution.policy, **question(gamma))
    assert again == pytest.approx(solution.returns, rel=1e-9)


def by_interior_point(model, gamma):
    whole = solve_ggf_program(model, eh.GGF.geometric(model.D).weights, gamma, solver="ipm")
    assert whole is not None
    return whole.value
