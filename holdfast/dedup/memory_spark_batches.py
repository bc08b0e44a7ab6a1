"""The table of spark_batches.py as Python: the executable specification, over a MemoryClaims."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.claims import ClaimKey
from holdfast.dedup.memory_state import Claimed
from holdfast.dedup.memory_state import Finished as Done
from holdfast.dedup.spark_batches import (
    Attempt,
    BatchVerdict,
    Begun,
    Behind,
    Elsewhere,
    Fate,
    Finished,
    Lost,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.claims import ClaimSession
    from holdfast.dedup.memory import MemoryClaims
    from holdfast.dedup.spark_batches import BatchId


class _Ended(NamedTuple):
    attempt: Attempt
    origin: str
    until: float  # when its keys stop being done
    keys: str  # a print of its keys


@dataclass(slots=True, kw_only=True)
class _Sink:
    born: int = 0
    current: Attempt | None = None
    origin: str = ""  # of the current attempt
    waits: tuple[BatchId, str] | None = None  # the batch that has the next turn, and its session
    last: Attempt | None = None
    finished: dict[str, _Ended] = field(default_factory=dict)  # query -> its last finished attempt


class MemoryBatches:
    """Attempts in one process; nothing outlives the object. Any thread may call."""

    def __init__(self, store: MemoryClaims) -> None:
        self._state = store.state
        self._sinks: dict[str, _Sink] = {}
        self._number = 0
        #: Stands for the server's id; tests change it for a failover.
        self.life = "1"

    def begin(
        self, batch: BatchId, session: ClaimSession, *, origin: str = "", beside: Attempt | None = None
    ) -> Begun | Finished | Behind | Elsewhere | Lost:
        """Ask for the next attempt."""
        with self._state.lock:
            self._state.answer()
            sink = self._sinks.setdefault(batch.sink, _Sink(born=int(self._state.clock.now() * 1000)))
            done = sink.finished.get(batch.query)
            if done is not None and done.attempt.of.batch > batch.batch:
                return Behind(done.attempt.of.batch)
            if done is not None and done.attempt.of.batch == batch.batch:
                kept = self._state.clock.now() <= done.until
                if done.attempt != beside or not kept:
                    return Finished(done.attempt, done.origin, kept, done.keys)
            if not self._state.alive(session.id):
                return Lost.FENCED
            current, waits = sink.current, sink.waits
            if current is not None and current.session == session.id:
                return Begun(replace(current, life=self.life), sink.last)
            if waits is not None and (waits[0].query == batch.query or not self._state.alive(waits[1])):
                waits = None
            first = waits
            if current is not None and self._state.alive(current.session):
                if current.of.query == batch.query:
                    self._state.kill(current.session)
                    first = None
                else:
                    first, waits = (current.of, current.session), waits or (batch, session.id)
            sink.waits = waits
            if first is not None:
                left_s = self._state.sessions[first[1]].deadline - self._state.clock.now()
                return Elsewhere(first[0].query, first[0].batch, left_s)
            self._number += 1
            sink.current = Attempt(batch, self._number, session.id, sink.born, self.life)
            sink.origin = origin
            return Begun(sink.current, sink.last)

    def claim(self, attempt: Attempt, keys: Sequence[str]) -> list[BatchVerdict]:
        """Ask for keys."""

        def one(key: ClaimKey) -> BatchVerdict:
            if not self._state.alive(attempt.session) or attempt.life != self.life:
                return BatchVerdict.FENCED
            held = self._state.key(key)
            own = Claimed(attempt.session, attempt.token)
            if isinstance(held, Done):
                return BatchVerdict.DONE
            if held is not None and held != own and self._state.alive(held.session):
                return BatchVerdict.BUSY
            self._state.keys[key] = own
            return BatchVerdict.NEW if held in (None, own) else BatchVerdict.TAKEN_OVER

        with self._state.lock:
            self._state.answer()
            return [one(ClaimKey(attempt.of.sink, key)) for key in keys]

    def finish(self, attempt: Attempt, *, keys: str = "") -> bool:
        """End the attempt after its write."""
        with self._state.lock:
            self._state.answer()
            sink = self._sinks.get(attempt.of.sink, _Sink())
            ended = sink.finished.get(attempt.of.query)
            if ended is not None and ended.attempt == attempt:
                return True
            if sink.current != attempt or not self._state.alive(attempt.session) or attempt.life != self.life:
                return False
            del self._state.sessions[attempt.session]
            own = Claimed(attempt.session, attempt.token)
            until = self._state.clock.now() + self._state.window_s
            done = Done(until)
            self._state.keys |= {key: done for key, held in self._state.keys.items() if held == own}
            sink.finished[attempt.of.query] = _Ended(attempt, sink.origin, until, keys)
            sink.last = attempt
            return True

    def fate(self, attempt: Attempt) -> Fate:
        """Whether it lives; else, why not."""
        with self._state.lock:
            self._state.answer()
            sink = self._sinks.get(attempt.of.sink)
            if sink is None or sink.current is None or sink.born != attempt.born or self._number < attempt.number:
                return Fate.LOST
            if sink.current != attempt:
                return Fate.TAKEN
            if attempt.life != self.life:
                return Fate.MOVED
            return Fate.LIVES if self._state.alive(attempt.session) else Fate.SILENT

    def give_up(self, session: str) -> None:
        """End the attempt of this session, unless it is finished."""
        with self._state.lock:
            self._state.answer()
            self._state.sessions.pop(session, None)

    def done(self, scope: str, keys: Sequence[str]) -> list[bool]:
        """Which keys are done."""
        with self._state.lock:
            self._state.answer()
            return [isinstance(self._state.key(ClaimKey(scope, key)), Done) for key in keys]
