"""The command line: a file for each command, called as it is typed."""

from evenhand.cli.program import main

__all__ = ["main"]
