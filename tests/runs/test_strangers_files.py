"""Files of strangers: what they say is never executed, never trusted, and never sent to a terminal as it is."""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import evenhand as eh
from calls import PROGRAM, Answer, program, refused
from evenhand.disk import read_json
from evenhand.errors import InputError, visible
from evenhand.report import as_json
from evenhand.runs.checkpoint import _checksum
from evenhand.runs.folder import RunFolder
from evenhand.studies.cells import cells_of, do
from evenhand.studies.experiment import FIRST_SEED, Experiment, Learner, Test
from evenhand.terminal import Console

PPO = ["--set", "envs=2", "rollout=8", "minibatches=1", "epochs=1", "hidden=[4]", "--steps", "32", "--jobs", "1"]
A2C = ["--algo", "a2c", "--set", "envs=2", "rollout=8", "hidden=[4]", "--steps", "32", "--jobs", "1"]
"""What is compiled soonest."""
SOUND = """
    import gymnasium
    from faulty_envs import Sound
    gymnasium.register("strangers/{id}", entry_point=Sound)
"""
EVIL = """
    from pathlib import Path
    Path(__file__).with_name("ran").touch()
"""
HELPERS = Path(__file__).parents[1] / "helpers"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on species, and one on an environment that `mine.py` registers, in one folder."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "mine.py").write_text(textwrap.dedent(SOUND.format(id="sound-v0")))
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        for name, env, small in (("species", "species", PPO), ("mine", "mine:strangers/sound-v0", A2C)):
            answer = program("train", env, *small, "--seeds", 1, "--episodes", 1, "-o", folder / name)
            assert answer.code == 0, answer.err
    return folder


@pytest.fixture
def bait(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A run folder that asks for `evil` and brings it along, as a module and as a package of its own, everywhere."""
    folder = tmp_path / "bait"
    shutil.copytree(trained / "mine", folder)
    asks(folder, "evil:strangers/sound-v0")
    for place in (tmp_path, folder, folder / "evil_space" / "inner"):
        place.mkdir(parents=True, exist_ok=True)
        (place / "evil.py").write_text(textwrap.dedent(EVIL))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend("")  # as where Python is started with -c or -m
    yield folder
    assert not list(tmp_path.rglob("ran")), "its code was run"
    assert not {"evil", "evil_space", "evil_space.inner.evil"} & sys.modules.keys()


def asks(folder: Path, env: str | None, **more: Any) -> None:
    """Have a run folder ask for another environment."""
    content = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(content | {"env": env} | more))


# What a folder may not import

COMMANDS: dict[str, Callable[[Path], list[Any]]] = {
    "evaluate": lambda folder: ["evaluate", folder, "--episodes", 1],
    "play": lambda folder: ["play", "-", folder, "--steps", 2],
    "resume": lambda folder: ["resume", folder],
    "compare": lambda folder: ["compare", folder, folder],
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("module", ["evil", "evil_space.inner.evil", "bait.evil"])
def test_no_command_imports_what_a_folder_names(bait: Path, command: str, module: str) -> None:
    asks(bait, f"{module}:strangers/sound-v0")
    shutil.rmtree(bait / "evaluations")  # so that there is something left to do
    sentence = refused(program(*COMMANDS[command](bait)))
    assert f"the module '{module}' would be imported, and its code run" in sentence
    assert f"--env-module {module}" in sentence
    assert "--trust" in sentence


def test_nothing_of_python_s_imports_what_a_folder_names(bait: Path) -> None:
    for act in (eh.load, eh.resume):
        shutil.rmtree(bait / "evaluations", ignore_errors=True)
        with pytest.raises(InputError, match="its code run"):
            act(bait)


def test_the_program_itself_does_not_either(bait: Path) -> None:
    """Started inside the folder, with its modules before all others."""
    shutil.rmtree(bait / "evaluations")
    done = subprocess.run([*PROGRAM, "evaluate", "."], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "'evil' would be imported" in done.stderr


def test_an_environment_that_is_registered_gets_nothing_from_the_current_folder(
    bait: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry point is imported when it is made, and the stranger brings a module of that name."""
    gymnasium.register("strangers/lazy-v0", entry_point="evil:Env")
    try:
        asks(bait, "strangers/lazy-v0")
        assert "needs something that is not installed" in refused(program("evaluate", bait))
    finally:
        gymnasium.registry.pop("strangers/lazy-v0")


def test_an_environment_that_makes_others_by_their_names_does_not_import_either(bait: Path) -> None:
    asks(bait, "GymV26Environment-v0", arguments={"env_id": "evil:x"})
    assert "the module 'evil' would be imported" in refused(program("evaluate", bait))


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("..evil:x", "'..evil' is no name of a module"),
        (".:x", "'.' is no name of a module"),
        ("a b:x", "'a b' is no name of a module"),
        ("evil:", "'evil' would be imported"),
        ("evil:a:x", "'evil:a' is no name of a module"),
    ],
)
def test_names_of_modules_are_names(bait: Path, name: str, sentence: str) -> None:
    asks(bait, name)
    said = refused(program("evaluate", bait, *([] if "imported" in sentence else ["--trust"])))
    assert sentence in said
    if "imported" not in sentence:
        assert sentence in refused(program("train", name))


# How a person allows it


@pytest.fixture
def nobody_has_imported_it(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mine")
    monkeypatch.delitem(gymnasium.registry, "strangers/sound-v0")
    monkeypatch.syspath_prepend(str(trained))


@pytest.mark.parametrize("how", [["--env-module", "mine"], ["--trust"]])
def test_a_person_can_allow_it(trained: Path, tmp_path: Path, nobody_has_imported_it: None, how: list[str]) -> None:
    shutil.copytree(trained / "mine", tmp_path / "run")
    shutil.rmtree(tmp_path / "run/evaluations")
    assert "'mine' would be imported" in refused(program("resume", tmp_path / "run"))
    answer = program("resume", tmp_path / "run", *how)
    assert answer.code == 0, answer.err
    assert (tmp_path / "run/evaluations/seed-0.json").exists()


def test_what_a_person_allows_holds_in_every_process(trained: Path, tmp_path: Path) -> None:
    """In a new process, in which nobody has imported the module yet; two seeds are trained or tested in two more."""
    shutil.copytree(trained / "mine", tmp_path / "run")
    shutil.rmtree(tmp_path / "run/evaluations")
    content = json.loads((tmp_path / "run/run.json").read_text())
    (tmp_path / "run/run.json").write_text(json.dumps(content | {"seeds": [0, 1]}))
    paths = os.pathsep.join([str(trained), str(HELPERS), os.environ.get("PYTHONPATH", "")])
    words = [*PROGRAM, "resume", str(tmp_path / "run"), "--jobs", "2", "--trust"]
    options = {"capture_output": True, "text": True, "env": os.environ | {"PYTHONPATH": paths}}
    done = subprocess.run(words, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "run/evaluations/seed-1.json").exists()


def test_a_name_given_again_is_enough(trained: Path, nobody_has_imported_it: None) -> None:
    with pytest.raises(InputError, match="its code run"):
        eh.load(trained / "mine")
    assert callable(eh.load(trained / "mine", env="mine:strangers/sound-v0"))
    assert callable(eh.load(trained / "mine"))  # it is imported now, by the person


def test_what_makes_it_is_enough_and_gets_its_settings(tmp_path: Path) -> None:
    from faulty_envs import Sound

    small = {"envs": 2, "rollout": 8, "hidden": [4]}
    run = eh.train(Sound, "a2c", steps=32, settings=small, arguments={"size": 7}, folder=tmp_path / "run", episodes=1)
    assert run.env.observation_space.n == 7
    assert eh.load(run.path, env=Sound).task.observation_size == 7


def test_export_needs_no_environment(bait: Path, trained: Path, tmp_path: Path) -> None:
    assert program("export", bait, tmp_path / "a.safetensors").code == 0
    assert program("export", trained / "mine", tmp_path / "b.safetensors").code == 0
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_export_of_older_runs_asks_for_the_environment(bait: Path, trained: Path, tmp_path: Path) -> None:
    for folder in (bait, tmp_path / "species"):
        if not folder.exists():
            shutil.copytree(trained / "species", folder)
        change_meta(folder, lambda meta: meta["extra"].pop("spaces"))
    assert "would be imported" in refused(program("export", bait, tmp_path / "a.safetensors"))
    assert program("export", tmp_path / "species", tmp_path / "a.safetensors").code == 0
    assert program("export", trained / "species", tmp_path / "b.safetensors").code == 0
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def change_meta(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change what checkpoints say of themselves, checksum and all."""
    for file in folder.rglob("meta.json"):
        meta = json.loads(file.read_text())
        del meta["sha256"]
        change(meta)
        file.write_text(json.dumps(meta | {"sha256": _checksum(meta)}))


def test_a_cell_is_what_its_name_stands_for(bait: Path, tmp_path: Path) -> None:
    """Studies open run folders that are there; a stranger's may ask for something else than the study does."""
    small = {"envs": 2, "rollout": 8, "hidden": [4]}
    tests = (Test(name="test", measure="average", episodes=1, arguments={"episode_steps": 5}),)
    study = Experiment(
        key="e",
        title="E",
        env="species",
        learners=(Learner(name="A2C", algo="a2c", welfare="ggf", settings=small, steps=32),),
        simple=(),
        tests=tests,
        seeds=(FIRST_SEED,),
    )
    (cell,) = cells_of(study)
    path = cell.folder(tmp_path)
    RunFolder.create(path, cell.request)  # type: ignore[arg-type]
    asks(path, "evil:strangers/sound-v0")
    with pytest.raises(InputError, match="not what the name of its folder stands for"):
        do(cell, tmp_path, 30.0, print, print, lambda: False)


# What is damaged


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"algo": None}, '"algo" must be a text, not null'),
        ({"algo": "sarsa"}, "there is no algorithm 'sarsa'"),
        ({"arguments": None}, '"arguments" must be an object of names and values, not null'),
        ({"training": []}, '"training" must be an object'),
        ({"objectives": []}, '"objectives" must be a list of names'),
        ({"objectives": "otters"}, '"objectives"'),
        ({"objectives": ["a"]}, "a run for 1 users, but species has 2"),
        ({"welfare": "ggf:x"}, "is not a number"),
        ({"welfare": "ggf:1,2,3"}, "3 weights, but there are 2 users"),
        ({"preset": "mine"}, "there is no preset 'mine'"),
        ({"steps": 0}, '"steps" must be a whole number of at least 1, not 0'),
        ({"steps": -5}, '"steps"'),
        ({"steps": 1e300}, '"steps"'),
        ({"steps": 10**30}, '"steps" must be a whole number of at least 1 and at most'),
        ({"steps": 2**62}, "more than 2,147,483,647 updates"),
        ({"steps": 1}, "fewer than ppo takes"),
        ({"seeds": {}}, '"seeds" must be a list of whole numbers'),
        ({"seeds": [True]}, '"seeds"'),
        ({"workers": -1}, '"workers"'),
        ({"episodes": 1.5}, '"episodes"'),
        ({"episodes": 2**31}, '"episodes" must be a whole number of at least 0 and at most'),
        ({"unheard": 1}, "there is no entry of a run called 'unheard'"),
        ({"settings": {"envs": 0}}, "envs must be positive, not 0"),
        ({"settings": {"envs": 10**400}}, '"settings" has a number of 1329 bits'),
        ({"settings": {"envs": 2**40}}, "envs must be a whole number up to"),
        ({"settings": {"gamma": 1.5}}, "gamma must lie in [0, 1)"),
        ({"settings": {"hidden": [-1]}}, "hidden must be a list of positive whole numbers"),
        ({"settings": {"unheard": 1}}, "there is no setting of ppo 'unheard'"),
        ({"settings": {"hidden": [[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]}}, "lists within lists too far"),
    ],
)
def test_a_damaged_request_is_one_sentence(trained: Path, tmp_path: Path, change: Any, sentence: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained / "species", folder)
    asks(folder, "species", **change)
    said = refused(program("evaluate", folder))
    assert sentence in said
    assert "run.json is damaged" in said or "users" in said


def test_a_request_that_lacks_something_is_one_sentence(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "species", tmp_path / "run")
    content = json.loads((tmp_path / "run/run.json").read_text())
    for name in content.keys() - {"schema"}:
        (tmp_path / "run/run.json").write_text(json.dumps({k: v for k, v in content.items() if k != name}))
        assert f'run.json is damaged: it has no "{name}".' in refused(program("evaluate", tmp_path / "run"))


@pytest.mark.parametrize(
    "text", ['{"steps": NaN}', '{"steps": Infinity}', '{"steps": 1e999}', '{"a": "\\ud800"}', "[" * 10**5]
)
def test_json_is_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=r"x\.json is damaged: it is not JSON"):
        read_json(tmp_path / "x.json")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda record: record.pop("total"), "it has no 'total'"),
        (lambda record: record.update(total=[[1.0]]), "its total should be finite numbers"),
        (lambda record: record.update(total=[[1.0, "x"]]), "its numbers are none"),
        (lambda record: record.update(length=[-1]), "lengths of its episodes"),
        (lambda record: record.update(terminated=[2]), "terminated or not"),
        (lambda record: record.update(gamma=7), "discount should lie in"),
        (lambda record: record.update(objectives=["a", "b"]), "its users are others"),
        (lambda record: record.update(seed="x"), "its seed should be a whole number"),
        (lambda record: record.update(facts=[1]), "its numbers are none"),
    ],
)
def test_damaged_evaluations_are_one_sentence(trained: Path, tmp_path: Path, change: Any, sentence: str) -> None:
    shutil.copytree(trained / "species", tmp_path / "run")
    file = tmp_path / "run/evaluations/seed-0.json"
    record = json.loads(file.read_text())
    change(record)
    file.write_text(json.dumps(record))
    said = refused(program("compare", tmp_path / "run", tmp_path / "run"))
    assert "seed-0.json is damaged: " in said
    assert sentence in said


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda meta: meta.pop("schema"), "no checkpoint of seed 0 yet"),
        (lambda meta: meta.update(leaves=[]), "no checkpoint of seed 0 yet"),
        (lambda meta: meta["leaves"].update(dict.fromkeys(meta["leaves"], "float32[1]")), "does not fit"),
        (lambda meta: meta["extra"].update(spaces={"observations": 5}), "its spaces are damaged"),
        (lambda meta: meta["extra"].update(spaces={"observations": 10**9, "actions": {"table": [0]}}), "does not fit"),
    ],
)
def test_checkpoints_with_a_right_checksum_and_a_wrong_content(
    trained: Path, tmp_path: Path, change: Any, sentence: str
) -> None:
    shutil.copytree(trained / "species", tmp_path / "run")
    change_meta(tmp_path / "run", change)
    assert sentence in refused(program("export", tmp_path / "run", tmp_path / "policy"))
    if "spaces" not in sentence and "observations" not in str(change.__code__.co_consts):
        assert "no checkpoint yet" in (said := refused(program("evaluate", tmp_path / "run"))) or sentence in said


# What is no file


@pytest.fixture
def impatient() -> Iterator[None]:
    """A test that hangs where a pipe is opened is woken up."""

    def wake(*_: Any) -> None:
        raise TimeoutError("a pipe was waited for")

    before = signal.signal(signal.SIGALRM, wake)
    signal.alarm(120)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        *((file, kind) for file in ("model.npz", "traffic.csv") for kind in ("a pipe", "a device", "a folder")),
        # A link to a device leads out of the run folder, which another test has.
        *((file, kind) for file in ("run.json", "evaluations/seed-0.json") for kind in ("a pipe", "a folder")),
    ],
)
def test_only_regular_files_are_read(trained: Path, tmp_path: Path, impatient: None, kind: str, file: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained / "species", folder)
    path = folder / file
    path.unlink(missing_ok=True)
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    commands = {
        "model.npz": ["solve", path, "--gamma", 0.9],
        "traffic.csv": ["evaluate", folder],
    }
    if file == "traffic.csv":
        asks(folder, "traffic", arguments={"demand": str(path)}, objectives=list("abcdefgh"), welfare="ggf")
    said = refused(program(*commands.get(file, ["compare", folder, folder])))
    assert f"is {kind}, not a regular file" in said or (kind == "a folder" and "there is no file" in said)


def test_a_log_that_is_a_pipe_is_left_alone(trained: Path, tmp_path: Path, impatient: None) -> None:
    shutil.copytree(trained / "species", tmp_path / "run")
    for name in ("log.txt", "versions.json", "lock"):
        (tmp_path / "run" / name).unlink(missing_ok=True)
        os.mkfifo(tmp_path / "run" / name)
    run = RunFolder.open(tmp_path / "run")
    run.say("nobody listens")
    run.record_versions()
    assert isinstance(json.loads((tmp_path / "run/versions.json").read_text()), list)
    with pytest.raises(InputError, match="lock is not a regular file"), run.locked():
        pass


def test_nothing_is_read_through_links_out_of_the_folder(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "species", tmp_path / "run")
    for name in ("run.json", "evaluations/seed-0.json"):
        inside, outside = tmp_path / "run" / name, tmp_path / Path(name).name
        inside.rename(outside)
        inside.symlink_to(outside)
        assert "leads out of the run folder" in refused(program("compare", tmp_path / "run", tmp_path / "run"))
        inside.unlink()
        outside.rename(inside)
    (checkpoint,) = (tmp_path / "run").glob("seed-0/checkpoints/*")
    checkpoint.rename(tmp_path / "elsewhere")
    checkpoint.symlink_to(tmp_path / "elsewhere")
    assert "has no checkpoint" in refused(program("evaluate", tmp_path / "run"))


# Model files that promise more than they hold


def packed(path: Path, arrays: dict[str, tuple[tuple[int, ...], str, int]]) -> None:
    """An .npz of zeros, each array with a shape, a kind of number and so many bytes in truth."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, (shape, kind, size) in arrays.items():
            header = io.BytesIO()
            np.lib.format.write_array_header_1_0(header, {"descr": kind, "fortran_order": False, "shape": shape})
            with file.open(f"{name}.npy", "w", force_zip64=True) as member:
                member.write(header.getvalue())
                for _ in range(size // 2**20):
                    member.write(bytes(2**20))
                member.write(bytes(size % 2**20))


def cost_of_loading(*paths: Path) -> list[tuple[str, float, float]]:
    """What it says of one file after another, and the seconds and megabytes that each takes."""
    code = """
        import resource, sys, time
        import evenhand as eh
        used = lambda: (time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        for path in sys.argv[1:]:
            before = used()
            try:
                eh.MOMDP.load(path)
                said = "accepted"
            except eh.InputError as error:
                said = str(error)
            after = used()
            print(said, after[0] - before[0], after[1] - before[1], sep="\\n")
    """
    words = [sys.executable, "-c", textwrap.dedent(code), *map(str, paths)]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    assert len(lines) == 3 * len(paths)
    return [(said, float(a), float(b)) for said, a, b in zip(lines[::3], lines[1::3], lines[2::3], strict=True)]


def test_a_few_bytes_do_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "model.npz"
    S = 12_000
    packed(
        path,
        {
            "transitions": ((1, S, S), "<f8", 8 * S * S),
            "rewards": ((S, 1, 1), "<f8", 8 * S),
            "initial": ((S,), "<f8", 8 * S),
        },
    )
    assert path.stat().st_size < 2e6
    [(said, seconds, megabytes)] = cost_of_loading(path)
    assert "times as large, 1.1 GiB, which no model does" in said
    assert megabytes < 50
    assert seconds < 5


def test_arrays_that_do_not_fit_together_are_not_unpacked(tmp_path: Path) -> None:
    n = 5000  # 200 megabytes
    shapes: dict[str, tuple[int, ...]] = {"initial": (n * n,), "transitions": (1, n, n), "rewards": (n, n, 1)}
    for name, shape in shapes.items():
        arrays = {"transitions": (1, 2, 2), "rewards": (2, 1, 1), "initial": (2,)} | {name: shape}
        packed(tmp_path / name, {key: (of, "<f8", 8 * int(np.prod(of))) for key, of in arrays.items()})
    for said, seconds, megabytes in cost_of_loading(*(tmp_path / name for name in shapes)):
        assert "has the shape" in said
        assert megabytes < 50
        assert seconds < 5


def test_no_more_is_unpacked_than_was_declared(tmp_path: Path) -> None:
    """The header says little, and what follows it is a bomb; or the other way round."""
    arrays = {"transitions": (1, 1, 1), "rewards": (1, 1, 1), "initial": (1,)}
    files = {2**28: tmp_path / "bomb.npz", 4: tmp_path / "short.npz"}
    for size, file in files.items():
        sizes = {name: (shape, "<f8", size if name == "rewards" else 8) for name, shape in arrays.items()}
        packed(file, sizes)
    for said, seconds, megabytes in cost_of_loading(*files.values()):
        assert "rewards.npy has other numbers of entries than its header says" in said
        assert megabytes < 50
        assert seconds < 5


# Terminals

NAMES = ["\x1b]0;evil\x07", "\x1b[2J", "\x9b31m", "\u202egnp.exe", "a\rb", "\x08\x7f"]
UNSEEN = "".join(map(chr, [*range(9), *range(11, 32), *range(0x7F, 0xA0), *range(0x202A, 0x202F)]))


def harmless(answer: Answer) -> bool:
    return not set(answer.out + answer.err) & set(UNSEEN)


def test_control_characters_become_pictures() -> None:
    assert visible("\x1b[2J\x00\x7f\x9b\u202e") == "\u241b[2J\u2400\u2421\ufffd\ufffd"
    assert visible("otters, γ\n\tand 🦦") == "otters, γ\n\tand 🦦"
    assert str(InputError("no \x1b[2J")) == "no \u241b[2J"
    for name in NAMES:
        assert json.loads(as_json({name: name})) == {name: name}
        assert not set(as_json({name: name})) & set(UNSEEN)


@pytest.mark.parametrize("colours", [True, False])
def test_a_console_shows_its_own_colours_and_no_others(colours: bool) -> None:
    out = io.StringIO()
    system: Any = "standard" if colours else None
    console = Console(file=out, force_terminal=colours, highlight=False, markup=False, color_system=system)
    console.print("\x1b[2Jx", style="bold")
    assert ("\x1b[1m" in out.getvalue()) == colours
    assert "\x1b[2J" not in out.getvalue()
    assert "\u241b[2Jx" in out.getvalue()


@pytest.mark.parametrize("name", NAMES)
def test_names_in_files_never_reach_the_terminal(trained: Path, tmp_path: Path, name: str) -> None:
    """Names of the environment, of users, of the run's own folder, and of what is not there."""
    folder = tmp_path / f"run {name}"
    shutil.copytree(trained / "species", folder)
    asks(folder, "species", name=name, objectives=[name, "abalone"])
    for file in folder.glob("evaluations/*.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"objectives": [name, "abalone"]}))
    answers = [
        program("compare", folder, folder),
        program("compare", folder, folder, "--json"),
        program("evaluate", folder, "--episodes", 1, "--no-reference", "--no-baselines"),
        program("play", "-", folder, "--steps", 2),
        program("export", folder, tmp_path / f"x{name}"),
        program("resume", folder),
    ]
    assert [answer.code for answer in answers] == [0] * len(answers), answers
    refusals = [
        program("evaluate", tmp_path / name),
        program("solve", tmp_path / name, "--gamma", 0.9),
        program("train", name),
        program("train", f"{name}:x"),
        program("list", name),
        program(f"--{name}"),
        program("train", "species", f"--{name}"),
    ]
    assert [answer.code for answer in refusals] == [2] * len(refusals), refusals
    assert all(map(harmless, answers + refusals)), [a for a in answers + refusals if not harmless(a)]


def test_names_of_users_and_actions_of_a_stranger_s_environment(tmp_path: Path) -> None:
    from faulty_envs import Sound

    class Named(Sound):
        objectives = ("\x1b[2Ja", "b\x9b", "\u202ec")
        action_names = ("\x1b[31mleft", "right\x07")

    gymnasium.register("strangers/named-v0", entry_point=Named)
    try:
        trained = program("train", "strangers/named-v0", *A2C, "--seeds", 1, "--episodes", 1, "-o", tmp_path / "run")
        played = program("play", "-", tmp_path / "run", "--steps", 3)
        judged = program("evaluate", tmp_path / "run", "--episodes", 1)
    finally:
        gymnasium.registry.pop("strangers/named-v0")
    for answer in (trained, played, judged):
        assert answer.code == 0, answer.err
        assert harmless(answer)
    assert "\u241b[31mleft" in played.out + judged.out.replace("\n", "")


# Folders that cannot be written to


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_what_cannot_be_kept_is_shown(trained: Path, tmp_path: Path, words: list[str]) -> None:
    shutil.copytree(trained / "species", tmp_path / "run")
    shutil.rmtree(tmp_path / "run/evaluations")
    (tmp_path / "run/evaluations").touch()
    answer = program("evaluate", tmp_path / "run", "--episodes", 1, "--no-reference", "--no-baselines", *words)
    assert answer.code == 0
    sentence = f"The result could not be kept in {tmp_path / 'run'}: File exists."
    if words:
        assert json.loads(answer.out)["episodes"] == 1
        assert answer.err == f"evenhand: {sentence}\n"
    else:
        assert "GGF-PPO" in answer.out
        assert sentence in answer.out


def test_a_folder_that_is_really_read_only(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained / "species", tmp_path / "run")
    shutil.rmtree(tmp_path / "run/evaluations")
    bind = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    mount = ["unshare", "-Urm", "sh", "-c", bind, str(tmp_path / "run")]
    possible = shutil.which("unshare") and not subprocess.run([*mount, "true"], capture_output=True).returncode
    if not possible and "CI" not in os.environ:
        pytest.skip("nothing can be mounted here")
    both = """
        import sys
        from evenhand.cli import main
        assert main(["evaluate", sys.argv[1], "--episodes", "1", "--no-reference", "--no-baselines"]) == 0
        print("and then")
        assert main(["compare", sys.argv[1], sys.argv[1]]) == 0
    """
    words = [*mount, sys.executable, "-c", textwrap.dedent(both), str(tmp_path / "run")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    evaluated, compared = done.stdout.split("and then\n")
    assert "GGF-PPO" in evaluated
    assert "could not be kept" in evaluated
    assert "GGF-PPO" in compared
    assert "could not be kept" not in compared
