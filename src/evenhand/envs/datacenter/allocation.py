"""The best constant rates of the hosts for given flows and paths, such that no queue builds up.

Let u_qh be the share of host h's traffic that passes queue q. Rates x, in Mbit/s, are feasible if U x ≤ capacity and
least ≤ x ≤ capacity. All functions are pure and exact but for the rounding of the linear programs (HiGHS).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float
from scipy.optimize import linprog

from evenhand.envs.datacenter.simulator import Route
from evenhand.envs.datacenter.topology import NO_QUEUE

NEGLIGIBLE = 1e-9
"""GGF weights that differ by less, relative to the largest, are taken for equal: the solver could not tell."""


def usage(route: Route, hosts: int) -> Float[np.ndarray, "Q H"]:
    """U: the share of each host's traffic that passes each queue, layer by layer."""
    queue = np.asarray(route.queue)
    u = np.zeros((*queue.shape[:1], hosts, hosts))  # as many queues in a layer as hosts
    layer, flow = np.nonzero(queue != NO_QUEUE)
    np.add.at(u, (layer, queue[layer, flow], route.source[flow]), route.share[flow])
    return u.reshape(-1, hosts)


def equal_share(usage: Float[np.ndarray, "Q H"], capacity: float | int) -> Float[np.ndarray, " H"]:
    """The largest rate that all hosts can have."""
    return np.full(usage.shape[1], capacity / max(1.0, float(usage.sum(axis=1).max())))


def max_min(usage: Float[np.ndarray, "Q H"], capacity: float | int) -> Float[np.ndarray, " H"]:
    """Water-filling: all rates rise together, and those that pass a full queue stop.

    No rate could be higher without a lower one, or one that is equal, becoming lower: leximin.
    """
    links = np.vstack([usage, np.eye(usage.shape[1])])  # a host's own link carries its capacity too
    rates, rising = np.zeros(usage.shape[1]), np.ones(usage.shape[1], bool)
    while rising.any():
        left, used = capacity - links @ rates, links @ rising
        rise = np.where(used > 0, left / np.maximum(used, NEGLIGIBLE), np.inf)
        rates[rising] += rise.min()
        full = rise <= rise.min() + NEGLIGIBLE * capacity
        rising &= ~(links[full] > 0).any(axis=0)
    return rates


def utilitarian(usage: Float[np.ndarray, "Q H"], capacity: float | int, least: float = 0.0) -> Float[np.ndarray, " H"]:
    """max Σ x: a linear program, of whose solutions a vertex is given."""
    H = usage.shape[1]
    return _solved(np.ones(H), sp.csr_array(usage), np.full(len(usage), float(capacity)), [(least, capacity)] * H)


def ggf(
    usage: Float[np.ndarray, "Q H"], capacity: float | int, weights: Float[np.ndarray, " H"], least: float = 0.0
) -> Float[np.ndarray, " H"]:
    """max Σ_i w_i x↑_i for weights that do not increase, as a linear program.

    The GGF is Σ_k (w_k − w_{k+1}) Θ_k with Θ_k the sum of the k smallest, which is max_t k t − Σ_i max(t − x_i, 0): a
    variable t_k, and d_ik ≥ t_k − x_i, d_ik ≥ 0, for each k that has a price.
    """
    H = usage.shape[1]
    prices = -np.diff(weights, append=0.0)
    ks = np.flatnonzero(prices > NEGLIGIBLE * weights[0])
    K = len(ks)
    gains = np.concatenate([np.zeros(H), prices[ks] * (ks + 1), -np.repeat(prices[ks], H)])
    below: list[Any] = [
        sp.kron(np.ones((K, 1)), -sp.eye_array(H)),
        sp.kron(sp.eye_array(K), np.ones((H, 1))),
        -sp.eye_array(K * H),
    ]
    rows: Any = sp.block_array([[sp.csr_array(usage), None, None], below], format="csr")
    limits = np.concatenate([np.full(len(usage), float(capacity)), np.zeros(K * H)])
    bounds = [(least, capacity)] * H + [(None, None)] * K + [(0, None)] * (K * H)
    return _solved(gains, rows, limits, bounds)[:H]


def _solved(gains: Any, rows: Any, limits: Any, bounds: Any) -> Float[np.ndarray, " n"]:
    found = linprog(-gains, A_ub=rows, b_ub=limits, bounds=bounds, method="highs")
    if found.x is None:
        raise RuntimeError(f"HiGHS could not solve the allocation: {found.message}")
    return np.asarray(found.x)
