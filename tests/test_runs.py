"""Run folders, checkpoints and metrics: the same bits come back, whatever happens in between."""

from __future__ import annotations

import errno
import json
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenhand.errors import InputError
from evenhand.runs import (
    DiskFull,
    Metrics,
    RunFolder,
    load_newest,
    new_run_path,
    newest_record,
    save_checkpoint,
    spread,
)
from evenhand.runs.folder import safe_name

REQUEST = {"environment": "species", "algorithm": "ppo", "welfare": "ggf", "steps": 100, "seeds": [0, 7]}


def never(message: str) -> None:
    raise AssertionError(message)


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
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
    assert "is a directory" in assert_falls_back(tmp_path, tree)


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
    _, newest = two_checkpoints(tmp_path)
    (newest / "meta.json").chmod(0)
    if os.access(newest / "meta.json", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(PermissionError):
        newest_record(tmp_path, never)


# ---------------------------------------------------------------------------------------------- kill -9


SAVES_FOR_EVER = """
    import itertools, os, signal, sys, time
    import jax
    import numpy as np
    from evenhand.runs import load_newest, save_checkpoint

    folder, keep = sys.argv[1], int(sys.argv[2])

    def tree(step):
        return {"step": step, "a": np.full(20_000, step), "b": [np.full(300, step, np.float32) for _ in range(5)]}

    load_newest(folder, tree(0))

    def save_until_killed():
        newest = load_newest(folder, tree(0), lambda message: os.write(1, f"damaged {message}\\n".encode()))
        # The first step is one that is there already: it is put aside and replaced.
        for step in itertools.count(newest.step if newest else 0):
            save_checkpoint(folder, step, tree(step), {"step": step}, keep=keep)

    # One interpreter that forks: importing JAX for each of the victims would take a second.
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            save_until_killed()
        time.sleep(float(line))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print("killed", flush=True)
"""


def python(script: str, *arguments: Any, **options: Any) -> subprocess.Popen[str]:
    """Another interpreter that runs a script."""
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **options)


def line_from(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: subprocess.Popen[str], line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


@pytest.mark.slow
@pytest.mark.parametrize("keep", [1, 2])
def test_killed_at_any_moment_it_goes_on(tmp_path: Path, keep: int) -> None:
    like = {"step": 0, "a": np.zeros(20_000, int), "b": [np.zeros(300, np.float32) for _ in range(5)]}
    chance = random.Random(keep)
    last = leftovers = 0
    save_checkpoint(tmp_path, 0, like, {"step": 0})
    with python(SAVES_FOR_EVER, tmp_path, keep) as process:
        for _ in range(60):
            tell(process, str(chance.uniform(0.002, 0.06)))
            assert line_from(process) == "killed"
            leftovers += any(entry.name.startswith(".") for entry in tmp_path.iterdir())
            loaded = load_newest(tmp_path, like, never)
            assert loaded is not None
            assert loaded.step >= last
            last = loaded.step
            assert loaded.extra == {"step": last}
            assert all((np.asarray(leaf) == last).all() for leaf in jax.tree_util.tree_leaves(loaded.tree))
            assert len([entry for entry in tmp_path.iterdir() if not entry.name.startswith(".")]) <= keep + 1
        assert process.stdin is not None
        process.stdin.close()
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
def test_reading_while_another_process_saves(tmp_path: Path) -> None:
    like = {"step": 0, "a": np.zeros(20_000, int), "b": [np.zeros(300, np.float32) for _ in range(5)]}
    save_checkpoint(tmp_path, 0, like)
    seen = set()
    with python(SAVES_FOR_EVER, tmp_path, 1) as process:
        tell(process, "2")
        while not select.select([process.stdout], [], [], 0)[0]:  # it has not been killed yet
            loaded = load_newest(tmp_path, like, never)
            assert loaded is not None
            assert all((np.asarray(leaf) == loaded.step).all() for leaf in jax.tree_util.tree_leaves(loaded.tree))
            seen.add(loaded.step)
        assert line_from(process) == "killed"
        assert process.stdin is not None
        process.stdin.close()
    assert len(seen) > 10


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
    from evenhand.runs import DiskFull, Metrics, RunFolder, load_newest, save_checkpoint

    disk = Path(sys.argv[1])
    run = RunFolder.create(disk / "run", {"steps": 9, "seeds": [0]})
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
        refused("another", lambda: RunFolder.create(disk / "another", {"steps": 9, "seeds": list(range(1000))}))
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
    if not shutil.which("unshare") or subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here")
    script = [sys.executable, "-c", textwrap.dedent(ON_A_SMALL_DISK), str(tmp_path)]
    done = subprocess.run([*mount, *script], capture_output=True, text=True, timeout=120, check=False)
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


# ---------------------------------------------------------------------------------------------- metrics


def row(step: int) -> dict[str, float]:
    return {"loss": float(np.float32(1) / np.float32(step + 1)), **spread("reward", ["otters", "ørn"], [step, -0.0])}


COLUMNS = ["loss", "reward/otters", "reward/ørn", "late"]


def test_metrics_of_an_interrupted_run_are_those_of_an_undisturbed_one(tmp_path: Path) -> None:
    for name in ("whole", "broken"):
        (tmp_path / name).mkdir()
    with Metrics(tmp_path / "whole" / "metrics.parquet", COLUMNS, never) as whole:
        for step in range(100):
            whole.add(step, row(step), live={"steps/s": 1.0})
        whole.write()
    with Metrics(tmp_path / "broken" / "metrics.parquet", COLUMNS, never) as broken:
        for step in range(60):
            broken.add(step, row(step), live={"steps/s": 2.0})
        broken.write()
        broken.add(60, row(60))  # never written
    with Metrics(tmp_path / "broken" / "metrics.parquet", COLUMNS, never) as resumed:
        resumed.resume_at(49)
        for step in range(50, 100):
            resumed.add(step, row(step), live={"steps/s": 3.0})
        resumed.write()
    files = [tmp_path / name / "metrics.parquet" for name in ("whole", "broken")]
    assert files[0].read_bytes() == files[1].read_bytes()
    table = pl.read_parquet(files[0])
    assert table.columns == ["step", *COLUMNS]
    assert table["step"].to_list() == list(range(100))
    assert table["late"].null_count() == 100
    assert np.signbit(table["reward/ørn"].to_numpy()).all()


def test_metrics_keep_every_number(tmp_path: Path) -> None:
    values = [float("nan"), -np.inf, 5e-324, np.float32(0.1), jnp.float32(0.1), np.int64(3), True, 1 / 3]
    with Metrics(tmp_path / "m.parquet", ["x"], never, live=False) as metrics:
        metrics.extend(np.arange(8), {"x": np.array([float(value) for value in values])})
        metrics.add(10, {})
        metrics.write()
    again = Metrics(tmp_path / "m.parquet", ["x"], never, live=False)
    again.resume_at(10)
    assert [repr(entry["x"]) for entry in again.rows] == [*(repr(float(value)) for value in values), "None"]
    assert [entry["step"] for entry in again.rows] == [*range(8), 10]
    assert list(tmp_path.iterdir()) == [tmp_path / "m.parquet"]


def test_metrics_without_rows(tmp_path: Path) -> None:
    for _ in range(2):
        with Metrics(tmp_path / "m.parquet", ["x"], never) as metrics:
            metrics.resume_at(0)
            assert metrics.rows == []
            metrics.write()


def test_metrics_refuse_what_cannot_be_a_row(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path / "m.parquet", ["x"], never, live=False)
    metrics.add(3, {"x": 1})
    with pytest.raises(InputError, match="no column 'y'; there are x"):
        metrics.add(4, {"y": 1.0})
    with pytest.raises(InputError, match="3 comes after 3"):
        metrics.add(3, {"x": 1.0})
    for columns in (["x", "x"], ["step"]):
        with pytest.raises(InputError, match="must differ"):
            Metrics(tmp_path / "m.parquet", columns)


def test_metrics_that_are_lost_do_not_stop_a_run(tmp_path: Path) -> None:
    file = tmp_path / "metrics.parquet"
    with Metrics(file, COLUMNS, never, live=False) as metrics:
        metrics.resume_at(0)
        metrics.extend(range(50), {"loss": np.linspace(0, 1, 50)})
        metrics.write()
    good = file.read_bytes()

    def complaint(columns: list[str] = COLUMNS) -> str:
        said: list[str] = []
        metrics = Metrics(file, columns, said.append, live=False)
        metrics.resume_at(30)
        metrics.add(31, {columns[0]: 1.0})
        assert len(metrics.rows) == 1
        [message] = said
        assert message.endswith(": the curves of the first 30 steps are lost, the training is not.")
        return message

    for length in (0, 3, len(good) // 2, len(good) - 1):
        file.write_bytes(good[:length])
        assert complaint().startswith("metrics.parquet is damaged (")
    file.write_bytes(b"PAR1" + b"\xff" * 200 + b"PAR1")
    assert complaint().startswith("metrics.parquet is damaged (")
    file.write_bytes(good)
    assert complaint(["other"]).startswith("metrics.parquet has other columns")
    file.unlink()
    assert complaint().startswith("metrics.parquet is missing")


def test_no_flipped_bit_in_metrics_stops_a_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "metrics.parquet"
    with Metrics(file, ["a", "b"], never, live=False) as metrics:
        metrics.extend(range(50), {"a": np.sin(np.arange(50)), "b": np.arange(50)})
        metrics.write()
    good = file.read_bytes()
    chance = random.Random(0)
    for position in range(0, len(good), 3):
        bad = bytearray(good)
        bad[position] ^= 1 << chance.randrange(8)
        file.write_bytes(bad)
        Metrics(file, ["a", "b"], lambda _: None, live=False).resume_at(30)
    capfd.readouterr()  # Polars reports its panics there


def test_starting_again_from_nothing(tmp_path: Path) -> None:
    file = tmp_path / "metrics.parquet"
    for content in (b"", None):
        if content is not None:
            file.write_bytes(content)
        with Metrics(file, ["loss"], never) as metrics:
            metrics.resume_at(-1)
            metrics.add(0, {"loss": 1.0})
            metrics.write()
    assert [event.step for event in events_in(tmp_path) if event.HasField("session_log")] == [0, 0]


def test_two_thousand_rows_are_cheap(tmp_path: Path) -> None:
    columns = [f"c{i}" for i in range(40)]
    metrics = Metrics(tmp_path / "m.parquet", columns, never, live=False)
    metrics.extend(range(2000), {name: np.linspace(0, 1, 2000) for name in columns})
    metrics.write()
    assert (tmp_path / "m.parquet").stat().st_size < 1_000_000


def events_in(folder: Path) -> list[Any]:
    """The events of all event files, as TensorBoard would read them."""
    from tensorboardX.proto.event_pb2 import Event

    events = []
    for file in sorted(folder.glob("events.out.tfevents.*")):
        data = file.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            events.append(Event.FromString(data[12 : 12 + length]))
            data = data[16 + length :]
    return events


def test_live_curves_hide_what_a_resumed_run_does_again(tmp_path: Path) -> None:
    file = tmp_path / "metrics.parquet"
    with Metrics(file, ["loss"], never) as first:
        first.add(10, {"loss": 1.0}, live={"steps/s": 100.0})
        first.add(20, {"loss": 2.0})
        first.write()
    with Metrics(file, ["loss"], never) as second:
        second.resume_at(10)
        second.add(20, {"loss": 3.0})
    events = events_in(tmp_path)
    curves = [(event.step, {value.tag: value.simple_value for value in event.summary.value}) for event in events]
    assert [curve for curve in curves if curve[1]] == [
        (10, {"loss": 1.0, "steps/s": 100.0}),
        (20, {"loss": 2.0}),
        (20, {"loss": 3.0}),
    ]
    [start] = [event for event in events if event.HasField("session_log")]
    assert start.step == 11, "TensorBoard hides what has this step or a later one"


def test_live_curves_that_fail_do_not_stop_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setitem(sys.modules, "tensorboardX.record_writer", None)
    with Metrics(tmp_path / "metrics.parquet", ["loss"], said.append) as metrics:
        for step in range(3):
            metrics.add(step, {"loss": 1.0})
        metrics.write()
    [message] = said
    assert "training goes on without them" in message
    assert len(pl.read_parquet(tmp_path / "metrics.parquet")) == 3


# ---------------------------------------------------------------------------------------------- run folders


def test_a_run_is_found_again(tmp_path: Path) -> None:
    path = tmp_path / "a run with spaces" / "und Ümläuten 🦦"
    request = REQUEST | {"welfare": {"weights": (0.7, 0.3)}, "name": "Ü", "ent": np.float32(0.5)}
    made = RunFolder.create(path, request)
    found = RunFolder.open(str(path))
    assert made.request == found.request == REQUEST | {"welfare": {"weights": [0.7, 0.3]}, "name": "Ü", "ent": 0.5}
    assert found.seeds == (0, 7)
    assert found.steps == 100
    assert json.loads((path / "run.json").read_bytes())["schema"] == 1
    found.request["steps"] = 5
    assert found.request["steps"] == 100
    assert found.seed_folder(7) == path / "seed-7"
    assert (path / "seed-7").is_dir()


def test_progress_is_that_of_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    assert [(seed.seed, seed.step, seed.finished) for seed in run.status()] == [(0, 0, False), (7, 0, False)]
    for step in (50, 100):
        save_checkpoint(run.checkpoints(7), step, ())
    assert run.finished(7)
    assert not run.finished(0)
    (run.checkpoints(7) / "step-000000000100" / "state.safetensors").write_bytes(b"")
    assert run.progress(7) == (7, 50, 100)
    with pytest.raises(InputError, match="has no seed 1; its seeds are 0, 7"):
        run.progress(1)


def test_create_refuses_what_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "my run"
    RunFolder.create(path, REQUEST)
    with pytest.raises(InputError, match=r"is a run already: go on with `evenhand resume '.*/my run'`, or choose"):
        RunFolder.create(path, REQUEST)
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.tex").write_text("mine")
    with pytest.raises(InputError, match="is not empty and not a run: choose another name"):
        RunFolder.create(other, REQUEST)
    assert [entry.name for entry in other.iterdir()] == ["thesis.tex"]
    with pytest.raises(InputError, match="is not a folder"):
        RunFolder.create(other / "thesis.tex", REQUEST)
    with pytest.raises(InputError, match=r"cannot be made: file exists \(.*/thesis\.tex\)"):
        RunFolder.create(other / "thesis.tex" / "run", REQUEST)
    with pytest.raises(InputError, match="file name too long"):
        RunFolder.create(tmp_path / ("x" * 300), REQUEST)
    with pytest.raises(InputError, match="zero character"):
        RunFolder.create("a\0b", REQUEST)


def test_create_goes_on_where_a_creation_was_interrupted(tmp_path: Path) -> None:
    (tmp_path / "lock").touch()
    (tmp_path / ".run.json.writing").write_text('{"sche')
    RunFolder.create(tmp_path, REQUEST)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["lock", "run.json"]


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"steps": 0}, '"steps" of a run must be a whole number of at least 1, not 0'),
        ({"steps": 1e6}, '"steps"'),
        ({"steps": True}, '"steps"'),
        ({"seeds": []}, '"seeds" of a run must be a list'),
        ({"seeds": [-1]}, '"seeds"'),
        ({"seeds": ["../../etc"]}, '"seeds"'),
        ({"seeds": [1, 1]}, "must differ"),
        ({"rate": float("inf")}, "JSON"),
        ({"activation": print}, "JSON"),
        ({"schema": 1}, '"schema"'),
    ],
)
def test_create_refuses_what_could_not_be_resumed(tmp_path: Path, change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        RunFolder.create(tmp_path / "run", REQUEST | change)
    assert not (tmp_path / "run").exists()


def test_open_explains_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^nowhere does not exist\.$"):
        RunFolder.open("nowhere")
    for name in ("species-ppo-1", "species-dqn-1"):
        RunFolder.create(Path("runs") / name, REQUEST)
    with pytest.raises(InputError, match=r"species-ppo does not exist; did you mean runs/species-ppo-1 or runs/spec"):
        RunFolder.open("species-ppo")
    with pytest.raises(InputError, match=r"runs is not a run: it has no run\.json"):
        RunFolder.open("runs")
    with pytest.raises(InputError, match="is a file, not a run folder"):
        RunFolder.open("runs/species-ppo-1/run.json")
    file = Path("runs/species-ppo-1/run.json")
    for content, complaint in [
        ("{", "is damaged: it is not JSON"),
        ("[" * 100_000, "is damaged: it is not JSON"),
        ("[]", "not a run"),
        ("{}", "not a run"),
        ('{"schema": 99}', r"newer version of evenhand \(run folder version 99, this one reads up to 1\): update"),
        ('{"schema": 1, "steps": 5, "seeds": ["../x"]}', '"seeds"'),
    ]:
        file.write_text(content)
        with pytest.raises(InputError, match=complaint):
            RunFolder.open(file.parent)


def test_nothing_leads_out_of_the_run(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    outside = tmp_path / "outside"
    outside.mkdir()
    (run.path / "seed-0").symlink_to(outside, target_is_directory=True)
    for act in (run.seed_folder, run.checkpoints, run.progress):
        with pytest.raises(InputError, match="leads out of the run folder"):
            act(0)
    (run.seed_folder(7) / "checkpoints").symlink_to(outside, target_is_directory=True)
    with pytest.raises(InputError, match="leads out"):
        run.checkpoints(7)
    with pytest.raises(InputError, match="leads out"):
        run.write_json(run.path / ".." / "x.json", {})
    assert run.evaluation("../../x y").relative_to(run.path) == Path("evaluations/x-y.json")
    (run.path / "lock").unlink()
    (run.path / "lock").symlink_to(outside / "lock")
    with pytest.raises(InputError, match="lock"), run.locked():
        pass
    assert list(outside.iterdir()) == []


def test_a_run_that_is_itself_a_link_works(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "real", REQUEST)
    (tmp_path / "link").symlink_to("real", target_is_directory=True)
    run = RunFolder.open(tmp_path / "link")
    save_checkpoint(run.checkpoints(0), 100, ())
    assert run.finished(0)


def test_versions_and_log_are_added_to(tmp_path: Path) -> None:
    heard: list[str] = []
    run = RunFolder.create(tmp_path / "run", REQUEST, heard.append)
    run.record_versions()
    run.record_versions()
    entries = json.loads((run.path / "versions.json").read_bytes())
    assert len(entries) == 2
    assert entries[0]["packages"]["numpy"] == np.__version__
    (run.path / "versions.json").write_text("[")
    run.record_versions()
    run.say("two\nlines")
    assert heard == ["versions.json is damaged; it is begun anew.", "two\nlines"]
    lines = (run.path / "log.txt").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["versions.json is damaged; it is begun anew.", "two lines"]


def test_names_of_new_runs(tmp_path: Path) -> None:
    day = date(2025, 3, 1)
    first = new_run_path("mo/deep-sea v0", "ppo", "ggf:1,0.5", tmp_path, day)
    assert first == tmp_path / "mo-deep-sea-v0-ppo-ggf-1-0.5-2025-03-01-1"
    RunFolder.create(first, REQUEST)
    assert new_run_path("mo/deep-sea v0", "ppo", "ggf:1,0.5", tmp_path, day).name.endswith("-2")


@given(st.text())
def test_safe_names_are_safe(text: str) -> None:
    name = safe_name(text)
    assert 0 < len(name) <= 60
    assert ".." not in name
    assert not name.startswith((".", "-"))
    assert all(letter.isascii() and (letter.isalnum() or letter in "._-") for letter in name)


# ---------------------------------------------------------------------------------------------- the lock


HOLDS_THE_LOCK = """
    import sys
    from evenhand.runs.folder import RunFolder
    with RunFolder.open(sys.argv[1]).locked():
        print("locked", flush=True)
        sys.stdin.readline()
    print("released", flush=True)
    sys.stdin.readline()
"""


def test_one_process_at_a_time(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    with python(HOLDS_THE_LOCK, run.path) as other:
        assert line_from(other) == "locked"
        held = rf"run is being trained by process {other.pid} on \S+: wait for it to end, or stop it first\."
        with pytest.raises(InputError, match=held), run.locked():
            pass
        tell(other, "release")
        assert line_from(other) == "released"
        with run.locked(), pytest.raises(InputError, match=f"process {os.getpid()} "), run.locked():
            pass
        with run.locked():
            assert str(os.getpid()) in (run.path / "lock").read_text()
        assert (run.path / "lock").read_text() == ""
        tell(other, "end")


def test_the_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    with python(HOLDS_THE_LOCK, run.path) as other:
        assert line_from(other) == "locked"
        other.send_signal(signal.SIGKILL)
        other.wait()
        with run.locked():
            assert str(os.getpid()) in (run.path / "lock").read_text()


def test_the_lock_is_released_when_training_fails(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path / "run", REQUEST)
    with pytest.raises(ZeroDivisionError), run.locked():
        raise ZeroDivisionError
    with run.locked():
        pass
