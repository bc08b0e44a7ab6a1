"""SIGTERM and SIGINT, while apps run: the first one stops them in good order, the next one hurries."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.plugin.engine.loop import Engine

#: What a shell has for a command that SIGINT has ended.
_INTERRUPTED = 130
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: Of the apps that run in the main thread, or in its event loop: what a signal is told to.
_told: list[Callable[[int], None]] = []
_before: dict[int, Any] = {}


@contextmanager
def answered(stop: Callable[..., None], *, install: bool) -> Iterator[Sequence[int]]:
    """Signals that came. Several apps of one event loop hear of each; the last to leave puts back what was there."""
    if not install or threading.current_thread() is not threading.main_thread():
        yield ()
        return
    came: list[int] = []

    def tell(number: int) -> None:
        came.append(number)
        stop(why=signal.Signals(number).name)

    _told.append(tell)
    if len(_told) == 1:
        _before.update({number: signal.signal(number, _tell_all) for number in _SIGNALS})
    try:
        yield came
    finally:
        _told.remove(tell)
        if not _told:
            for number, handler in _before.items():
                # None: it was no handler of Python's, and cannot be put back.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _tell_all(number: int, _: object) -> None:
    for tell in _told:
        tell(number)


def run_answering(engine: Engine, came: Sequence[int]) -> None:
    """Ctrl-C while it waits for store or broker at the start is the end of the program, as of any that waits."""
    try:
        engine.run()
    except HoldfastError:
        if engine.snapshots.ran or signal.SIGINT not in came:
            raise
    if not engine.snapshots.ran and signal.SIGINT in came:
        raise SystemExit(_INTERRUPTED)
