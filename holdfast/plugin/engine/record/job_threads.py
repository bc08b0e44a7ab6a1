"""Job threads: threads that start as they are needed, for jobs that the loop and the handlers are not to wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime import Queue, Runtime


class JobThreads:
    """The thread that runs the app calls these methods.

    Args:
        name: what the threads are called.
        at_most: so many threads.
        runtime: makes them.
    """

    def __init__(self, name: str, at_most: int, runtime: Runtime) -> None:
        self._name, self._at_most, self._runtime = name, at_most, runtime
        self._jobs: Queue[Callable[[], object] | None] = runtime.queue()
        self._threads = 0

    def put(self, job: Callable[[], object], under_way: int) -> None:
        """Have a job done. Raises RuntimeError: no thread can be started, and there is none.

        Args:
            job: raises nothing.
            under_way: how many have not ended, with this one.
        """
        if self._threads < min(self._at_most, under_way):
            try:
                self._runtime.spawn(self._work, f"{self._name}-{self._threads}")
                self._threads += 1
            except RuntimeError:
                if not self._threads:
                    raise
        self._jobs.put(job)

    def stop(self) -> None:
        """Let them end. A thread that is busy does not keep the process."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
