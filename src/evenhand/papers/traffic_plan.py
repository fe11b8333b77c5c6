"""Traffic lights (questions B, C and D): six algorithms, two discounts, and a day that changes."""

from __future__ import annotations

from dataclasses import replace

from evenhand.papers.common import base_has_higher_average, better_score, fair, lower_cv, pairs, seeds
from evenhand.studies.claims import Claim, Equivalent, Higher, PriceBelow
from evenhand.studies.experiment import Experiment, Learner, Simple, Study, Test

ALGOS = ("ppo", "a2c", "dqn")
FAR = 0.99999
FAR_SETTINGS = {"gamma": FAR}
MARGIN = 0.05
"""Scores that differ by less, as a share, count as close. The paper gives no margin: this one is ours."""
LIMIT = 0.10
"""A price of fairness below this counts as limited. The paper gives no number: this one is ours."""

IN_SUMO = Test(
    name="SUMO",
    measure="average",
    episodes=8,
    arguments={},
    about="minus the seconds waited on each arm, per decision, in SUMO",
)
A_DAY = Test(
    name="SUMO",
    measure="average",
    episodes=2,
    arguments={},
    about="minus the seconds waited on each arm, per decision, over a whole day in SUMO",
)
FIXED = Simple(name="fixed", policy="cycle, hold 3")
"""The best of the fixed cycles, found by `evenhand cycle traffic` with a seed below those of studies."""
FAR_LEARNERS = (
    Learner(name=f"PPO γ={FAR}", algo="ppo", settings=FAR_SETTINGS),
    Learner(name=f"GGF-PPO γ={FAR}", algo="ppo", welfare="ggf", settings=FAR_SETTINGS),
)

STATIONARY = Experiment(
    key="stationary",
    title="Traffic lights, stationary traffic",
    env="traffic",
    learners=(*pairs(ALGOS), *FAR_LEARNERS),
    simple=(Simple(name="random", policy="random"), FIXED),
    tests=(IN_SUMO,),
    seeds=seeds(50),
    training={"backend": "standin"},
    about="Trained in the compiled stand-in for SUMO, tested in SUMO itself. Every arm's reward is minus the seconds "
    "that its cars have waited. The fixed policy gives each phase three decisions in turn.",
)
DAY = Experiment(
    key="day",
    title="Traffic lights, a day in four parts",
    env="traffic",
    learners=pairs(("ppo",)),
    simple=(FIXED,),
    tests=(A_DAY,),
    seeds=seeds(50),
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
        text="The fixed policy waits less than the random one",
        parts=(Higher("fixed", "random", "average"),),
        source="Question B",
        settings=HERE,
    ),
    Claim(
        text="After training, all learners wait less than the fixed policy",
        parts=tuple(Higher(name, "fixed", "average") for name in LEARNERS),
        source="Question B, figure of the average waiting times",
        settings=HERE,
        note="The fixed policy is the best of the fixed cycles, by a search: it leaves little to gain, and the fair "
        "versions give about as much away as they gain.",
    ),
    base_has_higher_average("Each base waits less on average than its fair version", ALGOS, "Question B", HERE),
    better_score(ALGOS, 2, "Question B, figure of the GGF scores", HERE),
    lower_cv(ALGOS, 2, "Question B, figure of CV, minimum and maximum", HERE),
    Claim(
        text="Of all, GGF-PPO has the best GGF score",
        parts=tuple(Higher("GGF-PPO", name, "ggf:2") for name in (*LEARNERS, "fixed", "random") if name != "GGF-PPO"),
        source="Question B, figure of the GGF scores",
        settings=HERE,
    ),
    Claim(
        text="GGF-DQN, whose policies are deterministic, has a lower GGF score than the stochastic fair algorithms",
        parts=tuple(Higher(name, "GGF-DQN", "ggf:2") for name in ("GGF-PPO", "GGF-A2C")),
        source="Question C",
        settings=HERE,
    ),
    Claim(
        text=f"The price of fairness is limited (below {LIMIT:.0%} of the average)",
        parts=tuple(PriceBelow(fair(algo), algo.upper(), LIMIT) for algo in ALGOS),
        source="Question C",
        settings=HERE,
    ),
    Claim(
        text=f"GGF-PPO with γ = {FAR} is close to γ = 0.99 (GGF score within {MARGIN:.0%})",
        parts=(Equivalent(f"GGF-PPO γ={FAR}", "GGF-PPO", "ggf:2", MARGIN),),
        source="Question D",
        settings=HERE,
        note=f"With γ = {FAR} the critics have to learn sums over a hundred thousand decisions. The scale quick trains "
        "for four times as many, the scale paper for ten times.",
    ),
    Claim(
        text="In traffic that changes over the day, GGF-PPO has a higher GGF score than PPO",
        parts=(Higher("GGF-PPO", "PPO", "ggf:2"),),
        source="Appendix D, non-stationary traffic",
        settings=THERE,
        note=ONE_DAY,
    ),
    Claim(
        text="In traffic that changes over the day, GGF-PPO waits longer on average than PPO",
        parts=(Higher("PPO", "GGF-PPO", "average"),),
        source="Appendix D, non-stationary traffic",
        settings=THERE,
        note=ONE_DAY,
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
    key="traffic",
    title="Traffic-light control",
    about="One junction with four arms. The reward of each arm is minus the time that its cars have waited.",
    experiments=(_scaled(STATIONARY, 50, PAPER_STEPS, 8), _scaled(DAY, 50, PAPER_STEPS, 2)),
    claims=CLAIMS,
)
QUICK = replace(PAPER, experiments=(_scaled(STATIONARY, 5, QUICK_STEPS, 5), _scaled(DAY, 5, QUICK_STEPS, 1)))
PLANS = {"quick": QUICK, "paper": PAPER}
