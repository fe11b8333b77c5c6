"""The exact optimum of environments that know it, and when it can be held against test episodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from evenhand.welfare import Welfare

CUT_OFF = 1e-3
"""The part of a discounted return that may lie beyond the end of an episode for it to count as endless."""
LONG = 1000
"""Steps of an episode, from which on its average is nearly that of the long run."""


class Reference(NamedTuple):
    """The fairest that any policy can be, by the exact solver."""

    returns: Float[np.ndarray, " D"]
    note: str
    """What a table must say of it."""


def reference_of(env: Any, welfare: Welfare, measure: str, gamma: float, lengths: Any) -> Reference | str | None:
    """What an environment answers, if it answers for that at all (see `evenhand.envs.core.PureEnv`)."""
    ask = getattr(env, "reference", None)
    return ask(welfare, measure, gamma, lengths) if callable(ask) else None


def reference_from(
    optimum: Callable[[float | None], Any], about: str, measure: str, gamma: float, lengths: Any
) -> Reference | str:
    """The optimum by a measure of test episodes, or in words why there is none.

    optimum: for a discount, or None for the long-run average, an object with `returns` of the size of a reward, and
        the `gap` to which they are proven. about: what it is the optimum of. lengths: of the test episodes, in steps.
    """
    shortest = int(np.min(lengths))
    if measure == "discounted":
        if gamma**shortest > CUT_OFF:
            return f"episodes of {shortest} steps are too short for the exact optimum at γ = {gamma:g}."
        best, scale, when = optimum(gamma), 1.0, ""
    else:
        if shortest < LONG:
            return f"episodes of {shortest} steps are too short for the exact optimum, which is that of the long run."
        best, scale, when = optimum(None), 1.0 if measure == "average" else float(np.mean(lengths)), "in the long run, "
    return Reference(scale * best.returns, f"exact optimum: {when}of {about}, proven to {best.gap:.0e}.")
