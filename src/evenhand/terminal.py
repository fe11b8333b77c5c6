"""The last place before a terminal: whatever is shown, control characters in it are only pictures of themselves."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import rich.console
from rich.segment import Segment

from evenhand.errors import visible

_START_OF_LINE = "\r"  # as the end of what is printed; rich takes it out of all other text


class Console(rich.console.Console):
    """A console of rich's whose own colours and bars reach the terminal, and nobody else's."""

    def render(
        self, renderable: rich.console.RenderableType, options: rich.console.ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """What is to be shown, piece by piece."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text == _START_OF_LINE:
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


class _Harmless:
    """A stream that passes everything on, harmless."""

    def __init__(self, stream: Any) -> None:
        self.rich_proxied_file = stream  # where rich writes to, whose control characters are its own
        self._stream = stream

    def write(self, text: str) -> int:
        """Pass it on."""
        self._stream.write(visible(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Pass them on."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def harmless() -> Iterator[None]:
    """While open, nothing that is printed can steer a terminal."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (_Harmless(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
