"""Letter senders: threads for dead letters, which wait for their broker. Handlers would wait with them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime import Queue, Runtime

    Job = Callable[[], object]

#: So many are sent at a time.
_AT_MOST = 4


class LetterSenders:
    """The thread that runs the app, but for the jobs themselves.

    Args:
        name: what the threads are called.
        runtime: makes them, as they are needed.
    """

    def __init__(self, name: str, runtime: Runtime) -> None:
        self._name, self._runtime = name, runtime
        self._jobs: Queue[Job | None] = runtime.queue()
        self._threads = 0

    def put(self, job: Job, under_way: int) -> None:
        """Have a job done. Raises RuntimeError: no thread can be started, and there is none.

        Args:
            job: raises nothing.
            under_way: how many have not ended, with this one.
        """
        if self._threads < min(_AT_MOST, under_way):
            try:
                self._runtime.spawn(self._work, f"{self._name}-letters-{self._threads}")
                self._threads += 1
            except RuntimeError:
                if not self._threads:
                    raise
        self._jobs.put(job)

    def stop(self) -> None:
        """Let them end. Who sends a letter does not keep the process."""
        for _ in range(self._threads):
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()
