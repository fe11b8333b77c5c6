"""Species conservation: sea otters, and the abalone they eat; and its exact optimum, from a finite model."""

from evenhand.envs.species.env import Species
from evenhand.envs.species.reference import SpeciesReference
from evenhand.envs.species.state import ACTIONS, SpeciesState

__all__ = ["ACTIONS", "Species", "SpeciesReference", "SpeciesState"]
