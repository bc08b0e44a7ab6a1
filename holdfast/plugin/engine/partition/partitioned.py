"""The partitioned family: which polled records are handled here, under whose ownership, and what becomes of marks.

How partitions come, go and are looked after is in `partitions.py`.
"""

from __future__ import annotations

from contextlib import suppress
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from holdfast.dedup.keys import key_text
from holdfast.errors import SourceError, Unretriable
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.family import Family
from holdfast.plugin.engine.partition.figures import figures_of, lowest_open
from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.partition.partitions import Partitions
from holdfast.plugin.engine.record.entry import EntryState
from holdfast.plugin.engine.record.settling import by_owner
from holdfast.plugin.events import SourceTrouble
from holdfast.plugin.handlers import Handler
from holdfast.plugin.observe.snapshot import SourceFigures
from holdfast.plugin.observe.source_state import AsksBrokers, KnowsMembership, member_name_of
from holdfast.plugin.ports import RetryTopicsSource
from holdfast.plugin.retrying.dead_letter import retried_from
from holdfast.plugin.retrying.retry import Retry
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from typing import NoReturn

    from holdfast.plugin.engine.family import Loop
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.observe.snapshot import PartitionFigures
    from holdfast.plugin.ports import Batch, End, PartitionedSource
    from holdfast.records import Partition, Record

#: How often all partitions are looked at: turns of quick handlers are shorter, and groups have thousands of partitions.
#: Of more than 250, so much later for each, or the looks would be a good part of the work; but no later than that.
_TEND_S = 0.005
_TEND_EACH_S = 0.00002
_TEND_LATEST_S = 0.1
_CLOSE_S = 10.0


class Partitioned(Family):
    """Drives a PartitionedSource. One thread."""

    source: PartitionedSource
    by_position = True

    def __init__(self, parts: Parts, loop: Loop, source: PartitionedSource) -> None:
        self._parts, self.source = parts, source
        self.partitions = Partitions(parts, loop, source)
        self.owners = self.partitions.owners
        self._retries = parts.routes.retry_topics
        letters = source.unroutable_letters
        self._unroutable = (
            Handler(
                name="holdfast.unroutable",
                call=_refuse,
                topics=(source.retry_topic,),
                retry=Retry(attempts=1),
                dead_letter=letters,
            )
            if source.retry_topic and letters
            else None
        )
        #: Only where a producer may store a message twice, which positions do not see.
        self.by_identity = source.identity is not None
        self._tend_at = 0.0
        self._left = False

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
        """Dead-letters records of the broker's retry topic that do not name their topic of origin: somebody put them
        there by hand, and neither a retry nor a change to the app would help."""
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
        self.partitions.idle = not batch.records
        return self.partitions.delays.only_due(batch)

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
            self._parts.meter.suppressed += 1
            self._parts.recorder.passed(owner, range(offset, offset + 1), Outcome.SKIPPED_POSITION)
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
            self.partitions.commits.moved()
        for entry in entries:
            owner.entries.pop(entry.record.offset, None)
            entry.state = EntryState.GONE
            self._parts.intake.left(entry)
        if fenced:
            self.fenced(owner)

    def fenced(self, owner: Ownership) -> None:
        """Another member has taken the partition over behind our back: it is taken over anew, as if it had been
        lost."""
        if owner.phase is Phase.OWNED:
            self.partitions.retake(owner)

    def tend(self) -> None:
        """Look after all partitions; not in each turn."""
        clock = self._parts.runtime
        if not self._left and (clock.now() >= self._tend_at or self.partitions.commits.due):
            self._tend_at = clock.now() + max(_TEND_S, min(_TEND_LATEST_S, len(self.owners) * _TEND_EACH_S))
            self.partitions.tend()

    def look_elsewhere(self) -> None:
        """Look how far other programs have committed."""
        try:
            self.partitions.commits.refresh(self.owners.values())
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
        commits = self.partitions.commits
        return SourceFigures(
            commits_sent=commits.sent,
            commits_refused=commits.refused,
            partitions=tuple(self._figures(each, ends.get(each)) for each in partitions),
            silence=self.source.silence if isinstance(self.source, AsksBrokers) and not self._left else None,
            in_group=self.source.in_group if isinstance(self.source, KnowsMembership) else self.partitions.came,
            member=member_name_of(self.source),
        )

    def _figures(self, partition: Partition, log_end: int | None) -> PartitionFigures:
        parts, owner = self._parts, self.owners.get(partition)
        lowest = None if owner is None else lowest_open(owner, parts.runtime, parts.workers.given_at)
        return figures_of(
            partition,
            owner,
            log_end=log_end,
            next_retry_ms=self.partitions.delays.due_ms(partition),
            lowest=self.partitions.held_back.explain(partition, lowest),
            waiting_for_turn=parts.intake.waiting.records_of(partition),
            paused=self.partitions.held_back.why(partition),
        )


def _refuse(record: Record) -> NoReturn:
    raise Unretriable(
        f"records of {record.topic} name their topic of origin, and this one does not: no handler takes it"
    )


_FENCE = attrgetter("fence")
