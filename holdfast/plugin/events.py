"""Event values: what the engine tells its observers, and logs as one line each (logger "holdfast").

A line begins with the event's name and goes on with `key=value`, so that a person can read and a machine can parse it.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field, fields
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar

from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class _Line:
    """One line of a log."""

    __slots__ = ()
    #: At which level the engine logs the event.
    level: ClassVar[int] = logging.WARNING

    def __str__(self) -> str:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(self).__name__).lower()
        values = ((each.name, getattr(self, each.name)) for each in fields(self))  # type: ignore[arg-type]  # dataclasses
        return " ".join(
            [f"{name}:", *(f"{key}={_said(value)}" for key, value in values if value not in (None, (), {}))]
        )


def _said(value: Any) -> str:  # noqa: ANN401 - whatever a field holds
    if isinstance(value, float):
        return f"{value:.3f}"
    if isinstance(value, Partition):
        return str(value)
    if isinstance(value, tuple):
        return _partitions(value)
    if isinstance(value, dict):
        return ",".join(f"{key}:{_said(each)}" for key, each in value.items())
    text = str(value)
    return repr(text) if re.search(r"[\s=]", text) else text


def _partitions(partitions: Sequence[Partition]) -> str:
    """Such as orders-[0-3,7]: groups have hundreds of partitions, a line has one."""
    parts = []
    for (topic, broker), each in groupby(sorted(partitions), key=lambda one: (one.topic, one.broker)):
        numbers = [one.number for one in each]
        runs = [list(run) for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])]
        spans = [f"{run[0][1]}-{run[-1][1]}" if len(run) > 1 else str(run[0][1]) for run in runs]
        parts.append(f"{topic}-{broker + '-' if broker else ''}[{','.join(spans)}]")
    return ",".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceReport(_Line):
    """One change of what this member owns, told when its effects are over.

    That is: at once, where partitions only went; else when the lag that was found at the start is worked off, at the
    next rebalance, or at the end of the process, whichever is first.
    """

    level: ClassVar[int] = logging.INFO

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
class StoreDown(_Line):
    """The claim store gives no answer; what the app does then is `Settings.store_down`."""

    error: str
    mode: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreUp(_Line):
    """The claim store answers again."""

    down_s: float
    #: Handlers that started meanwhile without protection (`store_down="open"` only).
    unprotected: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLost(_Line):
    """This process could not renew its session in time: others may take over. It fences itself and begins anew."""

    session: str
    running: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResetHonoured(_Line):
    """A committed offset that is not ours was found: what we knew from there on is forgotten."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RewindIgnored(_Line):
    """A commit of ours that is older than what is done (a late one, or a zombie's) was found and is corrected."""

    partition: Partition
    offset: int
    watermark: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWentBack(_Line):
    """The broker delivered an offset below one that it had delivered: the log was cut or made again."""

    partition: Partition
    offset: int
    expected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFailed(_Line):
    """A handler failed. `retry_in_s` None = it is not tried again here."""

    partition: Partition
    offset: int
    handler: str
    attempt: int
    error: str
    retry_in_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLettered(_Line):
    """A record failed for good, and its dead letter is acknowledged."""

    partition: Partition
    offset: int
    handler: str
    topic: str
    attempts: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrun(_Line):
    """A handler outlived the drain: its partition went on without it, its claim stays until it ends."""

    partition: Partition
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTrouble(_Line):
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
