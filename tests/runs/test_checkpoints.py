"""Checkpoints: the same bits come back, whatever happens in between."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenhand.errors import InputError
from evenhand.runs import (
    DiskFull,
    load_newest,
    newest_record,
    save_checkpoint,
)
from processes import line_from, never, python, tell

# ---------------------------------------------------------------------------------------------- trees that come back


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclass
class Node:
    value: Any
    rest: Any


jax.tree_util.register_dataclass(Node, ["value", "rest"], [])

DTYPES = [
    *(bool, np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn),
]
IN_JAX = [np.dtype(dtype) for dtype in DTYPES if jax.dtypes.canonicalize_dtype(dtype) == dtype]


@st.composite
def arrays(draw: st.DrawFn) -> Any:
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(0, 3), max_size=3)))
    size = int(np.prod(shape)) * dtype.itemsize
    # Any bits at all: not-a-numbers, denormals and negative zeros have to come back as they were.
    bits = np.random.default_rng(draw(st.integers(0, 2**32))).integers(
        0, 2 if dtype.kind == "b" else 256, size, np.uint8
    )
    array = bits.view(dtype).reshape(shape)
    kind = draw(st.sampled_from(["numpy", "jax", "fortran", "scalar"]))
    if kind == "jax" and dtype in IN_JAX:
        return jnp.array(array)
    if kind == "fortran":
        return np.asfortranarray(array)
    return array[()] if kind == "scalar" and not shape else array


def keys() -> st.SearchStrategy[Any]:
    return st.builds(
        lambda seed, implementation, n: jax.random.split(jax.random.key(seed, impl=implementation), n),
        *(st.integers(0, 1000), st.sampled_from(["threefry2x32", "rbg"]), st.integers(1, 3)),
    )


def trees() -> st.SearchStrategy[Any]:
    numbers = st.one_of(st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats())
    return st.recursive(
        st.one_of(arrays(), keys(), numbers, st.none()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.lists(inner, max_size=3).map(tuple),
            st.dictionaries(st.text(max_size=4), inner, max_size=3),
            st.builds(Pair, inner, inner),
            st.builds(Node, inner, inner),
        ),
        max_leaves=8,
    )


def bits(leaf: Any) -> tuple[Any, ...]:
    """All there is to know of a leaf."""
    if hasattr(leaf, "dtype") and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return ("key", str(leaf.dtype), leaf.shape, np.asarray(jax.random.key_data(leaf)).tobytes())
    array = np.asarray(leaf)
    return (isinstance(leaf, jax.Array), type(leaf), array.dtype, array.shape, array.tobytes())


def assert_same(one: Any, other: Any) -> None:
    assert jax.tree_util.tree_structure(one) == jax.tree_util.tree_structure(other)
    for a, b in zip(jax.tree_util.tree_leaves(one), jax.tree_util.tree_leaves(other), strict=True):
        assert bits(a) == bits(b)


@given(tree=trees(), step=st.integers(0, 10**13))
@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_same_bits_in_same_bits_out(tmp_path: Path, tree: Any, step: int) -> None:
    first = save_checkpoint(tmp_path / "a", step, tree, {"note": "ü"}, keep=1)
    second = save_checkpoint(tmp_path / "b", step, tree, {"note": "ü"}, keep=1)
    for name in ("state.safetensors", "meta.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    loaded = load_newest(tmp_path / "a", tree, never)
    assert loaded is not None
    assert (loaded.step, loaded.extra, loaded.path) == (step, {"note": "ü"}, first)
    assert_same(tree, loaded.tree)
    shutil.rmtree(tmp_path / "a")
    shutil.rmtree(tmp_path / "b")


def test_shapes_alone_are_template_enough(tmp_path: Path) -> None:
    def start() -> dict[str, Any]:
        return {"key": jax.random.key(3), "w": jnp.ones((2, 3), jnp.bfloat16)}

    save_checkpoint(tmp_path, 5, start())
    loaded = load_newest(tmp_path, jax.eval_shape(start), never)
    assert loaded is not None
    assert_same(start(), loaded.tree)


def test_what_is_loaded_is_free_to_be_changed_and_donated(tmp_path: Path) -> None:
    tree = {"host": np.arange(4.0), "device": jnp.arange(4.0)}
    save_checkpoint(tmp_path, 1, tree)
    for _ in range(2):
        loaded = load_newest(tmp_path, tree, never)
        assert loaded is not None
        assert_same(tree, loaded.tree)
        loaded.tree["host"][:] = 9
        jax.jit(lambda x: x + 1, donate_argnums=0)(loaded.tree["device"])


@pytest.mark.parametrize(
    ("like", "complaint"),
    [
        ({"w": np.zeros((3, 2)), "n": 1}, r"\['w'\] is float64\[2,3\], expected float64\[3,2\]\.$"),
        ({"w": np.zeros((2, 3), np.float32), "n": 1}, r"\['w'\] is float64\[2,3\], expected float32\[2,3\]"),
        ({"w": np.zeros((2, 3))}, r"\['n'\] is int64\[\], expected none of that name"),
        ({"w": np.zeros((2, 3)), "n": 1, "m": 2}, r"\['m'\] is missing, expected int64\[\]"),
        ([np.zeros((2, 3)), 1], r"\[0\] is missing, expected float64\[2,3\] \(and 3 more differ\)"),
        ({"w": np.zeros((2, 3)), "n": jax.random.key(0)}, r"\['n'\] is int64\[\], expected key<fry>\[\]"),
    ],
)
def test_another_structure_is_refused(tmp_path: Path, like: Any, complaint: str) -> None:
    save_checkpoint(tmp_path, 3, {"w": np.zeros((2, 3)), "n": 1})
    with pytest.raises(InputError, match=f"checkpoint step-000000000003 does not fit: {complaint}"):
        load_newest(tmp_path, like, never)


def test_keys_of_another_kind_are_refused(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 3, jax.random.key(0, impl="rbg"))
    with pytest.raises(InputError, match=r"the tree is key<rbg>\[\], expected key<fry>\[\]"):
        load_newest(tmp_path, jax.random.key(0), never)


def test_64_bits_are_never_cut_silently(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 3, np.arange(3))
    with pytest.raises(InputError, match="jax_enable_x64"):
        load_newest(tmp_path, jax.ShapeDtypeStruct((3,), np.int64), never)


@pytest.mark.parametrize("leaf", ["text", print, np.array(["text"]), np.array([None]), np.zeros(2, np.longdouble)])
def test_only_numbers_are_saved(tmp_path: Path, leaf: Any) -> None:
    with pytest.raises(InputError, match="saved"):
        save_checkpoint(tmp_path / "new", 0, {"a": leaf})
    assert not (tmp_path / "new").exists()


def test_extra_comes_back_as_json(tmp_path: Path) -> None:
    extra = {"best": -np.inf, "lost": float("nan"), "mean": np.float32(0.5), "v": np.arange(2), 10: 1, 9: (2,)}
    save_checkpoint(tmp_path, 0, (), extra)
    record = newest_record(tmp_path, never)
    assert record is not None
    assert np.isnan(record.extra.pop("lost"))
    assert record.extra == {"best": -np.inf, "mean": 0.5, "v": [0, 1], "10": 1, "9": [2]}
    with pytest.raises(InputError, match="JSON"):
        save_checkpoint(tmp_path, 1, (), {"f": print})


# ---------------------------------------------------------------------------------------------- which ones are kept


def steps_in(folder: Path) -> list[int]:
    """The checkpoints in a folder, which holds nothing else."""
    return sorted(int(entry.name.removeprefix("step-")) for entry in folder.iterdir())


def test_keeps_the_newest(tmp_path: Path) -> None:
    for step in range(5):
        save_checkpoint(tmp_path, step, step, keep=3)
    assert steps_in(tmp_path) == [2, 3, 4]
    save_checkpoint(tmp_path, 5, 5, keep=1)
    assert steps_in(tmp_path) == [5]


def test_no_folder_no_checkpoint(tmp_path: Path) -> None:
    assert load_newest(tmp_path / "none", 0, never) is None
    assert newest_record(tmp_path, never) is None


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    for value in (1, 2):
        save_checkpoint(tmp_path, 7, value)
    assert steps_in(tmp_path) == [7]
    assert load_newest(tmp_path, 0, never).tree == 2  # type: ignore[union-attr]


def test_going_on_from_an_earlier_step_forgets_the_later_ones(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_checkpoint(tmp_path, step, step, keep=5)
    save_checkpoint(tmp_path, 2, 20, keep=1)
    assert steps_in(tmp_path) == [2]


def test_leftovers_are_neither_loaded_nor_left(tmp_path: Path) -> None:
    complete = save_checkpoint(tmp_path, 1, 1)
    shutil.copytree(complete, tmp_path / ".step-000000000002.writing")
    shutil.copytree(complete, tmp_path / ".step-000000000000.removing")
    shutil.copytree(complete, tmp_path / ".step-000000000001.replaced")
    assert load_newest(tmp_path, 0, never).step == 1  # type: ignore[union-attr]
    save_checkpoint(tmp_path, 3, 3)
    assert steps_in(tmp_path) == [1, 3]


def test_killed_between_the_two_renames(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, 1, 1).rename(tmp_path / ".step-000000000001.replaced")
    assert load_newest(tmp_path, 0, never).tree == 1  # type: ignore[union-attr]
    save_checkpoint(tmp_path, 2, 2)
    assert steps_in(tmp_path) == [1, 2]


def test_cleaning_up_does_not_follow_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    save_checkpoint(outside, 1, 1)
    folder = tmp_path / "inside"
    folder.mkdir()
    for name in (".step-000000000001.removing", "step-000000000001", "step-000000000002"):
        (folder / name).symlink_to(outside, target_is_directory=True)
    save_checkpoint(folder, 2, 2, keep=1)
    assert steps_in(folder) == [2]
    assert steps_in(outside) == [1]


# ---------------------------------------------------------------------------------------------- damage


def two_checkpoints(folder: Path) -> tuple[dict[str, Any], Path]:
    tree = {"w": np.arange(50, dtype=np.float32), "key": jax.random.key(1)}
    save_checkpoint(folder, 1, tree, {"score": 1.5})
    return tree, save_checkpoint(folder, 2, tree, {"score": 2.5})


def assert_falls_back(folder: Path, tree: Any) -> str:
    said: list[str] = []
    loaded = load_newest(folder, tree, said.append)
    assert loaded is not None
    assert (loaded.step, loaded.extra) == (1, {"score": 1.5})
    assert_same(tree, loaded.tree)
    [message] = said
    assert message.startswith("checkpoint step-000000000002 is damaged (")
    assert message.endswith("); going on from step-000000000001.")
    return message


@pytest.mark.parametrize("name", ["state.safetensors", "meta.json"])
def test_any_flipped_bit_is_noticed(tmp_path: Path, name: str) -> None:
    tree, newest = two_checkpoints(tmp_path)
    good = (newest / name).read_bytes()
    chance = random.Random(0)
    for position in chance.sample(range(len(good)), 150):
        bad = bytearray(good)
        bad[position] ^= 1 << chance.randrange(8)
        (newest / name).write_bytes(bad)
        assert_falls_back(tmp_path, tree)
    (newest / name).write_bytes(good)
    assert load_newest(tmp_path, tree, never).step == 2  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["state.safetensors", "meta.json"])
def test_truncated_or_missing_files_are_noticed(tmp_path: Path, name: str) -> None:
    tree, newest = two_checkpoints(tmp_path)
    good = (newest / name).read_bytes()
    for length in (0, 1, 8, len(good) // 2, len(good) - 2):
        (newest / name).write_bytes(good[:length])
        assert_falls_back(tmp_path, tree)
    (newest / name).unlink()
    assert "no such file" in assert_falls_back(tmp_path, tree)
    (newest / name).mkdir()
    assert f"({name} is a folder, not a regular file)" in assert_falls_back(tmp_path, tree)


def test_a_checkpoint_under_a_wrong_name_is_noticed(tmp_path: Path) -> None:
    tree, newest = two_checkpoints(tmp_path)
    shutil.rmtree(newest)
    shutil.copytree(tmp_path / "step-000000000001", newest)
    assert "it is of step 1" in assert_falls_back(tmp_path, tree)


def test_all_damaged(tmp_path: Path) -> None:
    tree, _ = two_checkpoints(tmp_path)
    for step in (1, 2):
        (tmp_path / f"step-{step:012d}" / "meta.json").write_bytes(b"{}")
    said: list[str] = []
    assert load_newest(tmp_path, tree, said.append) is None
    assert [message.endswith("there is no earlier one that is whole.") for message in said] == [True, True]
    with pytest.warns(UserWarning, match="damaged"):
        assert newest_record(tmp_path) is None


def test_a_damaged_newest_one_is_never_kept_instead_of_what_is_saved_next(tmp_path: Path) -> None:
    tree, newest = two_checkpoints(tmp_path)
    (newest / "meta.json").write_bytes(b"")
    save_checkpoint(tmp_path, 1, tree, keep=1)
    assert steps_in(tmp_path) == [1]


def test_a_checkpoint_of_a_newer_version_is_not_called_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr("evenhand.runs.checkpoint.SCHEMA", 2)
        save_checkpoint(tmp_path, 1, 1)
    with pytest.raises(InputError, match="newer version of evenhand"):
        load_newest(tmp_path, 1, never)


def test_what_may_not_be_read_is_not_called_damaged(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, into which only its owner may look
        Path(folder).chmod(0o755)
        _, newest = two_checkpoints(Path(folder))
        (newest / "meta.json").chmod(0)
        root = os.geteuid() == 0
        if root:  # who may read everything: be somebody else for a moment
            os.seteuid(65534)
        try:
            with pytest.raises(PermissionError) as refused:
                newest_record(Path(folder), never)
        finally:
            if root:
                os.seteuid(0)
    assert str(refused.value.filename).endswith("meta.json")


# ---------------------------------------------------------------------------------------------- kill -9


SAVES_FOR_EVER = """
    import itertools, json, os, signal, sys, time
    import jax
    import numpy as np
    from evenhand.runs import load_newest, save_checkpoint

    def tree(step):
        return {"step": step, "a": np.full(20_000, step), "b": [np.full(300, step, np.float32) for _ in range(5)]}

    def save_until_killed(folder, keep):
        newest = load_newest(folder, tree(0), lambda message: os.write(1, f"damaged {message}\\n".encode()))
        # The first step is one that is there already: it is put aside and replaced.
        for step in itertools.count(newest.step if newest else 0):
            save_checkpoint(folder, step, tree(step), {"step": step}, keep=keep)

    # One interpreter that forks: importing JAX for each of the victims would take a second.
    for folder, keep, seconds in map(json.loads, sys.stdin):
        load_newest(folder, tree(0))  # all that a child needs is there
        child = os.fork()
        if child == 0:
            save_until_killed(folder, keep)
        sys.stdin.readline() if seconds is None else time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print("killed", flush=True)
"""


@pytest.fixture(scope="module")
def saver() -> Iterator[subprocess.Popen[str]]:
    """It is told a folder, how many checkpoints to keep, and when to kill who saves there: None if it is told later."""
    with python(SAVES_FOR_EVER) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 2])
def test_killed_at_any_moment_it_goes_on(saver: subprocess.Popen[str], tmp_path: Path, keep: int) -> None:
    like = {"step": 0, "a": np.zeros(20_000, int), "b": [np.zeros(300, np.float32) for _ in range(5)]}
    chance = random.Random(keep)
    last = leftovers = 0
    save_checkpoint(tmp_path, 0, like, {"step": 0})
    for kills in range(600):  # a busy machine needs more of them, and more time for each
        if kills >= 60 and last > 5 and leftovers > 5:
            break
        tell(saver, json.dumps([str(tmp_path), keep, chance.uniform(0.002, 0.06) * (1 + kills // 60)]))
        assert line_from(saver) == "killed"
        leftovers += any(entry.name.startswith(".") for entry in tmp_path.iterdir())
        loaded = load_newest(tmp_path, like, never)
        assert loaded is not None
        assert loaded.step >= last
        last = loaded.step
        assert loaded.extra == {"step": last}
        assert all((np.asarray(leaf) == last).all() for leaf in jax.tree_util.tree_leaves(loaded.tree))
        assert len([entry for entry in tmp_path.iterdir() if not entry.name.startswith(".")]) <= keep + 1
    assert last > 5
    assert leftovers > 5, "the kills are meant to hit a process that is writing"
    save_checkpoint(tmp_path, last + 1, like, keep=keep)
    assert len(steps_in(tmp_path)) == keep


KILLED_AT_EVERY_CALL = """
    import json, os, shutil, signal, sys
    from pathlib import Path
    import numpy as np
    from evenhand.runs import load_newest, save_checkpoint

    folder = Path(sys.argv[1])

    def die_at(number):
        calls = iter(range(1, 1000))

        def dying(real):
            def call(*arguments, **options):
                if next(calls) == number:
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(*arguments, **options)

            return call

        for name in ("mkdir", "fsync", "rename", "unlink", "rmdir"):
            setattr(os, name, dying(getattr(os, name)))

    found = []
    for again in (False, True):  # a step of its own, or one that is there already
        for number in range(1, 100):
            shutil.rmtree(folder, ignore_errors=True)
            save_checkpoint(folder, 1, np.full(3, 1.0))
            save_checkpoint(folder, 2, np.full(3, 2.0))
            child = os.fork()
            if child == 0:
                die_at(number)
                save_checkpoint(folder, 2 if again else 3, np.full(3, 4.0), keep=1)
                os._exit(0)
            killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
            said = []
            loaded = load_newest(folder, np.zeros(3), said.append)
            save_checkpoint(folder, 5, np.zeros(3), keep=1)
            left = [entry.name for entry in folder.iterdir()]
            found.append([again, killed, loaded.step, loaded.tree.tolist(), said, left])
            if not killed:
                break
    print(json.dumps(found))
"""


def test_killed_before_every_single_call(tmp_path: Path) -> None:
    with python(KILLED_AT_EVERY_CALL, tmp_path / "run") as process:
        found = json.loads(line_from(process))
    for again in (False, True):
        outcomes = [outcome for outcome in found if outcome[0] == again]
        assert len(outcomes) > 10
        assert [killed for _, killed, *_ in outcomes] == [True] * (len(outcomes) - 1) + [False]
        values = [tree for _, _, _, tree, _, _ in outcomes]
        changed = values.index([4.0] * 3)  # the old one up to some moment, and from then on the new one
        assert values == [[2.0] * 3] * changed + [[4.0] * 3] * (len(values) - changed)
        for _, _, step, tree, said, left in outcomes:
            assert step == (2 if again or tree == [2.0] * 3 else 3)
            assert said == []
            assert left == ["step-000000000005"]


@pytest.mark.slow
def test_reading_while_another_process_saves(saver: subprocess.Popen[str], tmp_path: Path) -> None:
    like = {"step": 0, "a": np.zeros(20_000, int), "b": [np.zeros(300, np.float32) for _ in range(5)]}
    save_checkpoint(tmp_path, 0, like)
    seen = set()
    tell(saver, json.dumps([str(tmp_path), 1, None]))
    while len(seen) <= 10:
        loaded = load_newest(tmp_path, like, never)
        assert loaded is not None
        assert all((np.asarray(leaf) == loaded.step).all() for leaf in jax.tree_util.tree_leaves(loaded.tree))
        seen.add(loaded.step)
    tell(saver, "enough")
    assert line_from(saver) == "killed"


# ---------------------------------------------------------------------------------------------- a full disk


def test_full_disk_is_explained_and_harms_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, step, np.full(9, step))
    real = os.fsync
    calls: list[int] = []

    def fails_at(call: int, number: int) -> None:
        calls.clear()

        def fsync(descriptor: int) -> None:
            calls.append(descriptor)
            if len(calls) == call:
                raise OSError(number, os.strerror(number))
            real(descriptor)

        monkeypatch.setattr(os, "fsync", fsync)

    for call in (1, 2, 3):  # the state, the meta, the folder
        fails_at(call, errno.ENOSPC)
        expected = r"checkpoint step-0{11}3 could not be written: it needs .* kB and .* MB are free in .*resumed"
        with pytest.raises(DiskFull, match=expected):
            save_checkpoint(tmp_path, 3, np.zeros(9), keep=1)
        assert steps_in(tmp_path) == [1, 2]
    fails_at(1, errno.EDQUOT)
    with pytest.raises(DiskFull, match="quota is used up"):
        save_checkpoint(tmp_path, 2, np.zeros(9), keep=1)
    assert steps_in(tmp_path) == [1, 2]
    fails_at(1, errno.EIO)
    with pytest.raises(OSError, match="Input/output") as other:
        save_checkpoint(tmp_path, 3, np.zeros(9))
    assert not isinstance(other.value, DiskFull)
    monkeypatch.undo()
    assert load_newest(tmp_path, np.zeros(9, int), never).step == 2  # type: ignore[union-attr]


ON_A_SMALL_DISK = """
    import json, sys
    from pathlib import Path
    import numpy as np
    sys.path.insert(0, sys.argv[2])
    from small_requests import asked
    from evenhand.runs import DiskFull, Metrics, RunFolder, load_newest, save_checkpoint

    disk = Path(sys.argv[1])
    run = RunFolder.create(disk / "run", asked(steps=9, seeds=[0]))
    said, found = [], {}
    folder = run.checkpoints(0)

    def save(step, size):
        save_checkpoint(folder, step, np.full(size, step), keep=2)

    def refused(name, act):
        try:
            act()
            found[name] = "nothing was raised"
        except DiskFull as error:
            found[name] = str(error)

    with run.locked():
        metrics = Metrics(run.seed_folder(0) / "metrics.parquet", ["a"], said.append)
        metrics.add(1, {"a": 1.0})
        metrics.write()
        save(1, 50_000)
        save(2, 50_000)
        refused("checkpoint", lambda: save(3, 200_000))
        found["after"] = sorted(entry.name for entry in folder.iterdir())
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file:
            while True:
                try:
                    file.write(b"x" * 4096)
                except OSError:
                    break
        for step in range(2, 2000):
            metrics.add(step, {"a": np.sin(step)}, live={"steps/s": 1.0})
        refused("metrics", metrics.write)
        refused("another", lambda: RunFolder.create(disk / "another", asked(seeds=list(range(1000)))))
        run.say("the log never stops a run")
        metrics.close()
        found["files"] = sorted(entry.name.split(".")[0] for entry in run.seed_folder(0).iterdir())
        filler.unlink()
        metrics.write()
        save(3, 50_000)
        found["step"] = load_newest(folder, np.full(50_000, 0)).step
    found["said"] = said
    print(json.dumps(found))
"""


def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    mount = ["unshare", "-Urm", "sh", "-c", 'mount -t tmpfs -o size=1500k none "$0" && exec "$@"', str(tmp_path)]
    possible = (
        shutil.which("unshare") and not subprocess.run([*mount, "true"], capture_output=True, check=False).returncode
    )
    if not possible and "CI" not in os.environ:
        pytest.skip("a small disk cannot be mounted here")
    script = [
        sys.executable,
        "-c",
        textwrap.dedent(ON_A_SMALL_DISK),
        str(tmp_path),
        str(Path(__file__).parents[1] / "helpers"),
    ]
    done = subprocess.run([*mount, *script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["checkpoint"].startswith("checkpoint step-000000000003 could not be written: it needs 1.6 MB and ")
    assert found["after"] == ["step-000000000001", "step-000000000002"]
    assert found["metrics"].startswith("metrics.parquet could not be written: it needs ")
    assert "0.0 kB are free" in found["metrics"]
    assert found["another"].startswith("run.json could not be written")
    assert found["files"] == ["checkpoints", "events", "metrics"]
    assert found["step"] == 3
    [complaint] = found["said"]
    assert complaint.startswith("TensorBoard's curves cannot be written ([Errno 28]")
