"""Marks what has ended while a loop is busy with something else, so that no mark is late."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from holdfast.runtime import Runtime


class BackgroundMarks:
    """A thread for one `Driven` engine, which it takes hold of by its lock. It sleeps while nothing has ended."""

    def __init__(
        self,
        *,
        mark: Callable[[], None],
        lock: AbstractContextManager[object],
        late_s: float,
        fail: Callable[[Exception], None],
        group: str,
        runtime: Runtime,
    ) -> None:
        self._mark, self._lock, self._late_s, self._fail, self._group = mark, lock, late_s, fail, group
        self._runtime = runtime
        self._some = runtime.event()
        self._over = False

    def start(self) -> None:
        """Begin. Once."""
        self._runtime.spawn(self._run, f"holdfast-{self._group}-marks")

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
            self._runtime.sleep(self._late_s)
            with self._lock:
                if not self._over:
                    try:
                        self._mark()
                    except Exception as error:  # noqa: BLE001 - the loop is told at its next call
                        self._fail(error)
