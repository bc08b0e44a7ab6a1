"""Standard output and standard error, whose reader may go away at any line: `| head -1`, a pager that was left, a full
disk."""

from __future__ import annotations

import os
from typing import Protocol, TextIO


class Written(Protocol):
    """Anything that takes text."""

    def write(self, text: str, /) -> object:
        """Add text."""
        ...

    def flush(self) -> object:
        """Let a reader have it."""
        ...

    def isatty(self) -> bool:
        """Whether a person reads it at once."""
        ...


class Stream:
    """Text for a reader.

    Args:
        stream: a standard stream; None: it was closed before the process began.
        endures: its reader's end ends nothing: what is written from there on is dropped. False: writing raises
            BrokenPipeError, or what else the system says.
    """

    def __init__(self, stream: TextIO | None, *, endures: bool) -> None:
        self._stream, self._endures = stream, endures
        #: Nobody reads it any more.
        self.cut = stream is None

    def write(self, text: str) -> None:
        """Add text, in whatever letters the stream takes."""
        if self._stream is None or self.cut:
            return
        try:
            try:
                self._stream.write(text)
            except UnicodeEncodeError:
                coding = self._stream.encoding or "ascii"
                self._stream.write(text.encode(coding, "backslashreplace").decode(coding))
        except (OSError, ValueError):  # ValueError: it is closed
            self._broken()

    def flush(self) -> None:
        """Let a reader have it."""
        if self._stream is None or self.cut:
            return
        try:
            self._stream.flush()
        except (OSError, ValueError):
            self._broken()

    def isatty(self) -> bool:
        """Whether a person reads it at once."""
        return self._stream is not None and not self.cut and self._stream.isatty()

    def leave(self) -> None:
        """Let the interpreter's own flush at its end go nowhere: it would fail again, with an exit code of its own."""
        self.cut = True
        try:
            if self._stream is not None:
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
        except (OSError, ValueError):
            return  # a test's stream, which has no number

    def _broken(self) -> None:
        """In the handler of what was raised."""
        if not self._endures:
            raise  # noqa: PLE0704 - see above
        self.leave()
