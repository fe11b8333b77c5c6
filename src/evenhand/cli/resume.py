"""resume: go on where a run was interrupted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from tyro.conf import arg

from evenhand.cli import options
from evenhand.cli.train import check_stepped, go_on, starting


@dataclass(frozen=True)
class Resume(options.OfRun):
    """Go on with a run that was interrupted.

    The numbers will be those of a run that was never stopped; one that is finished is left as it is.

    For example:
        evenhand resume runs/fair
    """

    run: options.RunPath
    jobs: options.SeedsAtOnce = None
    executor: options.Name = "local"
    """Where environments are stepped, as for train."""
    address: Annotated[options.Address, arg(help="The Ray cluster, as for train.")] = None
    step_timeout: options.StepTimeout = None
    """Seconds that a step may take, as for train."""
    json: options.Json = False


def run_resume(args: Resume) -> int:
    """Train what is left."""
    options.check_positive(args, "jobs")
    with starting(args) as start:
        run = options.open_run(args, args.run)
        if start is not None:
            check_stepped(run.request.name, run.training_env)
        if all(run.complete(seed) for seed in run.seeds):
            print(f"{args.run} is finished: nothing is left to do.")
        return go_on(run, args.json, jobs=args.jobs, start=start)
