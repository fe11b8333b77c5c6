"""Comparing methods: study, and reproduce for the paper's own comparisons."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from evenhand import report
from evenhand.cli.shared import (
    FAILED,
    INTERRUPTED,
    NO_HINT,
    Address,
    Assignments,
    Environment,
    ExecutorName,
    Flag,
    OptionalWhole,
    Whole,
    assignments,
    check_positive,
    command_line,
    executor_of,
    optional,
    say,
)
from evenhand.errors import InputError
from evenhand.progress import StudyProgress
from evenhand.report.claims import Claim, Comparison, Higher, Lower
from evenhand.report.study import Study, claims_table
from evenhand.runs.checkpoint import write_atomically
from evenhand.runs.folder import safe_name
from evenhand.runs.pool import Problem
from evenhand.runs.ray_cluster import OnRay
from evenhand.runs.settings import ALGORITHMS, check_name
from evenhand.runs.study import (
    FIRST_SEED,
    Cell,
    Experiment,
    Learner,
    Results,
    Simple,
    Test,
    ThisMachine,
    carry_out,
    cells_of,
    gather,
    missing_of,
    seconds_of,
)
from evenhand.runs.training import CHECKPOINT_SECONDS
from evenhand.terminal import Console

# JAX is imported where it is used: help and refusals should not wait for it.

THEORY = "theory"
Names = Annotated[str, arg(metavar="NAME,...")]
Folder = Annotated[Path | None, optional(Path, "FOLDER"), arg(aliases=["-o"]), NO_HINT]


@dataclass(frozen=True)
class StudyCommand:
    """Compare algorithms and welfares on any environment, with seeds, statistics and a page.

    Every combination is trained with every seed, tested, and compared: is the fair version of each
    algorithm fairer than its base, and at what price? The page has verdicts, figures, and a slider
    for the weights of the GGF; the figures also lie beside it as PNG and PDF.

    For example:
        evenhand study species --env response=strong
        evenhand study my_module:my-env-v0 --algos ppo,a2c --welfare utilitarian,ggf,nash --seeds 10
        evenhand study CartPole-v1 --algos ppo,dqn --steps 5e4 --set ppo.learning_rate=1e-3 --plan

    ENV is one of ours (evenhand list), a name registered with Gymnasium or MO-Gymnasium,
    or module:name, to import the module that registers it first.

    Everything that was done is kept by what it is, so that the same command goes on after Ctrl-C or
    a kill, and one with more seeds or algorithms does only what is new.

    On many machines (docs/cluster.md; pip install 'evenhand[ray]'), into the same folder and with the same numbers:
        evenhand study species --seeds 50 --executor ray --address auto
    """

    env: Environment
    """The environment."""
    algos: Names = "ppo,a2c"
    """Algorithms, separated by commas: ppo, a2c, dqn."""
    welfare: Names = "utilitarian,ggf"
    """Welfares to train for; utilitarian is the plain algorithm. Weights are named one by one, as in ggf:10."""
    seeds: Whole = 5
    """How many. With fewer than 4 nothing is decided."""
    steps: OptionalWhole = None
    """Steps of training for each seed; by default those of the preset."""
    episodes: Whole = 50
    """Test episodes for each seed."""
    measure: Annotated[str | None, optional(str, "NAME"), NO_HINT] = None
    """What counts of them: average, return or discounted, as for evenhand evaluate."""
    changes: Annotated[Assignments, arg(name="set")] = ()
    """Hyperparameters that differ from the preset's: for all algorithms, or for one as in ppo.clip=0.1."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment."""
    training: Assignments = ()
    """Settings of the environment that differ while training."""
    preset: Annotated[str, arg(metavar="NAME")] = "tuned"
    """tuned or paper."""
    output: Folder = None
    """The folder of the study; by default one in studies/."""
    jobs: OptionalWhole = None
    """Processes; by default one for each core."""
    executor: ExecutorName = "local"
    """local: processes of this machine; ray: a Ray cluster."""
    address: Address = None
    """The Ray cluster, or auto for the one that this machine is part of; by default one is started here."""
    checkpoint_seconds: Annotated[float, arg(metavar="SECONDS")] = CHECKPOINT_SECONDS
    """The time between checkpoints: the most that a kill can cost."""
    plan: Flag = False
    """Only show what would be done, and about how long it would take."""


@dataclass(frozen=True)
class Reproduce:
    """Reproduce the paper: its experiments, its figures, and a verdict on each of its claims.

    Without a name, all four parts: species, traffic, datacenter and theory.

    For example:
        evenhand reproduce --plan
        evenhand reproduce species theory
        evenhand reproduce --scale paper -o paper
        evenhand reproduce --scale paper -o paper --executor ray --address auto

    --scale quick fits in about 20 minutes for each part on two cores; --scale paper has 50 seeds for species
    and traffic, 20 for the data centre, and trains as long as the paper: it is meant for a cluster
    (docs/cluster.md; pip install 'evenhand[ray]'), and can be begun here and continued there.

    What was done is kept, so that the same command goes on after Ctrl-C or a kill. Verdicts: holds, does
    not hold, undecided at this scale. The page of each part says how they came about.
    """

    parts: Annotated[Positional[tuple[str, ...]], arg(metavar="[PART ...]")] = ()
    """species, traffic, datacenter, theory."""
    scale: Annotated[str, arg(metavar="NAME")] = "quick"
    """quick or paper."""
    seeds: OptionalWhole = None
    """In place of the scale's."""
    steps: OptionalWhole = None
    """Steps of training for each seed, in place of the scale's."""
    preset: Annotated[str, arg(metavar="NAME")] = "tuned"
    """tuned: our hyperparameters; paper: those of the paper's appendix."""
    output: Annotated[Path, arg(metavar="FOLDER", aliases=["-o"])] = Path("reproduction")
    """Where everything goes, a folder for each part."""
    jobs: OptionalWhole = None
    """Processes; by default one for each core."""
    executor: ExecutorName = "local"
    """local: processes of this machine; ray: a Ray cluster."""
    address: Address = None
    """The Ray cluster, or auto for the one that this machine is part of; by default one is started here."""
    plan: Flag = False
    """Only show what would be done, and about how long it would take."""


# study


def run_study(asked: StudyCommand) -> int:
    """Check everything, show the plan, do what is missing, and write the page."""
    folder = asked.output or Path("studies") / safe_name(asked.env)
    with executor_of(asked.executor, asked.address, asked.jobs, asked.checkpoint_seconds) as executor:
        study = asked_study(asked)
        return _carried_out([(study, folder)], executor, asked.plan, [], command_line("study", asked))


def asked_study(asked: StudyCommand) -> Study:
    """The study that was asked for."""
    for name in ("seeds", "episodes", "steps", "jobs"):
        if getattr(asked, name) is not None:
            check_positive(f"--{name}", getattr(asked, name))
    if not asked.checkpoint_seconds >= 0:
        raise InputError(f"--checkpoint-seconds must not be negative, not {asked.checkpoint_seconds:g}.")
    if asked.measure is not None:
        check_name("measure", asked.measure, report.MEASURES)
    algos, welfares = _listed("--algos", asked.algos), _listed("--welfare", asked.welfare)
    for algo in algos:
        check_name("algorithm", algo, ALGORITHMS)
    changes = _by_algorithm(assignments("--set", asked.changes), algos)
    arguments, training = assignments("--env", asked.arguments), assignments("--training", asked.training)
    from evenhand.envs import resolve
    from evenhand.report.judging import baselines
    from evenhand.welfare import welfare as named_welfare

    env = resolve(asked.env, arguments)
    for welfare in welfares:
        named_welfare(welfare, len(env.objectives))
    if len(env.objectives) == 1:
        welfares = ["utilitarian"]  # of one user all welfares agree
    learners = tuple(
        Learner(_called(algo, welfare), algo, welfare, changes[algo], asked.steps)
        for algo in algos
        for welfare in welfares
    )
    simple = tuple(
        Simple(name, policy if isinstance(policy, str | int | float) else policy.name)
        for name, policy in baselines(env)
    )
    measure = asked.measure or "average"
    if asked.measure is None:
        measure = _natural(env, simple[0].policy)
    test = Test("test", measure, asked.episodes, {}, report.MEASURES[measure])
    experiment = Experiment(
        safe_name(asked.env),
        asked.env,
        asked.env,
        learners,
        simple,
        (test,),
        tuple(range(FIRST_SEED, FIRST_SEED + asked.seeds)),
        arguments,
        training,
        asked.preset,
        exact=asked.env == "species",
    )
    return Study(
        experiment.key,
        f"A study of {asked.env}",
        f"{', '.join(algo.upper() for algo in algos)} for the welfares {', '.join(welfares)}.",
        (experiment,),
        _own_claims(experiment, (f"{experiment.key}/test",)),
        (2,),
    )


def _natural(env: Any, policy: Any) -> str:
    """What counts where nobody says: sums where episodes end by themselves, else rewards per step."""
    from evenhand.judge import evaluate_policy

    return evaluate_policy(env, policy, 2, seed=FIRST_SEED - 1).natural_measure


def _own_claims(experiment: Experiment, settings: tuple[str, ...]) -> tuple[Claim, ...]:
    """What one would like to know about every fair algorithm and its base."""
    bases = {learner.algo: learner.name for learner in experiment.learners if learner.welfare == "utilitarian"}
    fair = [x for x in experiment.learners if x.welfare != "utilitarian" and x.algo in bases]
    if not fair:
        return ()
    pairs = [(learner, bases[learner.algo]) for learner in fair]
    texts: dict[str, tuple[Comparison, ...]] = {
        "Each fair algorithm has a higher welfare, of the kind it was trained for, than its base": tuple(
            Higher(x.name, base, x.welfare) for x, base in pairs
        ),
        "Each fair algorithm has a lower CV than its base": tuple(Lower(x.name, base, "cv") for x, base in pairs),
        "Each fair algorithm leaves its worst-off user more than its base": tuple(
            Higher(x.name, base, "minimum") for x, base in pairs
        ),
        "Each base has a higher average than its fair versions": tuple(
            Higher(base, x.name, "average") for x, base in pairs
        ),
    }
    return tuple(Claim(text, parts, "asked of every study", settings) for text, parts in texts.items())


def _called(algo: str, welfare: str) -> str:
    return algo.upper() if welfare == "utilitarian" else f"{welfare.upper().replace(':', '')}-{algo.upper()}"


def _listed(option: str, text: str) -> list[str]:
    """Names separated by commas; numbers after a comma belong to the name before, as in ggf:0.5,0.3,0.2."""
    names: list[str] = []
    for word in (part.strip() for part in text.split(",")):
        if names and ":" in names[-1] and word.replace(".", "").isdigit():
            names[-1] += f",{word}"
        elif word:
            names.append(word)
    if not names or len(set(names)) < len(names):
        raise InputError(f"{option} takes different names separated by commas, not {text!r}.")
    return names


def _by_algorithm(changes: dict[str, Any], algos: Sequence[str]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {algo: {} for algo in algos}
    for name, value in changes.items():
        algo, dot, setting = name.partition(".")
        if dot:
            check_name("algorithm of this study", algo, algos)
            found[algo][setting] = value
        else:
            for settings in found.values():
                settings[name] = value
    return found


# reproduce


def run_reproduce(asked: Reproduce) -> int:
    """Do the parts one after another."""
    from evenhand.papers import PLANS, SCALES, plan

    parts = asked.parts or (*PLANS, THEORY)
    for part in parts:
        check_name("part of the paper", part, (*PLANS, THEORY))
    check_name("scale", asked.scale, SCALES)
    for name in ("seeds", "steps", "jobs"):
        if getattr(asked, name) is not None:
            check_positive(f"--{name}", getattr(asked, name))
    other = [f"{name} = {getattr(asked, name):,}" for name in ("seeds", "steps") if getattr(asked, name) is not None]
    notes = [f"Scale: {asked.scale}{', but with ' if other else ''}{' and '.join(other)}."]
    line = command_line("reproduce", asked)
    learnt, code = [part for part in parts if part != THEORY], 0
    if learnt:
        with executor_of(asked.executor, asked.address, asked.jobs) as executor:
            studies = [
                (plan(part, asked.scale, asked.seeds, asked.steps, asked.preset), asked.output / part)
                for part in learnt
            ]
            code = _carried_out(studies, executor, asked.plan, notes, line)
    if code or asked.plan:
        return code
    if THEORY in parts:
        _theory(asked.output / THEORY)
    _overview(asked.output)
    return 0


def _theory(folder: Path) -> None:
    from evenhand.papers import theory
    from evenhand.report.publishing import publish_facts

    computed = theory.compute(say)
    found = publish_facts(
        theory.STUDY, {theory.SETTING: computed.facts}, theory.figures(computed), folder, "evenhand reproduce theory"
    )
    _show(theory.STUDY, found, folder)


def _overview(root: Path) -> None:
    from evenhand.papers import PLANS
    from evenhand.report.publishing import PAGE, overview

    write_atomically(root / PAGE, overview(root, (*PLANS, THEORY)).encode())
    print(f"All parts: {root / PAGE}")


# What both do


def _carried_out(
    studies: Sequence[tuple[Study, Path]],
    executor: ThisMachine | OnRay,
    only_plan: bool,
    notes: Sequence[str],
    line: str,
) -> int:
    """Plan, do and publish studies, one after another. line: the command that does it again."""
    planned = [(study, folder, [cell for e in study.experiments for cell in cells_of(e)]) for study, folder in studies]
    for study, folder, cells in planned:
        for said in _plan(study, cells, folder, executor):
            print(said, flush=True)
    if only_plan:
        return 0
    code = 0
    for study, folder, cells in planned:
        try:
            failures = _watched(cells, folder, executor)
        except KeyboardInterrupt:
            done = sum(cell.complete(folder) for cell in cells)
            print(
                f"evenhand: stopped with {done} of {len(cells)} cells done; the same command goes on.", file=sys.stderr
            )
            return INTERRUPTED
        for number, (cell, problem) in enumerate(failures):
            # What an environment of theirs does wrong is shown line by line once, not for every seed.
            said = problem.said.partition("\n")[0] if number and problem.of_environment else problem.said
            print(f"evenhand: {cell.experiment}, {cell.name} failed: {said}", file=sys.stderr)
            code = FAILED
        results: list[Results] = [gather(experiment, cells, folder) for experiment in study.experiments]
        from evenhand.report.publishing import publish

        found = publish(study, results, folder, line, notes, say)
        _show(study, found, folder)
    return code


def _watched(cells: Sequence[Cell], folder: Path, executor: ThisMachine | OnRay) -> list[tuple[Cell, Problem]]:
    """Do the cells, with a live table of how far they have come."""
    several = len({cell.experiment for cell in cells}) > 1

    def called(cell: Cell) -> str:
        return f"{cell.experiment}: {cell.method}" if several else cell.method

    counts: dict[str, tuple[int, int]] = {}
    for cell in cells:
        done, of = counts.get(called(cell), (0, 0))
        counts[called(cell)] = (done + cell.complete(folder), of + 1)
    steps = sum(cell.steps for cell in missing_of(cells, folder))
    with StudyProgress(counts, steps) as table:
        return carry_out(
            cells,
            folder,
            executor,
            lambda content: table.update(called(content["cell"]), f"seed {content['cell'].seed}", content),
            table.say,
        )


def _plan(study: Study, cells: Sequence[Cell], folder: Path, executor: ThisMachine | OnRay) -> list[str]:
    """What will be done, in a few lines."""
    missing, jobs = missing_of(cells, folder), executor.processes
    learning = [cell for cell in cells if cell.learns]
    said = [f"{study.title}:"]
    for experiment in study.experiments:
        of = [cell for cell in cells if cell.experiment == experiment.key]
        names = [learner.name for learner in experiment.learners]
        steps = sorted({cell.steps for cell in of if cell.learns})
        said.append(
            f"  {experiment.title}: {', '.join(names)}; {len(experiment.seeds)} seeds; "
            f"{' to '.join(f'{n:,}' for n in ([steps[0], steps[-1]] if len(steps) > 1 else steps))} steps each"
        )
        said.append(f"    beside {', '.join(simple.name for simple in experiment.simple)}")
    said.append(
        f"  {len(cells)} cells ({len(learning)} to train), {len(cells) - len(missing)} done already; in {folder}"
    )
    if missing:
        seconds = seconds_of(cells, missing, folder) / min(jobs, len(missing))
        said.append(f"  about {report.duration(seconds)} in {jobs} {'process' if jobs == 1 else 'processes'}")
    return said


def _show(study: Study, found: Any, folder: Path) -> None:
    from evenhand.report.publishing import CLAIMS, PAGE, RECORD

    console = Console(highlight=False, markup=False)
    if study.claims:
        console.print(f"\n{study.title}: claims and verdicts", style="bold")
        console.print(claims_table(study.claims, found))
    console.print(
        f"Page: {folder / PAGE}; figures in {folder / 'figures'}; what was seen in {folder / CLAIMS}; "
        f"all numbers in {folder / RECORD}.",
        soft_wrap=True,
    )
