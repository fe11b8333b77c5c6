"""calibrate: how close a simulator comes to the real thing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from tyro.conf import arg

from evenhand.cli.shared import (
    FAILED,
    Assignments,
    Environment,
    Flag,
    OptionalWhole,
    Whole,
    assignments,
    check_not_negative,
    check_positive,
    print_json,
    say,
    show,
)
from evenhand.errors import InputError
from evenhand.report import calibration, network_calibration
from evenhand.report.text import NOTHING, plain_table

EPISODES = 8


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

    env: Environment
    """traffic or datacenter."""
    episodes: OptionalWhole = None
    """Of traffic: test episodes of each controller in SUMO, by default 8; in the stand-in eight times as many."""
    seed: Whole = 0
    """The same seed gives the same figures in traffic, and the same random rates in datacenter."""
    arguments: Annotated[Assignments, arg(name="env")] = ()
    """Settings of the environment; evenhand list traffic, or datacenter, shows them."""
    json: Flag = False
    """Print one JSON object, and nothing else, for programs."""


def run_calibrate(asked: Calibrate) -> int:
    """Play the same in both, and show the differences."""
    if asked.episodes is not None:
        check_positive("--episodes", asked.episodes)
    check_not_negative("--seed", asked.seed)
    given = assignments("--env", asked.arguments)
    if asked.env in ("traffic", "evenhand/traffic-v0"):
        return _calibrate_traffic(asked, given, EPISODES if asked.episodes is None else asked.episodes)
    if asked.env in ("datacenter", "evenhand/datacenter-v0"):
        if asked.episodes is not None:
            raise InputError("a data centre is compared step by step, in one episode each: leave --episodes out.")
        return _calibrate_datacenter(asked, given)
    raise InputError(
        "only traffic and datacenter have a simulator that can be compared: evenhand calibrate traffic, or datacenter."
    )


def _calibrate_traffic(asked: Calibrate, given: dict[str, Any], episodes: int) -> int:
    from evenhand.envs.traffic.junction import ARMS

    found = list(calibration.compare(given, episodes, asked.seed, say))
    worst = max(float(abs(pair.difference).max()) for pair in found)
    ranking = calibration.same_ranking(found)
    if asked.json:
        record = {
            "arguments": given,
            "episodes": episodes,
            "seed": asked.seed,
            "objectives": list(ARMS),
            "controllers": [
                {
                    "name": pair.controller,
                    "sumo": pair.sumo.mean(axis=0).tolist(),
                    "uncertainty": pair.uncertainty.tolist(),
                    "standin": pair.standin.mean(axis=0).tolist(),
                    "difference": pair.difference.tolist(),
                }
                for pair in found
            ],
            "largest_difference": worst,
            "same_ranking": ranking,
        }
        print_json(record)
        return 0
    table = plain_table()
    for heading in ("", "", *ARMS, "sum"):
        table.add_column(heading, justify="right" if heading else "left")
    for pair in found:
        real, model = pair.sumo.mean(axis=0), pair.standin.mean(axis=0)
        off = [f"{share:+.1%}" for share in (*pair.difference, model.sum() / real.sum() - 1)]
        table.add_section()
        table.add_row(pair.controller, "SUMO", *(f"{seconds:,.0f}" for seconds in (*real, real.sum())))
        table.add_row("", "stand-in", *(f"{seconds:,.0f}" for seconds in (*model, model.sum())))
        table.add_row("", "off by", *off, style="bold")
        table.add_row("", "chance in SUMO", *(f"±{share:.1%}" for share in pair.uncertainty), "", style="dim")
    show(
        "The stand-in beside SUMO: seconds that the cars on each arm have waited",
        f"{episodes} test episodes of each controller in SUMO, {calibration.SIDE_BY_SIDE} times as many",
        table,
        [
            f"The largest difference is {worst:.1%}. The controllers are ranked "
            f"{'in the same order' if ranking else 'in another order'} by both.",
            "Chance in SUMO: two deviations of a mean of so many episodes; differences within it mean nothing.",
        ],
    )
    return 0


def _calibrate_datacenter(asked: Calibrate, given: dict[str, Any]) -> int:
    from evenhand.runs.pool import prepare_jax

    prepare_jax()
    found = list(network_calibration.compare(given, asked.seed, say))
    beyond = [pair for pair in found if pair.beyond()]
    doubted = [pair for pair in found if pair.doubts]
    code = FAILED if beyond or doubted else 0
    if asked.json:
        record = {
            "arguments": given,
            "seed": asked.seed,
            "limits": dict(network_calibration.LIMITS),
            "pairs": [pair.record() for pair in found],
            "within": not beyond,
            "trusted": not doubted,
        }
        print_json(record)
        return code
    table = plain_table()
    table.add_column("", no_wrap=True)
    differences = ("queue", "corre-\nlation", "reward", "dropped", "deli-\nvered")
    for heading in (*differences, "sent /\nasked", "still", "un-\neven", "late\ns", ""):
        table.add_column(heading, justify="right", vertical="bottom")
    matrix = None
    for pair in found:
        if pair.matrix != matrix:
            matrix = pair.matrix
            table.add_section()
            table.add_row(matrix, style="bold")
        table.add_row(
            f"  {pair.policy}",
            f"{pair.queue:.4f}",
            _or_nothing(pair.correlation, "{:.4f}"),
            f"{pair.reward:.3f}",
            _or_nothing(pair.dropped, "{:+.1%}"),
            f"{pair.delivered:+.1%}",
            f"{pair.sent:.3f}",
            f"{pair.still:.0%}",
            f"{pair.uneven:.0%}",
            f"{pair.late:.2f}",
            "?" if pair.doubts else "✗" if pair.beyond() else "✓",
        )
    again = sum(pair.tries - 1 for pair in found)
    notes = [
        f"All limits are kept ({len(found)} pairs of a matrix and a policy)."
        if not beyond
        else "Not within the limits: "
        + "; ".join(f"{pair.matrix}, {pair.policy} ({', '.join(pair.beyond())})" for pair in beyond)
        + "."
    ]
    if again:
        notes.append(f"{again} episodes were played again, because the machine was too busy or too slow for them.")
    if doubted:
        notes.append(
            f"Not to be trusted: {len(doubted)} of {len(found)} pairs (?), for which it was so even then. The "
            "differences are partly the machine's: repeat this when it has less to do."
        )
    show(
        "The simulator beside the emulated network",
        f"differences, of an episode each: {', '.join(dict.fromkeys(pair.matrix for pair in found))}",
        table,
        notes,
    )
    return code


def _or_nothing(value: float, form: str) -> str:
    return NOTHING if math.isnan(value) else form.format(value)
