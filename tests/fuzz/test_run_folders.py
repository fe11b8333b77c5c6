"""Run folders, studies and searches that strangers have changed: every command says a sentence, or does its work.

EVENHAND_FUZZ says how many folders to try, EVENHAND_LOTS which ones; `make fuzz` tries others each time. Whatever
is found becomes a named test in tests/runs/test_strangers_files.py.
"""

from __future__ import annotations

import collections
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import textwrap
import traceback
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import evenhand as eh
from budget import LOTS, share_of
from calls import program
from evenhand.errors import InputError
from evenhand.report.publishing import PAGE, RECORD, overview
from evenhand.runs import RunFolder
from evenhand.runs.checkpoint import _checksum
from evenhand.runs.run import Run
from evenhand.studies.cells import cells_of, do, missing_of
from evenhand.studies.cost import seconds_of
from evenhand.studies.experiment import FIRST_SEED, Experiment, Learner, Simple, Test
from evenhand.studies.results import gather, provenance
from evenhand.studies.search import Search, Trial, suggestion

FOLDERS = share_of(500)
SEED = LOTS
PATIENCE = 300
"""Seconds for one command, on however slow a machine."""

SMALL = {"envs": 2, "rollout": 8, "hidden": [4]}
BRIEF = {"response": "strong", "episode_steps": 20}
STRANGERS = ("evil", "antigravity", "this", "idlelib.idle", "turtledemo.clock")
"""Modules that only a file names; two of them show at once that they were imported."""
EVIL = """
    from pathlib import Path
    Path(__file__).with_name("ran").touch()
"""
VALUES: list[Any] = [
    *(None, True, False, 0, 1, -1, 2, 7, 2**31 - 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**30, 10**400),
    *(0.5, -0.5, 1e-300, 1e300, -1e300, float("nan"), float("inf"), float("-inf")),
    *("", "x", "0", "ppo", "dqn", "ggf", "nash", "leximin", "alpha:1e999", "ggf:nan", "ggf:" + ",".join("1" * 300)),
    *("\x1b[2J", "\u202e", "\ud800", "\0", "../../x", "/etc/passwd", "/dev/zero", "x" * 10_000),
    *([], {}, [[]], [None], [0], [1, 2, 3], {"x": 1}, [1.5, "x"], [[1, 2], [3]]),
]
ENVS: list[Any] = [
    *(f"{module}:x" for module in STRANGERS),
    *("evil:evenhand/species-v0", "bait.evil:CartPole-v1", "..evil:x", ".evil:x", "evil:", ":species", "evil:evil:x"),
    *(
        "species",
        "traffic-standin",
        "datacenter",
        "CartPole-v1",
        "Pendulum-v1",
        "no-such-env-v0",
        "FrozenLake-v1",
        "os:x",
    ),
    *("strangers/lazy-v0", "phys2d/CartPole-v1", "ALE/Pong-v5", "mo-mountaincar-v0", "tabular/Blackjack-v0", "os:x"),
]


class Hang(BaseException):
    """A command took longer than any may."""


class Damage:
    """Changes folders at random, and says what it did."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.done: list[str] = []

    def folder(self, root: Path) -> None:
        """One to three changes."""
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            files = sorted(path for path in root.rglob("*") if path.is_file() and path.name != "evil.py")
            if not files:
                return
            # A few files decide about everything: they are tried more often than there are of them.
            first = [path for path in files if path.name == "run.json"]
            path = self.chance.choice(first if first and self.chance.random() < 0.4 else files)
            change = self.chance.choice(self._changes(path))
            self.done.append(f"{change.__name__.strip('_')} {path.relative_to(root)}")
            with contextlib.suppress(Exception):  # an earlier change may have left nothing to be changed like this
                change(path)

    def _changes(self, path: Path) -> list[Callable[[Path], None]]:
        anywhere = [self._flip, self._truncate, self._noise, self._replace, self._remove]
        if path.name == "state.safetensors":
            return [*anywhere, self._forge_state, self._forge_state]
        if path.name == "meta.json":
            return [*anywhere, *[self._forge_meta] * 6]
        if path.suffix == ".json":
            return [*anywhere, *[self._json] * (14 if path.name == "run.json" else 8)]
        return anywhere

    # Bytes

    def _flip(self, path: Path) -> None:
        data = bytearray(path.read_bytes())
        for _ in range(self.chance.choice((1, 1, 4, 40)) if data else 0):
            data[self.chance.randrange(len(data))] ^= 1 << self.chance.randrange(8)
        path.write_bytes(data)

    def _truncate(self, path: Path) -> None:
        if self.chance.random() < 0.2:
            os.truncate(path, 2**40)  # and takes no room
        else:
            os.truncate(path, self.chance.randrange(path.stat().st_size + 1))

    def _noise(self, path: Path) -> None:
        others = [b"", b"null", b"[]", b"{}", b"0", b"[" * 10**5, b'{"a":' * 900 + b"1" + b"}" * 900, b"\xff\xfe{}"]
        path.write_bytes(self.chance.choice([*others, self.chance.randbytes(200)]))

    def _replace(self, path: Path) -> None:
        path.unlink()
        kind = self.chance.choice(("pipe", "folder", "itself", "nowhere", "device", "outside", "link"))
        self.done.append(kind)
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(self.chance.choice(["run.json", "..", ".", "evaluations"]))
        else:
            path.symlink_to(
                {"itself": path.name, "nowhere": "none", "device": "/dev/zero", "outside": "/etc/hosts"}[kind]
            )

    def _remove(self, path: Path) -> None:
        folder = self.chance.random() < 0.2
        shutil.rmtree(path.parent) if folder and path.name != "run.json" else path.unlink()

    # Structure

    def _json(self, path: Path) -> None:
        content = json.loads(path.read_bytes())
        path.write_text(json.dumps(self._changed(content)))

    def _forge_meta(self, path: Path) -> None:
        """With a checksum that is right."""
        content = json.loads(path.read_bytes())
        content.pop("sha256", None)
        content = self._changed(content)
        if isinstance(content, dict):
            content["sha256"] = _checksum(content)
        path.write_text(json.dumps(content))

    def _forge_state(self, path: Path) -> None:
        """A header that says something else, or other numbers, with checksums that are right."""
        data = path.read_bytes()
        end = 8 + int.from_bytes(data[:8], "little")
        header, rest = json.loads(data[8:end]), bytearray(data[end:])
        if self.chance.random() < 0.5 and rest:
            for _ in range(20):
                rest[self.chance.randrange(len(rest))] ^= 255
        else:
            header = self._changed(header)
        text = json.dumps(header).encode()
        state = len(text).to_bytes(8, "little") + text + bytes(rest)
        path.write_bytes(state)
        meta = path.with_name("meta.json")
        if meta.is_file() and not meta.is_symlink():
            content = json.loads(meta.read_bytes())
            content.pop("sha256")
            content["state"] = {"sha256": sha256(state).hexdigest(), "size": len(state)}
            meta.write_text(json.dumps(content | {"sha256": _checksum(content)}))

    def _changed(self, content: Any) -> Any:
        """Some value in it is another, is gone, or has company."""
        places = list(self._places(content))
        if not places:
            return self.chance.choice(VALUES)
        where, key = self.chance.choice(places)
        if isinstance(content, dict) and "env" in content and self.chance.random() < 0.4:
            where, key = content, "env"
            where[key] = self.chance.choice(ENVS)
        elif (kind := self.chance.random()) < 0.7:
            where[key] = self._value(where[key])
        elif kind < 0.85:
            del where[key]
        elif isinstance(where, dict):
            where[self.chance.choice(["x", "", "__class__", "\x1b", *where])] = self.chance.choice(VALUES)
        else:
            where.insert(key, self.chance.choice(VALUES))
        self.done.append(repr(key)[:40])
        return content

    def _places(self, content: Any) -> Iterator[tuple[Any, Any]]:
        if isinstance(content, dict | list):
            for key in list(content) if isinstance(content, dict) else range(len(content)):
                yield content, key
                yield from self._places(content[key])

    def _value(self, before: Any) -> Any:
        if self.chance.random() < 0.1:
            nested: Any = 1
            for _ in range(self.chance.choice((3, 20, 300))):
                nested = [nested]
            return nested
        if isinstance(before, int | float) and not isinstance(before, bool) and self.chance.random() < 0.4:
            return self.chance.choice([-before, before + 1, before * 10, before / 3, str(before), [before]])
        return self.chance.choice(VALUES)


@contextlib.contextmanager
def watched() -> Iterator[None]:
    """Raise `Hang` where something takes too long, as waiting for a pipe does."""

    def wake(*_: Any) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Findings:
    """What went wrong, and how often what was done."""

    def __init__(self) -> None:
        self.wrong: list[str] = []
        self.counts: collections.Counter[str] = collections.Counter()

    def attempt(self, name: str, damage: Damage, act: Callable[[], Any]) -> None:
        try:
            with watched():
                answer = act()
            self.counts[f"{name}: {answer}"] += 1
        except Hang:
            self._note(name, damage, "a hang")
        except BaseException:
            self._note(name, damage, traceback.format_exc())
        loaded = [module for module in STRANGERS if module in sys.modules]
        if loaded:
            self._note(name, damage, f"imported {loaded}")
            for module in loaded:
                del sys.modules[module]

    def _note(self, name: str, damage: Damage, what: str) -> None:
        self.wrong.append(f"--- {name} after {'; '.join(damage.done)}\n{what}")


def by_program(*words: Any) -> str:
    """The program; what its end was called."""
    answer = program(*words)
    assert "Traceback" not in answer.out + answer.err, answer
    assert answer.code in (0, 2), answer
    if answer.code == 2:
        assert answer.err.startswith("evenhand: error: "), answer
        assert answer.err.count("\n") == 1, answer
    return "done" if answer.code == 0 else "refused"


def in_python(act: Callable[[], Any]) -> str:
    try:
        act()
    except (InputError, OSError):
        return "refused"
    return "done"


def train(folder: Path) -> None:
    """Small runs of a compiled environment and of one that is not."""
    for name, env, arguments in (("species", "species", BRIEF), ("cart", "CartPole-v1", {})):
        eh.train(
            env, "a2c", steps=48, seeds=2 if name == "species" else 1, settings=SMALL, arguments=arguments, episodes=1,
            jobs=1, folder=folder / name,
        )  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    train(folder)
    return folder


@pytest.fixture
def bait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, from which Python imports, with a module that must not be."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    gymnasium.register("strangers/lazy-v0", entry_point="evil:Env")
    (tmp_path / "evil.py").write_text(textwrap.dedent(EVIL))
    yield tmp_path
    gymnasium.registry.pop("strangers/lazy-v0")
    assert not list(tmp_path.rglob("ran"))


def fuzz_run(folder: Path, other: Path, original: RunFolder, damage: Damage, findings: Findings) -> None:
    """Whatever reads a run folder."""
    chance, play = damage.chance, ["--steps", 2]
    commands: dict[str, Callable[[], Any]] = {
        "evaluate": lambda: by_program("evaluate", folder, "--episodes", 1, "--no-reference", "--no-baselines"),
        "compare": lambda: by_program("compare", folder, other, *chance.choice(([], ["--json"]))),
        "play": lambda: by_program("play", "-", folder, *play, *chance.choice(([], ["--json"]))),
        "resume": lambda: by_program("resume", folder, "--jobs", 1),
        "eh.resume": lambda: in_python(lambda: eh.resume(folder, jobs=1)),
        "eh.load": lambda: in_python(lambda: eh.load(folder)),
        "metrics": lambda: in_python(lambda: Run(RunFolder.open(folder)).metrics()),
    }
    if other_work(folder, original):
        del commands["resume"], commands["eh.resume"]
    for name in ("list", "export", *chance.sample(sorted(commands), 3)):
        if name == "list":
            findings.attempt(name, damage, lambda: by_program("list"))
        elif name == "export":
            findings.attempt(name, damage, lambda: by_program("export", folder, "policy.safetensors"))
        else:
            findings.attempt(name, damage, commands[name])


def other_work(folder: Path, original: RunFolder) -> bool:
    """Whether it now lawfully asks for another training, which may take as long as it likes."""
    try:
        with watched():
            run = Run(RunFolder.open(folder))
            return run.request != original.request and not all(run.complete(seed) for seed in run.seeds)
    except (InputError, OSError):
        return False


def test_mutated_run_folders(runs: Path, bait: Path) -> None:
    findings = Findings()
    for number in range(FOLDERS):
        damage = Damage(SEED + number)
        name = damage.chance.choice(("species", "cart"))
        shutil.rmtree("runs", ignore_errors=True)
        folder = Path("runs") / "bait"
        shutil.copytree(runs / name, folder)
        (folder / "evil.py").write_text(textwrap.dedent(EVIL))
        damage.folder(folder)
        fuzz_run(folder, runs / name, RunFolder.open(runs / name), damage, findings)
    tell(findings, FOLDERS)


# Studies and searches

TINY = Experiment(
    key="tiny",
    title="Tiny",
    env="species",
    learners=(Learner(name="A2C", algo="a2c", welfare="ggf", settings=SMALL, steps=48),),
    simple=(Simple(name="random", policy="random"),),
    tests=(Test(name="test", measure="average", episodes=1),),
    seeds=(FIRST_SEED,),
    arguments=BRIEF,
)
SEARCH = Search("species", "a2c", "ggf", 640, seeds=1, episodes=1, measure="average", arguments=BRIEF)
TUNE = ["tune", "species", "--algo", "a2c", "--steps", 640, "--seeds", 1, "--episodes", 1, "--measure", "average"]
TUNE += ["--env", *(f"{name}={value}" for name, value in BRIEF.items())]


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study that is done, a page of a reproduction, and a search with four trials."""
    folder = tmp_path_factory.mktemp("studies")
    for cell in cells_of(TINY):
        assert do(cell, folder / "study", 30.0, lambda _: None, lambda _: None, lambda: False)
    (folder / "paper/species").mkdir(parents=True)
    (folder / "paper/species" / PAGE).touch()
    seen = [{"verdict": "holds", "text": "it does"}]
    claim = {"claim": "a", "source": "b", "note": "", "verdicts": {"s": {"verdict": "holds", "seen": seen}}}
    (folder / "paper/species" / RECORD).write_text(json.dumps({"title": "Species", "claims": [claim]}))
    done = [Trial(0, {}, 0.5)]
    for number in range(1, 4):
        done.append(Trial(number, suggestion("a2c", done, number), 0.1 * number if number < 3 else None))
    (folder / "search").mkdir()
    (folder / "search/search.json").write_text(json.dumps(SEARCH.record()))
    (folder / "search/trials.json").write_text(json.dumps([trial._asdict() for trial in done]))
    return folder


def study_again(root: Path) -> str:
    cells = cells_of(TINY)

    def act() -> None:
        seconds_of(cells, missing_of(cells, root), root)
        results = gather(TINY, cells, root)
        results.returns(TINY.tests[0])
        provenance([run for of_method in results.runs.values() for run in of_method])
        for cell in cells:
            do(cell, root, 30.0, lambda _: None, lambda _: None, lambda: False)

    return in_python(act)


def test_what_is_not_changed_is_not_refused(studies: Path, bait: Path) -> None:
    shutil.copytree(studies, "all", dirs_exist_ok=True)
    os.chdir("all")
    assert study_again(Path("study")) == "done"
    assert by_program(*TUNE, "--jobs", 1, "--trials", 4, "-o", "search") == "done"


def test_mutated_studies_and_searches(studies: Path, bait: Path) -> None:
    findings = Findings()
    for number in range(-(-FOLDERS // 2)):
        damage = Damage(SEED + FOLDERS + number)
        kind = damage.chance.choice(("study", "study", "search", "paper"))
        shutil.rmtree(kind, ignore_errors=True)
        shutil.copytree(studies / kind, kind)
        damage.folder(Path(kind))
        acts: dict[str, Callable[[], Any]] = {
            "study": lambda: study_again(Path("study")),
            "search": lambda: by_program(*TUNE, "--jobs", 1, "--trials", 4, "-o", "search"),
            "paper": lambda: in_python(lambda: overview(Path("paper"), ("species",))),
        }
        if kind == "search" and not (Path("search") / "trials.json").is_file():
            continue  # then it would begin anew, as it may
        findings.attempt(kind, damage, acts[kind])
    tell(findings, -(-FOLDERS // 2))


def tell(findings: Findings, folders: int) -> None:
    print(f"\n{folders} folders from seed {SEED}: {sum(findings.counts.values())} commands ended as they should:")
    for what, count in sorted(findings.counts.items()):
        print(f"  {what} {count}")
    assert not findings.wrong, f"seed {SEED}: {len(findings.wrong)} of them did not:\n" + "\n".join(findings.wrong[:10])
