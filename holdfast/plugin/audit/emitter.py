"""Emitter: passes events from a consumer to its sink. Bounded: events above the bound are dropped and counted."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections import deque
from typing import TYPE_CHECKING

from holdfast.dedup.forks import after_fork
from holdfast.plugin.audit.schema import Event, Stamp, encode
from holdfast.timing import SYSTEM_CLOCK, Deadline, wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.plugin.audit.schema import Body
    from holdfast.plugin.audit.settings import Audit, Sink
    from holdfast.timing import Clock

_log = logging.getLogger("holdfast.audit")

#: Room above the buffer for events that come a few times in a run: its beginning and its end.
_SPARE = 16
#: Events that are encoded and passed to the sink in one call.
_BATCH = 500
#: Seconds until the next call, while the sink takes nothing.
_AGAIN_S = 0.2


class Emitter:
    """The emitter of one run, which is one start of one consumer. `put` never waits; a thread encodes and writes.

    `put` is for any thread, but not for two at once: the caller holds a lock, which also gives the order of events. A
    forked child is another run and must be started: with one run id, the two would use the same event numbers.
    """

    def __init__(self, audit: Audit, group: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._audit, self._group, self._clock = audit, group, clock
        #: Sinks of the processes that this one was forked from. Kept and never closed: their clients' threads exist
        #: only in the parent.
        self._not_ours: list[Sink] = []
        self._sink: Sink | None = None
        self._begin()
        after_fork(self, Emitter._begin)

    def _begin(self) -> None:
        if self._sink is not None:
            self._not_ours.append(self._sink)
        self.member = self._audit.member or f"{socket.gethostname()}-{os.getpid()}"
        self.run = secrets.token_hex(8)
        #: Events taken so far, which is the number of the next one.
        self.taken = 0
        self._refused = 0
        self._waiting: deque[Event] = deque()
        self._due: Callable[[], None] = lambda: None
        self._wake = threading.Event()
        self._until: Deadline | None = None
        self._sink = None
        self._thread: threading.Thread | None = None

    def start(self, due: Callable[[], None]) -> None:
        """Open the sink and start the thread, which calls `due` every `flush_s`. Raises SettingError, OSError."""
        self._due = due
        self._sink = self._audit.events.open(self.member, self.run)
        self._thread = threading.Thread(target=self._work, name=f"holdfast-{self._group}-audit", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """How many events were dropped: the buffer was full, or the sink has lost them."""
        return self._refused + (self._sink.lost if self._sink is not None else 0)

    def put(self, body: Body, *, must: bool = False) -> None:
        """Take one event, or drop it if the buffer is full. `must`: it may use the spare room."""
        if len(self._waiting) >= self._audit.buffer_events + (_SPARE if must else 0):
            self._refused += 1
            return
        stamp = Stamp(
            group=self._group,
            member=self.member,
            run=self.run,
            seq=self.taken,
            at_ms=wall_ms(),
            dropped=self.dropped,
        )
        self.taken += 1
        self._waiting.append(Event(stamp=stamp, body=body))

    def wake(self) -> None:
        """Flush now, not at the next `flush_s`."""
        self._wake.set()

    def close(self) -> None:
        """Write the waiting events, for at most `close_s`, and end the thread."""
        if self._thread is None or self._until is not None:
            return
        self._until = Deadline(self._audit.close_s)
        self._wake.set()
        self._thread.join(self._audit.close_s + 2 * _AGAIN_S)
        if not self._thread.is_alive():
            self._refused += len(self._waiting)
            self._waiting.clear()
        if self.dropped or self._waiting:
            _log.warning("audit: %d events were dropped, %d are not written yet", self.dropped, len(self._waiting))

    # ---- its thread
    def _work(self) -> None:
        sink = self._sink
        if sink is None:
            raise AssertionError(self)
        flush_at = self._clock.now() + self._audit.flush_s
        while True:
            until = self._until
            all_out = self._write(sink)
            if until is not None and (all_out or until.passed):
                break
            called = self._wake.wait(max(0.0, flush_at - self._clock.now()) if all_out else _AGAIN_S)
            self._wake.clear()
            if called or self._clock.now() >= flush_at:
                flush_at = self._clock.now() + self._audit.flush_s
                self._flush()
        sink.close(until)

    def _flush(self) -> None:
        try:
            self._due()
        except Exception:  # noqa: BLE001 - a defect in the book must not end the thread that writes
            _log.exception("audit: spans could not be written as events")

    def _write(self, sink: Sink) -> bool:
        """Write waiting events. Returns whether none is left."""
        while self._waiting:
            batch = [self._waiting[at] for at in range(min(_BATCH, len(self._waiting)))]
            try:
                taken = sink.write([encode(event) for event in batch], self.run)
            except Exception:  # noqa: BLE001 - a sink may be the application's
                _log.exception("audit: events could not be written; they are tried again")
                return False
            for _ in range(taken):
                self._waiting.popleft()
            if taken < len(batch):
                return False
        return True
