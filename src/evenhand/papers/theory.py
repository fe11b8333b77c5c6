"""The paper's theory, computed exactly: what suffices, what depends on the start, and the error bound as γ → 1.

Nothing is sampled over seeds of training here: a statement about all models fails by one counterexample, and is
supported by random models, whose number and seeds are said. docs/theory.md has the proofs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from evenhand.errors import Say
from evenhand.exact import chain, examples
from evenhand.exact.bounds import ErrorBound, error_bound
from evenhand.exact.momdp import MOMDP
from evenhand.exact.policies import Mixture, evaluate
from evenhand.exact.solver import solve
from evenhand.report.pictures import COLOURS
from evenhand.report.study_pictures import WIDE, Figure, legend
from evenhand.studies.claims import Claim, Exactly
from evenhand.studies.experiment import Study
from evenhand.welfare import GGF

W = GGF([2 / 3, 1 / 3])
PRINTED, CORRECTED = GGF([5 / 9, 4 / 9]), GGF([4 / 5, 1 / 5])
MODELS = 20
"""Random models, of seeds 0, 1, …, on which statements are tried."""
GAMMAS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9995, 0.9999)
ROUNDING = 1e-7
SETTING = "theory/exact"
HERE = (SETTING,)

Fact = tuple[bool, str]


class Series(NamedTuple):
    """The bounds of one model for several discounts."""

    title: str
    bounds: tuple[ErrorBound, ...]


class Theory(NamedTuple):
    """All that was computed."""

    facts: dict[str, Fact]
    series: tuple[Series, ...]


CLAIMS = (
    Claim(
        text="For discounted rewards, a stationary stochastic policy is as fair as any other",
        parts=(Exactly("stationary discounted"),),
        source="Lemma 3.1",
        settings=HERE,
    ),
    Claim(
        text="For average rewards, a stationary stochastic policy is as fair as any other",
        parts=(Exactly("stationary average"),),
        source="Lemma 3.1",
        settings=HERE,
        note="It does in unichain models; elsewhere one may have to draw a policy at the start (docs/theory.md).",
    ),
    Claim(
        text="Deterministic policies do not suffice",
        parts=(Exactly("deterministic"),),
        source="Section 3, after Lemma 3.1",
        settings=HERE,
    ),
    Claim(
        text="What is optimal depends on the initial state",
        parts=(Exactly("state-dependent"),),
        source="Section 3",
        settings=HERE,
    ),
    Claim(
        text="Example 3.2 as printed, with w = (5/9, 4/9), shows it",
        parts=(Exactly("example as printed"),),
        source="Example 3.2",
        settings=HERE,
        note="With w₁ > 5/7, as in (4/5, 1/5), the example is right.",
    ),
    Claim(
        text="In weakly communicating models an average-optimal stationary policy has a constant gain",
        parts=(Exactly("constant gain"),),
        source="Lemma 3.3",
        settings=HERE,
        note="It holds up to any ε > 0, and exactly in unichain models.",
    ),
    Claim(
        text="In unichain models the gain of the average-optimal policy is constant",
        parts=(Exactly("unichain gain"),),
        source="",
        settings=HERE,
    ),
    Claim(
        text="The published bound on the error of discounting holds",
        parts=(Exactly("published bound"), Exactly("published bound, random models")),
        source="Theorem 3.6, Corollary 3.7",
        settings=HERE,
        note="The proof takes the spectral radius for a norm. Its condition, γ > σ/(σ + 1), holds in this example.",
    ),
    Claim(
        text="The bound with the total variation in place of the spectral radius holds",
        parts=(Exactly("rigorous bound"),),
        source="docs/theory.md; not in the paper",
        settings=HERE,
    ),
    Claim(
        text="The error of discounting tends to 0 as γ → 1",
        parts=(Exactly("error vanishes"), Exactly("error vanishes, random models")),
        source="Section 3, after Corollary 3.7",
        settings=HERE,
        note="It does for one objective and in unichain models.",
    ),
)

STUDY = Study(
    key="theory",
    title="Theory",
    about="Computed by the exact solver, with nothing learnt.",
    experiments=(),
    claims=CLAIMS,
)


def compute(say: Say = lambda _: None) -> Theory:
    """Everything; a minute or so."""
    facts: dict[str, Fact] = {}
    for what, of in (
        ("whether stationary and deterministic policies suffice", _which_policies),
        ("whether optimality depends on the initial state", _state_dependence),
        ("gains", _gains),
    ):
        say(f"computing {what}")
        facts |= of()
    say("computing error bounds as γ → 1")
    series = (
        _series("a random model (30 states, 3 users)", random_model(0, 30, 3), GGF.geometric(3)),
        _chain_series(),
        _series("two homes and a refuge", examples.two_homes(with_refuge=True), W),
    )
    facts |= _bounds(series)
    return Theory(facts, series)


def random_model(seed: int, states: int = 4, users: int = 2) -> MOMDP:
    """A random model in which every state can be reached from every other, whatever the policy."""
    return examples.garnet(states, 3, users, branching=states, seed=seed)


# Which policies


def _which_policies() -> dict[str, Fact]:
    worst, gains = 0.0, []
    for seed in range(MODELS):
        model = random_model(seed)
        best = solve(model, W, gamma=0.9)
        assert not isinstance(best.policy, Mixture)
        returns = evaluate(model, best.policy, gamma=0.9)
        worst = max(worst, best.gap, best.welfare - float(W.value(returns)))
        gains.append(best.welfare - best_deterministic(model, 0.9))
    one = examples.one_state()
    mixed, pure = solve(one, W, gamma=0.9).welfare * 0.1, best_deterministic(one, 0.9) * 0.1
    leave = examples.stay_or_leave()
    coin = solve(leave, W, criterion="average").welfare
    stationary = max(
        float(W.value(evaluate(leave, [[1 - p, p], [0.5, 0.5]], criterion="average"))) for p in np.linspace(0, 1, 101)
    )
    better = sum(gain > ROUNDING for gain in gains)
    return {
        "stationary discounted": (
            worst < ROUNDING,
            f"on {MODELS} random models the stationary policy found is within {worst:.0e} of a bound on all policies",
        ),
        "stationary average": (
            coin <= stationary + ROUNDING,
            f"stay or leave for ever: the best stationary policy has a GGF of {stationary:.4f}, a coin tossed at the "
            f"start has {coin:.4f}",
        ),
        "deterministic": (
            mixed > pure + ROUNDING,
            f"one state, rewards (3, 0) or (0, 2): the best deterministic policy has a GGF of {pure:.3f}, the best "
            f"stochastic one {mixed:.3f}; on {better} of {MODELS} random models a stochastic policy is strictly better",
        ),
    }


def best_deterministic(model: MOMDP, gamma: float) -> float:
    """The largest GGF of all deterministic stationary policies, one by one."""
    every = itertools.product(range(model.A), repeat=model.S)
    return max(float(W.value(evaluate(model, np.array(actions), gamma=gamma))) for actions in every)


# Where one starts


def example_scores(welfare: GGF) -> dict[str, tuple[float, float]]:
    """Example 3.2: the GGF of each choice in s2, after Up in s1; from s1 and from s2."""
    return {
        name: tuple(
            float(welfare.value(evaluate(examples.state_dependence(0.9, start), np.array([0, action, 0]), gamma=0.9)))
            * (1 if start == 0 else 0.9)  # rewards of s2 are divided by γ
            for start in (0, 1)
        )  # type: ignore[misc]
        for name, action in (("Up", 0), ("Down", 1))
    }


def _state_dependence() -> dict[str, Fact]:
    printed, corrected = example_scores(PRINTED), example_scores(CORRECTED)

    def preferred(scores: dict[str, tuple[float, float]], start: int) -> str:
        return max(scores, key=lambda name: scores[name][start])

    def seen(scores: dict[str, tuple[float, float]]) -> str:
        return "; ".join(
            f"from {state}, {preferred(scores, i)} in s2 is best "
            f"(Up {scores['Up'][i]:.2f}, Down {scores['Down'][i]:.2f})"
            for i, state in enumerate(("s1", "s2"))
        )

    return {
        "state-dependent": (
            preferred(corrected, 0) != preferred(corrected, 1),
            f"Example 3.2 with w = (4/5, 1/5): {seen(corrected)}",
        ),
        "example as printed": (
            preferred(printed, 0) != preferred(printed, 1),
            f"with w = (5/9, 4/9): {seen(printed)}",
        ),
    }


# Gains


def _gains() -> dict[str, Fact]:
    homes = examples.two_homes()
    attained = []
    moves = np.concatenate([[0.0], np.logspace(-6, 0, 13)])
    for p, q in itertools.product(moves, repeat=2):
        policy = np.array([[1 - p, p], [q, 1 - q]])
        P, R = homes.under(policy)
        gain = chain.gain(P, R)
        if np.ptp(gain, axis=0).max() < 1e-12:
            attained.append(float(W.value(gain[0])))
    supremum = solve(homes, W, criterion="average").welfare
    widest = 0.0
    for seed in range(MODELS):
        model = random_model(seed)
        best = solve(model, W, criterion="average")
        assert not isinstance(best.policy, Mixture)
        P, R = model.under(best.policy)
        widest = max(widest, float(np.ptp(chain.gain(P, R), axis=0).max()))
    return {
        "constant gain": (
            max(attained) >= supremum - 1e-9,
            f"two states that pay one user each: {supremum:.4f} is the least upper bound; of {len(attained)} "
            f"stationary policies with constant gain the best has {max(attained):.7f}, and the more rarely they move "
            "the closer they come",
        ),
        "unichain gain": (
            widest < ROUNDING,
            f"on {MODELS} random models the gain of the optimal policy differs between states by at most {widest:.0e}",
        ),
    }


# The error of discounting


def _series(title: str, model: MOMDP, welfare: GGF, gammas: Sequence[float] = GAMMAS) -> Series:
    average = solve(model, welfare, criterion="average", tol=1e-10)
    return Series(title, tuple(error_bound(model, welfare, gamma, average=average) for gamma in gammas))


def _chain_series() -> Series:
    """The walk is as long as γ makes it pay to stay: the model changes with γ."""
    gammas = GAMMAS[:-3]
    bounds = tuple(
        error_bound(examples.chain(max(1, round(0.5 / (1 - gamma))), gamma), GGF([1.0]), gamma) for gamma in gammas
    )
    return Series("a long walk to a better place (one user)", bounds)


def _bounds(series: Sequence[Series]) -> dict[str, Fact]:
    random, walk, refuge = series
    sampled = [error_bound(random_model(seed), W, gamma) for seed in range(MODELS // 2) for gamma in (0.9, 0.99, 0.999)]
    everything = [bound for one in series for bound in one.bounds] + sampled
    published = [b for b in everything if b.published is not None and b.applicable]
    broken = [b for b in published if b.published is not None and b.true_gap > b.published + ROUNDING]
    among = [b for b in broken if any(b is other for other in sampled)]
    shown = next(b for b in walk.bounds if b.gamma == 0.99)
    assert shown.published is not None
    slack = min(b.rigorous - b.true_gap for b in everything)
    last = refuge.bounds[-1]
    return {
        "published bound": (
            not broken,
            f"on a walk of 50 states with γ = 0.99 the error is {shown.true_gap:.3f} and the bound "
            f"{shown.published:.3f}; it is broken in {len(broken)} of {len(published)} cases tried",
        ),
        "published bound, random models": (
            not among,
            f"on random models it is broken in {len(among)} of {len(sampled)} cases",
        ),
        "rigorous bound": (
            slack > -ROUNDING,
            f"never broken in {len(everything)} cases; at its tightest it exceeds the error by {max(slack, 0.0):.1e}",
        ),
        "error vanishes": (
            last.true_gap < 0.01,
            f"two homes and a refuge: the error is {refuge.bounds[0].true_gap:.4f} with γ = {refuge.bounds[0].gamma:g} "
            f"and still {last.true_gap:.4f} with γ = {last.gamma:g}",
        ),
        "error vanishes, random models": (
            random.bounds[-1].true_gap < 1e-3,
            f"{random.title}: {random.bounds[0].true_gap:.2e} with γ = {random.bounds[0].gamma:g}, "
            f"{abs(random.bounds[-1].true_gap):.0e} with γ = {random.bounds[-1].gamma:g}",
        ),
    }


# Figures


def figures(theory: Theory) -> dict[str, list[Figure]]:
    """By heading."""
    bounds = [
        Figure(
            f"theory-bound-{i + 1}",
            f"{one.title[0].upper()}{one.title[1:]}: the true error of discounting, the published bound (where its "
            "condition holds) and the rigorous one, as γ → 1.",
            _draw_bounds(one),
        )
        for i, one in enumerate(theory.series)
    ]
    example = Figure(
        "theory-state-dependence",
        "Example 3.2: the GGF of Up and of Down in s2, judged from s1 (after Up there) and from s2, by the weight of "
        "the worse-off user. Where the order of the two lines differs between the panels, optimality depends on the "
        "state: for w₁ > 5/7, and not at the printed 5/9.",
        _draw_example,
        WIDE,
        3.6,
    )
    return {
        "The error of discounting": bounds,
        "What is optimal depends on where one starts": [example],
    }


def _draw_bounds(series: Series) -> Callable[[Any], None]:
    def draw(axes: Any) -> None:
        away = np.array([1 - bound.gamma for bound in series.bounds])
        lines = {
            "true error": ([bound.true_gap for bound in series.bounds], COLOURS[0], "o-"),
            "published bound": (
                [b.published if b.applicable and b.published is not None else np.nan for b in series.bounds],
                COLOURS[3],
                "s--",
            ),
            "rigorous bound": ([bound.rigorous for bound in series.bounds], COLOURS[2], "^-"),
        }
        for name, (values, colour, style) in lines.items():
            positive = np.where(np.array(values, float) > 1e-9, values, np.nan)
            axes.plot(away, positive, style, color=colour, markersize=4, linewidth=1.5, label=name)
        axes.set(xscale="log", yscale="log", xlabel="1 − γ", ylabel="average GGF lost")
        axes.invert_xaxis()
        legend(axes)

    return draw


def _draw_example(axes: Any) -> None:
    figure = axes.figure
    axes.remove()
    left, right = figure.subplots(1, 2, sharey=True)
    first = np.linspace(0.5, 1, 51)
    scores = [example_scores(GGF([w, 1 - w])) for w in first]
    for i, (panel, state) in enumerate(((left, "s1"), (right, "s2"))):
        for name, colour in (("Up", COLOURS[0]), ("Down", COLOURS[1])):
            values = [of[name][i] for of in scores]
            panel.plot(first, values, color=colour, linewidth=1.8, label=name if i == 0 else None)
        for w, text in ((5 / 9, "5/9"), (5 / 7, "5/7")):
            panel.axvline(w, color="0.5", linewidth=0.9, dashes=(3, 3))
            panel.annotate(text, (w, panel.get_ylim()[1]), fontsize=8, ha="center", va="bottom", color="0.3")
        panel.set_xlabel("w₁, the weight of the worse-off user")
        panel.set_title(f"from {state}", loc="left")
    left.set_ylabel("GGF of what is still to come")
    legend(left)
