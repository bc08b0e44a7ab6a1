"""Host: connects the parts of a record's path (`record/`) with the family and with each other.

Each part uses others that are created after it, the family last of all. So the host is created first, and gets the
others at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.record.entry import EntryState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.engine.record.host import Marking
    from holdfast.records import Record


class EngineHost:
    """See `record.host.Host`. One thread, the one that runs the app."""

    __slots__ = ("_family", "_parts")

    _parts: Parts
    _family: Family

    def bind(self, parts: Parts, family: Family) -> None:
        """Connect the parts. Called once, before the first turn."""
        self._parts, self._family = parts, family

    @property
    def lease_s(self) -> float | None:
        """See `Host`."""
        return self._family.lease_s

    def fence_all(self) -> None:
        """See `Host`."""
        self._family.session_lost()

    def settle_with_source(self, entries: Sequence[Entry]) -> None:
        """See `Host`."""
        self._family.settle(entries)

    def build_marks(self, entries: Sequence[Entry]) -> Sequence[Marking] | None:
        """See `Host`."""
        return self._family.build_marks(entries)

    def skipped(self, entry: Entry) -> None:
        """See `Host`."""
        parts = self._parts
        parts.recorder.ended(entry, Outcome.SKIPPED_KEY)
        parts.settling.skip(entry)
        parts.lanes.wake(entry.lane)  # it ends without coming back from a worker: who waits behind it may start now

    def taken_over(self, entry: Entry) -> None:
        """See `Host`."""
        parts = self._parts
        if entry.owner.is_owned:
            entry.state = EntryState.CLAIM
            parts.lanes.put_back(entry)
            parts.claiming.want(entry)
        else:
            parts.outcomes.leave_to_others(entry)

    def forget(self, entry: Entry) -> None:
        """See `Host`."""
        entry.owner.entries.pop(entry.record.offset, None)
        self._parts.intake.left(entry)
        self._family.given_up(entry)

    def retry_topic_of(self, entry: Entry) -> str | None:
        """See `Host`."""
        topic = self._parts.routes.retry_topics.following.get(entry.record.topic)
        return topic or self._family.retry_topic_of(entry.record, has_letters=entry.handler.dead_letter is not None)

    def attempts_before(self, entry: Entry) -> int:
        """See `Host`."""
        return self._parts.routes.retry_topics.attempts_before(entry.record.topic)

    def born_in(self, record: Record) -> str:
        """See `Host`."""
        return self._family.born_in(record)
