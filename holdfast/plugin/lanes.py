"""Lanes: what is handled one after the other. Pure scheduling; one thread."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator

    from holdfast.dedup.claims import Claim
    from holdfast.plugin.dead_letter import Letter
    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.ownership import Ownership
    from holdfast.records import Record


class Gate(Enum):
    """What an entry waits for."""

    CLAIM = "claim"  #: its business key is not asked for yet
    BUSY = "busy"  #: its key is another's: it is asked for again later
    BEHIND = "behind"  #: a BUSY one is before it in its lane; it holds no claim
    HANDED = "handed"  #: a former owner may still be working on it
    READY = "ready"  #: its turn, as soon as it is the first of its lane
    RETRY = "retry"  #: it failed and waits for the next attempt
    TAKEN = "taken"  #: handed to the workers
    ENDED = "ended"  #: its handler has ended well (or it is a duplicate); not settled
    GONE = "gone"  #: settled, or handed back


class Entry:
    """One record on its way."""

    __slots__ = (
        "asked",
        "attempt",
        "claim",
        "error",
        "gate",
        "handler",
        "held",
        "lane",
        "letter",
        "letters",
        "owner",
        "record",
        "since",
        "size",
        "started",
    )

    def __init__(self, record: Record, owner: Ownership, handler: Handler, claim: Claim | None, since: float) -> None:
        self.record = record
        self.owner = owner
        self.handler = handler
        self.claim = claim
        self.gate = Gate.READY if claim is None else Gate.CLAIM
        #: The claim is ours, or may be: the store was asked and did not answer.
        self.held = False
        #: Why its handler cannot even be called (no business key): the attempt fails with it.
        self.error: Exception | None = None
        #: Set by a worker under the owner's gate: this attempt runs, or has ended.
        self.started = False
        #: Attempts that have failed.
        self.attempt = 0
        #: How often the store said BUSY in a row.
        self.asked = 0
        #: The dead letter that is being sent, and how often that has failed.
        self.letter: Letter | None = None
        self.letters = 0
        self.since = since
        self.size = record.size_bytes
        self.lane: Lane

    @property
    def over(self) -> bool:
        """Whether its lane need not wait for it any more."""
        gate = self.gate
        return gate is Gate.ENDED or gate is Gate.GONE

    def check(self) -> None:
        """Raises why the handler cannot even be called, where that is so."""
        if self.error is not None:
            raise self.error

    def __repr__(self) -> str:
        return f"<{self.record.partition}@{self.record.offset} {self.gate.name}>"


class Lane:
    """Entries in the order in which they have to be handled."""

    __slots__ = ("entries", "key", "queued", "taken")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.entries: deque[Entry] = deque()
        self.queued = False
        self.taken = 0

    def head(self) -> Entry | None:
        """The first entry that has not ended."""
        entries = self.entries
        while entries and entries[0].over:
            entries.popleft()
        return entries[0] if entries else None

    def ready(self, at_most: int) -> int:
        """How many of its first entries may start, counted up to `at_most`."""
        count = 0
        for entry in self.entries:
            if entry.over:
                continue
            if entry.gate is not Gate.READY or count == at_most:
                break
            count += 1
        return count

    def parked(self, before: Entry | None = None) -> bool:
        """Whether its last entries (those before that one) wait for a key that is another's: who comes behind them may
        not hold claims."""
        ahead = before is None
        for entry in reversed(self.entries):
            if ahead and entry.gate in _PARKED:
                return True
            # A HANDED one says nothing: it asks for its key only later.
            if ahead and not entry.over and entry.claim is not None and entry.gate is not Gate.HANDED:
                return False
            ahead = ahead or entry is before
        return False

    def behind(self, entry: Entry) -> Iterator[Entry]:
        """All entries after that one which have not ended."""
        found = False
        for other in self.entries:
            if found and not other.over:
                yield other
            found = found or other is entry


_PARKED = frozenset({Gate.BUSY, Gate.BEHIND})


class Lanes:
    """All lanes, and those whose first entry may start."""

    def __init__(self) -> None:
        self._lanes: dict[Hashable, Lane] = {}
        self._ready: deque[Lane] = deque()
        #: Entries that are with the workers.
        self.taken = 0

    def __len__(self) -> int:
        return len(self._lanes)

    @property
    def ready(self) -> int:
        """Lanes whose first entry may start."""
        return len(self._ready)

    def add(self, entry: Entry, key: Hashable) -> None:
        """Put an entry behind all others of its lane."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(key)
        entry.lane = lane
        if entry.gate is Gate.CLAIM and lane.parked():
            entry.gate = Gate.BEHIND
        lane.entries.append(entry)
        self.wake(lane)

    def put_back(self, entry: Entry) -> None:
        """An entry that had ended must run again: it is the first of its lane."""
        lane = self._lanes.setdefault(entry.lane.key, entry.lane)
        with suppress(ValueError):  # it may not have left yet, behind another that had not ended
            entry.lane.entries.remove(entry)
        entry.lane = lane
        lane.entries.appendleft(entry)
        self.wake(lane)

    def wake(self, lane: Lane) -> None:
        """Look again: the lane's first entry may start now, or the lane is empty."""
        head = lane.head()
        if head is None:
            if not lane.taken and self._lanes.get(lane.key) is lane:
                del self._lanes[lane.key]
        elif not lane.queued and not lane.taken and head.gate is Gate.READY:
            lane.queued = True
            self._ready.append(lane)

    def next(self) -> Lane | None:
        """The lane that has been ready for longest."""
        while self._ready:
            lane = self._ready.popleft()
            lane.queued = False
            head = lane.head()
            if head is not None and not lane.taken and head.gate is Gate.READY:
                return lane
            self.wake(lane)
        return None

    def next_of(self, handler: Handler) -> Lane | None:
        """The next ready lane, if it is of that handler."""
        lane = self.next()
        head = lane.head() if lane else None
        if lane is None or head is None or head.handler is handler:
            return lane
        lane.queued = True
        self._ready.appendleft(lane)
        return None

    def take(self, lane: Lane, at_most: int) -> list[Entry]:
        """Take consecutive ready entries from the front of a lane that `next` gave."""
        taken: list[Entry] = []
        for entry in lane.entries:
            if entry.over:
                continue
            if entry.gate is not Gate.READY or len(taken) == at_most:
                break
            entry.gate = Gate.TAKEN
            entry.started = False
            taken.append(entry)
        lane.taken += len(taken)
        self.taken += len(taken)
        return taken

    def take_again(self, entry: Entry) -> None:
        """Take one that came back and stayed the first of its lane, for something else than its handler."""
        entry.gate = Gate.TAKEN
        entry.started = False
        entry.lane.taken += 1
        self.taken += 1

    def back(self, entry: Entry, gate: Gate) -> None:
        """A taken entry is back from the workers."""
        entry.gate = gate
        entry.lane.taken -= 1
        self.taken -= 1
        self.wake(entry.lane)

    def drop(self, entry: Entry) -> None:
        """An entry that was not taken leaves."""
        entry.gate = Gate.GONE
        self.wake(entry.lane)
