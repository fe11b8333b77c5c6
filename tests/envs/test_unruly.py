"""Strangers' environments: they hang, end the program, print, fail and never end; the run goes on, or says why."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest

import evenhand as eh
import faulty_envs
import unruly_envs
from evenhand import children, cli
from evenhand.envs.gym import vector
from evenhand.envs.gym.failures import EnvironmentFailed
from evenhand.envs.gym.host_env import HostEnv
from evenhand.envs.gym.vector import VectorEnv
from evenhand.errors import InputError
from evenhand.interrupt import last_resort
from evenhand.runs import RunFolder

PATIENCE = 240
"""Seconds for anything, on a machine of any speed."""
# Interrupts are ignored in the background.
PROGRAM = (
    "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from evenhand.cli import main; sys.exit(main())"
)
# Nothing here depends on the algorithm; this one is compiled soonest.
SMALL = ["--algo", "a2c", "--set", "envs=2", "rollout=16", "--steps", "128", "--jobs", "2"]
FEW = {"envs": 2, "rollout": 16}
HELPERS = Path(__file__).parents[1] / "helpers"


class Answer(NamedTuple):
    code: int
    out: str
    err: str


def started(folder: Path, *words: Any, program: str = PROGRAM, **options: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def answer(process: subprocess.Popen[str]) -> Answer:
    out, err = process.communicate(timeout=PATIENCE)
    return Answer(process.returncode, out, err)


def train(folder: Path, deed: str, *more: Any, step: int = 30, once: bool = False, **options: Any) -> Any:
    """The program, training on an environment that does a deed."""
    settings = [f"deed={deed}", f"step={step}", f"marker={folder / 'marker'}", f"once={str(once).lower()}"]
    words = ["train", "unruly_envs:unruly-v0", "--env", *settings, *SMALL, "-o", folder / "run", *more]
    return started(folder, *words, **options)


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + PATIENCE
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)


# Hanging


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deed", "more"),
    [
        ("swallow", ("--seeds", 1)),
        ("sleep", ("--seeds", 1, "--workers", 2)),
        ("swallow", ("--seeds", 2, "--workers", 1)),
    ],
)
def test_ctrl_c_ends_a_run_that_hangs(tmp_path: Path, deed: str, more: tuple[Any, ...]) -> None:
    process = train(tmp_path, deed, *more, step=3)
    wait_for(tmp_path / "marker", process)
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):  # the first one waits for a checkpoint, which will not come
        process.wait(1)
    process.send_signal(signal.SIGINT)
    code, _, err = answer(process)
    assert code == 130
    assert "Traceback" not in err
    assert "evenhand: " in err


def test_ctrl_c_is_not_lost_in_a_callback_of_the_garbage_collector() -> None:
    """JAX has one, and what is raised there would only be printed."""
    presses = ["once"]

    def press(phase: str, about: Any) -> None:
        if presses:
            presses.pop()
            raise KeyboardInterrupt

    def wait() -> None:
        gc.callbacks.append(press)
        gc.collect()
        gc.callbacks.remove(press)
        time.sleep(PATIENCE)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with last_resort(130), pytest.raises(KeyboardInterrupt):
            wait()
    finally:
        signal.signal(signal.SIGINT, before)


def hanging(step: int, **more: Any) -> HostEnv:
    return HostEnv.of(partial(unruly_envs.Unruly, "sleep", step, **more), "hanging")


def test_a_worker_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector, "PATIENCE", 10 * PATIENCE)
    environments = VectorEnv(hanging(2), 4, 0, workers=2)
    environments.reset()
    environments.step(np.zeros(4, int))
    for worker in environments._stepping._workers:  # type: ignore[attr-defined]
        worker.tell(b"s")
    began = time.monotonic()
    environments.close()
    assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize("step", [25, 0])
def test_a_step_or_reset_that_takes_too_long_costs_the_episode_only(tmp_path: Path, step: int) -> None:
    said: list[str] = []
    env = hanging(step, marker=str(tmp_path / "marker"), once=True)
    with VectorEnv(env, 2, 0, warn=said.append, step_timeout=1) as environments:
        last = environments.reset()
        while not (lost := environments.step(np.ones(2, int))).info or not said:
            last = lost.observation
        assert lost.info == [{"lost": "its worker process gave no answer in 1 s for each step or reset"}] * 2
        assert lost.truncated.all()
        assert not lost.terminated.any()
        np.testing.assert_array_equal(lost.final_observation, last)
        np.testing.assert_array_equal(lost.reward, 0)
        ends = [environments.step(np.ones(2, int)).truncated for _ in range(faulty_envs.LIMIT)]
        np.testing.assert_array_equal(np.sum(ends, axis=0), [1, 1])  # whole episodes from there on
    assert said == [
        "the worker process of environments 0 to 1 of hanging gave no answer in 1 s for each step or reset; its "
        "episodes are cut off, and it is started anew."
    ]


def test_one_that_always_hangs_is_given_up() -> None:
    said: list[str] = []
    with VectorEnv(hanging(1), 1, 0, warn=said.append, step_timeout=0.2) as environments:
        environments.reset()
        for _ in range(vector.RESTARTS_IN_A_ROW):
            assert environments.step([0]).truncated.all()
        with pytest.raises(EnvironmentFailed, match=r"no answer in 0\.2 s .* after 3 restarts in a row"):
            environments.step([0])
    assert len(said) == vector.RESTARTS_IN_A_ROW


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), 1e20])
def test_what_is_no_time_limit(seconds: float) -> None:
    with pytest.raises(InputError, match="step_timeout must be a positive number"):
        VectorEnv(HostEnv.of(faulty_envs.Sound), 1, 0, step_timeout=seconds)


def test_compiled_environments_do_not_hang(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="species is compiled, and its steps cannot hang"):
        eh.train("species", steps=4096, folder=tmp_path / "run", step_timeout=1)
    assert not (tmp_path / "run").exists()


# Ending the program, and failing


def here(*words: Any) -> Answer:
    """The program in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([str(word) for word in words])
    return Answer(code, out.getvalue(), err.getvalue())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("deed", "more"),
    [
        ("exit", ("--seeds", 1)),
        ("fall", ("--seeds", 1)),
        ("fall", ("--seeds", 1, "--workers", 2)),
        ("exit", ("--seeds", 3)),
    ],
)
def test_a_failure_is_shown_once_with_the_lines_of_whoever_made_it_and_leaves_a_checkpoint(
    tmp_path: Path, deed: str, more: tuple[Any, ...]
) -> None:
    settings = [f"deed={deed}", "step=40"]
    code, out, err = here("train", "unruly_envs:unruly-v0", "--env", *settings, *SMALL, "-o", tmp_path / "run", *more)
    assert code == 2
    assert "Who gets what" not in out
    said = "it called sys.exit(0)" if deed == "exit" else "ZeroDivisionError: the wheel came off."
    assert re.search(r"environment \d of unruly-v0, step 20 of its episode \(40 in all\): it failed: ", err)
    assert err.count(f"it failed: {said}") == err.count("Traceback") == 1
    frames = re.findall(r'^  File "(.*)", line', err, re.MULTILINE)
    assert frames
    assert {Path(file).name for file in frames} == {"unruly_envs.py"}
    assert f"evenhand resume {tmp_path / 'run'}" in err
    assert all(seed.step == 64 for seed in RunFolder.open(tmp_path / "run").status())  # whole rollouts of 2 × 16 steps


def test_our_own_lines_are_shown_when_asked_for(tmp_path: Path) -> None:
    settings = ["deed=fall", "step=3"]
    words = ["train", "unruly_envs:unruly-v0", "--env", *settings, *SMALL, "-o", tmp_path / "run", "--seeds", 1]
    code, _, err = here(*words, "--traceback")
    assert code == 2
    assert "evenhand/envs/gym/stepper.py" in err.replace(os.sep, "/")
    assert "evenhand/training/host_loop.py" in err.replace(os.sep, "/")
    assert "stopped before the first checkpoint" in err


def test_a_run_goes_on_after_a_step_that_hung(tmp_path: Path) -> None:
    settings = ["deed=sleep", "step=30", f"marker={tmp_path / 'marker'}", "once=true"]
    words = ["train", "unruly_envs:unruly-v0", "--env", *settings, *SMALL, "-o", tmp_path / "run"]
    code, _, err = here(*words, "--seeds", 1, "--step-timeout", 1, "--episodes", 1)
    assert code == 0, err
    assert [seed.finished for seed in RunFolder.open(tmp_path / "run").status()] == [True]
    assert (tmp_path / "run" / "log.txt").read_text().count("gave no answer in 1 s") >= 1


@pytest.mark.slow
def test_a_process_that_ends_is_an_error(tmp_path: Path) -> None:
    """Of a seed at once, of a worker after some restarts."""
    words = ["train", "unruly_envs:unruly-v0", "--env", "step=3", "deed=os_exit", *SMALL, "-o", tmp_path / "run"]
    code, _, err = here(*words, "--seeds", 3)
    assert code == 2
    assert "seed 0 could not be trained (and 2 more): its process ended (exit code 0)." in err
    words = ["train", "unruly_envs:unruly-v0", "--env", "step=5", "deed=kill", *SMALL, "-o", tmp_path / "other"]
    code, _, err = here(*words, "--seeds", 1, "--workers", 1)
    assert code == 2
    assert "ended (signal SIGSEGV), after 3 restarts in a row" in err


def test_what_led_to_an_error_is_shown_too() -> None:
    class Careful(faulty_envs.Sound):
        def step(self, action: Any) -> Any:
            try:
                return {}["nothing"]
            except KeyError as error:
                raise RuntimeError("out of fuel") from error

    with VectorEnv(HostEnv.of(Careful), 1, 0) as environments:
        environments.reset()
        both = r"(?s)RuntimeError: out of fuel\.\n.*KeyError.*direct cause"
        with pytest.raises(EnvironmentFailed, match=both) as told:
            environments.step([0])
    assert "stepper.py" not in str(told.value)
    assert "stepper.py" in told.value.full


def test_errors_of_functions_that_play_are_told_apart() -> None:
    env = HostEnv.of(faulty_envs.FailsInStep, "failing")
    with pytest.raises(EnvironmentFailed, match=r"(?s)step 5 of test episode 0 of failing failed: Zero.*the wheel"):
        eh.evaluate_policy(env, lambda observation: 0, episodes=2)

    def careless(observation: Any) -> int:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        eh.evaluate_policy(env, careless, episodes=2)


# Printing

BETWEEN = "=== the next one ===\n"
ONE_AFTER_ANOTHER = f"""
import json, sys
from evenhand.cli import main
for words in json.loads(sys.argv[1]):
    assert main([*words, "--json"]) == 0
    for stream in (sys.stdout, sys.stderr):
        print({BETWEEN!r}, end="", file=stream, flush=True)
"""


@pytest.mark.slow
def test_what_an_environment_prints_does_not_spoil_the_answer(tmp_path: Path) -> None:
    speak = ["deed=speak", "step=10"]
    everybody = [f"spoken by {who}\n" for who in ("Python", "Python's own stream", "C", "another program")]
    commands = [
        ["train", "unruly_envs:unruly-v0", "--env", *speak, *SMALL, "--seeds", "1", "-o", "run", "--workers", "1"],
        ["evaluate", "run", "--episodes", "2", "--env-module", "unruly_envs"],
        ["play", "-", "run", "--env-module", "unruly_envs"],
        ["check-env", "unruly_envs:unruly-v0", "--env", *speak],
    ]
    code, out, err = answer(started(tmp_path, json.dumps(commands), program=ONE_AFTER_ANOTHER))
    assert code == 0, err
    outs, errs = out.split(BETWEEN), err.split(BETWEEN)
    assert len(outs) == len(errs) == len(commands) + 1
    assert not outs[-1] + errs[-1]  # nothing comes late
    for spoken, told in zip(outs[:-1], errs[:-1], strict=True):
        assert isinstance(json.loads(spoken), dict)
        assert all(said in told for said in everybody), told
        assert "spoken to the descriptor\n" in told


# Never ending


def test_endless_episodes_are_cut_off_with_a_sentence() -> None:
    said: list[str] = []
    shares: list[float] = []
    env = HostEnv.of(unruly_envs.Endless, "endless")
    for policy in ("random", lambda observation: 1):
        played = eh.evaluate_policy(env, policy, 10, most_steps=500, say=said.append, progress=shares.append)
        assert played.length.tolist() == [500] * 10
        assert not played.terminated.any()
        assert shares == sorted(shares)
        assert 0 < shares[0] < 0.2
        assert shares[-1] <= 1
        shares.clear()
    assert len(said) == 2
    assert said[0].startswith("test episodes of endless that nothing had ended were cut off after 500 steps: ")
    said.clear()
    played = eh.evaluate_policy(HostEnv.of(faulty_envs.Sound), "random", 10, most_steps=20, say=said.append)
    assert (played.length.max(), said) == (20, [])  # which is where they end


def test_a_time_limit_of_their_own_counts(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr("evenhand.evaluation.playing.MOST_HOST_STEPS", 50)
    limited = {"max_episode_steps": 120}
    assert set(eh.evaluate_policy("unruly_envs:endless-v0", 0, 3, arguments=limited).length) == {120}
    assert not caplog.text
    assert set(eh.evaluate_policy("unruly_envs:endless-v0", 0, 3).length) == {50}
    assert "cut off after 50 steps" in caplog.text


def test_every_episode_begins_anew() -> None:
    """One that is cut off is not what the next goes on with."""

    class Counting(unruly_envs.Endless):
        def reward(self) -> Any:
            return np.full(3, self.time, np.float32)

    played = eh.evaluate_policy(HostEnv.of(Counting), 0, 10, most_steps=4, say=lambda _: None)
    np.testing.assert_array_equal(played.total, 1 + 2 + 3 + 4)


def test_a_run_of_an_endless_environment_ends_and_draws_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenhand.evaluation.playing.MOST_HOST_STEPS", 50)
    run = tmp_path / "run"
    words = ["train", "unruly_envs:endless-v0", *SMALL, "--seeds", 1, "--episodes", 2, "-o", run]
    code, _, err = here(*words)
    assert code == 0, err
    assert "cut off after 50 steps" in err
    assert "cut off after 50 steps" in (run / "log.txt").read_text()
    code, out, err = here("evaluate", run, "--episodes", 1, "--json")
    assert code == 0, err
    assert len([note for note in json.loads(out)["notes"] if "cut off" in note]) == 1
    for file in ("a.png", "a.gif"):
        code, _, err = here("play", "-", run, "--steps", 3, "--render", tmp_path / file)
        assert code == 2
        assert re.match("evenhand: error: the environment draws no pictures .*\n$", err)


# Actions


@pytest.mark.parametrize("name", ["species", "datacenter", "traffic-standin"])
def test_actions_of_any_kind_of_number_are_taken(name: str) -> None:
    env = gymnasium.make(f"evenhand/{name}-v0")
    env.reset(seed=0)
    action = env.action_space.sample()
    if isinstance(env.action_space, gymnasium.spaces.Box):
        kinds: list[Any] = [np.float64(action), action.astype(np.float16), action.tolist()]
        with pytest.raises(InputError, match="must lie in"):
            env.step(np.full(action.shape, 1e9))
        with pytest.raises(InputError, match="must lie in"):
            env.step(action[:-1])
        with pytest.raises(InputError, match="must lie in"):
            env.step(np.full(action.shape, np.nan))
    else:
        kinds = [int(action), np.int64(action), np.int32(action), np.array(action)]
    for kind in kinds:
        env.step(kind)
    env.close()


# Scripts


def script(folder: Path, text: str) -> Answer:
    (folder / "script.py").write_text(HEAD + text)
    path = os.pathsep.join([str(HELPERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return Answer(done.returncode, done.stdout, done.stderr)


HEAD = f"""
import gymnasium, faulty_envs
import evenhand as eh
def train(env, folder, **more):
    run = eh.train(env, "a2c", folder=folder, steps=128, settings={FEW}, episodes=1, jobs=2, **more)
    print(folder, len(run.evaluations()))
"""
MINE = """
class Mine(faulty_envs.Sound): pass
gymnasium.register("mine-v0", Mine)
"""


@pytest.mark.slow
def test_a_plain_script_needs_no_guard_and_goes_on_after_a_step_that_hung(tmp_path: Path) -> None:
    """The time limit holds in processes of seeds too, and what these say is in the log."""
    text = """
hung = dict(deed="sleep", step=30, marker="marker", once=True)
gymnasium.register("registered-v0", "unruly_envs:Unruly", kwargs=hung, disable_env_checker=True)
train("registered-v0", "a", seeds=2, workers=1, step_timeout=1)
train(faulty_envs.Sound, "b", workers=1)
"""
    code, out, err = script(tmp_path, text)
    assert (code, out) == (0, "a 2\nb 1\n"), err
    hung = r"the worker process of environments 0 to 1 of registered-v0 gave no answer in 1 s [^.]* started anew\. ?"
    assert re.fullmatch(f"({hung})+", " ".join(err.split())), err  # and nothing else
    assert [seed.finished for seed in RunFolder.open(tmp_path / "a").status()] == [True, True]
    assert (tmp_path / "a" / "log.txt").read_text().count("gave no answer in 1 s") >= 1


@pytest.mark.slow
def test_a_script_that_defines_its_environment_works_in_one_process_or_with_a_guard(tmp_path: Path) -> None:
    text = """
if __name__ == "__main__":
    train(Mine, "a", seeds=2)
    train(Mine, "b", workers=1)
    train("mine-v0", "c", seeds=2)
"""
    assert script(tmp_path, MINE + text) == (0, "a 2\nb 1\nc 2\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("call", ['train(Mine, "a", workers=1)', 'train("mine-v0", "a", seeds=2)'])
def test_and_without_one_it_is_told_to_add_it(tmp_path: Path, call: str) -> None:
    code, out, err = script(tmp_path, MINE + call)
    assert (code, out) == (1, "")
    assert err.strip().splitlines()[-1].startswith("evenhand.errors.InputError: " + children.GUARD)
    assert err.count("Traceback") == 1
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != "__pycache__") == ["a"]


@pytest.mark.slow
def test_the_readme_runs_as_it_stands(tmp_path: Path) -> None:
    readme = (HELPERS.parents[1] / "README.md").read_text("utf-8")
    [example] = [code for code in re.findall(r"```python\n(.*?)```", readme, re.DOTALL) if "eh.train" in code]
    assert "seeds=4," in example
    few = FEW | {"minibatches": 2, "epochs": 1}
    quick = example.replace("seeds=4,", f"seeds=2, steps=128, settings={few}, episodes=1,")
    (tmp_path / "readme.py").write_text(quick.replace("episodes=50", "episodes=2"))
    done = subprocess.run(
        [sys.executable, "readme.py"], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    [run] = (tmp_path / "runs").iterdir()
    assert [seed.finished for seed in RunFolder.open(run).status()] == [True, True]


def test_an_interactive_session_is_told_what_to_do() -> None:
    code = (
        "import faulty_envs\nfrom evenhand.envs.gym.host_env import HostEnv\n"
        "from evenhand.envs.gym.vector import VectorEnv\n"
        "class Mine(faulty_envs.Sound): pass\nVectorEnv(HostEnv.of(Mine), 2, 0, workers=1)"
    )
    done = answer(started(HELPERS, program=code))
    assert "Mine is defined in an interactive session" in done.err.splitlines()[-1]


# Where modules are found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "words"),
    [
        (["-m", "evenhand"], ["check-env"]),
        (["-P", "-c", PROGRAM], ["train", *SMALL, "--seeds", "2", "--episodes", "1", "-o", "run"]),
    ],
)
def test_modules_of_the_current_folder_are_found(tmp_path: Path, program: list[str], words: list[str]) -> None:
    """An installed program does not look there by itself, nor does Python with -P."""
    (tmp_path / "nearby.py").write_text(
        "import gymnasium, nearby_too\ngymnasium.register('nearby-v0', 'nearby_too:Sound', disable_env_checker=True)\n"
    )
    shutil.copy(HELPERS / "faulty_envs.py", tmp_path / "nearby_too.py")
    done = subprocess.run(
        [sys.executable, *program, *words, "nearby:nearby-v0"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_what_is_installed_comes_before_what_lies_here(tmp_path: Path) -> None:
    (tmp_path / "gymnasium.py").write_text("raise SystemExit('run')")
    (tmp_path / "mo_gymnasium.py").write_text("raise SystemExit('run')")
    program = "import sys; sys.path.remove('')\n" + PROGRAM
    done = answer(started(tmp_path, "check-env", "gymnasium:CartPole-v1", program=program))
    assert done.code == 0, done.err


def test_a_module_that_cannot_be_imported_is_named_with_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    texts = {"leaving": ("import sys\nsys.exit(0)", "it called sys.exit(0)"), "broken": ("1 / 0", "ZeroDivisionError")}
    for name, (text, said) in texts.items():
        (tmp_path / f"{name}.py").write_text(text)
        done = here("train", f"{name}:broken-v0")
        assert done.code == 2
        assert f"the module '{name}', which should register 'broken-v0', cannot be imported: " + said in done.err
        assert f'{name}.py", line' in done.err
        assert "importlib" not in done.err
