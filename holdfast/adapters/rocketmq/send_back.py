"""Sending back: the broker delivers a failed record again, later, through the group's retry topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.inbox import Moved
from holdfast.adapters.rocketmq.names import retry_topic
from holdfast.adapters.rocketmq.remoting import Admin, PullRequest, Subscription
from holdfast.adapters.rocketmq.remoting.decoding import decode_each
from holdfast.adapters.rocketmq.remoting.messages import RECONSUME_TIMES, RETRY_TOPIC
from holdfast.adapters.rocketmq.remoting.sending import Sender
from holdfast.errors import DeadLetterError, DeadLetterRefused, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from holdfast.adapters.rocketmq.inbox import Inbox
    from holdfast.adapters.rocketmq.remoting import RemotingClient, StoredMessage
    from holdfast.plugin.ports import DeadLetters
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Record
    from holdfast.timing import Deadline

#: The delay level with which a broker puts a message into %DLQ%group at once.
_PUT_AWAY = -1


class BrokerRetries:
    """Sends dead letters; those to the group's retry topic are sent back to their broker. Any thread.

    The request needs the message's position in the broker's commit log, so the message is read once more.

    Args:
        connect: makes a client.
        group: the consumer group.
        max_reconsume_times: the most deliveries; then the broker puts the message into %DLQ%group.
        letters: sends all other letters.
        inbox: gets a reset. A broker sends it once, as the answer to the group's next pull, which may be the one made
            here.
    """

    def __init__(
        self,
        connect: Callable[[], RemotingClient],
        group: str,
        max_reconsume_times: int,
        letters: DeadLetters,
        inbox: Inbox,
    ) -> None:
        self._group, self._letters, self._inbox = group, letters, inbox
        self._topic, self._times = retry_topic(group), max_reconsume_times
        self._client = connect()  # opens a connection with the first request

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """Check at the start that the targets exist. Brokers create the retry topic with the group."""
        self._letters.check(topics, deadline)

    def send(self, letter: Letter, deadline: Deadline) -> None:
        """Send a letter, or send its record back; return when the broker has it. Raises DeadLetterError."""
        if letter.topic != self._topic:
            self._letters.send(letter, deadline)
            return
        broker = letter.record.partition.broker
        try:
            stored = self._stored(letter.record, deadline)
            if Admin(self._client).group_settings(self._group, broker, deadline).retry_queues == 0:
                raise DeadLetterRefused(
                    f"{letter.record.partition}@{letter.record.offset}: {broker} has retryQueueNums=0 for the group "
                    f"{self._group}, and drops what is sent back: give it 1 (mqadmin updateSubGroup -q 1), or use "
                    f"retry='in_place'"
                )
            # A broker keeps an existing RETRY_TOPIC property: a producer could choose the record's origin topic by it.
            forged = letter.record.topic not in (self._topic, stored.origin_topic)
            Sender(self._client).send_back(
                broker,
                self._group,
                stored,
                deadline,
                delay_level=_PUT_AWAY if forged else 0,
                max_reconsume_times=self._times,
            )
        except SourceError as error:
            raise DeadLetterError(f"{letter.record.partition}@{letter.record.offset}: {error}") from error

    def _stored(self, record: Record, deadline: Deadline) -> StoredMessage:
        request = PullRequest(
            queue=record.partition,
            group=self._group,
            offset=record.offset,
            subscription=Subscription(topic=record.topic),
            max_messages=1,
            suspend_s=0,
        )
        answer = self._client.pull(request, deadline)
        for each in decode_each(answer.body, answer.next_offset):  # includes messages that cannot be unpacked
            if each.offset == record.offset:
                return each
        if answer.is_reset(record.offset):
            self._inbox.post(Moved(record.partition, record.offset, answer))
        elif record.offset < answer.min_offset:
            raise DeadLetterRefused(
                f"{record.partition}@{record.offset} is not in its broker's log any more, so it cannot come again: "
                f"keep messages for longer, or use retry='in_place'"
            )
        raise DeadLetterError(
            f"{record.partition}@{record.offset} cannot be read from {answer.address} now ({answer.status.value})"
        )

    def close(self, deadline: Deadline) -> None:
        """Close the connections."""
        self._letters.close(deadline)
        self._client.close(deadline.left_s(1.0))


def comes_again(retry_topic: str, at_most: int, record: Record) -> bool:
    """Whether the broker would deliver the record again, with its true origin topic. After the last delivery it would
    put the record into %DLQ%group instead."""
    said = record.header(RETRY_TOPIC)
    if said not in (None, record.topic.encode()) and record.topic != retry_topic:
        return False  # the producer has set RETRY_TOPIC, and the broker would take it for the origin topic
    return int(record.header(RECONSUME_TIMES) or 0) < at_most
