"""model: models to try."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg, subcommand

from evenhand.cli import options, output
from evenhand.cli.solve import size_of
from evenhand.errors import InputError
from evenhand.exact import examples
from evenhand.exact.momdp import MOMDP


@dataclass(frozen=True)
class Example:
    """The options of `examples.state_dependence`."""

    gamma: float = 0.9
    """The discount that cancels, in (0, 1)."""
    start: int = 0
    """The first state, 0, 1 or 2."""


@dataclass(frozen=True)
class Chain:
    """The options of `examples.chain`."""

    n: int = 50
    """How many states the walk passes through."""
    gamma: float = 0.99
    """The discount for which staying is just worth it, in (0, 1)."""


@dataclass(frozen=True)
class Garnet:
    """The options of `examples.garnet`."""

    states: int = 1000
    """How many states."""
    actions: int = 5
    """How many actions."""
    objectives: int = 4
    """How many users."""
    branching: int = 5
    """How many random successors for each state and action."""
    seed: int = 0
    """The same seed gives the same model."""


@dataclass(frozen=True)
class Grid:
    """The options of `examples.grid`."""

    side: int = 32
    """The length of a side, in cells: each cell is a state."""
    objectives: int = 4
    """How many users."""
    slip: float = 0.1
    """The probability that a move goes astray."""
    seed: int = 0
    """The same seed puts the users in the same places."""


@dataclass(frozen=True)
class OneState:
    """`examples.one_state` has no options."""


@dataclass(frozen=True)
class StayOrLeave:
    """`examples.stay_or_leave` has no options."""


@dataclass(frozen=True)
class TwoHomes:
    """The options of `examples.two_homes`."""

    with_refuge: options.Flag = False
    """Add the third state."""
    start: int = 0
    """The first state."""


GENERATORS: dict[type, tuple[str, Callable[..., MOMDP], str]] = {  # the name, the function, options to try
    Example: ("example", examples.state_dependence, " --gamma 0.9"),
    Chain: ("chain", examples.chain, " --n 50"),
    Garnet: ("garnet", examples.garnet, " --states 10000"),
    Grid: ("grid", examples.grid, " --side 20"),
    OneState: ("one-state", examples.one_state, ""),
    StayOrLeave: ("stay-or-leave", examples.stay_or_leave, ""),
    TwoHomes: ("two-homes", examples.two_homes, " --with-refuge"),
}


def _generator(options: type) -> object:
    name, build, tried = GENERATORS[options]
    text = f"{inspect.getdoc(build)}\n\nFor example:\n  evenhand model {name}{tried} -o model.npz"
    return subcommand(name, description=text)


@dataclass(frozen=True)
class Model:
    """Write a model to try: the paper's example, counterexamples, or random ones.

    For example:
        evenhand model grid --side 20 -o grid.npz
    """

    kind: (
        Annotated[Example, _generator(Example)]
        | Annotated[Chain, _generator(Chain)]
        | Annotated[Garnet, _generator(Garnet)]
        | Annotated[Grid, _generator(Grid)]
        | Annotated[OneState, _generator(OneState)]
        | Annotated[StayOrLeave, _generator(StayOrLeave)]
        | Annotated[TwoHomes, _generator(TwoHomes)]
    )
    """Which model:"""
    output: Annotated[Path, arg(aliases=["-o"], metavar="FILE")]
    """The .npz file to write."""
    force: options.Flag = False
    """Replace the file if it exists."""


def run_model(args: Model) -> int:
    """Write a model."""
    output.check_output(args.output)
    if args.output.exists() and not args.force:
        raise InputError(f"{args.output} exists already: --force replaces it.")
    _, build, _ = GENERATORS[type(args.kind)]
    try:
        model = build(**asdict(args.kind))
    except InputError:
        raise
    except (ValueError, OverflowError) as error:  # numbers beyond what an array can hold
        raise InputError(f"these options make no model: {error}.") from None
    with output.aside(args.output) as path:
        model.save(path)
    transitions = f"{model.transitions.nnz:,} transitions"
    print(f"Wrote {args.output}: {size_of(model)}, {transitions}, {_bytes(args.output)}.")
    return 0


def _bytes(path: Path) -> str:
    size = float(path.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
