"""What other people's environments raise, in a sentence that says where, and the lines that did it."""

from __future__ import annotations

import contextlib
import importlib
import traceback
from collections.abc import Iterator
from pathlib import Path

import gymnasium

from evenhand.errors import InputError, visible


class EnvironmentFailed(InputError):
    """An environment raised an error of its own: a sentence says where, and below it stand the lines that did it.

    full: the whole traceback, evenhand's part of it too.
    """

    def __init__(self, message: str, full: str = "") -> None:
        super().__init__(message)
        self.full = visible(full)
        self.args = (*self.args, self.full)  # with which processes send it to each other

    def __str__(self) -> str:
        return str(self.args[0])


NOT_THEIRS = (
    str(Path(__file__).parents[2]),
    *(str(Path(module.__file__ or "").parent) for module in (gymnasium, importlib)),
    "<frozen importlib",
)
"""Whose lines are left out of the tracebacks of people's environments: evenhand's own, and those of what is between."""


@contextlib.contextmanager
def blamed(place: str) -> Iterator[None]:
    """Whatever an environment raises inside, also to end the program, becomes an `EnvironmentFailed` (see `failed`)."""
    try:
        yield
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise failed(place, error) from None


def failed(place: str, error: BaseException) -> EnvironmentFailed:
    """What to raise in place of an environment's own error. place: the beginning of a sentence, as in "step 3"."""
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, SystemExit):
        said = (
            f"it called sys.exit({'' if error.code is None else repr(error.code)}), and only the program may end itself"
        )
    theirs = traceback.TracebackException.from_exception(error)
    full = "".join(theirs.format())
    _keep_theirs(theirs)
    lines = "".join(theirs.format()).rstrip()
    return EnvironmentFailed(f"{place}: {said}." + (f"\n\n{lines}" if '  File "' in lines else ""), full)


def _keep_theirs(error: traceback.TracebackException) -> None:
    """Leave out the lines that are not theirs, also from what led to the error."""
    theirs = [frame for frame in error.stack if not frame.filename.startswith(NOT_THEIRS)]
    error.stack = traceback.StackSummary.from_list(theirs)
    for other in (error.__cause__, error.__context__, *(error.exceptions or ())):
        if other is not None:
            _keep_theirs(other)
