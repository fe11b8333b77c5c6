"""Options that several commands have: their types and texts, and what is made of them."""

from __future__ import annotations

import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, UseAppendAction, arg
from tyro.constructors import PrimitiveConstructorSpec

from evenhand.envs.registry import import_named, resolve
from evenhand.errors import InputError
from evenhand.evaluation.result import MEASURES
from evenhand.runs.folder import RunFolder
from evenhand.runs.hyperparameters import check_name
from evenhand.runs.run import Run
from evenhand.runs.trainer import CHECKPOINT_SECONDS
from evenhand.studies.executor import Executor, ExecutorKind, executor_kind

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


def optional(kind: type, metavar: str, read: Callable[[str], Any] | None = None) -> PrimitiveConstructorSpec[Any]:
    """An option that may be left out; tyro's own would read the word None as leaving it out."""
    read = read or kind
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=lambda words: read(words[0]),
        is_instance=lambda value: value is None or isinstance(value, kind),
        str_from_instance=lambda value: [str(value)],
    )


# The types of options; those with a help text mean the same in every command.

NO_HINT = arg(help_behavior_hint=lambda _: "")  # "(default: True)" beside --no-compare would mislead
_WHOLE = optional(int, "N", whole)

Flag = Annotated[bool, NO_HINT]
Whole = Annotated[int, _WHOLE]
OptionalWhole = Annotated[int | None, _WHOLE, NO_HINT]
Name = Annotated[str, arg(metavar="NAME")]
OptionalName = Annotated[str | None, optional(str, "NAME"), NO_HINT]
OptionalFile = Annotated[Path | None, optional(Path, "FILE"), NO_HINT]
NewFolder = Annotated[Path | None, optional(Path, "FOLDER"), arg(aliases=["-o"]), NO_HINT]
PictureFile = Annotated[OptionalFile, arg(aliases=["-p"])]
PolicySeed = Annotated[int | None, optional(int, "S"), NO_HINT]
StepTimeout = Annotated[float | None, optional(float, "SECONDS"), NO_HINT]
Environment = Annotated[Positional[str], arg(metavar="ENV")]
Assignments = Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME=VALUE"), NO_HINT]
EnvArguments = Annotated[Assignments, arg(name="env")]
Changes = Annotated[Assignments, arg(name="set")]

RunPath = Annotated[Positional[Path], arg(metavar="RUN", help="The folder of the run.")]
Preset = Annotated[Name, arg(help="tuned: our hyperparameters; paper: those of the paper's appendix.")]
SeedsAtOnce = Annotated[OptionalWhole, arg(help="Seeds trained at the same time; by default one for each core.")]
Processes = Annotated[OptionalWhole, arg(help="Processes; by default one for each core.")]
Address = Annotated[
    str | None,
    optional(str, "HOST:PORT"),
    NO_HINT,
    arg(help="The Ray cluster, or auto for the one that this machine is part of; by default one is started here."),
]
CheckpointSeconds = Annotated[
    float, arg(metavar="SECONDS", help="The time between checkpoints: the most that a kill can cost.")
]
Plan = Annotated[Flag, arg(help="Only show what would be done, and about how long it would take.")]
Json = Annotated[Flag, arg(help="Print one JSON object, and nothing else, for programs.")]


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """What commands ask that read a run's folder, which may have come from anyone."""

    env_module: Annotated[str | None, optional(str, "MODULE"), NO_HINT] = None
    """The module that registers the run's environment, algorithm or network, if they are neither ours nor known to
    Gymnasium: a folder alone does not get it imported."""
    trust: Flag = False
    """Import what the folder names, which runs its code: for folders of people you trust."""


def open_run(args: OfRun, path: Path) -> Run:
    """A run, which may import no more than was said."""
    folder = RunFolder.open(path)
    if args.trust and args.env_module is None:
        import_named(folder.request.env or "")
    timeout = getattr(args, "step_timeout", None)
    return Run(folder, trust=args.trust, module=args.env_module, step_timeout=timeout)


def import_typed(name: str) -> None:
    """Import the module of `module:name`, as somebody has typed it; also from the current folder, after all that is
    installed. Python finds it there by itself for `python -m evenhand`, but not for programs.
    """
    module, here = name.rpartition(":")[0].partition(".")[0], Path.cwd()
    if module and ((here / f"{module}.py").is_file() or (here / module).is_dir()) and str(here) not in sys.path:
        sys.path.append(str(here))
    import_named(name)


def steps_done(folder: RunFolder) -> tuple[int, int]:
    """Of how many steps how many are done, of all seeds together."""
    status = folder.status()
    return sum(min(seed.step, seed.steps) for seed in status), sum(seed.steps for seed in status)


def environment_of(run: Run, arguments: Mapping[str, Any], name: str | None = None, **more: Any) -> Any:
    """The run's environment or the one named, with other settings."""
    if name is None:
        return run.resolved({**arguments, **more}) if arguments or more else run.env
    own = run.request.arguments if name == run.request.env else {}
    env = resolve(name, {**own, **arguments, **more})
    if len(env.objectives) != len(run.request.objectives):
        raise InputError(
            f"the policy was trained for {len(run.request.objectives)} users, but here are {len(env.objectives)}."
        )
    return env


def assignments(option: str, words: Sequence[str]) -> dict[str, Any]:
    """What `name=value` words say; values are TOML, and plain text where that is none: nothing is ever executed."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.strip():
            raise InputError(f"{option} takes name=value, as in {option} name=0.5, not {word!r}.")
        if name in values:
            raise InputError(f"{option} says {name} twice.")
        values[name] = _value(text)
    return values


def _value(text: str) -> Any:
    try:
        table = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    value = table["value"]
    return value if len(table) == 1 and isinstance(value, bool | int | float | str | list) else text


def check_positive(args: Any, *names: str) -> None:
    """Refuse 0 and less; an option that was left out is fine."""
    for name in names:
        number = getattr(args, name)
        if number is not None and number < 1:
            raise InputError(f"--{name} must be at least 1, not {number}.")


def check_not_negative(args: Any, *names: str) -> None:
    """Refuse less than 0, and what is no number."""
    for name in names:
        number = getattr(args, name)
        if not number >= 0:
            shown = f"{number:g}" if isinstance(number, float) else number
            raise InputError(f"--{name.replace('_', '-')} must not be negative, not {shown}.")


def check_measure(measure: str | None) -> None:
    """Refuse what is none."""
    if measure is not None:
        check_name("measure", measure, MEASURES)


def checked_executor(args: Any) -> ExecutorKind:
    """What --executor names; refused is what does not go together with it."""
    kind = executor_kind(args.executor)
    if args.address is not None and not kind.takes_address:
        raise InputError("--address is that of a Ray cluster: add --executor ray.")
    if args.address is not None and args.jobs is not None:
        raise InputError("--jobs is for this machine: a cluster has as many processes as it has CPUs.")
    return kind


def executor_of(args: Any, checkpoint_seconds: float = CHECKPOINT_SECONDS) -> AbstractContextManager[Executor]:
    """What does the cells of a study, connected to other machines where it needs them; to be made before JAX is used.

    Ray starts a cluster by forking, which JAX's threads would not survive.
    """
    return checked_executor(args).connect(args.address, args.jobs, checkpoint_seconds)


_WITHOUT_EFFECT = ("plan", "jobs", "executor", "address", "checkpoint_seconds")  # on results


def command_line(command: str, args: Any) -> str:
    """The command that asks for the same results."""
    words = ["evenhand", command]
    for field in fields(args):
        value = getattr(args, field.name)
        if field.default is MISSING:
            words.append(str(value))
        elif field.name == "parts":
            words += value
        elif value != field.default and field.name not in _WITHOUT_EFFECT:
            option = {"changes": "set", "arguments": "env"}.get(field.name, field.name)
            words += [f"--{option}", *(value if isinstance(value, tuple) else [str(value)])]
    return shlex.join(words)
