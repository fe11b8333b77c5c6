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
    bound,
    calibrate,
    check_env,
    compare,
    cycle,
    doctor,
    evaluate,
    export,
    model,
    options,
    output,
    play,
    reproduce,
    resume,
    solve,
    study,
    train,
    tune,
)
from evenhand.cli import list as list_command
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
    "train": (train.Train, train.run_train),
    "resume": (resume.Resume, resume.run_resume),
    "evaluate": (evaluate.Evaluate, evaluate.run_evaluate),
    "compare": (compare.Compare, compare.run_compare),
    "study": (study.StudyCommand, study.run_study),
    "reproduce": (reproduce.Reproduce, reproduce.run_reproduce),
    "tune": (tune.Tune, tune.run_tune),
    "cycle": (cycle.Cycle, cycle.run_cycle),
    "calibrate": (calibrate.Calibrate, calibrate.run_calibrate),
    "play": (play.Play, play.run_play),
    "export": (export.Export, export.run_export),
    "list": (list_command.List, list_command.run_list),
    "check-env": (check_env.CheckEnv, check_env.run_check_env),
    "doctor": (doctor.Doctor, doctor.run_doctor),
    "solve": (solve.Solve, solve.run_solve),
    "bound": (bound.Bound, bound.run_bound),
    "model": (model.Model, model.run_model),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code; help and misspelt options end it on their own."""
    typed = sys.argv[1:] if arguments is None else arguments
    words = [word for word in typed if word != TRACEBACK] or ["--help"]
    for stream in (sys.stdout, sys.stderr):
        if reconfigure := getattr(stream, "reconfigure", None):
            reconfigure(errors="replace")  # a γ must not end the program where only ASCII can be shown
    try:
        try:
            _check_words(words)
            with last_resort(output.INTERRUPTED):
                return _run(words)
        finally:
            sys.stdout.flush()  # a reader that has gone is noticed here, not after the end
    except KeyboardInterrupt:
        output.warn("interrupted")
        return output.INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return output.FAILED
    except (InputError, OSError, MemoryError) as error:
        if TRACEBACK in typed:
            print(getattr(error, "full", ""), traceback.format_exc(), sep="\n", file=sys.stderr)
        return _refuse(error)


def _run(words: list[str]) -> int:
    if words[0] == "--version":
        print(f"evenhand {evenhand.__version__}")
        return 0
    # tyro's colours are its own, but it also repeats what it does not understand.
    with harmless() if visible("".join(words)) != "".join(words) else nullcontext():
        args = tyro.cli(
            reduce(or_, (_subcommand(name, kind, words[0] == name) for name, (kind, _) in COMMANDS.items())),
            prog="evenhand",
            description=ABOUT,
            args=one_by_one(words),
            config=(
                tyro.conf.FlagCreatePairsOff,
                tyro.conf.CascadeSubcommandArgs,
                tyro.conf.OmitSubcommandPrefixes,
                tyro.conf.OmitArgPrefixes,
            ),
        )
    run = dict(COMMANDS.values())[type(args)]
    with harmless(), output.only_json(getattr(args, "json", False)):
        # First of all: these modules may also register what other options name.
        if isinstance(env := getattr(args, "env", None), str):
            options.import_typed(env)
        if (module := getattr(args, "env_module", None)) is not None:
            options.import_typed(f"{module}:")
        return run(args)


def _subcommand(name: str, kind: type, own_page: bool) -> Any:
    """A command for tyro; its whole docstring is for its own page, lists get the first paragraph."""
    text = inspect.getdoc(kind) or ""
    return Annotated[kind, subcommand(name, description=text if own_page else text.partition("\n\n")[0])]


def _check_words(words: Sequence[str]) -> None:
    """Refuse what no system hands over, and no file can be called; only a program that calls this one can ask it."""
    for word in words:
        try:
            os.fsencode(word)
        except UnicodeEncodeError:
            raise InputError(f"{word!r} is not text that can be written.") from None
        if "\0" in word:
            raise InputError(f"{word!r} contains a zero character.")


def one_by_one(words: Sequence[str], several: Sequence[str] = ("--set", "--env", "--training")) -> list[str]:
    """`--set a=1 b=2` as `--set a=1 --set b=2`, so that what comes after is not swallowed."""
    spread: list[str] = []
    option: str | None = None
    for word in words:
        if option is not None and spread[-1] != option and "=" in word and not word.startswith("-"):
            spread.append(option)
        elif option is not None and spread[-1] != option:
            option = None
        spread.append(word)
        if word in several:
            option = word
    return spread


def _refuse(error: InputError | OSError | MemoryError) -> int:
    """Say what is wrong in a line; below it may stand the lines of somebody's environment that did it."""
    if isinstance(error, OSError):
        text = f"{error.filename or 'the output'}: {error.strerror or error}."
    else:
        text = str(error) if isinstance(error, InputError) else "there is not enough memory for a model of this size."
    sentence, gap, lines = text.partition("\n\n") if hasattr(error, "full") else (text, "", "")
    lines = "\n".join(map(visible, lines.split("\n")))
    output.warn("error: " + visible(" ".join(sentence.split())) + gap + lines)
    return output.REFUSED
