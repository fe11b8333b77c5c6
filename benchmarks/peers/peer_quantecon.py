"""quantecon's side of `exact.py`: a model with one reward, by its modified policy iteration; in .venv-peers.

    python peer_quantecon.py MODEL.npz    its result as JSON

The file has the pairs of state and action as `DiscreteDP` wants them: rewards [L], transitions [L, S] as a sparse
matrix, and the state and the action of each pair. Numba compiles while a tiny model is solved, before the time counts.
"""

import json
import resource
import sys
import time

import numpy as np
from quantecon.markov import DiscreteDP
from scipy import sparse

METHOD = "modified_policy_iteration"


def main() -> None:
    file = np.load(sys.argv[1])
    DiscreteDP(np.ones(2), sparse.identity(2, format="csr"), 0.5, [0, 1], [0, 0]).solve(method=METHOD)
    transitions = sparse.csr_matrix((file["data"], file["indices"], file["indptr"]), file["shape"])
    gamma, initial = float(file["gamma"]), file["initial"]
    began = time.perf_counter()
    model = DiscreteDP(file["rewards"], transitions, gamma, file["states"], file["actions"])
    found = model.solve(method=METHOD, epsilon=float(file["epsilon"]), max_iter=100_000)
    seconds = time.perf_counter() - began
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "welfare": float(initial @ found.v), "memory": memory, "status": "optimal"}))


if __name__ == "__main__":
    main()
