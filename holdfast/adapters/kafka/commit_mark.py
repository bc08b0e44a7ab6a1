"""The mark in the metadata of our commits: it tells that the commit is ours, with this very offset and topic.

    holdfast:1:<offset>:<topic id>:<store id>:<cluster id>[:<metadata of a loop's own commit>]

| the committed offset | what it is taken for |
|---|---|
| without a mark, or with the mark of another offset | set by an operator or another tool: a reset |
| with the mark of another topic of that name, in another cluster | copied with its mark, as MirrorMaker does: a reset |
| with the mark of another topic of that name, in this cluster or an unknown one | of a deleted topic: as no offset |
| else | ours |

Missing ids (a broker has none, or an earlier version wrote none) decide nothing. If the topic ids are equal, the
cluster's id decides nothing either: the cluster may have got another name. The store's id names the member's store of
claims, and never makes a reset. Fields after the cluster's id belong to later versions.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka._client import TopicPartition, partition_of
from holdfast.adapters.kafka.topic_ids import position_name
from holdfast.plugin.ports import Committed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.kafka.topic_ids import TopicIds
    from holdfast.errors import SourceError
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.kafka")

_MARK = "holdfast:1"
#: The most partitions that one log line names.
_MOST_NAMED = 5


class Identity(NamedTuple):
    """A topic's id and its cluster's; "" = not known."""

    topic_id: str
    cluster: str


class _MarkFields(NamedTuple):
    """The fields of a mark."""

    offset: str
    of: Identity
    store: str


class CommitMark:
    """Writes and reads marks, with the topics' ids as of the last call of `position_names`. One thread."""

    def __init__(self, group: str, ids: TopicIds, store_id: Callable[[], str]) -> None:
        self._group, self._ids, self._store_id = group, ids, store_id
        #: Topic -> its id.
        self.ids: dict[str, str] = {}
        self._cluster = ""
        #: Partition -> its identity at its last takeover: an owner uses its position's name until the next one.
        self._identities: dict[Partition, Identity] = {}
        #: Returns the metadata that a loop has committed with an offset.
        self.note: Callable[[Partition, int], str] = lambda *_: ""
        #: Decisions about marks of another topic, with their partitions, to be logged once; and those logged already.
        self._decided: dict[str, list[str]] = {}
        self._logged: set[tuple[str, int, int]] = set()

    def position_names(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, str | SourceError]:
        """The store's names of the partitions; asks the broker for the ids of their topics. Raises SourceError."""
        found = self._ids.of_each(sorted({partition.topic for partition in partitions}), deadline)
        self.ids.update({topic: answer for topic, answer in found.items() if isinstance(answer, str)})
        self._cluster = _plain(self._ids.cluster)
        names: dict[Partition, str | SourceError] = {}
        for partition in partitions:
            answer = names[partition] = found[partition.topic]
            if isinstance(answer, str):
                self._identities[partition] = Identity(answer, self._cluster)
                names[partition] = position_name(self._group, partition, answer, self._ids.cluster)
        return names

    def marked(self, offsets: Mapping[Partition, int]) -> list[TopicPartition]:
        """These offsets for a commit, each with its mark. After a topic was deleted and made again, each partition gets
        the new id at its next takeover: an offset of the old log with the id of the new one would skip records."""
        return [
            TopicPartition(partition.topic, partition.number, offset, self._metadata(partition, offset))
            for partition, offset in offsets.items()
        ]

    def read(self, reply: TopicPartition) -> Committed | None:
        """Read a committed offset and its mark; None = nothing is committed. `log_decisions` logs what it has
        decided about marks of another topic."""
        if reply.offset < 0:
            return None
        mark = _parsed(reply.metadata)
        if mark is None:
            return Committed(reply.offset, ours=False)
        there, here = mark.of, Identity(self.ids.get(reply.topic, ""), self._cluster)
        copied = mark.offset != str(reply.offset)  # another tool has set the offset, and kept the metadata
        if there.topic_id != here.topic_id or not here.topic_id:
            another = bool(there.topic_id and here.topic_id)
            if there.cluster and here.cluster and there.cluster != here.cluster:
                copied = True
                self._decide(reply, f"it was copied from the cluster {there.cluster} to {here.cluster}: it is honoured")
            elif another and copied:
                self._decide(reply, "it was copied from another topic of the same name, and translated: it is honoured")
            elif another:
                self._decide(reply, "it is of a deleted topic of the same name: it is ignored")
                return None
        return Committed(reply.offset, not copied, store="" if copied else mark.store)

    def log_decisions(self) -> None:
        """Log the decisions about our commits of another topic, one line each."""
        for decided, partitions in self._decided.items():
            more = f" and {len(partitions) - _MOST_NAMED} more" if len(partitions) > _MOST_NAMED else ""
            _log.warning(
                "the committed offset of %s%s, group %s, carries holdfast's mark, and %s",
                ", ".join(partitions[:_MOST_NAMED]),
                more,
                self._group,
                decided,
            )
        self._decided = {}

    def _decide(self, reply: TopicPartition, decided: str) -> None:
        commit = (reply.topic, reply.partition, reply.offset)
        if commit not in self._logged:
            self._logged.add(commit)
            self._decided.setdefault(decided, []).append(str(partition_of(reply)))

    def _metadata(self, partition: Partition, offset: int) -> str:
        topic_id, cluster = self._identities.get(partition, ("", ""))
        mark = f"{_MARK}:{offset}:{topic_id}:{self._store_id()}"
        if note := self.note(partition, offset):
            return f"{mark}:{cluster}:{note}"
        return f"{mark}:{cluster}" if cluster else mark


def is_marked(reply: TopicPartition) -> bool:
    """Whether the offset was committed by us, for any topic of that name."""
    return (reply.metadata or "").startswith(f"{_MARK}:")


def note_in(reply: TopicPartition) -> str:
    """A loop's own metadata in a commit with our mark; "" = none."""
    return (reply.metadata or "").removeprefix(f"{_MARK}:").split(":", 4)[4:][0] if _has_note(reply) else ""


def _has_note(reply: TopicPartition) -> bool:
    return is_marked(reply) and (reply.metadata or "").count(":") > _MARK.count(":") + 4


def _parsed(metadata: str | None) -> _MarkFields | None:
    mark, found, rest = (metadata or "").partition(f"{_MARK}:")
    if mark or not found:
        return None
    offset, topic_id, store, cluster, *_ = [*rest.split(":"), "", "", ""]
    return _MarkFields(offset, Identity(topic_id, cluster), store)


def _plain(cluster: str) -> str:
    """A cluster's id without colons: it may have been chosen by hand."""
    return cluster.replace(":", "_")
