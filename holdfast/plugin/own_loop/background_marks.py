"""Marks what has ended while a loop is busy with something else, so that no mark is late."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.plugin.own_loop.driven import Driven


class LateMarks:
    """A thread for one `Driven` engine, which it takes hold of by its lock. It sleeps while nothing has ended."""

    def __init__(self, driven: Driven, late_s: float) -> None:
        self._driven, self._late_s = driven, late_s
        self._some = driven.runtime.event()
        self._over = False

    def start(self) -> None:
        """Begin. Once."""
        self._driven.runtime.spawn(self._run, f"holdfast-{self._driven.group}-marks")

    def wake(self) -> None:
        """Something has ended, or was told. Any thread."""
        if not self._some.is_set():
            self._some.set()

    def stop(self) -> None:
        """Let the thread end; does not wait for it."""
        self._over = True
        self._some.set()

    def _run(self) -> None:
        while self._some.wait() and not self._over:
            self._some.clear()
            self._driven.clock.sleep(self._late_s)
            with self._driven.lock:
                if not self._over:
                    try:
                        self._driven.mark_late()
                    except Exception as error:  # noqa: BLE001 - the loop is told at its next call
                        self._driven.fail(error)
