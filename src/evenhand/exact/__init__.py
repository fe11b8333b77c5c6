"""Finite models, solved exactly."""
