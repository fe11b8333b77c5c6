"""Gymnasium: other people's environments for us, ours for other people's libraries, and processes that step them.

Worker processes import this package: it must not import JAX.
"""
