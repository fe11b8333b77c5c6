"""Checkpoints that survive kill -9, a full disk and flipped bits: safetensors for the numbers, JSON for the rest.

A checkpoint is a folder `step-000000512000` with `state.safetensors` and `meta.json`. It is written under another
name, forced to the disk and only then renamed, so that a folder with this name is complete; checksums tell whether it
still is. Nothing that is loaded is ever executed. Only one process may save at a time (see `RunFolder.locked`);
loading changes nothing, and may happen while another process saves.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy

from evenhand.disk import (
    as_json,
    full_disk_named,
    json_default,
    make_folder,
    memory,
    read_bytes,
    sync_folder,
    write_durably,
)
from evenhand.errors import InputError, Say

# JAX is imported where it is used: asking how far a run has come should not take the second that importing it takes.

SCHEMA = 1

_STATE, _META = "state.safetensors", "meta.json"
_COMPLETE = re.compile(r"step-\d{12,}|\.step-\d{12,}\.replaced")
_LEFTOVER = re.compile(r"\.(step-\d{12,})\.(writing|replaced|removing)")
_STORED_AS_THEY_ARE = {
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
}
_UNREADABLE = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EIO, errno.ELOOP}


class Checkpoint(NamedTuple):
    """What was saved at a step."""

    step: int
    tree: Any
    extra: dict[str, Any]
    path: Path


class Record(NamedTuple):
    """What a checkpoint says about itself, without its tree."""

    step: int
    extra: dict[str, Any]
    path: Path


class _Damaged(Exception):
    """This checkpoint cannot be used; the text says why."""


def save_checkpoint(
    folder: str | os.PathLike[str], step: int, tree: Any, extra: Mapping[str, Any] | None = None, keep: int = 2
) -> Path:
    """Save a pytree of arrays and numbers as the checkpoint of a step, and give its folder.

    extra: whatever JSON can hold, given back by `load_newest`.
    keep: how many checkpoints stay, this one included. Older ones go once this one is safe, and so do those of later
        steps: a run that saves step s goes on from s.

    The same tree, step and extra give the same bytes. Raises `DiskFull` if there is no room.
    """
    if step < 0 or keep < 1:
        raise InputError(f"a checkpoint needs a step of at least 0 and keep of at least 1, not {step} and {keep}.")
    state, meta = _serialise(step, tree, extra or {})
    return put_checkpoint(Path(folder) / f"step-{step:012d}", {_STATE: state, _META: meta}, keep)


def put_checkpoint(path: Path, files: Mapping[str, bytes], keep: int = 2) -> Path:
    """Put the two files of a checkpoint, perhaps saved by another machine, in place; see `save_checkpoint`."""
    folder, step = path.parent, _step_of(path)
    writing = folder / f".{path.name}.writing"
    with full_disk_named(f"checkpoint {path.name}", sum(map(len, files.values())), folder):
        make_folder(folder)
        _tidy(folder)
        try:
            writing.mkdir()
            for name, data in files.items():
                write_durably(writing / name, data)
            sync_folder(writing)
            _put_in_place(writing, path)
        except BaseException:
            _delete(writing)
            raise
    others = _complete(folder)
    older = [other for number, other in others if number < step]
    later = [other for number, other in others if number > step]
    for other in older[keep - 1 :] + later:
        _remove(other)
    return path


def load_newest(
    folder: str | os.PathLike[str], like: Any, say: Say | None = None, part: bool = False
) -> Checkpoint | None:
    """The newest checkpoint that is whole, or None if there is none.

    like: a pytree of the structure that was saved. Its leaves (arrays, numbers, typed keys, or what `jax.eval_shape`
        gives) say which names, shapes and dtypes are expected, and what kind of leaf to give back. A checkpoint that
        is whole but differs raises an `InputError`.
    say: told about checkpoints that had to be passed over; without it a warning is given.
    part: whether `like` may leave out some of what was saved.
    """
    expected = _leaves(like)
    newest = _newest_whole(Path(folder), say or _warn)
    if newest is None:
        return None
    record, content, state = newest
    if part:
        content = content | {"leaves": {name: kind for name, kind in content["leaves"].items() if name in expected}}
    return Checkpoint(record.step, _restore(record, content, state, like, expected), record.extra, record.path)


def newest_record(folder: str | os.PathLike[str], say: Say | None = None) -> Record | None:
    """The step and the extra of the newest checkpoint that is whole, without its tree; None if there is none."""
    newest = _newest_whole(Path(folder), say or _warn)
    return newest[0] if newest else None


# ---------------------------------------------------------------------------------------------- trees as bytes


def _leaves(tree: Any) -> dict[str, Any]:
    """The leaves of a tree by their paths."""
    import jax

    paths_and_leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    leaves = {jax.tree_util.keystr(path): leaf for path, leaf in paths_and_leaves}
    if len(leaves) < len(paths_and_leaves):
        raise InputError("two leaves of the tree have the same path: its dicts need keys that print differently.")
    return leaves


def _described(name: str, leaf: Any) -> str:
    """Dtype and shape, such as "float32[3,4]"."""
    if not hasattr(leaf, "dtype"):
        if not isinstance(leaf, (bool, int, float)):
            raise InputError(f"{name or 'the tree'} is a {type(leaf).__name__}: only arrays and numbers can be saved.")
        leaf = np.asarray(leaf)
    return f"{leaf.dtype.name}[{','.join(map(str, leaf.shape))}]"


def _is_key(leaf: Any) -> bool:
    import jax
    import jax.numpy as jnp

    return hasattr(leaf, "dtype") and bool(jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key))


def _serialise(step: int, tree: Any, extra: Mapping[str, Any]) -> tuple[bytes, bytes]:
    """The contents of the two files of a checkpoint."""
    import jax

    leaves = _leaves(tree)
    described = {name: _described(name, leaf) for name, leaf in leaves.items()}
    keys = {name: str(jax.random.key_impl(leaf)) for name, leaf in leaves.items() if _is_key(leaf)}
    arrays = {
        name: _storable(name, jax.random.key_data(leaf) if name in keys else leaf) for name, leaf in leaves.items()
    }
    state = safetensors.numpy.save(arrays)
    content = {
        "schema": SCHEMA,
        "step": step,
        "state": {"sha256": hashlib.sha256(state).hexdigest(), "size": len(state)},
        "leaves": described,
        "keys": keys,
        "extra": dict(extra),
    }
    try:
        # Once through JSON, so that the checksum is of what will be read: keys, say, become text.
        content = json.loads(json.dumps(content, default=json_default))
        return state, as_json(content | {"sha256": _checksum(content)}, allow_nan=True)
    except (TypeError, ValueError) as error:
        raise InputError(f"the extra of a checkpoint must be what JSON can hold: {error}.") from None


def _storable(name: str, leaf: Any) -> np.ndarray:
    """The leaf as an array that safetensors knows; of rarer dtypes, such as bfloat16, the bytes."""
    array = np.asarray(leaf, order="C")
    dtype = array.dtype
    extended = dtype.kind == "V" and dtype.type is not np.void  # ml_dtypes' bfloat16 and its kin
    if not (dtype.kind in "biufc" or extended) or dtype.char in "gG":
        raise InputError(f"{name or 'the tree'} has dtype {dtype}, which cannot be saved.")
    array = array.astype(dtype.newbyteorder("<"), copy=False)
    return array if dtype.name in _STORED_AS_THEY_ARE else np.frombuffer(array.tobytes(), np.uint8)


def _restore(record: Record, content: dict[str, Any], state: bytes, like: Any, expected: dict[str, Any]) -> Any:
    """The saved leaves in the structure of `like`."""
    import jax

    wanted = {name: _described(name, leaf) for name, leaf in expected.items()}
    found = content["leaves"]
    differences = [
        f"{name or 'the tree'} is {found.get(name, 'missing')}, expected {wanted.get(name, 'none of that name')}"
        for name in wanted | found
        if wanted.get(name) != found.get(name)
    ]
    if differences:
        more = f" (and {len(differences) - 1} more differ)" if len(differences) > 1 else ""
        raise InputError(f"checkpoint {record.path.name} does not fit: {differences[0]}{more}.")
    leaves = []
    try:
        arrays = safetensors.numpy.load(state)
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"checkpoint {record.path.name} is damaged: {error}.") from None
    for name, leaf in expected.items():
        if name not in arrays:
            raise InputError(f"checkpoint {record.path.name} is damaged: it has no numbers for {name or 'the tree'}.")
        try:
            restored = _restored(name, leaf, arrays[name], content["keys"].get(name))
        except InputError:
            raise
        except (ValueError, TypeError) as error:
            raise InputError(f"{name or 'the tree'} of checkpoint {record.path.name} is damaged: {error}.") from None
        if _described(name, restored) != wanted[name]:
            raise InputError(
                f"{name or 'the tree'} of checkpoint {record.path.name} became {_described(name, restored)} "
                f"instead of {wanted[name]}: JAX holds 64-bit numbers only with jax_enable_x64 on."
            )
        leaves.append(restored)
    return jax.tree_util.tree_unflatten(jax.tree_util.tree_structure(like), leaves)


def _restored(name: str, like: Any, saved: np.ndarray, implementation: str | None) -> Any:
    """One leaf, of the kind that `like` is; always a copy, since `saved` is a view of the file's bytes."""
    import jax
    import jax.numpy as jnp

    if _is_key(like):
        try:
            return jax.random.wrap_key_data(jnp.array(saved), impl=implementation)
        except (ValueError, TypeError) as error:
            raise InputError(f"the random key {name} cannot be restored: {error}.") from None
    if not hasattr(like, "dtype"):
        return type(like)(saved.item())
    dtype = np.dtype(like.dtype)
    if dtype.name not in _STORED_AS_THEY_ARE:
        saved = np.frombuffer(saved.tobytes(), dtype.newbyteorder("<")).reshape(like.shape)
    if isinstance(like, np.generic):
        return saved.astype(dtype)[()]
    if isinstance(like, np.ndarray):
        return saved.astype(dtype, order="C")
    return jnp.array(saved)


# ---------------------------------------------------------------------------------------------- finding whole ones


def _newest_whole(folder: Path, say: Say) -> tuple[Record, dict[str, Any], bytes] | None:
    """The newest checkpoint whose checksums are right; says which were passed over, and why."""
    tried: set[Path] = set()
    damaged: list[str] = []
    # Listed anew each time: a process that trains may just have removed the one that was to be read.
    while path := next((path for _, path in _complete(folder) if path not in tried), None):
        tried.add(path)
        try:
            whole = _verified(path)
        except _Damaged as why:
            if path.exists():
                damaged.append(f"checkpoint {path.name} is damaged ({why})")
            continue
        for complaint in damaged:
            say(f"{complaint}; going on from {path.name}.")
        return whole
    for complaint in damaged:
        say(f"{complaint}; there is no earlier one that is whole.")
    return None


def _complete(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints that were once written completely, newest first."""
    found: dict[int, Path] = {}
    # A ".replaced" one counts if its process was killed before the new one had taken its place; "." sorts before "s".
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _COMPLETE.fullmatch(entry.name):
            found[_step_of(entry)] = entry
    return sorted(found.items(), reverse=True)


def _step_of(path: Path) -> int:
    return int(path.name.removeprefix(".").split(".")[0].removeprefix("step-"))


def _verified(path: Path) -> tuple[Record, dict[str, Any], bytes]:
    """Both files of a checkpoint, if they are what was written."""
    if path.is_symlink():
        raise _Damaged("it is a link")
    content = _read_meta(path)
    size, checksum = content["state"]["size"], content["state"]["sha256"]
    state = _read(path / _STATE, memory())
    if len(state) != size:
        raise _Damaged(f"{_STATE} has {len(state)} bytes, not {size}")
    if hashlib.sha256(state).hexdigest() != checksum:
        raise _Damaged(f"the checksum of {_STATE} is wrong")
    return Record(content["step"], content["extra"], path), content, state


def _read_meta(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_read(path / _META))
        checksum = content.pop("sha256")
        right = checksum == _checksum(content)
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError):
        raise _Damaged(f"{_META} cannot be read") from None
    if not right:
        raise _Damaged(f"the checksum of {_META} is wrong")
    if not _is_meta(content):  # whoever wrote it can compute a checksum, too
        raise _Damaged(f"{_META} is none of a checkpoint")
    if content["schema"] > SCHEMA:
        raise InputError(f"checkpoint {path.name} was written by a newer version of evenhand: update evenhand.")
    if _step_of(path) != content["step"]:
        raise _Damaged(f"it is of step {content['step']}")
    return content


def _is_meta(content: dict[str, Any]) -> bool:
    """Whether all entries are there and of the right kind."""
    kinds = {"schema": int, "step": int, "state": dict, "leaves": dict, "keys": dict, "extra": dict}
    if not all(type(content.get(name)) is kind for name, kind in kinds.items()):
        return False
    state, texts = content["state"], [*content["leaves"].values(), *content["keys"].values()]
    return type(state.get("size")) is int and state["size"] >= 0 and all(isinstance(text, str) for text in texts)


def _read(path: Path, most: int | None = None) -> bytes:
    try:
        if path.is_symlink():
            raise _Damaged(f"{path.name} is a link")
        return read_bytes(path) if most is None else read_bytes(path, most)
    except InputError as error:
        raise _Damaged(str(error).replace(str(path), path.name).removesuffix(".")) from None
    except OSError as error:
        if error.errno not in _UNREADABLE:  # such as no permission: the checkpoint may be as good as ever
            raise
        raise _Damaged(f"{path.name}: {os.strerror(error.errno or 0).lower()}") from None


def _checksum(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _warn(message: str) -> None:
    warnings.warn(message, stacklevel=5)


def _put_in_place(writing: Path, path: Path) -> None:
    """Give a written checkpoint its name; one of the same step is put aside first, for folders cannot be replaced."""
    replaced = path.with_name(f".{path.name}.replaced")
    if os.path.lexists(path):
        path.rename(replaced)
    writing.rename(path)
    sync_folder(path.parent)
    _delete(replaced)


def _tidy(folder: Path) -> None:
    """Clear away what a process that was killed left behind."""
    for entry in list(folder.iterdir()):
        if left := _LEFTOVER.fullmatch(entry.name):
            if left[2] == "replaced" and not os.path.lexists(folder / left[1]):
                entry.rename(folder / left[1])
            else:
                _delete(entry)


def _remove(path: Path) -> None:
    """Remove a checkpoint; under another name first, so that a half-removed one is never taken for a damaged one."""
    removing = path.with_name(f".{path.name}.removing")
    with suppress(OSError):
        path.rename(removing)
        _delete(removing)


def _delete(path: Path) -> None:
    """Delete a folder, or whatever stands in its place, without following links."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)
