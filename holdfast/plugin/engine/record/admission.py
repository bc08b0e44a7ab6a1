"""Admission: turns the records of a poll into entries: single records, or runs that need no separate treatment.

- What Kafka's client cannot read (CRC, compression, size) stops the app: behind a hole, nothing is admitted.
  RocketMQ's pull reads by itself: such a message is a record of what there is of it (`Batch.unreadable`), which no
  handler gets.
- A run is not cut where its lane has several keys: the rest would need all their lanes. So it is never longer than
  half of `mark_batch`, and starts when the budget has room for all of it.
- A key's scope is group and topic unless it is named: with the handler's name alone, two groups on one Redis would
  skip each other's records.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from holdfast.dedup.claims import Claim, ClaimKey, Token
from holdfast.errors import HandlerFailed, KeyMissing
from holdfast.plugin.engine.record.entry import Entry, EntryState, Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from holdfast.errors import RecordUnreadable
    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.flow.intake import Intake
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.claiming import Claiming
    from holdfast.plugin.engine.record.lanes import Lanes
    from holdfast.plugin.engine.record.settling import Unacked
    from holdfast.plugin.engine.record.workers import Workers
    from holdfast.plugin.handlers import Handler, Routes
    from holdfast.plugin.ports import Batch
    from holdfast.plugin.settings import Settings
    from holdfast.records import Fence, Partition, Record
    from holdfast.timing import Clock


_new = tuple.__new__
#: A record's claim, or an error, or neither.
ClaimOf: TypeAlias = "Callable[[Record], tuple[Claim | None, Exception | None]]"


class Admission:
    """Puts what came into lanes. One thread."""

    def __init__(
        self,
        *,
        family: Family,
        routes: Routes,
        settings: Settings,
        group: str,
        clock: Clock,
        lanes: Lanes,
        intake: Intake,
        claiming: Claiming,
        workers: Workers,
        unacked: Unacked,
    ) -> None:
        self._family, self._routes, self._settings, self._group = family, routes, settings, group
        self._clock, self._lanes, self._intake, self._claiming = clock, lanes, intake, claiming
        self._workers, self._unacked = workers, unacked
        self._ordering = settings.ordering
        self._unreadable: dict[tuple[Partition, int], tuple[Fence, RecordUnreadable]] = {}

    def note(self, batch: Batch) -> None:
        """Which of these records cannot be read, whenever they are admitted. Under this ownership: later another record
        may have the same place."""
        if not batch.unreadable:
            return
        # Records that waited, of partitions that have gone meanwhile, are never admitted.
        self._unreadable = {place: found for place, found in self._unreadable.items() if not found[0].cancelled}
        for record in batch.records:
            place = record.partition, record.offset
            if place in batch.unreadable:
                self._unreadable[place] = record.fence, batch.unreadable[place]

    def _fault(self, record: Record) -> RecordUnreadable | None:
        fence, error = self._unreadable.get((record.partition, record.offset), (None, None))
        return error if fence is record.fence else None

    def admit(self, records: Sequence[Record]) -> None:
        """Admit records: those that are to be handled here. Raises HandlerFailed: nothing handles that topic."""
        now = self._clock.now()
        for owner, admitted in self._family.admit(records):
            topic = owner.partition.topic
            if not self._family.mixes(topic):
                self._admit(admitted, owner, topic, now, len(records))
                continue
            for born_in, came in groupby(admitted, key=self._family.born_in):
                self._admit(list(came), owner, born_in, now, len(records))
        for record in records if self._unreadable else ():
            if self._fault(record) is not None:  # also of one that is not to be handled here
                del self._unreadable[record.partition, record.offset]

    def _admit(self, records: Sequence[Record], owner: Ownership, topic: str, now: float, polled: int) -> None:
        """Admit records of one partition, born in one topic. `polled`: how many came in all."""
        handler = self._routes.find(topic) or self._family.unroutable(topic)
        if handler is None:
            raise HandlerFailed(f"no handler matches topic {topic!r}: register one, or narrow the pattern")
        if not self._unreadable:
            self._admit_to(handler, records, owner, topic, now=now, polled=polled)
            return
        for error, some in groupby(records, key=self._fault):
            if error is None:
                self._admit_to(handler, list(some), owner, topic, now=now, polled=polled)
            for record in some if error is not None else ():
                entry = Entry(record, owner, handler, None, now)
                entry.error = error
                entry.state = EntryState.WITH_FORMER_OWNER if record.offset in owner.waiting else entry.state
                self._enter(entry, self._lane(record, handler))

    def _admit_to(
        self, handler: Handler, records: Sequence[Record], owner: Ownership, topic: str, *, now: float, polled: int
    ) -> None:
        # A record that a former owner may be working on, a coroutine that is likely to wait: each is one record's
        # matter. So is a batch that may hang: what was given up has to be told from what goes on.
        together = self._workers.together(handler) if handler.is_async else 0
        alone = owner.waiting or (handler.timeout_s is not None if handler.batch else together == 1)
        if alone or not self._family.by_position:
            claim_of = self._claims_of(owner, topic, handler)
            for record in records:
                self._enter(self._entry(record, owner, handler, claim_of, now), self._lane(record, handler))
        elif not self._claims(handler) and self._in_one_lane(handler):
            self._enter(Entry.run(records, owner, handler, now), None)
        else:
            # Not more than can be started whatever else runs: what has started and is not marked is bounded. A run in a
            # lane of one key is cut where it is taken.
            share = min(together or self._workers.share(polled), max(1, self._unacked.share(handler.kind) // 2))
            at_most = len(records) if self._in_one_lane(handler) else share
            self._in_runs(records, owner, topic, handler, now=now, at_most=at_most)

    def _claims(self, handler: Handler) -> bool:
        return handler.key is not None or self._family.by_identity

    def _in_one_lane(self, handler: Handler) -> bool:
        """Whether all records of a partition are handled one after the other. A batch has consecutive ones."""
        return handler.batch is not None or self._ordering == "partition"

    def _enter(self, entry: Entry, lane: Hashable) -> None:
        self._lanes.add(entry, lane)
        self._known(entry)

    def _known(self, entry: Entry) -> None:
        entry.owner.entries[entry.record.offset] = entry
        self._intake.entered(entry)
        self._claiming.want(entry)

    def _in_runs(
        self, records: Sequence[Record], owner: Ownership, topic: str, handler: Handler, *, now: float, at_most: int
    ) -> None:
        """Runs whose lane has all their keys. Who finds its key in another lane stands behind it there; and a record
        without its business key stands alone."""
        lanes, one_lane, by_key = (
            self._lanes.of(owner.partition),
            self._in_one_lane(handler),
            self._ordering == "key",
        )
        run: list[Record] = []
        keys: list[Hashable] = []
        claims: list[Claim] = []
        lane = Lane(lanes, None, keys)

        def end() -> None:
            nonlocal run, keys, claims, lane
            if run:
                entry = Entry.run(run, owner, handler, now, claims)
                if one_lane:
                    self._lanes.add(entry, None)
                else:
                    self._lanes.begin(entry, lane)
                self._known(entry)
            run, keys, claims = [], [], []
            lane = Lane(lanes, None, keys)

        claim_of = self._claims_of(owner, topic, handler) if self._claims(handler) else None
        for record in records:
            claim = None
            if claim_of is not None:
                claim, error = claim_of(record)
                if claim is None:
                    end()
                    entry = Entry(record, owner, handler, None, now)
                    entry.error = error
                    self._enter(entry, self._lane(record, handler))
                    continue
            key: Hashable = record.offset if not by_key or record.key is None else record.key
            if len(run) == at_most:
                end()
            if one_lane or lanes.setdefault(key, lane) is lane:
                run.append(record)
                keys.append(key)
                if claim is not None:
                    claims.append(claim)
            else:
                self._enter(Entry(record, owner, handler, claim, now), key)
        end()

    def _claims_of(self, owner: Ownership, topic: str, handler: Handler) -> ClaimOf:
        """Return a function that gives a record its claim; or why it cannot be handled; or neither: it is protected by
        its position.

        The scope is the topic's where it was born as we know it, whatever its headers say: who may write to one topic
        could have another's records skipped otherwise.
        """
        scope, name, epoch, key_of = handler.scope_of(self._group, topic), owner.name, owner.store_epoch, handler.key

        def claim_of(record: Record) -> tuple[Claim | None, Exception | None]:
            try:
                key = key_of(record) if key_of else self._identity(record, owner)
            except KeyMissing as missing:
                if self._settings.missing_key == "error":
                    return None, missing
                key = self._identity(record, owner)
            except Exception as broken:  # noqa: BLE001 - a key function of the application
                error = KeyMissing(f"the key function of {handler.name} failed on {record.partition}@{record.offset}")
                error.__cause__ = broken
                return None, error
            if key is None:
                return None, None
            # Claim(...) and the like go through a function in Python, which costs twice as much as the tuples.
            token = _new(Token, (name, record.offset, epoch))
            return _new(Claim, (_new(ClaimKey, (scope, key)), token)), None

        return claim_of

    def _identity(self, record: Record, owner: Ownership) -> str | None:
        return None if record.offset < owner.again else self._family.default_key(record)

    def _entry(self, record: Record, owner: Ownership, handler: Handler, claim_of: ClaimOf, now: float) -> Entry:
        claim, error = claim_of(record)
        error = error or self._family.refusal(record)  # with its claim: it may be done already
        entry = Entry(record, owner, handler, claim, now)
        if error is not None:
            entry.error = error
        if record.offset in owner.waiting:
            entry.state = EntryState.WITH_FORMER_OWNER
        return entry

    def _lane(self, record: Record, handler: Handler) -> Hashable:
        """The lane of records that have to be handled one after the other. A batch handler takes consecutive records of
        a partition."""
        if self._in_one_lane(handler):
            return None
        if self._ordering == "key" and record.key is not None:
            return record.key
        return record.offset
