"""Taking what was learnt elsewhere: export."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from evenhand.cli.shared import NO_HINT, OfRun, RunPath, check_output, opened, optional


@dataclass(frozen=True)
class Export(OfRun):
    """Write a trained policy into one safetensors file, which NumPy alone can run.

    For example:
        evenhand export runs/fair policy.safetensors

    docs/deploy.md has the twenty lines that run it, without evenhand and without JAX.
    """

    run: RunPath
    """The folder of the run."""
    file: Annotated[Positional[Path], arg(metavar="FILE")]
    """Where to write it; a file that is there is replaced."""
    policy_seed: Annotated[int | None, optional(int, "S"), NO_HINT] = None
    """Of several seeds, whose policy to take; by default the first."""


def run_export(asked: Export) -> int:
    """Check, write, and say what it was."""
    run = opened(asked, asked.run)
    check_output(asked.file)
    run.export(asked.file, asked.policy_seed)
    seed = run.seeds[0] if asked.policy_seed is None else asked.policy_seed
    print(f"Wrote {asked.file}: {run.name} for {run.request.name}, seed {seed}.")
    return 0
