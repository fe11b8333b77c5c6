"""Hyperparameters as data; `evenhand.runs.hyperparameters` reads them."""
