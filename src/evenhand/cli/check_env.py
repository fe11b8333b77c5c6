"""check-env: what is wrong with an environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.text import Text

from evenhand.cli import options, output
from evenhand.envs.check.findings import Finding

# JAX is imported where it is used: help and refusals should not wait for it.

MARKS = {"error": ("✗", "bold red"), "warning": ("!", "yellow"), "fine": ("✓", "green")}


@dataclass(frozen=True)
class CheckEnv:
    """Try an environment out, and say in plain words what is wrong with it.

    The exit code is 1 if something would stop training, and 0 otherwise.

    For example:
        evenhand check-env CartPole-v1
        evenhand check-env my_package:MyEnv-v0 --env size=5
    """

    env: options.Environment
    """The environment, as for evenhand train."""
    arguments: options.EnvArguments = ()
    """Settings of the environment."""
    json: options.Json = False


def run_check_env(args: CheckEnv) -> int:
    """Print what was found, the worst first."""
    arguments = options.assignments("--env", args.arguments)
    from evenhand.envs.check.check_host import check_env

    findings = check_env(args.env, arguments)
    if args.json:
        output.print_json({"environment": args.env, "findings": [asdict(finding) for finding in findings]})
    else:
        _show(args.env, findings)
    return output.FAILED if any(finding.severity == "error" for finding in findings) else 0


def _show(env: str, findings: Sequence[Finding]) -> None:
    console = output.plain_console()
    for finding in findings:
        mark, style = MARKS[finding.severity]
        console.print(Text.assemble((f"{mark} {finding.title}", style)))
        console.print(Text(finding.explanation), soft_wrap=False, style="")
        console.print()
    counts = {name: sum(finding.severity == name for finding in findings) for name in MARKS}
    if counts["error"]:
        console.print(f"{counts['error']} of these must be put right before evenhand can train on {env}.")
    else:
        warnings = "the warning" if counts["warning"] == 1 else f"the {counts['warning']} warnings"
        console.print(f"evenhand can train on {env}{f', but think about {warnings}' if counts['warning'] else ''}.")
