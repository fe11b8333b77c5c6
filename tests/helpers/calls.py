"""The program, as tests call it: in this process, or by its words."""

from __future__ import annotations

import contextlib
import io
import re
import sys
from typing import Any, NamedTuple

from evenhand import cli

PROGRAM = [sys.executable, "-m", "evenhand.cli"]


class Answer(NamedTuple):
    """What the program said."""

    code: Any
    out: str
    err: str


def program(*words: Any) -> Answer:
    """The program in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code: Any = cli.main([str(word) for word in words])
        except SystemExit as end:
            code = end.code
    return Answer(code, out.getvalue(), err.getvalue())


def refused(answer: Answer) -> str:
    """The sentence of an error, which must be the only thing said."""
    assert (answer.code, answer.out) == (2, ""), answer
    match = re.fullmatch(r"evenhand: error: (.+)\n", answer.err)
    assert match, answer.err
    return match[1]
