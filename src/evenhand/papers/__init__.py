"""The paper's experiments and claims as data: one module for each of its domains, and one for its theory."""

from evenhand.papers.plans import PLANS, SCALES, plan

__all__ = ["PLANS", "SCALES", "plan"]
