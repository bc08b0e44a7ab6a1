"""Ownership: the state of one partition from its assignment to its end, and the gate at each handler's start.

A fence (`record.fence.epoch`) is the position's birth in the store's milliseconds plus its epoch: it goes on rising
where epochs begin anew. Marks and tokens carry the bare epoch (`Ownership.store_epoch`).
"""

from __future__ import annotations

import sys
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.dedup.claims import Mark
from holdfast.dedup.offset_set import Runs
from holdfast.errors import StateError
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.claims import Acquired, ClaimSession
    from holdfast.plugin.engine.partition.made import Made
    from holdfast.records import Partition, Record
    from holdfast.runtime import Runtime


class Phase(IntEnum):
    """Moves up only. RESETTING and ADOPTING are left out where the committed offset is ours."""

    ASSIGNED = 1  #: the client has it; the store does not know
    ACQUIRED = 2  #: ours at the store; the committed offset is not read yet
    RESETTING = 3  #: somebody has set the offset: what we know from there on is being dropped
    ADOPTING = 4  #: that offset is being committed with our mark
    OWNED = 5  #: records may start
    FENCED = 6  #: nothing new starts; what runs may end, be marked and committed
    GONE = 7  #: let go (or owed): nothing is committed any more


_OWNED = Phase.OWNED
#: Whether the interpreter runs one thread at a time, so that all see changes in the order in which they were made.
ONE_THREAD_AT_A_TIME: bool = getattr(sys, "_is_gil_enabled", lambda: True)()


class Starting(Protocol):
    """An entry as the start gate sees it."""

    #: How many of its records have started, and how many there are.
    started: int
    count: int


class Look(NamedTuple):
    """A gap into which the client was sent back, and what it had brought behind it."""

    gap: range
    #: The end of the log; else a record.
    at_end: bool
    #: How many looks before found a smaller gap.
    larger: int = 0
    #: The client was sent back for it.
    sought: bool = False


class Ownership:
    """One partition, owned once. Also what its records carry as their fence.

    All fields belong to the thread that runs the app, except `enter`, `still_ours`, `cancelled` and `overdue`, which
    workers call.
    """

    __slots__ = (
        "_gate",
        "_live",
        "_phase",
        "acquire_unanswered",
        "acquired",
        "adopting",
        "again",
        "begins",
        "believed_until",
        "commit_sent",
        "committed",
        "committed_at",
        "cut",
        "elsewhere",
        "entries",
        "first_start",
        "handed_over",
        "in_process",
        "in_process_bytes",
        "late",
        "ledger",
        "made",
        "moved_at",
        "moved_to",
        "name",
        "owned",
        "partition",
        "second_look",
        "seek_needed",
        "seeks",
        "session_",
        "sought_at",
        "suspect",
        "told",
        "waiting",
    )

    def __init__(
        self, partition: Partition, session: ClaimSession, *, cut: int | None = None, runtime: Runtime = MACHINE
    ) -> None:
        """Args: cut: the offset at which the log was cut; it counts as a reset of the group to it."""
        self.partition = partition
        self.session_ = session
        self._live = session.live  # asked for each record
        self._phase = Phase.ASSIGNED
        self._gate = runtime.lock()
        #: The position's name in the store; empty until it is known.
        self.name = ""
        self.acquired: Acquired | None = None
        #: An acquire was sent and its answer never came: the store may or may not have made us the owner.
        self.acquire_unanswered = False
        self.cut = cut
        #: Offsets below are replayed on purpose, after a reset: that their message was handled before says nothing.
        self.again = 0
        #: No member of the group had the partition before.
        self.begins = False
        #: The offset of the last reset: of one that is adopted, or of a move back.
        self.adopting = 0
        self.ledger = Ledger(0)  # of no meaning before `own`
        #: Offsets that former owners may still be working on.
        self.waiting: set[int] = set()
        #: What handlers have made of its records, for a transaction; None = the source has none.
        self.made: Made | None = None
        #: Entries that were polled and are not settled, by offset. Not typed: the module of `Entry` imports this one.
        self.entries: dict[int, Any] = {}
        #: Their records and bytes (`flow/intake.py` counts them).
        self.in_process = self.in_process_bytes = 0
        #: Offsets that were listed as in hand when the partition was let go.
        self.handed_over: frozenset[int] = frozenset()
        #: Offsets whose handlers run for longer than they may.
        self.late: set[int] = set()
        #: When its watermark moved last by what was handled here, by the engine's clock.
        self.moved_at = 0.0
        #: When its first record started, by the engine's clock; for reports.
        self.first_start: float | None = None
        #: The last offset that the broker has acknowledged, and the one that is under way.
        self.committed: int | None = None
        self.commit_sent: int | None = None
        self.committed_at = 0.0
        #: The offset that another program has committed. A lower commit of ours would take the group back.
        self.elsewhere = -1
        #: Where a user's loop has had its reader go on last (`own_loop/moves.py`).
        self.moved_to = 0
        #: Whether it has been OWNED: only then its ledger may be committed.
        self.owned = False
        #: The client stands somewhere else: seek before anything is delivered.
        self.seek_needed = False
        #: An offset that came though a higher one had come: is the log another, or has only the client gone back?
        self.suspect: int | None = None
        #: How often in a row the client was not ready to seek.
        self.seeks = 0
        #: When the client was sent elsewhere, by the engine's clock, if it has brought nothing since; else 0.
        self.sought_at = 0.0
        #: Whether the audit knows of it.
        self.told = False
        #: Up to then gaps are the log's own, by the engine's clock; and the gap into which the client was sent back.
        #: See `Holes`, which alone changes both.
        self.believed_until = 0.0
        self.second_look: Look | None = None

    # ---- as a fence (any thread)
    @property
    def epoch(self) -> int:
        """The fence; 0 before it is acquired, and without a store: epochs of one process are no numbers to compare."""
        acquired = self.acquired
        return acquired.born_ms + acquired.epoch if acquired and acquired.born_ms else 0

    @property
    def session(self) -> str:
        """The owner's session id."""
        return self.session_.id

    @property
    def cancelled(self) -> bool:
        """Whether this ownership is over: handed on, lost, or its session ran out."""
        return self._phase is Phase.GONE or not self.session_.live()

    def overdue(self, record: Record) -> bool:
        """Whether that record's handler runs for longer than it may."""
        return record.offset in self.late

    # ---- the state
    @property
    def store_epoch(self) -> int:
        """The epoch at the store, which marks and tokens carry; 0 before it is acquired."""
        return self.acquired.epoch if self.acquired else 0

    @property
    def phase(self) -> Phase:
        """Where it stands."""
        return self._phase

    def move(self, phase: Phase) -> None:
        """Go on. Raises StateError for a move back."""
        if phase <= self._phase:
            raise StateError(f"{self.partition}: {self._phase.name} -> {phase.name}")
        with self._gate:  # from here on `enter` sees it
            self._phase = phase

    @property
    def is_owned(self) -> bool:
        """Whether records may start, and may be tried again, here."""
        return self._phase is Phase.OWNED

    @property
    def is_gone(self) -> bool:
        """Whether it was let go, or lost."""
        return self._phase is Phase.GONE

    @property
    def open(self) -> bool:
        """Whether the source may deliver: it is owned, and the client stands where it has to."""
        return self._phase is Phase.OWNED and not self.seek_needed

    @property
    def next_offset(self) -> int:
        """The first offset that has not come yet; of no meaning before it is owned."""
        return self.ledger.next

    @property
    def committable(self) -> int:
        """The offset to which its records, and what was made of them, may be committed."""
        return self.ledger.watermark if self.made is None else self.made.up_to(self.ledger.watermark)

    def mark(self, done: Sequence[range]) -> Mark:
        """The mark that tells the store of these offsets. Args: done: open ones, as `joined` gives them."""
        offsets = done[0] if len(done) == 1 else Runs(done)
        return Mark(self.name, self.store_epoch, self.ledger.watermark_with(done), offsets, self.is_gone)

    def own(self, ledger: Ledger) -> None:
        """The ledger is right: records may start as soon as the client stands where the ledger begins.

        Whoever tells the client where to begin in the very call that hands the partition to it (`Partitions.assigned`)
        clears `seek_needed`; for all others the loop seeks.
        """
        self.ledger = ledger
        self.owned = self.seek_needed = True
        self.move(Phase.OWNED)

    def enter(self, entry: Starting) -> bool:
        """The start gate: a worker asks whether it may start the next record of an entry. It may only while the
        partition is owned and, by our own clock, the session lives.

        It says that the record has started, and then looks. So once `move(FENCED)` has returned, the record either
        counts as started, or never will be: who has fenced sees what was said, or is seen here. Until a refusal is
        taken back, the record may be listed as in hand; it is released when it comes back. The clock is asked for each
        record, also in a run: a process may be frozen between any two of them.
        """
        entry.started += 1
        if self._phase is _OWNED and self._live():
            return True
        entry.started -= 1
        return False

    def _enter_locked(self, entry: Starting) -> bool:
        """Do the same under the gate, where threads run beside each other and may see changes in another order."""
        with self._gate:
            if self._phase is not _OWNED or not self._live():
                return False
            entry.started += 1
            return True

    if not ONE_THREAD_AT_A_TIME:
        enter = _enter_locked

    def enter_all(self, entries: Sequence[Starting]) -> bool:
        """Open the start gate for all records of these entries, which start together; or for none of them.

        The clock is asked once: a process that was frozen between two of its entries must not start the first ones.
        """
        with self._gate:
            if self._phase is not _OWNED or not self._live():
                return False
            for entry in entries:
                entry.started = entry.count
            return True

    def still_ours(self, offset: int) -> bool:
        """Whether what has started there is ours to bring to an end: not let go yet, or handed over (others wait)."""
        if not self.session_.live():
            return False
        return self._phase < Phase.GONE or offset in self.handed_over

    def __repr__(self) -> str:
        return f"<{self.partition} {self._phase.name} epoch={self.store_epoch} watermark={self.ledger.watermark}>"
