"""The audit's events: what a consumer tells of its work, as values and as JSON. See docs/operations/audit.md.

One JSON object an event: a line of a file, or the value of a message in Kafka (key: the run). All have the stamp's
fields and `kind`; the rest is the kind's. Fields that a reader does not know are to be ignored, kinds too: version 1
may grow, and what is there keeps its meaning.
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
    """The outcome of the records of a span. All but FAILED, EXPIRED and CLIENT_SKIPPED cover their offsets: they are
    accounted for."""

    #: The handler ended well, once for each record: an execution. Of a loop of one's own: it said so.
    HANDLED = "handled"
    #: A duplicate, known by its position or by its business key: nothing ran.
    SKIPPED_POSITION = "skipped_position"
    SKIPPED_KEY = "skipped_key"
    #: It failed for good, and its dead letter is acknowledged; or the broker brings it again as another record.
    DEAD_LETTERED = "dead_lettered"
    SENT_BACK = "sent_back"
    #: An attempt failed. Covers nothing: what becomes of the record is another span.
    FAILED = "failed"
    #: The log has no record there (compaction, transaction markers): the source went past without delivering any. Where
    #: its client may be wrong about that, it was sent back and asked again; see `partition/holes.py` for how often.
    ABSENT = "absent"
    #: The log has deleted what lay there (retention) before it was read. A gap, which is nobody's loss but retention's.
    EXPIRED = "expired"
    #: The client had gone past it as if nothing were there, and gave it when it was sent back. Covers nothing: what
    #: becomes of the record is another span.
    CLIENT_SKIPPED = "client_skipped"


COVERS_NOTHING = (Outcome.FAILED, Outcome.EXPIRED, Outcome.CLIENT_SKIPPED)
#: Of spans in which nothing came to its end.
NO_RECORDS = (*COVERS_NOTHING, Outcome.ABSENT)
COVERING = frozenset(Outcome) - {*COVERS_NOTHING}


def label(partition: Partition) -> str:
    """A partition's name in events, beside its topic: `3`, or `broker-a-3` where brokers number their own."""
    return f"{partition.broker}-{partition.number}" if partition.broker else str(partition.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """The fields with which every event begins."""

    group: str
    #: The member's name, for people; two runs may have the same.
    member: str
    #: One start of one process; hexadecimal.
    run: str
    #: 0, 1, 2 ... in that run. A hole: events that were lost on their way.
    seq: int
    #: Milliseconds since 1970, as that machine has it, when the event was made.
    at_ms: int
    #: How many events that run has given up so far, since its buffer was full or its sink refused them.
    dropped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A run of offsets of one partition with one outcome.

    `records` is less than `next - first` where the log has no record at some of the offsets. Of a source whose offsets
    say nothing (`Spans.ordered`) both are null.
    """

    first: int | None
    #: Exclusive.
    next: int | None
    outcome: Outcome
    records: int
    #: Wall clock, when the first of them was given to its handler, and when the last was seen to have ended.
    began_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyed:
    """One record's business key, where keys are asked for."""

    offset: int | None
    key: str
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPartition:
    """One partition, as a member stands in it. Offsets are the next one to be read; None: not known."""

    topic: str
    partition: str
    #: Rises at each change of ownership; None: nobody counts.
    epoch: int | None = None
    #: Assigned: where reading begins. Otherwise the watermark: everything below is done.
    position: int | None = None
    #: The log's end as the client has heard last.
    end: int | None = None
    #: Progress: records that were read and are not settled. Revoked: those in hand, which their handlers may yet end.
    in_flight: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run begins."""

    kind: ClassVar[str] = "started"

    #: The rebalance protocol; None: nothing is handed out here, or nobody has said.
    protocol: str | None
    #: The source's class, or "loop".
    source: str
    #: Of the emitter: flush_s, progress_s, keys.
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """A run ends and has told everything, but for what was dropped. A run without it was killed, or still lives."""

    kind: ClassVar[str] = "stopped"

    #: It was asked to stop, and nothing was left in hand.
    clean: bool
    #: Records of all spans that were made, by outcome; holes are no records. What a reader has less is missing.
    records: Mapping[str, int]
    #: Records whose handlers still ran: whether they end is not told.
    in_hand: int = 0
    #: The class of the error that ended it.
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """The outcomes of records of one partition since the last flush."""

    kind: ClassVar[str] = "span"

    topic: str
    partition: str
    epoch: int | None
    spans: Sequence[Span]
    #: None: keys are not asked for.
    keys: Sequence[Keyed] | None = None
    #: Whether offsets are a log's. If not, gaps and repeated offsets say nothing: records are known by their keys.
    ordered: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """Partitions that the member works on from now on."""

    kind: ClassVar[str] = "assigned"

    partitions: Sequence[AuditPartition]
    #: "assigned"; "reset": from there on it is read again on purpose.
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """Partitions that the member has no more."""

    kind: ClassVar[str] = "revoked"

    partitions: Sequence[AuditPartition]
    #: "revoked", "lost", "leave", "session lost", or "retaken": taken over anew by the same member.
    trigger: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebalanced:
    """A `RebalanceReport`, told when its effects are over; see there."""

    kind: ClassVar[str] = "rebalance"

    trigger: str
    #: How many partitions.
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
    """Where all partitions stand: a sample of the lag."""

    kind: ClassVar[str] = "progress"

    partitions: Sequence[AuditPartition]


Body = Started | Stopped | Spans | Assigned | Revoked | Rebalanced | Progress

KINDS: Mapping[str, type[Body]] = {
    each.kind: each for each in (Started, Stopped, Spans, Assigned, Revoked, Rebalanced, Progress)
}
_LISTS: Mapping[str, type[Span | Keyed | AuditPartition]] = {"spans": Span, "keys": Keyed, "partitions": AuditPartition}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A stamp, and what it is put on."""

    stamp: Stamp
    body: Body


def encode(event: Event) -> str:
    """One JSON object without line breaks."""
    flat: dict[str, Any] = {"v": VERSION, "kind": event.body.kind, **_flat(event.stamp), **_flat(event.body)}
    for name in _LISTS.keys() & flat.keys():
        if flat[name] is not None:
            flat[name] = [_flat(each) for each in flat[name]]
    return json.dumps(flat, separators=(",", ":"))


def decode(line: str | bytes) -> Event:
    """The event of that JSON object.

    Raises:
        EventUnreadable: it is none (the line that a killed process could not end, say), or one of a later version.
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
    """The fields that it has, of those that were found; outcomes as such. Raises ValueError for one that is none."""
    found = {each.name: flat[each.name] for each in fields(kind) if each.name in flat}
    if "outcome" in found:
        found["outcome"] = Outcome(found["outcome"])
    return found
