"""The program `evenhand`: fair policies, learnt or computed, and who gets what under them."""

from __future__ import annotations

import inspect
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import reduce
from operator import or_
from typing import Annotated, Any

import tyro
from tyro.conf import subcommand

import evenhand
from evenhand.cli import (
    about,
    calibrating,
    doctor,
    exact,
    exporting,
    judging,
    playing,
    studying,
    traffic,
    training,
    tuning,
)
from evenhand.cli.shared import FAILED, INTERRUPTED, REFUSED, check_words, find_here, one_by_one, only_json
from evenhand.errors import InputError, visible
from evenhand.interrupt import last_resort
from evenhand.terminal import harmless

ABOUT = """Fair policies for decisions that affect several users at once.

For example, learn one, and see who gets what under it:
    evenhand train species --welfare ggf --seeds 4 -o runs/fair
    evenhand evaluate runs/fair

Or, where the model is known, compute the fair optimum:
    evenhand model grid --side 20 -o grid.npz
    evenhand solve grid.npz --gamma 0.99

Or reproduce the paper, or compare methods on an environment of your own, with statistics and a page:
    evenhand reproduce species
    evenhand study my_module:my-env-v0 --algos ppo,a2c --seeds 10

Each command explains itself: evenhand train --help. What there is to choose from: evenhand list.
Version: evenhand --version. With --traceback, an error shows where in evenhand it came from.

Exit codes: 0 done, 2 bad input or an environment that failed (a line says what is wrong), 130
interrupted, 1 check-env, calibrate or doctor found something wrong, or a part of a study failed."""

TRACEBACK = "--traceback"

COMMANDS: dict[str, tuple[type, Callable[[Any], int]]] = {
    "train": (training.Train, training.run_train),
    "resume": (training.Resume, training.run_resume),
    "evaluate": (judging.Evaluate, judging.run_evaluate),
    "compare": (judging.Compare, judging.run_compare),
    "study": (studying.StudyCommand, studying.run_study),
    "reproduce": (studying.Reproduce, studying.run_reproduce),
    "tune": (tuning.Tune, tuning.run_tune),
    "cycle": (traffic.Cycle, traffic.run_cycle),
    "calibrate": (calibrating.Calibrate, calibrating.run_calibrate),
    "play": (playing.Play, playing.run_play),
    "export": (exporting.Export, exporting.run_export),
    "list": (about.List, about.run_list),
    "check-env": (about.CheckEnv, about.run_check_env),
    "doctor": (doctor.Doctor, doctor.run_doctor),
    "solve": (exact.Solve, exact.run_solve),
    "bound": (exact.Bound, exact.run_bound),
    "model": (exact.Model, exact.run_model),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; help and misspelt options end it on their own."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    trace = TRACEBACK in given
    given = [word for word in given if word != TRACEBACK] or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")  # a γ must not end the program where only ASCII can be shown
    try:
        try:
            check_words(given)
            with last_resort(INTERRUPTED):
                return _run(given)
        finally:
            sys.stdout.flush()  # a reader that has gone is noticed here, not after the end
    except KeyboardInterrupt:
        print("evenhand: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (InputError, OSError, MemoryError) as error:
        if trace:
            print(getattr(error, "full", ""), traceback.format_exc(), sep="\n", file=sys.stderr)
        return _refuse(error)


def _run(arguments: list[str]) -> int:
    if arguments[0] == "--version":
        print(f"evenhand {evenhand.__version__}")
        return 0
    # tyro's colours are its own, but it also repeats what it does not understand.
    with harmless() if visible("".join(arguments)) != "".join(arguments) else nullcontext():
        command = tyro.cli(
            reduce(or_, (_command(name, options, arguments) for name, (options, _) in COMMANDS.items())),
            prog="evenhand",
            description=ABOUT,
            args=one_by_one(arguments),
            config=(
                tyro.conf.FlagCreatePairsOff,
                tyro.conf.CascadeSubcommandArgs,
                tyro.conf.OmitSubcommandPrefixes,
                tyro.conf.OmitArgPrefixes,
            ),
        )
    run = dict(COMMANDS.values())
    if isinstance(env := getattr(command, "env", None), str):
        find_here(env)
    with harmless(), only_json(getattr(command, "json", False)):
        return run[type(command)](command)


def _command(name: str, options: type, arguments: list[str]) -> Any:
    """The options as a subcommand; its whole docstring is for its own page, lists get the first paragraph."""
    text = inspect.getdoc(options) or ""
    brief = text.partition("\n\n")[0]
    return Annotated[options, subcommand(name, description=text if arguments[0] == name else brief)]


def _refuse(error: InputError | OSError | MemoryError) -> int:
    """Say what is wrong in a line; below it may stand the lines of somebody's environment that did it."""
    if isinstance(error, OSError):
        text = f"{error.filename or 'the output'}: {error.strerror or error}."
    else:
        text = str(error) if isinstance(error, InputError) else "there is not enough memory for a model of this size."
    sentence, gap, lines = text.partition("\n\n") if hasattr(error, "full") else (text, "", "")
    lines = "\n".join(map(visible, lines.split("\n")))
    print("evenhand: error:", visible(" ".join(sentence.split())) + gap + lines, file=sys.stderr)
    return REFUSED
