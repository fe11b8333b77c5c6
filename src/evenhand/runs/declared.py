"""Settings of algorithms and environments as their source declares and explains them: importing it would import JAX."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Callable, Iterable
from importlib import resources
from itertools import zip_longest
from typing import Any, NamedTuple

from evenhand.envs.registry import loaded

WORDS = {
    "float": "number",
    "Positive": "number",
    "Share": "number",
    "Discount": "number",
    "int": "whole number",
    "Count": "whole number",
    "bool": "true or false",
    "str": "text",
    "Schedule": "constant, linear or quadratic",
}
"""Types in words."""


class Field(NamedTuple):
    """A field of a dataclass, as its source explains it."""

    name: str
    type: str
    default: str
    about: str


def settings_of(owner: str | Callable[..., Any]) -> list[Field]:
    """The fields of a dataclass with their docstrings: of one of ours, `module:name`, or of one that is not, which is
    imported; of what is no dataclass, what it takes when it is called.

    Fields of the classes it derives from come first; what it says about them replaces only what is said anew.
    """
    if isinstance(owner, str):
        module, _, name = owner.partition(":")
        return _explained(_with_bases(module, name)) if module.startswith("evenhand.") else settings_of(loaded(owner))
    if not isinstance(owner, type) or not dataclasses.is_dataclass(owner):
        parameters = inspect.signature(owner).parameters.values()
        taken = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
        defaults = ["–" if p.default in (p.empty, None) else as_toml(p.default) for p in taken]
        return [
            Field(p.name, _annotated(p.annotation), default, "") for p, default in zip(taken, defaults, strict=True)
        ]
    classes = [base for base in reversed(owner.__mro__) if dataclasses.is_dataclass(base)]
    trees = [ast.parse(textwrap.dedent(inspect.getsource(base))) for base in classes]
    return _explained(node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))


def docstring_of(module: str) -> str:
    """What one of our modules says of itself."""
    return ast.get_docstring(_parsed(module)) or ""


def as_toml(value: Any) -> str:
    """A value as one writes it after --set."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(as_toml, value)) + "]"
    return str(value)


def _parsed(module: str) -> ast.Module:
    file = module.removeprefix("evenhand.").replace(".", "/") + ".py"
    return ast.parse(resources.files("evenhand").joinpath(file).read_text("utf-8"))


def _with_bases(module: str, name: str) -> list[ast.ClassDef]:
    """A class after those it derives from."""
    body = _parsed(module).body
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    modules = {alias.name: node.module or "" for node in imports for alias in node.names}
    [found] = [node for node in body if isinstance(node, ast.ClassDef) and node.name == name]
    bases = [base.id for base in found.bases if isinstance(base, ast.Name)]
    return [*(node for base in bases for node in _with_bases(modules[base], base)), found]


def _explained(classes: Iterable[ast.ClassDef]) -> list[Field]:
    settings: dict[str, Field] = {}
    for node, after in (pair for owner in classes for pair in zip_longest(owner.body, owner.body[1:])):
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.target, ast.Name) or node.value is None:
            continue
        if ast.unparse(node.value).startswith("field(init=False"):  # follows from the others
            continue
        name = node.target.id
        about = settings[name].about if name in settings else ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            about = " ".join(str(after.value.value).split())
        settings[name] = Field(name, _type(node.annotation), _default(node.value), about)
    return list(settings.values())


def _annotated(annotation: Any) -> str:
    """A type in words, if a parameter has one."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _type(ast.parse(text, mode="eval").body)


def _type(annotation: ast.expr) -> str:
    """A type in words."""
    if isinstance(annotation, ast.BinOp):
        parts = [_type(part) for part in (annotation.left, annotation.right)]
        return " or ".join(dict.fromkeys(part for part in parts if part != "None"))
    if isinstance(annotation, ast.Subscript):
        options = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else [annotation.slice]
        match ast.unparse(annotation.value):
            case "Literal":
                return " or ".join(str(ast.literal_eval(option)) for option in options)
            case "Annotated":
                return _type(options[0])
            case "tuple":
                return "list"
    text = ast.unparse(annotation)
    return WORDS.get(text, text)


def _default(node: ast.expr) -> str:
    try:
        value = ast.literal_eval(node)
    except ValueError:
        return ast.unparse(node)
    return "–" if value is None else as_toml(value)
