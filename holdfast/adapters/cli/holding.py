"""Positions that a command owns for a while, by the calls of an app's own session: nobody else works there then."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from holdfast.dedup.claims import Acquired, AskInHand, Drop, InHand, LetGo, Mark
from holdfast.errors import StoreError, StoreRefused, StoreUnavailable
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.dedup.claims import ClaimSession, ClaimStore
    from holdfast.timing import Deadline

T = TypeVar("T")
#: What has a position: a partition, say.
K = TypeVar("K", bound=Hashable)

#: Of a command that was killed the next one waits for the lease to end.
LEASE_S = 10.0
_AGAIN_S = 0.2
_FENCED = "this command was silent for longer than its lease and another process has taken over: run it again"


class Holder(Protocol[K]):
    """Positions in a command's hands."""

    def take(self, deadline: Deadline) -> Mapping[K, Acquired]:
        """Own all of them."""
        ...

    def check(self) -> None:
        """Before something is done that only the owner may do."""
        ...

    def busy(self, deadline: Deadline) -> dict[K, list[int]]:
        """Offsets that a process which has left still works on."""
        ...

    def mark(self, done: Mapping[K, tuple[int, Sequence[int]]], deadline: Deadline) -> None:
        """Note watermarks and offsets as done."""
        ...

    def drop(self, offsets: Mapping[K, int], deadline: Deadline) -> None:
        """Each goes on from there."""
        ...

    def close(self) -> None:
        """Let them go."""
        ...


def holding_of(store: ClaimStore | None, names: Mapping[K, str], tell: Callable[[str], None]) -> Holder[K]:
    """Hold positions, as `Holding`; None: the app has no store, so there are none."""
    return _NoPositions(names) if store is None else Holding(store, names, tell)


class _NoPositions(Generic[K]):
    """Nothing is known, and nothing is kept."""

    def __init__(self, names: Mapping[K, str]) -> None:
        self._nothing = {each: Acquired(0, 0, frozenset(), frozenset()) for each in names}

    def take(self, deadline: Deadline) -> Mapping[K, Acquired]:
        del deadline
        return self._nothing

    def check(self) -> None: ...

    def busy(self, deadline: Deadline) -> dict[K, list[int]]:
        del deadline
        return {}

    def mark(self, done: Mapping[K, tuple[int, Sequence[int]]], deadline: Deadline) -> None: ...

    def drop(self, offsets: Mapping[K, int], deadline: Deadline) -> None: ...

    def close(self) -> None: ...


class Holding(Generic[K]):
    """One thread.

    Args:
        store: where the positions are.
        names: theirs.
        tell: takes a line for people, where it has to wait.
    """

    def __init__(self, store: ClaimStore, names: Mapping[K, str], tell: Callable[[str], None]) -> None:
        self._store, self._names, self._tell = store, names, tell
        self._session: ClaimSession | None = None
        self.acquired: dict[K, Acquired] = {}

    def take(self, deadline: Deadline) -> Mapping[K, Acquired]:
        """Own all of them. Raises StoreRefused: another session that lives holds one at the deadline."""
        self._session = session = asked(partial(self._store.begin, LEASE_S), deadline)
        wanted, told = list(self._names), False
        while wanted:
            replies = asked(partial(session.acquire, [self._names[each] for each in wanted]), deadline)
            self.acquired |= {
                each: reply for each, reply in zip(wanted, replies, strict=True) if isinstance(reply, Acquired)
            }
            self.check()
            wanted = [each for each in wanted if each not in self.acquired]
            if wanted and deadline.passed:
                raise StoreRefused(
                    f"a live process still holds {', '.join(map(str, wanted))} in the store: stop it, and try "
                    "again (one that was killed counts as alive until its lease has ended)"
                )
            if wanted and not told:
                told = True
                self._tell(f"waiting for the process that holds {', '.join(map(str, wanted[:3]))} in the store")
            if wanted:
                SYSTEM_CLOCK.sleep(deadline.left_s(_AGAIN_S))
        return self.acquired

    def check(self) -> None:
        """Before something is done that only the owner may do. Raises StoreUnavailable: somebody else may be by now."""
        if not self._live().live():
            raise StoreUnavailable(f"the store has not answered: {_FENCED}")

    def busy(self, deadline: Deadline) -> dict[K, list[int]]:
        """Offsets that a process which has left still works on, and which may still end well."""
        polls = {each: found for each, found in self.acquired.items() if found.running}
        if not polls:
            return {}
        asking = [AskInHand(self._names[each], found.epoch, sorted(found.running)) for each, found in polls.items()]
        replies = asked(partial(self._live().poll, asking), deadline)
        busy = {}
        for (partition, found), reply in zip(polls.items(), replies, strict=True):
            if not isinstance(reply, InHand):
                raise StoreRefused(_FENCED)
            if left := sorted(found.running - reply.done - reply.yours):
                busy[partition] = left
        return busy

    def mark(self, done: Mapping[K, tuple[int, Sequence[int]]], deadline: Deadline) -> None:
        """Note watermarks and offsets as done. Raises StoreRefused: they are not noted, somebody else is the owner."""
        marks = [
            Mark(self._names[each], self.acquired[each].epoch, watermark, offsets)
            for each, (watermark, offsets) in done.items()
        ]
        if any(asked(partial(self._live().mark, marks), deadline)):
            raise StoreRefused(_FENCED)

    def drop(self, offsets: Mapping[K, int], deadline: Deadline) -> None:
        """Each goes on from there: done is what is below, nothing else is known."""
        drops = [Drop(self._names[each], self.acquired[each].epoch, offset) for each, offset in offsets.items()]
        if not all(asked(partial(self._live().drop, drops), deadline)):
            raise StoreRefused(_FENCED)

    def close(self) -> None:
        """Let them go, so that the next owner need not wait. Does not raise; idempotent."""
        session, self._session = self._session, None
        if session is None:
            return
        try:
            session.let_go([LetGo(self._names[each], found.epoch, ()) for each, found in self.acquired.items()])
            session.end()
        except StoreError:
            session.abandon()  # the lease ends by itself
        self.acquired = {}

    def _live(self) -> ClaimSession:
        if self._session is None:
            raise AssertionError(self)
        return self._session


def asked(ask: Callable[[], T], deadline: Deadline) -> T:
    """Ask until there is an answer. Raises StoreUnavailable at the deadline."""
    while True:
        try:
            return ask()
        except StoreUnavailable:
            if deadline.passed:
                raise
            SYSTEM_CLOCK.sleep(deadline.left_s(_AGAIN_S))
