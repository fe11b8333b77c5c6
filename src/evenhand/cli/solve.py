"""solve: the fair optimum of a model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from tyro.conf import Positional, arg

from evenhand import metrics, report
from evenhand.cli import options, output
from evenhand.errors import InputError
from evenhand.exact.momdp import MOMDP
from evenhand.exact.policies import Mixture
from evenhand.exact.solver import Solution
from evenhand.solving import solve
from evenhand.welfare import Utilitarian, Welfare
from evenhand.welfare import welfare as named_welfare

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
    welfare: options.Name = "ggf"
    """What is fair, by one of the names above."""
    gamma: Annotated[float | None, options.optional(float, "G"), options.NO_HINT] = None
    """Discounted returns, with this discount in [0, 1)."""
    average: options.Flag = False
    """Average rewards in the long run, in place of discounted ones."""
    output: Annotated[options.OptionalFile, arg(aliases=["-o"])] = None
    """Write an .npz here: policy [S, A] (of a mixture: shares [K], policies [K, S]) and what is proven of it."""
    method: Literal["auto", "lp", "columns"] = "auto"
    """One linear program, or column generation; auto decides by the size of the model."""
    tol: Annotated[float, arg(metavar="SHARE")] = 1e-8
    """Stop when the gap is below this share of the widest difference that returns can have."""
    compare: options.Flag = True
    """Leave out the utilitarian optimum: it costs a second solve."""
    json: options.Json = False


def run_solve(args: Solve) -> int:
    """Show the fair optimum of a model."""
    if args.gamma is not None and args.average:
        raise InputError("--gamma is for discounted rewards and --average for undiscounted ones: give one of them.")
    if args.gamma is None and not args.average:
        raise InputError("say which rewards count: discounted ones, as in --gamma 0.99, or --average.")
    if args.gamma is not None:
        check_discount("--gamma", args.gamma)
    if not args.tol > 0:
        raise InputError(f"--tol must be positive, not {args.tol:g}.")
    if args.output is not None:
        output.check_output(args.output)
        if args.output.exists() and args.model.exists() and args.output.samefile(args.model):
            raise InputError(f"--output names the model file itself, {args.model}: choose another name.")
    model = MOMDP.load(args.model)
    welfare = named_welfare(args.welfare, model.D)

    def optimum(of: Welfare) -> Solution:
        if args.gamma is None:
            return solve(model, of, criterion="average", method=args.method, tol=args.tol)
        return solve(model, of, gamma=args.gamma, method=args.method, tol=args.tol)

    fair = optimum(welfare)
    events = []
    if args.output is not None:  # now: whatever happens to the comparison, the policy is safe
        events.append(_save_policy(fair, args.output))
    utilitarian = None
    sum_asked_for = welfare == Utilitarian(model.D) or getattr(welfare, "alpha", None) == 0
    if args.compare and not sum_asked_for and fair.status != "interrupted":
        with suppress(KeyboardInterrupt):
            utilitarian = optimum(Utilitarian(model.D))
        if utilitarian is None or utilitarian.status == "interrupted":
            utilitarian = None
            events.append("Interrupted: the utilitarian optimum is left out.")

    if args.json:
        if fair.status == "interrupted":
            events.insert(0, report.STATUS["interrupted"])
        for event in events:
            output.warn(event)
        record = {
            "model": model_record(args.model, model),
            "welfare": welfare.name,
            "criterion": "average" if args.average else "discounted",
            "gamma": args.gamma,
            "fair": report.solution_record(fair, welfare),
            "utilitarian": None,
            "price_of_fairness": None,
            "output": None if args.output is None else str(args.output),
        }
        if utilitarian is not None:
            record["utilitarian"] = report.solution_record(utilitarian, welfare)
            record["price_of_fairness"] = float(metrics.price_of_fairness(utilitarian.returns, fair.returns))
        output.print_json(record)
        return 0
    what = "average rewards" if args.average else f"expected discounted returns, γ = {args.gamma:g}"
    output.show(
        f"Who gets what: {what}",
        f"{args.model}: {size_of(model)}; welfare: {welfare.name}",
        report.who_gets_what(welfare, fair, utilitarian),
        report.remarks(welfare, fair),
        events,
    )
    return 0


def check_discount(option: str, gamma: float) -> None:
    """Refuse what is none."""
    if not 0 <= gamma < 1:
        raise InputError(f"{option} must lie in [0, 1), not {gamma:g}.")


def _save_policy(solution: Solution, path: Path) -> str:
    """Write the policy and what is known of it; the answer says what was done."""
    replaced = path.exists()
    policy = solution.policy
    arrays: dict[str, Any] = {"policy": policy}
    if isinstance(policy, Mixture):
        arrays = {"shares": policy.shares, "policies": policy.policies}
    for name in ("returns", "welfare", "gap", "weights"):
        arrays[name] = np.asarray(getattr(solution, name))
    with output.aside(path) as partial, partial.open("xb") as file:
        np.savez_compressed(file, **arrays)
    return f"{'Replaced' if replaced else 'Wrote'} {path} ({', '.join(arrays)})."


def model_record(path: Path, model: MOMDP) -> dict[str, Any]:
    """Which model it is, for programs."""
    return {"file": str(path), "states": model.S, "actions": model.A, "users": model.D}


def size_of(model: MOMDP) -> str:
    """How large it is, for people."""
    counts = ((model.S, "state"), (model.A, "action"), (model.D, "user"))
    return ", ".join(f"{count:,} {name}{'' if count == 1 else 's'}" for count, name in counts)
