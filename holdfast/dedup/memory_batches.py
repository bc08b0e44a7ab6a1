"""The table of batches.py as Python: the executable specification, over a MemoryClaims."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.dedup.batches import (
    Attempt,
    BatchVerdict,
    Begun,
    Behind,
    Elsewhere,
    Finished,
    Lost,
)
from holdfast.dedup.claims import ClaimKey
from holdfast.dedup.memory_state import Claimed
from holdfast.dedup.memory_state import Finished as Done

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.batches import BatchId
    from holdfast.dedup.claims import ClaimSession
    from holdfast.dedup.memory import MemoryClaims


@dataclass(slots=True, kw_only=True)
class _Sink:
    born: int = 0
    current: Attempt | None = None
    last: Attempt | None = None
    finished: dict[str, Attempt] = field(default_factory=dict)  # query -> its last one


class MemoryBatches:
    """Attempts in one process; nothing outlives the object. Any thread may call."""

    def __init__(self, store: MemoryClaims) -> None:
        self._state = store.state
        self._sinks: dict[str, _Sink] = {}
        self._number = 0

    def begin(self, batch: BatchId, session: ClaimSession) -> Begun | Finished | Behind | Elsewhere | Lost:
        """Ask for the next attempt."""
        with self._state.lock:
            self._state.answer()
            sink = self._sinks.setdefault(batch.sink, _Sink(born=int(self._state.clock.now() * 1000)))
            done = sink.finished.get(batch.query)
            if done is not None and done.of.batch > batch.batch:
                return Behind(done.of.batch)
            if done is not None and done.of.batch == batch.batch:
                return Finished(done)
            if not self._state.alive(session.id):
                return Lost.FENCED
            current = sink.current
            if current is not None and current.session == session.id:
                return Begun(current, sink.last)
            if current is not None and self._state.alive(current.session):
                if current.of.query != batch.query:
                    left_s = self._state.sessions[current.session].deadline - self._state.clock.now()
                    return Elsewhere(current.of.query, current.of.batch, left_s)
                self._state.kill(current.session)
            self._number += 1
            sink.current = Attempt(batch, self._number, session.id, sink.born)
            return Begun(sink.current, sink.last)

    def claim(self, attempt: Attempt, keys: Sequence[str]) -> list[BatchVerdict]:
        """Ask for keys."""

        def one(key: ClaimKey) -> BatchVerdict:
            if not self._state.alive(attempt.session):
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

    def finish(self, attempt: Attempt) -> bool:
        """What is claimed is written."""
        with self._state.lock:
            self._state.answer()
            sink = self._sinks.get(attempt.of.sink, _Sink())
            if sink.finished.get(attempt.of.query) == attempt:
                return True
            if sink.current != attempt or not self._state.alive(attempt.session):
                return False
            del self._state.sessions[attempt.session]
            own = Claimed(attempt.session, attempt.token)
            done = Done(self._state.clock.now() + self._state.window_s)
            self._state.keys |= {key: done for key, held in self._state.keys.items() if held == own}
            sink.finished[attempt.of.query] = sink.last = attempt
            return True

    def give_up(self, session: str) -> None:
        """End it."""
        with self._state.lock:
            self._state.answer()
            self._state.sessions.pop(session, None)

    def done(self, scope: str, keys: Sequence[str]) -> list[bool]:
        """Which keys are done."""
        with self._state.lock:
            self._state.answer()
            return [isinstance(self._state.key(ClaimKey(scope, key)), Done) for key in keys]
