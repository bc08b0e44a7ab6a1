"""Gates: the queues of a leased source, as far as one member at a time can have them.

A client that hands out queues among its members without a word (see `GatedSource`) may let two of them read one queue
for a while. What keeps a message from running twice is its claim, always. The gate is for the rest: the first record of
a queue waits until the former owner has ended what it had in hand, or is dead.

    a record came > acquire its queue's position > (patience at most) > it goes on
    nothing of the queue came for a while, and nothing is in hand > mark > let go

Nobody can be asked to let go: the client does not say that it has lost a queue, it only delivers no more of it. So a
wait has an end, after which the queue's records go by their claims alone: two that hold one queue for long cannot block
each other. What is marked is what was done, each offset for itself; the watermark follows where none is missing.
Offsets that never come (filtered out by tags, sent back) are passed over by the group's offset at the broker: below it
every record was answered by some member, or sent back, which makes it another record.

Nothing is skipped for its offset: what is known as done may be of another log, where the topic was made again or the
broker's store was emptied, and no offset says of which. The claims know messages, and so tell logs apart: a record that
is known as done by its offset, and had to run nevertheless, shows that what is known is of another log. It is forgotten
then, or who reads this queue by positions next would skip the new log's records.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.dedup.claims import Acquired, LetGo, Mark, Verdict
from holdfast.errors import SourceError
from holdfast.plugin.events import ResetHonoured, SourceTrouble
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from holdfast.dedup.claims import ClaimSession
    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.ports import GatedSource
    from holdfast.records import Partition, Record

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
class _Gate:
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
    in_hand: set[int] = field(default_factory=set)
    moved_at: float = 0.0
    #: What is done: all below the watermark, and these. And what of it is to be marked.
    watermark: int = 0
    above: set[int] = field(default_factory=set)
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

    def known(self, offset: int) -> bool:
        """Whether it is noted as done."""
        return offset < self.watermark or offset in self.above

    def advance(self, watermark: int = 0) -> None:
        """Everything below that is done too, and then what follows without a gap."""
        if watermark > self.watermark:
            self.watermark = watermark
            self.above = {offset for offset in self.above if offset >= watermark}
        while self.watermark in self.above:
            self.above.discard(self.watermark)
            self.watermark += 1

    def lost(self) -> None:
        """It is not ours any more."""
        self.acquired, self.unsure, self.refuted = None, False, False
        self.done.clear()


class Gates:
    """One thread, the one that runs the app."""

    def __init__(self, engine: Engine, source: GatedSource) -> None:
        self._engine, self._source = engine, source
        self._gates: dict[Partition, _Gate] = {}
        #: Of records in the process, by partition and offset.
        self._entered: dict[tuple[Partition, int], _Gate] = {}
        self._look_at = self._mark_at = 0.0

    # ---- a record's way
    def sift(self, records: Sequence[Record]) -> list[Record]:
        """Those of them, and of those that wait, which may be handled now. Others wait."""
        go = []
        for record in records:
            gate = self._gate(record)
            if gate is None:
                go.append(record)
            else:
                self._hold(gate, record)
        session = self._engine.session
        if session is None:
            return go
        if self._engine.outage.may_ask:
            with self._engine.outage.asking():
                self._mark(session)
                self._acquire(session)
                self._let_go(session)
        for gate in self._gates.values():
            self._look(gate, session)
            self._judge(gate)
            go += self._open(gate)
        return go

    def entered(self, record: Record) -> None:
        """It is in the process."""
        gate = self._gate(record)
        if gate is not None:
            gate.in_hand.add(record.offset)
            self._entered[record.partition, record.offset] = gate

    def left(self, record: Record) -> None:
        """It is settled, or given up."""
        gate = self._entered.pop((record.partition, record.offset), None)
        if gate is not None:
            gate.in_hand.discard(record.offset)
            gate.moved_at = self._engine.clock.now()

    def done(self, entries: Iterable[Entry]) -> None:
        """Note these, for a later call to the store: until then their claims alone say that they are done."""
        for entry in entries:
            gate = self._entered.get((entry.record.partition, entry.record.offset))
            if gate is not None and gate.acquired is not None and not gate.unsure:
                # What was dead-lettered gave its claim back: it runs again where it comes again, in whatever log.
                if entry.started and entry.letter is None and any(map(gate.known, entry.offsets)):
                    gate.refuted, gate.look_at = True, 0.0
                gate.done += entry.offsets

    # ---- the session's
    def session_lost(self) -> None:
        """What was ours is so no more; what waits waits for the next session."""
        for gate in self._gates.values():
            gate.lost()

    def leave(self) -> None:
        """Let all go that has nothing in hand; the end of the session frees the rest."""
        session = self._engine.session
        if session is not None:
            with self._engine.outage.asking():
                self._mark(session, at_once=True)
                self._give_up(session, [gate for gate in self._gates.values() if gate.acquired and not gate.in_hand])

    # ---- inside
    def _gate(self, record: Record) -> _Gate | None:
        """None: its queue cannot be told, or is another than that number was until now; its claim alone decides."""
        queue = self._source.queue(record)
        if queue is None:
            return None
        gate = self._gates.get(record.partition)
        if gate is None:
            gate = self._gates[record.partition] = _Gate(queue=queue, name=self._source.position_name(queue))
        return gate if gate.queue == queue else None

    def _hold(self, gate: _Gate, record: Record) -> None:
        now = self._engine.clock.now()
        gate.held.append(record)
        gate.moved_at = now
        gate.waits_since = gate.waits_since or now
        gate.lowest = record.offset if gate.lowest is None else min(gate.lowest, record.offset)
        gate.highest = max(gate.highest, record.offset)
        gate.came_since = min(gate.came_since, record.offset)

    def _mark(self, session: ClaimSession, *, at_once: bool = False) -> None:
        now = self._engine.clock.now()
        gates = [gate for gate in self._gates.values() if gate.done and not gate.refuted]
        if not gates or (now < self._mark_at and not at_once):
            return
        self._mark_at = now + _MARK_EVERY_S
        for gate in gates:
            gate.above.update(offset for offset in gate.done if offset >= gate.watermark)
            gate.advance()
        marks = [Mark(gate.name, gate.epoch, gate.watermark, sorted(gate.done)) for gate in gates]
        for gate, fenced in zip(gates, session.mark(marks), strict=True):
            gate.done.clear()
            if fenced:
                gate.lost()
        self._engine.outage.answered()

    def _acquire(self, session: ClaimSession) -> None:
        now = self._engine.clock.now()
        wanted = [
            gate
            for gate in self._gates.values()
            if gate.acquired is None and not gate.unsure and (gate.held or gate.in_hand) and now >= gate.ask_at
        ]
        if not wanted:
            return
        for gate in wanted:
            gate.unsure, gate.ask_at = True, now + _AGAIN_S
        for gate, reply in zip(wanted, session.acquire([gate.name for gate in wanted]), strict=True):
            gate.unsure = False
            if isinstance(reply, Acquired):
                if reply.epoch != gate.epoch + 1:  # somebody else has had it since we did
                    gate.look_at, gate.believed, gate.believed_at = 0.0, None, -math.inf
                gate.acquired, gate.epoch, gate.passing = reply, reply.epoch, False
                gate.watermark, gate.above = reply.watermark, set(reply.done)
                gate.advance()
            elif reply is Verdict.FENCED:
                return  # the session is lost, as the engine sees in this turn
        self._engine.outage.answered()

    def _let_go(self, session: ClaimSession) -> None:
        now = self._engine.clock.now()
        idle = [
            gate
            for gate in self._gates.values()
            if gate.unsure or (gate.acquired and not gate.held and not gate.in_hand and now - gate.moved_at >= _IDLE_S)
        ]
        if idle:
            self._give_up(session, idle)

    def _give_up(self, session: ClaimSession, gates: Sequence[_Gate]) -> None:
        """Where an answer never came, whichever epoch it is."""
        if gates:
            asked = [LetGo(gate.name, 0 if gate.unsure else gate.epoch, ()) for gate in gates]
            for gate in gates:
                gate.unsure = True
            session.let_go(asked)
            for gate in gates:
                gate.lost()
            self._engine.outage.answered()

    def _open(self, gate: _Gate) -> list[Record]:
        """The records that wait no longer."""
        if not gate.held:
            return []
        now = self._engine.clock.now()
        if gate.acquired is None or gate.unsure:
            patience_s = self._source.gate_patience_s
            if not gate.passing and now - (gate.waits_since or now) >= patience_s:
                gate.passing = True
                self._engine.tell(
                    SourceTrouble(
                        error=f"{gate.queue} is another member's, and comes here too, for {patience_s:.1f} s: its "
                        "records go by their claims alone until it is let go"
                    )
                )
            if not gate.passing:
                return []
        held, gate.waits_since = list(gate.held), None
        gate.held.clear()
        return held

    # ---- what the broker says
    def _look(self, gate: _Gate, session: ClaimSession) -> None:
        """Where the log begins and ends, and what the group has answered."""
        now = self._engine.clock.now()
        if gate.acquired is None or gate.unsure or now < gate.look_at or now < self._look_at:
            return
        try:
            seen = self._source.look(gate.queue, Deadline(_LOOK_S, self._engine.clock))
        except SourceError as error:
            self._look_at = self._engine.clock.now() + _LOOK_AGAIN_S
            self._engine.tell(SourceTrouble(error=str(error)))
            return
        gate.look_at = now + _LOOK_EVERY_S
        if gate.refuted or max(gate.watermark - 1, max(gate.above, default=-1)) >= seen.end:
            self._begin_anew(gate, session, seen.first)
            return
        if not gate.judged and seen.dense and (seen.committed is not None or gate.watermark):
            gate.expected = max(seen.first, gate.watermark, seen.committed or 0)
            gate.judge_at = now + _FIRST_S
        gate.judged = True
        # The group's offset may be the word of a member whose client has skipped records. So it counts no further than
        # what has come here and was answered; and only if nothing below has come until the next look, since batches
        # come by several threads. The first look is before our client has answered anything: it is the others' word.
        unanswered = min(gate.in_hand | {record.offset for record in gate.held}, default=seen.end)
        answered = min(seen.committed or 0, unanswered)
        if gate.believed is None:
            gate.advance(min(max(seen.first, answered), unanswered))
        elif now - gate.believed_at >= _LOOK_EVERY_S:
            gate.advance(min(gate.believed, gate.came_since))
        if now - gate.believed_at >= _LOOK_EVERY_S:
            gate.believed, gate.came_since, gate.believed_at = min(answered, gate.highest + 1), seen.end, now

    def _judge(self, gate: _Gate) -> None:
        """Has the client begun at the group's offset? One that gets no answer to that question begins at the end."""
        expected, lowest = gate.expected, gate.lowest
        if expected is None or lowest is None or self._engine.clock.now() < gate.judge_at:
            return
        gate.expected = None
        if lowest > expected:
            self._engine.tell(
                SourceTrouble(
                    error=f"{gate.queue}: the client began at {lowest}, and the group's offset was {expected}: "
                    f"{lowest - expected} records were skipped by the client; set the group's offset back to "
                    f"{expected} to have them"
                )
            )

    def _begin_anew(self, gate: _Gate, session: ClaimSession, first: int) -> None:
        """What is known is of another log: the topic was deleted and made again, or its broker's store was emptied."""
        with self._engine.outage.asking():
            gate.look_at = 0.0
            if session.drop(gate.name, gate.epoch, first):
                self._engine.tell(ResetHonoured(partition=gate.queue, offset=first, watermark=gate.watermark))
                gate.watermark, gate.above, gate.highest, gate.refuted = first, set(), -1, False
                # The group's offset may be of the other log, too: what it says now counts at the next look.
                gate.believed, gate.believed_at = first, self._engine.clock.now()
            else:
                gate.lost()
