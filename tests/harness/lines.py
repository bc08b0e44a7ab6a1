"""Strike at each line that code takes: one after the other, an exception or a collection is put before it.

A signal's handler raises between any two steps of the main thread, and Python may collect at any of them in any thread.
A run counts the lines that it takes in some files; then it is done again for each of them, struck there.
"""

from __future__ import annotations

import dis
import functools
import linecache
import sys
import threading
from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import CodeType, FrameType


#: Python looks for signals after these, and before the first line of a function.
_LOOKS = ("CALL", "JUMP_BACKWARD", "SEND", "YIELD", "FOR_ITER")


class Struck(Exception):
    """What a signal's handler raises, as Celery's soft time limit."""


class Lines:
    """Of the files of a folder, as the calling thread takes them; and as other threads do that begin meanwhile."""

    def __init__(
        self, folder: Path, *, at: int = 0, others: bool = False, deed: Callable[[], None] = lambda: None
    ) -> None:
        self._files = f"{folder}/"
        self._at = at
        self._others = others
        self._deed = deed
        self._lock = threading.Lock()
        #: How often a frame has come to a line with `with`: each second time it leaves it.
        self._withs: Counter[tuple[int, int]] = Counter()
        #: Frames in which an exception was raised, and nothing called since.
        self._raised: set[int] = set()
        #: Lines taken, by the calling thread or by the others.
        self.taken = 0
        #: Those that are different.
        self.places: set[tuple[str, int]] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Count, and strike, what is done meanwhile. Python swallows what is raised in a destructor: so it is here."""
        unraisable = sys.unraisablehook
        sys.unraisablehook = lambda each: None if isinstance(each.exc_value, Struck) else unraisable(each)
        own = None if self._others else self._trace
        other = self._trace if self._others else None
        threading.settrace(other)
        sys.settrace(own)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)
            sys.unraisablehook = unraisable

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(self._files):
            return None
        if event == "exception":
            self._raised.add(id(frame))
        elif event == "call":
            self._raised.discard(id(frame))
        elif event == "line" and not self._is_no_place(frame):
            with self._lock:
                self.taken += 1
                strikes = self.taken == self._at
                self.places.add((name, frame.f_lineno))
            if strikes:
                sys.settrace(None)
                self._deed()
        return self._trace

    def _is_no_place(self, frame: FrameType) -> bool:
        """Python looks for no signal at a `try:`, on the way out of a `with` before `__exit__` was called, and on the
        way from where an exception is raised to the first call of its handler."""
        code = frame.f_code
        if code.co_code[frame.f_lasti] == dis.opmap["NOP"]:
            return True
        if id(frame) in self._raised:
            if _looks(code, frame.f_lasti):
                self._raised.discard(id(frame))
            return True
        if not linecache.getline(code.co_filename, frame.f_lineno).strip().startswith("with "):
            return False
        self._withs[id(frame), frame.f_lineno] += 1
        return self._withs[id(frame), frame.f_lineno] % 2 == 0


@functools.cache
def _looks(code: CodeType, start: int) -> bool:
    """Whether Python looks for signals in the line that begins there."""
    for at in dis.get_instructions(code):
        if at.offset > start and at.starts_line is not None:
            return False
        if at.offset >= start and at.opname.startswith(_LOOKS):
            return True
    return False
