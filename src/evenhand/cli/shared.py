"""What the commands share: options, files written safely, and how results are printed."""

from __future__ import annotations

import ctypes
import os
import shlex
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stdout, suppress
from contextvars import ContextVar
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TextIO

from rich.table import Table
from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from evenhand.errors import InputError
from evenhand.report.learning import facts_table
from evenhand.report.text import as_json
from evenhand.runs.folder import RunFolder
from evenhand.runs.ray_cluster import OnRay, connected
from evenhand.runs.settings import check_name
from evenhand.runs.study import ThisMachine
from evenhand.runs.training import CHECKPOINT_SECONDS, Run
from evenhand.terminal import Console

REFUSED, INTERRUPTED, FAILED = 2, 130, 1
"""Exit codes."""


def optional(kind: type, metavar: str) -> PrimitiveConstructorSpec[Any]:
    """An option that may be left out; tyro's own would read the word None as leaving it out."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: kind(words[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


NO_HINT = arg(help_behavior_hint=lambda _: "")  # "(default: True)" beside --no-compare would mislead
Flag = Annotated[bool, NO_HINT]
WelfareText = Annotated[str, arg(metavar="NAME")]
Environment = Annotated[Positional[str], arg(metavar="ENV")]
RunPath = Annotated[Positional[Path], arg(metavar="RUN")]
PictureFile = Annotated[Path | None, optional(Path, "FILE"), arg(aliases=["-p"]), NO_HINT]
Assignments = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE"), NO_HINT]
ExecutorName = Annotated[str, arg(metavar="NAME")]
Address = Annotated[str | None, optional(str, "HOST:PORT"), NO_HINT]
OutputFile = Annotated[Path | None, optional(Path, "FILE"), arg(aliases=["-o"]), NO_HINT]


StepTimeout = Annotated[float | None, optional(float, "SECONDS"), NO_HINT]


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """What commands ask that read a run's folder, which may have come from anyone."""

    env_module: Annotated[str | None, optional(str, "MODULE"), NO_HINT] = None
    """The module that registers the run's environment, if it is neither ours nor known to Gymnasium: a folder alone
    does not get it imported."""
    trust: Flag = False
    """Import what the folder names, which runs its code: for folders of people you trust."""


def opened(asked: OfRun, path: Path) -> Run:
    """A run, which may import no more than was said."""
    timeout = getattr(asked, "step_timeout", None)
    return Run(RunFolder.open(path), trust=asked.trust, module=asked.env_module, step_timeout=timeout)


LARGEST = 2**62
"""Of whole numbers that are asked for: sums of two still have 64 bits."""


def whole(text: str) -> int:
    """A whole number, which may be written as 1e6 or 1_000_000."""
    try:
        number = int(text)
    except ValueError:
        if not float(text).is_integer():
            raise ValueError(f"{text} is not a whole number") from None
        number = int(float(text))
    if abs(number) > LARGEST:
        raise ValueError(f"{text} is too large a number")
    return number


def _is_whole(value: Any) -> bool:
    return value is None or isinstance(value, int)


_WHOLE = PrimitiveConstructorSpec[Any](
    nargs=1,
    metavar="N",
    instance_from_str=lambda words: whole(words[0]),
    is_instance=_is_whole,
    str_from_instance=lambda value: [str(value)],
)
Whole = Annotated[int, _WHOLE]
OptionalWhole = Annotated[int | None, _WHOLE, NO_HINT]


def assignments(option: str, words: Sequence[str]) -> dict[str, Any]:
    """What `name=value` words say; values are TOML, and plain text where that is none: nothing is ever executed."""
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise InputError(f"{option} takes name=value, as in {option} name=0.5, not {word!r}.")
        if name in found:
            raise InputError(f"{option} says {name} twice.")
        found[name] = _value(text)
    return found


def _value(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = table["value"]
    return value if len(table) == 1 and isinstance(value, bool | int | float | str | list) else text


def one_by_one(words: Sequence[str], options: Sequence[str] = ("--set", "--env", "--training")) -> list[str]:
    """`--set a=1 b=2` as `--set a=1 --set b=2`, so that what comes after is not swallowed."""
    spread: list[str] = []
    option: str | None = None
    for word in words:
        if option is not None and spread[-1] != option and "=" in word and not word.startswith("-"):
            spread.append(option)
        elif option is not None and spread[-1] != option:
            option = None
        spread.append(word)
        if word in options:
            option = word
    return spread


def check_words(words: Sequence[str]) -> None:
    """Refuse what no system hands over, and no file can be called; only a program that calls this one can ask it."""
    for word in words:
        try:
            os.fsencode(word)
        except UnicodeEncodeError:
            raise InputError(f"{word!r} is not text that can be written.") from None
        if "\0" in word:
            raise InputError(f"{word!r} contains a zero character.")


def find_here(env: str) -> None:
    """Let `module:name`, as somebody has typed it, be found in the current folder, after all that is installed.

    Python does so by itself for `python -m evenhand`, but not for programs.
    """
    module = env.rpartition(":")[0].partition(".")[0]
    here = Path.cwd()
    if module and ((here / f"{module}.py").is_file() or (here / module).is_dir()) and str(here) not in sys.path:
        sys.path.append(str(here))


_answers: ContextVar[TextIO | None] = ContextVar("_answers", default=None)  # None is standard output


def print_json(record: dict[str, Any]) -> None:
    """Answer a program that asked for JSON."""
    print(as_json(record), file=_answers.get(), flush=True)


@contextmanager
def only_json(wanted: bool) -> Iterator[None]:
    """While open, nothing but `print_json` reaches standard output: what environments print goes to standard error.

    That holds for what they print from C, and in the processes that are started meanwhile.
    """
    if not wanted:
        yield
        return
    real = sys.stdout
    real.flush()
    with ExitStack() as stack:
        stack.enter_context(redirect_stdout(sys.stderr))
        answers = real
        if _is_standard_output(real):
            kept = os.dup(STANDARD_OUTPUT)
            os.dup2(STANDARD_ERROR, STANDARD_OUTPUT)
            stack.callback(os.close, kept)
            stack.callback(os.dup2, kept, STANDARD_OUTPUT)
            stack.callback(_flush_c)  # what is still held back must not follow the answer
            stack.callback(real.flush)
            answers = stack.enter_context(open(kept, "w", encoding=real.encoding, errors="replace", closefd=False))
        token = _answers.set(answers)
        stack.callback(_answers.reset, token)
        yield


STANDARD_OUTPUT, STANDARD_ERROR = 1, 2


def _is_standard_output(stream: Any) -> bool:
    try:
        return bool(stream.fileno() == STANDARD_OUTPUT)
    except (AttributeError, OSError):  # a test or a notebook has put something in its place
        return False


def _flush_c() -> None:
    with suppress(Exception):
        ctypes.CDLL(None).fflush(None)


def check_positive(option: str, number: int) -> None:
    """Refuse 0 and less."""
    if number < 1:
        raise InputError(f"{option} must be at least 1, not {number}.")


def check_not_negative(option: str, number: int) -> None:
    """Refuse less than 0."""
    if number < 0:
        raise InputError(f"{option} must not be negative, not {number}.")


def check_executor(name: str, address: str | None, jobs: int | None) -> None:
    """Refuse what does not go together."""
    check_name("executor", name, ("local", "ray"))
    if address is not None and name != "ray":
        raise InputError("--address is that of a Ray cluster: add --executor ray.")
    if address is not None and jobs is not None:
        raise InputError("--jobs is for this machine: a cluster has as many processes as it has CPUs.")


@contextmanager
def executor_of(
    name: str, address: str | None, jobs: int | None, checkpoint_seconds: float = CHECKPOINT_SECONDS
) -> Iterator[ThisMachine | OnRay]:
    """What does the cells of a study, connected to other machines where it needs them; to be made before JAX is used.

    Ray starts a cluster by forking, which JAX's threads would not survive.
    """
    check_executor(name, address, jobs)
    if name == "local":
        yield ThisMachine(jobs, checkpoint_seconds)
    else:
        with connected(address, jobs):
            yield OnRay(checkpoint_seconds)


def check_picture(path: Path | None, option: str, endings: Sequence[str]) -> None:
    """Refuse, before any work, a picture that could not be written after it."""
    if path is None:
        return
    if path.suffix.lower() not in endings:
        raise InputError(f"{option} takes a file ending in {', '.join(endings[:-1])} or {endings[-1]}, not {path}.")
    check_output(path)


def say(text: str) -> None:
    """What is being done, for whoever watches; nothing where nobody does."""
    console = Console(stderr=True, highlight=False, markup=False)
    if console.is_terminal:
        console.print(f"{text} …", style="dim", soft_wrap=True)


def check_output(path: Path) -> None:
    """Refuse, before any work, what could not be written after it."""
    folder = path.parent
    if not folder.is_dir():
        raise InputError(f"there is no folder {folder} to write {path.name} to.")
    with suppress(FileNotFoundError):
        path.stat()  # a link that leads to itself, say, is refused as the system does
    if path.exists() and not path.is_file():  # renaming over a device such as /dev/null would remove it
        raise InputError(f"{path} is not a file that could be replaced.")
    if not os.access(folder, os.W_OK):
        raise InputError(f"nothing may be written to the folder {folder}.")


@contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A name to write to, which takes the place of `path` when all is written, and not before."""
    target = Path(os.path.realpath(path))  # a link stays a link
    partial = target.with_name(f".evenhand-{os.getpid()}.partial{target.suffix}")  # the suffix may say the format
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def show(
    title: str,
    about: str,
    table: Table,
    notes: Sequence[str],
    events: Sequence[str] = (),
    facts: Mapping[str, Mapping[str, float]] | None = None,
) -> None:
    """Print a table with what is to be said of it; events are lines that must not be wrapped.

    facts: what else was counted, by policy and fact, for a second table.
    """
    console = Console(highlight=False, markup=False)
    console.print(title, style="bold")
    console.print(about, style="dim", soft_wrap=True)  # names of files are kept in one piece
    console.print(table)
    for note in notes:
        console.print(note)
    if facts:
        console.print("\nWhat else was counted, on average over the test episodes", style="bold")
        console.print(facts_table(facts))
    for event in events:
        console.print(event, soft_wrap=True)


_WITHOUT_EFFECT = ("plan", "jobs", "executor", "address", "checkpoint_seconds")  # on results


def command_line(command: str, asked: Any) -> str:
    """The command that asks for the same results."""
    words = ["evenhand", command]
    for field in fields(asked):
        value = getattr(asked, field.name)
        if field.default is MISSING:
            words.append(str(value))
        elif field.name == "parts":
            words += value
        elif value != field.default and field.name not in _WITHOUT_EFFECT:
            option = {"changes": "set", "arguments": "env"}.get(field.name, field.name)
            words += [f"--{option}", *(value if isinstance(value, tuple) else [str(value)])]
    return shlex.join(words)


def environment_of(run: Run, given: Mapping[str, Any], name: str | None = None, **more: Any) -> Any:
    """The run's environment or the one named, with other settings."""
    if name is None:
        return run.resolved({**given, **more}) if given or more else run.env
    from evenhand.envs import resolve

    arguments = run.request.arguments if name == run.request.env else {}
    env = resolve(name, {**arguments, **given, **more})
    if len(env.objectives) != len(run.request.objectives):
        raise InputError(
            f"the policy was trained for {len(run.request.objectives)} users, but here are {len(env.objectives)}."
        )
    return env
