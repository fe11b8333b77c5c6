"""Linear systems of Markov chains, (I − M) y = b, with M or its transpose substochastic: sweeps, factors, or both.

Random graphs mix fast, so a few sweeps y ← b + My will do, while their factors fill in. Chains with a geometry
(lines, grids, queues) mix slowly, but their factors stay sparse. Which one it is shows while sweeping.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Integer
from scipy.sparse.csgraph import reverse_cuthill_mckee
from scipy.sparse.linalg import SuperLU, gmres, splu

from evenhand.errors import IllConditioned

FEW = 200  # states for which factors cost next to nothing
CHECK = 8  # sweeps between two looks at what they have achieved
LU_IN_SWEEPS = 5.0  # measured on grids: one sparse LU costs about this times √S sweeps
LU_FILL = 1e8  # entries of the factors that are worth their memory and time
DAMPING = 0.8  # below 1, so that sweeps converge on periodic chains too
STEPS, ROUNDS = 500, 6  # sweeps, then rounds of GMRES, which gain six digits each unless they stagnate
CONVERGED, ACCEPTED = 1e-14, 1e-10  # relative residuals: where sweeps stop, and what is still an answer


def lu_price(S: int) -> float:
    """What a sparse LU of S states costs, in sweeps."""
    return float(LU_IN_SWEEPS * np.sqrt(S))


def sweeps_to_go(before: float, now: float, target: float) -> float:
    """How many more sweeps an error needs to fall to `target`, if it goes on as in the last `CHECK` of them."""
    if now <= target:
        return 0.0
    return float(CHECK * np.log(target / now) / np.log(now / before)) if now < before else np.inf


def solve_linear(
    M: sp.csr_array,
    b: Float[np.ndarray, "S *D"],
    left: bool = False,
    start: Float[np.ndarray, "S *D"] | None = None,
    pinned: Integer[np.ndarray, "_"] | None = None,
    data: Float[np.ndarray, "S *D"] | None = None,
) -> Float[np.ndarray, "S *D"]:
    """Solve (I − M) y = b, or from the left y (I − M) = b.

    The rows of M sum to at most 1. Where I − M is singular, name one `pinned` state per closed class: there
    LU keeps y as in `start`. Sweeps do not, so the caller has to choose among the solutions. `data` is
    what b was computed from, if that is much larger than b.
    """
    y: np.ndarray = np.array(b if start is None else start)
    size = np.abs(b if data is None else data)
    free = np.ones(len(b), bool)
    if pinned is not None:
        free[pinned] = False
    if not free.any():
        return y
    step = M.T if left else M

    def residual() -> Float[np.ndarray, "S *D"]:
        rest: np.ndarray = b - y + step @ y
        return rest

    def excess(rest: Float[np.ndarray, "S *D"]) -> float:
        # The sum is the norm for distributions and the maximum the one for values; both have to be small.
        error, scale = np.abs(rest), size + np.abs(y)
        worst = np.maximum(
            error.sum(0) / np.maximum(scale.sum(0), 1e-300), error.max(0) / np.maximum(scale.max(0), 1e-300)
        )
        return float(np.max(worst))

    def sweep(most: int, give_up: bool) -> bool:
        """Sweep until it is done; or until a factorisation would be quicker, if sweeps may give up."""
        before = np.inf
        for turn in range(most):
            rest = residual()
            if turn % CHECK == 0:
                now = excess(rest)
                if now <= CONVERGED:
                    return True
                if give_up and turn and sweeps_to_go(before, now, CONVERGED) > lu_price(len(b)):
                    return False
                before = now
            y[...] += DAMPING * rest
        return False

    if len(b) <= FEW or not sweep(STEPS, give_up=True):
        inner = M[free][:, free]
        if lu_is_affordable(inner):
            lu = factorise(inner)
            for _ in range(3):  # the solve and two refinements
                y[free] += lu.solve(residual()[free], "T" if left else "N")  # type: ignore[call-overload]  # not in the stubs
        elif not sweep(STEPS, give_up=False):
            for _ in range(ROUNDS):
                rest = residual()
                if excess(rest) <= CONVERGED:
                    break
                for column in np.ndindex(rest.shape[1:]):
                    at = (slice(None), *column)
                    enough = 0.1 * CONVERGED * float(np.linalg.norm(size[at] + np.abs(y[at])))
                    y[at] += gmres(
                        sp.eye_array(len(b)) - step, rest[at], rtol=1e-6, atol=enough, restart=50, maxiter=20
                    )[0]
    if not excess(residual()) <= ACCEPTED:
        raise IllConditioned(
            f"A linear system of {len(b)} states was not solved to within {ACCEPTED:g}. Either the chain "
            "mixes too slowly to iterate and is too entangled to factorise, or some transitions are too rare."
        )
    return y


def factorise(M: sp.csr_array) -> SuperLU:
    """LU factors of I − M. It is diagonally dominant: pivots stay on the diagonal, and the order saves fill-in."""
    try:
        return splu(
            (sp.eye_array(M.shape[0]) - M).tocsc(),
            permc_spec="MMD_AT_PLUS_A",
            diag_pivot_thresh=0.0,
            relax=1,
            panel_size=1,  # measured: with so few entries in a row, blocks only take time
            options={"SymmetricMode": True},
        )
    except RuntimeError:  # where the way out of some states has a probability below the last digit of 1
        raise IllConditioned(
            f"A linear system of {M.shape[0]} states is singular in floating point: some transitions are too rare."
        ) from None


def lu_is_affordable(M: sp.csr_array) -> bool:
    """Guess from the bandwidth after reverse Cuthill–McKee whether the LU factors of I − M stay sparse.

    The few states that many others lead to, such as the restart of an episode, only add a border to the band.
    """
    S = M.shape[0]
    pattern = sp.csr_array(M + M.T)
    hub = np.diff(pattern.indptr) > 10 * S**0.5
    width = int(np.count_nonzero(hub))
    if not hub.all():
        band = pattern[~hub][:, ~hub]
        position = np.argsort(reverse_cuthill_mckee(band, symmetric_mode=True))
        row, column = band.tocoo().coords
        width += int(np.abs(position[row] - position[column]).max(initial=0))
    # A band fills S · width entries; in a wide one the time, cubic in its width, is what counts.
    return width * max(S, 10 * width) <= LU_FILL
