"""Hyperparameters as data; `evenhand.runs.settings` reads them."""
