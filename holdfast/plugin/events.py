"""Events: the values that observers get, and that the log has as one line each (`event_line.py`)."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from holdfast.plugin.event_line import EventLine

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.records import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceReport(EventLine):
    """One change of this member's partitions, reported when its effects are over.

    That is at once if the member only gave up partitions. Else it is when the lag found at the assignment is handled,
    at the next rebalance, or at the end of the process, whichever is first.
    """

    level: ClassVar[int] = logging.INFO

    #: "assigned", "revoked", "lost" or "leave", as far as this member can know; or "session lost": then all partitions
    #: pause until the next session has taken them over again, and `gained` names them.
    trigger: str
    protocol: str
    group: str
    #: When the change began: wall clock, milliseconds since 1970. The report itself comes later.
    began_ms: int
    gained: tuple[Partition, ...] = ()
    given: tuple[Partition, ...] = ()
    #: Records whose handlers ended, and were marked, within the drain.
    drained: int = 0
    #: Records whose handlers were still running when the partition moved away. The next owner waits for them, except
    #: after a lost session.
    abandoned: int = 0
    #: Records that were polled and not started; the next owner runs them.
    handed_back: int = 0
    #: Records skipped because they were done already, on all partitions since the previous report.
    duplicates_suppressed: int = 0
    #: Seconds of each phase, in the order of time: fence, drain, settle, commit, let_go; or take_over.
    phases_s: Mapping[str, float] = field(default_factory=dict)
    #: From the assignment (or the loss of the session) until the first record of a gained partition started; None = no
    #: record started.
    pause_s: float | None = None
    #: From the assignment until the lag found at it was handled; None = not before the report.
    recovered_s: float | None = None
    #: Records a second, as measured by the ramp: what producers send to all owned partitions, or the intake before the
    #: change; None = next to nothing, or unknown.
    steady_intake_per_s: float | None = None
    #: The most records admitted to handlers in one second since the assignment; None = no record was admitted.
    peak_intake_per_s: float | None = None
    #: How long the ramp limited the intake; None = there was no ramp, or it limited nothing.
    ramp_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(EventLine):
    """Partitions were assigned just now. A `RebalanceReport` follows when their effects are over."""

    level: ClassVar[int] = logging.INFO

    group: str
    #: This member's name at brokers and in tools; None = the source does not have one.
    member: str | None = None
    protocol: str
    partitions: tuple[Partition, ...]
    #: The partitions that a former owner has to give up first, or for which the store or the broker has not
    #: answered yet.
    waiting: tuple[Partition, ...] = ()
    #: Number of partitions that this member has now.
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(EventLine):
    """The app begins to leave: it starts no more handlers, and waits for the running ones."""

    level: ClassVar[int] = logging.INFO

    group: str
    #: A signal, a call of `stop()`, or the error that ends it.
    why: str
    #: Records in handlers, and all records in the process.
    running: int
    in_flight: int
    #: How long the app waits for running handlers before it gives up their partitions; how to give them up at once.
    drain_timeout_s: float
    hurry: str = "a second signal, or another stop(), skips the drain"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(EventLine):
    """The app has left the group. Figures count from its start."""

    level: ClassVar[int] = logging.INFO

    group: str
    uptime_s: float
    #: Records handled without an error; records skipped because they were done already; dead letters.
    handled: int
    skipped: int
    #: Handler calls for a record that had been started before: it failed here, or a former owner handed it over
    #: unfinished. Members cannot count what a crash repeats; the audit can.
    repeated: int
    dead_lettered: int
    failed_attempts: int
    #: Handlers that were still running at the end; other members wait for them.
    in_hand: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDown(EventLine):
    """The claim store does not answer. `Settings.store_down` (`mode`) says what the app does meanwhile."""

    level: ClassVar[int] = logging.ERROR

    error: str
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUp(EventLine):
    """The claim store answers again."""

    level: ClassVar[int] = logging.INFO

    down_s: float
    #: Handlers that started without protection during the outage (`store_down="open"` only).
    unprotected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLost(EventLine):
    """This process could not renew its session in time, so others may take over. It fences itself and begins a new
    session."""

    session: str
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLost(EventLine):
    """The claim store has lost its data, or is another one. Records done above the committed offsets run again."""

    #: The store itself has said so (logger "holdfast.dedup").
    level: ClassVar[int] = logging.DEBUG

    #: The store's identity before, and now.
    before: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDiffers(EventLine):
    """A member of this group commits with another claim store, so neither member knows what the other has done. Or this
    store lost its data while this process was not connected. Reported once for each such store."""

    level: ClassVar[int] = logging.ERROR

    partition: Partition
    #: The store named in the commit, and this member's.
    theirs: str
    ours: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetHonoured(EventLine):
    """The committed offset was set by another program. The member continues there, and drops what it knew of records
    from that offset on."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindIgnored(EventLine):
    """The committed offset carries holdfast's mark and is below what is done: it is a late commit or a zombie's. The
    member ignores it and commits its own offset again."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOverwritten(EventLine):
    """The broker's offset is not the one that it last acknowledged to this member: a zombie or another program has
    committed. This member commits its own offset again."""

    partition: Partition
    offset: int
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceIgnored(EventLine):
    """The broker's offset is beyond what is done, and does not say who set it. The member continues at what is done. To
    skip records on purpose, reset the group.

    With `SqlPositions`: the database has lost what it had acknowledged, and the records in between run again."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceHonoured(EventLine):
    """Another program has set the group's offset beyond what is done, while this member has the partition. `records`
    records below that offset count as done and are not handled."""

    partition: Partition
    offset: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWentBack(EventLine):
    """The broker delivered an offset below one that it had delivered before: the log was truncated or created again."""

    partition: Partition
    offset: int
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsExpired(EventLine):
    """The log deleted records before this group read them, by retention or by hand. The broker reports no error."""

    level: ClassVar[int] = logging.ERROR

    partition: Partition
    #: The deleted offsets: from `first` up to, but without, `next`.
    first: int
    next: int
    #: Upper bound, without records known as done: some offsets may have had no record, and a former owner may still
    #: handle some.
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSkipped(EventLine):
    """The client skipped records as if there were none, and delivered them after holdfast had moved it back. The fault
    is the client's: upgrade it."""

    partition: Partition
    first: int
    next: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailed(EventLine):
    """A handler failed. `retry_in_s` None = the record is not tried again here. In a batch, `records` records failed
    with the same error, and `offset` is the first of them."""

    of_a_record: ClassVar[bool] = True
    partition: Partition
    offset: int
    handler: str
    attempt: int
    error: str
    retry_in_s: float | None
    records: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered(EventLine):
    """A record failed for good, and the broker has acknowledged its dead letter."""

    of_a_record: ClassVar[bool] = True
    partition: Partition
    offset: int
    handler: str
    topic: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterHookFailed(EventLine):
    """A function of `app.on_dead_letter` failed, or could not be called. The dead letter was sent all the same."""

    of_a_record: ClassVar[bool] = True
    #: The record's.
    partition: Partition
    offset: int
    handler: str
    #: The function's name.
    hook: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterLimitReached(EventLine):
    """A handler reached its `DeadLetterLimit`: so many records failed for good that the handler counts as broken."""

    level: ClassVar[int] = logging.ERROR

    handler: str
    #: `failed` of the `ended` records failed for good: in a row, or within the limit's time.
    failed: int
    ended: int
    #: The first record that waits instead of becoming a dead letter, and its error.
    partition: Partition
    offset: int
    error: str
    #: "pause" or "stop".
    then: str
    #: Seconds until one record is tried again. If it is handled, the handler continues.
    pause_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersResumed(EventLine):
    """A handler that was paused at its `DeadLetterLimit` continues."""

    handler: str
    paused_s: float
    #: Records that waited and are tried again now.
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBack(EventLine):
    """A record failed and is tried again later. It waits in `topic`, a retry topic of holdfast or of the broker."""

    of_a_record: ClassVar[bool] = True
    level: ClassVar[int] = logging.INFO

    partition: Partition
    offset: int
    handler: str
    topic: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun(EventLine):
    """A handler outlived the drain. Its partition moved on without it, and its claim stays until the handler ends."""

    of_a_record: ClassVar[bool] = True
    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MuchInHand(EventLine):
    """A user's own loop holds more records than `Settings` allow in the process, and asks for more. It gets more, since
    only the loop can end what it holds. Reported again at twice as much."""

    #: Records that the loop was given and has not ended, their size, and the bounds in `Settings`.
    records: int
    size_bytes: int
    max_in_flight: int
    max_in_flight_bytes: int
    remedy: str = "commit (or call done) more often, or raise max_in_flight and max_in_flight_bytes to what it needs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTooFarAhead(EventLine):
    """A partition was read `Settings.max_ahead` offsets beyond its lowest record that is not done. It is not read
    further until that record is done."""

    partition: Partition
    #: The record that holds the partition up.
    offset: int
    #: Number of offsets read beyond that record.
    ahead: int
    max_ahead: int
    remedy: str = "find out why the record is not done (health says what it waits for); give its handler a timeout_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOverdue(EventLine):
    """A handler call has run past its timeout: holdfast cancels it, and gives it up after its grace."""

    of_a_record: ClassVar[bool] = True
    partition: Partition
    #: The first record's, if the call has a batch.
    offset: int
    handler: str
    running_s: float
    records: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLoopBlocked(EventLine):
    """An `async def` handler blocks its event loop. Reported once for each handler."""

    handler: str
    #: File and line at which the handler stands: the innermost frame outside of libraries.
    where: str
    for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerGivenUp(EventLine):
    """A handler call did not end within its grace. Its thread is replaced, and what it still does is unknown."""

    partition: Partition
    offset: int
    handler: str
    running_s: float
    #: "dead_letter" or "stop".
    then: str
    #: Calls that were given up and are still running, including this one.
    stuck: int
    records: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult(EventLine):
    """A call that was given up has ended after all. Its outcome does not count: the earlier one stands."""

    of_a_record: ClassVar[bool] = True
    partition: Partition
    offset: int
    handler: str
    running_s: float
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(EventLine):
    """Figures of the app, every `Settings.status_interval_s`. `app.snapshot()` has more."""

    level: ClassVar[int] = logging.INFO

    state: str
    group: str
    #: Records handled without an error since the start, and per second since the previous status.
    handled: int
    rate_s: float
    in_flight: int
    running: int
    #: Offsets that are not done; None = the lag of a partition is unknown.
    lag: int | None
    #: If `lag` is None: the lag of the partitions whose lag is known, and the number of the others. Else None.
    lag_known: int | None
    lag_unknown_in: int | None
    partitions: int
    #: "up", "down" or "none".
    store: str
    #: Records skipped because they were done already.
    duplicates: int
    failed_attempts: int
    dead_lettered: int
    overdue: int
    stuck: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTrouble(EventLine):
    """The broker or its client reports a fault that the engine waits out."""

    error: str


Event = (
    RebalanceReport | Assigned | Stopping | Stopped | StoreDown | StoreUp | SessionLost | StoreLost | StoreDiffers
    | ResetHonoured | RewindIgnored | AdvanceIgnored | CommitOverwritten | LogWentBack | RecordsExpired | ClientSkipped
    | RecordFailed | DeadLettered | LetterHookFailed | DeadLetterLimitReached | DeadLettersResumed | SentBack | Overrun
    | MuchInHand | ReadTooFarAhead | EventLoopBlocked | HandlerOverdue | HandlerGivenUp | LateResult | Status
    | SourceTrouble | AdvanceHonoured
)  # fmt: skip
