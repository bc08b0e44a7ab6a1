"""Watchers: they see what a broker in memory sees, for judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.records import Partition, Record


class Watcher:
    """Sees everything, and changes nothing. `member` is the source object of that member.

    A commit is told in the broker, with its lock held; the rest by the member's own thread, without.
    """

    def on_commit(self, partition: Partition, offset: int, member: object, metadata: str) -> None:
        """The broker has taken it: an offset is committed now."""

    def on_assign(self, partitions: Sequence[Partition], member: object) -> None:
        """Partitions came to that member, which is told now."""

    def on_revoke(self, partitions: Sequence[Partition], member: object) -> None:
        """The member has been told, and gives them up now."""

    def on_lost(self, partitions: Sequence[Partition], member: object) -> None:
        """Partitions are others' already, and the member is told now."""

    def on_deliver(self, record: Record, member: object) -> None:
        """The member's client hands it out."""
