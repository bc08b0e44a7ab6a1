"""Reads and sets a Kafka group's offsets while it has no members: `tools.ports.OffsetTool`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.kafka import faults
from holdfast.adapters.kafka._client import (
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
    TopicPartition,
    partition_of,
)
from holdfast.adapters.kafka.admin import request_s
from holdfast.adapters.kafka.commit_mark import CommitMark
from holdfast.adapters.kafka.offsets import committed
from holdfast.adapters.kafka.tools.topics import TopicView
from holdfast.errors import GroupActive, SourceUnavailable
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK
from holdfast.tools.ports import GroupMember

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from holdfast.plugin.ports import Committed
    from holdfast.timing import Deadline

# How brokers refuse offsets of a group that has members: UNKNOWN_MEMBER_ID on 4.3 with all three protocols.
_ACTIVE = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.NON_EMPTY_GROUP,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.STALE_MEMBER_EPOCH,
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)
#: The metadata of offsets that are set here, for people; it must not look like the mark of the app's own commits.
_BY = "set by holdfast reset"
_AGAIN_S = 0.2


class KafkaOffsetTool(TopicView):
    """One group's offsets. One thread. Needs DESCRIBE and READ on the group, as its members have."""

    def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Committed | None]:
        """The group's committed offsets, and whether they are holdfast's own; None = none.

        A consumer sends the request: AdminClient.list_consumer_group_offsets of 2.16.1 kills the process if no group
        has committed at that broker yet.
        """
        mark = CommitMark(self.group, self._ids, lambda: "")
        mark.position_names(partitions, deadline)
        replies = committed(self.consumer, partitions, deadline, self._reading)
        found = {partition_of(each): mark.read(each) for each in replies}
        mark.log_decisions()
        return found

    def retry_lags(self, topic: str, deadline: Deadline) -> Mapping[str, int]:
        """The lags of a topic's retry topics. These are found by their names, which contain the topic's, and by offsets
        of the group there."""
        self.admin.reach(deadline)
        try:
            topics = self.admin.client.list_topics(timeout=request_s(deadline)).topics
        except KafkaException as error:
            raise faults.as_source_error(error.args[0], self._reading) from error
        theirs = [
            Partition(name, number)
            for name, found in topics.items()
            if topic in name and "retry" in name and name != topic and found.error is None
            for number in found.partitions
        ]
        replies = committed(self.consumer, theirs, deadline, self._reading)
        read = {partition_of(each): each.offset for each in replies if each.offset >= 0}
        of_group = [each for each in theirs if each.topic in {known.topic for known in read}]
        firsts, lasts = self.first_offsets(of_group, deadline), self.last_offsets(of_group, deadline)
        lags = dict.fromkeys(sorted({each.topic for each in of_group}), 0)
        for each in of_group:
            lags[each.topic] += max(lasts[each] - max(read.get(each, 0), firsts[each]), 0)
        return lags

    @property
    def _reading(self) -> str:
        return f"reading the offsets of {self.group} at {self.where}"

    def members(
        self,
        partitions: Sequence[Partition],  # noqa: ARG002 - as of the port: the coordinator knows all
        deadline: Deadline,
    ) -> Sequence[GroupMember]:
        """The members of the group now; classic groups and those of the consumer protocol."""
        found = None
        while found is None:
            found = self._describe(deadline)
        return [
            GroupMember(
                member.client_id,
                member.host,
                member.group_instance_id or member.member_id,
                tuple(sorted(partition_of(each) for each in member.assignment.topic_partitions)),
            )
            for member in found.members
        ]

    def _describe(self, deadline: Deadline) -> Any:  # noqa: ANN401 - as the binding has it
        """None = ask again: the coordinator moves, or its topic is created by the first such request."""
        asked = self.admin.client.describe_consumer_groups([self.group], request_timeout=request_s(deadline))
        try:
            return self.admin.answer(asked[self.group], deadline, f"asking who is in {self.group}")
        except SourceUnavailable:
            if deadline.passed:
                raise
            SYSTEM_CLOCK.sleep(deadline.left_s(_AGAIN_S))
            return None

    def identities(
        self,
        starts: Mapping[Partition, int],  # noqa: ARG002 - as of the port
        ends: Mapping[Partition, int],  # noqa: ARG002 - as above
        patience_s: float,  # noqa: ARG002 - as above
    ) -> Iterator[Sequence[str]]:
        """Return none: Kafka's records are known by their positions alone."""
        return iter(())

    def set(self, offsets: Mapping[Partition, int], deadline: Deadline) -> None:
        """Set the group's offsets; they carry no mark of the app's own commits. Raises GroupActive, SourceError."""
        wanted = [TopicPartition(each.topic, each.number, offset, _BY) for each, offset in offsets.items()]
        asked = self.admin.client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(self.group, wanted)], request_timeout=request_s(deadline)
        )
        what = f"setting the offsets of {self.group}"
        reply = self.admin.answer(asked[self.group], deadline, what)
        errors = [each.error for each in reply.topic_partitions]
        # The coordinator refuses the whole request while the group has members.
        if errors and errors[0] is not None and all(each is not None and each.code() in _ACTIVE for each in errors):
            raise GroupActive(
                f"{what} at {self.where}: the broker refuses while the group has members "
                f"({errors[0].name()}); stop them all, and try again"
            )
        for each in reply.topic_partitions:
            if each.error is not None:
                raise faults.as_source_error(each.error, f"{what} in {each.topic}-{each.partition} at {self.where}")
