"""Queue leases: let one member at a time handle a queue, for sources that do not tell who owns it.

A client that hands out queues among its members without a word (see `QueueLeasedSource`) may let two of them read one
queue for a while. What keeps a message from running twice is its claim, always. The lease is for the rest: the first
record of a queue waits until the former owner has ended what it had in hand, or is dead.

    a record came > acquire its queue's position > (patience at most) > it goes on
    nothing of the queue came for a while, and nothing is in hand > mark > let go

No member can be asked to let go: the client does not say that it has lost a queue, it only delivers no more of it. So a
wait has an end, after which the queue's records go by their claims alone: two that hold one queue for long cannot block
each other. What is marked is what was done, each offset for itself; the watermark follows where none is missing.
Offsets that never come (filtered out by tags, sent back) are passed over by the group's offset at the broker: below it
every record was answered by some member, or sent back, which makes it another record.

Nothing is skipped for its offset: what is known as done may be of another log, where the topic was made again or the
broker's store was emptied, and no offset says of which. The claims know messages, and so tell logs apart: a record that
is known as done by its offset, and had to run nevertheless, shows that what is known is of another log. It is forgotten
then, or who reads this queue by positions next would skip the new log's records.

- A queue's offset at the broker may be the word of a member whose client has skipped records. It moves a watermark
  only over what has come here, is answered, and nothing below which comes until the next look, 30 s later.
- Marks are late on purpose (0.1 s): until then the claims say what is done, and no record waits for one more call.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.dedup.claims import Acquired, Drop, LetGo, Mark, Verdict
from holdfast.dedup.offset_set import OffsetSet, runs
from holdfast.errors import SourceError
from holdfast.plugin.events import ResetHonoured, SourceTrouble
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from holdfast.dedup.claims import ClaimSession
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.sessions import Sessions
    from holdfast.plugin.engine.store.outage import Outage
    from holdfast.plugin.events import Event
    from holdfast.plugin.ports import QueueLeasedSource
    from holdfast.records import Partition, Record
    from holdfast.timing import Clock

#: After how long without a record a queue is let go. A batch's next record comes within microseconds.
_IDLE_S = 0.25
#: How often what is done is marked; before a queue is let go in any case.
_MARK_EVERY_S = 0.1
#: How often a queue is asked for that another has.
_AGAIN_S = 0.05
#: How often the group's offset is looked at, which lets the watermark pass over what never comes.
_LOOK_EVERY_S = 30.0
_LOOK_S = 0.5
_LOOK_AGAIN_S = 5.0
#: Batches of one queue come by several threads: by then the first of all has come.
_FIRST_S = 3.0


@dataclass(slots=True, kw_only=True)
class _QueueLease:
    """One queue, as this member sees it."""

    queue: Partition
    name: str
    #: Its position is ours; or was asked for, or given back, without an answer.
    acquired: Acquired | None = None
    unsure: bool = False
    epoch: int = 0
    #: Records that wait, the first of them since then. After the patience they do no more, until it is ours.
    held: deque[Record] = field(default_factory=deque)
    waits_since: float | None = None
    passing: bool = False
    ask_at: float = 0.0
    #: Offsets in the process, and when the last came or left.
    in_flight: set[int] = field(default_factory=set)
    moved_at: float = 0.0
    #: Offsets that are done: all below the watermark, and these. And those that are still to be marked.
    watermark: int = 0
    above: OffsetSet = field(default_factory=OffsetSet)
    done: list[int] = field(default_factory=list)
    #: A record ran that is known as done: what is known is of another log. Nothing is marked until it is forgotten.
    refuted: bool = False
    #: When the broker is asked next what it says of the queue.
    look_at: float = 0.0
    #: The group's offset as it was then, as far as it could be believed; and the lowest offset that has come since.
    believed: int | None = None
    believed_at: float = -math.inf
    came_since: int = 0
    #: Where the client had to begin, and where it did; judged once, then.
    judged: bool = False
    expected: int | None = None
    lowest: int | None = None
    highest: int = -1
    judge_at: float = 0.0

    @property
    def idle(self) -> bool:
        """Whether none of its records waits or is in the process."""
        return not self.held and not self.in_flight

    def known(self, offset: int) -> bool:
        """Whether it is noted as done."""
        return offset < self.watermark or offset in self.above

    def advance(self, watermark: int = 0) -> None:
        """Everything below that is done too, and then what follows without a gap."""
        self.watermark = self.above.first_missing(max(self.watermark, watermark))
        self.above.remove_below(self.watermark)

    def lost(self) -> None:
        """Note that the queue is not ours any more."""
        self.acquired, self.unsure, self.refuted = None, False, False
        self.done.clear()


class QueueLeases:
    """One thread, the one that runs the app."""

    def __init__(
        self,
        source: QueueLeasedSource,
        *,
        sessions: Sessions,
        outage: Outage,
        clock: Clock,
        tell: Callable[[Event], None],
    ) -> None:
        self._source, self._sessions, self._outage, self._clock, self._tell = source, sessions, outage, clock, tell
        self._leases: dict[Partition, _QueueLease] = {}
        #: The leases of records in the process, by partition and offset.
        self._entered: dict[tuple[Partition, int], _QueueLease] = {}
        self._look_at = self._mark_at = 0.0

    # ---- a record's way
    def sift(self, records: Sequence[Record]) -> list[Record]:
        """The records, of these and of those that wait, that may be handled now. Others wait."""
        go = []
        for record in records:
            lease = self._lease(record)
            if lease is None:
                go.append(record)
            else:
                self._hold(lease, record)
        session = self._sessions.session
        if session is None:
            return go
        if self._outage.may_ask:
            with self._outage.asking():
                self._mark(session)
                self._acquire(session)
                self._let_go(session)
        for lease in self._leases.values():
            self._look(lease, session)
            self._judge(lease)
            go += self._open(lease)
        return go

    def entered(self, record: Record) -> None:
        """Note that the record is in the process."""
        lease = self._lease(record)
        if lease is not None:
            lease.in_flight.add(record.offset)
            self._entered[record.partition, record.offset] = lease

    def left(self, record: Record) -> None:
        """Note that the record is settled, or given up."""
        lease = self._entered.pop((record.partition, record.offset), None)
        if lease is not None:
            lease.in_flight.discard(record.offset)
            lease.moved_at = self._clock.now()

    def done(self, entries: Iterable[Entry]) -> None:
        """Note these, for a later call to the store: until then their claims alone say that they are done."""
        for entry in entries:
            lease = self._entered.get((entry.record.partition, entry.record.offset))
            if lease is not None and lease.acquired is not None and not lease.unsure:
                # A dead-lettered record gave its claim back: it runs again if it comes again, in this log or another.
                if entry.started and entry.letter is None and any(map(lease.known, entry.offsets)):
                    lease.refuted, lease.look_at = True, 0.0
                lease.done += entry.offsets

    # ---- the session's
    def session_lost(self) -> None:
        """Drop what was ours; what waits waits for the next session."""
        for lease in self._leases.values():
            lease.lost()

    def leave(self) -> None:
        """Let all go that has nothing in hand; the end of the session frees the rest."""
        session = self._sessions.session
        if session is not None:
            with self._outage.asking():
                self._mark(session, at_once=True)
                self._give_up(session, [one for one in self._leases.values() if one.acquired and not one.in_flight])

    # ---- inside
    def _lease(self, record: Record) -> _QueueLease | None:
        """None: its queue cannot be told, or is another than that number was until now; its claim alone decides."""
        queue = self._source.queue(record)
        if queue is None:
            return None
        lease = self._leases.get(record.partition)
        if lease is None:
            lease = self._leases[record.partition] = _QueueLease(queue=queue, name=self._source.position_name(queue))
        return lease if lease.queue == queue else None

    def _hold(self, lease: _QueueLease, record: Record) -> None:
        now = self._clock.now()
        lease.held.append(record)
        lease.moved_at = now
        lease.waits_since = lease.waits_since or now
        lease.lowest = record.offset if lease.lowest is None else min(lease.lowest, record.offset)
        lease.highest = max(lease.highest, record.offset)
        lease.came_since = min(lease.came_since, record.offset)

    def _mark(self, session: ClaimSession, *, at_once: bool = False) -> None:
        now = self._clock.now()
        leases = [lease for lease in self._leases.values() if lease.done and not lease.refuted]
        if not leases or (now < self._mark_at and not at_once):
            return
        self._mark_at = now + _MARK_EVERY_S
        for lease in leases:
            lease.above.add_all(runs(lease.done))
            lease.advance()
        marks = [Mark(lease.name, lease.epoch, lease.watermark, sorted(lease.done)) for lease in leases]
        for lease, fenced in zip(leases, session.mark(marks), strict=True):
            lease.done.clear()
            if fenced:
                lease.lost()
        self._outage.answered()

    def _acquire(self, session: ClaimSession) -> None:
        now = self._clock.now()
        wanted = [
            lease
            for lease in self._leases.values()
            if lease.acquired is None and not lease.unsure and (lease.held or lease.in_flight) and now >= lease.ask_at
        ]
        if not wanted:
            return
        for lease in wanted:
            lease.unsure, lease.ask_at = True, now + _AGAIN_S
        for lease, reply in zip(wanted, session.acquire([lease.name for lease in wanted]), strict=True):
            lease.unsure = False
            if isinstance(reply, Acquired):
                if reply.epoch != lease.epoch + 1:  # somebody else has had it since we did
                    lease.look_at, lease.believed, lease.believed_at = 0.0, None, -math.inf
                lease.acquired, lease.epoch, lease.passing = reply, reply.epoch, False
                lease.watermark, lease.above = reply.watermark, OffsetSet(reply.done)
                lease.advance()
            elif reply is Verdict.FENCED:
                return  # the session is lost, as the engine sees in this turn
        self._outage.answered()

    def _let_go(self, session: ClaimSession) -> None:
        now = self._clock.now()
        idle = [
            lease
            for lease in self._leases.values()
            if lease.unsure or (lease.acquired and lease.idle and now - lease.moved_at >= _IDLE_S)
        ]
        if idle:
            self._give_up(session, idle)

    def _give_up(self, session: ClaimSession, leases: Sequence[_QueueLease]) -> None:
        """Where an answer never came, whichever epoch it is."""
        if leases:
            asked = [LetGo(lease.name, 0 if lease.unsure else lease.epoch, ()) for lease in leases]
            for lease in leases:
                lease.unsure = True
            session.let_go(asked)
            for lease in leases:
                lease.lost()
            self._outage.answered()

    def _open(self, lease: _QueueLease) -> list[Record]:
        """The records that wait no longer."""
        if not lease.held:
            return []
        now = self._clock.now()
        if lease.acquired is None or lease.unsure:
            patience_s = self._source.queue_lease_wait_s
            if not lease.passing and now - (lease.waits_since or now) >= patience_s:
                lease.passing = True
                self._tell(
                    SourceTrouble(
                        error=f"{lease.queue} is another member's, and this client has it too, for {patience_s:.1f} s: "
                        "only claims protect its records until that member gives it up"
                    )
                )
            if not lease.passing:
                return []
        held, lease.waits_since = list(lease.held), None
        lease.held.clear()
        return held

    # ---- what the broker says
    def _look(self, lease: _QueueLease, session: ClaimSession) -> None:
        """Where the log begins and ends, and what the group has answered."""
        now = self._clock.now()
        if lease.acquired is None or lease.unsure or now < lease.look_at or now < self._look_at:
            return
        try:
            seen = self._source.look(lease.queue, Deadline(_LOOK_S, self._clock))
        except SourceError as error:
            self._look_at = self._clock.now() + _LOOK_AGAIN_S
            self._tell(SourceTrouble(error=str(error)))
            return
        lease.look_at = now + _LOOK_EVERY_S
        if lease.refuted or max(lease.watermark, lease.above.end) > seen.end:
            self._begin_anew(lease, session, seen.first)
            return
        if not lease.judged and seen.dense and (seen.committed is not None or lease.watermark):
            lease.expected = max(seen.first, lease.watermark, seen.committed or 0)
            lease.judge_at = now + _FIRST_S
        lease.judged = True
        # The group's offset may be the word of a member whose client has skipped records. So it counts no further than
        # what has come here and was answered; and only if nothing below has come until the next look, since batches
        # come by several threads. The first look is before our client has answered anything: it is the others' word.
        unanswered = min(lease.in_flight | {record.offset for record in lease.held}, default=seen.end)
        answered = min(seen.committed or 0, unanswered)
        if lease.believed is None:
            lease.advance(min(max(seen.first, answered), unanswered))
        elif now - lease.believed_at >= _LOOK_EVERY_S:
            lease.advance(min(lease.believed, lease.came_since))
        if now - lease.believed_at >= _LOOK_EVERY_S:
            lease.believed, lease.came_since, lease.believed_at = min(answered, lease.highest + 1), seen.end, now

    def _judge(self, lease: _QueueLease) -> None:
        """Has the client begun at the group's offset? One that gets no answer to that question begins at the end."""
        expected, lowest = lease.expected, lease.lowest
        if expected is None or lowest is None or self._clock.now() < lease.judge_at:
            return
        lease.expected = None
        if lowest > expected:
            self._tell(
                SourceTrouble(
                    error=f"{lease.queue}: the client began at {lowest}, and the group's offset was {expected}: "
                    f"{lowest - expected} records were skipped by the client; set the group's offset back to "
                    f"{expected} to have them"
                )
            )

    def _begin_anew(self, lease: _QueueLease, session: ClaimSession, first: int) -> None:
        """Drop what is known: it is of another log, since the topic was deleted and made again, or its broker's store
        was emptied."""
        with self._outage.asking():
            lease.look_at = 0.0
            if session.drop([Drop(lease.name, lease.epoch, first)])[0]:
                self._tell(ResetHonoured(partition=lease.queue, offset=first, watermark=lease.watermark))
                lease.watermark, lease.above, lease.highest, lease.refuted = first, OffsetSet(), -1, False
                # The group's offset may be of the other log, too: what it says now counts at the next look.
                lease.believed, lease.believed_at = first, self._clock.now()
            else:
                lease.lost()
