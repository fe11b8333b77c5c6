"""The errors a person may meet: one sentence that says what was wrong and what was expected."""

import re
from collections.abc import Callable

Say = Callable[[str], None]
"""Told a sentence."""

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_PICTURES = 0x2400
"""Where Unicode has a picture for each of the first control characters."""


def visible(text: str) -> str:
    """The text with control characters made visible: names come from anyone, and terminals obey what they are sent.

    Those that reverse the direction of writing count too; line ends and tabs do not.
    """
    return _CONTROL.sub(lambda found: _pictured(ord(found[0])), text)


def _pictured(code: int) -> str:
    if code < 0x20:
        return chr(_PICTURES + code)
    return "\N{SYMBOL FOR DELETE}" if code == 0x7F else "\N{REPLACEMENT CHARACTER}"


def escaped(json: str) -> str:
    """JSON text with the same characters escaped, as programs read them back."""
    return _CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json)


class InputError(ValueError):
    """Something handed to evenhand cannot be used; the message says what, where and what to do about it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(visible(message))


class IllConditioned(InputError):
    """Floating-point numbers cannot hold the answer: some transitions are too rare, or the chain mixes too slowly."""


class Infeasible(InputError):
    """The question has no answer: for example a welfare that needs positive returns where no policy gives them."""
