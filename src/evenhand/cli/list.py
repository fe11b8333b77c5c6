"""list: what there is to choose from."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text
from tyro.conf import Positional

from evenhand.agents.algorithm import BUILT_IN, algorithm, names
from evenhand.cli import options, output
from evenhand.envs import registry
from evenhand.errors import InputError
from evenhand.report.text import plain_table
from evenhand.runs.declared import as_toml, docstring_of, settings_of
from evenhand.runs.folder import RunFolder
from evenhand.runs.hyperparameters import PRESETS, check_name
from evenhand.welfare import KNOWN

ABOUT_PRESETS = {
    "tuned": "our own hyperparameters, the default",
    "paper": "those of the paper's appendix",
}


@dataclass(frozen=True)
class List:
    """Show what there is: environments, algorithms, welfares, presets, and the runs in ./runs.

    With the name of an algorithm or of one of our environments: all of its settings. What a module of
    yours registers is shown as well if that is named first, as in my_module:NAME, or my_module: for all.

    For example:
        evenhand list
        evenhand list ppo
        evenhand list species
        evenhand list my_module:my-algorithm
    """

    what: Positional[options.OptionalName] = None
    """An algorithm, or one of our environments."""
    json: options.Json = False


def run_list(args: List) -> int:
    """Show everything, or the settings of one thing."""
    options.import_typed(args.what or "")
    if what := (args.what or "").rpartition(":")[2]:
        return _list_settings(what, args.json)
    environments = registry.known()
    algorithms = [(name, _first_sentence(name)) for name in names()]
    presets = [(name, ABOUT_PRESETS[name]) for name in PRESETS]
    runs = _runs(Path("runs"))
    if args.json:
        sections = {"environments": environments, "algorithms": algorithms, "welfares": KNOWN, "presets": presets}
        record: dict[str, Any] = {
            title: [{"name": name, "about": about} for name, about in rows] for title, rows in sections.items()
        }
        output.print_json(record | {"runs": [{"folder": folder, "state": state} for folder, state in runs]})
        return 0
    others = ("CartPole-v1, …", "any environment registered with Gymnasium or MO-Gymnasium, by its name")
    _section("Environments", [*environments, others])
    _section("Algorithms (evenhand list ppo shows the settings)", algorithms)
    _section("Welfares", KNOWN)
    _section("Presets", presets)
    _section("Runs in ./runs", runs or [("none yet", "evenhand train species makes one")])
    return 0


def _section(title: str, rows: Iterable[tuple[str, str]]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for name, about in rows:
        table.add_row(Text(f"  {name}"), Text(about))
    console = output.plain_console()
    console.print(title, style="bold")
    console.print(table)
    console.print()


def _list_settings(name: str, json: bool) -> int:
    check_name("algorithm or environment of ours", name, [*names(), *registry.DOMAINS])
    presets: dict[str, dict[str, Any]] = {}
    if name in names():
        settings = settings_of(f"evenhand.agents.{name}:Config" if name in BUILT_IN else algorithm(name).Config)
        usage, presets = f"--algo {name} --set", _presets(name)
    else:
        domain = registry.DOMAINS[name]
        settings = [row for target in domain.settings or (domain.target,) for row in settings_of(target)]
        usage = f"{name} --env"
    if json:
        output.print_json({"settings": [row._asdict() for row in settings], "presets": presets})
        return 0
    table = plain_table()
    table.add_column("setting", no_wrap=True, style="bold")
    table.add_column("type")
    table.add_column("default")
    table.add_column("meaning", ratio=1)
    for row in settings:
        table.add_row(*row)
    console = output.plain_console()
    console.print(f"Settings of {name}, for evenhand train {usage} NAME=VALUE", style="bold")
    console.print(table)
    for preset, values in presets.items():
        text = ", ".join(f"{key} = {as_toml(value)}" for key, value in values.items())
        console.print(Text.assemble((f"Preset {preset}: ", "bold"), text or "all as above"))
    return 0


def _presets(algorithm: str) -> dict[str, dict[str, Any]]:
    """What each preset has instead of the defaults, by preset and environment."""
    presets = {}
    for preset in PRESETS:
        text = resources.files("evenhand.presets").joinpath(f"{preset}.toml").read_text("utf-8")
        for environment, table in tomllib.loads(text).items():
            where = f"{preset}, {'any environment' if environment == 'any' else environment}"
            values = dict(table.get(algorithm, {}))
            fair = values.pop("fair", {})
            if values or fair:
                presets[where] = _flat(values)
            if fair:
                presets[f"{where}, fair welfares"] = _flat(fair)
    return presets


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    flat = {name: value for name, value in values.items() if name != "training"}
    return flat | {f"{name} (of the environment, in training)": v for name, v in values.get("training", {}).items()}


def _first_sentence(algo: str) -> str:
    text = docstring_of(f"evenhand.agents.{algo}") if algo in BUILT_IN else inspect.getdoc(algorithm(algo)) or ""
    return text.partition("\n")[0].rstrip(".")


def _runs(parent: Path) -> list[tuple[str, str]]:
    """The runs in a folder, and how far each has come."""
    runs = []
    for path in sorted(parent.iterdir()) if parent.is_dir() else []:
        if not (path / "run.json").is_file():
            continue
        try:
            done, steps = options.steps_done(RunFolder.open(path))
            state = "done" if done >= steps else f"{done:,} of {steps:,} steps: evenhand resume {path}"
        except (InputError, OSError) as error:
            state = f"cannot be read: {error}"
        runs.append((str(path), state))
    return runs
