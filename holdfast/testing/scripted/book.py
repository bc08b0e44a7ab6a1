"""Book: the calls of users' handlers: records, member, begin, end and outcome of each."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.errors import KeyMissing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Partition, Record


class Work(NamedTuple):
    """One piece of work: a business key in its scope, or, with scope "", one record."""

    scope: str
    name: str

    def __str__(self) -> str:
        return self.name[2:] if self.scope else self.name


@dataclass(slots=True, eq=False)
class Call:
    """One call of a handler. `records` has one record, and a batch's call several."""

    number: int
    member: str
    handler: str
    records: Sequence[Record]
    work: Sequence[Work]
    session: str
    began_s: float
    #: None = it runs, or its process ended before it did.
    ended_s: float | None = None
    #: "runs", "done", "cut off" (its process ended), or the error that it raised.
    outcome: str = "runs"
    #: Work of this call that may be done again: its session is dead and the store does not know the work as done, or
    #: the store has lost its data.
    excused: set[Work] = field(default_factory=set)
    #: Whether the group was reset to an offset at or before its records: its effects do not count.
    replayed: bool = False

    @property
    def where(self) -> str:
        """Partition and offset of its first record, as text."""
        first = place(self.records[0])
        return first if len(self.records) == 1 else f"{first} and {len(self.records) - 1} more"


class Sight(Protocol):
    """The state of the store itself, which may differ from what a member was told."""

    def alive(self, session: str) -> bool:
        """Whether that session lives."""
        ...

    def done(self, work: Work, record: Record) -> bool:
        """Whether that work is done, as the store has it."""
        ...


class Book:
    """All calls of handlers, and all dead letters."""

    def __init__(self, group: str, sight: Sight) -> None:
        self._group, self._sight = group, sight
        self.calls: list[Call] = []
        self.letters: list[Letter] = []
        #: Places of records that went to a retry topic. And retry topic -> the topic that its records come from.
        self.sent_on: set[str] = set()
        self.born_in: Mapping[str, str] = {}
        self._by_work: dict[Work, list[Call]] = defaultdict(list)
        self._forgot_before = 0

    def began(self, member: str, handler: Handler, records: Sequence[Record], now: float) -> Call:
        """Note that a handler is called."""
        work = [self.work_of(handler, record) for record in records]
        call = Call(len(self.calls), member, handler.name, records, work, records[0].fence.session, now)
        for each, record in zip(work, records, strict=True):
            self._excuse(each, record)
            self._by_work[each].append(call)
        self.calls.append(call)
        return call

    def ended(self, call: Call, now: float, outcome: str) -> None:
        """Note that the call has returned or raised."""
        if call.outcome == "runs":
            call.ended_s, call.outcome = now, outcome

    def crashed(self, member: str) -> None:
        """Note that a process has ended: the calls that ran there never end."""
        for call in self.running(member):
            call.outcome = "cut off"

    def running(self, member: str | None = None) -> list[Call]:
        """Calls that have not ended, of one member or of all."""
        return [call for call in self.calls if call.outcome == "runs" and member in (None, call.member)]

    def forgot(self) -> None:
        """Note that the store has lost all data: all work until now may be done again."""
        self._forgot_before = len(self.calls)

    def replayed(self, partition: Partition, offset: int) -> None:
        """Note that the group was reset to that offset."""
        for call in self.calls:
            if any(record.partition == partition and record.offset >= offset for record in call.records):
                call.replayed = True

    def of(self, work: Work) -> Sequence[Call]:
        """The calls for that work."""
        return self._by_work.get(work, ())

    def lettered(self, record: Record) -> bool:
        """Whether the record went to the dead letters, or to a retry topic, where it is a new record."""
        return place(record) in self.sent_on or any(place(letter.record) == place(record) for letter in self.letters)

    def work_of(self, handler: Handler, record: Record) -> Work:
        """The record's work, as the engine names it."""
        if handler.key is not None:
            try:
                born_in = self.born_in.get(record.topic, record.topic)
                return Work(handler.scope_of(self._group, born_in), handler.key(record))
            except KeyMissing:
                pass  # without a key the engine goes by the position, if it handles the record at all
        return Work("", place(record))

    def _excuse(self, work: Work, record: Record) -> None:
        for call in self.of(work):
            if call.outcome in ("runs", "done", "cut off") and (
                call.number < self._forgot_before
                or not (self._sight.alive(call.session) or self._sight.done(work, record))
            ):
                call.excused.add(work)


def place(record: Record) -> str:
    """Partition and offset, as text."""
    return f"{record.partition}@{record.offset}"
