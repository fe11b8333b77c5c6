"""Random and adversarial command lines for the program, made from what its own pages of help declare, and tried out.

    python tests/fuzz/command_lines.py COUNT SEED FOLDER

tries COUNT of them in FOLDER, in this process, and prints what went wrong as JSON: anything but a documented exit code
and a sentence, anything written outside FOLDER, and anything that Ctrl-C does not end.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import json
import os
import random
import re
import resource
import shlex
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from evenhand import cli, interrupt
from evenhand.cli.program import COMMANDS

LONG = 1.0
"""Seconds after which a command line is interrupted as by Ctrl-C."""
AGAIN = 20.0
"""Seconds until the next time: the first one should do, and jaxlib may crash where it is cut off in the middle."""
FOR_EVER = 300
"""Seconds after which it is taken for hung."""
MEMORY = 12 << 30

# What the words of a command line may be


def words(text: str, *more: str) -> list[str]:
    """Some of them, with spaces between them, and others."""
    return [*text.split(), *more]


JUNK = [
    "", " ", "-", "--", "---", "-1", "0", "-0", "1", "2", "1e3", "1e308", "1e400", "-1e400", "1e-320", "nan", "NaN",
    "inf", "-inf", "9" * 30, "-" + "9" * 30, "1_0", "0x10", "1.5", "1,5", ",", ",,", "1,,2", ";", ":", "::", "=", "==",
    "None", "null", "true", "True", "[]", "{}", "()", "[1", '"', "'", "\\", "\n", "a\nb", "\t", "\x00", "\x1b[31m",
    "\x07", "\u202e", "é", "日本", "🙂", "\ud800", "γ", "％s", "%s", "%n", "{x}", "{0}", "$HOME", "~", "*", "?",
    "../..", "a" * 300, "x" * 5000, "--help", "-h", "--version", "@file", "@", "e", "ppo", "ggf", "species",
]  # fmt: skip
NUMBERS = words(
    """
    0 1 2 3 -1 1.5 1e2 64 1e18 99999999999999999999 nan inf 1_000 0.5 1e-9
    """
)
WELFARES = words(
    """
    ggf ggf:2 ggf:10 ggf:0 ggf:-1 ggf:nan ggf:inf ggf:1e308 ggf: ggf:1, ggf:0.5,0.5 ggf:1,0 ggf:0.7,0.3,0
    ggf:1e-320,1 ggf:1,1,1,1,1 ggf:a,b ggf:0.5,nan GGF maximin leximin nash alpha alpha:0 alpha:1 alpha:2 alpha:-1
    alpha:nan alpha:1e300 alpha: regularized-maximin regularized-maximin:0.01 regularized-maximin:2
    regularized-maximin:-1 utilitarian utilitarian,ggf utilitarian:3 nash:2 leximin:1 gini : :2 ggf:2:3
    """
)
ENVIRONMENTS = words(
    """
    species evenhand/species-v0 datacenter traffic-standin traffic-day CartPole-v1 Pendulum-v1 CartPole-v0
    MountainCar-v0 FrozenLake-v1 deep-sea-treasure-v0 specis Cartpole-v1 os:species json:CartPole-v1
    no_such:thing-v0 : a: :b a.b.c:d ..a:b os.path:x sys:exit this:x - evenhand/nothing-v0 ALE/Pong-v5 Ant-v5
    phys2d/CartPole-v1 GymV21Environment-v0
    """
)
SETTINGS = words(
    """
    learning_rate=1e-3 learning_rate=0 learning_rate=-1 learning_rate=nan learning_rate=inf gamma=0.9 gamma=1
    gamma=0 gamma=-1 gamma=nan hidden=[8] hidden=[] hidden=[0] hidden=[1.5] hidden=8 hidden=[[8]] hidden=[99999999]
    envs=2 envs=0 envs=-1 envs=1e3 envs=999999999 rollout=16 rollout=0 rollout=999999999 minibatches=2 minibatches=7
    epochs=1 epochs=0 clip=-1 batch=8 memory=16 activation=tanh activation=nothing nothing=1 =1 a= a gamma=
    gamma=0.5=0.6 gamma=🙂 seed=1 normalise=true weight_width=-1 average=2 average=nan reward_scale=0
    reward_scale=1e-320 gae_lambda=2 ppo.clip=0.1 dqn.batch=8 x.y=1 .=1
    """,
    "gamma=\x00",
)
ARGUMENTS = words(
    """
    response=strong response=weak response= episode_steps=5 episode_steps=0 episode_steps=-1 episode_steps=1e9
    episode_steps=nan max_episode_steps=5 max_episode_steps=0 max_episode_steps=-1 max_episode_steps=x map_name=4x4
    render_mode=human render_mode=rgb_array hosts=4 hosts=-1 traffic=stride:4 traffic=nothing backend=standin
    backend=emulated backend=nothing time_scale=4 time_scale=0 demand=day demand=no.csv demand=/dev/null demand=.
    timing=literal timing=x warm_up=-1 episode_seconds=30 episode_seconds=0 seed=1 g=9.8 g=x is_slippery=false
    desc=[] self=1 env=1 spec=1 entry_point=os:system kwargs=1 reward_scale=nan topology=x hosts=1e9
    """
)
PATHS = words(
    """
    run cart runs nothing nothing/there file.txt damaged empty . .. / /dev/null /proc/self/nope model.npz
    average.npz broken.npz text.npz new new.npz new.png new.pdf new.svg new.gif new.html new.txt new.safetensors
    run/run.json cart/ link loop run/seed-0 日本
    """,
    "new\n",
    "\x1b[31m",
    "a" * 300,
)
VALID: dict[str, list[str]] = {
    "--algo": ["ppo", "a2c", "dqn", "PPO", "sac"],
    "--algos": ["ppo", "ppo,a2c", "dqn", "ppo,ppo", ",", "ppo,sac"],
    "--welfare": WELFARES,
    "--measure": ["average", "return", "discounted", "avg"],
    "--preset": ["tuned", "paper", "other"],
    "--scale": ["quick", "paper", "huge"],
    "--executor": ["local", "Ray", "rya"],  # a real cluster takes ten seconds to start
    "--address": ["localhost", "127.0.0.1:1", "127.0.0.1:99999", "x/y:1", ":1", "[::1]:1"],
    "--backend": ["emulated", "standin", "sumo", "nothing"],
    "--seeds": ["1", "2", "0,1", "0,", "3,3", "-1", "1e9", "1,x", "0-3", "99999999999999999999"],
    "--set": SETTINGS,
    "--env": ARGUMENTS,
    "--training": ARGUMENTS,
    "--holds": ["1", "1,2", "0", "-1", "1,x", "1e9"],
    "--gammas": ["0.9", "0.9,0.99", "1", "-1", "nan", "0.9,", ",", "0.9999999999999999", "0"],
    "--gamma": ["0.9", "0", "1", "-0.1", "nan", "0.9999999999999999", "1e-320"],
    "--method": ["auto", "lp", "columns", "other"],
    "--tol": ["1e-8", "0", "-1", "nan", "inf", "1e-320", "1"],
}
POSITIONALS = {
    "ENV": ENVIRONMENTS,
    "RUN": PATHS,
    "MODEL.npz": PATHS,
    "FILE": PATHS,
    "NAME": ["ppo", "a2c", "species", "traffic", "datacenter", "CartPole-v1", "mo", "chromium", "learning", "nothing"],
    "PART": ["species", "traffic", "datacenter", "theory", "nothing"],
}
SMALL: dict[str, list[str]] = {
    "train": [
        "--steps",
        "64",
        "--set",
        "envs=2",
        "rollout=16",
        "minibatches=2",
        "epochs=1",
        "--seeds",
        "1",
        "--episodes",
        "1",
    ],
    "study": ["--steps", "64", "--seeds", "1", "--episodes", "1", "--plan"],
    "tune": ["--steps", "64", "--seeds", "1", "--episodes", "1", "--trials", "1"],
    "reproduce": ["--steps", "64", "--seeds", "1", "--plan"],
    "evaluate": ["--episodes", "1", "--no-reference"],
    "play": ["--steps", "3"],
    "cycle": ["--episodes", "1", "--holds", "1"],
    "calibrate": ["--episodes", "1"],
    "model": ["-o", "new.npz", "--force"],
}
"""What makes a command line that is right quick as well."""
HELP = {"-h", "--help"}
TOO_LONG = {"sumo", "emulated", "ray"}  # for doctor


def declared() -> dict[tuple[str, ...], dict[str, str]]:
    """The options of each command, with what they take, as its help says; by the words that name the command."""
    found = {}
    for name in COMMANDS:
        page = _help(name)
        subcommands = re.search(r"\{([a-z,-]+)\}\s*$", page.splitlines()[0]) if name == "model" else None
        for words in [(name, sub) for sub in subcommands[1].split(",")] if subcommands else [(name,)]:
            options = {}
            for line in _help(*words).splitlines():
                if match := re.match(r"  (-.*?)(?:  |$)", line):
                    for option in match[1].split(", "):
                        spelt, _, takes = option.partition(" ")
                        options[spelt] = takes.strip()
            found[words] = options
    return found


def _help(*words: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        cli.main([*words, "--help"])
    return out.getvalue()


class Grammar:
    """Draws command lines."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.commands = declared()
        self.positionals = {name: self._taken(name) for (name, *_) in self.commands}

    @staticmethod
    def _taken(name: str) -> list[str]:
        """Which of the kinds of words a command takes without an option, by its help."""
        part = re.search(r"\n positional arguments .*?\n options ", _help(name), re.DOTALL)
        words = re.findall(r"^  \[?([A-Z][\w.]*)", part[0], re.MULTILINE) if part else []
        return [word for word in words if word in POSITIONALS]

    def line(self) -> list[str]:
        """One command line."""
        draw = self.draw
        if draw.random() < 0.03:
            return [draw.choice([*JUNK, *COMMANDS]) for _ in range(draw.randrange(5))]
        name = draw.choice(list(COMMANDS))
        words = list(draw.choice([words for words in self.commands if words[0] == name]))
        options = self.commands[tuple(words)]
        rest: list[list[str]] = []
        for kind in self.positionals[words[0]]:
            times = draw.randrange(4) if words[0] == "compare" else draw.choice([1, 1, 1, 1, 1, 0, 2])
            rest += [[self._of(POSITIONALS[kind], 0.1)] for _ in range(times)]
        for _ in range(draw.choice([0, 0, 1, 1, 1, 2, 2, 3, 4, 6])):
            option = draw.choice([option for option in options if option not in HELP or draw.random() < 0.1])
            takes = options[option]
            if takes.startswith("{"):
                rest.append([option, self._of(takes.strip("{}").split(","), 0.2)])
            elif takes:
                rest.append([option, self._of(VALID.get(option, self._by(takes)), 0.15)])
            else:
                rest.append([option])
            if draw.random() < 0.03:
                rest[-1] = ["=".join(rest[-1])]
            if draw.random() < 0.02:
                rest[-1].pop()
            if draw.random() < 0.03:
                rest.append(list(rest[-1]))
        if draw.random() < 0.3:
            draw.shuffle(rest)
        if draw.random() < 0.02:
            rest.insert(draw.randrange(len(rest) + 1), [draw.choice([*JUNK, "--traceback"])])
        small = SMALL.get(words[0], []) if draw.random() < 0.9 or words[0] in ("study", "reproduce") else []
        line = [*words, *(word for part in rest for word in part), *small]
        if words[0] == "doctor":
            line = [word for word in line if word not in TOO_LONG]
            line = line if any(word in POSITIONALS["NAME"] for word in line) else [*line, "nothing"]
        return line

    def _by(self, takes: str) -> list[str]:
        return PATHS if takes in ("FILE", "FOLDER") else NUMBERS

    def _of(self, words: list[str], junk: float) -> str:
        return self.draw.choice(JUNK if self.draw.random() < junk else words)


# Trying them out


def prepare(folder: Path) -> None:
    """What the paths of command lines lead to."""
    import mo_gymnasium  # noqa: F401  (whole, or a Ctrl-C while it is imported would be seen in all later lines)
    import numpy as np

    quick = [*SMALL["train"], "--set", "hidden=[4]"]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert cli.main(["train", "species", "--env", "episode_steps=5", *quick, "-o", "run"]) == 0
        assert cli.main(["train", "CartPole-v1", *quick, "-o", "cart"]) == 0
        assert cli.main(["model", "example", "-o", "model.npz"]) == 0
        assert cli.main(["model", "garnet", "--states", "6", "-o", "average.npz"]) == 0
    (folder / "file.txt").write_text("nothing")
    (folder / "text.npz").write_text("nothing")
    (folder / "broken.npz").write_bytes((folder / "model.npz").read_bytes()[:-20])
    np.savez(folder / "wrong.npz", nothing=np.zeros(3))
    (folder / "empty").mkdir()
    (folder / "damaged").mkdir()
    (folder / "damaged" / "run.json").write_text("{")
    (folder / "link").symlink_to("run")
    (folder / "loop").symlink_to("loop")


class Outside:
    """Notes what is written, by Python in this process, outside a folder."""

    def __init__(self, folder: Path) -> None:
        self.inside = (str(folder), "/dev/", "/proc/", "/sys/")
        self.found: list[str] = []
        sys.addaudithook(self.hear)

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        path = None
        if event == "open":
            path, mode, flags = arguments
            writing = (flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
            path = path if writing or any(letter in (mode or "") for letter in "wax+") else None
        elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.rename", "os.link", "os.symlink"):
            path = arguments[1] if event in ("os.rename", "os.link", "os.symlink") else arguments[0]
        if isinstance(path, str | bytes | os.PathLike):
            full = os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))
            if not full.startswith(self.inside) and not os.path.isdir(full):
                self.found.append(f"{event} {full}")


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """As if somebody pressed Ctrl-C, and went on doing so."""

    def press(number: int, frame: Any) -> None:
        if going:
            signal.raise_signal(signal.SIGINT)

    going = True
    signal.signal(signal.SIGALRM, press)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    faulthandler.dump_traceback_later(FOR_EVER, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        going = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()


def tried(line: list[str]) -> tuple[Any, str, str]:
    """The exit code of a command line, what it said on standard error, and what it raised."""
    out, err = io.StringIO(), io.StringIO()
    code: Any = None
    raised = ""
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            with interrupted_after(LONG):
                code = cli.main(line)
        except SystemExit as end:
            code = 0 if end.code is None else end.code
        except KeyboardInterrupt:
            code = 130  # pressed while the program was ending by itself
        except BaseException:
            raised = traceback.format_exc()
    return code, err.getvalue(), raised


def wrong(line: list[str], code: Any, err: str, raised: str) -> str:
    """What is wrong with an answer, or nothing."""
    if raised:
        return raised
    if "Traceback" in err and "--traceback" not in line:
        return err
    if code not in (0, 1, 2, 130):
        return f"exit code {code!r}: {err}"
    if code == 1 and line[0] not in ("check-env", "calibrate", "doctor", "study", "reproduce"):
        return f"exit code 1: {err}"
    if code == 2 and not err.strip():
        return "refused without a word"
    return ""


def main(count: int, seed: int, folder: Path, note: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Try so many command lines out; how many there were of each exit code, and what was wrong."""
    os.chdir(folder)
    os.environ |= {
        "HOME": str(folder),
        "XDG_CACHE_HOME": str(folder / "cache"),
        "COLUMNS": "100",
        "TMPDIR": str(folder),
    }
    warnings.simplefilter("ignore")
    interrupt.GRACE = FOR_EVER  # the last resort would end this process, and it should not be needed
    grammar = Grammar(seed)
    prepare(folder)
    outside = Outside(folder)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    codes: Counter[str] = Counter()
    problems: dict[str, str] = {}
    slowest = (0.0, "")
    for _ in range(count):
        line = grammar.line()
        said = shlex.join(line).encode("utf-8", "backslashreplace").decode()
        note(said)
        began = time.monotonic()
        code, err, raised = tried(line)
        slowest = max(slowest, (round(time.monotonic() - began, 1), said))
        codes[f"{line[0] if line and line[0] in COMMANDS else 'other'} {code}"] += 1
        what = wrong(line, code, err, raised)
        if outside.found:
            what += "\nwritten outside: " + ", ".join(outside.found)
            outside.found.clear()
        if what:
            problems[said] = what[-3000:]
    return {"tried": count, "codes": dict(sorted(codes.items())), "slowest": slowest, "problems": problems}


if __name__ == "__main__":
    where = Path(sys.argv[3]).resolve()
    with (where / "lines.txt").open("a", encoding="utf-8") as lines:

        def write(line: str) -> None:
            lines.write(f"{line}\n")
            lines.flush()

        result = main(int(sys.argv[1]), int(sys.argv[2]), where, write)
    print(json.dumps(result, indent=1))
    sys.stdout.flush()
    os._exit(0)  # whatever the command lines have left
