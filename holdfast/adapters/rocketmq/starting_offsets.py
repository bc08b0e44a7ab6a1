"""Starting offsets of queues in which the group has no offset.

"latest" applies to topics that the group has never read, as found before the join. A queue that is added later has only
messages sent since, and is read from its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import RETRY
from holdfast.errors import SourceError, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from holdfast.adapters.rocketmq.offsets import Offsets
    from holdfast.adapters.rocketmq.settings import PullSettings
    from holdfast.records import Partition
    from holdfast.timing import Deadline


class StartingOffsets:
    """Finds starting offsets by the settings. One thread."""

    def __init__(self, offsets: Offsets, settings: PullSettings) -> None:
        self._offsets, self._settings = offsets, settings
        self._never_read: Collection[Partition] = ()

    def look(self, queues: Sequence[Partition], deadline: Deadline) -> None:
        """Find, before the join, the topics that the group has never read: "latest" applies only to topics in which it
        has no offset at all. Queues and topics that are added later are read from their beginning, so that messages
        sent before the source sees them are not skipped. Raises SourceError: a broker does not answer, and no other has
        an offset of the topic."""
        if self._settings.start == "latest":
            found = self._offsets.committed_of_some(queues, deadline)
            read = {queue.topic for queue, offset in found.items() if offset is not None}
            self._never_read = frozenset(queue for queue in queues if queue.topic not in read)
            if unsure := self._never_read.difference(found):
                raise SourceUnavailable(
                    f"whether {self._settings.group} has ever read {min(unsure)} is known to its broker alone, which "
                    f"does not answer"
                )

    def of_some(self, queues: Sequence[Partition], deadline: Deadline) -> dict[Partition, int]:
        """The starting offsets, without queues whose broker does not answer. Raises SourceError: no broker answered."""
        found: dict[Partition, int] = {}
        trouble: SourceError | None = None
        for queue in queues:
            try:
                found[queue] = self.of(queue, deadline)
            except SourceError as error:
                trouble = error
        if trouble is not None and not found:
            raise trouble
        return found

    def of(self, queue: Partition, deadline: Deadline) -> int:
        """The starting offset of a queue now. Retry topics start at their beginning: their messages are the group's own
        failures. Raises SourceError."""
        start = self._settings.start
        if queue.topic.startswith(RETRY) or (start == "latest" and queue not in self._never_read):
            start = "earliest"
        return self._offsets.first(queue, start, self._settings.start_ms, deadline)
