"""Speed and memory of the exact solver, beside HiGHS's interior point, and beside quantecon where there is one reward.

    python benchmarks/exact.py            all of it, results/exact.json and docs/benchmarks-exact.md: ten minutes
    python benchmarks/exact.py --quick    small sizes only, printed: about a minute
    python benchmarks/exact.py --largest  a million states and 16 users, added to what was measured before

Every figure comes from a process of its own, one after the other, so that memory is that of one solve and neighbours
disturb all alike; read the ratios, not the seconds. HiGHS is given its best case: interior point without crossover, its
own default tolerances, and the time to build the program not counted. quantecon solves models with one reward, where
its Numba code is compiled before the time counts.
"""

import argparse
import json
import math
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

GAMMA = 0.99
GAP = 1e-6
"""What every solve has to certify, in units of return; rewards lie in [0, 1], returns in [0, 100]."""
HIGHS_AIM = 100.0
"""So many times as fast as HiGHS at 10,000 states."""
HERE = Path(__file__).parent
RESULTS = HERE / "results" / "exact.json"
PAGE = HERE.parent / "docs" / "benchmarks-exact.md"
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"


@dataclass(frozen=True)
class Case:
    kind: str  # garnet or grid
    states: int
    objectives: int
    criterion: str = "discounted"
    solver: str = "evenhand"  # or highs, or quantecon
    limit: float = 60.0  # seconds for HiGHS

    @property
    def name(self) -> str:
        average = ", average" if self.criterion == "average" else ""
        return f"{'random' if self.kind == 'garnet' else 'grid'} {self.states:,}, D {self.objectives}{average}"


USERS = (2, 4, 16)
SMALL = [Case("garnet", states, D) for states in (1000, 10_000) for D in USERS]
SMALL += [Case("garnet", 10_000, D, "average") for D in USERS]
LARGE = [Case("garnet", 100_000, D) for D in USERS] + [Case("grid", 100_000, D) for D in (2, 4)]
LARGE += [Case("garnet", 1_000_000, D) for D in (2, 4)]
"""Solved without a peer beside them: of most of these none could."""
LARGEST = Case("garnet", 1_000_000, 16)
"""By itself as long as all the others together."""


def measure(case: Case) -> dict[str, float | str | None]:
    """Solve one case in this process."""
    import highspy

    import evenhand as eh
    from evenhand.exact import examples
    from evenhand.exact.lp import ggf_program, reward_units

    if case.kind == "garnet":
        model = examples.garnet(case.states, 5, case.objectives)
    else:
        model = examples.grid(round(case.states**0.5), case.objectives)
    if case.solver == "quantecon":
        return quantecon(model)
    welfare = eh.GGF.geometric(case.objectives)
    average = case.criterion == "average"
    began = time.perf_counter()
    if case.solver == "evenhand":
        widest = float(model.reward_span.max()) / (1 if average else 1 - GAMMA)
        target = GAP / widest
        kwargs = {"criterion": "average"} if average else {"gamma": GAMMA}
        solution = eh.solve(model, welfare, tol=target, method="columns", progress=False, **kwargs)
        seconds, gap, value, queries = time.perf_counter() - began, solution.gap, solution.welfare, solution.queries
        status = solution.status
    else:
        highs = highspy.Highs()
        highs.silent()
        highs.setOptionValue("solver", "ipm")
        highs.setOptionValue("run_crossover", "off")
        highs.setOptionValue("time_limit", case.limit)
        highs.passModel(ggf_program(model, welfare.weights, 1.0 if average else GAMMA))
        began = time.perf_counter()
        highs.run()
        seconds, gap, queries = time.perf_counter() - began, None, None
        status = "out of time" if highs.getModelStatus() == highspy.HighsModelStatus.kTimeLimit else "optimal"
        low, size = reward_units(model)
        value = (low + size * highs.getObjectiveValue()) / (1 if average else 1 - GAMMA)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "gap": gap, "welfare": value, "queries": queries, "status": status, "memory": memory}


def quantecon(model: Any) -> dict[str, float | str | None]:
    """Write the model down for the other virtual environment, and have it solved there."""
    import numpy as np

    P, pairs = model.transitions, np.arange(model.S * model.A)
    with tempfile.TemporaryDirectory() as folder:
        np.savez(
            f"{folder}/model.npz",
            **{"rewards": model.rewards[..., 0].ravel(), "initial": model.initial, "gamma": GAMMA, "epsilon": GAP},
            **{"data": P.data, "indices": P.indices, "indptr": P.indptr, "shape": P.shape},
            **{"states": pairs // model.A, "actions": pairs % model.A},
        )
        command = [str(PEERS), "-W", "ignore", str(HERE / "peers" / "peer_quantecon.py"), f"{folder}/model.npz"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout)


def run(case: Case) -> dict[str, float | str | None]:
    """Solve one case in a process of its own."""
    command = [sys.executable, __file__, "--case", json.dumps(asdict(case))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"seconds": float("nan"), "status": (done.stderr.strip().splitlines() or ["killed"])[-1]}
    return json.loads(done.stdout.splitlines()[-1])


def against(solver: str, cases: list[Case], repeats: int, console: Console) -> list[dict[str, Any]]:
    """Ours and the other's, taking turns; of several repetitions the median."""
    rows = []
    for case in cases:
        ours, theirs = [], []
        for _ in range(repeats if case.states <= 1000 else 1):
            ours.append(run(case))
            theirs.append(run(Case(**{**asdict(case), "solver": solver})))
        mine, peer = (sorted(times, key=lambda t: t["seconds"])[len(times) // 2] for times in (ours, theirs))
        if "memory" not in peer:
            raise SystemExit(f"{solver} failed on {case.name}: {peer['status']}")
        rows.append({"case": asdict(case), "ours": mine, "theirs": peer})
        console.print("  ".join(beside(rows[-1])))
    return rows


def alone(cases: list[Case], console: Console) -> list[dict[str, Any]]:
    rows = []
    for case in cases:
        rows.append({"case": asdict(case), "ours": run(case)})
        console.print("  ".join(by_itself(rows[-1])))
    return rows


# Tables


def ratio(row: dict[str, Any]) -> float:
    """How many times as long the other takes; at least, where it ran out of time."""
    return row["theirs"]["seconds"] / row["ours"]["seconds"]


def beside(row: dict[str, Any]) -> list[str]:
    mine, peer = row["ours"], row["theirs"]
    more = "> " if peer["status"] != "optimal" else ""
    times = ratio(row)
    return [
        Case(**row["case"]).name,
        f"{mine['seconds']:.2f}",
        f"{mine['gap']:.1e}",
        f"{mine['memory']:.0f}",
        f"{more}{peer['seconds']:.{1 if peer['seconds'] > 1 else 2}f}",
        f"{peer['memory']:.0f}",
        f"{more}{f'{times:.0f}' if times > 10 else f'{times:.2g}'} ×",
        "–" if more else f"{abs(peer['welfare'] - mine['welfare']):.1e}",
    ]


def by_itself(row: dict[str, Any]) -> list[str]:
    mine, name = row["ours"], Case(**row["case"]).name
    if "gap" not in mine:
        return [name, "–", "–", "–", "–", str(mine["status"])]
    numbers = [f"{mine['seconds']:.1f}", f"{mine['gap']:.1e}", f"{mine['memory']:.0f}", str(mine["queries"])]
    return [name, *numbers, str(mine["status"])]


def growth(rows: list[dict[str, Any]]) -> list[list[str]]:
    """Seconds of random models by their number of states, and the power of it by which they grow in the last decade."""
    seconds = {
        (row["case"]["objectives"], row["case"]["states"]): row["ours"]["seconds"]
        for row in rows
        if (row["case"]["kind"], row["case"]["criterion"]) == ("garnet", "discounted")
    }
    sizes = sorted({states for _, states in seconds})
    lines = [["users", *(f"{states:,} states (s)" for states in sizes), "power"]]
    for D in sorted({D for D, _ in seconds}):
        known = [(states, seconds[D, states]) for states in sizes if (D, states) in seconds]
        line = [str(D), *(f"{seconds[D, states]:.2f}" if (D, states) in seconds else "–" for states in sizes)]
        if len(known) > 1:
            (few, quick), (many, slow) = known[-2:]
            line.append(f"{math.log(slow / quick) / math.log(many / few):.2f}")
        lines.append(line if len(known) > 1 else [*line, "–"])
    return lines


VERSUS = ["model", "evenhand (s)", "certified gap", "MB", "HiGHS ipm (s)", "MB", "ratio", "difference"]
SCALAR = ["model", "evenhand (s)", "certified gap", "MB", "quantecon (s)", "MB", "ratio", "difference"]
ALONE = ["model", "seconds", "certified gap", "peak MB", "scalar models", "status"]


def shortfalls(results: dict[str, Any]) -> list[str]:
    """Where others are quicker, or we fall short of what we aim at, in sentences."""
    found = [
        f"Exact solver, {Case(**row['case']).name}: {ratio(row):.0f} × as fast as HiGHS; we aim at {HIGHS_AIM:g} ×."
        for row in results["versus"]
        if row["case"]["states"] == 10_000 and ratio(row) < HIGHS_AIM
    ]
    slower = [row for row in results["scalar"] if ratio(row) < 1]
    if slower:
        names = ", ".join(Case(**row["case"]).name.removesuffix(", D 1") for row in slower)
        times = sorted(1 / ratio(row) for row in slower)
        found.append(
            f"Models with one reward: quantecon is {times[0]:.2g} to {times[-1]:.2g} × as fast as the exact solver "
            f"({names})."
        )
    loose = [row for part in ("versus", "alone") for row in results[part] if not row["ours"].get("gap", 1.0) <= GAP]
    found += [f"No certificate within {GAP:g} on {Case(**row['case']).name}." for row in loose]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes only; the page is left alone")
    parser.add_argument("--largest", action="store_true", help="only the largest model, added to the last results")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds that HiGHS gets for one program")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        print(json.dumps(measure(Case(**json.loads(asked.case)))))
        return
    if not PEERS.exists():
        raise SystemExit("there is no quantecon to compare with: run this by `make bench-exact`, which installs it.")
    console = Console()
    if asked.largest:
        keep(add_largest(json.loads(RESULTS.read_text()), console), console)
        return
    sizes = [("garnet", 1000, D) for D in USERS]
    sizes = sizes[1:2] if asked.quick else [*sizes, ("garnet", 10_000, 4), ("grid", 10_000, 4)]
    results: dict[str, Any] = {"limit": asked.limit, "python": platform.python_version(), "machine": platform.machine()}
    results["versus"] = against("highs", [Case(*size, limit=asked.limit) for size in sizes], 3, console)
    single = [Case("garnet", states, 1) for states in (1000, 10_000, 100_000, 1_000_000)]
    single += [Case("grid", states, 1) for states in (10_000, 100_000)]
    results["scalar"] = against("quantecon", single[:2] if asked.quick else single, 3, console)
    results["alone"] = alone(SMALL if asked.quick else SMALL + LARGE, console)
    show(console, "Against HiGHS's interior point, γ = 0.99, 5 actions", VERSUS, map(beside, results["versus"]))
    show(console, "Against quantecon, one reward, γ = 0.99, 5 actions", SCALAR, map(beside, results["scalar"]))
    show(console, "Alone, γ = 0.99 or average reward, 5 actions", ALONE, map(by_itself, results["alone"]))
    if not asked.quick:
        keep(results, console)


def add_largest(results: dict[str, Any], console: Console) -> dict[str, Any]:
    others = [row for row in results["alone"] if Case(**row["case"]).name != LARGEST.name]
    return results | {"alone": [*others, *alone([LARGEST], console)]}


def keep(results: dict[str, Any], console: Console) -> None:
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(page(results), encoding="utf-8")
    console.print(f"wrote {RESULTS.name} and {PAGE.name}")


def show(console: Console, title: str, header: list[str], rows: Iterable[list[str]]) -> None:
    table = Table(title=title)
    for column in header:
        table.add_column(column, justify="left" if column == "model" else "right")
    for row in rows:
        table.add_row(*row)
    console.print(table)


def markdown(header: list[str], rows: Iterable[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def grown(results: dict[str, Any]) -> str:
    header, *rows = growth(results["alone"])
    return markdown(header, rows)


def page(results: dict[str, Any]) -> str:
    return PAGE_TEXT.format(
        machine=f"{results['machine']}, Python {results['python']}, one process at a time",
        shortfalls="\n".join(f"- {sentence}" for sentence in shortfalls(results)),
        versus=markdown(VERSUS, map(beside, results["versus"])),
        scalar=markdown(SCALAR, map(beside, results["scalar"])),
        own=markdown(ALONE, map(by_itself, results["alone"])),
        growth=grown(results),
        limit=results["limit"],
    )


PAGE_TEXT = """# Benchmarks of solving

`make bench-exact` measures all of this anew and writes this page. Machines are noisy: read the ratios. Rewards lie in
[0, 1], γ = 0.99, 5 actions; every solve is asked to certify a gap of at most 1e-6 in returns of up to 100. Random
models have 5 random successors per state and action; in grids one vehicle serves D users ({machine}).

## Where evenhand is not ahead, or falls short of what we aim at

{shortfalls}
- Below about 400 pairs of state and action the whole linear program is quicker than column generation, which is why
  `solve` uses that there.

## Beside HiGHS's interior point

The same linear program; HiGHS runs without crossover, at its default tolerances, with up to {limit:.0f} s, and the
time to build the program is not counted. "difference" is that of the two optima.

{versus}

## One reward, beside quantecon

`DiscreteDP` of quantecon has one reward and no welfare: the scalar case. It solves by modified policy iteration to
within 1e-6, on pairs of state and action with sparse transitions; the times to compile it and to read the model are not
counted.

{scalar}

## Alone

"scalar models": how many models with one reward, each with other weights of the users, were solved on the way.

{own}

## How the cost grows

Random models, discounted. "power": seconds grow like this power of the states, from the last but one size to the last.

{growth}
"""


if __name__ == "__main__":
    main()
