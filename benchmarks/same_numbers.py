"""Whether a change of the code has changed any number: the same commands with two checkouts, and what they leave.

    python benchmarks/same_numbers.py make FOLDER        with the evenhand that is imported here: about three minutes
    python benchmarks/same_numbers.py compare OLD NEW    what differs; the exit code is 1 if anything does

It trains the three algorithms on species, two of them on Gymnasium's environments, makes a study, solves and bounds
models, evaluates and exports. Files are compared byte by byte, but JSON as what it says, in whatever order; times,
dates and versions are left out.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

SMALL = ("--seeds", "2", "--episodes", "5", "--jobs", "2")
WELFARES = ("ggf", "maximin", "leximin", "nash", "alpha:2")
PAGES = (
    *("train", "resume", "evaluate", "compare", "study", "reproduce", "tune", "cycle", "calibrate", "play", "export"),
    *("list", "check-env", "doctor", "solve", "bound", "model"),
)


def solving(model: str, welfare: str, criterion: str) -> tuple[str, tuple[str, ...]]:
    """The name and the words of a command that solves a model."""
    name = f"{model}-{welfare.replace(':', '-')}-{criterion}"
    how = ("--average",) if criterion == "average" else ("--gamma", "0.95")
    return f"solve-{name}", ("solve", f"{model}.npz", "--welfare", welfare, *how, "-o", f"{name}.npz", "--json")


COMMANDS: dict[str, tuple[str, ...]] = {
    "ppo": ("train", "species", "--steps", "2e4", "-o", "runs/ppo", *SMALL),
    "a2c": (
        *("train", "species", "--algo", "a2c", "--steps", "1e4", "--env", "response=strong", "-o", "runs/a2c"),
        *SMALL,
    ),
    "dqn": ("train", "species", "--algo", "dqn", "--steps", "5e3", "--welfare", "nash", "-o", "runs/dqn", *SMALL),
    "plain": ("train", "species", "--welfare", "utilitarian", "--steps", "2e4", "-o", "runs/plain", *SMALL),
    "host": ("train", "CartPole-v1", "--steps", "3e3", "-o", "runs/host", *SMALL),
    "workers": (
        *("train", "CartPole-v1", "--algo", "dqn", "--steps", "3e3", "--workers", "1", "-o", "runs/workers"),
        *SMALL,
    ),
    "box": ("train", "Pendulum-v1", "--algo", "a2c", "--steps", "2e3", "-o", "runs/box", *SMALL),
    "hosts": ("train", "datacenter", "--steps", "4e3", "-o", "runs/hosts", *SMALL),
    "standin": ("train", "traffic-standin", "--steps", "3e3", "-o", "runs/standin", *SMALL),
    "evaluate": (
        *("evaluate", "runs/a2c", "--measure", "discounted", "--episodes", "5", "--env", "episode_steps=1000"),
        "--json",
    ),
    "evaluate-standin": ("evaluate", "runs/standin", "--episodes", "3", "--json"),
    "evaluate-host": ("evaluate", "runs/box", "--episodes", "3", "--json"),
    "compare": ("compare", "runs/ppo", "runs/plain", "--json"),
    "play": ("play", "-", "runs/ppo", "--steps", "20", "--json"),
    "export-ppo": ("export", "runs/ppo", "ppo.safetensors"),
    "export-dqn": ("export", "runs/dqn", "dqn.safetensors"),
    "export-box": ("export", "runs/box", "box.safetensors"),
    "study": (
        *("study", "species", "--env", "response=strong", "--algos", "ppo,dqn", "--seeds", "4", "--steps", "3e3"),
        *("--episodes", "3", "-o", "study"),
    ),
    "grid": ("model", "grid", "--side", "8", "-o", "grid.npz"),
    "garnet": ("model", "garnet", "--states", "60", "-o", "garnet.npz"),
    **dict(
        solving(model, welfare, criterion)
        for model in ("grid", "garnet")
        for welfare in WELFARES
        for criterion in ("discounted", "average")
    ),
    "bound": ("bound", "garnet.npz", "--gammas", "0.9,0.99", "--json"),
    "list": ("list", "--json"),
    "list-ppo": ("list", "ppo", "--json"),
    "list-datacenter": ("list", "datacenter", "--json"),
    "check-env": ("check-env", "species", "--json"),
    "plan": ("reproduce", "--plan"),
    **{f"help-{name}": (name, "--help") for name in PAGES},
}
KEPT = {".safetensors", ".parquet", ".json", ".npz", ".txt", ".md"}
LEFT_OUT = {"versions.json", "timing.json", "log.txt", "check-env.txt"}
"""The last of them says how many steps a second brought."""
ENTRIES_LEFT_OUT = {"seconds", "started", "versions", "provenance", "sha256"}
"""Of anything written as JSON; a checksum is of all the rest."""
TEXT_LEFT_OUT = re.compile(
    r"evenhand-[0-9.]+|^ +about .* in \d+ process(es)?$|^.*: done \(\d+/\d+ cells\)$", re.MULTILINE
)
"""A version, how long a study will take, and which of its cells was done first."""
HASH = re.compile(r"-[0-9a-f]{12}(?=[/.])")
"""Cells are kept by a hash of what was asked, of which a revision may be a part."""


def make(folder: Path) -> int:
    """Run everything, and keep what it says."""
    (folder / "said").mkdir(parents=True)
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"}
    for name, words in COMMANDS.items():
        command = [sys.executable, "-m", "evenhand", *words]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
        (folder / "said" / f"{name}.txt").write_text(f"{done.returncode}\n{done.stdout}\n{done.stderr}", "utf-8")
        print(name, done.returncode, flush=True)
    return 0


def compare(old: Path, new: Path) -> int:
    """Print what differs."""
    before, after = files(old), files(new)
    differ = [name for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    for name in differ:
        print("only old" if name not in after else "only new" if name not in before else "differs", name)
    print(f"{sum(map(len, before.values()))} files, {len(differ)} differ")
    return int(bool(differ))


def files(root: Path) -> dict[str, list[bytes]]:
    """What the files say, by their names without hashes; of several with one name in any order."""
    found = defaultdict(list)
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix in KEPT and path.name not in LEFT_OUT:
            found[HASH.sub("", str(path.relative_to(root)))].append(content(path))
    return {name: sorted(contents) for name, contents in found.items()}


def content(path: Path) -> bytes:
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return b"".join(f"{n} {arrays[n].dtype} {arrays[n].shape}\n".encode() + arrays[n].tobytes() for n in arrays)
    if path.suffix in (".safetensors", ".parquet"):
        return path.read_bytes()
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        return in_order(json.loads(text)).encode()
    code, _, said = text.partition("\n")
    if path.suffix == ".txt" and said.startswith(("{", "[")):
        record, end = json.JSONDecoder().raw_decode(said)
        text = f"{code}\n{in_order(record)}{said[end:]}"
    return TEXT_LEFT_OUT.sub("", text).encode()


def in_order(record: Any) -> str:
    """JSON, sorted by its keys, without what depends on the clock or the machine."""

    def without(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: without(entry) for name, entry in part.items() if name not in ENTRIES_LEFT_OUT}
        return [without(entry) for entry in part] if isinstance(part, list) else part

    return json.dumps(without(record), sort_keys=True)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["make", folder]:
            sys.exit(make(Path(folder)))
        case ["compare", old, new]:
            sys.exit(compare(Path(old), Path(new)))
    raise SystemExit(__doc__)
