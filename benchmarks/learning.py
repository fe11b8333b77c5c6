"""Speed, memory and quality of learning, beside other libraries on the same problems with the same hyperparameters.

    python benchmarks/learning.py              speed and memory: about twenty minutes
    python benchmarks/learning.py --quality    what is learnt, over ten seeds: about an hour; --scale 0.2 for less
    python benchmarks/learning.py --quick      either of them with tiny runs, printed: about a minute or two

Results go to benchmarks/results/learning.json and docs/benchmarks-learning.md, each kind replacing only its own part;
--quick leaves both alone. Every figure comes from a process of its own. The libraries take turns, so that neighbours on
the machine disturb all alike; read the ratios, not the seconds. The peers are given their best case: a lean NumPy
environment (species_numpy.py) in this process, one thread, and no recording of episodes. The aims are those beside
Stable-Baselines3; the others are measured over half as many steps.
"""

import argparse
import itertools
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from learning_cases import CARTPOLE, EQUAL, OTHERS, QUALITY, SPECIES, as_sb3, configured, species_constants
from learning_page import (
    PARTS,
    compile_table,
    everyone_table,
    page,
    quality_table,
    seeds_table,
    shares_table,
    shortfalls,
    speed_table,
    start_table,
)

HERE = Path(__file__).parent
PEERS = HERE.parent / ".venv-peers" / "bin" / "python"
RESULTS = HERE / "results" / "learning.json"
PAGE = HERE.parent / "docs" / "benchmarks-learning.md"
TRAINING = {"episode_steps": 200}
"""Arguments of the species environment."""
STEPS = {"ppo": 51_200, "a2c": 30_000, "dqn": 12_000}
"""Measured steps of Stable-Baselines3 in one repetition: several seconds."""
HOST = {"cartpole": "CartPole-v1", "mountaincar": "mo-mountaincar-v0"}
"""Parts of the speed on environments that nobody can compile."""
USERS = {"species": 2, "mo-mountaincar-v0": 3}
CASES = [f"{env}/{algo}" for env, algo, *_ in QUALITY]
WHOLE_RUN = 500_000
"""Steps of the run whose length is told, from the command to its end, at the speed that was measured."""
AHEAD = 8
"""We take so many times as many in the compiled loop, or there would be nothing to measure."""


# Our side, in a process of its own


def own(case: dict[str, Any]) -> dict[str, Any]:
    if case["cores"]:
        os.sched_setaffinity(0, case["cores"])
    from evenhand.runs.pool import ONE_THREAD

    os.environ.setdefault(ONE_THREAD, "1")  # as training runs set it
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    jobs = {"speed": own_speed, "quality": own_quality, "seeds": own_seeds, "fair": own_fair, "peak": own_peak}
    return jobs[case["job"]](case)


def own_speed(case: dict[str, Any]) -> dict[str, float]:
    """The loop itself: what a training run spends nearly all its time in."""
    from evenhand.runs.pool import prepare_jax

    prepare_jax()
    import evenhand as eh
    from evenhand.agents.algorithm import algorithm
    from evenhand.envs import resolve
    from evenhand.training.host_loop import loop_for
    from evenhand.training.task import Task

    env = resolve(case["env"], TRAINING if case["env"] == "species" else {})
    settings = case["settings"] | {"hidden": tuple(case["settings"]["hidden"])}
    config = algorithm(case["algo"]).Config(**settings)
    welfare = eh.welfare(case["welfare"], len(env.objectives))
    loop = loop_for(env, Task(case["algo"], config, welfare, env.observation_space.n, env.action_space))
    try:
        before, steps = max(1, case["warm_up"] // config.steps_per_update), case["steps"] // config.steps_per_update
        of = 1 + before + steps
        state = loop.start(case["seed"])
        compiled = loop.compile(state)
        state, _ = loop.advance(state, 1, of)
        start_wall, start_cpu = time.time() - case["began"], time.process_time()
        state, _ = loop.advance(state, before, of)
        until_now = time.time() - case["began"]
        wall, cpu = time.perf_counter(), time.process_time()
        loop.advance(state, steps, of)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        loop.close()
    return {
        "steps": steps * config.steps_per_update,
        "wall": wall,
        "cpu": cpu,
        "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "start_wall": start_wall,
        "start_cpu": start_cpu,
        "before": until_now,
        "taken": (1 + before) * config.steps_per_update,
        "compile": compiled,
    }


def own_peak(case: dict[str, Any]) -> dict[str, float]:
    """Floating-point operations per second in a product of large matrices, which does little else."""
    import numpy as np

    n = case["size"]
    left, right = np.random.default_rng(0).standard_normal((2, n, n), np.float32)
    left @ right
    began, taken = time.perf_counter(), 0
    while time.perf_counter() < began + 3.0:
        left @ right
        taken += 1
    return {"operations": 2 * n**3 * taken / (time.perf_counter() - began)}


def own_seeds(case: dict[str, Any]) -> dict[str, float]:
    """A whole training run, as a user starts it."""
    import evenhand as eh

    asked = {"seeds": case["seeds"], "jobs": case["jobs"], "settings": case["settings"], "arguments": TRAINING}
    with tempfile.TemporaryDirectory() as folder:
        eh.train(case["env"], case["algo"], "utilitarian", case["steps"], folder=folder + "/run", episodes=0, **asked)
    wall = time.time() - case["began"]
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "steps": case["steps"] * case["seeds"],
        "wall": wall,
        "cpu": sum(u.ru_utime + u.ru_stime for u in used),
        "memory": used[1].ru_maxrss / 1024,
    }


def own_quality(case: dict[str, Any]) -> dict[str, list[float]]:
    """For each seed the mean return of the last tenth of the training, and of tests with the most probable actions."""
    import gymnasium
    import polars as pl

    import evenhand as eh

    found: dict[str, list[float]] = {"training": [], "test": []}
    asked = {"jobs": 1, "settings": case["settings"], "episodes": 0}
    with tempfile.TemporaryDirectory() as folder:
        seeds = [seed for seed, _ in case["tests"]]
        run = eh.train(
            case["env"], case["algo"], "utilitarian", case["steps"], seeds=seeds, folder=folder + "/run", **asked
        )
        whole, policies = run.metrics(), {seed: run.policy(seed) for seed in seeds}
    [returns] = [name for name in whole.columns if name.startswith("episode_return")]
    env = gymnasium.make(case["env"])
    for seed, tests in case["tests"]:
        table = whole.filter(pl.col("seed") == seed)
        last = table.filter((pl.col("step") > 0.9 * pl.col("step").max()) & (pl.col("episodes") > 0))
        ended = last["episodes"].sum()
        found["training"].append(float((last[returns] * last["episodes"]).sum() / ended) if ended else float("nan"))
        totals = []
        for start in tests:
            observation, total, over = env.reset(seed=start)[0], 0.0, False
            while not over:
                observation, reward, terminated, truncated, _ = env.step(
                    policies[seed](observation, deterministic=True)
                )
                total, over = total + float(reward), terminated or truncated
            totals.append(total)
        found["test"].append(statistics.fmean(totals))
    return found


def own_fair(case: dict[str, Any]) -> dict[str, Any]:
    """The mean discounted returns of test episodes, for each seed."""
    import evenhand as eh

    settings = case["settings"] | {"hidden": tuple(case["settings"]["hidden"])}
    with tempfile.TemporaryDirectory() as folder:
        asked = {"seeds": case["seeds"], "jobs": 1, "settings": settings, "folder": folder + "/run", "episodes": 0}
        run = eh.train(case["env"], "ppo", "ggf", case["steps"], **asked)
        tests = [
            eh.evaluate_policy(case["env"], run.policy(seed), case["episodes"], case["gamma"], 1_000_000 + seed)
            for seed in case["seeds"]
        ]
    return {"returns": [(test.returns("discounted") / (1 - case["gamma"])).tolist() for test in tests]}


# Running cases


def run(side: str, case: dict[str, Any], cache: str | None = None) -> dict[str, Any]:
    """One case in a process of its own."""
    environment = os.environ | ({"XDG_CACHE_HOME": cache} if cache else {})
    # What MO-Gymnasium's environments need is installed beside the peers, and evenhand is too.
    command = [str(PEERS) if case["job"] == "fair" else sys.executable, __file__, "--own"]
    if side != "evenhand":
        command = [str(PEERS), "-W", "ignore", str(HERE / "peers" / f"peer_{side}.py")]
    if side in ("sb3", "sbx") and "settings" in case:
        case = case | {"settings": as_sb3(case["algo"], case["settings"])}
    told = json.dumps({"cores": [], "seed": 0} | case | {"began": time.time()})
    done = subprocess.run(command, input=told, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(f"{side} failed on {case['job']} {case.get('env')} {case.get('algo')}:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def all_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_setaffinity") else []


def one_core() -> list[int]:
    return all_cores()[-1:]


def speed_case(env: str, algo: str, settings: dict[str, Any], scale: float) -> dict[str, Any]:
    from evenhand.envs.species.env import Species

    config = configured(algo, settings)
    per_update = config["envs"] * config["rollout"]
    constants = species_constants(Species(**TRAINING)) if env == "species" else None
    return {
        "job": "speed",
        "env": env,
        "users": USERS.get(env, 1),
        "algo": algo,
        "welfare": "utilitarian",
        "settings": config,
        "constants": constants,
        "cores": one_core(),
        "first": per_update,
        "warm_up": 2 * max(1500, per_update),  # beyond DQN's first 1,000 steps, in which it only looks
        "steps": max(per_update, int(scale * STEPS[algo]) // per_update * per_update),
    }


def throughput(env: str, repeats: int, scale: float, cache: str, console: Console) -> list[dict[str, Any]]:
    """Steps per CPU-second of one seed on one core, learning included; all take turns."""
    rows = []
    users = USERS.get(env, 1)
    for algo, settings in (SPECIES if env == "species" else CARTPOLE).items():
        case = speed_case(env, algo, settings, scale)
        ours = case | {"steps": case["steps"] * (AHEAD if env == "species" else 2)}
        welfares = ["utilitarian", "ggf"] if users > 1 else ["utilitarian"]
        others = [name for name, other in OTHERS.items() if algo in other.algos and users >= other.least_users]
        taken: dict[str, list[dict[str, float]]] = {name: [] for name in (*welfares, "sb3", *others)}
        for _ in range(repeats):
            for name in (welfares[0], "sb3", *welfares[1:], *others):
                if name in welfares:
                    taken[name].append(run("evenhand", ours | {"welfare": name}, cache))
                else:
                    less = speed_case(env, algo, settings, 0.5 * scale)["steps"] if name in others else case["steps"]
                    taken[name].append(run(name, case | {"steps": less}))
        about = {"env": env, "algo": algo}
        rows += [about | {"welfare": name} | compared(taken[name], taken["sb3"]) for name in welfares]
        for name in others:  # those that learn from vector rewards stand beside ours that does
            beside = taken["ggf" if OTHERS[name].least_users > 1 else "utilitarian"]
            rows.append(about | {"peer": name} | compared(beside, taken[name]))
        rows += [about | {"who": name} | alone(facts) for name, facts in taken.items()]
        for row in rows[-len(taken) :]:
            console.print(row)
    return rows


def alone(taken: list[dict[str, float]]) -> dict[str, float]:
    """What one side needs: the first process with nothing in a cache, and medians of all."""

    def total(t: dict[str, float]) -> float:
        return t["before"] + (WHOLE_RUN - t["taken"]) * t["wall"] / t["steps"]

    return {
        "speed": statistics.median(t["steps"] / t["cpu"] for t in taken),
        "compile": taken[0]["compile"],
        "start": taken[0]["start_wall"],
        "total": total(taken[0]),
        "total_again": statistics.median(map(total, taken[1:] or taken)),
        "memory": max(t["memory"] for t in taken),
    }


def compared(ours: list[dict[str, float]], theirs: list[dict[str, float]]) -> dict[str, Any]:
    """The ratios of speeds, repetition by repetition, and medians."""

    def speeds(taken: list[dict[str, float]], clock: str) -> list[float]:
        return [t["steps"] / t[clock] for t in taken]

    ratios = {
        clock: sorted(a / b for a, b in zip(speeds(ours, clock), speeds(theirs, clock), strict=True))
        for clock in ("cpu", "wall")
    }
    return {
        "ours": statistics.median(speeds(ours, "cpu")),
        "theirs": statistics.median(speeds(theirs, "cpu")),
        "ratio": statistics.median(ratios["cpu"]),
        "least": ratios["cpu"][0],
        "most": ratios["cpu"][-1],
        "wall_ratio": statistics.median(ratios["wall"]),
    }


def arithmetic(repeats: int, console: Console) -> dict[str, float]:
    """What one core can compute, and both at once; they may share more than the memory."""
    peaks: dict[int, list[float]] = {1: [], 2: []}
    for _, processes in itertools.product(range(repeats), peaks):
        with ThreadPoolExecutor(processes) as pool:
            cases = [{"job": "peak", "size": 1024, "cores": all_cores()[k : k + 1]} for k in range(processes)]
            taken = list(pool.map(lambda case: run("evenhand", case)["operations"], cases))
        peaks[processes].append(sum(taken))
    row = {"one": max(peaks[1]), "two": max(peaks[2]), "per_step": operations(SPECIES["ppo"])}
    console.print(row)
    return row


def operations(settings: Mapping[str, Any]) -> float:
    """Of PPO's products of matrices for one step of the species environment, forwards and backwards.

    Policy and critic act once, and learn once in each epoch: forwards, the gradients of all weights, and those of all
    inputs but the first layer's. Everything else (tanh, the optimiser, the environment) is not counted.
    """
    from evenhand.envs.species.env import Species

    species = Species(**TRAINING)
    first, last = species.observation_space.n, {"policy": species.action_space.n, "critic": 1}
    total = 0.0
    for outputs in last.values():
        sizes = [first, *settings["hidden"], outputs]
        layers = [2 * a * b for a, b in itertools.pairwise(sizes)]
        total += sum(layers) + settings["epochs"] * (3 * sum(layers) - layers[0])
    return total


def many_seeds(repeats: int, steps: int, seeds: int, peer_steps: int, console: Console) -> dict[str, Any]:
    """Whole runs of several seeds on two cores, from the command to the last checkpoint."""
    settings = EQUAL | SPECIES["ppo"]
    asked = {"job": "seeds", "env": "species", "algo": "ppo", "settings": settings}
    asked |= {"steps": steps, "seeds": seeds, "jobs": 2}
    peer = speed_case("species", "ppo", SPECIES["ppo"], 1.0) | {"cores": [], "steps": peer_steps}
    walls: dict[str, list[float]] = {"cached": [], "two": [], "one": []}

    def of_peer(name: str, processes: int, peer_steps: int) -> float:
        """Seconds for all seeds at the speed of so many processes at once."""
        with ThreadPoolExecutor(processes) as pool:
            cases = [peer | {"steps": peer_steps, "seed": seed} for seed in range(processes)]
            taken = list(pool.map(lambda case: run(name, case), cases))
        return steps * seeds / sum(t["steps"] / t["wall"] for t in taken)

    row: dict[str, Any] = {"steps": steps, "seeds": seeds, "peer_steps": peer_steps}
    with tempfile.TemporaryDirectory() as cache:
        row["first"] = run("evenhand", asked, cache)["wall"]
        for _ in range(repeats):
            walls["cached"].append(run("evenhand", asked, cache)["wall"])
            for name, processes in (("two", 2), ("one", 1)):
                walls[name].append(of_peer("sb3", processes, peer_steps))
    others = [name for name, other in OTHERS.items() if "ppo" in other.algos]
    row["others"] = {name: of_peer(name, 2, peer_steps // 2) for name in others}
    row |= {name: statistics.median(taken) for name, taken in walls.items()}
    for theirs in ("two", "one"):
        ratios = [b / a for a, b in zip(walls["cached"], walls[theirs], strict=True)]
        row[f"cached_{theirs}"] = statistics.median(ratios)
        row[f"first_{theirs}"] = row[theirs] / row["first"]
    console.print(row)
    return row


def starting(repeats: int, console: Console) -> list[dict[str, Any]]:
    """From the command to the end of the first update, with nothing in the cache and again with what that left."""
    rows = []
    kinds = [("species", algo, welfare) for algo in SPECIES for welfare in ("utilitarian", "ggf")]
    kinds += [("CartPole-v1", algo, "utilitarian") for algo in CARTPOLE]
    for env, algo, welfare in kinds:
        settings = (SPECIES if env == "species" else CARTPOLE)[algo]
        case = speed_case(env, algo, settings, 0.0) | {"welfare": welfare, "cores": []}
        first, cached, theirs = [], [], []
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                first.append(run("evenhand", case, cache))
                cached.append(run("evenhand", case, cache))
            if welfare == "utilitarian":
                theirs.append(run("sb3", case))
        row: dict[str, Any] = {"env": env, "algo": algo, "welfare": welfare}
        for name, taken in (("first", first), ("cached", cached), ("theirs", theirs)):
            for fact in ("compile", "start_wall", "start_cpu", "memory"):
                if taken and fact in taken[0]:
                    row[f"{name}_{fact}"] = statistics.median(t[fact] for t in taken)
        rows.append(row)
        console.print(row)
    return rows


def learnt(
    cases: Iterable[str], seeds: int, episodes: int, scale: float, cache: str, console: Console
) -> Iterator[dict[str, Any]]:
    """Training and test returns of both, seed by seed."""
    for env, algo, steps, settings in QUALITY:
        if f"{env}/{algo}" not in cases:
            continue
        case = {"job": "quality", "env": env, "algo": algo, "steps": max(5_000, int(scale * steps))}
        case |= {"settings": configured(algo, settings)}
        tests = [(seed, [10_000 * (seed + 1) + episode for episode in range(episodes)]) for seed in range(seeds)]
        cores = os.cpu_count() or 1
        # In turns, so that neighbours on the machine disturb both; each process takes several seeds.
        shares = [(side, tests[core::cores]) for core in range(cores) for side in ("evenhand", "sb3") if tests[core:]]

        def one(share: tuple[str, Any], case: dict[str, Any] = case) -> dict[str, Any]:
            return run(share[0], case | {"tests": share[1]}, cache)

        with ThreadPoolExecutor(cores) as pool:
            results = list(pool.map(one, shares))
        row: dict[str, Any] = {"env": env, "algo": algo, "steps": case["steps"], "test": {}, "training": {}}
        for fact, side in itertools.product(("test", "training"), ("evenhand", "sb3")):
            of = [
                (seed, value)
                for share, result in zip(shares, results, strict=True)
                if share[0] == side
                for (seed, _), value in zip(share[1], result[fact], strict=True)
            ]
            row[fact][side] = [value for _, value in sorted(of)]
        console.print(row)
        yield row


def show(console: Console, title: str, lines: list[list[str]]) -> None:
    table = Table(title=title)
    for k, column in enumerate(lines[0]):
        table.add_column(column, justify="left" if k == 0 else "right")
    for row in lines[1:]:
        table.add_row(*row)
    console.print(table)


def surroundings() -> dict[str, Any]:
    """The machine and the versions; no names."""
    from importlib.metadata import version

    model = "unknown processor"
    if Path("/proc/cpuinfo").exists():
        models = [
            line.split(":")[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ]
        model = models[0] if models else platform.machine()
    ours = {name: version(name) for name in ("evenhand", "jax", "numpy")}
    return {
        "machine": f"{os.cpu_count()} cores ({model}, {platform.machine()}), Python {platform.python_version()}",
        "versions": ours | run("sb3", {"job": "versions"}),
    }


def load() -> float:
    """How busy others, and what we did before, have kept the machine in the last minute."""
    return round(os.getloadavg()[0], 1)


def read() -> dict[str, Any]:
    """What was measured last."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def keep(kind: str, results: dict[str, Any]) -> None:
    kept = read() | {kind: results}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")
    PAGE.write_text(page(kept))


def measure_speed(quick: bool, repeats: int, parts: Iterable[str], console: Console) -> None:
    results = read().get("speed", {"loads": {}}) if set(parts) < set(PARTS) else {"loads": {}}
    results |= surroundings() | {"repeats": repeats}
    scale = 0.1 if quick else 1.0
    for part in parts:
        results["loads"][part] = load()
        with tempfile.TemporaryDirectory() as cache:
            if part == "species":
                results[part] = throughput("species", repeats, scale, cache, console)
                show(console, "Species conservation, one seed on one core", speed_table(results[part]))
                show(console, "Everyone", everyone_table(results[part]))
            elif part in HOST:
                # Of the second, less: what matters there is that rewards are vectors.
                shorter = (0.5 if part == "cartpole" else 0.3) * scale
                results[part] = throughput(HOST[part], repeats, shorter, cache, console)
                show(console, f"{HOST[part]}, one seed on one core", speed_table(results[part]))
                show(console, "Everyone", everyone_table(results[part]))
            elif part == "seeds":
                sizes = (20_480, 2, 10_240) if quick else (300_000, 50, 102_400)
                results[part] = many_seeds(repeats, *sizes, console)
                results[part] |= {"arithmetic": arithmetic(repeats, console)}
                show(console, "PPO, many seeds on two cores", seeds_table(results[part]))
                show(console, "Of what the cores can compute", shares_table(results))
            else:
                results[part] = starting(repeats, console)
                show(console, "Compiling", compile_table(results[part]))
                show(console, "Starting, and memory", start_table(results[part]))
        if all(name in results for name in PARTS):
            results.pop("earlier", None)
        finish("speed", results, quick, console)  # after each part: a run that is cut short loses only the last one


def measure_quality(quick: bool, seeds: int, scale: float, cases: Sequence[str], console: Console) -> None:
    """Measure some cases anew; those that were measured with as many seeds before are kept."""
    kind = "quality" if scale == 1 else "early"
    episodes = 5 if quick else 50 if scale == 1 else 20
    results: dict[str, Any] = surroundings() | {
        "loads": {"all": load()},
        "seeds": seeds,
        "episodes": episodes,
        "scale": scale,
        "rows": [],
    }
    before = read().get(kind, {})
    if not quick and all(before.get(fact, 1.0) == results[fact] for fact in ("seeds", "episodes", "scale")):
        results["rows"] = [row for row in before["rows"] if f"{row['env']}/{row['algo']}" not in cases]
    with tempfile.TemporaryDirectory() as cache:
        for row in learnt(cases, seeds, episodes, 0.0 if quick else scale, cache, console):
            results["rows"] = sorted(
                [*results["rows"], row], key=lambda row: CASES.index(f"{row['env']}/{row['algo']}")
            )
            finish(kind, results, quick, console)
    show(console, f"Quality over {seeds} seeds", quality_table(results["rows"]))


def finish(kind: str, results: dict[str, Any], quick: bool, console: Console) -> None:
    for sentence in shortfalls({kind: results}):
        console.print(f"- {sentence}")
    if not quick:
        keep(kind, results)
        console.print(f"wrote {RESULTS.name} and {PAGE.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quality", action="store_true", help="what is learnt, instead of speed")
    parser.add_argument("--quick", action="store_true", help="tiny runs; the page is left alone")
    parser.add_argument("--repeats", type=int, default=2, help="repetitions of everything that is timed")
    parser.add_argument("--seeds", type=int, default=10, help="seeds of everything whose quality is compared")
    parser.add_argument("--scale", type=float, default=1.0, help="of the steps in which something is learnt")
    usual = [part for part in PARTS if part != "starting"]
    parser.add_argument("--only", nargs="+", choices=PARTS, default=usual, help="parts of the speed to measure anew")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, help="of the quality, to measure anew")
    parser.add_argument("--page", action="store_true", help="only write the page anew from what was measured last")
    parser.add_argument("--own", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.own:
        print(json.dumps(own(json.load(sys.stdin))))
        return
    if asked.page:
        PAGE.write_text(page(read()))
        return
    if not PEERS.exists():
        raise SystemExit("there are no peers to compare with: run this by `make bench-learning`, which installs them.")
    console = Console(width=None if sys.stdout.isatty() else 130)
    if asked.quality:
        measure_quality(asked.quick, 2 if asked.quick else asked.seeds, asked.scale, asked.cases, console)
    else:
        measure_speed(asked.quick, 1 if asked.quick else asked.repeats, asked.only, console)


if __name__ == "__main__":
    main()
