"""Event values: what the engine tells its observers, and logs as one line each (`event_line.py`)."""

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
    """One change of what this member owns, told when its effects are over.

    That is: at once, where partitions only went; else when the lag that was found at the start is worked off, at the
    next rebalance, or at the end of the process, whichever is first.
    """

    level: ClassVar[int] = logging.INFO

    #: "assigned", "revoked", "lost" or "leave", as far as this member can know; or "session lost": its partitions stand
    #: still until its next session has taken them over anew, which are those gained.
    trigger: str
    protocol: str
    group: str
    #: When it began: wall clock, milliseconds since 1970. The report itself comes later.
    began_ms: int
    gained: tuple[Partition, ...] = ()
    given: tuple[Partition, ...] = ()
    #: Records whose handlers ended, and were marked, within the drain.
    drained: int = 0
    #: Records whose handlers were still running when the partition went; the next owner waits for them, but where the
    #: session was lost.
    abandoned: int = 0
    #: Records that were polled and not started; the next owner runs them.
    handed_back: int = 0
    #: Records that were not run since they were done, on all partitions since the report before.
    duplicates_suppressed: int = 0
    #: Seconds of each phase, one after the other from the begin: fence, drain, settle, commit, let_go; or take_over.
    phases_s: Mapping[str, float] = field(default_factory=dict)
    #: From the assignment (or the loss of the session) to the first record started on what was gained; None = none was.
    pause_s: float | None = None
    #: From there until the end of the log as found then was worked off; None = not within the report.
    recovered_s: float | None = None
    #: Records a second, as the ramp found them: what producers send to all that is owned, or what was taken in before;
    #: None = next to nothing, or not known.
    steady_intake_per_s: float | None = None
    #: The most records that were admitted to handlers in any second since the assignment; None = none were.
    peak_intake_per_s: float | None = None
    #: How long the ramp held the intake; None = there was none, or it held nothing back.
    ramp_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned(EventLine):
    """Partitions came, just now. What they brought is told later, by a `RebalanceReport`."""

    level: ClassVar[int] = logging.INFO

    group: str
    #: What brokers and tools call this member, as far as the source says.
    member: str | None = None
    protocol: str
    partitions: tuple[Partition, ...]
    #: Of them, those that a former owner has to let go first, or that the store or the broker has no answer for yet.
    waiting: tuple[Partition, ...] = ()
    #: All that this member has now.
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping(EventLine):
    """The app begins to leave: nothing new starts, what runs is waited for."""

    level: ClassVar[int] = logging.INFO

    group: str
    #: A signal, a call of `stop()`, or the error that ends it.
    why: str
    #: Records in handlers, and all that are in the process.
    running: int
    in_flight: int
    #: How long they are waited for before others have their partitions; what hands them over at once.
    drain_timeout_s: float
    hurry: str = "a second signal, or stop()"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped(EventLine):
    """The app has left. Figures since its start."""

    level: ClassVar[int] = logging.INFO

    group: str
    uptime_s: float
    #: Records whose handlers ended well; that were not run since they were done; dead letters.
    handled: int
    skipped: int
    #: Calls of a handler for a record that had one before: it failed here, or a former owner handed it over unfinished.
    #: What a crash repeats no member knows; the audit does.
    repeated: int
    dead_lettered: int
    failed_attempts: int
    #: Handlers that still ran at the end, and others wait for.
    in_hand: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDown(EventLine):
    """The claim store gives no answer; what the app does then is `Settings.store_down`."""

    level: ClassVar[int] = logging.ERROR

    error: str
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUp(EventLine):
    """The claim store answers again."""

    level: ClassVar[int] = logging.INFO

    down_s: float
    #: Handlers that started meanwhile without protection (`store_down="open"` only).
    unprotected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLost(EventLine):
    """This process could not renew its session in time: others may take over. It fences itself and begins anew."""

    session: str
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLost(EventLine):
    """The claim store has lost what it knew, or is another: what was done above the committed offsets runs again."""

    #: The store itself has said so (logger "holdfast.dedup").
    level: ClassVar[int] = logging.DEBUG

    #: What it was known by, and is now.
    before: str
    now: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDiffers(EventLine):
    """A member of this group commits with another store of claims: neither knows what the other has done. Or this store
    has lost its data, and this process was not connected then. Told once for each such store."""

    level: ClassVar[int] = logging.ERROR

    partition: Partition
    #: As the commit says.
    theirs: str
    ours: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetHonoured(EventLine):
    """A committed offset that is not ours was found: what we knew from there on is forgotten."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindIgnored(EventLine):
    """A commit of ours that is older than what is done (a late one, or a zombie's) was found and is corrected."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOverwritten(EventLine):
    """The broker's offset is not the one of ours that it has acknowledged: a zombie or a program that is not ours has
    committed. Ours is committed anew."""

    partition: Partition
    offset: int
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceIgnored(EventLine):
    """The broker's offset is beyond what is done, and does not say who set it: what is known wins. To skip records on
    purpose, reset the group."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvanceHonoured(EventLine):
    """Another program has set the group's offset beyond what is done, while this member has the partition. So many
    records below it count as done and are not handled."""

    partition: Partition
    offset: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWentBack(EventLine):
    """The broker delivered an offset below one that it had delivered: the log was cut or made again."""

    partition: Partition
    offset: int
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsExpired(EventLine):
    """The log has deleted records (retention, somebody) before this group read them. To the broker it is no error."""

    level: ClassVar[int] = logging.ERROR

    partition: Partition
    #: Offsets from the first up to, without, the next one.
    first: int
    next: int
    #: At most, without those known as done: some offsets may have had none, a former owner may have some in hand.
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSkipped(EventLine):
    """The client had gone past records as if there were none; sent back, it gave them. Its fault: upgrade it."""

    partition: Partition
    first: int
    next: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailed(EventLine):
    """A handler failed. `retry_in_s` None = it is not tried again here. Of a batch: `records` of it failed alike, the
    first of them that one."""

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
    """A record failed for good, and its dead letter is acknowledged."""

    of_a_record: ClassVar[bool] = True
    partition: Partition
    offset: int
    handler: str
    topic: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterHookFailed(EventLine):
    """A function of `app.on_dead_letter` failed, or could not be called. The letter is there all the same."""

    of_a_record: ClassVar[bool] = True
    #: Of the record.
    partition: Partition
    offset: int
    handler: str
    #: The function's name.
    hook: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterLimitReached(EventLine):
    """So many records of a handler failed for good that it is taken for broken: see `DeadLetterLimit`."""

    level: ClassVar[int] = logging.ERROR

    handler: str
    #: Of so many records that ended, so many failed for good: in a row, or within the limit's time.
    failed: int
    ended: int
    #: The first that waits instead of going to the dead letters, and how it failed.
    partition: Partition
    offset: int
    error: str
    #: "pause" or "stop".
    then: str
    #: After so long one record is tried again; where it is handled well, the handler goes on.
    pause_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettersResumed(EventLine):
    """A handler that was paused at the limit of its dead letters goes on."""

    handler: str
    paused_s: float
    #: Records that waited, and are tried again now.
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SentBack(EventLine):
    """A record failed and is tried again later: it is in that retry topic, of ours or of the broker."""

    of_a_record: ClassVar[bool] = True
    level: ClassVar[int] = logging.INFO

    partition: Partition
    offset: int
    handler: str
    topic: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun(EventLine):
    """A handler outlived the drain: its partition went on without it, its claim stays until it ends."""

    of_a_record: ClassVar[bool] = True
    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MuchInHand(EventLine):
    """A loop of one's own has more in hand than may be in the process, and asks for more. It gets that: what it has, it
    alone can end. Told again at twice as much."""

    #: What the loop was given and has not ended, and the bounds in `Settings`.
    records: int
    size_bytes: int
    max_in_flight: int
    max_in_flight_bytes: int
    remedy: str = "commit (or call done) more often; or set max_in_flight and max_in_flight_bytes as high as is meant"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadTooFarAhead(EventLine):
    """A partition was read as far beyond its lowest record that is not done as it may be. Nothing more of it is read
    until that record ends."""

    partition: Partition
    #: The record that holds it.
    offset: int
    #: So many offsets beyond it were read.
    ahead: int
    max_ahead: int
    remedy: str = "see why that record does not end (health says what it waits for); a handler may have timeout_s="


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerOverdue(EventLine):
    """A call of a handler runs for longer than it may: it is cancelled, and given up after its grace."""

    of_a_record: ClassVar[bool] = True
    partition: Partition
    #: Of the first record, where it is a batch.
    offset: int
    handler: str
    running_s: float
    records: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLoopBlocked(EventLine):
    """An `async def` handler lets nothing else of its event loop run. Told once of each handler."""

    handler: str
    #: File and line at which it stands: the innermost that is not a library's.
    where: str
    for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HandlerGivenUp(EventLine):
    """A call did not end within its grace. Its thread is replaced; what it still does is not known."""

    partition: Partition
    offset: int
    handler: str
    running_s: float
    #: "dead_letter" or "stop".
    then: str
    #: Calls that were given up and have not ended, this one included.
    stuck: int
    records: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LateResult(EventLine):
    """A call that was given up has ended after all. What became of its record stands; how it ended does not count."""

    of_a_record: ClassVar[bool] = True
    partition: Partition
    offset: int
    handler: str
    running_s: float
    outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status(EventLine):
    """How the app is doing, each `Settings.status_interval_s`. `app.snapshot()` has more."""

    level: ClassVar[int] = logging.INFO

    state: str
    group: str
    #: Records whose handlers ended well, since the start; and how many a second since the last such line.
    handled: int
    rate_s: float
    in_flight: int
    running: int
    #: Offsets that are not done; None = it is not known of each partition.
    lag: int | None
    #: Then: of those partitions of which it is known, and of how many it is not. Else None.
    lag_known: int | None
    lag_unknown_in: int | None
    partitions: int
    #: "up", "down" or "none".
    store: str
    #: Records that were not run because they were done.
    duplicates: int
    failed_attempts: int
    dead_lettered: int
    overdue: int
    stuck: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTrouble(EventLine):
    """The broker or its client is in trouble that the engine rides out."""

    error: str


Event = (
    RebalanceReport | Assigned | Stopping | Stopped | StoreDown | StoreUp | SessionLost | StoreLost | StoreDiffers
    | ResetHonoured | RewindIgnored | AdvanceIgnored | CommitOverwritten | LogWentBack | RecordsExpired | ClientSkipped
    | RecordFailed | DeadLettered | LetterHookFailed | DeadLetterLimitReached | DeadLettersResumed | SentBack | Overrun
    | MuchInHand | ReadTooFarAhead | EventLoopBlocked | HandlerOverdue | HandlerGivenUp | LateResult | Status
    | SourceTrouble | AdvanceHonoured
)  # fmt: skip
