"""Finite Markov chains, solved exactly: classes, long-run and discounted occupation, gain and bias.

P [S, S] is a transition matrix, dense or sparse, whose rows sum to one. A chain may have several closed
classes, transient states and periods. P* = lim 1/T Σ_{t<T} P^t exists for all of them, while the powers of P
need not converge; so P* is put together from stationary distributions and absorption probabilities.
"""

import numpy as np
import scipy.sparse as sp
from jaxtyping import Float, Integer
from scipy.sparse.csgraph import breadth_first_order, connected_components

from evenhand.errors import IllConditioned
from evenhand.exact.linear import ACCEPTED, solve_linear

Chain = Float[np.ndarray, "S S"] | sp.csr_array | sp.csr_matrix

GTH_STATES = 1500  # larger classes go to sparse LU or iteration
GTH_BLOCK = 48


def closed_classes(P: Chain) -> tuple[Integer[np.ndarray, "S"], int]:
    """Return each state's closed class, 0 … n−1 or −1 for a transient state, and the number n of classes.

    The closed classes are the strongly connected components that no edge P_ij > 0 leaves.
    """
    edges = _sparse(P).tocoo()
    n_components, component = connected_components(edges, connection="strong")
    source, target = component[edges.coords[0]], component[edges.coords[1]]
    closed = np.ones(n_components, bool)
    closed[source[source != target]] = False
    labels = np.where(closed, np.cumsum(closed) - 1, -1)
    return labels[component], int(closed.sum())


def stationary_of_class(P: Chain) -> Float[np.ndarray, "S"]:
    """Return the stationary distribution x = xP, Σx = 1, of an irreducible chain, periodic or not."""
    P = _sparse(P)
    S = P.shape[0]
    if S <= GTH_STATES:
        x: np.ndarray = _eliminate(P)
    else:
        x = P.sum(axis=0)
        for _ in range(2):  # an often visited reference conditions the system well: try again if it was not
            start = np.zeros(S)
            reference = int(np.argmax(np.abs(x)))
            start[reference] = 1.0
            x = solve_linear(P, np.zeros(S), left=True, start=start, pinned=np.array([reference]))
            if np.abs(x).max() < 1e3 * np.abs(x[reference]):
                break
    x = np.maximum(x / x.sum(), 0.0)  # rounding may leave negative entries
    x /= x.sum()
    if not np.abs(x @ P - x).sum() <= ACCEPTED:
        raise IllConditioned(f"The stationary distribution of {S} states was not found to within {ACCEPTED:g}.")
    return x


def occupation(P: Chain, initial: Float[np.ndarray, "S"]) -> Float[np.ndarray, "S"]:
    """Return the long-run share of time in each state, x = d0 P*.

    A closed class c absorbs the mass m_c = Σ_{j∈c} [d0_C + d0_T (I − P_TT)⁻¹ P_TC]_j, and x = m_c x_c on it.
    """
    P = _sparse(P)
    labels, n = closed_classes(P)
    _, entering = _absorb(P, labels, initial, 1.0)
    mass = np.bincount(labels[labels >= 0], entering[labels >= 0], n)
    x: np.ndarray = _stationary(P, labels, n) * mass[labels]
    return x


def cesaro_limit(P: Chain) -> Float[np.ndarray, "S S"]:
    """Return P* = lim 1/T Σ_{t<T} P^t, dense: P*_ij = Pr(i is absorbed by the class c of j) x_c(j)."""
    P = _sparse(P)
    labels, n = closed_classes(P)
    absorbed = _extend(P, labels, np.eye(n))
    limit: np.ndarray = absorbed[:, labels] * _stationary(P, labels, n)  # 0 where the label is −1
    return limit


def gain(P: Chain, r: Float[np.ndarray, "S *D"]) -> Float[np.ndarray, "S *D"]:
    """Return the long-run average reward from each state, g = P* r, for rewards r [S] or [S, D].

    g = x_c·r on the closed class c, and (I − P_TT) g_T = P_TC g_C on the transient states.
    """
    P = _sparse(P)
    labels, n = closed_classes(P)
    return _gain(P, labels, _stationary(P, labels, n), r)


def deviation(P: Chain) -> Float[np.ndarray, "S S"]:
    """Return the deviation matrix H = (I − P + P*)⁻¹ − P*, the Drazin inverse of I − P, dense."""
    limit = cesaro_limit(P)
    H: np.ndarray = np.linalg.inv(np.eye(len(limit)) - _sparse(P).toarray() + limit) - limit
    return H


def gain_and_bias(
    P: Chain, r: Float[np.ndarray, "S *D"]
) -> tuple[Float[np.ndarray, "S *D"], Float[np.ndarray, "S *D"]]:
    """Return g = P* r and h = H r, the solution of (I − P) h = r − g with P* h = 0.

    Each closed class leaves one constant of h open: h is first pinned at one state of it, then shifted.
    """
    P = _sparse(P)
    labels, n = closed_classes(P)
    x = _stationary(P, labels, n)
    g = _gain(P, labels, x, r)
    order = np.lexsort((x, labels))
    most_visited = order[np.searchsorted(labels[order], np.arange(n), side="right") - 1]
    h = solve_linear(P, r - g, start=np.zeros_like(r), pinned=most_visited, data=r)
    return g, h - _gain(P, labels, x, h)


def discounted_occupation(P: Chain, initial: Float[np.ndarray, "S"], gamma: float) -> Float[np.ndarray, "S"]:
    """Return the discounted share of time in each state, x_γ = (1 − γ) d0 (I − γP)⁻¹, for 0 ≤ γ < 1."""
    P = _sparse(P)
    labels, _ = closed_classes(P)
    visits, entering = _absorb(P, labels, initial, gamma)
    x: np.ndarray = (1 - gamma) * visits
    recurrent = labels >= 0
    inner, own, entering = P[recurrent][:, recurrent], labels[recurrent], entering[recurrent]
    # From a start with each class's right mass, corrections have mass 0: that keeps γ → 1 well conditioned.
    solved = np.maximum(solve_linear(gamma * inner, (1 - gamma) * entering, left=True, start=entering), 0.0)
    total = np.bincount(own, solved)
    x[recurrent] = solved * (np.bincount(own, entering) / np.where(total > 0, total, 1.0))[own]
    return x


def transient_visits(P: Chain, initial: Float[np.ndarray, "S"]) -> Float[np.ndarray, "S"]:
    """Return how often each transient state is visited before a closed class is entered; 0 in the classes."""
    P = _sparse(P)
    labels, _ = closed_classes(P)
    return _absorb(P, labels, initial, 1.0)[0]


def _absorb(
    P: sp.csr_array, labels: Integer[np.ndarray, "S"], initial: Float[np.ndarray, "S"], gamma: float
) -> tuple[Float[np.ndarray, "S"], Float[np.ndarray, "S"]]:
    """Return the visits y_T = d0_T (I − γP_TT)⁻¹ and what enters the closed classes, d0_C + γ y_T P_TC."""
    transient = labels < 0
    visits, entering = np.zeros(len(labels)), np.where(transient, 0.0, initial)
    mass = initial[transient].sum()
    if mass > 0:
        leaving = gamma * P[transient]
        y = np.maximum(solve_linear(leaving[:, transient], initial[transient], left=True), 0.0)
        absorbed = (y @ leaving)[~transient]
        # Where states are hardly ever left, y is known up to a common factor; that mass is kept restores it.
        scale = mass / (absorbed.sum() + (1 - gamma) * y.sum())
        visits[transient] = scale * y
        entering[~transient] += scale * absorbed
    return visits, entering


def _stationary(P: sp.csr_array, labels: Integer[np.ndarray, "S"], n: int) -> Float[np.ndarray, "S"]:
    """Return the stationary distributions of all n classes in one vector, 0 at transient states."""
    order = np.argsort(labels, kind="stable")
    bounds = np.searchsorted(labels[order], np.arange(n + 1))
    by_class = P[order][:, order]
    x = (labels >= 0).astype(float)  # right as it is for classes of one state
    for c in np.flatnonzero(np.diff(bounds) > 1):
        own = slice(bounds[c], bounds[c + 1])
        x[order[own]] = stationary_of_class(by_class[own, own])
    return x


def _gain(
    P: sp.csr_array, labels: Integer[np.ndarray, "S"], x: Float[np.ndarray, "S"], r: Float[np.ndarray, "S *D"]
) -> Float[np.ndarray, "S *D"]:
    """Return P* r from the classes and their stationary distributions x."""
    recurrent = np.flatnonzero(labels >= 0)
    stationary = sp.csr_array((x[recurrent], (labels[recurrent], recurrent)), (labels.max() + 1, len(x)))
    values: np.ndarray = stationary @ r
    values += stationary @ (r - values[labels])  # long sums lose digits; those of deviations lose fewer
    return _extend(P, labels, values)


def _extend(
    P: sp.csr_array, labels: Integer[np.ndarray, "S"], values: Float[np.ndarray, "n *D"]
) -> Float[np.ndarray, "S *D"]:
    """Extend values of the closed classes to all states: the expected value of the absorbing class."""
    everywhere: np.ndarray = values[labels]
    transient = labels < 0
    if transient.any():
        leaving = P[transient]
        columns = np.column_stack([everywhere, np.ones(len(labels))])
        columns[transient] = 0.0
        solved = solve_linear(leaving[:, transient], leaving @ columns)
        # The last column, the probability of being absorbed at all, is 1. To divide by it removes the error
        # that all columns share where states are hardly ever left.
        everywhere[transient] = (solved[:, :-1] / solved[:, -1:]).reshape(-1, *values.shape[1:])
    return everywhere


def _eliminate(P: sp.csr_array) -> Float[np.ndarray, "S"]:
    """Return x ∝ xP by Grassmann–Taksar–Heyman elimination: without subtractions, every entry is accurate.

    The last state k leaves, and its visits are short-cut: P_ij += P_ik P_kj / Σ_{l<k} P_kl. For speed, the
    part of P before the current block of states is updated once per block, by one matrix product.
    """
    # Every state can step straight to an earlier one of this order, so that no sum Σ_{l<k} underflows to 0.
    order = breadth_first_order(P.T.tocsr(), 0, return_predecessors=False)
    A = P.toarray()[np.ix_(order, order)]
    S = len(A)
    for high in range(S, 1, -GTH_BLOCK):
        low = max(high - GTH_BLOCK, 1)
        for k in range(high - 1, low - 1, -1):
            A[:k, k] /= A[k, :k].sum()
            A[low:k, :k] += np.outer(A[low:k, k], A[k, :k])
            A[:low, low:k] += np.outer(A[:low, k], A[k, low:k])
        A[:low, :low] += A[:low, low:high] @ A[low:high, :low]
    x = np.zeros(S)
    x[0] = 1.0
    for k in range(1, S):
        x[k] = x[:k] @ A[:k, k]
        if x[k] > 1e100:  # long before it overflows
            x /= x[k]
    return x[np.argsort(order)]


def _sparse(P: Chain) -> sp.csr_array:
    """Return P as a csr_array in which every stored entry is an edge; P itself stays as it is."""
    matrix: sp.csr_array = sp.csr_array(P).astype(np.float64, copy=False)
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    return matrix
