"""The mark that our commits carry in their metadata: ours, for that very offset, of that very topic.

    holdfast:1:<offset>:<topic id>:<store id>

A committed offset without it was set by somebody: a reset. One with the id of another topic is of a topic of that name
that was deleted since, and says nothing. Ids that are missing, since a broker has none or an earlier version wrote
none, say nothing either. The store's id says which store of claims its member had, and never makes a reset; what comes
behind it is a later version's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import TopicPartition
from holdfast.adapters.kafka.topic_ids import position_name
from holdfast.plugin.ports import Committed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.kafka.topic_ids import TopicIds
    from holdfast.errors import SourceError
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_MARK = "holdfast:1"


class CommitMark:
    """Knows the topics' ids, as they were when names were last asked for. One thread."""

    def __init__(self, group: str, ids: TopicIds, store_id: Callable[[], str]) -> None:
        self._group, self._ids, self._store_id = group, ids, store_id
        #: By topic.
        self.ids: dict[str, str] = {}
        #: By partition, as of when that one was named: who has it goes by that name until it is taken over anew.
        self._named: dict[Partition, str] = {}

    def position_names(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, str | SourceError]:
        """The store's names of the partitions; asks the broker for the ids of their topics. Raises SourceError."""
        found = self._ids.of_each(sorted({partition.topic for partition in partitions}), deadline)
        self.ids.update({topic: answer for topic, answer in found.items() if isinstance(answer, str)})
        names: dict[Partition, str | SourceError] = {}
        for partition in partitions:
            answer = names[partition] = found[partition.topic]
            if isinstance(answer, str):
                self._named[partition] = answer
                names[partition] = position_name(self._group, partition, answer)
        return names

    def on(self, offsets: Mapping[Partition, int]) -> list[TopicPartition]:
        """Mark offsets for a commit. Of a topic that was made again, each partition is another's only from when it was
        named anew: an offset of the log before with the id of the log after would pass over what lies there."""
        return [
            TopicPartition(partition.topic, partition.number, offset, self._of(partition, offset))
            for partition, offset in offsets.items()
        ]

    def read(self, reply: TopicPartition) -> Committed | None:
        """Read a committed offset and its mark; None = nothing is committed."""
        if reply.offset < 0:
            return None
        mark, _, rest = (reply.metadata or "").partition(f"{_MARK}:")
        offset, topic_id, store, *_ = [*rest.split(":"), "", ""]
        now = self.ids.get(reply.topic, "")
        if not mark and topic_id and now and topic_id != now:
            return None  # of a topic that was deleted since
        ours = not mark and offset == str(reply.offset)
        return Committed(reply.offset, ours, store=store if ours else "")

    def _of(self, partition: Partition, offset: int) -> str:
        return f"{_MARK}:{offset}:{self._named.get(partition, '')}:{self._store_id()}"


def is_marked(reply: TopicPartition) -> bool:
    """Whether a commit of ours left it, of whatever topic of that name."""
    return (reply.metadata or "").startswith(f"{_MARK}:")
