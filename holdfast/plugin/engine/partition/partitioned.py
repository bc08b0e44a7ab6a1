"""The partitioned family: ownership, watermark, marks, commits; and leaving the group."""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.dedup.claims import AskInHand, InHand
from holdfast.dedup.keys import key_text
from holdfast.errors import SourceError, SourceUnavailable
from holdfast.plugin.engine.family import Family
from holdfast.plugin.engine.partition.delays import Delays
from holdfast.plugin.engine.partition.far_ahead import FarAhead
from holdfast.plugin.engine.partition.log_checks import LogChecks
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.partition.partitions import Partitions
from holdfast.plugin.engine.partition.takeover import may_pass
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.engine.record.settling import by_owner
from holdfast.plugin.engine.record.unroutable import handler_of_unroutable
from holdfast.plugin.engine.record.wait_reasons import OTHERS, lowest
from holdfast.plugin.events import SourceTrouble
from holdfast.plugin.observe.joining import KnowsItsPlace, name_of
from holdfast.plugin.observe.silence import AsksBrokers
from holdfast.plugin.observe.snapshot import PartitionFigures, SourceFigures
from holdfast.plugin.ports import RetryTopicsSource
from holdfast.plugin.retrying.dead_letter import retried_from
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from holdfast.plugin.engine.family import Loop
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.observe.snapshot import OpenRecord
    from holdfast.plugin.ports import Batch, End, PartitionedSource
    from holdfast.records import Partition, Record

#: How often the store is asked what became of records that former owners had in hand.
_POLL_S = 0.05
#: How often all partitions are looked at: turns of quick handlers are shorter, and groups have thousands of partitions.
#: Of more than 250, so much later for each, or the looks would be a good part of the work; but no later than that.
_TEND_S = 0.005
_TEND_EACH_S = 0.00002
_TEND_LATEST_S = 0.1
#: How many seeks in a row may be refused (one each look) before somebody is told.
_SEEKS_TOLD = 1_000
_CLOSE_S = 10.0


class Partitioned(Family):
    """Drives a PartitionedSource. One thread."""

    source: PartitionedSource
    by_position = True

    def __init__(self, parts: Parts, loop: Loop, source: PartitionedSource) -> None:
        self._parts, self._loop, self.source = parts, loop, source
        self.partitions = Partitions(parts, loop, source, duplicates=self._duplicates)
        self.owners, self._commits = self.partitions.owners, self.partitions.commits
        self._retries = retries = parts.routes.retry_topics
        self._delays = Delays(retries.steps, self.owners, parts.timers, parts.runtime, source.end_offsets)
        letters = source.unroutable_letters
        self._far_ahead = FarAhead(parts.settings.max_ahead, parts.tell)
        self._unroutable = (
            handler_of_unroutable(source.retry_topic, letters) if source.retry_topic and letters else None
        )
        #: Only where a producer may store a message twice, which positions do not see.
        self.by_identity = source.identity is not None
        self._poll_at = 0.0
        self._tend_at = 0.0
        self._log_checks = LogChecks(parts, self.partitions)
        self._left = False
        self._held_some = False
        self._idle = False
        self._suppressed = self._taken_up = 0

    @property
    def lease_s(self) -> float | None:
        """A takeover takes the longer of the store's lease and the broker's session timeout."""
        return self.source.session_timeout_s

    @property
    def patience_s(self) -> float:
        """The time for which the broker waits for a member that does not poll."""
        return self.source.max_poll_interval_s

    def mixes(self, topic: str) -> bool:
        """The broker's retry topics, and ours."""
        return topic in self._retries.steps or self.source.brings_again(topic)

    def born_in(self, record: Record) -> str:
        """The topic where the record was born: as the name of a retry topic of ours says, or the source, of what the
        broker's retry topic brings."""
        topic = record.partition.topic
        return retried_from(record) if self.source.brings_again(topic) else self._retries.born_in(topic)

    def unroutable(self, topic: str) -> Handler | None:
        """Of the broker's retry topics: what lies there was born elsewhere, or is nobody's."""
        return self._unroutable if self.source.brings_again(topic) else None

    def retry_topic_of(self, record: Record, *, has_letters: bool) -> str | None:
        """The broker's retry topic, if the source says so."""
        retries = self.source.retries
        return self.source.retry_topic if retries is not None and (retries(record) or not has_letters) else None

    # ---- the loop's steps
    def open(self, topics: Collection[str], deadline: Deadline) -> None:
        """Join the group. Raises SourceError."""
        if self._retries and isinstance(self.source, RetryTopicsSource):
            self.source.reads_all_of(self._retries.steps)
        self.source.open(topics, self.partitions, self.owners, deadline)

    def subscribe(self, topics: Collection[str]) -> None:
        """Change the subscription. Raises SourceError."""
        self.source.subscribe(topics)

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        """Records, and rebalances inside. Raises SourceError."""
        batch = self.source.poll(max_records, timeout_s)
        self._idle = not batch.records
        return self._delays.only_due(batch)

    def reached(self, ends: Sequence[End]) -> None:
        """The source has read partitions up to there, after the records of the same poll were admitted."""
        for end in ends:
            owner = self.owners.get(end.partition)
            if owner is not None and owner.open:
                owner.sought_at = 0.0
                self.partitions.holes.ends(owner, end.offset)

    def admit(self, records: Sequence[Record]) -> Iterator[tuple[Ownership, Sequence[Record]]]:
        """Records of owned partitions that are not done. Others were fetched under an earlier ownership: they come
        again."""
        for fence, group in groupby(records, key=_FENCE):
            came = list(group)
            owner = self.owners.get(came[0].partition)
            if owner is None or owner is not fence or not owner.open:
                continue
            offsets = [record.offset for record in came]
            whole = range(offsets[0], offsets[0] + len(came))
            owner.sought_at = 0.0
            if owner.second_look is not None:
                self.partitions.holes.came(owner, offsets)
            # Almost always: one after the other, none of them known.
            known = offsets[0] < owner.ledger.next or offsets != list(whole)
            if not known and offsets[0] > owner.ledger.next and not self.partitions.holes.pass_over(owner, offsets[0]):
                continue
            known = known or not owner.ledger.polled_all(whole)
            if new := [record for record in came if self._is_new(owner, record.offset)] if known else came:
                yield owner, new

    def _is_new(self, owner: Ownership, offset: int) -> bool:
        if not owner.open:
            return False
        if offset < owner.ledger.next:
            # Clients go back by themselves: an answer that comes after a seek, a reset after an error. Nothing more of
            # this partition until the broker has said whether its log did.
            owner.suspect, owner.seek_needed = offset, True
            return False
        if offset > owner.ledger.next and not self.partitions.holes.pass_over(owner, offset):
            return False
        if not owner.ledger.polled(offset):
            self._suppressed += 1
            self._parts.recorder.skipped(owner, offset)
            return False
        return True

    def default_key(self, record: Record) -> str | None:
        """The identity that the record's copies share; None: the position alone protects the record."""
        return None if self.source.identity is None else key_text(self.source.identity(record))

    def settle(self, entries: Sequence[Entry]) -> None:
        """Mark positions. Raises StoreUnavailable: all of them may be marked again."""
        done = by_owner(entries)
        for session in dict.fromkeys(each.owner.session_ for each in done):
            of_session = [each for each in done if each.owner.session_ is session]
            replies = session.mark([each.owner.mark(each.ranges) for each in of_session])
            for each, fenced in zip(of_session, replies, strict=True):
                self.marked(*each, fenced)

    def marked(
        self, owner: Ownership, entries: Sequence[Entry], ranges: Sequence[range], fenced: frozenset[int]
    ) -> None:
        """The store has taken note of them; where it has refused some, another member has taken over behind our back:
        the partition is taken over anew, as if it had been lost."""
        self.partitions.refused_marks += len(fenced)
        before = owner.ledger.watermark
        for span in ranges if not fenced else ():
            owner.ledger.settle_all(span)
        if owner.ledger.watermark != before:
            owner.moved_at = self._parts.runtime.now()
        for entry in entries:
            owner.entries.pop(entry.record.offset, None)
            entry.state = EntryState.GONE
            self._parts.intake.left(entry)
        if fenced and owner.phase is Phase.OWNED:
            self.partitions.retake(owner)

    def tend(self) -> None:
        """Do what time brings: takeovers, seeks, pauses, commits, reports. Of all partitions, so not each turn."""
        parts = self._parts
        if self._left or parts.runtime.now() < self._tend_at:
            return
        self._tend_at = parts.runtime.now() + max(_TEND_S, min(_TEND_LATEST_S, len(self.owners) * _TEND_EACH_S))
        try:
            self.partitions.tend()
            self._poll_handed()
            self._log_checks.look_at_suspects()
            for owner in self.owners.values():
                if owner.sought_at and self._idle and parts.intake.awaits(owner.partition):
                    self.partitions.holes.unheard(owner)
                if owner.seek_needed and owner.suspect is None and owner.phase is Phase.OWNED:
                    self._seek(owner)
            self._hold_paused()
            resumed = parts.intake.apply(self.source, self.partitions.assignment, self.owners)
            self.partitions.holes.moved(self.owners[each] for each in resumed if each in self.owners)
            self._commits.step(self.owners.values())
            self._look_at_ramp()
            self._log_checks.refresh()
        except SourceError as error:
            if not may_pass(error):
                parts.stopping.fail(error)
            parts.tell(SourceTrouble(error=str(error)))
        self.partitions.reports.step(self.source.end_offsets)

    def look_elsewhere(self) -> None:
        """Look how far other programs have committed."""
        try:
            self._commits.refresh(self.owners.values())
        except SourceError as error:
            self._parts.tell(SourceTrouble(error=str(error)))

    def session_lost(self) -> None:
        """All ownerships end without a word to the store: others may have taken over. New ones begin with a session."""
        self.partitions.session_lost()

    def leave(self, deadline: Deadline) -> None:
        """Leave with nothing left to commit: a commit inside the client's close() may hang, or be refused."""
        self.partitions.leave(deadline)
        self.close()

    def close(self) -> None:
        """Close the client, whatever state it is in. Idempotent."""
        if not self._left:
            self._left = True
            self.source.close(Deadline(_CLOSE_S, self._parts.runtime), leave=self._parts.stopping.leaves)

    def figures(self) -> SourceFigures:
        """Partitions and commits, as far as known without asking the broker."""
        partitions = sorted(self.partitions.assignment | self.owners.keys()) if not self._left else []
        ends: Mapping[Partition, int] = {}
        if partitions:
            with suppress(SourceError):
                ends = self.source.end_offsets(partitions)
        due_ms = self._delays.due_ms
        return SourceFigures(
            suppressed=self._suppressed,
            taken_up=self._taken_up,
            commits_sent=self._commits.sent,
            commits_refused=self._commits.refused,
            partitions=tuple(
                _figures(
                    each,
                    self.owners.get(each),
                    ends.get(each),
                    due_ms(each),
                    self._lowest(each),
                    waiting=self._parts.intake.waiting.records_of(each),
                )
                for each in partitions
            ),
            silence=self.source.silence if isinstance(self.source, AsksBrokers) and not self._left else None,
            in_group=self.source.in_group if isinstance(self.source, KnowsItsPlace) else self.partitions.came,
            member=name_of(self.source),
        )

    # ---- inside
    def _lowest(self, partition: Partition) -> OpenRecord | None:
        owner, parts = self.owners.get(partition), self._parts
        if owner is None or not owner.entries:
            return None
        entry = owner.entries[min(owner.entries)]
        found = lowest(entry, parts.runtime.now(), since=owner.moved_at, given_at=parts.workers.given_at)
        return self._far_ahead.noted(partition, found)

    def _look_at_ramp(self) -> None:
        intake, backlog = self._parts.intake, self.partitions.backlog
        if not intake.climb.over:
            waiting = self._delays.held  # what nobody may work off is no lag
            owners = [each for each in self.owners.values() if each.partition not in waiting]
            backlog.look(owners, intake.waiting.new)
            intake.look_at_ramp(
                lag=backlog.lag,
                produced_per_s=backlog.produced_per_s,
                produced_new_per_s=backlog.produced_new_per_s,
            )

    def _hold_paused(self) -> None:
        """Nothing comes of topics whose handlers are paused at the limit of their dead letters, before it is due, or of
        partitions that were read too far ahead."""
        parts, paused, waiting = self._parts, self._parts.outcomes.brakes.paused, self._delays.held
        far_ahead = self._far_ahead.look(self.owners)
        if paused or waiting or far_ahead or self._held_some:
            born = {
                partition: self._retries.born_in(partition.topic) for partition in self.partitions.assignment if paused
            }
            found = {partition: parts.routes.find(topic) for partition, topic in born.items()}
            stopped = {each for each, handler in found.items() if handler and handler.name in paused}
            parts.intake.held = stopped.union(waiting, far_ahead)
            self._held_some = bool(paused or waiting or far_ahead)

    def _poll_handed(self) -> None:
        """Ask what became of records that former owners had in hand."""
        parts = self._parts
        waiting = [owner for owner in self.owners.values() if owner.waiting and owner.phase is Phase.OWNED]
        session = parts.sessions.session
        if not waiting or session is None or not parts.outage.may_ask or parts.runtime.now() < self._poll_at:
            return
        self._poll_at = parts.runtime.now() + _POLL_S
        with parts.outage.asking():
            polls = [AskInHand(owner.name, owner.store_epoch, sorted(owner.waiting)) for owner in waiting]
            replies = session.poll(polls)
            parts.outage.answered()
            for owner, reply in zip(waiting, replies, strict=True):
                if isinstance(reply, InHand):
                    self._resolve(owner, reply)
                else:
                    self.partitions.retake(owner)

    def _duplicates(self) -> int:
        """Known by their position, or by their key."""
        return self._suppressed + self._parts.settling.skipped

    def _resolve(self, owner: Ownership, reply: InHand) -> None:
        parts, before = self._parts, owner.ledger.watermark
        for offset in reply.done | reply.yours:
            owner.waiting.discard(offset)
            entry = owner.entries.get(offset)
            if offset in reply.done:
                owner.ledger.knows(offset)
                if entry is not None:
                    self._suppressed += 1
                    parts.recorder.skipped(owner, offset)
                    parts.outcomes.hand_back(entry)
                continue
            self._taken_up += 1
            if entry is not None:
                parts.claiming.resume(entry)
        if owner.ledger.watermark != before:
            owner.moved_at = parts.runtime.now()

    def _seek(self, owner: Ownership) -> None:
        try:
            self.source.seek(owner.partition, owner.ledger.next)
        except SourceUnavailable as error:
            # The client is not ready to: in the next turn. But not for ever, and not in silence.
            owner.seeks += 1
            if owner.seeks % _SEEKS_TOLD == 0:
                self._parts.tell(SourceTrouble(error=f"{owner.partition} stands still: {error}"))
            return
        owner.seeks = 0
        owner.seek_needed = False
        self.partitions.holes.sought(owner)
        self._parts.intake.waiting.sent_elsewhere(owner.partition)


def _figures(
    partition: Partition,
    owner: Ownership | None,
    end: int | None,
    due_ms: int | None,
    lowest: OpenRecord | None,
    *,
    waiting: int,
) -> PartitionFigures:
    if owner is None or not owner.owned:
        phase = "assigned" if owner is None else owner.phase.name.lower() if owner.name else "unnamed"
        return PartitionFigures(partition=partition, phase=phase, log_end=end)
    return PartitionFigures(
        partition=partition,
        phase=owner.phase.name.lower(),
        watermark=owner.ledger.watermark,
        next=owner.ledger.next,
        committed=owner.committed,
        log_end=end,
        epoch=owner.epoch or None,
        in_flight=sum(entry.count for entry in owner.entries.values()),
        waiting_for_claims=sum(entry.count for entry in owner.entries.values() if entry.state in OTHERS),
        waiting_for_turn=waiting,
        lowest=lowest,
        next_retry_ms=due_ms,
    )


_FENCE = attrgetter("fence")
