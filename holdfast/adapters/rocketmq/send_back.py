"""Sending back: a failed record is brought again by its broker, later, by way of the group's retry topic."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.group_settings import group_settings
from holdfast.adapters.rocketmq.names import retry_topic
from holdfast.adapters.rocketmq.reading import Moved
from holdfast.adapters.rocketmq.remoting import PullRequest, Subscription
from holdfast.adapters.rocketmq.remoting.decoding import decode_each
from holdfast.adapters.rocketmq.remoting.messages import RECONSUME_TIMES, RETRY_TOPIC
from holdfast.adapters.rocketmq.remoting.sending import Sender
from holdfast.errors import DeadLetterError, DeadLetterRefused, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from holdfast.adapters.rocketmq.remoting import RemotingClient, StoredMessage
    from holdfast.plugin.ports import DeadLetters
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Record
    from holdfast.timing import Deadline

#: A delay level that puts a message into %DLQ%group at once.
_PUT_AWAY = -1


class BrokerRetries:
    """Dead letters, of which those to the retry topic are sent back. Any thread.

    A broker is asked by the place of a message in its log; to know it, the message is read once more.

    Args:
        connect: makes a client.
        group: whose retry topic.
        max_reconsume_times: how often at most; then the broker puts it into %DLQ%group by itself.
        letters: all other letters.
        on_moved: told of a reset, on the sender's thread: a broker tells of it once, to who pulls next for the group.
    """

    def __init__(
        self,
        connect: Callable[[], RemotingClient],
        group: str,
        max_reconsume_times: int,
        letters: DeadLetters,
        on_moved: Callable[[Moved], None],
    ) -> None:
        self._group, self._letters, self._on_moved = group, letters, on_moved
        self._topic, self._times = retry_topic(group), max_reconsume_times
        self._client = connect()  # connects when it is asked something

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """At the start: the targets exist. The retry topic is made with the group."""
        self._letters.check(topics, deadline)

    def send(self, letter: Letter, deadline: Deadline) -> None:
        """Return when the broker has it. Raises DeadLetterError."""
        if letter.topic != self._topic:
            self._letters.send(letter, deadline)
            return
        broker = letter.record.partition.broker
        try:
            stored = self._stored(letter.record, deadline)
            if group_settings(self._client, self._group, broker, deadline).retry_queues == 0:
                raise DeadLetterRefused(
                    f"{letter.record.partition}@{letter.record.offset}: {broker} has retryQueueNums=0 for the group "
                    f"{self._group}, and drops what is sent back: give it 1 (mqadmin updateSubGroup -q 1), or use "
                    f"retry='in_place'"
                )
            # A broker keeps a RETRY_TOPIC that is there already: it would come again as born where its producer says.
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
        for each in decode_each(answer.body, answer.next_offset):  # also one that cannot be read
            if each.offset == record.offset:
                return each
        if answer.is_reset(record.offset):
            self._on_moved(Moved(record.partition, record.offset, answer))
        elif record.offset < answer.min_offset:
            raise DeadLetterRefused(
                f"{record.partition}@{record.offset} is not in its broker's log any more, so it cannot come again: "
                f"keep messages for longer, or use retry='in_place'"
            )
        raise DeadLetterError(
            f"{record.partition}@{record.offset} cannot be read from {answer.address} now ({answer.status.value})"
        )

    def close(self, deadline: Deadline) -> None:
        """Give the connections back."""
        self._letters.close(deadline)
        self._client.close(deadline.left_s(1.0))


def comes_again(retry_topic: str, at_most: int, record: Record) -> bool:
    """Whether the broker would bring it again, as what it is; past the last time it puts it into %DLQ%group."""
    said = record.header(RETRY_TOPIC)
    if said not in (None, record.topic.encode()) and record.topic != retry_topic:
        return False  # its producer has written where it was born, and the broker would believe it
    return int(record.header(RECONSUME_TIMES) or 0) < at_most
