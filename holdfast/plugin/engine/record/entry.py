"""Entry: one record, or a run of records that stays together. Lane: entries that run one after the other.

A run costs a step of the engine for all its records. What goes wrong with one splits it: the run's other records become
entries of their own, each in the lane of its own key (`Lanes.apart`, `Lanes.shrink`). The gate and the clock are asked
for each record all the same: a process may be frozen between any two of them.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import TYPE_CHECKING

from holdfast.plugin.engine.record.offsets import spans
from holdfast.records import size_of

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from holdfast.dedup.claims import Claim
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Record


class EntryState(Enum):
    """The reason why an entry waits, or READY."""

    CLAIM = "claim"  #: its business key is not asked for yet
    BUSY = "busy"  #: its key is another's: it is asked for again later
    BEHIND_BUSY_KEY = "behind"  #: one before it in its lane waits for its key: it holds no claim, and asks for none
    WITH_FORMER_OWNER = "handed"  #: a former owner may still be working on it
    READY = "ready"  #: its turn, as soon as it is the first of its lane
    RETRY = "retry"  #: it failed and waits for the next attempt
    TAKEN = "taken"  #: handed to the workers
    STUCK = "stuck"  #: its handler runs and was given up; nothing else of it is under way
    ENDED = "ended"  #: its handler has ended well (or it is a duplicate); not settled
    GONE = "gone"  #: settled, or handed back


#: Entries that have not started: they can be handed back without waiting. A user's loop was not given them.
UNSTARTED = frozenset(
    {
        EntryState.CLAIM,
        EntryState.BUSY,
        EntryState.BEHIND_BUSY_KEY,
        EntryState.WITH_FORMER_OWNER,
        EntryState.READY,
        EntryState.RETRY,
    }
)


class Entry:
    """One record on its way; or a *run*: several of one partition, ascending, that came together, and of which nothing
    needs to be known of each alone. What goes wrong with one of them splits the run.

    No slots: most fields keep the values that they have in the class, which costs an entry nothing.
    """

    #: The claim is ours, or may be: the store was asked and did not answer.
    held = False
    #: Why its handler cannot even be called (no business key): the attempt fails with it.
    error: Exception | None = None
    #: Written by a worker, the first under the owner's gate: how many of its records have started, and have ended well,
    #: in this attempt. Counted from the first that it had when it was taken.
    started = 0
    ended = 0
    #: How many of those it has no more, since they were split off.
    base = 0
    #: A run's records that its worker has not taken: it takes from the left, the loop takes back from the right.
    todo: deque[Record]
    #: Wall clock of the last time that it was given to its handler; where there is an audit.
    began_ms = 0
    #: When it was last given to a worker, or to a loop of the user's.
    given_at = 0.0
    #: Which call has handed it out; where a loop of the user's is the handler.
    given = 0
    #: Attempts that have failed, and the error of the last one.
    attempt = 0
    failure: Exception | None = None
    #: How often the store said BUSY in a row.
    asked = 0
    #: Among what is in hand (`Unacked`).
    counted = False
    #: Whether it is among the followers of its lane: behind an entry that waits for its key.
    follows = False
    #: Whether it is in the queue of entries that ask for their keys (`Wanted`).
    queued = False
    #: The dead letter that is being sent, and how often that has failed.
    letter: Letter | None = None
    letters = 0
    #: One for each record of a run that has business keys.
    claims: Sequence[Claim] = ()
    #: The key of each record, in a lane of several keys.
    keys: Sequence[Hashable] = ()
    lane: Lane

    def __init__(self, record: Record, owner: Ownership, handler: Handler, claim: Claim | None, since: float) -> None:
        #: Its first, and all of them.
        self.record = record
        self.records: Sequence[Record] = (record,)
        self.count = 1
        self.owner = owner
        self.handler = handler
        self.claim = claim
        self.state = EntryState.READY if claim is None else EntryState.CLAIM
        self.since = since
        self.size = record.size_bytes

    @classmethod
    def run(
        cls,
        records: Sequence[Record],
        owner: Ownership,
        handler: Handler,
        since: float,
        claims: Sequence[Claim] = (),
    ) -> Entry:
        """Records of one partition, ascending; one or more. With a claim for each of them, or without."""
        entry = cls.__new__(cls)
        entry.owner, entry.handler, entry.since = owner, handler, since
        entry.state = EntryState.CLAIM if claims else EntryState.READY
        entry.hold(records, claims)
        return entry

    @property
    def asked_for(self) -> Sequence[Claim]:
        """All its claims."""
        return self.claims or ((self.claim,) if self.claim is not None else ())

    @property
    def over(self) -> bool:
        """Whether its lane need not wait for it any more."""
        gate = self.state
        return gate is EntryState.ENDED or gate is EntryState.GONE

    @property
    def with_loop(self) -> bool:
        """Whether a loop of the user's has it."""
        return self.given > 0 and self.state is EntryState.TAKEN

    @property
    def offsets(self) -> list[int]:
        """The offsets of all its records."""
        return [record.offset for record in self.records]

    @property
    def ranges(self) -> list[range]:
        """The offsets as ranges without gaps, ascending."""
        first, last = self.record.offset, self.records[-1].offset
        return [range(first, last + 1)] if last - first + 1 == self.count else spans(self.offsets)

    @property
    def unacked(self) -> list[int]:
        """Offsets that have started, and whose mark the store has not acknowledged."""
        if self.state is EntryState.ENDED or self.state is EntryState.STUCK:
            return self.offsets
        return self.offsets[: self.started - self.base] if self.state is EntryState.TAKEN else []

    @property
    def running(self) -> list[int]:
        """The records that have not ended."""
        if self.state is EntryState.TAKEN:
            return self.unacked[self.ended - self.base :]
        return self.offsets if self.state is EntryState.STUCK else []

    def taken(self) -> None:
        """Note that the entry is given to a worker."""
        self.state = EntryState.TAKEN
        self.started = self.ended = self.base = 0
        if self.count > 1:
            self.todo = deque(self.records)

    def check(self) -> None:
        """Raises why the handler cannot even be called, where that is so."""
        if self.error is not None:
            raise self.error

    # ---- splitting; it stays the same object for its worker
    def cut(self, at: int) -> Entry:
        """Take the records from that one on away, into an entry of their own."""
        other = self._part(at, self.count)
        self.keys = self.keys[:at]
        self._keep(self.records[:at], self.claims[:at], self.size - other.size)
        return other

    def behead(self, at: int) -> Entry:
        """Take the records before that one away, into an entry of their own, which has ended so far."""
        other = self._part(0, at)
        self.base += at
        self.keys = self.keys[at:]
        self._keep(self.records[at:], self.claims[at:], self.size - other.size)
        self.owner.entries[self.record.offset] = self
        return other

    def apart(self) -> list[Entry]:
        """An entry for each of its records."""
        pieces = [self._part(at, at + 1) for at in range(1, self.count)]
        self.keys = self.keys[:1]
        self._keep(self.records[:1], self.claims[:1], self.records[0].size_bytes)
        return [self, *pieces]

    def _part(self, start: int, stop: int) -> Entry:
        other = Entry.__new__(Entry)
        other.owner, other.handler, other.since = self.owner, self.handler, self.since
        records = self.records[start:stop]
        if len(records) * 2 <= self.count:
            size = size_of(records)
        else:  # the smaller part is looked at: a long run is cut many times
            size = self.size - size_of([*self.records[:start], *self.records[stop:]])
        other._keep(records, self.claims[start:stop], size)  # noqa: SLF001 - the same class
        other.held, other.began_ms, other.counted = self.held, self.began_ms, self.counted
        other.state, other.lane, other.keys = self.state, self.lane, self.keys[start:stop]
        other.follows, other.given, other.given_at = self.follows, self.given, self.given_at
        other.started = max(0, min(stop, self.started - self.base) - start)
        other.ended = max(0, min(stop, self.ended - self.base) - start)
        self.owner.entries[other.record.offset] = other
        return other

    def hold(self, records: Sequence[Record], claims: Sequence[Claim]) -> None:
        """Set the entry's records, and their claims."""
        self._keep(records, claims, size_of(records))

    def _keep(self, records: Sequence[Record], claims: Sequence[Claim], size: int) -> None:
        self.claims, self.claim = claims, claims[0] if claims else None
        self.record, self.records, self.count = records[0], records, len(records)
        self.size = size

    def __repr__(self) -> str:
        more = f"+{self.count - 1}" if self.count > 1 else ""
        return f"<{self.record.partition}@{self.record.offset}{more} {self.state.name}>"


class Wanted(deque[Entry]):
    """Entries whose keys are to be asked for, in this order; each stands here once, or a run would get two sets of
    answers."""

    def take(self) -> Entry:
        """Take the first one out."""
        entry = self.popleft()
        entry.queued = False
        return entry

    def ask(self, entry: Entry) -> None:
        """Put it behind all others."""
        entry.state = EntryState.CLAIM
        if not entry.queued:
            entry.queued = True
            self.append(entry)

    def ask_first(self, entries: Sequence[Entry]) -> None:
        """Put them before all others, in their order."""
        for entry in reversed(entries):
            if not entry.queued:
                entry.queued = True
                self.appendleft(entry)


class Lane:
    """Entries in the order in which they have to be handled.

    A lane of several keys was begun by a run of records with these keys. It lasts as long as that run; as soon as
    anything goes wrong with it, or somebody waits behind it when it has ended, each key gets a lane of its own.
    """

    __slots__ = ("due", "entries", "followers", "home", "key", "keys", "parked", "queued", "taken", "wary")

    def __init__(self, home: dict[Hashable, Lane], key: Hashable, keys: list[Hashable] | None = None) -> None:
        #: The lanes of its partition, by key.
        self.home = home
        self.key = key
        #: None: it has one key.
        self.keys = keys
        self.entries: deque[Entry] = deque()
        #: The entry that waits for a key that is another's. All entries behind it are followers: they hold no keys.
        self.parked: Entry | None = None
        #: Entries behind `entries`, in their order. They move to `entries` one by one, as they are let ask for their
        #: keys: so the cost of letting them ask, and of stopping them again, does not grow with their number.
        self.followers: deque[Entry] | tuple[()] = ()  # most lanes have none, and a deque takes 760 bytes
        #: Another member had a key: its followers ask for a few keys at first, and for twice as many each time.
        self.wary = False
        self.queued = False
        self.taken = 0
        #: When an incomplete batch has waited for long enough, as a timer says by then.
        self.due = 0.0

    def head(self) -> Entry | None:
        """The first entry that has not ended."""
        entries = self.entries
        while entries and entries[0].over:
            entries.popleft()
        return entries[0] if entries else None

    def ready(self, at_most: int) -> int:
        """How many records of its first entries may start together, counted up to `at_most`."""
        count, handler = 0, None
        for entry in self.entries:
            if entry.over:
                continue
            handler = handler or entry.handler
            if entry.state is not EntryState.READY or count >= at_most or entry.handler is not handler:
                break
            count += entry.count
        return min(count, at_most)

    @property
    def is_mixed(self) -> bool:
        """Whether another handler's record stands behind those of its first that are ready: so these stay as many."""
        head = self.head()
        for entry in self.entries:
            if head is None or entry.over:
                continue
            if entry.handler is not head.handler:
                return True
            if entry.state is not EntryState.READY:
                return False
        return False

    def add(self, entry: Entry) -> None:
        """Put it behind all others."""
        if self.parked is None and not self.followers:
            self.entries.append(entry)
            return
        entry.follows = True
        if entry.state is EntryState.CLAIM:
            entry.state = EntryState.BEHIND_BUSY_KEY
        self.follow(entry)

    def follow(self, entry: Entry) -> None:
        """Put it behind those who wait for the parked one."""
        self._line().append(entry)

    # ---- behind a busy key: only the lane itself changes what is parked, what follows and whether it is wary
    def park(self, entry: Entry, *, wary: bool = False) -> list[Entry]:
        """Park an entry until its key is free. Those behind it that have not started follow it from now on.

        Args: wary: another member has the key.

        Returns: those of them that ask for keys, or hold some.
        """
        self.wary = self.wary or wary
        asking: list[Entry] = []
        while (other := self.entries[-1]) is not entry and (other.over or other.state in _IDLE):
            self.entries.pop()
            if other.over:
                continue
            other.follows = True
            self._line().appendleft(other)
            if other.claim is not None and other.state is not EntryState.WITH_FORMER_OWNER:
                asking.append(other)
        self.parked = entry
        return asking[::-1]

    def go_on_behind(self, entry: Entry, wanted: Wanted) -> None:
        """Let followers ask for their keys, where the entry need not wait for its own. Where other members have keys,
        only two for each that has its own: if a key is busy, those that were asked for behind it were asked for in
        vain."""
        parked = self.parked is entry
        if parked:
            self.parked = None
        for _ in range(2 if self.wary else int(parked)):
            self.let_ask(wanted)

    def go_on_without(self, entry: Entry, wanted: Wanted) -> None:
        """Let a follower ask for its key, since the entry leaves, or asks for none any more."""
        if self.parked is entry:
            self.parked = None
        self.let_ask(wanted)

    def let_ask(self, wanted: Wanted) -> None:
        """Let the next follower ask for its key, unless another entry waits before it."""
        while self.followers and self.parked is None:
            entry = self.followers.popleft()
            self.wary = self.wary and bool(self.followers)
            if entry.over:
                continue
            entry.follows = False
            self.entries.append(entry)
            if entry.state is EntryState.BEHIND_BUSY_KEY:
                wanted.ask(entry)
                return  # of the others there is nothing to be asked, or not yet

    # ---- a lane of several keys ends: each key gets a lane of its own
    def take_apart(self) -> tuple[Entry | None, list[Entry]]:
        """Give all entries away. Returns: the parked one, and all of them in their order."""
        parked, entries = self.parked, [*self.entries, *self.followers]
        self.entries.clear()
        self.keys, self.parked, self.followers, self.taken = None, None, (), 0
        return parked, entries

    def take_over(self, entry: Entry, *, parked: bool) -> bool:
        """Put an entry of a lane that was taken apart behind all others.

        Args: parked: it is the parked one.

        Returns: False = it stays a follower.
        """
        entry.lane, entry.keys = self, ()
        if entry.follows and (self.parked is not None or self.followers):
            self.follow(entry)
            return False
        entry.follows = False
        self.entries.append(entry)
        self.taken += entry.state is EntryState.TAKEN
        if parked:
            self.parked = entry
        return True

    def replace(self, entry: Entry, pieces: Sequence[Entry]) -> None:
        """The pieces of an entry stand where it stood; nowhere, if it has left."""
        for piece in pieces:
            piece.lane = self
        if entry.state is EntryState.TAKEN:
            self.taken += len(pieces) - 1
        entries = self._line() if entry.follows else self.entries
        if entries and entries[0] is entry:
            entries.popleft()
            entries.extendleft(reversed(pieces))
        elif entries and entries[-1] is entry:
            entries.pop()
            entries.extend(pieces)
        elif entry in entries:
            at, others = entries.index(entry), list(entries)
            entries.clear()
            entries.extend([*others[:at], *pieces, *others[at + 1 :]])

    def _line(self) -> deque[Entry]:
        """The followers, to be changed."""
        if not self.followers:
            self.followers = deque()
        return self.followers


#: They have not started, and wait for no attempt: they go where their lane says.
_IDLE = UNSTARTED - {EntryState.RETRY}
