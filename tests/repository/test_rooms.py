"""The rooms of the house: imports lead one way, and one name means one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import grimp
import pytest

SOURCE = Path(__file__).parents[2] / "src/evenhand"
OWN_FOLDERS = ("envs/species", "envs/traffic", "envs/datacenter")
"""A domain's words are its own."""
OF_EVERY_ALGORITHM = {"Config", "State"}
"""What the protocol asks of each, or all of them have."""
NAMES = "species|traffic|sumo|datacenter|dqn|ppo|a2c"
"""Of domains and algorithms: what is to be known of one stands where it is declared, and not where it is used."""
DEFAULTS = {("cli/train.py", "ppo"), ("cli/tune.py", "ppo"), ("cli/doctor.py", "sumo")}
"""What is trained where nobody says, and what of this machine can be looked at."""


def shared_modules() -> list[Path]:
    """Those that belong to no domain alone."""
    found = [path for path in SOURCE.rglob("*.py") if path.stem not in ("__init__", "__main__")]
    return [path for path in found if not any(path.is_relative_to(SOURCE / own) for own in OWN_FOLDERS)]


def repeated(places: Iterable[tuple[str, Path]]) -> dict[str, list[str]]:
    """Names that several files have."""
    found: Mapping[str, list[str]] = defaultdict(list)
    for name, path in places:
        found[name].append(str(path.relative_to(SOURCE)))
    return {name: files for name, files in found.items() if len(files) > 1}


def cycles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Sets of modules each of which leads to all of its set."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            new = imports[ahead.pop()] - seen
            seen |= new
            ahead += new
        return seen

    reach = {module: reached(module) for module in imports}
    circles = {frozenset(other for other in reach[m] if m in reach[other]) for m in imports if m in reach[m]}
    return sorted(sorted(circle) for circle in circles)


def test_cycles_are_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"e"}, "e": {"d", "a"}}) == [["b", "c"], ["d", "e"]]


def test_imports_have_no_cycles() -> None:
    graph = grimp.build_graph("evenhand", exclude_type_checking_imports=True, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(imports) > 100
    assert cycles(imports) == []


def test_no_two_modules_have_the_same_name() -> None:
    modules = shared_modules()
    assert len(modules) > 80
    assert repeated((path.stem, path) for path in modules) == {}


def test_no_two_classes_have_the_same_name() -> None:
    classes = [
        (node.name, path)
        for path in shared_modules()
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert len(classes) > 100
    assert {name: where for name, where in repeated(classes).items() if name not in OF_EVERY_ALGORITHM} == {}


@pytest.mark.parametrize("room", ["report", "cli", "studies", "runs"])
def test_nothing_depends_on_a_name(room: str) -> None:
    compared = re.compile(rf"""[=!]= *["']({NAMES})["']""")
    found = [
        f"{path.relative_to(SOURCE)}: {line.strip()}"
        for path in (SOURCE / room).rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if compared.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("room", ["report", "cli"])
def test_names_are_read_from_where_they_are_declared(room: str) -> None:
    found = {
        (str(path.relative_to(SOURCE)), node.value)
        for path in (SOURCE / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(NAMES, node.value)
    }
    assert found - DEFAULTS == set()
