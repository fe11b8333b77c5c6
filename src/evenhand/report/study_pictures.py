"""The figures of a study, each drawn once and kept as PNG, PDF and, for its page, SVG."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from evenhand import metrics
from evenhand.agents.algorithm import algorithm
from evenhand.report.pictures import EXACT, figure_of, smoothed, tidy
from evenhand.runs.metrics_file import Curve
from evenhand.studies.claims import called, statistic
from evenhand.studies.experiment import Experiment, Learner, Study
from evenhand.studies.results import Setting, summaries

HATCHES = ("", "//", "xx", "..")
SIMPLE = ("0.25", "0.5", "0.68", "0.82")
WIDE, NARROW = 8.6, 4.8  # inches


@dataclass(frozen=True)
class Figure:
    """A picture of a study."""

    name: str
    """Of its files."""
    caption: str
    draw: Callable[[Any], None]
    """Draws on axes."""
    width: float = NARROW
    height: float = 3.5

    def save(self, folder: Path) -> str:
        """Write it as PNG and PDF into a folder, and give it as SVG."""
        import matplotlib

        figure = figure_of(self.width, self.height)
        self.draw(figure.subplots())
        tidy(figure)
        # No dates and no random identifiers: the same results give the same files.
        figure.savefig(folder / f"{self.name}.png", metadata={"Software": None})
        figure.savefig(folder / f"{self.name}.pdf", metadata={"CreationDate": None})
        drawn = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": self.name}):
            figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
        return drawn.getvalue()


@dataclass(frozen=True)
class Look:
    """How a method is drawn everywhere: the algorithm is the colour; bases are pale, further variants hatched."""

    colour: str
    alpha: float
    hatch: str
    line: str


def looks(experiment: Experiment) -> dict[str, Look]:
    """The look of each method."""
    found: dict[str, Look] = {}
    seen: dict[tuple[str, bool], int] = {}
    for learner in experiment.learners:
        fair = learner.welfare != "utilitarian"
        number = seen.get((learner.algo, fair), 0)
        seen[learner.algo, fair] = number + 1
        line = ("solid" if fair else "dashed") if number == 0 else "dotted" if fair else "dashdot"
        colour = algorithm(learner.algo).COLOUR
        found[learner.name] = Look(colour, 1.0 if fair else 0.45, HATCHES[number % len(HATCHES)], line)
    for i, simple in enumerate(experiment.simple):
        found[simple.name] = Look(SIMPLE[i % len(SIMPLE)], 1.0, "", "solid")
    found["exact optimum"] = Look(EXACT, 0.3, "--", "solid")
    return found


def figures_of(study: Study, settings: Sequence[Setting]) -> dict[str, list[Figure]]:
    """The figures of each setting, by its key."""
    return {setting.key: _figures(study, setting) for setting in settings}


def curves_figure(
    experiment: Experiment, curves: Sequence[Curve], levels: Mapping[str, float], word: str = "reward per step"
) -> Figure:
    """Learning curves of the average objective."""
    look = looks(experiment)

    def draw(axes: Any) -> None:
        from matplotlib.ticker import EngFormatter

        ends = list(levels.values())
        for rough in curves:
            curve, style = smoothed(rough), look[rough.name]
            average = curve.rewards.mean(axis=2)
            mean = average.mean(axis=0)
            ends += [mean.min(), mean.max()]
            axes.plot(curve.steps, mean, color=style.colour, linestyle=style.line, linewidth=1.5, label=rough.name)
            if len(average) > 1:
                low, high = band(average)
                axes.fill_between(curve.steps, low, high, color=style.colour, alpha=0.13, linewidth=0)
        for name, level in levels.items():
            axes.axhline(level, color=look[name].colour, linewidth=1.1, dashes=(1, 1.5), label=name)
        # The interval of two or three seeds can be so wide that nothing else would be seen.
        spread = max(ends) - min(ends)
        low, high = axes.get_ylim()
        if spread > 0:
            axes.set_ylim(max(low, min(ends) - spread), min(high, max(ends) + spread))
        axes.set(xlabel="steps of training", ylabel=f"{word}, mean of all users")
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))  # 250k, 1M
        axes.margins(x=0)
        legend(axes)

    seeds = len(experiment.seeds)
    return Figure(
        f"{experiment.key}-curves",
        f"Learning: the average objective while training; bands are 95 % intervals of the mean over {seeds} seeds"
        + ("; dotted grey: simple policies in the same episodes" if levels else "")
        + ".",
        draw,
        WIDE,
        4.2,
    )


def band(samples: Float[np.ndarray, "N *rest"]) -> tuple[Float[Any, "*rest"], Float[Any, "*rest"]]:
    """Student's interval of the mean over the first axis."""
    from scipy import special

    n = len(samples)
    half = special.stdtrit(n - 1, 0.975) * samples.std(axis=0, ddof=1) / np.sqrt(n)
    return samples.mean(axis=0) - half, samples.mean(axis=0) + half


def _figures(study: Study, setting: Setting) -> list[Figure]:
    stem = setting.key.replace("/", "-").replace(" ", "-")
    found = [
        Figure(
            f"{stem}-ggf-{ratio}",
            f"GGF scores with weights 1/{ratio}^i, one point for each seed"
            + ("; dashed: the exact optimum" if f"ggf:{ratio}" in setting.optimum else "")
            + ".",
            _boxes(setting, f"ggf:{ratio}"),
        )
        for ratio in study.ratios
    ]
    found.append(
        Figure(f"{stem}-average", "The average objective, one point for each seed.", _boxes(setting, "average"))
    )
    if setting.test.brief:
        return found
    wide = len(setting.objectives) * len(setting.returns) > 24
    found.append(
        Figure(
            f"{stem}-objectives",
            "What each user gets, mean over seeds with 95 % intervals.",
            _individual(setting),
            WIDE if wide else NARROW,
            4.4 if wide else 3.5,
        )
    )
    found += [
        Figure(f"{stem}-{of}", f"The {called(of)} over users, mean over seeds with 95 % intervals.", _bars(setting, of))
        for of in summaries(study)[len(study.ratios) :]
        if of != "average"
    ]
    found.append(
        Figure(
            f"{stem}-lorenz",
            "Lorenz curves of the mean over seeds: what the worst-off users get together.",
            _lorenz(setting),
        )
    )
    prices = _prices(setting)
    if prices:
        found.append(
            Figure(
                f"{stem}-price",
                "The price of fairness: the part of its base's average that each fair algorithm gives up, "
                "with 95 % bootstrap intervals.",
                _price_bars(setting, prices),
            )
        )
    return found


def _boxes(setting: Setting, of: str) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        look = looks(setting.experiment)
        names = list(setting.returns)
        for i, name in enumerate(names):
            values, style = statistic(of, np.asarray(setting.returns[name])), look[name]
            values = values[np.isfinite(values)]
            if not len(values):
                continue
            box = axes.boxplot(
                [values], positions=[i], widths=0.6, patch_artist=True, showfliers=False, manage_ticks=False
            )
            box["boxes"][0].set(facecolor=style.colour, alpha=max(style.alpha, 0.45), hatch=style.hatch)
            for part in ("whiskers", "caps", "medians"):
                for line in box[part]:
                    line.set(color="0.15")
            # Spread evenly, not at random: figures are the same each time.
            at = i + np.linspace(-0.16, 0.16, len(values)) if len(values) > 1 else [i]
            axes.plot(at, values, "o", markersize=2.4, color="0.1", alpha=0.6, linewidth=0)
        if of in setting.optimum:
            best = statistic(of, np.asarray(setting.optimum[of])[None])[0]
            axes.axhline(best, color=EXACT, dashes=(4, 3), linewidth=1.2)
            axes.annotate(
                "exact optimum",
                (1, best),
                (-2, 2),
                axes.get_yaxis_transform(),
                "offset points",
                ha="right",
                color=EXACT,
            )
        name_ticks(axes, names)
        axes.set_ylabel(called(of))

    return draw


def _bars(setting: Setting, of: str) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        look = looks(setting.experiment)
        names = list(setting.returns)
        for i, name in enumerate(names):
            values = statistic(of, np.asarray(setting.returns[name]))
            if np.isfinite(values).all():
                _bar(axes, i, 0.72, values, look[name])
            else:
                axes.annotate("–", (i, 0), ha="center", va="bottom", color="0.3")
        axes.axhline(0, color="0.6", linewidth=0.8)
        name_ticks(axes, names)
        axes.set_ylabel(called(of))

    return draw


def _bar(axes: Any, at: float | int, width: float, values: np.ndarray, style: Look, label: str | None = None) -> None:
    mean = values.mean()
    axes.bar(at, mean, width, color=style.colour, alpha=style.alpha, hatch=style.hatch, label=label, edgecolor="white")
    if len(values) > 1:
        low, high = band(values)
        axes.errorbar(at, mean, [[mean - low], [high - mean]], fmt="none", ecolor="0.15", elinewidth=1, capsize=2)


def _individual(setting: Setting) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        look = looks(setting.experiment)
        M, D = len(setting.returns), len(setting.objectives)
        width = 0.84 / M
        for m, (name, returns) in enumerate(setting.returns.items()):
            for d in range(D):
                _bar(
                    axes,
                    d + (m - (M - 1) / 2) * width,
                    width,
                    np.asarray(returns)[:, d],
                    look[name],
                    name if d == 0 else None,
                )
        axes.axhline(0, color="0.6", linewidth=0.8)
        rotation = 35 if D > 6 else 0
        axes.set_xticks(range(D), setting.objectives, rotation=rotation, ha="right" if rotation else "center")
        axes.set_ylabel(textwrap.fill(setting.test.about or setting.test.name, 36))
        legend(axes)

    return draw


def _lorenz(setting: Setting) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        look = looks(setting.experiment)
        means = {name: np.asarray(z).mean(axis=0) for name, z in setting.returns.items()}
        shares = min(z.min() for z in means.values()) >= 0 and all(z.sum() > 0 for z in means.values())
        D = len(setting.objectives)
        for name, z in means.items():
            style = look[name]
            curve = metrics.lorenz(z, generalized=not shares)
            axes.plot(
                np.linspace(0, 1, D + 1), curve, color=style.colour, linestyle=style.line, linewidth=1.6, label=name
            )
        if shares:
            axes.plot([0, 1], [0, 1], color="0.4", linewidth=1, dashes=(4, 3))
        axes.set_xlabel("share of users, the worst-off first")
        axes.set_ylabel("their share of the total" if shares else "their returns together,\nper user of all")
        axes.margins(x=0)
        legend(axes)

    return draw


def _prices(setting: Setting) -> list[tuple[Learner, str]]:
    """Fair learners and their bases: the same algorithm and settings with the utilitarian welfare."""
    found = []
    for learner in setting.experiment.learners:
        for base in setting.experiment.learners:
            same = base.algo == learner.algo and dict(base.settings) == dict(learner.settings)
            there = base.name in setting.returns and learner.name in setting.returns
            if same and there and base.welfare == "utilitarian" and learner.welfare != "utilitarian":
                found.append((learner, base.name))
    return found


def _price_bars(setting: Setting, prices: Sequence[tuple[Learner, str]]) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        from matplotlib.ticker import PercentFormatter

        from evenhand.stats import bootstrap_interval

        look = looks(setting.experiment)
        for i, (learner, base) in enumerate(prices):
            both = (statistic("average", setting.returns[learner.name]), statistic("average", setting.returns[base]))
            value = _price(*both)
            style = look[learner.name]
            axes.bar(i, value, 0.72, color=style.colour, hatch=style.hatch, edgecolor="white")
            if min(map(len, both)) > 1:
                low, high = bootstrap_interval(both, _price)
                ends = np.abs([[value - low], [high - value]])
                axes.errorbar(i, value, ends, fmt="none", ecolor="0.15", elinewidth=1, capsize=2)
        axes.axhline(0, color="0.6", linewidth=0.8)
        axes.yaxis.set_major_formatter(PercentFormatter(1))
        name_ticks(axes, [learner.name for learner, _ in prices])
        axes.set_ylabel("price of fairness")

    return draw


def _price(fair: np.ndarray, base: np.ndarray) -> float:
    return float((base.mean() - fair.mean()) / abs(base.mean())) if base.mean() else 0.0


def name_ticks(axes: Any, names: Sequence[str]) -> None:
    """Names of methods under what is drawn of them."""
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right")
    axes.set_xlim(-0.6, len(names) - 0.4)


def legend(axes: Any) -> None:
    """Below, where nothing is covered."""
    axes.figure.legend(frameon=False, fontsize=7.5, ncols=4, loc="outside lower center")
