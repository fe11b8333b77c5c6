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

from evenhand.cli.about import MARKS
from evenhand.cli.shared import FAILED, NO_HINT, Flag, print_json
from evenhand.envs.findings import Finding
from evenhand.errors import InputError
from evenhand.runs.settings import check_name
from evenhand.terminal import Console

PATIENCE = 60
"""Seconds that a trial may take."""


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

    what: Annotated[Positional[tuple[str, ...]], arg(metavar="[NAME ...]"), NO_HINT] = ()
    """What to try; by default everything."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


def run_doctor(asked: Doctor) -> int:
    """Try everything that is asked for."""
    for name in asked.what:
        check_name("part", name, list(TRIALS))
    found = {name: TRIALS[name]() for name in asked.what or TRIALS}
    failed = bool(asked.what) and any(finding.severity != "fine" for finding in found.values())
    if asked.json:
        print_json({name: asdict(finding) for name, finding in found.items()})
        return FAILED if failed else 0
    console = Console(highlight=False, markup=False)
    for finding in found.values():
        mark, style = MARKS[finding.severity]
        console.print(Text.assemble((f"{mark} {finding.title}: ", style), finding.explanation))
    return FAILED if failed else 0


# Trials


def _learning() -> Finding:
    title = "Learning"
    tried = _python("import jax; print(jax.jit(lambda x: x + 1)(1), jax.__version__, jax.devices()[0])")
    if tried.returncode:
        return Finding("error", title, f"JAX cannot compile: {_last(tried)} Try pip install --force-reinstall jax.")
    _, version, device = tried.stdout.split(maxsplit=2)
    return Finding("fine", title, f"JAX {version} compiles for {device.strip()}; {_processors()} can be used.")


SUMO = """
from evenhand.envs.traffic.env import TrafficEnv
from evenhand.envs.traffic.installation import version
env = TrafficEnv(episode_seconds=28, warm_up=0)
env.reset(seed=0)
env.step(0)
env.close()
print(version())
"""


def _sumo() -> Finding:
    title = "Traffic lights"
    from evenhand.envs.traffic.installation import check_installed

    try:
        check_installed()
    except InputError as error:
        return Finding("warning", title, str(error))
    tried = _python(SUMO)
    if tried.returncode:
        remedy = "Try pip install --force-reinstall eclipse-sumo libsumo."
        return Finding("error", title, f"SUMO is installed but does not run: {_last(tried)} {remedy}")
    return Finding("fine", title, f"SUMO {tried.stdout.strip()} simulates a junction.")


def _emulated() -> Finding:
    title = "Emulated network"
    from evenhand.envs.datacenter.network import NetworkFailed, trial
    from evenhand.envs.datacenter.trust import DOUBTFUL, STILL, reasons

    try:
        share, still = trial()
    except (InputError, NetworkFailed) as error:
        return Finding("error", title, str(error))
    if share < 0.5:
        return Finding("error", title, "a small network was made, but hardly anything arrives in it: a firewall?")
    few = _count() < 2
    without = " without root" if os.geteuid() else ""
    pace = " With one processor it will often be late." if few else ""
    if why := reasons({STILL: still}):
        pace += f" What is seen on it now is {DOUBTFUL}: {why[0]}, because the machine has too much else to do."
    return Finding(
        "warning" if pace else "fine",
        title,
        f"a small one was made{without}, and packets arrived at {share:.0%} of the rate that was set.{pace}",
    )


def _mo() -> Finding:
    title, package = "MO-Gymnasium", "mo-gymnasium"
    if importlib.util.find_spec("mo_gymnasium") is None:
        return Finding("warning", title, "not installed; pip install 'evenhand[mo]' brings its environments.")
    tried = _python("import mo_gymnasium")
    if tried.returncode:
        return Finding("error", title, f"{package} is installed but cannot be imported: {_last(tried)}")
    return Finding("fine", title, f"{package} {importlib.metadata.version(package)} is installed.")


RAY = """
from evenhand.runs.ray_cluster import connected
def double(number):
    return 2 * number
with connected(None, 1):
    import ray
    assert ray.get(ray.remote(double).remote(21)) == 42
    print(ray.__version__)
"""


def _ray() -> Finding:
    title = "Ray"
    if importlib.util.find_spec("ray") is None:
        return Finding("warning", title, "not installed; pip install 'evenhand[ray]' lets studies use many machines.")
    tried = _python(RAY)
    if tried.returncode:
        return Finding("error", title, f"it is installed but does not start: {_last(tried)}")
    return Finding("fine", title, f"Ray {tried.stdout.split()[-1]} starts, and does what it is asked to.")


def _chromium() -> Finding:
    title = "Chromium"
    for name in ("chromium", "chromium-browser", "google-chrome", "chrome"):
        if path := shutil.which(name):
            tried = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=PATIENCE, check=False)
            if not tried.returncode:
                return Finding("fine", title, f"{tried.stdout.strip()} can show pages of results.")
    return Finding("warning", title, "not installed; pages of results can be opened with any other browser.")


TRIALS: Mapping[str, Callable[[], Finding]] = {
    "learning": _learning,
    "sumo": _sumo,
    "emulated": _emulated,
    "mo": _mo,
    "ray": _ray,
    "chromium": _chromium,
}


def _python(script: str) -> subprocess.CompletedProcess[str]:
    """In another process: what crashes there does not end this one."""
    command = [sys.executable, "-W", "ignore", "-c", script]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 1, "", f"no answer within {PATIENCE} s.")


def _last(tried: subprocess.CompletedProcess[str]) -> str:
    """Its last words."""
    lines = tried.stderr.strip().splitlines()
    return lines[-1] if lines else f"it ended with the code {tried.returncode}."


def _count() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processors() -> str:
    return "one processor" if _count() == 1 else f"{_count()} processors"
