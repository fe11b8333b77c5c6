"""export: what was learnt, for use elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from evenhand.cli import options, output


@dataclass(frozen=True)
class Export(options.OfRun):
    """Write a trained policy into one safetensors file, which NumPy alone can run.

    For example:
        evenhand export runs/fair policy.safetensors

    docs/deploy.md has the twenty lines that run it, without evenhand and without JAX.
    """

    run: options.RunPath
    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """Where to write it; a file that is there is replaced."""
    policy_seed: options.PolicySeed = None
    """Of several seeds, whose policy to take; by default the first."""


def run_export(args: Export) -> int:
    """Check, write, and say what it was."""
    run = options.open_run(args, args.run)
    output.check_output(args.file)
    run.export(args.file, args.policy_seed)
    seed = run.seeds[0] if args.policy_seed is None else args.policy_seed
    print(f"Wrote {args.file}: {run.name} for {run.request.name}, seed {seed}.")
    return 0
