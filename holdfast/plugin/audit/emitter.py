"""The emitter: events on their way from a consumer to their sink. Bounded; what it cannot take it drops and counts."""

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

#: So many events more than the buffer holds are taken of what comes a few times in a run: its beginning and its end.
_SPARE = 16
#: So many are encoded and handed to the sink at once.
_BATCH = 500
#: While the sink takes nothing.
_AGAIN_S = 0.2


class Emitter:
    """One start of one consumer: its run. `put` never waits; a thread of its own encodes and writes.

    Any thread may `put`, one after the other: whoever needs an order holds a lock around it. A forked child is another
    run, which has to be started: two that number their events under one name would hide each other's.
    """

    def __init__(self, audit: Audit, group: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._audit, self._group, self._clock = audit, group, clock
        #: Of the processes that this one was forked from: to be left alone, a client's threads are not here.
        self._not_ours: list[Sink] = []
        self._sink: Sink | None = None
        self._begin()
        after_fork(self, Emitter._begin)

    def _begin(self) -> None:
        if self._sink is not None:
            self._not_ours.append(self._sink)
        self.member = self._audit.member or f"{socket.gethostname()}-{os.getpid()}"
        self.run = secrets.token_hex(8)
        #: Events that were taken. One more than the number of the last one.
        self.taken = 0
        self._refused = 0
        self._waiting: deque[Event] = deque()
        self._due: Callable[[], None] = lambda: None
        self._wake = threading.Event()
        self._until: Deadline | None = None
        self._sink = None
        self._thread: threading.Thread | None = None

    def start(self, due: Callable[[], None]) -> None:
        """Open the sink and begin; `due` is called by the thread each `flush_s`. Raises SettingError, OSError."""
        self._due = due
        self._sink = self._audit.events.open(self.member, self.run)
        self._thread = threading.Thread(target=self._work, name=f"holdfast-{self._group}-audit", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """Events that were given up: there was no room, or the sink has lost them."""
        return self._refused + (self._sink.lost if self._sink is not None else 0)

    def put(self, body: Body, *, must: bool = False) -> None:
        """One event. Where there is no room it is dropped; what `must` go has a little more."""
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
        """There is something that need not wait for the next flush."""
        self._wake.set()

    def close(self) -> None:
        """Write what waits, for `close_s` at most, and let the thread end."""
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
        except Exception:  # noqa: BLE001 - a defect here is not to end what can be told
            _log.exception("audit: spans could not be told")

    def _write(self, sink: Sink) -> bool:
        """Whether all is out."""
        while self._waiting:
            batch = [self._waiting[at] for at in range(min(_BATCH, len(self._waiting)))]
            try:
                taken = sink.write([encode(event) for event in batch], self.run)
            except Exception:  # noqa: BLE001 - a sink of somebody else's
                _log.exception("audit: events could not be written; they are tried again")
                return False
            for _ in range(taken):
                self._waiting.popleft()
            if taken < len(batch):
                return False
        return True
