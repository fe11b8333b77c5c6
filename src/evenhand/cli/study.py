"""study: methods compared on any environment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg

from evenhand import report
from evenhand.agents.algorithm import names
from evenhand.cli import options, output
from evenhand.envs import resolve
from evenhand.errors import InputError
from evenhand.evaluation.result import MEASURES
from evenhand.progress import StudyProgress
from evenhand.report.publishing import CLAIMS, PAGE, RECORD, publish
from evenhand.report.verdicts import claims_table
from evenhand.runs.folder import safe_name
from evenhand.runs.hyperparameters import check_name
from evenhand.runs.request import method_name
from evenhand.runs.trainer import CHECKPOINT_SECONDS
from evenhand.studies.cells import Cell, cells_of, missing_of
from evenhand.studies.claims import Claim, Comparison, Higher, Judged, Lower
from evenhand.studies.cost import seconds_of
from evenhand.studies.executor import Executor, Failures, carry_out
from evenhand.studies.experiment import FIRST_SEED, Experiment, Learner, Simple, Study, Test
from evenhand.studies.results import gather
from evenhand.welfare import welfare as named_welfare

# JAX is imported where it is used: help and refusals should not wait for it.

Names = Annotated[str, arg(metavar="NAME,...")]


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
    or module:name, to import a module first that registers it, or an algorithm, network or executor
    of your own (docs/extending.md).

    Everything that was done is kept by what it is, so that the same command goes on after Ctrl-C or
    a kill, and one with more seeds or algorithms does only what is new.

    On many machines (docs/cluster.md; pip install 'evenhand[ray]'), into the same folder and with the same numbers:
        evenhand study species --seeds 50 --executor ray --address auto
    """

    env: options.Environment
    """The environment."""
    algos: Names = "ppo,a2c"
    """Algorithms, separated by commas: ppo, a2c, dqn."""
    welfare: Names = "utilitarian,ggf"
    """Welfares to train for; utilitarian is the plain algorithm. Weights are named one by one, as in ggf:10."""
    seeds: options.Whole = 5
    """How many. With fewer than 4 nothing is decided."""
    steps: options.OptionalWhole = None
    """Steps of training for each seed; by default those of the preset."""
    episodes: options.Whole = 50
    """Test episodes for each seed."""
    measure: options.OptionalName = None
    """What counts of them: average, return or discounted, as for evenhand evaluate."""
    changes: options.Changes = ()
    """Hyperparameters that differ from the preset's: for all algorithms, or for one as in ppo.clip=0.1."""
    arguments: options.EnvArguments = ()
    """Settings of the environment."""
    training: options.Assignments = ()
    """Settings of the environment that differ while training."""
    preset: options.Name = "tuned"
    """tuned or paper."""
    output: options.NewFolder = None
    """The folder of the study; by default one in studies/."""
    jobs: options.Processes = None
    executor: options.Name = "local"
    """local: processes of this machine; ray: a Ray cluster."""
    address: options.Address = None
    checkpoint_seconds: options.CheckpointSeconds = CHECKPOINT_SECONDS
    plan: options.Plan = False


def run_study(args: StudyCommand) -> int:
    """Check everything, show the plan, do what is missing, and write the page."""
    folder = args.output or Path("studies") / safe_name(args.env)
    with options.executor_of(args, args.checkpoint_seconds) as executor:
        return carry_out_studies([(_study(args), folder)], executor, args.plan, [], options.command_line("study", args))


def _study(args: StudyCommand) -> Study:
    """The study that was asked for."""
    options.check_positive(args, "seeds", "episodes", "steps", "jobs")
    options.check_not_negative(args, "checkpoint_seconds")
    options.check_measure(args.measure)
    algos, welfares = _names("--algos", args.algos), _names("--welfare", args.welfare)
    for algo in algos:
        check_name("algorithm", algo, names())
    changes = _by_algorithm(options.assignments("--set", args.changes), algos)
    arguments, training = options.assignments("--env", args.arguments), options.assignments("--training", args.training)
    from evenhand.evaluation.policy import baselines

    env = resolve(args.env, arguments)
    for welfare in welfares:
        named_welfare(welfare, len(env.objectives))
    if len(env.objectives) == 1:
        welfares = ["utilitarian"]  # of one user all welfares agree
    learners = tuple(
        Learner(name=method_name(algo, welfare), algo=algo, welfare=welfare, settings=changes[algo], steps=args.steps)
        for algo in algos
        for welfare in welfares
    )
    simple = tuple(
        Simple(name=name, policy=policy if isinstance(policy, str | int | float) else policy.name)
        for name, policy in baselines(env)
    )
    measure = args.measure or _natural_measure(env, simple[0].policy)
    test = Test(name="test", measure=measure, episodes=args.episodes, arguments={}, about=MEASURES[measure])
    experiment = Experiment(
        key=safe_name(args.env),
        title=args.env,
        env=args.env,
        learners=learners,
        simple=simple,
        tests=(test,),
        seeds=tuple(range(FIRST_SEED, FIRST_SEED + args.seeds)),
        arguments=arguments,
        training=training,
        preset=args.preset,
    )
    return Study(
        key=experiment.key,
        title=f"A study of {args.env}",
        about=f"{', '.join(algo.upper() for algo in algos)} for the welfares {', '.join(welfares)}.",
        experiments=(experiment,),
        claims=_own_claims(experiment, (f"{experiment.key}/test",)),
        ratios=(2,),
    )


def _natural_measure(env: Any, policy: Any) -> str:
    """What counts where nobody says: sums where episodes end by themselves, else rewards per step."""
    from evenhand.evaluation.playing import evaluate_policy

    return evaluate_policy(env, policy, 2, seed=FIRST_SEED - 1).natural_measure


def _own_claims(experiment: Experiment, settings: tuple[str, ...]) -> tuple[Claim, ...]:
    """What one would like to know about every fair algorithm and its base."""
    bases = {learner.algo: learner.name for learner in experiment.learners if learner.welfare == "utilitarian"}
    pairs = [(x, bases[x.algo]) for x in experiment.learners if x.welfare != "utilitarian" and x.algo in bases]
    comparisons: dict[str, list[Comparison]] = {
        "Each fair algorithm has a higher welfare, of the kind it was trained for, than its base": [
            Higher(fair.name, base, fair.welfare) for fair, base in pairs
        ],
        "Each fair algorithm has a lower CV than its base": [Lower(fair.name, base, "cv") for fair, base in pairs],
        "Each fair algorithm leaves its worst-off user more than its base": [
            Higher(fair.name, base, "minimum") for fair, base in pairs
        ],
        "Each base has a higher average than its fair versions": [
            Higher(base, fair.name, "average") for fair, base in pairs
        ],
    }
    return tuple(
        Claim(text=text, parts=tuple(parts), source="asked of every study", settings=settings)
        for text, parts in comparisons.items()
        if parts
    )


def _names(option: str, text: str) -> list[str]:
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
    """Settings by algorithm, from those for all of them and those for one."""
    by_algorithm: dict[str, dict[str, Any]] = {algo: {} for algo in algos}
    for name, value in changes.items():
        algo, dot, setting = name.partition(".")
        if dot:
            check_name("algorithm of this study", algo, algos)
            by_algorithm[algo][setting] = value
        else:
            for settings in by_algorithm.values():
                settings[name] = value
    return by_algorithm


def carry_out_studies(
    studies: Sequence[tuple[Study, Path]], executor: Executor, only_plan: bool, notes: Sequence[str], command: str
) -> int:
    """Plan, do and publish studies, one after another. command: the one that does it again."""
    planned = [(study, folder, [cell for e in study.experiments for cell in cells_of(e)]) for study, folder in studies]
    for study, folder, cells in planned:
        print(*_plan(study, cells, folder, executor), sep="\n", flush=True)
    if only_plan:
        return 0
    code = 0
    for study, folder, cells in planned:
        try:
            failures = _watched(cells, folder, executor)
        except KeyboardInterrupt:
            done = sum(cell.complete(folder) for cell in cells)
            output.warn(f"stopped with {done} of {len(cells)} cells done; the same command goes on.")
            return output.INTERRUPTED
        for number, (cell, problem) in enumerate(failures):
            # What an environment of theirs does wrong is shown line by line once, not for every seed.
            why = problem.said.partition("\n")[0] if number and problem.of_environment else problem.said
            output.warn(f"{cell.experiment}, {cell.name} failed: {why}")
            code = output.FAILED
        results = [gather(experiment, cells, folder) for experiment in study.experiments]
        show_verdicts(study, publish(study, results, folder, command, notes, output.say), folder)
    return code


def _watched(cells: Sequence[Cell], folder: Path, executor: Executor) -> Failures:
    """Do the cells, with a live table of how far they have come."""
    several = len({cell.experiment for cell in cells}) > 1

    def called(cell: Cell) -> str:
        return f"{cell.experiment}: {cell.method}" if several else cell.method

    done = Counter(called(cell) for cell in cells if cell.complete(folder))
    counts = {method: (done[method], total) for method, total in Counter(map(called, cells)).items()}
    steps = sum(cell.steps for cell in missing_of(cells, folder))
    with StudyProgress(counts, steps) as table:

        def report_cell(content: Mapping[str, Any]) -> None:
            cell = content["cell"]
            table.update(called(cell), f"seed {cell.seed}", content)

        return carry_out(cells, folder, executor, report_cell, table.say)


def _plan(study: Study, cells: Sequence[Cell], folder: Path, executor: Executor) -> list[str]:
    """What will be done, in a few lines."""
    missing, jobs = missing_of(cells, folder), executor.processes
    learning = sum(cell.learns for cell in cells)
    lines = [f"{study.title}:"]
    for experiment in study.experiments:
        names = [learner.name for learner in experiment.learners]
        steps = sorted({cell.steps for cell in cells if cell.experiment == experiment.key and cell.learns})
        lines.append(
            f"  {experiment.title}: {', '.join(names)}; {len(experiment.seeds)} seeds; "
            f"{' to '.join(f'{n:,}' for n in ([steps[0], steps[-1]] if len(steps) > 1 else steps))} steps each"
        )
        lines.append(f"    beside {', '.join(simple.name for simple in experiment.simple)}")
    lines.append(f"  {len(cells)} cells ({learning} to train), {len(cells) - len(missing)} done already; in {folder}")
    if old := sum(cell.superseded(folder) for cell in missing):
        lines.append(f"  {old} cells that earlier revisions of their algorithm or environment did are done again")
    if missing:
        seconds = seconds_of(cells, missing, folder) / min(jobs, len(missing))
        lines.append(f"  about {report.duration(seconds)} in {jobs} {'process' if jobs == 1 else 'processes'}")
    return lines


def show_verdicts(study: Study, judged: Sequence[Mapping[str, Judged]], folder: Path) -> None:
    """Print how each claim was judged, and where everything lies."""
    console = output.plain_console()
    if study.claims:
        console.print(f"\n{study.title}: claims and verdicts", style="bold")
        console.print(claims_table(study.claims, judged))
    console.print(
        f"Page: {folder / PAGE}; figures in {folder / 'figures'}; what was seen in {folder / CLAIMS}; "
        f"all numbers in {folder / RECORD}.",
        soft_wrap=True,
    )
