"""How fast the traffic light is: beside sumo-rl, beside the bare program `sumo`, and the stand-in.

    python benchmarks/traffic.py [--repeats 24] [--decisions 200]

All run the same network, demand and fixed cycle, in decisions of 14 simulated seconds. Each figure comes from a process
of its own, they take turns, and CPU-seconds are counted with those of all processes that were started. Results go to
benchmarks/results/traffic.json and docs/benchmarks-traffic.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
RESULTS = HERE / "results" / "traffic.json"
PAGE = HERE.parent / "docs" / "benchmarks-traffic.md"
HOLD = 3
SLOW = {"sumo-rl": 5, "sumo-rl quiet": 2}
"""These make so many times fewer decisions, or the others would wait for them most of the time."""
SELDOM, EVERY = ("sumo-rl", "sumo-rl quiet", "two-lane", "stand-in"), 4
"""These are measured in every fourth turn: their ratios are far from their aims, those of the others near."""
BATCH = 32
"""Junctions that the stand-in runs side by side."""
ROWS = {
    "sumo": "the bare program `sumo`, with the cycle as its signal plan",
    "evenhand": "evenhand on SUMO",
    "two-lane": "evenhand on SUMO, ordinary roads of two lanes",
    "sumo-rl": "sumo-rl, as it is by default",
    "sumo-rl quiet": "sumo-rl without its infos",
    "sumo-rl libsumo": "sumo-rl with libsumo",
    "sumo-rl libsumo split": "sumo-rl with libsumo, on evenhand's split roads",
    "stand-in": "evenhand's stand-in",
}


# One figure, in a process of its own


def cpu_seconds() -> float:
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def own(asked: dict[str, Any]) -> dict[str, Any]:
    """Our environment on SUMO."""
    import libsumo  # noqa: F401  (imports do not count, here as for the others)

    import evenhand.envs.traffic.sumo  # noqa: F401
    from evenhand.envs.traffic import FixedCycle, TrafficEnv

    cycle = FixedCycle(HOLD)
    before = cpu_seconds()
    env = TrafficEnv(roads=asked["roads"], episode_seconds=asked["decisions"] * 14, warm_up=0)
    env.reset(seed=asked["seed"])
    steps, truncated = 0, False
    while not truncated:
        *_, truncated, _ = env.step(cycle.decide(None, steps))
        steps += 1
    env.close()
    return {"cpu": cpu_seconds() - before, "decisions": steps}


def bare(asked: dict[str, Any]) -> dict[str, Any]:
    """SUMO alone, with a signal plan that is our cycle."""
    from evenhand.envs.traffic import installation

    options = {
        "net-file": asked["net"],
        "route-files": asked["routes"],
        "additional-files": asked["plan"],
        "end": str(asked["decisions"] * 14),
        "seed": str(asked["seed"]),
        "step-length": "1",
        "time-to-teleport": "-1",
        "max-depart-delay": "0",
        "xml-validation": "never",
        "no-step-log": "true",
        "no-warnings": "true",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    before = cpu_seconds()
    subprocess.run([installation.program("sumo"), *words], check=True, env=installation.surroundings())
    return {"cpu": cpu_seconds() - before, "decisions": asked["decisions"]}


def stand_in(asked: dict[str, Any]) -> dict[str, Any]:
    """Many decisions side by side, compiled before the clock starts."""
    import jax
    import jax.numpy as jnp

    from evenhand.envs.traffic import TrafficEnv

    env = TrafficEnv(backend="standin").as_pure()

    def play(key: Any) -> Any:
        state, _ = jax.vmap(env.reset)(jax.random.split(key, BATCH))

        def decide(state: Any, now: Any) -> Any:
            key, step = now
            action = jnp.full(BATCH, step // HOLD % 4)
            after = jax.vmap(env.step)(state, action, jax.random.split(key, BATCH))
            return after.state, after.reward

        return jax.lax.scan(decide, state, (jax.random.split(key, asked["decisions"]), jnp.arange(asked["decisions"])))

    compiled = jax.jit(play)
    jax.block_until_ready(compiled(jax.random.key(0)))
    before = time.process_time()
    jax.block_until_ready(compiled(jax.random.key(asked["seed"])))
    return {"cpu": time.process_time() - before, "decisions": BATCH * asked["decisions"]}


def plan(path: Path) -> None:
    """The fixed cycle as SUMO's own signal plan: yellow for the phase before, then green."""
    from evenhand.envs.traffic.network import SIGNAL, signals

    states = signals()
    phases = "".join(
        f'<phase duration="{14 * HOLD - 4}" state="{states[2 * phase]}"/>'
        f'<phase duration="4" state="{states[2 * phase + 1]}"/>'
        for phase in range(4)
    )
    logic = f'<tlLogic id="{SIGNAL}" type="static" programID="cycle" offset="0">{phases}</tlLogic>'
    path.write_text(f"<additional>{logic}</additional>\n", "utf-8")


# All of them, in turns


def measure(kind: str, asked: dict[str, Any]) -> float:
    """Decisions per CPU-second."""
    script, python, environment = HERE / "traffic.py", Path(sys.executable), dict(os.environ)
    if kind.startswith("sumo-rl"):
        from evenhand.envs.traffic import installation

        script, python = HERE / "peers" / "peer_sumo_rl.py", PEERS
        environment = installation.surroundings()
        asked = asked | {"info": kind == "sumo-rl"}
        if "libsumo" in kind:
            environment["LIBSUMO_AS_TRACI"] = "1"
    roads = "split" if kind in ("sumo", "evenhand") or kind.endswith("split") else "two-lane"
    asked = asked | {"kind": kind, "roads": roads} | asked[roads]
    words = [str(python), str(script)] + ([] if script.name.startswith("peer") else ["--one"])
    said = subprocess.run(words, input=json.dumps(asked), capture_output=True, text=True, env=environment, check=False)
    if said.returncode:
        raise SystemExit(f"{kind} failed:\n{said.stderr}")
    found = json.loads(said.stdout.strip().splitlines()[-1])
    return float(found["decisions"] / found["cpu"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=24)
    parser.add_argument("--decisions", type=int, default=200)
    parser.add_argument("--page", action="store_true", help="only write the page anew from what was measured last")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # several threads would only add CPU-seconds
    if arguments.one:
        asked = json.load(sys.stdin)
        run = {"sumo": bare, "stand-in": stand_in}.get(asked["kind"], own)
        print(json.dumps(run(asked)))
        return
    if not arguments.page:
        RESULTS.write_text(json.dumps(measured(arguments.repeats, arguments.decisions), indent=1) + "\n")
    PAGE.write_text(page(json.loads(RESULTS.read_text())), encoding="utf-8")
    print(PAGE.read_text(encoding="utf-8"))


def measured(repeats: int, decisions: int) -> dict[str, Any]:
    from tempfile import TemporaryDirectory

    from evenhand.envs.traffic.demand import STATIONARY
    from evenhand.envs.traffic.network import ROADS, compiled
    from evenhand.envs.traffic.sumo import routes_xml

    speeds: dict[str, list[float | None]] = {kind: [] for kind in ROWS}
    with TemporaryDirectory() as folder:
        signal_plan = Path(folder) / "plan.add.xml"
        plan(signal_plan)
        files: dict[str, Any] = {"plan": str(signal_plan)}
        for roads in ROADS:
            routes = Path(folder) / f"{roads}.rou.xml"
            routes.write_text(routes_xml(STATIONARY, 0, roads), "utf-8")
            files[roads] = {"net": str(compiled(roads)), "routes": str(routes)}
        for repeat in range(repeats):
            for kind in ROWS:
                if kind in SELDOM and repeat % EVERY:
                    speeds[kind].append(None)
                    continue
                share = {"decisions": decisions // SLOW.get(kind, 1), "hold": HOLD, "seed": repeat + 1}
                speed = measure(kind, files | share)
                speeds[kind].append(speed)
                print(f"{repeat + 1}/{repeats} {kind}: {speed:,.0f} decisions per CPU-second", flush=True)
    versions = {name: version(name) for name in ("eclipse-sumo", "jax", "evenhand")}
    return {
        "speeds": speeds,
        "decisions": decisions,
        "versions": versions | {"sumo-rl": "1.4.5"},
        "load": os.getloadavg()[0],
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
    }


RATIOS = (
    ("evenhand", "sumo-rl", 10),
    ("evenhand", "sumo-rl libsumo", 1.5),
    ("evenhand", "sumo-rl libsumo split", None),
    ("evenhand", "sumo", 0.85),
)
STANDIN_AIMS = (9_000, 20_000)


def page(results: dict[str, Any]) -> str:
    speeds = {kind: np.array(values, float) for kind, values in results["speeds"].items()}
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    lines = [
        "# Speed of the traffic light",
        "",
        "Written by `make bench-traffic`. The same junction, demand and fixed cycle (each phase held for "
        f"{14 * HOLD} s) in all rows, {results['decisions']} decisions of 14 simulated seconds in each measurement "
        f"(fewer for the two slowest), start included; the stand-in runs {BATCH} junctions side by side, and is "
        "compiled before. CPU-seconds include the simulators' processes. Each lane is a road of its own for the bare "
        "program and for evenhand; sumo-rl gets the ordinary roads that its users would draw, and once evenhand's. "
        f"Medians of {len(speeds['sumo'])} turns, some rows only in every fourth; the ratios count.",
        "",
        f"{results['machine']}; {versions}. Load average at the end: {results['load']:.1f}.",
        "",
        "| | decisions per CPU-second | range |",
        "| --- | --- | --- |",
    ]
    for kind, about in ROWS.items():
        found = speeds[kind]
        lines.append(f"| {about} | {np.nanmedian(found):,.0f} | {np.nanmin(found):,.0f} – {np.nanmax(found):,.0f} |")
    lines += ["", "| ratio, turn by turn | median | range | aim |", "| --- | --- | --- | --- |"]
    for one, other, aim in RATIOS:
        ratio = speeds[one] / speeds[other]
        lines.append(
            f"| {ROWS[one]} : {ROWS[other]} | {np.nanmedian(ratio):.2f} | "
            f"{np.nanmin(ratio):.2f} – {np.nanmax(ratio):.2f} | "
            f"{_verdict(np.nanmedian(ratio), aim) if aim else '–'} |"
        )
    fast = np.nanmedian(speeds["stand-in"])
    verdicts = [_verdict(fast, aim) for aim in STANDIN_AIMS]
    ratio = speeds["stand-in"] / speeds["evenhand"]
    lines.append(
        f"| {ROWS['stand-in']} : {ROWS['evenhand']} | {np.nanmedian(ratio):.0f} | "
        f"{np.nanmin(ratio):.0f} – {np.nanmax(ratio):.0f} | "
        f"decisions per core-second {', '.join(verdicts)} |"
    )
    return "\n".join(lines) + "\n"


def _verdict(found: float, aim: float) -> str:
    return f"≥ {aim:,}: {'yes' if found >= aim else '**missed**'}"


if __name__ == "__main__":
    main()
