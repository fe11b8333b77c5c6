"""Finite models: solve, bound and model."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, arg, subcommand

from evenhand import metrics, report
from evenhand.cli.shared import (
    INTERRUPTED,
    NO_HINT,
    Flag,
    OutputFile,
    WelfareText,
    aside,
    check_output,
    optional,
    print_json,
    show,
)
from evenhand.errors import InputError
from evenhand.exact import examples
from evenhand.exact.bounds import ErrorBound, error_bound
from evenhand.exact.model import MOMDP
from evenhand.exact.policies import Mixture
from evenhand.exact.solve import Solution, solve
from evenhand.terminal import Console
from evenhand.welfare import GGF, Utilitarian, Welfare
from evenhand.welfare import welfare as named_welfare

BOUND_TOL = 1e-10  # losses are small differences of two optima, which must be exact to more digits

ModelFile = Annotated[Positional[Path], arg(metavar="MODEL.npz")]


@dataclass(frozen=True)
class Solve:
    """Find the fairest policy of a model, and show who gets what under it.

    The policy maximises the welfare of the users' expected returns.
    (Beside it stands the utilitarian optimum, which maximises their sum.)

    The certified gap is proven: no policy whatsoever is better by more than that.

    For example:
        evenhand solve model.npz --gamma 0.99
        evenhand solve model.npz --average --welfare maximin -o policy.npz

    What is fair is for you to say; --welfare takes one of these:
        ggf                       generalized Gini: weights 1, 1/2, 1/4, ... from the worst-off on
        ggf:10                    the same, each weight a tenth of the one before it
        ggf:0.5,0.3,0.2           the same with your own weights, one for each user
        maximin                   the worst-off user alone
        regularized-maximin:0.01  the same, with a little weight on everyone else
        leximin                   the worst-off user first, then the second worst-off, ...
        nash                      the product of the returns, which must be positive
        alpha:2                   alpha-fairness: 0 is utilitarian, 1 is nash, large is maximin
        utilitarian               the sum

    Ctrl-C shows and saves the best policy so far, with its gap (exit code 0).
    """

    model: ModelFile
    """An .npz file of transitions [A, S, S], rewards [S, A, D] and initial [S], or one from evenhand model."""
    welfare: WelfareText = "ggf"
    """What is fair, by one of the names above."""
    gamma: Annotated[float | None, optional(float, "G"), NO_HINT] = None
    """Discounted returns, with this discount in [0, 1)."""
    average: Flag = False
    """Average rewards in the long run, in place of discounted ones."""
    output: OutputFile = None
    """Write an .npz here: policy [S, A] (of a mixture: shares [K], policies [K, S]) and what is proven of it."""
    method: Literal["auto", "lp", "columns"] = "auto"
    """One linear program, or column generation; auto decides by the size of the model."""
    tol: Annotated[float, arg(metavar="SHARE")] = 1e-8
    """Stop when the gap is below this share of the widest difference that returns can have."""
    compare: Flag = True
    """Leave out the utilitarian optimum: it costs a second solve."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


@dataclass(frozen=True)
class Bound:
    """Show the average welfare lost by discounting, and what bounds say of it.

    One row per discount: the true loss, the paper's formulas, rigorous bounds.

    For example:
        evenhand bound model.npz --gammas 0.9,0.99,0.999

    Ctrl-C shows the rows that are finished (exit code 130).
    """

    model: ModelFile
    """A model file, as for evenhand solve."""
    gammas: Annotated[str, arg(metavar="G1,G2,...")]
    """The discounts, each in [0, 1), with commas between them."""
    welfare: WelfareText = "ggf"
    """What is fair: ggf, ggf:RATIO, ggf:W1,W2,..., maximin, regularized-maximin:EPS or utilitarian."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


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

    with_refuge: Flag = False
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
    force: Flag = False
    """Replace the file if it exists."""


def run_solve(asked: Solve) -> int:
    """Show the fair optimum of a model."""
    if asked.gamma is not None and asked.average:
        raise InputError("--gamma is for discounted rewards and --average for undiscounted ones: give one of them.")
    if asked.gamma is None and not asked.average:
        raise InputError("say which rewards count: discounted ones, as in --gamma 0.99, or --average.")
    if asked.gamma is not None:
        _check_discount("--gamma", asked.gamma)
    if not asked.tol > 0:
        raise InputError(f"--tol must be positive, not {asked.tol:g}.")
    if asked.output is not None:
        check_output(asked.output)
        if asked.output.exists() and asked.model.exists() and asked.output.samefile(asked.model):
            raise InputError(f"--output names the model file itself, {asked.model}: choose another name.")
    model = MOMDP.load(asked.model)
    welfare = named_welfare(asked.welfare, model.D)

    def optimum(of: Welfare) -> Solution:
        if asked.gamma is None:
            return solve(model, of, criterion="average", method=asked.method, tol=asked.tol)
        return solve(model, of, gamma=asked.gamma, method=asked.method, tol=asked.tol)

    fair = optimum(welfare)
    events = []
    if asked.output is not None:  # now: whatever happens to the comparison, the policy is safe
        events.append(_save_policy(fair, asked.output))
    utilitarian = None
    sum_asked_for = welfare == Utilitarian(model.D) or getattr(welfare, "alpha", None) == 0
    if asked.compare and not sum_asked_for and fair.status != "interrupted":
        with suppress(KeyboardInterrupt):
            utilitarian = optimum(Utilitarian(model.D))
        if utilitarian is None or utilitarian.status == "interrupted":
            utilitarian = None
            events.append("Interrupted: the utilitarian optimum is left out.")

    if asked.json:
        if fair.status == "interrupted":
            events.insert(0, report.STATUS["interrupted"])
        for event in events:
            print(f"evenhand: {event}", file=sys.stderr)
        record = {
            "model": _model_record(asked.model, model),
            "welfare": welfare.name,
            "criterion": "average" if asked.average else "discounted",
            "gamma": asked.gamma,
            "fair": report.solution_record(fair, welfare),
            "utilitarian": None,
            "price_of_fairness": None,
            "output": None if asked.output is None else str(asked.output),
        }
        if utilitarian is not None:
            record["utilitarian"] = report.solution_record(utilitarian, welfare)
            record["price_of_fairness"] = float(metrics.price_of_fairness(utilitarian.returns, fair.returns))
        print_json(record)
        return 0
    what = "average rewards" if asked.average else f"expected discounted returns, γ = {asked.gamma:g}"
    show(
        f"Who gets what: {what}",
        f"{asked.model}: {_size(model)}; welfare: {welfare.name}",
        report.who_gets_what(welfare, fair, utilitarian),
        report.remarks(welfare, fair),
        events,
    )
    return 0


def run_bound(asked: Bound) -> int:
    """Show what discounting costs."""
    gammas = _discounts(asked.gammas)
    model = MOMDP.load(asked.model)
    welfare = named_welfare(asked.welfare, model.D)
    if not isinstance(welfare, GGF):
        raise InputError(f"error bounds are for the GGF and its special cases, not for {welfare.name}.")
    average = solve(model, welfare, criterion="average", tol=BOUND_TOL)
    if average.status == "interrupted":
        raise KeyboardInterrupt  # every row needs it
    rows: list[ErrorBound] = []
    stopped = False
    try:
        for gamma in _announced(gammas):
            rows.append(error_bound(model, welfare, gamma, average=average, tol=BOUND_TOL))  # noqa: PERF401
    except KeyboardInterrupt:
        if not rows:
            raise
        stopped = True
        print(f"evenhand: interrupted after {len(rows)} of {len(gammas)} discounts", file=sys.stderr)
    if asked.json:
        record = {
            "model": _model_record(asked.model, model),
            "welfare": welfare.name,
            "average": report.solution_record(average, welfare),
            "bounds": [report.bound_record(row, welfare) for row in rows],
        }
        print_json(record)
    else:
        notes = report.bounds_footnotes(rows)
        if average.note:
            notes.append(f"About the average reward: {average.note}")
        about = f"{asked.model}: {_size(model)}; welfare: {welfare.name}"
        show("Average welfare lost by discounting", about, report.bounds_table(rows), notes)
    return INTERRUPTED if stopped else 0


def run_model(asked: Model) -> int:
    """Write a model."""
    check_output(asked.output)
    if asked.output.exists() and not asked.force:
        raise InputError(f"{asked.output} exists already: --force replaces it.")
    _, build, _ = GENERATORS[type(asked.kind)]
    try:
        model = build(**asdict(asked.kind))
    except InputError:
        raise
    except (ValueError, OverflowError) as error:  # numbers beyond what an array can hold
        raise InputError(f"these options make no model: {error}.") from None
    with aside(asked.output) as path:
        model.save(path)
    transitions = f"{model.transitions.nnz:,} transitions"
    print(f"Wrote {asked.output}: {_size(model)}, {transitions}, {_bytes(asked.output)}.")
    return 0


def _check_discount(option: str, gamma: float) -> None:
    if not 0 <= gamma < 1:
        raise InputError(f"{option} must lie in [0, 1), not {gamma:g}.")


def _discounts(text: str) -> list[float]:
    gammas = []
    for part in text.split(","):
        try:
            gammas.append(float(part))
        except ValueError:
            raise InputError(
                f"--gammas takes numbers with commas between them, as in 0.9,0.99, but {part!r} is none."
            ) from None
        _check_discount("each of --gammas", gammas[-1])
    return gammas


def _save_policy(solution: Solution, path: Path) -> str:
    """Write the policy and what is known of it; the answer says what was done."""
    replaced = path.exists()
    policy = solution.policy
    arrays: dict[str, Any] = {"policy": policy}
    if isinstance(policy, Mixture):
        arrays = {"shares": policy.shares, "policies": policy.policies}
    for name in ("returns", "welfare", "gap", "weights"):
        arrays[name] = np.asarray(getattr(solution, name))
    with aside(path) as partial, partial.open("xb") as file:
        np.savez_compressed(file, **arrays)
    return f"{'Replaced' if replaced else 'Wrote'} {path} ({', '.join(arrays)})."


def _announced(gammas: Sequence[float]) -> Iterator[float]:
    """Each discount in turn, with a line on the terminal that says how far it is.

    A line and no bar: a long solve shows its own bar in the same place, and two of them would fight over it.
    """
    console = Console(stderr=True, highlight=False)
    try:
        for k, gamma in enumerate(gammas, start=1):
            if console.is_terminal:
                console.print(f"discount {k} of {len(gammas)}, γ = {gamma:<12g}", end="\r")
            yield gamma
    finally:
        if console.is_terminal:
            console.print(" " * 50, end="\r")


def _model_record(path: Path, model: MOMDP) -> dict[str, Any]:
    return {"file": str(path), "states": model.S, "actions": model.A, "users": model.D}


def _size(model: MOMDP) -> str:
    counts = ((model.S, "state"), (model.A, "action"), (model.D, "user"))
    return ", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for count, name in counts)


def _bytes(path: Path) -> str:
    size = float(path.stat().st_size)
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} GB"
