"""Where a queue begins of which the group has no offset.

"latest" holds for topics that the group has never read, as found before the join: a queue that is added later has only
what was sent since.
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
    """By the settings. One thread."""

    def __init__(self, offsets: Offsets, settings: PullSettings) -> None:
        self._offsets, self._settings = offsets, settings
        self._never_read: Collection[Partition] = ()

    def look(self, queues: Sequence[Partition], deadline: Deadline) -> None:
        """Before the group is joined: "latest" is meant for topics of which it has no offset at all. What comes later,
        a queue of a topic that is read, or a topic, is read from its beginning: what is sent there before it is seen is
        not old. Raises SourceError: a broker does not answer, and no other has an offset of that topic."""
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
        """Without those whose broker does not answer. Raises SourceError: none did."""
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
        """Now, as a number. A retry topic from its start: what is there has failed before. Raises SourceError."""
        start = self._settings.start
        if queue.topic.startswith(RETRY) or (start == "latest" and queue not in self._never_read):
            start = "earliest"
        return self._offsets.first(queue, start, self._settings.start_ms, deadline)
