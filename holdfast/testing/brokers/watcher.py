"""Watcher: sees commits, assignments and deliveries of a broker in memory, for judges."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.records import Partition, Record


class Watcher:
    """Base of watchers: override the methods of interest. `member` is the source object of a member.

    `on_commit` is called with the broker's lock; the other methods are called by the member's thread, without it.
    """

    def on_commit(self, partition: Partition, offset: int, member: object, metadata: str) -> None:
        """The broker has committed an offset."""

    def on_assign(self, partitions: Sequence[Partition], member: object) -> None:
        """Partitions are assigned; the application is told next."""

    def on_revoke(self, partitions: Sequence[Partition], member: object) -> None:
        """The application has been told of a revocation, and gives the partitions up now."""

    def on_lost(self, partitions: Sequence[Partition], member: object) -> None:
        """Partitions were lost to other members; the application is told next."""

    def on_deliver(self, record: Record, member: object) -> None:
        """The member's client returns a record from a poll."""
