"""doctor: what this machine can run, by trying it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

from rich.text import Text
from tyro.conf import Positional, arg

from evenhand.cli import options, output
from evenhand.cli.check_env import MARKS
from evenhand.envs.check.findings import Finding, Severity
from evenhand.envs.traffic.installation import check_installed
from evenhand.errors import InputError
from evenhand.runs.hyperparameters import check_name
from evenhand.runs.pool import cores

# JAX is imported where it is used: help and refusals should not wait for it.

PATIENCE = 60
"""Seconds that a trial may take."""
Judgement = tuple[Severity, str]
"""How bad it is, and why."""


@dataclass(frozen=True)
class Doctor:
    """Say what this machine can run, by trying it, and what to do where it cannot.

    It tries these:
        learning  JAX, with which everything is trained
        sumo      the simulator of the traffic lights: a junction is simulated for a moment
        emulated  the data centre's network on real queues: a small one is made and used
        mo        the environments of MO-Gymnasium
        ray       studies on several machines: a cluster of this one is started, and something is done on it
        chromium  a browser for pages of results; any other will do

    The exit code is 0; with names it is 1 if one of them cannot be run.

    For example:
        evenhand doctor
        evenhand doctor emulated
    """

    what: Annotated[Positional[tuple[str, ...]], arg(metavar="[NAME ...]"), options.NO_HINT] = ()
    """What to try; by default everything."""
    json: options.Json = False


def run_doctor(args: Doctor) -> int:
    """Try everything that is asked for."""
    for name in args.what:
        check_name("part", name, list(TRIALS))
    findings = {name: _finding(*TRIALS[name]) for name in args.what or TRIALS}
    if args.json:
        output.print_json({name: asdict(finding) for name, finding in findings.items()})
    else:
        console = output.plain_console()
        for finding in findings.values():
            mark, style = MARKS[finding.severity]
            console.print(Text.assemble((f"{mark} {finding.title}: ", style), finding.explanation))
    failed = bool(args.what) and any(finding.severity != "fine" for finding in findings.values())
    return output.FAILED if failed else 0


def _finding(title: str, trial: Callable[[], Judgement]) -> Finding:
    severity, explanation = trial()
    return Finding(severity, title, explanation)


def _learning() -> Judgement:
    ran, words = _try("import jax; print(jax.jit(lambda x: x + 1)(1), jax.__version__, jax.devices()[0])")
    if not ran:
        return "error", f"JAX cannot compile: {words} Try pip install --force-reinstall jax."
    _, version, device = words.split(maxsplit=2)
    processors = "one processor" if cores() == 1 else f"{cores()} processors"
    return "fine", f"JAX {version} compiles for {device}; {processors} can be used."


SUMO = """
from evenhand.envs.traffic.env import TrafficEnv
from evenhand.envs.traffic.installation import version
env = TrafficEnv(episode_seconds=28, warm_up=0)
env.reset(seed=0)
env.step(0)
env.close()
print(version())
"""


def _sumo() -> Judgement:
    try:
        check_installed()
    except InputError as error:
        return "warning", str(error)
    ran, words = _try(SUMO)
    if not ran:
        remedy = "Try pip install --force-reinstall eclipse-sumo libsumo."
        return "error", f"SUMO is installed but does not run: {words} {remedy}"
    return "fine", f"SUMO {words} simulates a junction."


def _emulated() -> Judgement:
    from evenhand.envs.datacenter.network import NetworkFailed, trial
    from evenhand.envs.datacenter.trust import DOUBTFUL, STILL, reasons

    try:
        share, still = trial()
    except (InputError, NetworkFailed) as error:
        return "error", str(error)
    if share < 0.5:
        return "error", "a small network was made, but hardly anything arrives in it: a firewall?"
    without = " without root" if os.geteuid() else ""
    pace = " With one processor it will often be late." if cores() < 2 else ""
    if why := reasons({STILL: still}):
        pace += f" What is seen on it now is {DOUBTFUL}: {why[0]}, because the machine has too much else to do."
    made = f"a small one was made{without}, and packets arrived at {share:.0%} of the rate that was set."
    return "warning" if pace else "fine", made + pace


def _mo() -> Judgement:
    if importlib.util.find_spec("mo_gymnasium") is None:
        return "warning", "not installed; pip install 'evenhand[mo]' brings its environments."
    ran, words = _try("import mo_gymnasium")
    if not ran:
        return "error", f"mo-gymnasium is installed but cannot be imported: {words}"
    return "fine", f"mo-gymnasium {importlib.metadata.version('mo-gymnasium')} is installed."


RAY = """
from evenhand.studies.ray_cluster import connected
def double(number):
    return 2 * number
with connected(None, 1):
    import ray
    assert ray.get(ray.remote(double).remote(21)) == 42
    print(ray.__version__)
"""


def _ray() -> Judgement:
    if importlib.util.find_spec("ray") is None:
        return "warning", "not installed; pip install 'evenhand[ray]' lets studies use many machines."
    ran, words = _try(RAY)
    if not ran:
        return "error", f"it is installed but does not start: {words}"
    return "fine", f"Ray {words.split()[-1]} starts, and does what it is asked to."


def _chromium() -> Judgement:
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            tried = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False)
            if not tried.returncode:
                return "fine", f"{tried.stdout.strip()} can show pages of results."
    return "warning", "not installed; pages of results can be opened with any other browser."


TRIALS: Mapping[str, tuple[str, Callable[[], Judgement]]] = {
    "learning": ("Learning", _learning),
    "sumo": ("Traffic lights", _sumo),
    "emulated": ("Emulated network", _emulated),
    "mo": ("MO-Gymnasium", _mo),
    "ray": ("Ray", _ray),
    "chromium": ("Chromium", _chromium),
}


def _try(script: str) -> tuple[bool, str]:
    """Whether a script runs in another process, which may crash without ending this one; its output or last words."""
    command = [sys.executable, "-W", "ignore", "-c", script]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return False, f"no answer within {PATIENCE} s."
    if not tried.returncode:
        return True, tried.stdout.strip()
    lines = tried.stderr.strip().splitlines()
    return False, lines[-1] if lines else f"it ended with the code {tried.returncode}."
