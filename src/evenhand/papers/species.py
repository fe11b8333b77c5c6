"""Species conservation (questions A and C): six algorithms, two vectors of weights."""

from __future__ import annotations

from dataclasses import replace

from evenhand.papers.common import (
    base_has_higher_average,
    better_score,
    fair,
    higher_minimum,
    lower_cv,
    pairs,
    seeds,
)
from evenhand.report.claims import Claim, Higher
from evenhand.report.study import Study
from evenhand.runs.study import Experiment, Simple, Test

ALGOS = ("ppo", "a2c", "dqn")
RATIOS = (2, 10)

LONG_RUN = Test(
    "long run", "average", 50, {"episode_steps": 3650}, "mean density over 3,650 years, as in the paper's tests"
)
DISCOUNTED = Test(
    "discounted", "discounted", 50, {"episode_steps": 3650}, "(1 − γ) × discounted density: what is optimised"
)

PUBLISHED = Experiment(
    "published",
    "Species, the published response",
    "species",
    pairs(ALGOS, ratios=RATIOS),
    (Simple("random", "random"),),
    (LONG_RUN, DISCOUNTED),
    seeds(50),
    about="Otters eat as in the authors' scripts (d_max = 2K/3). Here the fair and the utilitarian optimum nearly "
    "coincide.",
    exact=True,
)
STRONG = replace(
    PUBLISHED,
    key="strong",
    title="Species, strong predation",
    arguments={"response": "strong"},
    about="Otters eat more (d_max = K/3), so that what one species gains the other loses. This is not the response of "
    "the paper's figures: it was chosen, after other runs, because there fair and utilitarian policies differ.",
)

SETTINGS = ("published/long run", "published/discounted", "strong/long run", "strong/discounted")
COINCIDE = (
    "With the published response the best sum and the best GGF nearly coincide, so that well-trained algorithms hardly "
    "differ: the figures show the exact optimum of the GGF beside them."
)
HORIZON = (
    "A learner with γ = 0.99 looks about a hundred years ahead. Introducing otters late is fair over that time, and "
    "unfair over 3,650 years, where they stay for ever."
)
EVERYONE = tuple(name for algo in ALGOS for name in (algo.upper(), *(fair(algo, ratio) for ratio in RATIOS)))

CLAIMS = (
    Claim(
        "Of all, the random policy has the lowest average",
        tuple(Higher(name, "random", "average") for name in EVERYONE),
        "Question A, figure of the average densities",
        SETTINGS,
    ),
    base_has_higher_average(
        "Each of DQN, A2C and PPO has a higher average than its GGF version", ALGOS, "Question A", SETTINGS
    ),
    better_score(ALGOS, 2, "Question A, figure of the GGF scores", SETTINGS, f"{COINCIDE} {HORIZON}"),
    lower_cv(ALGOS, 2, "Question A, figure of CV, minimum and maximum", SETTINGS),
    higher_minimum(ALGOS, 2, "Question A, figure of CV, minimum and maximum", SETTINGS),
    better_score(ALGOS, 10, "Appendix D, weights 1/10^i", SETTINGS),
    lower_cv(ALGOS, 10, "Appendix D, weights 1/10^i", SETTINGS),
    higher_minimum(ALGOS, 10, "Appendix D, weights 1/10^i", SETTINGS),
)

PAPER = Study(
    "species",
    "Species conservation",
    "Sea otters, and the abalone they eat. The reward of each species is its density.",
    tuple(
        replace(experiment, learners=pairs(ALGOS, dict.fromkeys(ALGOS, 1_000_000), RATIOS))
        for experiment in (PUBLISHED, STRONG)
    ),
    CLAIMS,
    RATIOS,
)
QUICK = replace(
    PAPER,
    experiments=tuple(
        replace(experiment, seeds=seeds(8), learners=pairs(ALGOS, ratios=RATIOS))  # as long as the preset says
        for experiment in (PUBLISHED, STRONG)
    ),
)
PLANS = {"quick": QUICK, "paper": PAPER}
