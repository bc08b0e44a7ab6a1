"""Event values: what the engine tells its observers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.records import Partition


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceReport:
    """One change of what this member owns, told when its effects are over.

    That is: at once, where partitions only went; else when the lag that was found at the start is worked off, at the
    next rebalance, or at the end of the process, whichever is first.
    """

    #: "assigned", "revoked", "lost", "leave" or "session lost", as far as this member can know.
    trigger: str
    protocol: str
    group: str
    gained: tuple[Partition, ...] = ()
    given: tuple[Partition, ...] = ()
    #: Records whose handlers ended, and were marked, within the drain.
    drained: int = 0
    #: Records whose handlers were still running when the partition went; the next owner waits for them.
    abandoned: int = 0
    #: Records that were polled and not started; the next owner runs them.
    handed_back: int = 0
    #: Of the partitions gained: records that were read again and not run again.
    duplicates_suppressed: int = 0
    #: Seconds of each phase: fence, drain, settle, commit, let_go, take_over.
    phases_s: Mapping[str, float] = field(default_factory=dict)
    #: From the assignment to the first record started on what was gained; None = none was.
    pause_s: float | None = None
    #: From the assignment until the end of the log as found then was worked off; None = not within the report.
    recovered_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreDown:
    """The claim store gives no answer; what the app does then is `Settings.store_down`."""

    error: str
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUp:
    """The claim store answers again."""

    down_s: float
    #: Handlers that started meanwhile without protection (`store_down="open"` only).
    unprotected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLost:
    """This process could not renew its session in time: others may take over. It fences itself and begins anew."""

    session: str
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetHonoured:
    """A committed offset that is not ours was found: what we knew from there on is forgotten."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindIgnored:
    """A commit of ours that is older than what is done (a late one, or a zombie's) was found and is corrected."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWentBack:
    """The broker delivered an offset below one that it had delivered: the log was cut or made again."""

    partition: Partition
    offset: int
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailed:
    """A handler failed. `retry_in_s` None = it is not tried again here."""

    partition: Partition
    offset: int
    handler: str
    attempt: int
    error: str
    retry_in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered:
    """A record failed for good, and its dead letter is acknowledged."""

    partition: Partition
    offset: int
    handler: str
    topic: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun:
    """A handler outlived the drain: its partition went on without it, its claim stays until it ends."""

    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTrouble:
    """The broker or its client is in trouble that the engine rides out."""

    error: str


Event = (
    RebalanceReport
    | StoreDown
    | StoreUp
    | SessionLost
    | ResetHonoured
    | RewindIgnored
    | LogWentBack
    | RecordFailed
    | DeadLettered
    | Overrun
    | SourceTrouble
)
