"""BackgroundMarks: marks ended records at the store while the user's loop is busy, so that marks are not late."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from holdfast.runtime import Runtime


class BackgroundMarks:
    """A thread for one `Driven` engine, which works under the engine's lock. Sleeps while no record has ended."""

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
        """Start the thread. Once."""
        self._runtime.spawn(self._run, f"holdfast-{self._group}-marks")

    def wake(self) -> None:
        """Wake the thread: a record has ended, or a call has reported one. Any thread."""
        if not self._some.is_set():
            self._some.set()

    def stop(self) -> None:
        """End the thread; does not wait."""
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
                    except Exception as error:  # noqa: BLE001 - the loop's next call raises it
                        self._fail(error)
