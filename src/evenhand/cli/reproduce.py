"""reproduce: the paper's own comparisons."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from evenhand.cli import options, output
from evenhand.cli.study import carry_out_studies, show_verdicts
from evenhand.disk import write_atomically
from evenhand.papers import PLANS, SCALES, plan, theory
from evenhand.report.publishing import PAGE, overview, publish_facts
from evenhand.runs.hyperparameters import check_name

THEORY = "theory"
PARTS = (*PLANS, THEORY)


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
    scale: options.Name = "quick"
    """quick or paper."""
    seeds: options.OptionalWhole = None
    """In place of the scale's."""
    steps: options.OptionalWhole = None
    """Steps of training for each seed, in place of the scale's."""
    preset: options.Preset = "tuned"
    output: Annotated[Path, arg(metavar="FOLDER", aliases=["-o"])] = Path("reproduction")
    """Where everything goes, a folder for each part."""
    jobs: options.Processes = None
    executor: options.Name = "local"
    """local: processes of this machine; ray: a Ray cluster."""
    address: options.Address = None
    plan: options.Plan = False


def run_reproduce(args: Reproduce) -> int:
    """Do the parts one after another."""
    parts = args.parts or PARTS
    for part in parts:
        check_name("part of the paper", part, PARTS)
    check_name("scale", args.scale, SCALES)
    options.check_positive(args, "seeds", "steps", "jobs")
    other = [f"{name} = {getattr(args, name):,}" for name in ("seeds", "steps") if getattr(args, name) is not None]
    notes = [f"Scale: {args.scale}{', but with ' if other else ''}{' and '.join(other)}."]
    command = options.command_line("reproduce", args)
    learnt, code = [part for part in parts if part != THEORY], 0
    if learnt:
        with options.executor_of(args) as executor:
            plans = [plan(part, args.scale, args.seeds, args.steps, args.preset) for part in learnt]
            studies = [(study, args.output / part) for part, study in zip(learnt, plans, strict=True)]
            code = carry_out_studies(studies, executor, args.plan, notes, command)
    if code or args.plan:
        return code
    if THEORY in parts:
        _theory(args.output / THEORY)
    page = args.output / PAGE
    write_atomically(page, overview(args.output, PARTS).encode())
    print(f"All parts: {page}")
    return 0


def _theory(folder: Path) -> None:
    computed = theory.compute(output.say)
    facts, figures = {theory.SETTING: computed.facts}, theory.figures(computed)
    judged = publish_facts(theory.STUDY, facts, figures, folder, "evenhand reproduce theory")
    show_verdicts(theory.STUDY, judged, folder)
