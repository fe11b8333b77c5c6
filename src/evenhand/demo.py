"""A demo in two minutes, `python -m evenhand.demo`: two species, of which one eats the other, and who is protected."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from evenhand import metrics, report
from evenhand.errors import InputError, visible
from evenhand.report import Outcome, judging, page
from evenhand.runs.folder import RunFolder
from evenhand.runs.training import Run
from evenhand.terminal import Console
from evenhand.welfare import welfare

STEPS, SEEDS = 600_000, 3
FOLDER = Path("demo")
ARGUMENTS = {"response": "strong"}
WELFARES = {"ggf-ppo": "ggf", "ppo": "utilitarian"}
"""The folders under demo/runs, and what each maximises."""
TITLE = "Sea otters eat abalone: who is protected?"
STORY = (
    "Both species are endangered. Each year one may introduce otters, protect abalone from poachers, cull otters, do "
    "half of each, or nothing. Otters here eat more than in the published setting (response = strong): there both "
    "species can do well side by side, and fairness costs next to nothing.",
    "PPO maximises the sum of both, GGF-PPO the generalized Gini welfare, with twice the weight on whoever is worse "
    f"off. Each is trained {SEEDS} times, and tested in 50 episodes of 3,650 years each time.",
)


def main() -> int:
    """Train, judge, print, draw, and say in words what it shows."""
    console = Console(highlight=False, markup=False)
    began = time.monotonic()
    try:
        console.print(TITLE, style="bold")
        for paragraph in STORY:
            console.print(paragraph)
        console.print()
        paths = {name: FOLDER / "runs" / name for name in WELFARES}
        for name, path in paths.items():
            _clear(path, WELFARES[name])
        commands = {name: _command(name, path) for name, path in paths.items()}
        for command in commands.values():
            console.print("$ evenhand " + shlex.join(command), style="dim", soft_wrap=True)
        _train(commands, paths)
        _tell(console, {name: Run(RunFolder.open(path)) for name, path in paths.items()}, commands)
    except KeyboardInterrupt:
        print("evenhand: interrupted; the demo begins anew when it is started again.", file=sys.stderr)
        return 130
    except (InputError, OSError) as error:
        print(f"evenhand: error: {visible(str(error))}", file=sys.stderr)
        return 2
    console.print(f"This took {report.duration(time.monotonic() - began)}.")
    return 0


def _command(name: str, path: Path) -> list[str]:
    given = [f"{key}={value}" for key, value in ARGUMENTS.items()]
    words = ["train", "species", "--env", *given, "--welfare", WELFARES[name], "--steps", str(STEPS)]
    return [*words, "--seeds", str(SEEDS), "--jobs", "1", "--checkpoint-seconds", "2", "-o", str(path)]


def _clear(path: Path, welfare_name: str) -> None:
    """Remove what an earlier demo left, and nothing else."""
    if not path.is_symlink() and not path.exists():
        return
    ours = False
    if not path.is_symlink() and (path / "run.json").is_file():
        folder = RunFolder.open(path)
        asked = folder.request
        wanted = welfare(welfare_name, 2).name
        ours = (asked.env, asked.arguments, asked.welfare) == ("species", ARGUMENTS, wanted)
    if not ours:
        raise InputError(f"{path} is not what an earlier demo left: move it away first.")
    with folder.locked():  # refused while another demo is under way
        pass
    shutil.rmtree(path)


def _train(commands: Mapping[str, list[str]], paths: Mapping[str, Path]) -> None:
    """Both commands at the same time, one for each core, with a bar for each."""
    bar = Progress(
        TextColumn("{task.description}"), BarColumn(bar_width=30), TaskProgressColumn(), console=Console(stderr=True)
    )
    running: dict[str, subprocess.Popen[bytes]] = {}
    logs = {name: path.with_name(f"{name}.log") for name, path in paths.items()}
    try:
        for name, command in commands.items():
            paths[name].parent.mkdir(parents=True, exist_ok=True)
            with logs[name].open("wb") as log:
                program = [sys.executable, "-m", "evenhand.cli", *command]
                running[name] = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        tasks = {name: bar.add_task(name.upper(), total=STEPS * SEEDS) for name in commands}
        if bar.console.is_terminal:
            bar.start()
        while any(process.poll() is None for process in running.values()):
            time.sleep(0.3)
            for name, path in paths.items():
                if bar.console.is_terminal and (path / "run.json").is_file():
                    done = sum(min(seed.step, seed.steps) for seed in RunFolder.open(path).status())
                    bar.update(tasks[name], completed=done)
            if any(process.returncode for process in running.values()):
                break
    finally:
        if bar.console.is_terminal:
            bar.stop()
        _end(running.values())
    for name, process in running.items():
        if process.returncode:
            last = logs[name].read_text("utf-8", "replace").strip().splitlines()[-1:]
            raise InputError(f"the training of {name} failed: {' '.join(last)} (see {logs[name]}).")


def _end(processes: Any) -> None:
    """Wait for those that Ctrl-C has reached too, and stop the others."""
    deadline = time.monotonic() + 20
    for process in processes:
        if process.poll() is None:
            try:
                process.wait(max(0.1, deadline - time.monotonic()) if sys.exc_info()[0] is KeyboardInterrupt else 0.1)
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()


def _tell(console: Console, runs: Mapping[str, Run], commands: Mapping[str, list[str]]) -> None:
    ggf = welfare("ggf", 2)
    tests = {name: list(judging.kept_tests(run, lambda _: None).values()) for name, run in runs.items()}
    any_run = next(iter(runs.values()))
    objectives, gamma = any_run.request.objectives, any_run.request.config.gamma
    lengths = np.concatenate([test.length for of_run in tests.values() for test in of_run])
    parts = [page.paragraph(paragraph) for paragraph in STORY]
    shown = []
    for measure, title, remark in (
        ("discounted", f"Who gets what, near years counting more (discounted, γ = {gamma:g})", _on_fairness),
        ("average", "Who gets what in the long run (average over 3,650 years)", _on_the_long_run),
    ):
        best = judging.reference(any_run.env, ggf, measure, gamma, lengths)
        found = [judging.outcome(runs[name].name, tests[name], measure) for name in runs]
        optimum = None
        if isinstance(best, judging.Reference):
            found.append(Outcome("exact optimum", best.returns[None], "exact"))
            optimum = best.welfare
        shown.append(found)
        table = report.outcomes_table(found, objectives, ggf, optimum=optimum)
        words = remark(found, optimum)
        console.print(title, style="bold")
        console.print(table)
        console.print(words)
        console.print()
        parts += [page.heading(title), page.as_html(table), page.paragraph(words)]
    notes = report.table_notes(shown[0], objectives, ggf)
    for note in notes:
        console.print(note, style="dim")
    picture, html = FOLDER / "who-gets-what.png", FOLDER / "index.html"
    curves = [curve for run in runs.values() if (curve := judging.curve(run.name, run)) is not None]
    report.draw_outcomes(shown[0], objectives, picture, measure="(1 − γ) × discounted return", curves=curves)
    parts += [page.heading("The same as a picture"), page.picture(picture, "what each species gets, and how evenly")]
    parts += [page.paragraph(note) for note in notes]
    parts.append(page.heading("To do it again"))
    parts += [page.command("evenhand " + shlex.join(command)) for command in commands.values()]
    html.write_text(page.page(TITLE, parts), "utf-8")
    console.print(f"\nThe picture: {picture}. A page for the browser: {html}. The runs: {FOLDER / 'runs'}.")


def _on_fairness(found: list[Outcome], optimum: float | None) -> str:
    fair, plain = found[0].mean, found[1].mean
    price = float(metrics.price_of_fairness(plain, fair))
    words = (
        f"The worse-off species gets {fair.min():.2f} under {found[0].name} and {plain.min():.2f} under "
        f"{found[1].name}, at the price of {price:.1%} of the sum."
    )
    if optimum is not None:
        reached = float(welfare("ggf", 2).value(fair)) / optimum
        words += (
            f" {found[0].name} reaches {reached:.0%} of the optimum that the exact solver finds for a finite model."
        )
    return words


def _on_the_long_run(found: list[Outcome], optimum: float | None) -> str:
    fair = found[0].mean
    ggf = welfare("ggf", 2)
    words = (
        f"The same policies, every year counting the same: now {found[0].name} gives one species {fair.max():.2f} and "
        f"the other {fair.min():.2f}. It was trained for discounted returns, in which it makes up for the many years "
        "that the otters need to grow in number by letting them have more later on. Fair in discounted returns is not "
        "fair in the long run."
    )
    if float(ggf.value(found[1].mean)) > float(ggf.value(fair)):
        words += f" By this measure {found[1].name}, which never tried to be fair, happens to be the fairer of the two."
    return words


if __name__ == "__main__":
    sys.exit(main())
