"""Sparse linear systems of Markov chains: (I − M) y = b."""
from evenhand.exact.chain import _solve as solve_linear, _lu_is_affordable as lu_is_affordable
from scipy.sparse.linalg import splu
import scipy.sparse as sp
def factorise(M):
    return splu((sp.eye_array(M.shape[0]) - M).tocsc(), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})
from evenhand.exact import chain
import numpy as np
def transient_visits(P, initial):
    labels, _ = chain.closed_classes(P)
    transient = labels < 0
    visits = np.zeros(len(labels))
    if initial[transient].any():
        visits[transient] = solve_linear(P[transient][:, transient].T.tocsr(), initial[transient])
    return visits
if not hasattr(chain,'transient_visits'): chain.transient_visits=transient_visits
