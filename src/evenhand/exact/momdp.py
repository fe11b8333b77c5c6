"""Finite multi-objective Markov decision processes: what the exact solvers work on."""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from jaxtyping import Bool, Float, Integer
from scipy.sparse import csgraph

from evenhand.disk import memory, opened
from evenhand.errors import InputError

ROW_SUM_TOLERANCE = 1e-6
"""Rows off one by less than this are taken as rounding and normalised; anything more is an error."""

MOST_UNPACKED, MOST_PACKED = 2**30, 100
"""A model file of more bytes than the first, once unpacked, may not be packed by more than the second. Honest ones are
far from it: large models are saved as sparse ones, whose indices do not shrink like zeros."""

LARGEST_REWARD = 1e200
"""Sums and differences of returns must stay finite."""


class EndComponents(NamedTuple):
    """Sets of states in which a policy can stay for ever, each as large as possible."""

    labels: Integer[np.ndarray, " S"]
    """The component of each state, −1 for states that every policy leaves for good."""
    allowed: Bool[np.ndarray, "S A"]
    """The actions that keep the state inside its component."""
    number: int
    """How many there are."""


class MOMDP:
    """A finite model with vector rewards.

    transitions: `[A, S, S]` dense, or a sequence of A sparse `[S, S]` matrices; `transitions[a][s, t]` is the
        probability of moving from s to t under action a.
    rewards: `[S, A, D]`, one component for each of the D users.
    initial: `[S]`, the distribution of the first state.

    Everything is checked here, once; afterwards the arrays are read-only.
    """

    transitions: sp.csr_array
    """The A matrices interleaved as one `[S·A, S]` sparse matrix, whose row s·A + a belongs to state s and action a."""
    rewards: Float[np.ndarray, "S A D"]
    initial: Float[np.ndarray, " S"]

    def __init__(self, transitions: Any, rewards: Any, initial: Any) -> None:
        rewards = _numbers("rewards", rewards, "[S, A, D]")
        S, A, _ = rewards.shape
        self._set(_interleave(transitions, S, A), rewards, initial)

    @classmethod
    def from_interleaved(cls, transitions: Any, rewards: Any, initial: Any, *, copy: bool = True) -> MOMDP:
        """Build from one sparse `[S·A, S]` matrix with row s·A + a, the form in which models are kept.

        copy=False takes matrix and rewards over, to save memory: they may be changed, and become read-only.
        """
        self = cls.__new__(cls)
        rewards = _numbers("rewards", rewards, "[S, A, D]", copy)
        S, A, _ = rewards.shape
        is_sparse = sp.issparse(transitions)
        if not is_sparse:
            raise InputError("from_interleaved takes a SciPy sparse matrix of shape [S·A, S].")
        if transitions.shape != (S * A, S):
            raise InputError(
                f"transitions have shape {transitions.shape}, but rewards of shape {rewards.shape} "
                f"need [S·A, S] = {(S * A, S)}."
            )
        if transitions.dtype.kind not in "fiu":
            raise InputError(f"transitions must be real numbers, not {transitions.dtype}.")
        matrix = _as_csr(transitions)
        if copy or not (
            matrix.data.flags.writeable and matrix.indices.flags.writeable and matrix.indptr.flags.writeable
        ):
            matrix = matrix.copy()
        self._set(matrix, rewards, initial)
        return self

    def _set(self, matrix: sp.csr_array, rewards: np.ndarray, initial: Any) -> None:
        S, A, D = rewards.shape
        if min(S, A, D) < 1:
            raise InputError(f"rewards have shape {rewards.shape}; a model needs a state, an action and an objective.")
        initial = _numbers("initial", initial, "[S]")
        if initial.shape != (S,):
            raise InputError(f"initial has shape {initial.shape}, but the rewards are for {S} states.")
        _check_finite("rewards", rewards, ("state", "action", "objective"))
        _check_finite("initial", initial, ("state",))
        if np.abs(rewards).max() > LARGEST_REWARD:
            raise InputError(f"rewards of more than {LARGEST_REWARD:g} are too large to compute with: scale them down.")
        if (initial < 0).any():
            state = int(np.argmin(initial))
            raise InputError(f"initial is negative at state {state} ({initial[state]:g}).")
        if abs(initial.sum() - 1) > ROW_SUM_TOLERANCE:
            raise InputError(f"initial sums to {initial.sum():.9g}, not to one.")
        self.transitions = _check_rows(matrix, A)
        self.rewards = rewards
        self.initial = initial if abs(initial.sum() - 1) < 1e-13 else initial / initial.sum()
        for array in (self.rewards, self.initial, matrix.data, matrix.indices, matrix.indptr):
            array.flags.writeable = False

    @property
    def S(self) -> int:
        """The number of states."""
        return int(self.rewards.shape[0])

    @property
    def A(self) -> int:
        """The number of actions."""
        return int(self.rewards.shape[1])

    @property
    def D(self) -> int:
        """The number of objectives."""
        return int(self.rewards.shape[2])

    def __repr__(self) -> str:
        return f"MOMDP(S={self.S}, A={self.A}, D={self.D}, {self.transitions.nnz} transitions)"

    @cached_property
    def reward_span(self) -> Float[np.ndarray, " D"]:
        """max R_i − min R_i for each objective: no two policies differ by more in average reward."""
        flat = self.rewards.reshape(-1, self.D)
        return np.asarray(flat.max(axis=0) - flat.min(axis=0))

    def under(self, policy: Float[np.ndarray, "S A"]) -> tuple[sp.csr_array, Float[np.ndarray, "S D"]]:
        """The Markov chain and rewards of a stationary policy: P_π [S, S] and R_π [S, D]."""
        S, A = self.S, self.A
        mixing = sp.csr_array((policy.flatten(), np.arange(S * A), np.arange(0, S * A + 1, A)), shape=(S, S * A))
        mixing.eliminate_zeros()
        return sp.csr_array(mixing @ self.transitions), np.einsum("sa,sad->sd", policy, self.rewards)

    def under_deterministic(self, policy: Integer[np.ndarray, " S"]) -> sp.csr_array:
        """P_π for a policy that names one action per state."""
        return self.transitions[np.arange(self.S) * self.A + policy]

    @cached_property
    def _successors(self) -> sp.csr_array:
        """The graph of possible moves: row s of the interleaved matrix's blocks, whatever the action."""
        P = self.transitions
        return sp.csr_array((P.data, P.indices, P.indptr[:: self.A]), shape=(self.S, self.S))

    @cached_property
    def reachable(self) -> Bool[np.ndarray, " S"]:
        """The states that some policy can reach from the initial distribution."""
        S = self.S
        starts = np.flatnonzero(self.initial)
        graph = self._successors
        # One more node with an edge to every start makes it a search from a single node.
        with_source = sp.csr_array(
            (
                np.ones(graph.nnz + len(starts)),
                np.concatenate([graph.indices, starts.astype(graph.indices.dtype)]),
                np.concatenate([graph.indptr, [graph.nnz + len(starts)]]),
            ),
            shape=(S + 1, S + 1),
        )
        order = csgraph.breadth_first_order(with_source, S, return_predecessors=False)
        found = np.zeros(S + 1, dtype=bool)
        found[order] = True
        return found[:S]

    def restricted_to(self, states: Bool[np.ndarray, " S"]) -> MOMDP:
        """The model on a set of states that no transition leaves (such as the reachable ones)."""
        if states.all():
            return self
        kept = np.flatnonzero(states)
        rows = (kept[:, None] * self.A + np.arange(self.A)).ravel()
        return MOMDP.from_interleaved(
            self.transitions[rows][:, kept], self.rewards[kept], self.initial[kept], copy=False
        )

    @cached_property
    def end_components(self) -> EndComponents:
        """The maximal end components: every policy ends up in one of them, and can stay in any it is in.

        Strongly connected components, from which actions that may leave are struck out until nothing changes.
        """
        S, A = self.S, self.A
        P = self.transitions
        row = np.repeat(np.arange(S * A), np.diff(P.indptr))
        source, target = row // A, P.indices
        allowed = np.ones(S * A, dtype=bool)
        while True:
            edge = allowed[row]
            graph = sp.csr_array((np.ones(int(edge.sum())), (source[edge], target[edge])), shape=(S, S))
            _, component = csgraph.connected_components(graph, connection="strong")
            alive = np.asarray(allowed.reshape(S, A).any(axis=1))
            leaves = np.zeros(S * A, dtype=bool)
            leaves[row[(component[source] != component[target]) | ~alive[target]]] = True
            if not (allowed & leaves).any():
                break
            allowed &= ~leaves
        labels = np.full(S, -1)
        names, labels[alive] = np.unique(component[alive], return_inverse=True)
        return EndComponents(labels, allowed.reshape(S, A), len(names))

    @property
    def weakly_communicating(self) -> bool:
        """Whether the reachable part has a single end component: in the long run the start does not matter."""
        return self.restricted_to(self.reachable).end_components.number == 1

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as a compressed .npz file, which `load` reads."""
        P = self.transitions
        buffer = io.BytesIO()
        np.savez_compressed(
            buffer,
            data=P.data,
            indices=P.indices,
            indptr=P.indptr,
            rewards=self.rewards,
            initial=self.initial,
        )
        Path(path).write_bytes(buffer.getvalue())

    @classmethod
    def load(cls, path: str | PathLike[str]) -> MOMDP:
        """Read a model from an .npz file; nothing in the file is ever executed.

        Either the arrays `transitions` [A, S, S], `rewards` and `initial`, or, as `save` writes them, the
        interleaved sparse matrix as `data`, `indices` and `indptr`.
        """
        arrays = _read_npz(path)
        if "transitions" in arrays:
            return cls(arrays["transitions"], arrays["rewards"], arrays["initial"])
        rewards = _numbers("rewards", arrays["rewards"], "[S, A, D]")
        matrix = _matrix_from_parts(arrays["data"], arrays["indices"], arrays["indptr"], rewards.shape)
        return cls.from_interleaved(matrix, rewards, arrays["initial"], copy=False)


def _numbers(name: str, value: Any, shape: str, copy: bool = True) -> np.ndarray:
    """A float64 array with as many axes as `shape` names; a fresh one, unless the caller gives its own away."""
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise InputError(f"{name} is not an array of numbers of shape {shape}: {error}.") from None
    if array.dtype.kind not in "fiu":
        raise InputError(f"{name} must hold real numbers in the shape {shape}, not {array.dtype} values.")
    if array.ndim != shape.count(",") + 1:
        raise InputError(f"{name} must have the shape {shape}, but has the shape {array.shape}.")
    with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused as that
        return np.array(array, dtype=np.float64) if copy else np.ascontiguousarray(array, dtype=np.float64)


def _check_finite(name: str, array: np.ndarray, axes: Sequence[str]) -> None:
    bad = ~np.isfinite(array)
    if bad.any():
        at = np.unravel_index(int(np.argmax(bad)), array.shape)
        where = ", ".join(f"{axis} {int(i)}" for axis, i in zip(axes, at, strict=True))
        raise InputError(f"{name} is {array[at]} at {where}; every entry must be a finite number.")


def _interleave(transitions: Any, S: int, A: int) -> sp.csr_array:
    """A dense [A, S, S] array, or A sparse matrices, as one [S·A, S] matrix with row s·A + a."""
    if isinstance(transitions, (list, tuple)) and any(sp.issparse(p) for p in transitions):
        matrices = transitions
        if not all(sp.issparse(p) for p in matrices):
            raise InputError("transitions mixes sparse and dense matrices; give all A of them in one form.")
        if len(matrices) != A:
            raise InputError(f"there are {len(matrices)} transition matrices, but the rewards are for {A} actions.")
        for a, p in enumerate(matrices):
            if p.shape != (S, S):
                raise InputError(
                    f"the transition matrix of action {a} has shape {p.shape}, but the rewards are for {S} states."
                )
            if p.dtype.kind not in "fiu":
                raise InputError(f"the transition matrix of action {a} must be real numbers, not {p.dtype}.")
        return _stacked([_as_csr(p) for p in matrices], S, A)
    if sp.issparse(transitions):
        raise InputError("transitions must be one sparse matrix per action: [P_0, P_1, ...], each [S, S].")
    dense = _numbers("transitions", transitions, "[A, S, S]", copy=False)
    if dense.shape != (A, S, S):
        raise InputError(
            f"transitions have the shape {dense.shape}, but rewards for {S} states and {A} actions need {(A, S, S)}."
        )
    return _stacked([sp.csr_array(p) for p in dense], S, A)


def _stacked(matrices: list[sp.csr_array], S: int, A: int) -> sp.csr_array:
    if not S * A:
        return sp.csr_array((S * A, S))  # which is refused with everything else that a model needs
    stacked = sp.csr_array(sp.vstack(matrices, format="csr"))
    return stacked[np.arange(S * A).reshape(A, S).T.ravel()]


def _as_csr(matrix: Any) -> sp.csr_array:
    """A float64 csr_array, perhaps of the same memory. SciPy's conversions trust indices, so they are checked first."""
    try:
        if hasattr(matrix, "check_format"):
            pointers = np.asarray(matrix.indptr)
            if (
                pointers.ndim != 1
                or (pointers[1:] < pointers[:-1]).any()
                or pointers[-1:].max(initial=0) > len(matrix.data)
            ):
                raise ValueError("index pointers must not decrease, nor point behind the data")
            matrix.check_format(full_check=True)
        elif matrix.format == "coo":
            for index, size in zip(matrix.coords, matrix.shape, strict=True):
                if len(index) != len(matrix.data) or index.min(initial=0) < 0 or index.max(initial=0) >= size:
                    raise ValueError(f"indices must lie between 0 and {size - 1}")
        converted = sp.csr_array(matrix, dtype=np.float64)
        converted.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"transitions is not a well-formed sparse matrix: {error}.") from None
    return converted


def _check_rows(matrix: sp.csr_array, A: int) -> sp.csr_array:
    """Refuse rows that are no probability distributions, naming the first; normalise the rounding of the others."""

    def place(row: int) -> str:
        return f"state {row // A}, action {row % A}"

    row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    for wrong, what in ((~np.isfinite(matrix.data), "is {}"), (matrix.data < 0, "is negative ({})")):
        if wrong.any():
            k = int(np.argmax(wrong))
            raise InputError(
                f"a transition probability {what.format(f'{matrix.data[k]:g}')} "
                f"at {place(int(row_of[k]))}, next state {int(matrix.indices[k])}."
            )
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    sums = np.asarray(matrix.sum(axis=1)).ravel()
    off = np.abs(sums - 1) > ROW_SUM_TOLERANCE
    if off.any():
        row = int(np.argmax(off))
        more = f" ({int(off.sum()) - 1} more rows are off, too)" if off.sum() > 1 else ""
        raise InputError(f"the transition probabilities of {place(row)} sum to {sums[row]:.9g}, not to one{more}.")
    # Rows that are right to rounding stay as they are, so that a model is read back as it was written.
    matrix.data /= np.repeat(np.where(np.abs(sums - 1) > 1e-13, sums, 1.0), np.diff(matrix.indptr))
    return matrix


def _read_npz(path: str | PathLike[str]) -> dict[str, np.ndarray]:
    """The arrays of a model in an .npz file, which is judged by the sizes that it declares before any is unpacked."""
    try:
        if not Path(path).exists() or Path(path).is_dir():
            raise InputError(f"there is no file {path}.")
        with opened(path) as stream:
            if stream.read(6) == np.lib.format.MAGIC_PREFIX:
                raise InputError(f"{path} is a single array; a model file is an .npz of several named arrays.")
            with zipfile.ZipFile(stream) as file:
                declared = {info.filename.removesuffix(".npy"): _declared(file, info) for info in file.infolist()}
                names = _needed(path, declared.keys())
                _check_sizes(path, {name: declared[name] for name in names}, os.fstat(stream.fileno()).st_size)
                return {name: _unpacked(file, f"{name}.npy") for name in names}
    except InputError:
        raise
    except Exception as error:  # a damaged or hostile file may fail anywhere inside zipfile, zlib or NumPy
        raise InputError(f"{path} cannot be read as an .npz file of plain arrays ({error}).") from None


class _Declared(NamedTuple):
    """What the header of an array says."""

    shape: tuple[int, ...]
    size: int
    """In bytes."""


def _declared(file: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Declared:
    """By its header, which must agree with the directory of the file; zipfile unpacks no more than that says."""
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError(f"{info.filename} is packed in a way that NumPy does not write")
    with file.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"{info.filename} has a header of version {version}")
        one = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if one else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(member)
        if dtype.hasobject:  # they would be executed
            raise ValueError("Object arrays cannot be loaded when allow_pickle=False")
        size = math.prod(shape) * dtype.itemsize
        if size != info.file_size - member.tell() or min(shape, default=0) < 0:
            raise ValueError(f"{info.filename} has other numbers of entries than its header says")
    return _Declared(shape, size)


def _needed(path: str | PathLike[str], names: Collection[str]) -> list[str]:
    """The arrays that make a model, the sparse form first."""
    sparse = ("data", "indices", "indptr")
    needed = [*(sparse if set(sparse) <= set(names) else ("transitions",)), "rewards", "initial"]
    missing = set(needed) - set(names)
    if missing:
        raise InputError(
            f"{path} holds no {' and no '.join(sorted(missing))}: a model file needs transitions [A, S, S], "
            "rewards [S, A, D] and initial [S]."
        )
    return needed


def _check_sizes(path: str | PathLike[str], arrays: Mapping[str, _Declared], packed: int) -> None:
    """Refuse what no model is: arrays that do not fit together, or that a few bytes only stand for."""
    rewards = arrays["rewards"].shape
    if len(rewards) != 3:
        raise InputError(f"rewards must have the shape [S, A, D], but has the shape {rewards}.")
    S, A, _ = rewards
    n = math.prod(arrays["data"].shape) if "data" in arrays else 0
    expected = {"transitions": (A, S, S), "data": (n,), "indices": (n,), "indptr": (S * A + 1,), "initial": (S,)}
    for name, array in arrays.items():
        if array.shape != expected.get(name, rewards):
            raise InputError(
                f"{name} has the shape {array.shape}, but the rewards are for {S} states and {A} actions, and need "
                f"{expected[name]}."
            )
    total = sum(array.size for array in arrays.values())
    if total > MOST_UNPACKED and total > MOST_PACKED * packed:
        raise InputError(
            f"{path} would become {total / packed:,.0f} times as large, {total / 2**30:.1f} GiB, which no model does: "
            "save it by MOMDP.save, or unpacked by numpy.savez."
        )
    if 3 * total > memory():
        raise InputError(
            f"{path} holds a model of {total / 2**30:.1f} GiB, too large for the {memory() / 2**30:.0f} GiB of memory "
            "of this machine."
        )


def _unpacked(file: zipfile.ZipFile, name: str) -> np.ndarray:
    with file.open(name) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


def _matrix_from_parts(data: Any, indices: Any, indptr: Any, shape: tuple[int, ...]) -> sp.csr_array:
    S, A, _ = shape
    for name, part, kinds in (("data", data, "f"), ("indices", indices, "iu"), ("indptr", indptr, "iu")):
        if part.ndim != 1 or part.dtype.kind not in kinds:
            raise InputError(f"the model file's {name} must be a one-dimensional array of kind {kinds}.")
    try:
        if len(indptr) and (indptr[1:] < indptr[:-1]).any():
            raise ValueError("index pointers must not decrease")
        return sp.csr_array((data, indices, indptr), shape=(S * A, S))
    except (ValueError, OverflowError) as error:
        raise InputError(f"the model file's sparse matrix does not fit its rewards: {error}.") from None
