"""Ctrl-C: it ends what only looks or waits at once. In the middle of a change, which has to end in order, the first one
asks and the second one ends the process."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LOOK_S = 0.1


class Interrupt:
    """A context; in the main thread."""

    def __init__(self) -> None:
        #: A Ctrl-C has come in the middle of a change, or of `before`.
        self.asked = False
        self._held = False
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal() gave, it takes

    @contextmanager
    def held(self) -> Iterator[None]:
        """The middle of a change: the first Ctrl-C is for whoever asks `asked` afterwards."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def before(self, until_s: float) -> bool:
        """Wait until that time of the system's clock; whether Ctrl-C has come before."""
        with self.held():
            while not self.asked and (left_s := until_s - SYSTEM_CLOCK.now()) > 0:
                SYSTEM_CLOCK.sleep(min(_LOOK_S, left_s))
        return self.asked

    def _ask(self, _number: int, _frame: FrameType | None) -> None:
        if self.asked or not self._held:
            raise KeyboardInterrupt
        self.asked = True
