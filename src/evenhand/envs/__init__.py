"""Environments: our own, which can be compiled, and those of other people, by name.

Importing this package does not import JAX; looking an environment up does. `register_domain` adds one of yours under
a short name.
"""

from evenhand.envs.registry import Domain, known, register_domain, resolve

__all__ = ["Domain", "known", "register_domain", "resolve"]
