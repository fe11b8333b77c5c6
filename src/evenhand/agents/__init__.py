"""The algorithms, one module each, and the mathematics they share.

Here is what can be asked and added without importing JAX; `evenhand.agents.algorithm.algorithm` gives an algorithm by
its name, and `evenhand.agents.networks.register_network` adds a network.
"""

from evenhand.agents.algorithm import Algorithm, Exported, Range, SearchSpace, names, register

__all__ = ["Algorithm", "Exported", "Range", "SearchSpace", "names", "register"]
