"""calibrate: how close a simulator comes to the real thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rich.table import Table

from evenhand.cli import options, output
from evenhand.envs.registry import DOMAINS, domain_of, loaded
from evenhand.errors import InputError
from evenhand.report.text import plain_table
from evenhand.runs.pool import prepare_jax

# JAX is imported where it is used: help and refusals should not wait for it.


@dataclass(frozen=True)
class Calibrate:
    """Compare a simulator with the real thing: the stand-in with SUMO, or the data centre with real queues.

    traffic: fixed cycles, longest queue first and random phases are played in SUMO and in its compiled
    stand-in; the table says how long the cars of each direction wait, and by how much the stand-in is off.

    datacenter: six policies control the hosts of an emulated network (docs/datacenter.md), and those of
    the simulator, with three traffic matrices. The table has
        queue        mean difference of the fullest queue, as a share of its limit; at most 0.02
        correlation  of the fullest queue in both over time, where it varies; at least 0.99
        reward       mean difference of a host's reward in a step, on its scale of 10; at most 0.2
        dropped      by which share more packets were dropped on the emulated network; at most 10 %
        delivered    by which share more arrived there; at most 3 %, or 10 % in overload

    It takes about four minutes; with --env time_scale=4 one, on a machine that has nothing else to do.
    An episode for which the machine was too busy is repeated, twice at most; if it still was, the episode
    is not to be trusted (marked ?). The exit code is 1 if a limit is not kept, or if an episode is not to be trusted.

    For example:
        evenhand calibrate traffic --episodes 24 --env timing=literal
        evenhand calibrate datacenter
        evenhand calibrate datacenter --env traffic=stride:4 --env episode_steps=100
    """

    env: options.Environment
    """traffic or datacenter."""
    episodes: options.OptionalWhole = None
    """Of traffic: test episodes of each controller in SUMO, by default 8; in the stand-in eight times as many."""
    seed: options.Whole = 0
    """The same seed gives the same figures in traffic, and the same random rates in datacenter."""
    arguments: options.EnvArguments = ()
    """Settings of the environment; evenhand list traffic, or datacenter, shows them."""
    json: options.Json = False


def run_calibrate(args: Calibrate) -> int:
    """Play the same in both, and show the differences."""
    options.check_positive(args, "episodes")
    options.check_not_negative(args, "seed")
    arguments = options.assignments("--env", args.arguments)
    domain = domain_of(args.env)
    if domain is None or domain.calibration is None:
        able = [name for name, other in DOMAINS.items() if other.calibration is not None]
        raise InputError(
            f"only {' and '.join(able)} have a simulator that can be compared: evenhand calibrate {', or '.join(able)}."
        )
    from evenhand.evaluation.playing import evaluate_policy

    prepare_jax()
    calibration = loaded(domain.calibration)(arguments, evaluate_policy, args.episodes, args.seed, output.say)
    if args.json:
        output.print_json(calibration.record)
    else:
        output.show(calibration.title, calibration.about, _table(calibration), calibration.notes)
    return 0 if calibration.good else output.FAILED


def _table(calibration: Any) -> Table:
    table = plain_table()
    for heading in calibration.headings:
        names = not heading
        table.add_column(heading, justify="left" if names else "right", vertical="bottom", no_wrap=names)
    for row in calibration.rows:
        if row.begins_section:
            table.add_section()
        table.add_row(*row.cells, style=row.style)
    return table
