"""Data-centre bandwidth (question E): continuous actions, sixteen hosts."""

from __future__ import annotations

from dataclasses import replace

from evenhand.papers.common import better_score, fair, lower_cv, pairs, seeds
from evenhand.report.claims import Claim, Higher, Lower
from evenhand.report.study import Study
from evenhand.runs.study import Experiment, Simple, Test

ALGOS = ("ppo", "a2c")
EPISODES = 10
REWARD = Test("reward", "average", EPISODES, {}, "the paper's reward per step: rate − 2 × rate × fullest queue")
EPISODIC = Test("episodic reward", "return", EPISODES, {}, "sum of the rewards of an episode of 200 steps", brief=True)
DELIVERED = Test("bandwidth", "average", EPISODES, {"reward": "goodput"}, "Mbit/s that arrive of each host's traffic")

SIMULATED = Experiment(
    "simulated",
    "Data centre, simulated network",
    "datacenter",
    pairs(ALGOS),
    (
        Simple("random", "random"),
        Simple("fixed", "maximum"),
        Simple("GGF optimum", "GGF optimum"),
        Simple("utilitarian optimum", "utilitarian optimum"),
    ),
    (REWARD, EPISODIC, DELIVERED),
    seeds(20),
    about="A fat-tree of 16 hosts on a fluid simulator, with one staggered traffic matrix. The fixed policy allows "
    "every host the maximum; the two optima are the best constant rates that leave the queues empty.",
)

LEARNERS = tuple(name for algo in ALGOS for name in (algo.upper(), fair(algo)))
SCORES, EPISODES_OF, BANDWIDTH = ("simulated/reward",), ("simulated/episodic reward",), ("simulated/bandwidth",)
OTHERS = (*LEARNERS, "fixed")
CLAIMS = (
    Claim(
        "The fixed policy has the lowest GGF score",
        tuple(Higher(name, "fixed", "ggf:2") for name in (*LEARNERS, "random")),
        "Question E, figure of the GGF scores",
        SCORES,
    ),
    better_score(ALGOS, 2, "Question E, figure of the GGF scores", SCORES),
    lower_cv(
        ALGOS,
        2,
        "Question E, figure of CV, minimum and maximum",
        BANDWIDTH,
        "Of the bandwidth that is delivered: the reward is proportional to the rate allowed, whatever arrives.",
    ),
    Claim(
        "The random policy has the lowest minimum bandwidth",
        tuple(Lower("random", name, "minimum") for name in OTHERS),
        "Question E, figure of CV, minimum and maximum",
        BANDWIDTH,
        "The largest sum gives almost nothing to hosts whose traffic is in the way of others': PPO and A2C, which come "
        "close to it, leave them less than chance does.",
    ),
    Claim(
        "The random policy has the lowest maximum bandwidth",
        tuple(Lower("random", name, "maximum") for name in OTHERS),
        "Question E, figure of CV, minimum and maximum",
        BANDWIDTH,
    ),
    Claim(
        "PPO and A2C have a higher episodic reward than their fair versions",
        tuple(Higher(algo.upper(), fair(algo), "average") for algo in ALGOS),
        "Appendix D, figure of the episodic rewards",
        EPISODES_OF,
    ),
    Claim(
        "All learners have a higher episodic reward than the fixed and the random policy",
        tuple(Higher(name, other, "average") for name in LEARNERS for other in ("fixed", "random")),
        "Appendix D, figure of the episodic rewards",
        EPISODES_OF,
    ),
)

PAPER = Study(
    "datacenter",
    "Data-centre bandwidth",
    "A controller sets how fast each host of a network may send.",
    (replace(SIMULATED, learners=pairs(ALGOS, dict.fromkeys(ALGOS, 1_000_000))),),
    CLAIMS,
)
QUICK = replace(
    PAPER,
    experiments=(replace(SIMULATED, seeds=seeds(10), learners=pairs(ALGOS, dict.fromkeys(ALGOS, 1_000_000))),),
)
PLANS = {"quick": QUICK, "paper": PAPER}
