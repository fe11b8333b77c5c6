"""Trying an environment out, and saying in plain words what is wrong with it; importing it does not import JAX."""
