"""Partitions as a group sees them: leaders, logs, offsets. An error about one partition is noted there, and does not
affect the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka._client import IsolationLevel, OffsetSpec, TopicCollection, TopicPartition, partition_of
from holdfast.adapters.kafka.admin import request_s
from holdfast.errors import SourceError, UnknownTopic
from holdfast.records import Partition
from holdfast.tools.advice.group_view import Node, PartitionView

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from concurrent.futures import Future

    from holdfast.adapters.kafka.admin import Admin
    from holdfast.timing import Deadline

    _Asked = Mapping[TopicPartition, Future[Any]]


class PartitionViews:
    """Reads partitions by an admin client. One thread."""

    def __init__(self, admin: Admin) -> None:
        self._admin = admin

    def view(
        self,
        topics: Collection[str],
        must: Collection[str],
        committed: Mapping[Partition, int | str],
        deadline: Deadline,
    ) -> tuple[dict[Partition, PartitionView], set[str], dict[str, str]]:
        """All partitions of the topics, the topics that do not exist, and those that cannot be seen, with why.

        Args:
            topics: the topics to show.
            must: those of them that have to exist.
            committed: the group's offset in each partition, or why it is not known.
            deadline: of the whole call.

        Raises UnknownTopic for a topic of `must` that does not exist, and SourceError if no topic can be described.
        """
        leaders, racks, missing, faults = self._leaders(topics, must, deadline)
        led = [each for each, leader in leaders.items() if leader is not None]
        asked = [
            self._begin(led, OffsetSpec.earliest(), deadline),  # type: ignore[no-untyped-call]
            self._begin(led, OffsetSpec.latest(), deadline),  # type: ignore[no-untyped-call]
        ]
        firsts, ends = (self._offsets(each, deadline) for each in asked)
        views = {}
        for partition in sorted(leaders.keys() | committed.keys()):
            exists = partition in leaders or partition.topic in faults
            leader, fault = leaders.get(partition), ""
            if partition.topic in faults:
                fault = faults[partition.topic]
            elif partition.topic in missing:
                fault = "there is no such topic any more"
            elif not exists:
                fault = "the topic has no such partition any more"
            elif leader is None:
                fault = "it has no leader now"
            offset, first, end = committed.get(partition), firsts.get(partition), ends.get(partition)
            views[partition] = PartitionView(
                partition=partition,
                committed=offset if isinstance(offset, int) else None,
                first=first if isinstance(first, int) else None,
                end=end if isinstance(end, int) else None,
                leader=leader,
                racks=racks.get(partition, frozenset()),
                exists=exists,
                fault=fault or next((each for each in (offset, first, end) if isinstance(each, str)), ""),
            )
        return views, missing, faults

    def _leaders(
        self, topics: Collection[str], must: Collection[str], deadline: Deadline
    ) -> tuple[dict[Partition, Node | None], dict[Partition, frozenset[str]], set[str], dict[str, str]]:
        """Returns: leaders, and racks of the replicas, by partition; missing topics; and topics with an error, with its
        text."""
        leaders: dict[Partition, Node | None] = {}
        racks: dict[Partition, frozenset[str]] = {}
        missing: set[str] = set()
        faults: dict[str, str] = {}
        if not topics:
            return leaders, racks, missing, faults
        asked = self._admin.client.describe_topics(TopicCollection(sorted(topics)), request_timeout=request_s(deadline))
        for topic, future in asked.items():
            try:
                found: Any = self._admin.answer(future, deadline, f"looking for {topic}")
            except UnknownTopic:
                if topic in must:
                    raise
                missing.add(topic)
            except SourceError as error:
                if topic in must or len(topics) == 1:
                    raise
                faults[topic] = str(error)
            else:
                leaders.update({Partition(topic, each.id): node_of(each.leader) for each in found.partitions})
                for each in found.partitions:
                    racks[Partition(topic, each.id)] = frozenset(node.rack for node in each.replicas if node.rack)
        return leaders, racks, missing, faults

    def _begin(self, partitions: Collection[Partition], spec: OffsetSpec, deadline: Deadline) -> _Asked:
        """Begin to ask for offsets. Ends include open transactions: records of one that hangs are lag too."""
        if not partitions:
            return {}
        return self._admin.client.list_offsets(
            {TopicPartition(each.topic, each.number): spec for each in partitions},
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            # All answers come together: a broker that is down must not use up the time of the whole call.
            request_timeout=request_s(deadline, 0.5),
        )

    def _offsets(self, asked: _Asked, deadline: Deadline) -> dict[Partition, int | str]:
        """Wait for the offsets; each, or the text of its error."""
        found: dict[Partition, int | str] = {}
        for one, future in asked.items():
            partition = partition_of(one)
            try:
                offset = int(self._admin.answer(future, deadline, "asking for the ends of the log").offset)
            except SourceError as error:
                found[partition] = str(error)
            else:  # a negative one: no error, but its leader has not answered within the request's timeout
                found[partition] = offset if offset >= 0 else "its leader does not answer now"
        return found


def node_of(node: Any) -> Node | None:  # noqa: ANN401 - as the binding has it
    """Convert a node of the binding; None = there is none now."""
    return None if node is None or node.id < 0 or not node.host else Node(str(node.id), f"{node.host}:{node.port}")
