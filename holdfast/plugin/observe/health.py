"""Health: whether an app is live, whether it is ready, and which partitions stand still, with reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from holdfast.plugin.observe.snapshot import HasSnapshot

if TYPE_CHECKING:
    from holdfast.dedup.claims import ClaimStore
    from holdfast.plugin.observe.snapshot import PartitionFigures, Snapshot, State
    from holdfast.records import Partition
    from holdfast.timing import Clock

#: A partition that is not taken over after this time is reported: an orderly hand-over takes less than a second.
_TAKEOVER_S = 5.0
#: Phase -> what a partition that is not owned waits for.
_PHASES = {
    "unnamed": "the broker to report which log it is",
    "assigned": "its former owner to give it up, or for the end of that owner's lease",
    "acquired": "the broker to report the group's offset",
    "resetting": "the store to record the group's new offset",
    "adopting": "the broker to acknowledge a commit of the group's new offset",
}
_NOT_READY: dict[State, str] = {
    "new": "the app has not been started",
    "starting": "starting: the store, the broker or the dead letter topics have not answered yet",
    "paused: store down": "paused: the store does not answer",
    "leaving": "draining: the app is leaving the group",
    "stopped": "the app has stopped",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalled:
    """A partition that has lag, and whose lowest open record has not changed."""

    partition: Partition
    #: The lowest offset that is not done; None = the partition is not taken over yet.
    offset: int | None
    #: Seconds since the partition was first seen at this offset.
    for_s: float
    #: Offsets that are not done, as far as the log's end is known.
    lag: int | None
    #: The reason of the wait, in words.
    waits_for: str

    def __str__(self) -> str:
        at = "" if self.offset is None else f" at {self.offset}"
        lag = "" if self.lag is None else f" with a lag of {self.lag}"
        return f"{self.partition} has stood still{at} for {self.for_s:.0f} s{lag}: it waits for {self.waits_for}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The answer to a probe. Figures are in `Holdfast.snapshot()`."""

    state: State
    #: False: only a restart helps. The app has failed, or its polling loop has not run for `silent_s`.
    live: bool
    #: True: the app is a member of its group, handles records, and is not leaving. A member without partitions is
    #: ready.
    ready: bool
    #: Partitions that have lag and have not advanced for `stall_s`, or are not taken over after some seconds. They
    #: do not change `live` or `ready`: whether a restart helps depends on what they wait for.
    stalled: tuple[Stalled, ...] = ()
    #: Why the app is not live or not ready, which brokers do not answer, which partitions stand still. Empty: no fault
    #: is known.
    reasons: tuple[str, ...] = ()


class Watchable(HasSnapshot, Protocol):
    """The part of an app, or of a loop's consumer, that probes call. Any thread but that of an event loop."""

    @property
    def claims(self) -> ClaimStore | None:
        """The store; None = there is none."""
        ...

    def health(self, *, stall_s: float = ..., silent_s: float = ...) -> Health:
        """Return whether the app is live and ready, and which partitions stand still."""
        ...


class HealthCheck:
    """Judges snapshots, and remembers the last one. Any thread, one at a time.

    Args:
        clock: of the app's process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: Snapshot | None = None
        #: Since when no new snapshot was taken.
        self._silent_since: float | None = None
        #: Partition -> ((epoch, watermark), the time since which they have not changed).
        self._stood: dict[Partition, tuple[tuple[int | None, int | None], float]] = {}

    def judge(
        self,
        snapshot: Snapshot,
        *,
        stall_s: float,
        silent_s: float,
        start_s: float = 0.0,
        away_s: float = 0.0,
        raises: bool = False,
    ) -> Health:
        """Judge a snapshot that was requested just now. If the loop did not answer, it is the same as the last one.

        Args:
            snapshot: the snapshot.
            stall_s: as for `Holdfast.health`.
            silent_s: as for `Holdfast.health`.
            start_s: how long a start may take, during which the loop does not turn yet.
            away_s: for a user's own loop: seconds since its last call, if that is too long; else 0.
            raises: for a user's own loop: once the app has failed, each of its calls raises the error.
        """
        now, reasons = self._clock.now(), _reasons(snapshot)
        if snapshot.state == "starting":
            silent_s = max(silent_s, start_s)
        silent = snapshot is self._last and snapshot.state not in ("new", "stopped")
        if not silent:
            self._silent_since = None
        elif self._silent_since is None:
            self._silent_since = now
        self._last = snapshot
        dead = snapshot.error is not None and (raises or snapshot.state == "stopped")
        if self._silent_since is not None and now - self._silent_since >= silent_s:
            dead = True
            reasons.append(f"the polling loop has not run for {now - self._silent_since:.0f} s")
        elif silent:
            reasons.append("the polling loop has not answered within a second")
        if away_s:
            dead = True
            reasons.append(f"the application's loop has not polled for {away_s:.0f} s: it hangs, or is too slow")
        if snapshot.silence is not None:
            reasons.append(str(snapshot.silence))
        stalled = tuple(self._stalled(snapshot, now, stall_s))
        return Health(
            state=snapshot.state,
            live=not dead,
            ready=snapshot.state == "running" and not silent and not away_s,
            stalled=stalled,
            reasons=(*reasons, *map(str, stalled)),
        )

    def _stalled(self, snapshot: Snapshot, now: float, stall_s: float) -> list[Stalled]:
        before, self._stood = self._stood, {}
        found = []
        for each in snapshot.partitions if snapshot.state != "stopped" else ():
            stands = (each.epoch, each.watermark)
            seen, since = before.get(each.partition, (stands, now))
            if seen != stands or not _has_more(each):
                since = now
            self._stood[each.partition] = stands, since
            if _has_more(each) and now - since >= (stall_s if each.phase == "owned" else min(stall_s, _TAKEOVER_S)):
                found.append(
                    Stalled(
                        partition=each.partition,
                        offset=each.watermark,
                        for_s=now - since,
                        lag=each.lag,
                        waits_for=_waits_for(each),
                    )
                )
        return found


def _reasons(snapshot: Snapshot) -> list[str]:
    """Why the app does not handle records, by its state."""
    found = []
    if snapshot.error is not None:
        found.append(f"the app has failed with {snapshot.error_type}: the log and snapshot().error say why")
    elif (why := _NOT_READY.get(snapshot.state)) is not None:
        found.append(why)
    if snapshot.joining is not None:
        found.append(str(snapshot.joining))
    return found


def _has_more(each: PartitionFigures) -> bool:
    """Whether the partition should advance. A retry topic whose next record is not due should not."""
    # Records that a loop's seek has passed over are not done, but none of them will come.
    all_read = each.next is not None and each.log_end is not None and each.next >= each.log_end
    behind = bool(each.lag) and not all_read and each.next_retry_ms is None
    return each.watermark is None or each.in_flight > 0 or behind


def _waits_for(each: PartitionFigures) -> str:
    if each.phase != "owned":
        return _PHASES.get(each.phase, f"its takeover, which is at {each.phase!r}")
    if each.lowest is None:
        return "the client to deliver more records"
    return each.lowest.waits_for
