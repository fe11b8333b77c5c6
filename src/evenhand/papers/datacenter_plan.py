"""Data-centre bandwidth (question E): continuous actions, sixteen hosts."""

from __future__ import annotations

from dataclasses import replace

from evenhand.papers.common import better_score, fair, lower_cv, pairs, seeds
from evenhand.studies.claims import Claim, Higher, Lower
from evenhand.studies.experiment import Experiment, Simple, Study, Test

ALGOS = ("ppo", "a2c")
EPISODES = 10
REWARD = Test(
    name="reward",
    measure="average",
    episodes=EPISODES,
    arguments={},
    about="the paper's reward per step: rate − 2 × rate × fullest queue",
)
EPISODIC = Test(
    name="episodic reward",
    measure="return",
    episodes=EPISODES,
    arguments={},
    about="sum of the rewards of an episode of 200 steps",
    brief=True,
)
DELIVERED = Test(
    name="bandwidth",
    measure="average",
    episodes=EPISODES,
    arguments={"reward": "goodput"},
    about="Mbit/s that arrive of each host's traffic",
)

SIMULATED = Experiment(
    key="simulated",
    title="Data centre, simulated network",
    env="datacenter",
    learners=pairs(ALGOS),
    simple=(
        Simple(name="random", policy="random"),
        Simple(name="fixed", policy="maximum"),
        Simple(name="GGF optimum", policy="GGF optimum"),
        Simple(name="utilitarian optimum", policy="utilitarian optimum"),
    ),
    tests=(REWARD, EPISODIC, DELIVERED),
    seeds=seeds(20),
    about="A fat-tree of 16 hosts on a fluid simulator, with one staggered traffic matrix. The fixed policy allows "
    "every host the maximum; the two optima are the best constant rates that leave the queues empty.",
)

LEARNERS = tuple(name for algo in ALGOS for name in (algo.upper(), fair(algo)))
SCORES, EPISODES_OF, BANDWIDTH = ("simulated/reward",), ("simulated/episodic reward",), ("simulated/bandwidth",)
OTHERS = (*LEARNERS, "fixed")
CLAIMS = (
    Claim(
        text="The fixed policy has the lowest GGF score",
        parts=tuple(Higher(name, "fixed", "ggf:2") for name in (*LEARNERS, "random")),
        source="Question E, figure of the GGF scores",
        settings=SCORES,
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
        text="The random policy has the lowest minimum bandwidth",
        parts=tuple(Lower("random", name, "minimum") for name in OTHERS),
        source="Question E, figure of CV, minimum and maximum",
        settings=BANDWIDTH,
        note="The largest sum gives almost nothing to hosts whose traffic is in the way of others': PPO and A2C, which "
        "come close to it, leave them less than chance does.",
    ),
    Claim(
        text="The random policy has the lowest maximum bandwidth",
        parts=tuple(Lower("random", name, "maximum") for name in OTHERS),
        source="Question E, figure of CV, minimum and maximum",
        settings=BANDWIDTH,
    ),
    Claim(
        text="PPO and A2C have a higher episodic reward than their fair versions",
        parts=tuple(Higher(algo.upper(), fair(algo), "average") for algo in ALGOS),
        source="Appendix D, figure of the episodic rewards",
        settings=EPISODES_OF,
    ),
    Claim(
        text="All learners have a higher episodic reward than the fixed and the random policy",
        parts=tuple(Higher(name, other, "average") for name in LEARNERS for other in ("fixed", "random")),
        source="Appendix D, figure of the episodic rewards",
        settings=EPISODES_OF,
    ),
)

PAPER = Study(
    key="datacenter",
    title="Data-centre bandwidth",
    about="A controller sets how fast each host of a network may send.",
    experiments=(replace(SIMULATED, learners=pairs(ALGOS, dict.fromkeys(ALGOS, 1_000_000))),),
    claims=CLAIMS,
)
QUICK = replace(
    PAPER,
    experiments=(replace(SIMULATED, seeds=seeds(10), learners=pairs(ALGOS, dict.fromkeys(ALGOS, 1_000_000))),),
)
PLANS = {"quick": QUICK, "paper": PAPER}
