"""The program for learning: from train to compare, what it refuses, and Ctrl-C in the middle of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from PIL import Image

import evenhand as eh
from calls import PROGRAM, program, refused
from evenhand.agents import names
from evenhand.cli.options import assignments, whole
from evenhand.cli.program import COMMANDS, one_by_one
from evenhand.errors import InputError
from evenhand.runs.declared import as_toml, settings_of
from evenhand.runs.folder import RunFolder
from evenhand.welfare import KNOWN
from processes import running, until

# The program is the same for all algorithms; this one is compiled soonest.
SMALL = ["--algo", "a2c", "--set", "envs=2", "rollout=64", "--steps", "512", "--jobs", "1"]
STRONG = ["species", "--env", "response=strong"]
LONGER = [
    *("train", *STRONG, "--algo", "a2c", "--set", "envs=2", "rollout=64", "--steps", "12800"),
    *("--seeds", "2", "--episodes", "2"),
]
"""Long enough to be interrupted."""

pytestmark = pytest.mark.filterwarnings("ignore:.*precision lowered by casting:UserWarning")


@pytest.fixture(scope="module", autouse=True)
def narrow() -> Any:
    """A terminal of 80 columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "80")
        yield


@pytest.fixture(scope="module")
def runs(narrow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a fair and a plain run of species, two seeds each."""
    folder = tmp_path_factory.mktemp("learning") / "runs"
    for name, welfare in (("fair", "ggf"), ("plain", "utilitarian")):
        answer = program(*LONGER, "--welfare", welfare, "--jobs", 1, "-o", folder / name)
        assert answer.code == 0, answer.err
        (folder / f"{name}.txt").write_text(answer.out, "utf-8")
    return folder


@pytest.fixture(scope="module")
def cart(narrow: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of CartPole, which has one user, and one seed."""
    folder = tmp_path_factory.mktemp("cart") / "cart"
    answer = program("train", "CartPole-v1", *SMALL, "--seeds", "3,", "--episodes", 2, "-o", folder)
    assert answer.code == 0, answer.err
    return folder


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# The program as such


@pytest.mark.parametrize("page", list(COMMANDS))
def test_every_page_of_help_teaches_with_an_example(page: str) -> None:
    code, out, err = program(page, "--help")
    assert (code, err) == (0, "")
    assert "For example" in out
    assert re.search(rf"^ +evenhand {page}", out, re.MULTILINE)


def test_help_and_list_do_not_wait_for_jax() -> None:
    check = (
        "import sys, contextlib; from evenhand.cli import main\n"
        "for words in ['--help'], ['train', '--help'], ['list'], ['list', 'ppo'], ['list', 'species']:\n"
        "    with contextlib.suppress(SystemExit): main(words)\n"
        "sys.exit(len({'jax', 'matplotlib', 'polars', 'scipy.stats'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", check], check=True, stdout=subprocess.DEVNULL)


@pytest.mark.parametrize(("text", "value"), [("1e6", 1_000_000), ("1_000", 1000), ("7", 7), ("-3", -3)])
def test_whole_numbers(text: str, value: int) -> None:
    assert whole(text) == value


@pytest.mark.parametrize("text", ["1.5", "x", "nan", "inf", ""])
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        whole(text)


def test_values_are_toml_and_else_text_and_never_run() -> None:
    words = [
        "a=1",
        "b=1e-3",
        "c=true",
        "d=[64,64]",
        "e=strong",
        'f="1"',
        "g=__import__('os')",
        "h=1979-05-27",
        "i=",
        "j=a=b",
    ]
    assert assignments("--set", words) == {
        "a": 1,
        "b": 1e-3,
        "c": True,
        "d": [64, 64],
        "e": "strong",
        "f": "1",
        "g": "__import__('os')",
        "h": "1979-05-27",
        "i": "",
        "j": "a=b",
    }
    assert assignments("--set", ["a=1\nb = 2"]) == {"a": "1\nb = 2"}
    for bad in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(InputError):
            assignments("--set", bad)


def test_several_assignments_may_follow_one_option() -> None:
    words = ["train", "--set", "a=1", "b=2", "species", "--env", "c=3", "--set", "d=4", "--steps", "5"]
    assert one_by_one(words) == [
        "train",
        "--set",
        "a=1",
        "--set",
        "b=2",
        "species",
        "--env",
        "c=3",
        "--set",
        "d=4",
        "--steps",
        "5",
    ]
    assert one_by_one(["--set"]) == ["--set"]
    assert one_by_one(["--env", "x", "a=1"]) == ["--env", "x", "--env", "a=1"]


# train


def test_train_says_what_it_will_do_and_what_came_of_it(runs: Path) -> None:
    text = (runs / "fair.txt").read_text("utf-8")
    assert "species, response = strong: 2 users (otters, abalone), 5 actions" in text
    assert "GGF-A2C (a2c, welfare ggf:2, preset tuned), 12,800 steps × 2 seeds" in text
    assert text.index(str(runs / "fair")) < text.index("Who gets what")
    assert re.search(r"^ GGF-A2C( +[\d.]+){7} *$", text, re.MULTILINE)
    assert re.search(r"^( +±[\d.]+){7} *$", text, re.MULTILINE)
    assert f"evenhand evaluate {runs / 'fair'}" in text
    lines = [line for line in text.splitlines() if str(runs) not in line]
    assert max(map(len, lines)) <= 80


def test_train_asks_the_library_what_it_was_asked(runs: Path) -> None:
    request = RunFolder.open(runs / "fair").request
    assert request.arguments == {"response": "strong"}
    assert request.seeds == (0, 1)
    assert (request.config.envs, request.config.rollout, request.steps) == (2, 64, 12_800)


def test_train_as_json_prints_nothing_else(here: Path) -> None:
    code, out, err = program("train", *STRONG, *SMALL, "--seeds", 1, "--episodes", 1, "--json")
    assert code == 0
    said = json.loads(out)
    assert said["policies"][0]["name"] == "GGF-A2C"
    assert said["policies"][0]["welfare"]["low"] is None  # one seed says nothing about others
    assert "512 steps × seed 0" in err
    [folder] = Path("runs").iterdir()
    assert said["run"] == str(folder)
    assert re.fullmatch(r"species-a2c-ggf-2-\d{4}-\d\d-\d\d-1", folder.name)


def test_without_test_episodes_there_is_no_table(here: Path) -> None:
    code, out, _ = program("train", "CartPole-v1", *SMALL, "--seeds", 1, "--episodes", 0, "-o", "run")
    assert code == 0
    assert "Who gets what" not in out
    assert "evenhand evaluate run" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("train specis", "did you mean species?"),
        ("train nomodule:Env-v0", "cannot be imported"),
        ("train species --algo pp", "did you mean ppo?"),
        ("train species --welfare gff", "did you mean 'ggf'?"),
        ("train species --welfare ggf:3,2,1", "3 weights, but there are 2 users"),
        ("train species --preset papr", "did you mean paper?"),
        ("train CartPole-v1 --preset paper", "no settings of ppo for CartPole-v1"),
        ("train species --set learnin_rate=1", "did you mean learning_rate?"),
        ("train species --set gamma=1.5", "gamma must lie in [0, 1)"),
        ("train species --set hidden=x", "hidden must be a list"),
        ("train species --set nothing", "--set takes name=value"),
        ("train species --set envs=1 envs=2", "--set says envs twice"),
        ("train species --env respons=strong", "did you mean response?"),
        ("train species --env response=stong", "did you mean strong?"),
        ("train species --steps -5", "--steps must be at least 1, not -5"),
        ("train species --steps 10", "fewer than ppo takes"),
        ("train species --seeds 0", "at least one seed"),
        ("train species --seeds 1,1", "different whole numbers"),
        ("train species --seeds 1,,2", "not '1,,2'"),
        ("train species --seeds x", "--seeds takes how many"),
        ("train species --jobs 0", "--jobs must be at least 1"),
        ("train species --workers 2", "needs no worker processes"),
        ("train species --episodes -1", "must not be negative"),
        ("train species --checkpoint-seconds -1", "must not be negative"),
        ("train species --checkpoint-seconds nan", "must not be negative"),
        ("train Pendulum-v1 --algo dqn", "use ppo or a2c"),
        ("train species -o full", "full is not empty"),
        ("train species -o file", "file is not a folder"),
        ("resume none", "none does not exist"),
        ("resume full", "full is not a run"),
        ("resume full --jobs 0", "--jobs must be at least 1"),
        ("evaluate none", "none does not exist"),
        ("evaluate none --measure mean", "there is no measure 'mean'"),
        ("evaluate none --episodes 0", "--episodes must be at least 1"),
        ("evaluate none --seed -1", "--seed must not be negative"),
        ("evaluate none --picture x.jpeg", ".png, .pdf or .svg, not x.jpeg"),
        ("evaluate none --picture none/x.png", "there is no folder none"),
        ("evaluate none --env x", "--env takes name=value"),
        ("compare none", "give two runs or more"),
        ("compare none none2", "none does not exist"),
        ("compare none none2 --html x.txt", ".html or .htm, not x.txt"),
        ("play - none", "none does not exist"),
        ("play - none --steps 0", "--steps must be at least 1"),
        ("play - none --render x.mp4", ".png or .gif, not x.mp4"),
        ("list pp", "did you mean ppo?"),
    ],
)
def test_bad_input_gets_one_sentence_and_no_work(here: Path, words: str, sentence: str) -> None:
    Path("full").mkdir()
    Path("full/something").touch()
    Path("file").touch()
    assert sentence in refused(program(*words.split()))
    assert sorted(os.listdir()) == ["file", "full"]


def test_a_run_is_never_trained_over(runs: Path) -> None:
    assert f"evenhand resume {runs / 'fair'}" in refused(program("train", "species", "-o", runs / "fair"))


@pytest.mark.parametrize(
    "words", ["train", "train species --steps 1.5", "train species --step 5", "trian species", "play -"]
)
def test_misspelt_options_are_explained(here: Path, words: str) -> None:
    code, out, err = program(*words.split())
    assert (code, out) == (2, "")
    assert "Traceback" not in err
    assert "help" in err
    assert os.listdir() == []


# evaluate


def test_evaluate_compares_with_simple_policies_and_the_optimum(runs: Path, here: Path) -> None:
    words = ["evaluate", runs / "fair", "--episodes", 2, "--measure", "discounted"]
    code, out, err = program(*words, "-p", "fair.png")
    assert (code, err) == (0, "")
    rows = dict(re.findall(r"^ ([A-Za-z][\w -]*?)  +(\d.*?) *$", out, re.MULTILINE))
    assert list(rows) == [
        "GGF-A2C",
        "random",
        *(f"always {name}" for name in ("nothing", "introduce", "enforce", "control", "half and half")),
        "exact optimum",
    ]
    # The optimum is known from the reference's own tests; nothing comes of doing nothing.
    assert rows["exact optimum"].split() == ["0.481"] * 6 + ["0.000", "100.0", "%"]
    assert rows["always nothing"].split()[0] == "0.000"
    assert max(len(line) for line in out.splitlines() if str(runs) not in line) <= 80
    assert Path("fair.png").read_bytes().startswith(b"\x89PNG")

    kept = json.loads((runs / "fair/evaluations/test-2-episodes-seed-0.json").read_text("utf-8"))
    run, optimum = kept["policies"][0], kept["policies"][-1]
    totals = np.array([kept["seeds"][seed]["discounted"] for seed in ("0", "1")])
    assert run["users"]["otters"]["value"] == pytest.approx(totals[:, :, 0].mean())
    scores = [(z.max() + 2 * z.min()) / 3 for z in totals.mean(axis=1)]  # the GGF with weights 2/3 and 1/3
    assert run["welfare"]["value"] == pytest.approx(np.mean(scores))
    assert run["share_of_optimum"]["value"] == pytest.approx(np.mean(scores) / optimum["welfare"]["value"])
    assert run["welfare"]["low"] <= run["welfare"]["value"] <= run["welfare"]["high"]
    assert optimum["kind"] == "exact"


def test_evaluate_in_another_environment_and_with_less(runs: Path) -> None:
    words = ["evaluate", runs / "fair", "--episodes", 1, "--no-baselines", "--json"]
    code, out, _ = program(*words, "--env", "response=weak", "episode_steps=50", "--measure", "return")
    assert code == 0
    said = json.loads(out, parse_constant=pytest.fail)
    assert said["arguments"] == {"response": "weak", "episode_steps": 50}
    kept = json.loads(
        (runs / "fair/evaluations/test-1-episodes-seed-0-response-weak-episode_steps-50.json").read_bytes()
    )
    assert said == {name: kept[name] for name in said}
    assert [policy["kind"] for policy in said["policies"]] == ["run"]
    assert "No exact optimum: episodes of 50 steps are too short" in said["notes"][-1]
    assert "did you mean" in refused(program(*words, "--env", "respons=weak"))
    assert "other observations" in refused(program(*words, "--env", "observation=levels"))


def test_evaluate_of_one_user(cart: Path) -> None:
    code, out, _ = program("evaluate", cart, "--episodes", 2)
    assert code == 0
    assert "sum of the rewards of an episode" in out
    assert re.search(r"^ always 1 +\d", out, re.MULTILINE)
    assert "One seed says nothing about others" in out


@pytest.mark.slow
def test_evaluate_of_continuous_actions_and_many_users(here: Path) -> None:
    gymnasium.register("evenhand-test/many-v0", entry_point=ManyUsers, disable_env_checker=True)
    words = ["evenhand-test/many-v0", *SMALL, "--seeds", 1, "--episodes", 1, "-o", "run"]
    assert program("train", *words, "--welfare", "maximin").code == 0
    code, out, _ = program("evaluate", "run", "--episodes", 1, "-p", "many.svg")
    assert code == 0
    for name in ("always low", "always middle", "always high", "There are 9 users"):
        assert name in out
    assert "user 1" not in out
    assert Path("many.svg").exists()
    _, out, _ = program("evaluate", "run", "--episodes", 1, "--json")
    always_high = json.loads(out)["policies"][-1]
    assert always_high["users"]["user 9"]["value"] == pytest.approx(90)
    code, out, _ = program("play", "-", "run", "--steps", 2)
    assert code == 0
    assert "[" in out


class ManyUsers(gymnasium.Env[Any, Any]):
    """Nine users; each gets its number times the only entry of the action, ten times."""

    observation_space = gymnasium.spaces.Box(0, 1, (1,))
    action_space = gymnasium.spaces.Box(0, 1, (1,))
    reward_space = gymnasium.spaces.Box(0, 9, (9,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(1, np.float32), float(action[0]) * np.arange(1.0, 10.0), self.t == 10, False, {}


# compare


def test_compare_shows_runs_side_by_side(runs: Path, here: Path) -> None:
    both = [runs / "fair", runs / "plain"]
    code, out, err = program("compare", *both, "--measure", "average", "--picture", "c.png", "--html", "c.html")
    assert (code, err) == (0, "")
    assert re.search(r"^ GGF-A2C( +[\d.]+){7} +-?[\d.]+ % *$", out, re.MULTILINE)
    assert re.search(r"^ A2C( +[\d.]+){7} +-?[\d.]+ % *$", out, re.MULTILINE)
    assert "price of fairness" in out
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    page = Path("c.html").read_text("utf-8")
    assert "<script" not in page
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert 'src="data:image/png;base64,iVBOR' in page
    assert ">GGF-A2C<" in page
    assert sorted(os.listdir()) == ["c.html", "c.png"]

    code, out, _ = program("compare", *both, "--welfare", "maximin", "--json")
    assert code == 0
    said = json.loads(out)
    assert said["welfare"] == "maximin"
    fair, plain = said["policies"]
    assert min(fair["price_of_fairness"]["value"], plain["price_of_fairness"]["value"]) == pytest.approx(0, abs=1e-12)
    for policy in said["policies"]:
        assert policy["welfare"]["value"] == pytest.approx(policy["minimum"]["value"])


def test_runs_with_the_same_name_are_told_apart(runs: Path) -> None:
    _, out, _ = program("compare", runs / "fair", runs / "fair", "--json")
    assert [policy["name"] for policy in json.loads(out)["policies"]] == ["GGF-A2C (fair)"] * 2


def test_only_like_is_compared_with_like(runs: Path, cart: Path, here: Path) -> None:
    said = refused(program("compare", runs / "fair", cart))
    assert "is of species (response='strong')" in said
    assert "of CartPole-v1" in said
    RunFolder.create("unfinished", RunFolder.open(runs / "fair").request)
    said = refused(program("compare", runs / "fair", "unfinished"))
    assert "seed 0: 0 of 12,800 steps" in said
    assert "evenhand resume unfinished" in said
    assert "no checkpoint yet" in refused(program("evaluate", "unfinished"))
    assert "3 weights" in refused(program("compare", runs / "fair", runs / "plain", "--welfare", "ggf:3,2,1"))


def test_tests_that_were_not_kept_are_played(runs: Path, cart: Path) -> None:
    (cart / "evaluations/seed-3.json").unlink()
    assert program("compare", cart, cart, "--json").code == 0
    assert (cart / "evaluations/seed-3.json").exists()


# play


def test_play_shows_every_step(runs: Path, here: Path) -> None:
    code, out, err = program("play", "species", runs / "fair", "--steps", 5, "--policy-seed", 1)
    assert (code, err) == (0, "")
    assert len(re.findall(r"^ +\d+  (?:nothing|introduce|enforce|control|half and half) ", out, re.MULTILINE)) == 5
    assert "After 5 steps the episode goes on." in out
    assert "seed 1" in out
    assert program("play", "-", runs / "fair", "--steps", 5, "--policy-seed", 1).out == out


def test_play_as_json_adds_up(runs: Path) -> None:
    _, out, _ = program(
        "play", "-", runs / "fair", "--steps", 5, "--env", "episode_steps=4", "--json", "--deterministic"
    )
    said = json.loads(out)
    rewards = np.array([step["rewards"] for step in said["steps"]])
    assert rewards.shape == (4, 2)
    np.testing.assert_allclose(said["total"], rewards.sum(axis=0))
    np.testing.assert_allclose(said["average"], rewards.mean(axis=0))
    low, high = sorted(said["average"])
    assert said["welfare"] == pytest.approx((2 * low + high) / 3)
    assert said["steps"][-1]["welfare_so_far"] == said["welfare"]
    assert (said["terminated"], said["truncated"]) == (False, True)


def test_play_draws(runs: Path, here: Path) -> None:
    assert "Drawn in a.gif" in program("play", "-", runs / "fair", "--steps", 3, "--render", "a.gif").out
    assert program("play", "-", runs / "fair", "--steps", 3, "--render", "a.png").code == 0
    with Image.open("a.gif") as moving, Image.open("a.png") as still:
        assert getattr(moving, "n_frames", 1) == 3
        assert moving.size == still.size


def test_play_of_other_peoples_environments(cart: Path) -> None:
    code, out, _ = program("play", "CartPole-v1", cart)
    assert code == 0
    assert "the episode ended by itself" in out
    assert "trained for 1 users, but here are 2" in refused(program("play", "species", cart))
    assert "other observations" in refused(program("play", "Acrobot-v1", cart))
    assert "has no seed 0" in refused(program("play", "-", cart, "--policy-seed", 0))


# resume


def test_resume_of_a_finished_run_changes_nothing(runs: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in (runs / "fair").rglob("*.json")}
    code, out, _ = program("resume", runs / "fair")
    assert code == 0
    assert "nothing is left to do" in out
    assert "GGF-A2C" in out
    assert {path: path.stat().st_mtime_ns for path in (runs / "fair").rglob("*.json")} == before
    assert json.loads(program("resume", runs / "fair", "--json").out)["policies"][0]["seeds"] == 2


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_ctrl_c_stops_at_a_checkpoint_and_resume_goes_on_as_if_nothing_had_happened(
    runs: Path, here: Path, jobs: str
) -> None:
    words = [*LONGER, "--jobs", jobs, "--checkpoint-seconds", "0", "-o", "run"]
    with running([*PROGRAM, *words]) as process:
        until(lambda: list(Path("run").glob("seed-*/checkpoints/step-*")), process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130, err
    assert "Who gets what" not in out
    said = r"evenhand: stopped at a checkpoint, [\d,]+ of 25,600 steps done; go on with: evenhand resume run\n"
    assert re.fullmatch(said, err), err
    assert not all(seed.finished for seed in RunFolder.open("run").status())
    early = program("evaluate", "run", "--episodes", 2, "--no-baselines", "--no-reference")
    assert re.search(r"seed 0: only [\d,]+ of 12,800 steps are trained", early.out)

    resumed = program("resume", "run", "--jobs", 1)
    assert "Who gets what" in resumed.out
    for name in (
        "seed-0/metrics.parquet",
        "seed-1/metrics.parquet",
        "evaluations/seed-0.json",
        "evaluations/seed-1.json",
    ):
        assert (Path("run") / name).read_bytes() == (runs / "fair" / name).read_bytes()


# list and check-env


def test_list_shows_everything(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunFolder.create(runs / "begun", RunFolder.open(runs / "fair").request)
    (runs / "broken").mkdir()
    (runs / "broken/run.json").write_text("{")
    monkeypatch.chdir(runs.parent)
    code, out, err = program("list")
    assert (code, err) == (0, "")
    for name in ("species", *names(), *(name for name, _ in KNOWN), "tuned", "paper"):
        assert re.search(rf"^  {re.escape(name)} ", out, re.MULTILINE), name
    assert re.search(r"^  runs/fair +done *$", out, re.MULTILINE)
    assert re.search(r"^  runs/begun +0 of 25,600 steps: evenhand resume runs/begun *$", out, re.MULTILINE)
    assert re.search(r"^  runs/broken +cannot be read", out, re.MULTILINE)
    said = json.loads(program("list", "--json").out)
    assert {"folder": "runs/plain", "state": "done"} in said["runs"]
    assert [row["name"] for row in said["algorithms"]] == list(names())


@pytest.mark.parametrize("algorithm", names())
def test_list_explains_every_setting_as_it_is(algorithm: str) -> None:
    import dataclasses

    from evenhand.agents.algorithm import algorithm as named

    fields = {field.name: field for field in dataclasses.fields(named(algorithm).Config)}
    found = {row.name: row for row in settings_of(f"evenhand.agents.{algorithm}:Config")}
    assert list(found) == list(fields)
    for name, row in found.items():
        assert row.about, name
        assert row.default == ("–" if fields[name].default is None else as_toml(fields[name].default))
    code, out, _ = program("list", algorithm)
    assert code == 0
    assert "Preset tuned" in out
    assert json.loads(program("list", algorithm, "--json").out)["presets"]["tuned, any environment"]["steps"] > 0


def test_cycles_are_told_also_where_nothing_else_is_counted() -> None:
    code, out, _ = program("cycle", "traffic-standin", "--holds", "2", "--episodes", 1, "--json")
    assert code == 0
    assert [(cycle["hold"], cycle["facts"]) for cycle in json.loads(out)["cycles"]] == [(2, {})]


def test_list_explains_our_environments() -> None:
    code, out, _ = program("list", "species")
    assert code == 0
    assert "spill_probability" in out
    assert "oil spill" in out


def test_check_env_says_what_is_wrong() -> None:
    code, out, _ = program("check-env", "CartPole-v1", "--env", "sutton_barto_reward=true")
    assert code == 0
    assert "evenhand can train on CartPole-v1" in out
    code, out, _ = program("check-env", "species", "--env", "response=none")
    assert code == 1
    assert "response must be weak" in " ".join(out.split())
    assert "1 of these must be put right" in out
    code, out, _ = program("check-env", "nowhere-v0", "--json")
    assert code == 1
    assert json.loads(out)["findings"][0]["severity"] == "error"


@pytest.mark.slow
def test_multi_objective_environments_of_others(here: Path) -> None:
    assert program("check-env", "deep-sea-treasure-v0").code == 0
    words = ["--algo", "dqn", "--steps", "2000", "--seeds", "1", "--episodes", "2", "-o", "sea"]
    code, out, err = program("train", "deep-sea-treasure-v0", *words)
    assert code == 0, err
    assert "GGF-DQN" in out
    code, out, _ = program("evaluate", "sea", "--episodes", 2)
    assert code == 0
    assert "–" in out  # a coefficient of variation of losses means nothing
    assert program("play", "-", "sea", "--render", "sea.png", "--steps", 3).code == 0
    with Image.open("sea.png") as frame:
        assert min(frame.size) > 10


def test_numbers_without_bounds() -> None:
    """Seeds are added to and handed on to libraries that know 64 bits."""
    assert "too large a number" in program("evaluate", "nowhere", "--seed", "99999999999999999999").err
    with pytest.raises(InputError, match="must lie between 0 and 2\\^62"):
        eh.evaluate_policy("species", "random", 1, seed=2**63)
