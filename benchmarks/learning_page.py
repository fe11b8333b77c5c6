"""The page on learning: tables of what was measured, and in words where we fall short."""

import math
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from learning_cases import MAPPING, OTHERS, QUALITY

AIMS = {("species", "ppo"): 15.0, ("species", "a2c"): 10.0, ("species", "dqn"): 10.0, ("CartPole-v1", "ppo"): 2.0}
SEEDS_AIM, COMPILE_AIM, CACHED_AIM = 25.0, 10.0, 2.0
PARTS = ("species", "cartpole", "mountaincar", "seeds", "starting")
"""Of the speed."""


def verdict(ours: Iterable[float], theirs: Iterable[float]) -> str:
    """By the 95 % intervals of the means: ahead or behind if they lie apart."""
    from evenhand.stats import interval

    mine, peer = (interval(known) if (known := finite(values)) else None for values in (ours, theirs))
    if mine is None or peer is None:
        return "–"
    if mine.low > peer.high:
        return "ahead"
    return "behind" if mine.high < peer.low else "level"


def spread(values: list[float]) -> str:
    """The mean and its 95 % interval; of seeds without any finished episode, how many there were."""
    from evenhand.stats import interval

    known = finite(values)
    if not known:
        return "–"
    bounds = interval(known)
    missing = f" ({len(values) - len(known)} without)" if len(known) < len(values) else ""
    return f"{statistics.fmean(known):.1f} ± {(bounds.high - bounds.low) / 2:.1f}{missing}"


def finite(values: Iterable[float]) -> list[float]:
    return [value for value in values if math.isfinite(value)]


def called(row: Mapping[str, Any]) -> str:
    """As in GGF-PPO."""
    return ("GGF-" if row.get("welfare") == "ggf" else "") + row["algo"].upper()


def aimed(value: float, aim: float | None, at_most: bool = False) -> str:
    if aim is None:
        return "–"
    reached = value <= aim if at_most else value >= aim
    return f"{'≤' if at_most else '≥'} {aim:g}: {'yes' if reached else '**no**'}"


def speed_table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["", "evenhand (steps/s)", "peer (steps/s)", "ratio", "range", "ratio of wall times", "aim"]]
    for row in beside_sb3(rows):
        aim = AIMS.get((row["env"], row["algo"])) if row["welfare"] == "utilitarian" else None
        lines.append(
            [
                called(row),
                f"{row['ours']:,.0f}",
                f"{row['theirs']:,.0f}",
                f"{row['ratio']:.1f} ×",
                f"{row['least']:.1f} – {row['most']:.1f}",
                f"{row['wall_ratio']:.1f} ×",
                aimed(row["ratio"], aim),
            ]
        )
    return lines


def beside_sb3(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the speeds, the comparisons with Stable-Baselines3, for which we have aims."""
    return [row for row in rows if "welfare" in row]


def beside_others(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return [row for row in rows if "peer" in row]


def everyone_table(rows: list[dict[str, Any]]) -> list[list[str]]:
    head = ["", "steps/s", "evenhand is faster by", "range", "compiling (s)", "first update after (s)"]
    lines = [[*head, "500,000 steps (s)", "again (s)", "peak MB"]]
    ratios = {(row["algo"], row["peer"]): row for row in beside_others(rows)}
    ratios |= {(row["algo"], "sb3"): row for row in beside_sb3(rows) if row["welfare"] == "utilitarian"}
    names = {"utilitarian": "evenhand", "ggf": "evenhand, GGF", "sb3": "Stable-Baselines3"}
    names |= {name: other.title for name, other in OTHERS.items()}
    for row in (row for row in rows if "who" in row):
        ratio = ratios.get((row["algo"], row["who"]))
        faster = [f"{ratio['ratio']:.1f} ×", f"{ratio['least']:.1f} – {ratio['most']:.1f}"] if ratio else ["", ""]
        numbers = [f"{row[fact]:.0f}" for fact in ("total", "total_again", "memory")]
        starting = [f"{row['compile']:.1f}" if row["compile"] else "–", f"{row['start']:.1f}"]
        lines.append(
            [f"{row['algo'].upper()}, {names[row['who']]}", f"{row['speed']:,.0f}", *faster, *starting, *numbers]
        )
    return lines


def seeds_table(row: Mapping[str, Any]) -> list[list[str]]:
    lines = [["", "evenhand (s)", "one peer (s)", "ratio", "aim", "two peers (s)", "ratio"]]
    for name, whose, aim in (("compiled before", "cached", SEEDS_AIM), ("first time, compiling", "first", None)):
        two, one = row[f"{whose}_two"], row[f"{whose}_one"]
        line = [name, f"{row[whose]:.1f}", f"{row['one']:.0f}", f"{one:.1f} ×", aimed(one, aim)]
        lines.append([*line, f"{row['two']:.0f}", f"{two:.1f} ×"])
    for name, seconds in row.get("others", {}).items():
        told = [f"beside {OTHERS[name].title}", f"{row['cached']:.1f}", "–", "–", "–"]
        lines.append([*told, f"{seconds:.0f}", f"{seconds / row['cached']:.1f} ×"])
    return lines


def shares_table(speed: Mapping[str, Any]) -> list[list[str]]:
    """How much of what the cores can compute goes into PPO's products of matrices."""
    facts, lines = speed["seeds"].get("arithmetic"), [["", "steps/s", "GFLOP/s", "of a large product's", "share"]]
    if not facts:
        return lines
    many = speed["seeds"]["steps"] * speed["seeds"]["seeds"] / speed["seeds"]["cached"]
    rows = [("all seeds on two cores", many, facts["two"])]
    for row in speed.get("species", []):
        if (row["algo"], row.get("who")) == ("ppo", "utilitarian"):
            rows.insert(0, ("one seed on one core", row["speed"], facts["one"]))
    for name, speed_, peak in rows:
        used = speed_ * facts["per_step"]
        lines.append([name, f"{speed_:,.0f}", f"{used / 1e9:.1f}", f"{peak / 1e9:.1f}", f"{used / peak:.0%}"])
    return lines


def compile_table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["", "first time (s)", "aim", "from the cache (s)", "aim"]]
    for row in rows:
        first, cached = row["first_compile"], row["cached_compile"]
        aims = aimed(first, COMPILE_AIM, at_most=True), aimed(cached, CACHED_AIM, at_most=True)
        lines.append([f"{called(row)}, {row['env']}", f"{first:.1f}", aims[0], f"{cached:.1f}", aims[1]])
    return lines


def start_table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["", "first time: wall, CPU (s)", "from the cache", "peer", "first time: MB", "from the cache", "peer"]]
    for row in rows:
        line = [f"{called(row)}, {row['env']}"]
        whose = [name for name in ("first", "cached", "theirs") if f"{name}_memory" in row]
        line += [f"{row[f'{name}_start_wall']:.1f}, {row[f'{name}_start_cpu']:.1f}" for name in whose]
        line += ["–"] * (3 - len(whose))
        line += [f"{row[f'{name}_memory']:.0f}" for name in whose] + ["–"] * (3 - len(whose))
        lines.append(line)
    return lines


def quality_table(rows: list[dict[str, Any]]) -> list[list[str]]:
    lines = [["", "steps", "tested: evenhand", "peer", "", "last tenth of training: evenhand", "peer", ""]]
    for row in rows:
        line = [f"{called(row)}, {row['env']}", f"{row['steps']:,}"]
        for fact in ("test", "training"):
            ours, theirs = row[fact]["evenhand"], row[fact]["sb3"]
            line += [spread(ours), spread(theirs), verdict(ours, theirs)]
        lines.append(line)
    return lines


def shortfalls(results: Mapping[str, Any]) -> list[str]:
    """Where the peer is better, and where we fall short of our aims, in sentences."""
    speed, quality = results.get("speed", {}), results.get("quality", {})
    measured = {(row["env"], row["algo"]) for row in quality.get("rows", [])}
    missing = [part for part in PARTS if part not in speed]
    missing += [f"quality of {algo.upper()} on {env}" for env, algo, *_ in QUALITY if (env, algo) not in measured]
    found = [f"Not measured yet, so that nothing can be said: {', '.join(missing)}."] if missing else []
    found += speed.get("earlier", [])
    early = results.get("early", {})
    for row in [*early.get("rows", []), *quality.get("rows", [])]:
        for fact, when in (("test", "when tested"), ("training", "in the last tenth of training")):
            if verdict(row[fact]["evenhand"], row[fact]["sb3"]) == "behind":
                found.append(f"{called(row)} on {row['env']} returns less {when}, after {row['steps']:,} steps.")
    rows = [row for part in ("species", "cartpole", "mountaincar") for row in speed.get(part, [])]
    for row in beside_others(rows):
        if row["ratio"] <= 1:
            what, whom = f"{row['algo'].upper()} on {row['env']}", OTHERS[row["peer"]].title
            found.append(f"{what} is slower than {whom}'s: {row['ratio']:.2f} ×.")
    for row in beside_sb3(rows):
        aim = AIMS.get((row["env"], row["algo"])) if row["welfare"] == "utilitarian" else None
        if row["ratio"] <= 1:
            found.append(f"{called(row)} on {row['env']} is slower: {row['ratio']:.2f} ×.")
        elif aim and row["ratio"] < aim:
            found.append(f"{called(row)} on {row['env']} is {row['ratio']:.1f} × as fast; we aim at {aim:g} ×.")
    if "seeds" in speed:
        one, two = speed["seeds"]["cached_one"], speed["seeds"]["cached_two"]
        if one < SEEDS_AIM:
            found.append(f"Many seeds of PPO on two cores: {one:.1f} × as fast as the peer; we aim at {SEEDS_AIM:g} ×.")
        if two < SEEDS_AIM:
            found.append(
                f"Many seeds of PPO on two cores: {two:.1f} × as fast, not {one:.1f} ×, beside a process of the peer "
                "on each core, started by hand."
            )
    for row in speed.get("starting", []):
        what = f"{called(row)} on {row['env']}"
        if row["first_compile"] > COMPILE_AIM or row["cached_compile"] > CACHED_AIM:
            found.append(
                f"Compiling {what} takes {row['first_compile']:.1f} s the first time and {row['cached_compile']:.1f} s "
                f"from the cache; we aim at {COMPILE_AIM:g} and {CACHED_AIM:g}."
            )
    slower = [row for row in speed.get("starting", []) if row.get("theirs_start_wall", 1e9) < row["first_start_wall"]]
    if slower:
        mine = sorted(row["first_start_wall"] for row in slower)
        peer = sorted(row["theirs_start_wall"] for row in slower)
        found.append(
            f"The first update of a new kind of run is there after {mine[0]:.0f} to {mine[-1]:.0f} s, the peer's after "
            f"{peer[0]:.0f} to {peer[-1]:.0f} s: it has nothing to compile. Later runs find theirs in the cache."
        )
    larger = [row for row in speed.get("starting", []) if row.get("theirs_memory", 1e9) < row["cached_memory"]]
    if larger:
        ours, first, theirs = (max(row[f"{name}_memory"] for row in larger) for name in ("cached", "first", "theirs"))
        found.append(
            f"Memory: a process takes up to {ours:.0f} MB, and {first:.0f} when it compiles; the peer's {theirs:.0f}."
        )
    return found


def markdown(lines: list[list[str]]) -> str:
    header, *rows = lines
    if not rows:
        return "Not measured yet."
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows))


def page(results: Mapping[str, Any]) -> str:
    """The whole page, from all that was measured last."""
    parts = [INTRODUCTION]
    found = shortfalls(results)
    parts.append("## Where evenhand is not ahead, or falls short of what we aim at\n")
    parts.append("\n".join(f"- {sentence}" for sentence in found) if found else "Nowhere in what was measured.")
    if "speed" in results:
        speed = results["speed"]
        parts.append(SPEED.format(about=about(speed), repeats=speed["repeats"]))
        for part, text, tables in (
            ("species", SPECIES_TEXT, [speed_table, everyone_table]),
            ("cartpole", CARTPOLE_TEXT, [speed_table, everyone_table]),
            ("mountaincar", MOUNTAINCAR_TEXT, [speed_table, everyone_table]),
            ("seeds", SEEDS_TEXT, [seeds_table]),
            ("starting", STARTING_TEXT, [compile_table, start_table]),
        ):
            title, _, words = text.partition("\n")
            if part not in speed:
                parts.append(f"{title}\n\nNot measured yet.")
                continue
            facts = speed[part] | {"shares": markdown(shares_table(speed))} if part == "seeds" else {}
            parts.append(title + "\n" + words.format(*(markdown(table(speed[part])) for table in tables), **facts))
    for kind, text in (("early", EARLY_TEXT), ("quality", QUALITY_TEXT)):
        if kind not in results:
            parts.append(f"{text.splitlines()[1]}\n\nNot measured yet.")
            continue
        learnt = results[kind]
        table = markdown(quality_table(learnt["rows"]))
        facts = {"seeds": learnt["seeds"], "episodes": learnt["episodes"], "scale": learnt.get("scale", 1.0)}
        parts.append(text.format(about=about(learnt), table=table, **facts))
    parts.append(MAPPING_TEXT.format(mapping=MAPPING))
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def about(results: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    loads = ", ".join(f"{part} {load:.1f}" for part, load in results["loads"].items())
    said = f"Load averages when the parts began: {loads}." if loads else ""
    return " ".join(filter(None, [f"{results['machine']}. {versions}.", said, results.get("note", "")]))


INTRODUCTION = """\
# Benchmarks of learning

`make bench-learning` measures speed and memory anew, `make bench-quality` what is learnt; each replaces its part of
this page. "The peer" is Stable-Baselines3. The others are SBX (Stable-Baselines3 with learning compiled by JAX; it has
no A2C), loops in plain PyTorch in the manner of CleanRL (our own lines), and MORL-Baselines' PPO for utilities that are
not linear (NLMOPPO), which learns from vector rewards and stands beside GGF-PPO. All have the same hyperparameters and
live in a virtual environment of their own (.venv-peers, from benchmarks/peers/peers.txt). Machines are noisy: all take
turns, every figure comes from a process of its own, and the ratios are what counts.
"""

SPEED = """
## Speed

{about} Medians of {repeats} repetitions.
"""

SPECIES_TEXT = """\
### Species conservation, one seed on one core

Steps per CPU-second, learning included. PPO: 10 environments × 128 steps, 4 epochs of 4 minibatches; A2C: 10 × 10;
DQN: one environment, a batch of 64 every 4 steps; two hidden layers of 64. The peer steps a lean NumPy version of the
same model in a DummyVecEnv, on one thread, and learns from the summed reward. GGF rows have a critic for each user;
the peer beside them is still the scalar one.

{}

Everyone. Compiling and the first update are of the first process, with nothing in a cache; so is the time for 500,000
steps from the command to the end, at the speed that was measured. "Again": with what the first one left in the cache.

{}
"""

CARTPOLE_TEXT = """\
### CartPole-v1, one seed on one core

Gymnasium's own environment on both sides, 8 of them; here only acting and learning are compiled.

{}

Everyone. Compiling and the first update are of the first process, with nothing in a cache; so is the time for 500,000
steps from the command to the end, at the speed that was measured. "Again": with what the first one left in the cache.

{}
"""

MOUNTAINCAR_TEXT = """\
### mo-mountaincar-v0, one seed on one core

MO-Gymnasium's environment with three rewards, 8 of them; those who know only one reward get the sum.

{}

Everyone. Compiling and the first update are of the first process, with nothing in a cache; so is the time for 500,000
steps from the command to the end, at the speed that was measured. "Again": with what the first one left in the cache.

{}
"""

SEEDS_TEXT = """\
### Many seeds on two cores

PPO on species conservation, {seeds} seeds of {steps:,} steps, from the command to the last checkpoint, in wall time,
with everything that a run keeps. evenhand spreads seeds over the cores. The peer has nothing for several seeds: its
times are those of one process that takes one seed after another, and of two started by hand that share them, by their
speed over {peer_steps:,} steps; starting and saving are not counted.

{}

What of that is arithmetic: the operations of PPO's products of matrices per second (of 64 × 64 weights and 320 rows in
one minibatch), beside what a product of two large matrices reaches on the same cores. Tanh, the optimiser and the
environment are not counted as operations, but take their time. Two "cores" may be two threads of one.

{shares}
"""

STARTING_TEXT = """\
### Starting, and memory

Compiling, in seconds of wall time; compiled programs are kept in the user's cache folder.

{}

From the command to the end of the first update, imports and all; and the peak of the process. The peer has nothing to
compile.

{}
"""

EARLY_TEXT = """
## Quality, early

{about}

As below, {seeds} seeds each, but with only {scale:g} of the steps (the schedules shortened as well): who learns from
fewer steps. Mean ± 95 % interval over seeds; tested over {episodes} episodes. "level": the intervals overlap.

{table}
"""

QUALITY_TEXT = """
## Quality

{about}

Equal steps, equal hyperparameters (those of RL Baselines3 Zoo, without its state-dependent exploration, and with fewer
steps for A2C and Acrobot), {seeds} seeds each; mean ± 95 % interval over seeds. Tested: the final policy's most
probable actions over {episodes} episodes, the same for both. "level": the intervals overlap.

{table}
"""

MAPPING_TEXT = """
### How the settings correspond

{mapping}
"""
