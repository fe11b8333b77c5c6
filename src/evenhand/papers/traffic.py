"""Traffic lights (questions B, C and D): six algorithms, two discounts, and a day that changes."""

from __future__ import annotations

from dataclasses import replace

from evenhand.papers.common import base_has_higher_average, better_score, fair, lower_cv, pairs, seeds
from evenhand.report.claims import Claim, Equivalent, Higher, PriceBelow
from evenhand.report.study import Study
from evenhand.runs.study import Experiment, Learner, Simple, Test

ALGOS = ("ppo", "a2c", "dqn")
FAR = 0.99999
FAR_SETTINGS = {"gamma": FAR}
MARGIN = 0.05
"""Scores that differ by less, as a share, count as close. The paper gives no margin: this one is ours."""
LIMIT = 0.10
"""A price of fairness below this counts as limited. The paper gives no number: this one is ours."""

IN_SUMO = Test("SUMO", "average", 8, {}, "minus the seconds waited on each arm, per decision, in SUMO")
A_DAY = Test("SUMO", "average", 2, {}, "minus the seconds waited on each arm, per decision, over a whole day in SUMO")
FIXED = Simple("fixed", "cycle, hold 3")
"""The best of the fixed cycles, found by `evenhand cycle traffic` with a seed below those of studies."""
FAR_LEARNERS = (
    Learner(f"PPO γ={FAR}", "ppo", settings=FAR_SETTINGS),
    Learner(f"GGF-PPO γ={FAR}", "ppo", "ggf", FAR_SETTINGS),
)

STATIONARY = Experiment(
    "stationary",
    "Traffic lights, stationary traffic",
    "traffic",
    (*pairs(ALGOS), *FAR_LEARNERS),
    (Simple("random", "random"), FIXED),
    (IN_SUMO,),
    seeds(50),
    training={"backend": "standin"},
    about="Trained in the compiled stand-in for SUMO, tested in SUMO itself. Every arm's reward is minus the seconds "
    "that its cars have waited. The fixed policy gives each phase three decisions in turn.",
)
DAY = Experiment(
    "day",
    "Traffic lights, a day in four parts",
    "traffic",
    pairs(("ppo",)),
    (FIXED,),
    (A_DAY,),
    seeds(50),
    arguments={"demand": "day"},
    training={"backend": "standin"},
    about="Morning, afternoon, evening and night, 25,000 seconds each, differ in how many cars come and from where. "
    "The paper does not print its probabilities: ours are in docs/traffic.md.",
)

HERE, THERE = ("stationary/SUMO",), ("day/SUMO",)
LEARNERS = tuple(name for algo in ALGOS for name in (algo.upper(), fair(algo)))
ONE_DAY = "At the scale quick each seed is tested on one day, with whatever cars that brings."
CLAIMS = (
    Claim(
        "The fixed policy waits less than the random one", (Higher("fixed", "random", "average"),), "Question B", HERE
    ),
    Claim(
        "After training, all learners wait less than the fixed policy",
        tuple(Higher(name, "fixed", "average") for name in LEARNERS),
        "Question B, figure of the average waiting times",
        HERE,
        "The fixed policy is the best of the fixed cycles, by a search: it leaves little to gain, and the fair "
        "versions give about as much away as they gain.",
    ),
    base_has_higher_average("Each base waits less on average than its fair version", ALGOS, "Question B", HERE),
    better_score(ALGOS, 2, "Question B, figure of the GGF scores", HERE),
    lower_cv(ALGOS, 2, "Question B, figure of CV, minimum and maximum", HERE),
    Claim(
        "Of all, GGF-PPO has the best GGF score",
        tuple(Higher("GGF-PPO", name, "ggf:2") for name in (*LEARNERS, "fixed", "random") if name != "GGF-PPO"),
        "Question B, figure of the GGF scores",
        HERE,
    ),
    Claim(
        "GGF-DQN, whose policies are deterministic, has a lower GGF score than the stochastic fair algorithms",
        tuple(Higher(name, "GGF-DQN", "ggf:2") for name in ("GGF-PPO", "GGF-A2C")),
        "Question C",
        HERE,
    ),
    Claim(
        f"The price of fairness is limited (below {LIMIT:.0%} of the average)",
        tuple(PriceBelow(fair(algo), algo.upper(), LIMIT) for algo in ALGOS),
        "Question C",
        HERE,
    ),
    Claim(
        f"GGF-PPO with γ = {FAR} is close to γ = 0.99 (GGF score within {MARGIN:.0%})",
        (Equivalent(f"GGF-PPO γ={FAR}", "GGF-PPO", "ggf:2", MARGIN),),
        "Question D",
        HERE,
        f"With γ = {FAR} the critics have to learn sums over a hundred thousand decisions. The scale quick trains for "
        "four times as many, the scale paper for ten times.",
    ),
    Claim(
        "In traffic that changes over the day, GGF-PPO has a higher GGF score than PPO",
        (Higher("GGF-PPO", "PPO", "ggf:2"),),
        "Appendix D, non-stationary traffic",
        THERE,
        ONE_DAY,
    ),
    Claim(
        "In traffic that changes over the day, GGF-PPO waits longer on average than PPO",
        (Higher("PPO", "GGF-PPO", "average"),),
        "Appendix D, non-stationary traffic",
        THERE,
        ONE_DAY,
    ),
)

PAPER_STEPS = {"ppo": 1_000_000, "a2c": 1_000_000, "dqn": 100_000}
QUICK_STEPS = {"ppo": 400_000, "a2c": 400_000, "dqn": 150_000}


def _scaled(experiment: Experiment, count: int, steps: dict[str, int], episodes: int) -> Experiment:
    return replace(
        experiment,
        seeds=seeds(count),
        learners=tuple(replace(learner, steps=steps[learner.algo]) for learner in experiment.learners),
        tests=tuple(replace(test, episodes=episodes) for test in experiment.tests),
    )


PAPER = Study(
    "traffic",
    "Traffic-light control",
    "One junction with four arms. The reward of each arm is minus the time that its cars have waited.",
    (_scaled(STATIONARY, 50, PAPER_STEPS, 8), _scaled(DAY, 50, PAPER_STEPS, 2)),
    CLAIMS,
)
QUICK = replace(PAPER, experiments=(_scaled(STATIONARY, 5, QUICK_STEPS, 5), _scaled(DAY, 5, QUICK_STEPS, 1)))
PLANS = {"quick": QUICK, "paper": PAPER}
