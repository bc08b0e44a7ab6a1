"""Letter hooks: functions of the application that are told of dead letters which have arrived (`app.on_dead_letter`).

Nothing waits for them, and nothing follows from them: the record is settled as it is without. Plain ones run in one
thread of their own, one after the other; coroutines are tasks of the event loop of the handlers.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.dedup.not_run import not_run
from holdfast.errors import StateError
from holdfast.plugin.engine.record.job_threads import JobThreads
from holdfast.plugin.events import LetterHookFailed
from holdfast.plugin.retrying.failures import Failures, kind_of, words_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.plugin.engine.record.coroutines import Coroutines
    from holdfast.plugin.events import Event
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.runtime import Runtime
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast")

#: Calls that have not ended. A hook that hangs must not fill the memory: of letters beyond, it is not told.
_MOST = 1000
#: How often closing looks whether the app is asked to hurry.
_LOOK_S = 0.02


class LetterHook(NamedTuple):
    """One of the user's."""

    name: str
    #: Plain, or an `async def`.
    call: Callable[[Letter], Any]
    is_async: bool


class _Call:
    """One hook, told of one letter."""

    __slots__ = ("error", "hook", "letter")

    def __init__(self, hook: LetterHook, letter: Letter) -> None:
        self.hook, self.letter = hook, letter
        #: Until it has run: its task may end before its first step.
        self.error: BaseException | None = StateError("the event loop has not run it")

    def run(self) -> None:
        try:
            self._ended(self.hook.call(self.letter))
        except BaseException as error:  # noqa: BLE001 - a SystemExit must not end the thread in silence
            self.error = error

    async def run_async(self) -> None:
        try:
            self._ended(await self.hook.call(self.letter))
        except asyncio.CancelledError as error:
            self.error = error
            raise
        except BaseException as error:  # noqa: BLE001 - as above
            self.error = error

    def _ended(self, returned: object) -> None:
        if (kind := not_run(returned)) is not None:
            raise TypeError(f"it returned a {kind}, which has not run yet: register the `async def` itself")
        self.error = None


class LetterHooks:
    """One thread, the one that runs the app, but for what is said to be another's."""

    def __init__(
        self,
        hooks: Sequence[LetterHook],
        *,
        coroutines: Coroutines,
        runtime: Runtime,
        name: str,
        tell: Callable[[Event], None],
    ) -> None:
        self._hooks, self._coroutines, self._tell = hooks, coroutines, tell
        self._thread = JobThreads(name, 1, runtime)
        self._open = 0
        #: Calls that have ended since the last step.
        self._ended: deque[_Call] = deque()
        self._failures = Failures()
        self._wake = runtime.event()

    def sent(self, letter: Letter) -> None:
        """A letter is there: its broker has acknowledged it."""
        for hook in self._hooks:
            if self._open >= _MOST:
                self._failed(hook, letter, f"not called: {_MOST} of its calls have not ended")
                continue
            self._open += 1
            call = _Call(hook, letter)
            if hook.is_async:
                self._coroutines.add(call.run_async, partial(self._over, call))
                continue
            try:
                self._thread.put(partial(self._run, call), self._open)
            except RuntimeError as error:  # the machine's limit
                self._open -= 1
                self._failed(hook, letter, f"not called: {error}")

    def step(self) -> None:
        """Tell of those that failed."""
        while self._ended:
            call = self._ended.popleft()
            self._open -= 1
            if (error := call.error) is not None:
                self._failures.failed(call.hook.name, "a dead letter", error)
                self._failed(call.hook, call.letter, f"{kind_of(error)}: {words_of(error)}")

    def close(self, deadline: Deadline, hurry: Callable[[], bool]) -> None:
        """Wait for calls that have not ended, until the deadline or until the app is to hurry."""
        if self._open:
            with suppress(RuntimeError):  # the application has closed its event loop
                self._coroutines.begin()
        while self._open and not deadline.passed and not hurry():
            self._wake.wait(deadline.left_s(_LOOK_S))
            self._wake.clear()
            self.step()
        if self._open:
            _log.warning("leaving without waiting for %d calls of on_dead_letter that have not ended", self._open)
        self._thread.stop()

    def _failed(self, hook: LetterHook, letter: Letter, error: str) -> None:
        record = letter.record
        self._tell(
            LetterHookFailed(
                partition=record.partition, offset=record.offset, handler=letter.handler, hook=hook.name, error=error
            )
        )

    # ---- the thread of plain ones; of `_over` also the event loop's
    def _run(self, call: _Call) -> None:
        call.run()
        self._over(call)

    def _over(self, call: _Call, refusal: Exception | None = None) -> None:
        call.error = refusal or call.error
        self._ended.append(call)
        self._wake.set()
