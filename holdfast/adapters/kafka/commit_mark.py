"""The mark that our commits carry in their metadata: ours, for that very offset, of that very topic.

    holdfast:1:<offset>:<topic id>:<store id>:<cluster id>[:<metadata of a loop's own commit>]

| the committed offset | so it is |
|---|---|
| has no mark, or that of another offset | set by somebody: a reset, a tool that moves groups |
| is of another topic of that name, in another cluster | copied with its mark, as MirrorMaker does: as above |
| is of another topic of that name, in this cluster, or one that is not said | of one that was deleted since: as none |
| else | ours |

Ids that are missing, since a broker has none or an earlier version wrote none, say nothing. Of one topic by its id, the
cluster says nothing either: it may have got another name. The store's id says which store of claims its member had, and
never makes a reset; what comes behind the cluster's is a later version's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.kafka._client import TopicPartition
from holdfast.adapters.kafka.topic_ids import position_name
from holdfast.plugin.ports import Committed
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.kafka.topic_ids import TopicIds
    from holdfast.errors import SourceError
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.kafka")

_MARK = "holdfast:1"
#: So many partitions are named in one line.
_NAMED = 5


class Identity(NamedTuple):
    """Which topic of which cluster a name stands for; "" = not known."""

    topic_id: str
    cluster: str


class _Said(NamedTuple):
    """A mark, as it is written."""

    offset: str
    of: Identity
    store: str


class CommitMark:
    """Knows the topics' ids, as they were when names were last asked for. One thread."""

    def __init__(self, group: str, ids: TopicIds, store_id: Callable[[], str]) -> None:
        self._group, self._ids, self._store_id = group, ids, store_id
        #: By topic.
        self.ids: dict[str, str] = {}
        self._cluster = ""
        #: By partition, as of when that one was named: who has it goes by that name until it is taken over anew.
        self._named: dict[Partition, Identity] = {}
        #: What a loop has committed with that offset, as metadata of its own.
        self.note: Callable[[Partition, int], str] = lambda *_: ""
        #: What was decided of marks that are of another topic, each to be told once; those that were told.
        self._decided: dict[str, list[str]] = {}
        self._told: set[tuple[str, int, int]] = set()

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
                self._named[partition] = Identity(answer, self._cluster)
                names[partition] = position_name(self._group, partition, answer, self._ids.cluster)
        return names

    def on(self, offsets: Mapping[Partition, int]) -> list[TopicPartition]:
        """Mark offsets for a commit. Of a topic that was made again, each partition is another's only from when it was
        named anew: an offset of the log before with the id of the log after would pass over what lies there."""
        return [
            TopicPartition(partition.topic, partition.number, offset, self._of(partition, offset))
            for partition, offset in offsets.items()
        ]

    def read(self, reply: TopicPartition) -> Committed | None:
        """Read a committed offset and its mark; None = nothing is committed. `tell` what was decided."""
        if reply.offset < 0:
            return None
        said = _said(reply.metadata)
        if said is None:
            return Committed(reply.offset, ours=False)
        there, here = said.of, Identity(self.ids.get(reply.topic, ""), self._cluster)
        copied = said.offset != str(reply.offset)  # and set elsewhere in the log, by who kept the metadata
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
        return Committed(reply.offset, not copied, store="" if copied else said.store)

    def tell(self) -> None:
        """Tell what was decided of commits of ours that are of another topic, in one line each."""
        for decided, partitions in self._decided.items():
            more = f" and {len(partitions) - _NAMED} more" if len(partitions) > _NAMED else ""
            _log.warning(
                "the committed offset of %s%s, group %s, carries holdfast's mark, and %s",
                ", ".join(partitions[:_NAMED]),
                more,
                self._group,
                decided,
            )
        self._decided = {}

    def _decide(self, reply: TopicPartition, decided: str) -> None:
        told = (reply.topic, reply.partition, reply.offset)
        if told not in self._told:
            self._told.add(told)
            self._decided.setdefault(decided, []).append(str(Partition(reply.topic, reply.partition)))

    def _of(self, partition: Partition, offset: int) -> str:
        topic_id, cluster = self._named.get(partition, ("", ""))
        mark = f"{_MARK}:{offset}:{topic_id}:{self._store_id()}"
        if note := self.note(partition, offset):
            return f"{mark}:{cluster}:{note}"
        return f"{mark}:{cluster}" if cluster else mark


def is_marked(reply: TopicPartition) -> bool:
    """Whether a commit of ours left it, of whatever topic of that name."""
    return (reply.metadata or "").startswith(f"{_MARK}:")


def note_in(reply: TopicPartition) -> str:
    """A loop's own metadata, of a commit with our mark; "" = none."""
    return (reply.metadata or "").removeprefix(f"{_MARK}:").split(":", 4)[4:][0] if _has_note(reply) else ""


def _has_note(reply: TopicPartition) -> bool:
    return is_marked(reply) and (reply.metadata or "").count(":") > _MARK.count(":") + 4


def _said(metadata: str | None) -> _Said | None:
    mark, found, rest = (metadata or "").partition(f"{_MARK}:")
    if mark or not found:
        return None
    offset, topic_id, store, cluster, *_ = [*rest.split(":"), "", "", ""]
    return _Said(offset, Identity(topic_id, cluster), store)


def _plain(cluster: str) -> str:
    """A cluster may have been named by hand."""
    return cluster.replace(":", "_")
