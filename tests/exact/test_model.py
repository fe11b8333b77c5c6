"""Models: what the constructor and the loader take and refuse, and the structure they find."""

import io
import itertools
import subprocess
import sys
import warnings
import zipfile

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, assume, given, settings
from hypothesis.extra import numpy as hnp

import evenhand as eh
from models import KINDS, Raw, chain_of, distributions, raw_models, small, unchecked

FAST = settings(max_examples=100)
FUZZ = settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

P2 = np.array([[[0.5, 0.5], [0.0, 1.0]], [[1.0, 0.0], [0.25, 0.75]], [[0.0, 1.0], [1.0, 0.0]]])
R2 = np.arange(12.0).reshape(2, 3, 2)
D2 = np.array([0.25, 0.75])
"""Two states, three actions, two objectives."""


def changed(array, at, value):
    array = np.array(array)
    array[at] = value
    return array


def sparse_parts(raw=None):
    """What `save` writes."""
    P = (raw or Raw(P2, R2, D2)).model().transitions
    return {"data": P.data, "indices": P.indices, "indptr": P.indptr, "rewards": R2, "initial": D2}


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def write_zip(path, members):
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as file:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in members:
            file.writestr(name, content)
    return path


def same(a, b):
    """Bit by bit."""
    return all(
        np.array_equal(x, y) and x.dtype == y.dtype
        for x, y in (
            (a.rewards, b.rewards),
            (a.initial, b.initial),
            (a.transitions.data, b.transitions.data),
            (a.transitions.indices, b.transitions.indices),
            (a.transitions.indptr, b.transitions.indptr),
        )
    )


def sound(model):
    """Whether a model that was accepted is one."""
    rows = model.transitions.toarray()
    return (
        rows.shape == (model.S * model.A, model.S)
        and distributions(rows)
        and distributions(model.initial)
        and bool(np.isfinite(model.rewards).all())
        and model.rewards.shape == (model.S, model.A, model.D)
    )


# What is taken


def test_the_arrays_of_a_model():
    model = eh.MOMDP(P2, R2, D2)
    assert (model.S, model.A, model.D) == (2, 3, 2)
    for s, a in itertools.product(range(2), range(3)):
        assert model.transitions.toarray()[s * 3 + a].tolist() == P2[a, s].tolist()
    assert np.array_equal(model.rewards, R2)
    assert np.array_equal(model.initial, D2)
    assert model.reward_span.tolist() == [10, 10]
    assert repr(model) == "MOMDP(S=2, A=3, D=2, 8 transitions)"


@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, sp.csc_array, sp.coo_array, sp.lil_array, sp.dok_array])
def test_sparse_and_dense_are_the_same(form):
    dense = eh.MOMDP(P2, R2, D2)
    assert same(eh.MOMDP([form(p) for p in P2], R2, D2), dense)
    assert same(eh.MOMDP(tuple(form(p) for p in P2), R2, D2), dense)
    assert same(eh.MOMDP.from_interleaved(form(P2.transpose(1, 0, 2).reshape(6, 2)), R2, D2), dense)


def test_lists_and_whole_numbers_are_taken():
    model = eh.MOMDP([[[0, 1], [1, 0]]], [[[1]], [[2]]], [1, 0])
    assert (model.S, model.A, model.D) == (2, 1, 1)
    assert model.rewards.dtype == model.initial.dtype == model.transitions.dtype == np.float64
    single = eh.MOMDP(P2.astype(np.float32), R2.astype(np.int8), D2.astype(np.float16))
    assert same(single, eh.MOMDP(P2, R2, D2))


def test_duplicates_add_up_and_zeros_vanish():
    P = sp.coo_array(([0.25, 0.75, 0.0, 1.0], ([0, 0, 0, 1], [1, 1, 0, 1])), shape=(2, 2))
    model = eh.MOMDP([P], R2[:, :1], D2)
    assert model.transitions.toarray().tolist() == [[0, 1], [0, 1]]
    assert model.transitions.nnz == 2
    P = sp.csr_array(([0.25, 0.75, 1.0], [1, 1, 1], [0, 2, 3]), shape=(2, 2))
    assert eh.MOMDP([P], R2[:, :1], D2).transitions.nnz == 2
    assert P.nnz == 3


def test_rounding_in_rows_is_normalised():
    third = np.full((1, 3, 3), 0.3333333)
    model = eh.MOMDP(third, np.zeros((3, 1, 1)), [0.3333333, 0.3333333, 0.3333333])
    assert model.transitions.sum(axis=1) == pytest.approx(1, abs=1e-15)
    assert model.initial.sum() == pytest.approx(1, abs=1e-15)


def test_inputs_are_neither_changed_nor_kept():
    P, R, d = P2 * (1 + 1e-8), R2.copy(), D2 * (1 - 1e-8)
    matrices = [sp.csr_array(p) for p in P]
    interleaved = sp.csr_array(P.transpose(1, 0, 2).reshape(6, 2))
    before = P.copy(), R.copy(), d.copy(), [m.toarray() for m in matrices], interleaved.toarray()
    models = [
        eh.MOMDP(P, R, d),
        eh.MOMDP(matrices, R, d),
        eh.MOMDP(matrices[:1], R[:, :1], d),
        eh.MOMDP.from_interleaved(interleaved, R, d),
    ]
    after = P, R, d, [m.toarray() for m in matrices], interleaved.toarray()
    assert all(np.array_equal(x, y) for x, y in zip(before, after, strict=True))
    answers = [(m.transitions.toarray(), m.rewards.copy(), m.initial.copy()) for m in models]
    P[:], R[:], d[:] = 7, 7, 7  # still writable, and nobody notices
    for m in (*matrices, interleaved):
        m.data[:] = 7
        m.indices[:] = 0
    for model, (T, rewards, initial) in zip(models, answers, strict=True):
        assert np.array_equal(model.transitions.toarray(), T)
        assert np.array_equal(model.rewards, rewards)
        assert np.array_equal(model.initial, initial)


def test_models_are_read_only(tmp_path):
    model = eh.MOMDP(P2, R2, D2)
    model.save(tmp_path / "m.npz")
    built = (
        model,
        eh.MOMDP([sp.csr_array(p) for p in P2], R2, D2),
        eh.MOMDP.from_interleaved(model.transitions, R2, D2),
        eh.MOMDP.load(tmp_path / "m.npz"),
        model.restricted_to(np.array([True, True])),
    )
    for m in built:
        for array in (m.rewards, m.initial, m.transitions.data, m.transitions.indices, m.transitions.indptr):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0


def test_a_matrix_may_be_handed_over():
    matrix = sp.csr_array(P2.transpose(1, 0, 2).reshape(6, 2))
    data = matrix.data
    model = eh.MOMDP.from_interleaved(matrix, R2, D2, copy=False)
    assert np.shares_memory(model.transitions.data, data)
    assert same(model, eh.MOMDP(P2, R2, D2))


def test_a_read_only_matrix_may_be_handed_over():
    """Such as that of another model, with other rewards."""
    model = eh.MOMDP(P2, R2, D2)
    other = eh.MOMDP.from_interleaved(model.transitions, R2 + 1, D2, copy=False)
    assert np.array_equal(other.transitions.toarray(), model.transitions.toarray())


# What is refused, and in which words


def refused(match):
    return pytest.raises(eh.InputError, match=match)


@pytest.mark.parametrize(
    ("P", "match"),
    [
        (changed(P2, (1, 0, 0), 0.5), r"state 0, action 1 sum to 0\.5, not to one\.$"),
        (changed(P2, (2, 1, 1), 0.1), r"state 1, action 2 sum to 1\.1, not to one\.$"),
        (P2 * 2, r"state 0, action 0 sum to 2, not to one \(5 more rows are off, too\)"),
        (np.zeros_like(P2), r"state 0, action 0 sum to 0, not to one"),
        (changed(P2, (0, 1), [1.5, -0.5]), r"negative \(-0\.5\) at state 1, action 0, next state 1"),
        (changed(P2, (0, 1, 0), -1e-12), r"negative \(-1e-12\) at state 1, action 0, next state 0"),
        (changed(P2, (1, 1, 0), np.nan), r"is nan at state 1, action 1, next state 0"),
        (changed(P2, (2, 0, 1), np.inf), r"is inf at state 0, action 2, next state 1"),
        (changed(P2, (2, 0, 1), -np.inf), r"is -inf at state 0, action 2, next state 1"),
        (P2[:2], r"transitions have the shape \(2, 2, 2\).* 2 states and 3 actions need \(3, 2, 2\)"),
        (P2.transpose(1, 0, 2), r"shape \(2, 3, 2\).* need \(3, 2, 2\)"),
        (P2[:, :, :1], r"shape \(3, 2, 1\).* need \(3, 2, 2\)"),
        (P2[0], r"transitions must have the shape \[A, S, S\], but has the shape \(2, 2\)"),
        (1.0, r"transitions must have the shape \[A, S, S\], but has the shape \(\)"),
        ([], r"transitions must have the shape \[A, S, S\]"),
        ([[[1, 0], [1]]], r"transitions is not an array of numbers of shape \[A, S, S\]"),
        (P2.astype(object), r"transitions must hold real numbers.* not object values"),
        (P2.astype(complex), r"transitions must hold real numbers.* not complex128 values"),
        (P2.astype(bool), r"transitions must hold real numbers.* not bool values"),
        (P2.astype(str), r"transitions must hold real numbers.* not <U32 values"),
        (P2.astype("M8[s]"), r"transitions must hold real numbers.* not datetime64"),
        (None, r"transitions must hold real numbers"),
        ("transitions", r"transitions must hold real numbers"),
        ({"a": P2}, r"transitions must hold real numbers"),
        (iter(P2), r"transitions must hold real numbers"),
    ],
)
def test_unusable_transitions(P, match):
    with refused(match):
        eh.MOMDP(P, R2, D2)


EYE = sp.csr_array(np.eye(2))


@pytest.mark.parametrize(
    ("P", "match"),
    [
        ([EYE, EYE, np.eye(2)], "mixes sparse and dense matrices"),
        ([np.eye(2), EYE, None], "mixes sparse and dense matrices"),
        ([EYE, EYE], "there are 2 transition matrices, but the rewards are for 3 actions"),
        ([EYE] * 4, "there are 4 transition matrices, but the rewards are for 3 actions"),
        ([EYE, sp.csr_array(np.eye(3)), EYE], r"of action 1 has shape \(3, 3\), but the rewards are for 2 states"),
        ([EYE, EYE, sp.coo_array(np.ones(2))], r"of action 2 has shape \(2,\), but the rewards are for 2 states"),
        ([EYE, EYE.astype(complex), EYE], "of action 1 must be real numbers, not complex128"),
        ([EYE.astype(bool), EYE, EYE], "of action 0 must be real numbers, not bool"),
        (EYE, "one sparse matrix per action"),
        (sp.vstack([EYE] * 3), "one sparse matrix per action"),
        ([EYE, 0.5 * EYE, EYE], r"state 0, action 1 sum to 0\.5, not to one \(1 more rows are off, too\)"),
        ([EYE, EYE, -EYE], r"negative \(-1\) at state 0, action 2, next state 0"),
        ([EYE, EYE, np.nan * EYE], "is nan at state 0, action 2, next state 0"),
        ([EYE, EYE, sp.csr_array((2, 2))], "state 0, action 2 sum to 0, not to one"),
    ],
)
def test_unusable_sparse_transitions(P, match):
    with refused(match):
        eh.MOMDP(P, R2, D2)


def test_duplicates_do_not_hide_a_negative_probability():
    P = sp.csr_array(([1.5, -0.5, 1.0], [1, 1, 1], [0, 2, 3]), shape=(2, 2))
    with refused(r"negative \(-0\.5\) at state 0, action 0, next state 1"):
        eh.MOMDP([P], R2[:, :1], D2)


@pytest.mark.parametrize("form", ["csr", "csc", "bsr", "coo", "lil"])
def test_indices_out_of_range(form):
    """In a process of its own, for SciPy's conversions trust the indices and write wherever they point to."""
    code = f"""
import sys, numpy as np, scipy.sparse as sp, evenhand as eh
form = {form!r}
def matrix(wrong):
    index = np.array([0, wrong])
    if form == "coo":
        P = sp.coo_array(np.eye(2))
        P.coords[0][:] = index  # checked by SciPy when it is made, but not afterwards
        return P
    if form == "lil":
        P = sp.lil_array(np.eye(2))
        P.rows[1] = [wrong]
        return P
    data = np.ones((2, 1, 1)) if form == "bsr" else np.ones(2)
    return getattr(sp, form + "_array")((data, index, np.array([0, 1, 2])), shape=(2, 2))
for wrong in (2, -1, 10**8, -(10**8)):
    print(wrong, file=sys.stderr)
    for _ in range(100):
        for build in (lambda: eh.MOMDP([matrix(wrong)], np.zeros((2, 1, 1)), [1, 0]),
                      lambda: eh.MOMDP.from_interleaved(matrix(wrong), np.zeros((2, 1, 1)), [1, 0])):
            try:
                sys.exit(f"accepted: {{build()}}")
            except eh.InputError as error:
                assert "well-formed" in str(error), error
"""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr[-500:])


@pytest.mark.parametrize("pointers", [[0, 2, 1], [0, 3, 2], [0, -1, 2]])
def test_pointers_out_of_order(pointers):
    P = sp.csr_array(np.eye(2))
    P.indptr = np.array(pointers)
    with refused("not a well-formed sparse matrix|not to one"):
        eh.MOMDP.from_interleaved(P, R2[:, :1], D2)


@pytest.mark.parametrize(
    ("R", "match"),
    [
        (changed(R2, (1, 2, 0), np.nan), "rewards is nan at state 1, action 2, objective 0; .* finite"),
        (changed(R2, (0, 1, 1), np.inf), "rewards is inf at state 0, action 1, objective 1"),
        (changed(R2, (0, 0, 0), -np.inf), "rewards is -inf at state 0, action 0, objective 0"),
        (R2[:, :, 0], r"rewards must have the shape \[S, A, D\], but has the shape \(2, 3\)"),
        (R2[None], r"rewards must have the shape \[S, A, D\], but has the shape \(1, 2, 3, 2\)"),
        (R2[:, :2], r"transitions have the shape \(3, 2, 2\), but rewards for 2 states and 2 actions"),
        (R2[:1], r"transitions have the shape \(3, 2, 2\), but rewards for 1 states and 3 actions"),
        (R2[:, :, :0], r"rewards have shape \(2, 3, 0\); a model needs a state, an action and an objective"),
        ([], r"rewards must have the shape \[S, A, D\]"),
        (5, r"rewards must have the shape \[S, A, D\]"),
        ([[[1, 2], [3]]], r"rewards is not an array of numbers of shape \[S, A, D\]"),
        (R2.astype(object), "rewards must hold real numbers .* not object values"),
        (R2.astype(complex), "rewards must hold real numbers .* not complex128 values"),
        (R2.astype(bool), "rewards must hold real numbers .* not bool values"),
        (R2.astype(str), "rewards must hold real numbers .* not <U32 values"),
        ([[[10**400, 1]] * 3] * 2, "rewards must hold real numbers .* not object values"),
        (sp.csr_array(R2[0]), "rewards must hold real numbers"),
        (None, "rewards must hold real numbers"),
    ],
)
def test_unusable_rewards(R, match):
    with refused(match):
        eh.MOMDP(P2, R, D2)


@pytest.mark.parametrize(
    ("d", "match"),
    [
        ([0.5, 0.6], r"initial sums to 1\.1, not to one"),
        ([0, 0], "initial sums to 0, not to one"),
        ([1.5, -0.5], r"initial is negative at state 1 \(-0\.5\)"),
        ([np.nan, 1], "initial is nan at state 0"),
        ([1, np.inf], "initial is inf at state 1"),
        ([1], r"initial has shape \(1,\), but the rewards are for 2 states"),
        ([1, 0, 0], r"initial has shape \(3,\), but the rewards are for 2 states"),
        ([[1, 0]], r"initial must have the shape \[S\], but has the shape \(1, 2\)"),
        (1, r"initial must have the shape \[S\], but has the shape \(\)"),
        ([True, False], "initial must hold real numbers .* not bool values"),
        (["1", "0"], "initial must hold real numbers .* not <U1 values"),
        ([1j, 1], "initial must hold real numbers .* not complex128 values"),
        ([[1], [1, 2]], "initial is not an array of numbers"),
        (None, "initial must hold real numbers"),
    ],
)
def test_unusable_initial_distributions(d, match):
    with refused(match):
        eh.MOMDP(P2, R2, d)
    with refused(match):
        eh.MOMDP.from_interleaved(sp.csr_array(P2.transpose(1, 0, 2).reshape(6, 2)), R2, d)


def test_models_without_states_actions_or_objectives():
    for S, A, D in ((0, 1, 1), (0, 0, 1), (1, 0, 1), (1, 1, 0), (0, 0, 0)):
        with refused("a model needs a state, an action and an objective"):
            eh.MOMDP(np.ones((A, S, S)), np.ones((S, A, D)), np.full(S, 1 / max(S, 1)))
    with refused(r"transitions must have the shape \[A, S, S\]"):
        eh.MOMDP([], np.ones((2, 0, 1)), [1, 0])


def test_unusable_interleaved_transitions():
    for P, match in (
        (np.ones((6, 2)), "takes a SciPy sparse matrix"),
        ([EYE] * 3, "takes a SciPy sparse matrix"),
        (EYE, r"shape \(2, 2\), but rewards of shape \(2, 3, 2\) need \[S·A, S\] = \(6, 2\)"),
        (sp.csr_array((6, 2), dtype=bool), "must be real numbers, not bool"),
        (sp.csr_array((6, 2), dtype=complex), "must be real numbers, not complex128"),
    ):
        with refused(match):
            eh.MOMDP.from_interleaved(P, R2, D2)


@pytest.mark.skipif(np.finfo(np.longdouble).max <= np.finfo(float).max, reason="no longer floats here")
def test_numbers_too_large_for_a_float():
    huge = np.full(R2.shape, np.longdouble("1e400"))
    with refused("rewards is inf at state 0, action 0, objective 0"):
        eh.MOMDP(P2, huge, D2)


def test_rewards_too_large_to_compute_with():
    with refused("rewards of more than 1e.200 are too large"):
        eh.MOMDP(P2, np.full(R2.shape, -1e201), D2)


# Files


@given(raw_models())
@settings(FUZZ, max_examples=50)
def test_save_and_load_give_the_same_model(tmp_path, raw):
    model = raw.model()
    model.save(tmp_path / "m.npz")
    assert same(eh.MOMDP.load(tmp_path / "m.npz"), model)


def test_awkward_numbers_survive_a_file(tmp_path):
    rewards = np.array([[[0.1 + 0.2, 5e-324, -0.0, 1e200]]])
    model = eh.MOMDP(np.ones((1, 1, 1)), rewards, [1])
    model.save(str(tmp_path / "m"))  # no suffix is added, and none is needed
    loaded = eh.MOMDP.load(str(tmp_path / "m"))
    assert loaded.rewards.tobytes() == rewards.tobytes()


def test_dense_files(tmp_path):
    path = tmp_path / "m.npz"
    np.savez(path, transitions=P2, rewards=R2, initial=D2)
    assert same(eh.MOMDP.load(path), eh.MOMDP(P2, R2, D2))
    np.savez_compressed(path, transitions=P2, rewards=R2.astype(int), initial=D2, comment="by hand")
    assert same(eh.MOMDP.load(path), eh.MOMDP(P2, R2, D2))


def test_files_from_other_machines(tmp_path):
    """Big-endian numbers, small indices, Fortran order."""
    path = tmp_path / "m.npz"
    model = eh.MOMDP(P2, R2, D2)
    np.savez(path, transitions=np.asfortranarray(P2.astype(">f8")), rewards=R2.astype(">f4"), initial=D2)
    assert same(eh.MOMDP.load(path), model)
    parts = sparse_parts()
    for types in (">i8", "i1", "u1", "u8", ">u2"):
        indices = {name: parts[name].astype(types) for name in ("indices", "indptr")}
        np.savez(path, **parts | indices | {"data": parts["data"].astype(">f8")})
        loaded = eh.MOMDP.load(path)
        assert np.array_equal(loaded.transitions.toarray(), model.transitions.toarray())
        assert loaded.transitions.indices.dtype.isnative


def test_files_that_are_no_models(tmp_path):
    path = tmp_path / "m.npz"
    eh.MOMDP(P2, R2, D2).save(path)
    good = path.read_bytes()
    bad = {
        "truncated": good[: len(good) // 2],
        "without its end": good[:-1],
        "empty": b"",
        "random": np.random.default_rng(0).bytes(1000),
        "a text": b"transitions: [[1]]",
        "an empty zip": b"PK\x05\x06" + bytes(18),
        "only a magic number": b"PK\x03\x04",
        "a pickle": b"\x80\x04K\x01.",
        "a broken array": b"\x93NUMPY\x01\x00",
    }
    for what, content in bad.items():
        path.write_bytes(content)
        with pytest.raises(eh.InputError) as caught:
            eh.MOMDP.load(path)
        assert str(path) in str(caught.value), what


def test_a_single_array_is_no_model(tmp_path):
    np.save(tmp_path / "m.npy", R2)
    with refused("is a single array; a model file is an .npz of several named arrays"):
        eh.MOMDP.load(tmp_path / "m.npy")


def test_files_that_are_not_there(tmp_path):
    with refused("there is no file .*nothing.npz"):
        eh.MOMDP.load(tmp_path / "nothing.npz")
    with refused("there is no file"):
        eh.MOMDP.load(tmp_path)
    with refused("there is no file"):
        eh.MOMDP.load("a\0b")


def test_a_name_too_long_for_a_file():
    with refused("there is no file|cannot be read"):
        eh.MOMDP.load("x" * 5000)


def test_pickles_are_never_opened(tmp_path):
    path, trap = tmp_path / "m.npz", tmp_path / "sprung"

    class Trap:
        def __reduce__(self):
            return open, (str(trap), "w")

    np.savez(path, allow_pickle=True, transitions=P2, rewards=np.array([Trap()]), initial=D2)
    with refused("cannot be read as an .npz file of plain arrays .*allow_pickle=False"):
        eh.MOMDP.load(path)
    np.savez(path, allow_pickle=True, transitions=P2, rewards=R2, initial=D2, comment=np.array([Trap()]))
    with refused("cannot be read as an .npz file of plain arrays .*allow_pickle=False"):
        eh.MOMDP.load(path)
    assert not trap.exists()


def test_files_with_arrays_missing(tmp_path):
    path = tmp_path / "m.npz"
    whole = {"transitions": P2, "rewards": R2, "initial": D2}
    for parts, names in ((whole, whole), (sparse_parts(), ("rewards", "initial"))):
        for name in names:
            np.savez(path, **{key: value for key, value in parts.items() if key != name})
            with refused(rf"holds no {name}: a model file needs transitions \[A, S, S\]"):
                eh.MOMDP.load(path)
    for name in ("data", "indices", "indptr"):  # then it is no sparse matrix
        np.savez(path, **{key: value for key, value in sparse_parts().items() if key != name})
        with refused("holds no transitions"):
            eh.MOMDP.load(path)
    np.savez(path, something=1)
    with refused("holds no initial and no rewards and no transitions"):
        eh.MOMDP.load(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("data", np.ones(3)),
        ("data", np.ones((4, 2))),
        ("data", np.ones(8, bool)),
        ("data", np.ones(8, complex)),
        ("data", np.full(8, np.nan)),
        ("data", np.full(8, -1.0)),
        ("data", np.zeros(0)),
        ("data", np.array(["x"] * 8)),
        ("indices", np.full(8, 2)),
        ("indices", np.full(8, -1)),
        ("indices", np.full(8, 2**40)),
        ("indices", np.full(8, 2**63, np.uint64)),
        ("indices", np.full(8, 2**32, np.int64)),
        ("indices", np.zeros(7, int)),
        ("indices", np.zeros(8)),
        ("indices", np.array(0)),
        ("indptr", np.zeros(7, int)),
        ("indptr", np.zeros(3, int)),
        ("indptr", np.zeros(0, int)),
        ("indptr", np.array([0, 2, 3, 4, 5, 7, 9])),
        ("indptr", np.array([1, 2, 3, 4, 5, 7, 8])),
        ("indptr", np.array([0, 8, 3, 4, 5, 7, 8])),
        ("indptr", np.array([0, -8, 3, 4, 5, 7, 8])),
        ("indptr", np.array([0, 2**40, 3, 4, 5, 7, 8])),
        ("indptr", np.array([0, 2, 3, 4, 5, 7, 2**40])),
        ("indptr", np.array([0, 2, 3, 4, 5, 7, -1])),
        ("indptr", np.array([0, 2, 3, 4, 5, 7, 2**63], np.uint64)),
        ("indptr", np.array([0.0, 2, 3, 4, 5, 7, 8])),
        ("rewards", np.zeros((0, 3, 2))),
        ("rewards", np.zeros((2**40, 3, 0))),
        ("rewards", np.zeros((6, 1, 2))),
        ("rewards", np.zeros((2, 3))),
        ("rewards", np.array("x")),
        ("rewards", np.zeros(4, "V8")),
        ("rewards", np.zeros(4, [("a", float), ("b", int)])),
        ("initial", np.array(1.0)),
        ("initial", np.zeros(2)),
        ("initial", np.ones(2**20) / 2**20),
    ],
)
def test_sparse_files_that_do_not_fit_together(tmp_path, name, value):
    parts = sparse_parts()
    assert len(parts["data"]) == 8
    np.savez(tmp_path / "m.npz", **parts | {name: value})
    with pytest.raises(eh.InputError):
        eh.MOMDP.load(tmp_path / "m.npz")


@pytest.mark.parametrize("name", ["data", "indices", "indptr", "rewards", "initial"])
def test_zip_members_that_are_no_arrays(tmp_path, name):
    """NumPy hands these over as bytes."""
    members = {f"{key}.npy": npy(value) for key, value in sparse_parts().items()}
    for wrong in (f"{name}.npy", name):
        others = [(key, value) for key, value in members.items() if key != f"{name}.npy"]
        with pytest.raises(eh.InputError):
            eh.MOMDP.load(write_zip(tmp_path / "m.npz", [*others, (wrong, b"some text")]))


def test_headers_that_promise_too_much(tmp_path):
    """They are refused before any memory is filled."""
    shapes = [(2**31, 2, 2), (2**38, 2), (2**62,), (2**63, 1), (2**32, 2**32), (-1, 1, 1)]
    paths = []
    for shape, compression in itertools.product(shapes, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
        paths.append(tmp_path / f"{len(paths)}.npz")
        with zipfile.ZipFile(paths[-1], "w", compression) as file:
            file.writestr("rewards.npy", header.getvalue() + bytes(64))
            file.writestr("transitions.npy", npy(P2))
            file.writestr("initial.npy", npy(D2))
    code = """
import resource, sys, evenhand as eh
for path in sys.argv[1:]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        print("accepted", eh.MOMDP.load(path))
    except eh.InputError as error:
        print("refused", "cannot be read" in str(error))
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000)
"""
    done = subprocess.run([sys.executable, "-c", code, *paths], check=False, capture_output=True, text=True)
    assert done.stdout.split() == ["refused", "True", "True"] * len(paths), done.stderr


# Fuzz: a model or an InputError, and nothing else


def survives(build):
    """What comes out is a model that can be solved, or nothing."""
    try:
        model = build()
    except eh.InputError:
        return
    assert sound(model)
    if model.S * model.A <= 100 and model.D <= 6 and np.abs(model.rewards).max() < 1e100:
        for question in ({"gamma": 0.9}, {"criterion": "average"}):
            solution = eh.solve(model, "ggf", **question)
            numbers = [*solution.returns, solution.welfare, solution.gap, *solution.weights]
            assert np.isfinite(numbers).all()
            assert solution.gap >= 0


files = st.sampled_from(["dense", "packed", "sparse"])


def file_of(path, raw, form):
    if form == "dense":
        np.savez(path, transitions=raw.transitions, rewards=raw.rewards, initial=raw.initial)
    elif form == "packed":
        np.savez_compressed(path, transitions=raw.transitions, rewards=raw.rewards, initial=raw.initial)
    else:
        raw.model().save(path)


changes = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), min_size=1, max_size=4)


@given(raw_models(max_S=3, max_D=2), files, changes)
@FUZZ
def test_fuzzed_files(tmp_path, raw, form, flips):
    """Bytes of the file as it lies on the disk."""
    path = tmp_path / "m.npz"
    file_of(path, raw, form)
    content = bytearray(path.read_bytes())
    for place, byte in flips:
        content[int(place * len(content))] = byte
    path.write_bytes(content)
    survives(lambda: eh.MOMDP.load(path))


@given(raw_models(max_S=3, max_D=2), files, st.data())
@FUZZ
def test_fuzzed_arrays_in_files(tmp_path, raw, form, data):
    """Bytes of one of the arrays, which the checksums of the file do not protect; its header is tried hardest."""
    path = tmp_path / "m.npz"
    file_of(path, raw, form)
    with zipfile.ZipFile(path) as file:
        members = {name: bytearray(file.read(name)) for name in file.namelist()}
    name = data.draw(st.sampled_from(sorted(members)))
    content = members[name]
    end = data.draw(st.sampled_from([len(content), min(len(content), 80)]))
    for place, byte in data.draw(changes):
        content[int(place * end)] = byte
    if data.draw(st.integers(0, 3)) == 0:
        del content[int(data.draw(st.floats(0, 1)) * len(content)) :]
    write_zip(path, [(key, bytes(value)) for key, value in members.items()])
    survives(lambda: eh.MOMDP.load(path))


numbers = st.one_of(
    st.sampled_from([0.0, 1.0, 0.5, -0.0, -1.0, np.nan, np.inf, -np.inf, 1e-300, 1e300, 5e-324, 1 + 1e-9, 1e-17]),
    st.floats(width=64),
)
shapes = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)
anything = st.one_of(
    hnp.arrays(hnp.scalar_dtypes(), shapes),
    hnp.arrays(hnp.floating_dtypes(sizes=(16, 32, 64)), shapes),
    hnp.arrays(hnp.integer_dtypes(), shapes),
    st.none(),
    st.booleans(),
    numbers,
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(numbers, max_size=3),
    st.lists(st.lists(st.lists(numbers, max_size=2), max_size=2), max_size=2),
    st.builds(lambda n: [sp.eye_array(n, format="csr")] * n, st.integers(0, 3)),
)


@st.composite
def mutated(draw, array):
    """An array with a few entries changed, another type, or another shape."""
    array = np.array(array)
    kind = draw(st.sampled_from(["entries", "entries", "type", "shape", "slice"]))
    if kind == "type":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return array.astype(draw(st.sampled_from(["f2", "f4", ">f8", "i1", "u8", "c16", "?", "O", "U8", "g"])))
    if kind == "shape":
        return array.reshape(draw(st.permutations(array.shape)))
    if kind == "slice":
        return array[: draw(st.integers(0, array.shape[0]))]
    for _ in range(draw(st.integers(1, 3))):
        array[tuple(draw(st.integers(0, n - 1)) for n in array.shape)] = draw(numbers)
    return array


@given(raw_models(max_S=3, max_D=2), st.sets(st.sampled_from(range(3)), min_size=1), st.data())
@FUZZ
def test_fuzzed_models(raw, which, data):
    arrays = [data.draw(mutated(array)) if k in which else array for k, array in enumerate(raw)]
    survives(lambda: eh.MOMDP(*arrays))


@given(raw_models(max_S=3, max_D=2), st.sets(st.sampled_from(range(3)), min_size=1), st.data())
@FUZZ
def test_models_of_anything(tmp_path, raw, which, data):
    arrays = [data.draw(anything) if k in which else array for k, array in enumerate(raw)]
    with unchecked():
        survives(lambda: eh.MOMDP(*arrays))
    if all(isinstance(array, np.ndarray) for array in arrays):
        np.savez(tmp_path / "m.npz", transitions=arrays[0], rewards=arrays[1], initial=arrays[2])
        survives(lambda: eh.MOMDP.load(tmp_path / "m.npz"))


@given(raw_models(max_S=3, max_D=2), st.sampled_from(["data", "indices", "indptr"]), st.data())
@FUZZ
def test_fuzzed_sparse_files(tmp_path, raw, name, data):
    """Numbers of the sparse matrix's own arrays."""
    P = raw.model().transitions
    parts = {"data": P.data.copy(), "indices": P.indices.copy(), "indptr": P.indptr.copy()}
    if data.draw(st.booleans()):
        parts[name] = data.draw(mutated(parts[name]) if name == "data" else hnp.arrays(hnp.integer_dtypes(), shapes))
    else:
        wild = st.sampled_from([-1, 0, 1, 2, 3, 100, 2**31 - 1, -(2**31)])
        for _ in range(data.draw(st.integers(1, 3))):
            part = parts[name]
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(wild)
    assume(parts[name].dtype != object)
    np.savez(tmp_path / "m.npz", **parts, rewards=raw.rewards, initial=raw.initial)
    survives(lambda: eh.MOMDP.load(tmp_path / "m.npz"))


@pytest.mark.parametrize("size", [1e150, 1e300, 1e308])
def test_rewards_of_any_size_have_an_answer(size):
    """Or a clear refusal; squares and spans of such numbers overflow."""
    raw = small(KINDS[0], 0, D=2)
    rewards = np.random.default_rng(0).uniform(-1, 1, raw.rewards.shape) * size
    for question in ({"gamma": 0.9}, {"criterion": "average"}):
        try:
            solution = eh.solve(eh.MOMDP(raw.transitions, rewards, raw.initial), "ggf", **question)
        except eh.InputError:
            continue
        assert np.isfinite([*solution.returns, solution.welfare, solution.gap]).all()


# Structure, against the definitions


def successors(raw, s, a):
    return set(np.flatnonzero(raw.transitions[a, s]))


def naive_reachable(raw):
    S, A, _ = raw.sizes
    found, new = set(), set(np.flatnonzero(raw.initial))
    while new:
        found |= new
        new = set().union(*(successors(raw, s, a) for s in new for a in range(A))) - found
    return [s in found for s in range(S)]


def naive_end_components(raw, states):
    """The maximal sets C in which every state has actions that stay in C, and by these reaches all of C."""
    A = raw.sizes[1]
    ends = []
    for size in range(len(states), 0, -1):
        for C in map(set, itertools.combinations(states, size)):
            if any(larger >= C for larger in ends):
                continue
            stay = {s: [a for a in range(A) if successors(raw, s, a) <= C] for s in C}
            if not all(stay.values()):
                continue

            def reach(s, stay=stay):
                found, new = set(), {s}
                while new:
                    found |= new
                    new = set().union(*(successors(raw, t, a) for t in new for a in stay[t])) - found
                return found

            # s alone is reached by staying there
            if all(reach(s) == C for s in C):
                ends.append(C)
    return ends


def check_structure(raw):
    S, A, _ = raw.sizes
    model = raw.model()
    reachable = naive_reachable(raw)
    assert model.reachable.tolist() == reachable
    ends = naive_end_components(raw, range(S))
    labels, allowed, count = model.end_components
    assert count == len(ends)
    assert {frozenset(np.flatnonzero(labels == c)) for c in range(count)} == set(map(frozenset, ends))
    assert (labels[labels < 0] == -1).all()
    for s, a in itertools.product(range(S), range(A)):
        own = next((C for C in ends if s in C), set())
        assert allowed[s, a] == (s in own and successors(raw, s, a) <= own)
    inside = naive_end_components(raw, np.flatnonzero(reachable))
    assert model.weakly_communicating == (len(inside) == 1)
    part = model.restricted_to(model.reachable)
    kept = np.flatnonzero(reachable)
    assert np.array_equal(part.rewards, raw.rewards[kept])
    assert part.initial == pytest.approx(raw.initial[kept], abs=1e-15)
    dense = raw.transitions[:, kept][:, :, kept].transpose(1, 0, 2).reshape(-1, len(kept))
    assert part.transitions.toarray() == pytest.approx(dense, abs=1e-15)
    assert part.reachable.all()
    assert sound(part)


@given(raw_models(max_S=5))
@FAST
def test_structure_of_small_models(raw):
    check_structure(raw)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_structure_of_random_models(kind, seed):
    check_structure(small(kind, seed))


def test_a_restriction_that_can_be_left_is_refused():
    with refused("not to one"):
        eh.MOMDP(P2, R2, [1, 0]).restricted_to(np.array([True, False]))


@given(raw_models(), st.integers(0, 2**32 - 1))
@FAST
def test_chains_under_policies(raw, seed):
    S, A, _ = raw.sizes
    rng = np.random.default_rng(seed)
    model = raw.model()
    stochastic = rng.dirichlet(np.ones(A), S) * (rng.random((S, A)) < 0.7)
    stochastic[:, 0] += 1 - stochastic.sum(axis=1)
    actions = rng.integers(A, size=S)
    before, given_actions = stochastic.copy(), actions.copy()
    P, R = model.under(stochastic)
    dense = chain_of(raw, stochastic)
    assert P.toarray() == pytest.approx(dense[0], abs=1e-14)
    assert pytest.approx(dense[1], abs=1e-13) == R
    assert model.under(np.asfortranarray(stochastic))[0].toarray() == pytest.approx(dense[0], abs=1e-14)
    assert model.under_deterministic(actions).toarray() == pytest.approx(
        chain_of(raw, np.eye(A)[actions])[0], abs=1e-14
    )
    assert np.array_equal(stochastic, before)
    assert np.array_equal(actions, given_actions)
    assert same(model, raw.model())
