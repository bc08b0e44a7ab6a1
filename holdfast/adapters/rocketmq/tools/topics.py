"""TopicView: queues, position names, ends of logs and messages of topics, for tools. Joins no group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.names import position_name
from holdfast.adapters.rocketmq.remoting import PullRequest, PullStatus, Subscription
from holdfast.adapters.rocketmq.remoting.decoding import decode_each
from holdfast.errors import SourceUnavailable
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import PullAnswer, RemotingClient, StoredMessage
    from holdfast.records import Partition

#: The group of RocketMQ's own tools. Every broker has it, so that reading creates no group.
_READER = "TOOLS_CONSUMER"
_BATCH = 32
_ASK_S = 5.0
_AGAIN_S = 0.2


class TopicView:
    """A view of topics. One thread.

    Args:
        connect: makes the client, which `close` closes.
        group: the group whose positions are named.
    """

    def __init__(self, connect: Callable[[], RemotingClient], group: str) -> None:
        self.group = group
        self.client = connect()

    def partitions(self, topic: str, deadline: Deadline) -> Sequence[Partition]:
        """All readable queues of a topic. Raises UnknownTopic and other SourceErrors."""
        return self.client.route(topic, deadline, fresh=True).queues()

    def position_names(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, str]:  # noqa: ARG002 - as of the port
        """Names of positions in the store."""
        return {each: position_name(self.group, each) for each in partitions}

    def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The first offset that each queue still has."""
        return {each: self.client.min_offset(each, deadline) for each in partitions}

    def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The end of each queue: the offset of the next message."""
        return {each: self.client.max_offset(each, deadline) for each in partitions}

    def offsets_at(self, partitions: Sequence[Partition], when_ms: int, deadline: Deadline) -> Mapping[Partition, int]:
        """The offset of the first message stored at or after this time; the queue's end if there is none."""
        return {each: self.client.offset_at(each, when_ms, deadline) for each in partitions}

    def messages(
        self, starts: Mapping[Partition, int], ends: Mapping[Partition, int], patience_s: float
    ) -> Iterator[tuple[Partition, Sequence[StoredMessage]]]:
        """The messages of each queue from its start to its end, in order. Yields an empty list if none came for a
        moment. The `body` of an unreadable message raises Malformed.

        Raises SourceError; SourceUnavailable if none came for `patience_s`.
        """
        for queue, start in sorted(starts.items()):
            at, patience = start, Deadline(patience_s)
            while at < ends[queue]:
                answer = self._pull(queue, at, patience)
                if answer is not None and answer.next_offset > at:
                    found = decode_each(answer.body, answer.next_offset) if answer.status is PullStatus.FOUND else ()
                    wanted = range(at, ends[queue])
                    at, patience = answer.next_offset, Deadline(patience_s)
                    yield queue, [each for each in found if each.offset in wanted]
                    continue
                if patience.passed:
                    raise SourceUnavailable(f"reading {queue}: nothing came in {patience_s:g} s")
                SYSTEM_CLOCK.sleep(patience.left_s(at_most=_AGAIN_S))
                yield queue, []

    def _pull(self, queue: Partition, offset: int, patience: Deadline) -> PullAnswer | None:
        """Pull once. None: the broker did not answer; pull again."""
        request = PullRequest(
            queue=queue,
            group=_READER,
            offset=offset,
            subscription=Subscription(topic=queue.topic),
            max_messages=_BATCH,
            suspend_s=0.0,
        )
        try:
            return self.client.pull(request, Deadline(patience.left_s(at_most=_ASK_S)))
        except SourceUnavailable as error:
            if patience.passed:
                raise SourceUnavailable(f"reading {queue}: {error}") from error
            return None

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
