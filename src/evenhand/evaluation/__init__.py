"""Evaluation: policies, test episodes that are played with them, and what these came to."""
