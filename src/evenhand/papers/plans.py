"""Which parts of the paper there are, and at which scale they are reproduced."""

from __future__ import annotations

from dataclasses import replace

from evenhand.errors import InputError
from evenhand.papers import datacenter_plan, species_plan, traffic_plan
from evenhand.runs.hyperparameters import check_name
from evenhand.studies.experiment import FIRST_SEED, Study

PLANS = {"species": species_plan.PLANS, "traffic": traffic_plan.PLANS, "datacenter": datacenter_plan.PLANS}
"""By domain and scale. The theory is computed, not sampled: see `evenhand.papers.theory`."""
SCALES = ("quick", "paper")


def plan(
    domain: str, scale: str = "quick", seeds: int | None = None, steps: int | None = None, preset: str = "tuned"
) -> Study:
    """What is to be done for one domain.

    seeds, steps: in place of the scale's. preset: "tuned", or "paper" for the hyperparameters of its appendix.
    """
    check_name("domain", domain, PLANS)
    check_name("scale", scale, SCALES)
    if seeds is not None and seeds < 1:
        raise InputError(f"there must be at least one seed, not {seeds}.")
    study = PLANS[domain][scale]
    experiments = []
    for experiment in study.experiments:
        if seeds is not None:
            experiment = replace(experiment, seeds=tuple(range(FIRST_SEED, FIRST_SEED + seeds)))
        if steps is not None:
            learners = tuple(replace(learner, steps=steps) for learner in experiment.learners)
            experiment = replace(experiment, learners=learners)
        if preset != experiment.preset:
            learners = tuple(replace(learner, settings=_kept(learner.settings)) for learner in experiment.learners)
            experiment = replace(experiment, learners=learners, preset=preset)
        experiments.append(experiment)
    return replace(study, experiments=tuple(experiments))


def _kept(settings: object) -> dict[str, object]:
    """Of changes to one preset, what is meant whatever the preset: the discount."""
    return {name: value for name, value in dict(settings).items() if name == "gamma"}  # type: ignore[call-overload]
