"""SIGTERM and SIGINT while apps run: the first one stops them with a drain, the next one cuts the drain short."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.plugin.engine.loop import Engine

#: The exit code for a command that SIGINT has ended.
_INTERRUPTED = 130
_SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: The callbacks of the apps that run in the main thread or in its event loop. A signal calls all of them.
_told: list[Callable[[int], None]] = []
_before: dict[int, Any] = {}


@contextmanager
def answered(stop: Callable[..., None], *, install: bool) -> Iterator[Sequence[int]]:
    """Handle signals meanwhile; yields the list of received ones. Several apps of an event loop get each signal. The
    last to leave restores the former handlers."""
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
                # None: the former handler was not installed from Python, and cannot be restored.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _tell_all(number: int, _: object) -> None:
    for tell in _told:
        tell(number)


def run_answering(engine: Engine, came: Sequence[int]) -> None:
    """Run the engine. Raises SystemExit for Ctrl-C during the start, while it waits for the store or the broker."""
    try:
        engine.run()
    except HoldfastError:
        if engine.snapshots.ran or signal.SIGINT not in came:
            raise
    if not engine.snapshots.ran and signal.SIGINT in came:
        raise SystemExit(_INTERRUPTED)
