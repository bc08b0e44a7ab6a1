"""The audit's events, as values and as JSON. See docs/operations/audit.md.

An event is one JSON object: a line of a file, or the value of a Kafka message (its key is the run). All events have the
stamp's fields and `kind`; the other fields depend on the kind. A reader ignores fields and kinds that it does not know:
version 1 may get more of them, and existing ones keep their meaning.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.errors import EventUnreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.records import Partition

VERSION = 1


class Outcome(StrEnum):
    """The outcome of the records of a span. All but FAILED, EXPIRED and CLIENT_SKIPPED cover their offsets: the report
    counts these offsets as accounted for."""

    #: The handler returned, once for each record: an execution. From an own loop: the loop has reported so.
    HANDLED = "handled"
    #: A duplicate, found by its position or by its business key: no handler ran.
    SKIPPED_POSITION = "skipped_position"
    SKIPPED_KEY = "skipped_key"
    #: The record failed for good, and its dead letter is acknowledged.
    DEAD_LETTERED = "dead_lettered"
    #: The broker delivers it again, as another record.
    SENT_BACK = "sent_back"
    #: An attempt failed. Covers nothing: the record's own outcome is in another span.
    FAILED = "failed"
    #: The log has no record there (compaction, transaction markers): the source passed these offsets without delivering
    #: a record. If its client may be wrong about that, they were fetched again; see `partition/holes.py` for how often.
    ABSENT = "absent"
    #: Retention has deleted the records before they were read: a gap, but none that the consumer has caused.
    EXPIRED = "expired"
    #: The client had passed the record without delivering it, and delivered it after a seek back. Covers nothing: the
    #: record's own outcome is in another span.
    CLIENT_SKIPPED = "client_skipped"


COVERS_NOTHING = (Outcome.FAILED, Outcome.EXPIRED, Outcome.CLIENT_SKIPPED)
#: Outcomes whose spans hold no record that has come to its end.
NO_RECORDS = (*COVERS_NOTHING, Outcome.ABSENT)
COVERING = frozenset(Outcome) - {*COVERS_NOTHING}


def label(partition: Partition) -> str:
    """A partition's name in events, beside its topic: `3`, or `broker-a-3` where each broker numbers its own queues."""
    return f"{partition.broker}-{partition.number}" if partition.broker else str(partition.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The fields with which every event begins."""

    group: str
    #: The member's name, for people; two runs may have the same.
    member: str
    #: The id of one start of one process; hexadecimal.
    run: str
    #: 0, 1, 2 ... in the run. A missing number: the event was lost on its way.
    seq: int
    #: When the event was created: milliseconds since 1970, by the clock of that machine.
    at_ms: int
    #: How many events the run has dropped so far, because its buffer was full or its sink refused them.
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A run of offsets of one partition with one outcome.

    `records` is less than `next - first` if the log has no record at some of the offsets. For a source whose offsets
    are no positions in a log (`Spans.ordered` is false), `first` and `next` are null.
    """

    first: int | None
    #: Exclusive.
    next: int | None
    outcome: Outcome
    records: int
    #: Wall clock, milliseconds since 1970: the first record was given to its handler; the last was seen to have ended.
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """One record's business key. Only with `Audit.keys`."""

    offset: int | None
    key: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPartition:
    """One partition and a member's position in it. An offset is that of the next record; None: not known."""

    topic: str
    partition: str
    #: Rises at each change of ownership; None: ownerships are not counted.
    epoch: int | None = None
    #: In `Assigned`: the offset at which reading begins. Else the watermark: all records below it are done.
    position: int | None = None
    #: The end of the log, as the client last heard it from the broker.
    end: int | None = None
    #: In `Progress`: records that were read and are not done. In `Revoked`: records whose handlers still run.
    in_flight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run begins."""

    kind: ClassVar[str] = "started"

    #: The rebalance protocol; None: there is none, or it is not known.
    protocol: str | None
    #: The source's class, or "loop".
    source: str
    #: Settings of the audit: flush_s, progress_s, keys.
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A run ends and has written all its events but the dropped ones. A run without this event was killed, or is still
    running."""

    kind: ClassVar[str] = "stopped"

    #: The run was asked to stop, and no handler was left running.
    clean: bool
    #: Outcome -> number of records in all spans of the run; offsets without a record do not count. A reader that has
    #: fewer has missed events.
    records: Mapping[str, int]
    #: Records whose handlers still ran: no event tells their outcome.
    in_hand: int = 0
    #: The class of the error that ended the run.
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """The outcomes of records of one partition since the last flush."""

    kind: ClassVar[str] = "span"

    topic: str
    partition: str
    epoch: int | None
    spans: Sequence[Span]
    #: None: `Audit.keys` does not ask for keys.
    keys: Sequence[Keyed] | None = None
    #: Whether offsets are positions in a log. If not, gaps and repeated offsets mean nothing, and only keys identify
    #: records.
    ordered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Partitions that the member works on from now on."""

    kind: ClassVar[str] = "assigned"

    partitions: Sequence[AuditPartition]
    #: "assigned", or "reset": a reset of the group's offsets makes it read again from `position`, on purpose.
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """Partitions that the member has no more."""

    kind: ClassVar[str] = "revoked"

    partitions: Sequence[AuditPartition]
    #: "revoked", "lost", "leave", "session lost", or "retaken": the same member takes the partition over again.
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalanced:
    """A `RebalanceReport`, written when the rebalance's effects are over. Its fields are described there."""

    kind: ClassVar[str] = "rebalance"

    trigger: str
    #: A number of partitions, as `given`.
    gained: int
    given: int
    drained: int
    abandoned: int
    handed_back: int
    duplicates_suppressed: int
    phases_s: Mapping[str, float]
    pause_s: float | None
    recovered_s: float | None
    steady_intake_per_s: float | None
    peak_intake_per_s: float | None
    ramp_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The positions of all partitions: a sample of the lag."""

    kind: ClassVar[str] = "progress"

    partitions: Sequence[AuditPartition]


Body = Started | Stopped | Spans | Assigned | Revoked | Rebalanced | Progress

KINDS: Mapping[str, type[Body]] = {
    each.kind: each for each in (Started, Stopped, Spans, Assigned, Revoked, Rebalanced, Progress)
}
_LISTS: Mapping[str, type[Span | Keyed | AuditPartition]] = {"spans": Span, "keys": Keyed, "partitions": AuditPartition}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event: the stamp, and the fields of its kind."""

    stamp: Stamp
    body: Body


def encode(event: Event) -> str:
    """The event as one JSON object, without line breaks."""
    flat: dict[str, Any] = {"v": VERSION, "kind": event.body.kind, **_flat(event.stamp), **_flat(event.body)}
    for name in _LISTS.keys() & flat.keys():
        if flat[name] is not None:
            flat[name] = [_flat(each) for each in flat[name]]
    return json.dumps(flat, separators=(",", ":"))


def decode(line: str | bytes) -> Event:
    """Read an event from its JSON object.

    Raises:
        EventUnreadable: the line is no event (a killed process may cut its last line), or one of a later version.
    """
    try:
        flat = json.loads(line)
    except ValueError as error:
        raise EventUnreadable(f"no JSON object: {error}") from error
    if not isinstance(flat, dict) or not isinstance(flat.get("v"), int):
        raise EventUnreadable("no audit event: it has no version")
    if flat["v"] > VERSION:
        raise EventUnreadable(f"an audit event of version {flat['v']}: this holdfast reads {VERSION}, take a later one")
    kind = KINDS.get(str(flat.get("kind")))
    if kind is None:
        raise EventUnreadable(f"an audit event of kind {flat.get('kind')!r}, which this holdfast does not know")
    try:
        for name in _LISTS.keys() & flat.keys():
            if flat[name] is not None:
                flat[name] = tuple(_LISTS[name](**_known(_LISTS[name], each)) for each in flat[name])
        return Event(stamp=Stamp(**_known(Stamp, flat)), body=kind(**_known(kind, flat)))
    except (TypeError, ValueError, AttributeError) as error:
        raise EventUnreadable(f"a broken audit event: {error}") from error


def _flat(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the classes above
    return {name: getattr(value, name) for name in value.__slots__}


def _known(kind: type[Any], flat: Mapping[str, Any]) -> dict[str, Any]:
    """The object's fields that the class has, with `outcome` converted. Raises ValueError: no such outcome."""
    found = {each.name: flat[each.name] for each in fields(kind) if each.name in flat}
    if "outcome" in found:
        found["outcome"] = Outcome(found["outcome"])
    return found
