"""A demo in two minutes, `python -m evenhand.demo`: two species, of which one eats the other, and who is protected."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from evenhand import metrics, report
from evenhand.cli import options, output
from evenhand.envs.optimum import Reference, reference_of
from evenhand.errors import InputError, visible
from evenhand.evaluation.result import Outcome
from evenhand.report import page
from evenhand.runs.folder import RunFolder
from evenhand.runs.run import Run
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
    console = output.plain_console()
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
        _tell(console, [Run(RunFolder.open(path)) for path in paths.values()], commands.values())
    except KeyboardInterrupt:
        output.warn("interrupted; the demo begins anew when it is started again.")
        return output.INTERRUPTED
    except (InputError, OSError) as error:
        output.warn(f"error: {visible(str(error))}")
        return output.REFUSED
    console.print(f"This took {report.duration(time.monotonic() - began)}.")
    return 0


def _command(name: str, path: Path) -> list[str]:
    arguments = [f"{key}={value}" for key, value in ARGUMENTS.items()]
    words = ["train", "species", "--env", *arguments, "--welfare", WELFARES[name], "--steps", str(STEPS)]
    return [*words, "--seeds", str(SEEDS), "--jobs", "1", "--checkpoint-seconds", "2", "-o", str(path)]


def _clear(path: Path, welfare_name: str) -> None:
    """Remove what an earlier demo left, and nothing else."""
    if not path.is_symlink() and not path.exists():
        return
    ours = False
    if not path.is_symlink() and (path / "run.json").is_file():
        folder = RunFolder.open(path)
        request, wanted = folder.request, welfare(welfare_name, 2).name
        ours = (request.env, request.arguments, request.welfare) == ("species", ARGUMENTS, wanted)
    if not ours:
        raise InputError(f"{path} is not what an earlier demo left: move it away first.")
    with folder.locked():  # refused while another demo is under way
        pass
    shutil.rmtree(path)


def _train(commands: Mapping[str, list[str]], paths: Mapping[str, Path]) -> None:
    """Both commands at the same time, one for each core, with a bar for each."""
    console = Console(stderr=True)
    columns = TextColumn("{task.description}"), BarColumn(bar_width=30), TaskProgressColumn()
    bar = Progress(*columns, console=console)
    running: dict[str, subprocess.Popen[bytes]] = {}
    logs = {name: path.with_name(f"{name}.log") for name, path in paths.items()}
    try:
        for name, command in commands.items():
            paths[name].parent.mkdir(parents=True, exist_ok=True)
            with logs[name].open("wb") as log:
                program = [sys.executable, "-m", "evenhand.cli", *command]
                running[name] = subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        tasks = {name: bar.add_task(name.upper(), total=STEPS * SEEDS) for name in commands}
        if console.is_terminal:
            bar.start()
        while any(process.poll() is None for process in running.values()):
            time.sleep(0.3)
            for name, path in paths.items():
                if console.is_terminal and (path / "run.json").is_file():
                    done, _ = options.steps_done(RunFolder.open(path))
                    bar.update(tasks[name], completed=done)
            if any(process.returncode for process in running.values()):
                break
    finally:
        if console.is_terminal:
            bar.stop()
        _end(running.values())
    for name, process in running.items():
        if process.returncode:
            last = logs[name].read_text("utf-8", "replace").strip().splitlines()[-1:]
            raise InputError(f"the training of {name} failed: {' '.join(last)} (see {logs[name]}).")


def _end(processes: Iterable[subprocess.Popen[bytes]]) -> None:
    """Wait for those that Ctrl-C has reached too, and stop the others."""
    patience = 20.0 if sys.exc_info()[0] is KeyboardInterrupt else 0.0
    deadline = time.monotonic() + patience
    for process in processes:
        if process.poll() is None:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.terminate()
                process.wait()


def _tell(console: Console, runs: Sequence[Run], commands: Iterable[list[str]]) -> None:
    ggf = welfare("ggf", 2)
    tests = [list(run.tests(lambda _: None).values()) for run in runs]
    objectives, gamma = runs[0].request.objectives, runs[0].request.config.gamma
    lengths = np.concatenate([test.length for of_run in tests for test in of_run])
    parts = [page.paragraph(paragraph) for paragraph in STORY]
    shown = []
    for measure, title, remark in (
        ("discounted", f"Who gets what, near years counting more (discounted, γ = {gamma:g})", _on_fairness),
        ("average", "Who gets what in the long run (average over 3,650 years)", _on_the_long_run),
    ):
        outcomes = [Outcome.of(run.name, of_run, measure) for run, of_run in zip(runs, tests, strict=True)]
        best = reference_of(runs[0].env, ggf, measure, gamma, lengths)
        optimum = None
        if isinstance(best, Reference):
            outcomes.append(Outcome("exact optimum", best.returns[None], "exact"))
            optimum = float(ggf.value(best.returns))
        shown.append(outcomes)
        sheet = report.outcomes_sheet(outcomes, objectives, ggf, optimum=optimum)
        words = remark(outcomes, optimum)
        console.print(title, style="bold")
        console.print(sheet.terminal())
        console.print(words)
        console.print()
        parts += [page.heading(title), page.as_html(sheet), page.paragraph(words)]
    notes = report.table_notes(shown[0], objectives, ggf)
    for note in notes:
        console.print(note, style="dim")
    picture, html = FOLDER / "who-gets-what.png", FOLDER / "index.html"
    curves = [curve for run in runs if (curve := run.curve(run.name)) is not None]
    report.draw_outcomes(shown[0], objectives, picture, measure="(1 − γ) × discounted return", curves=curves)
    parts += [page.heading("The same as a picture"), page.picture(picture, "what each species gets, and how evenly")]
    parts += [page.paragraph(note) for note in notes]
    parts.append(page.heading("To do it again"))
    parts += [page.command("evenhand " + shlex.join(command)) for command in commands]
    html.write_text(page.page(TITLE, parts), "utf-8")
    console.print(f"\nThe picture: {picture}. A page for the browser: {html}. The runs: {FOLDER / 'runs'}.")


def _on_fairness(outcomes: Sequence[Outcome], optimum: float | None) -> str:
    fair, plain = outcomes[0], outcomes[1]
    price = float(metrics.price_of_fairness(plain.mean, fair.mean))
    words = (
        f"The worse-off species gets {fair.mean.min():.2f} under {fair.name} and {plain.mean.min():.2f} under "
        f"{plain.name}, at the price of {price:.1%} of the sum."
    )
    if optimum is None:
        return words
    reached = float(welfare("ggf", 2).value(fair.mean)) / optimum
    return f"{words} {fair.name} reaches {reached:.0%} of the optimum that the exact solver finds for a finite model."


def _on_the_long_run(outcomes: Sequence[Outcome], optimum: float | None) -> str:
    fair, plain, ggf = outcomes[0], outcomes[1], welfare("ggf", 2)
    words = (
        f"The same policies, every year counting the same: now {fair.name} gives one species {fair.mean.max():.2f} and "
        f"the other {fair.mean.min():.2f}. It was trained for discounted returns, in which it makes up for the many "
        "years that the otters need to grow in number by letting them have more later on. Fair in discounted returns "
        "is not fair in the long run."
    )
    if float(ggf.value(plain.mean)) > float(ggf.value(fair.mean)):
        words += f" By this measure {plain.name}, which never tried to be fair, happens to be the fairer of the two."
    return words


if __name__ == "__main__":
    sys.exit(main())
