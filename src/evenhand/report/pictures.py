"""Pictures of who gets what, how evenly it is shared, and how it was learnt; matplotlib draws them."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from evenhand import metrics
from evenhand.errors import InputError
from evenhand.evaluation.result import Outcome
from evenhand.exact.solver import Solution
from evenhand.report.tables import estimate
from evenhand.report.text import amounts
from evenhand.runs.metrics_file import Curve

FEW = 16
"""Users, for whom each bar and each point of a curve has room."""
FAIR, UTILITARIAN = "#0072B2", "#E69F00"
"""Blue and orange: apart for every eye, and in grey."""
COLOURS = (FAIR, UTILITARIAN, "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C6D31", "#999933", "#332288", "#882255")
EXACT = "#666666"
MOST_POINTS = 40
"""Of a learning curve, roughly."""
DASHES = ("solid", "dashed", "dotted", "dashdot")


class Party(NamedTuple):
    """What one policy brings, as it is drawn."""

    name: str
    returns: Float[np.ndarray, " D"]
    colour: str
    low: Float[np.ndarray, " D"] | None = None
    """The ends of the interval of each return, NaN where there is none."""
    high: Float[np.ndarray, " D"] | None = None


def draw_comparison(
    fair: Solution,
    utilitarian: Solution,
    path: str | PathLike[str],
    *,
    name: str = "fair",
    measure: str = "expected return",
    title: str = "",
) -> None:
    """Draw each user's return under both policies, and how evenly each shares them out.

    name: what to call the fair policy; measure: what the returns are. The file's ending says which format.
    """
    figure = figure_of(10)
    left, right = figure.subplots(1, 2, width_ratios=(1.35, 1))
    parties = [Party(name, fair.returns, FAIR), Party("utilitarian", utilitarian.returns, UTILITARIAN)]
    _draw_bars(left, parties, [str(user + 1) for user in range(len(fair.returns))], measure)
    left.set_xlabel("user")
    _draw_lorenz(right, parties)
    _finish(figure, path, title)


def draw_outcomes(
    outcomes: Sequence[Outcome],
    objectives: Sequence[str],
    path: str | PathLike[str],
    *,
    measure: str = "return",
    curves: Sequence[Curve] = (),
    title: str = "",
) -> None:
    """Draw what policies bring each user, with intervals over seeds, how evenly, and how it was learnt.

    measure: what the returns are. curves: the learning curves, for a third panel.
    """
    panels = 3 if curves else 2
    figure = figure_of(15 if curves else 10)
    axes = figure.subplots(1, panels, width_ratios=(1.35, 1, 1.2)[:panels])
    parties = []
    for outcome, colour in zip(outcomes, _colours(len(outcomes)), strict=True):
        colour = EXACT if outcome.kind == "exact" else colour
        users = [estimate(column) for column in outcome.returns.T]
        value, low, high = np.array(users).T
        parties.append(Party(outcome.name, value, colour, low, high))
    _draw_bars(axes[0], parties, objectives, measure)
    _draw_lorenz(axes[1], parties)
    if curves:
        _draw_curves(axes[2], curves, objectives, _colours(len(curves)))
    _finish(figure, path, title)


def figure_of(width: float | int, height: float | int = 4.4) -> Any:
    """An empty figure of so many inches."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("pictures need matplotlib: pip install matplotlib.") from None
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def tidy(figure: Any) -> None:
    """Axes in the style of the house."""
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set_color("0.6")
        axes.tick_params(color="0.6", labelcolor="0.25")


def _finish(figure: Any, path: str | PathLike[str], title: str) -> None:
    tidy(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    try:
        figure.savefig(path)
    except ValueError as error:  # matplotlib's answer to endings it does not know
        raise InputError(f"the picture cannot be written: {error}.") from None


def _colours(n: int) -> list[str]:
    return [COLOURS[i % len(COLOURS)] for i in range(n)]


def _draw_bars(axes: Any, parties: Sequence[Party], objectives: Sequence[str], measure: str) -> None:
    D, P = len(objectives), len(parties)
    amount = amounts(np.concatenate([party.returns for party in parties]), digits=3)
    users, width = np.arange(1, D + 1), 0.8 / P
    for p, party in enumerate(parties):
        at = users + (p - (P - 1) / 2) * width
        bars = axes.bar(at, party.returns, 0.95 * width, color=party.colour, label=party.name)
        ends = party.returns
        if party.low is not None and party.high is not None and np.isfinite(party.low).all():
            spread = np.abs([party.returns - party.low, party.high - party.returns])
            axes.errorbar(at, party.returns, spread, fmt="none", ecolor="0.2", elinewidth=1.2, capsize=3)
            ends = np.where(party.returns < 0, party.low, party.high)
        if D * P <= 20:  # more numbers than that would run into each other
            for bar, value, end in zip(bars, party.returns, ends, strict=True):
                axes.annotate(
                    amount(value),
                    (bar.get_x() + bar.get_width() / 2, end),
                    xytext=(0, 2 if value >= 0 else -2),
                    textcoords="offset points",
                    ha="center",
                    va="bottom" if value >= 0 else "top",
                    fontsize=9 if D * P <= 12 else 8,
                    rotation=0 if D * P <= 12 else 90,
                    color="0.25",
                )
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.set_ylabel(measure)
    axes.set_title("What each user gets", loc="left", fontweight="bold")
    axes.set_xlim(0.4, D + 0.6)
    axes.xaxis.get_major_locator().set_params(integer=True)
    if D <= FEW:
        long = max(map(len, objectives)) * D > 60
        axes.set_xticks(users, objectives, rotation=35 if long else 0, ha="right" if long else "center")
    axes.margins(y=0.12)
    if P <= 2 and sum(len(party.name) for party in parties) <= 24:  # there is room beside the title
        axes.legend(frameon=False, ncols=P, loc="lower right", bbox_to_anchor=(1, 1), borderaxespad=0.2)
    else:
        axes.figure.legend(frameon=False, ncols=4, loc="outside lower left", fontsize=9)


def _draw_lorenz(axes: Any, parties: Sequence[Party]) -> None:
    from matplotlib.ticker import PercentFormatter

    D = len(parties[0].returns)
    shares = np.linspace(0, 1, D + 1)
    of_total = min(party.returns.min() for party in parties) >= 0
    for party in parties:
        curve = metrics.lorenz(party.returns, generalized=not of_total)
        style = "o-" if D <= FEW else "-"
        axes.plot(shares, curve, style, color=party.colour, linewidth=2.2, label=party.name, clip_on=False, zorder=3)
        even = "0.2" if of_total else party.colour
        axes.plot([0, 1], [0, curve[-1]], color=even, linewidth=1.2, dashes=(4, 3), zorder=4)
    axes.set_title("How evenly it is shared", loc="left", fontweight="bold")
    axes.set(xlabel="users, the worst-off first", xlim=(0, 1))
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    if of_total:
        axes.set(ylabel="their share of the total", ylim=(0, 1), aspect="equal")
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        axes.annotate(
            "everyone the same",
            (0.5, 0.5),
            xytext=(-9, 9),
            textcoords="offset points",
            ha="center",
            va="center",
            rotation=45,
            color="0.25",
            fontsize=9,
        )
    else:  # shares of a total mean nothing with losses among them: the generalized curve takes sums instead
        axes.set_ylabel("their returns together, per user of all")
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.text(0.03, 0.94, "dashed: everyone the same", transform=axes.transAxes, color="0.25", fontsize=9)


def _draw_curves(axes: Any, curves: Sequence[Curve], objectives: Sequence[str], colours: Sequence[str]) -> None:
    """Colours are runs and dashes users; of many users, the worst-off one and the mean."""
    for rough, colour in zip(curves, colours, strict=True):
        curve = smoothed(rough)
        lines = {name: curve.rewards[:, :, i] for i, name in enumerate(objectives)}
        if len(objectives) > len(DASHES):
            lines = {"worst-off user": curve.rewards.min(axis=2), "mean of all": curve.rewards.mean(axis=2)}
        for (name, rewards), dash in zip(lines.items(), DASHES, strict=False):
            mean = rewards.mean(axis=0)
            axes.plot(curve.steps, mean, color=colour, linestyle=dash, linewidth=1.4, label=f"{curve.name}, {name}")
            if len(rewards) > 1:
                axes.fill_between(curve.steps, rewards.min(axis=0), rewards.max(axis=0), color=colour, alpha=0.15, lw=0)
    axes.set_title("How it was learnt", loc="left", fontweight="bold")
    axes.set(xlabel="steps", ylabel="reward per step while training")
    axes.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4))
    axes.margins(x=0)
    below = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
    axes.legend(frameon=False, fontsize=8, ncols=min(len(curves), 3), **below)


def smoothed(curve: Curve) -> Curve:
    """Means of rows next to each other, so many that what chance does to single rows does not hide the course."""
    block = max(1, len(curve.steps) // MOST_POINTS)
    whole = len(curve.steps) // block * block
    N, _, D = curve.rewards.shape
    rewards = curve.rewards[:, :whole].reshape(N, -1, block, D).mean(axis=2)
    return Curve(curve.name, curve.steps[:whole].reshape(-1, block).mean(axis=1).astype(int), rewards)
