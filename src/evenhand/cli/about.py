"""What there is: list and check-env."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional, UseAppendAction, arg

from evenhand import envs
from evenhand.cli.shared import FAILED, NO_HINT, Environment, Flag, assignments, optional, print_json
from evenhand.errors import InputError
from evenhand.report.text import plain_table
from evenhand.runs.folder import RunFolder
from evenhand.runs.settings import ALGORITHMS, PRESETS, check_name
from evenhand.terminal import Console
from evenhand.welfare import KNOWN

ABOUT_PRESETS = {
    "tuned": "our own hyperparameters, the default",
    "paper": "those of the paper's appendix",
}
MARKS = {"error": ("✗", "bold red"), "warning": ("!", "yellow"), "fine": ("✓", "green")}


@dataclass(frozen=True)
class List:
    """Show what there is: environments, algorithms, welfares, presets, and the runs in ./runs.

    With the name of an algorithm or of one of our environments: all of its settings.

    For example:
        evenhand list
        evenhand list ppo
        evenhand list species
    """

    what: Annotated[Positional[str | None], optional(str, "NAME"), NO_HINT] = None
    """An algorithm, or one of our environments."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


@dataclass(frozen=True)
class CheckEnv:
    """Try an environment out, and say in plain words what is wrong with it.

    The exit code is 1 if something would stop training, and 0 otherwise.

    For example:
        evenhand check-env CartPole-v1
        evenhand check-env my_package:MyEnv-v0 --env size=5
    """

    env: Environment
    """The environment, as for evenhand train."""
    arguments: Annotated[UseAppendAction[tuple[str, ...]], arg(name="env", metavar="NAME=VALUE"), NO_HINT] = ()
    """Settings of the environment."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


class Setting(NamedTuple):
    """A field of a dataclass, as its source explains it."""

    name: str
    type: str
    default: str
    about: str


# list


def run_list(asked: List) -> int:
    """Show everything, or the settings of one thing."""
    if asked.what is not None:
        return _list_settings(asked.what, asked.json)
    algorithms = [(name, _first_sentence(f"agents/{name}.py")) for name in ALGORITHMS]
    presets = [(name, ABOUT_PRESETS[name]) for name in PRESETS]
    runs = _runs(Path("runs"))
    if asked.json:
        sections = {"environments": envs.known(), "algorithms": algorithms, "welfares": KNOWN, "presets": presets}
        record: dict[str, Any] = {
            title: [{"name": name, "about": about} for name, about in rows] for title, rows in sections.items()
        }
        print_json(record | {"runs": [{"folder": folder, "state": state} for folder, state in runs]})
        return 0
    console = Console(highlight=False, markup=False)
    others = [("CartPole-v1, …", "any environment registered with Gymnasium or MO-Gymnasium, by its name")]
    _section(console, "Environments", [*envs.known(), *others])
    _section(console, "Algorithms (evenhand list ppo shows the settings)", algorithms)
    _section(console, "Welfares", KNOWN)
    _section(console, "Presets", presets)
    _section(console, "Runs in ./runs", runs or [("none yet", "evenhand train species makes one")])
    return 0


def _list_settings(name: str, json: bool) -> int:
    check_name("algorithm or environment of ours", name, [*ALGORITHMS, *envs.OWN])
    if name in ALGORITHMS:
        found = settings_of(f"agents/{name}.py", "Config")
        title, option = f"Settings of {name}, for evenhand train --algo {name} --set NAME=VALUE", "default"
        presets = _presets(name)
    else:
        own = envs.OWN[name]
        found = [setting for target in own.settings or (own.target,) for setting in settings_of(*_source(target))]
        title, option = f"Settings of {name}, for evenhand train {name} --env NAME=VALUE", "default"
        presets = {}
    if json:
        print_json({"settings": [row._asdict() for row in found], "presets": presets})
        return 0
    console = Console(highlight=False, markup=False)
    table = plain_table()
    table.add_column("setting", no_wrap=True, style="bold")
    table.add_column("type")
    table.add_column(option)
    table.add_column("meaning", ratio=1)
    for row in found:
        table.add_row(row.name, row.type, row.default, row.about)
    console.print(title, style="bold")
    console.print(table)
    for preset, values in presets.items():
        said = ", ".join(f"{key} = {_toml(value)}" for key, value in values.items())
        console.print(Text.assemble((f"Preset {preset}: ", "bold"), said or "all as above"))
    return 0


def _source(target: str) -> tuple[str, str]:
    """The file and the name of `module:name`."""
    module, _, owner = target.partition(":")
    return module.removeprefix("evenhand.").replace(".", "/") + ".py", owner


def settings_of(source: str, owner: str) -> list[Setting]:
    """The fields of a dataclass with their docstrings, read from its source: importing it would import JAX.

    Fields of the classes it derives from come first; what it says about them replaces only what is said anew.
    """
    tree = ast.parse(resources.files("evenhand").joinpath(source).read_text("utf-8"))
    imported = {
        name.name: (node.module or "").removeprefix("evenhand.").replace(".", "/") + ".py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for name in node.names
    }
    [found] = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == owner]
    settings: dict[str, Setting] = {}
    for base in (base.id for base in found.bases if isinstance(base, ast.Name)):
        settings |= {setting.name: setting for setting in settings_of(imported[base], base)}
    for node, after in zip(found.body, [*found.body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
            continue
        if ast.unparse(node.value).startswith("field(init=False"):  # follows from the others
            continue
        name = node.target.id
        about = settings[name].about if name in settings else ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            about = " ".join(str(after.value.value).split())
        settings[name] = Setting(name, _type(node.annotation), _default(node.value), about)
    return list(settings.values())


def _type(annotation: ast.expr) -> str:
    """A type in words."""
    if isinstance(annotation, ast.BinOp):
        parts = [_type(part) for part in (annotation.left, annotation.right)]
        return " or ".join(dict.fromkeys(part for part in parts if part != "None"))
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "Literal":
        options = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        return " or ".join(str(ast.literal_eval(option)) for option in options)
    if isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) == "tuple":
        return "list"
    text = ast.unparse(annotation)
    words = {"float": "number", "int": "whole number", "bool": "true or false", "str": "text", "None": "None"}
    return words.get(text, "constant, linear or quadratic" if text == "Schedule" else text)


def _default(value: ast.expr) -> str:
    try:
        found = ast.literal_eval(value)
    except ValueError:
        return ast.unparse(value)
    return "–" if found is None else _toml(found)


def _toml(value: Any) -> str:
    """A value as one writes it after --set."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_toml, value)) + "]"
    return str(value)


def _presets(algorithm: str) -> dict[str, dict[str, Any]]:
    """What each preset has instead of the defaults, by preset and environment."""
    found = {}
    for preset in PRESETS:
        text = resources.files("evenhand.presets").joinpath(f"{preset}.toml").read_text("utf-8")
        for environment, table in tomllib.loads(text).items():
            values = dict(table.get(algorithm, {}))
            if not values:
                continue
            instead = values.pop("fair", {})
            where = "any environment" if environment == "any" else environment
            found[f"{preset}, {where}"] = _flat(values)
            if instead:
                found[f"{preset}, {where}, fair welfares"] = _flat(instead)
    return found


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat = {name: value for name, value in values.items() if name != "training"}
    return flat | {f"{name} (of the environment, in training)": v for name, v in values.get("training", {}).items()}


def _first_sentence(source: str) -> str:
    tree = ast.parse(resources.files("evenhand").joinpath(source).read_text("utf-8"))
    return (ast.get_docstring(tree) or "").splitlines()[0].rstrip(".")


def _runs(parent: Path) -> list[tuple[str, str]]:
    """The runs in a folder, and how far each has come."""
    found = []
    for path in sorted(parent.iterdir()) if parent.is_dir() else []:
        if not (path / "run.json").is_file():
            continue
        try:
            status = RunFolder.open(path).status()
        except (InputError, OSError) as error:
            found.append((str(path), f"cannot be read: {error}"))
            continue
        done, of = sum(min(seed.step, seed.steps) for seed in status), sum(seed.steps for seed in status)
        state = "done" if done >= of else f"{done:,} of {of:,} steps: evenhand resume {path}"
        found.append((str(path), state))
    return found


def _section(console: Console, title: str, rows: Any) -> None:
    console.print(title, style="bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for name, about in rows:
        table.add_row(Text(f"  {name}"), Text(about))
    console.print(table)
    console.print()


# check-env


def run_check_env(asked: CheckEnv) -> int:
    """Print what was found, the worst first."""
    given = assignments("--env", asked.arguments)
    from evenhand.envs.check import check_env

    findings = check_env(asked.env, given)
    failed = any(finding.severity == "error" for finding in findings)
    if asked.json:
        print_json({"environment": asked.env, "findings": [asdict(finding) for finding in findings]})
        return FAILED if failed else 0
    console = Console(highlight=False, markup=False)
    for finding in findings:
        mark, style = MARKS[finding.severity]
        console.print(Text.assemble((f"{mark} {finding.title}", style)))
        console.print(Text(finding.explanation), soft_wrap=False, style="")
        console.print()
    counts = {name: sum(finding.severity == name for finding in findings) for name in MARKS}
    if failed:
        console.print(f"{counts['error']} of these must be put right before evenhand can train on {asked.env}.")
    else:
        more = f", but think about {_warnings(counts['warning'])}" if counts["warning"] else ""
        console.print(f"evenhand can train on {asked.env}{more}.")
    return FAILED if failed else 0


def _warnings(n: int) -> str:
    return "the warning" if n == 1 else f"the {n} warnings"
