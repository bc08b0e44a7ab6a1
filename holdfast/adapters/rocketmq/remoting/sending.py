"""Sender: requests 310 and 320, which send messages, and 36, which sends one back to the broker for a later delivery.

A broker works on several requests of one connection at once: two messages sent without waiting may be reordered.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.remoting.client import as_fields
from holdfast.adapters.rocketmq.remoting.decoding import encode_batch
from holdfast.adapters.rocketmq.remoting.in_flight import Request
from holdfast.adapters.rocketmq.remoting.messages import DELAY, KEYS, TAGS, UNIQUE_KEY, write_properties
from holdfast.errors import SettingError
from holdfast.timing import wall_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting.answers import Answer
    from holdfast.adapters.rocketmq.remoting.client import RemotingClient
    from holdfast.adapters.rocketmq.remoting.messages import StoredMessage
    from holdfast.errors import SourceError
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_HIGHEST_DELAY: Final = 18  # messageDelayLevel: 1s 5s 10s 30s 1m ... 2h


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send.

    Args:
        topic: the topic of the queue that it is sent to.
        body: any bytes; 4 MiB at most by default.
        tags: one tag, for subscriptions.
        keys: for the broker's index: one key, or several without blanks.
        properties: the user's own, and UNIQ_KEY if the caller has made one.
        delay_level: 0: at once; 1 to 18: as the broker's messageDelayLevel says (1 s ... 2 h).
        flag: the user's own number.
        sys_flag: RocketMQ's bits: 0x301 for a body that is already compressed with zlib.

    Raises:
        SettingError: the protocol cannot carry a value.
    """

    topic: str
    body: bytes
    tags: str | None = field(default=None, kw_only=True)
    keys: str | Sequence[str] | None = field(default=None, kw_only=True)
    properties: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    delay_level: int = field(default=0, kw_only=True)
    flag: int = field(default=0, kw_only=True)
    sys_flag: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        if not self.topic:
            raise SettingError("topic", self.topic, "a topic's name is wanted")
        if not 0 <= self.delay_level <= _HIGHEST_DELAY:
            raise SettingError("delay_level", self.delay_level, f"0 (at once) to {_HIGHEST_DELAY}")

    def stamped(self) -> dict[str, str]:
        """All properties, with a UNIQ_KEY."""
        stamped = {UNIQUE_KEY: "", **self.properties}
        if not stamped[UNIQUE_KEY]:
            stamped[UNIQUE_KEY] = uuid.uuid4().hex.upper()
        if self.tags:
            stamped[TAGS] = self.tags
        if self.keys:
            stamped[KEYS] = self.keys if isinstance(self.keys, str) else " ".join(self.keys)
        if self.delay_level:
            stamped[DELAY] = str(self.delay_level)
        stamped.setdefault("WAIT", "true")
        return stamped


class SendStatus(Enum):
    """How safely a message is stored. With each of these it is on the master."""

    OK = codes.SUCCESS
    FLUSH_DISK_TIMEOUT = codes.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = codes.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = codes.FLUSH_SLAVE_TIMEOUT


class Sent(NamedTuple):
    """The position of a sent message. For a delayed one, the position where it waits, not that in its topic."""

    status: SendStatus
    queue: Partition
    offset: int
    message_id: str  #: from its position in the commit log; for a batch several, separated by commas
    unique_key: str  #: for a batch several, separated by commas


class Sender:
    """Sends through a client, to masters. Any thread. Without an answer the message may have been stored.

    Args:
        client: its connections are used; the caller closes it.
        group: the producer group, as brokers and tools show it.
    """

    def __init__(self, client: RemotingClient, group: str = "CLIENT_INNER_PRODUCER") -> None:
        self._client, self.group = client, group

    def send(self, queue: Partition, message: Message, deadline: Deadline) -> Sent:
        """Store one message. Raises SourceError."""
        request, keys = self._one(queue, message)
        return _read(queue, keys, self._client.ask_master(queue, request, deadline))

    def begin_send(
        self,
        queue: Partition,
        message: Message,
        on_answer: Callable[[Sent | SourceError], None],
        *,
        timeout_s: float = 5.0,
    ) -> None:
        """Send without waiting. Two sends that are under way at once may be stored in any order."""
        request, keys = self._one(queue, message)
        self._client.begin_master(queue, request, timeout_s, lambda answer: _read(queue, keys, answer), on_answer)

    def send_batch(self, queue: Partition, messages: Sequence[Message], deadline: Deadline) -> Sent:
        """Store several messages of one topic in one request, all or none; not delayed. Raises SourceError,
        SettingError."""
        request, keys = self._several(queue, messages)
        return _read(queue, keys, self._client.ask_master(queue, request, deadline))

    def begin_send_batch(
        self,
        queue: Partition,
        messages: Sequence[Message],
        on_answer: Callable[[Sent | SourceError], None],
        *,
        timeout_s: float = 5.0,
    ) -> None:
        """Send a batch without waiting."""
        request, keys = self._several(queue, messages)
        self._client.begin_master(queue, request, timeout_s, lambda answer: _read(queue, keys, answer), on_answer)

    def send_back(
        self,
        broker: str,
        group: str,
        message: StoredMessage,
        deadline: Deadline,
        *,
        delay_level: int = 0,
        max_reconsume_times: int = 16,
    ) -> None:
        """Send a message back: the broker delivers it again on the group's retry topic, and after the last delivery
        puts it into the group's dead letter topic.

        Args:
            broker: the broker that has the message.
            group: the group that consumes it. If the broker does not know it, it acknowledges and does nothing.
            message: the message as it was pulled.
            deadline: for the answer.
            delay_level: 0: longer with each delivery; 1 to 18; below 0: to the dead letters at once.
            max_reconsume_times: the most deliveries.

        Raises:
            SourceError: the broker has not accepted it.
        """
        fields = as_fields(
            {
                "offset": message.physical_offset,
                "group": group,
                "delayLevel": delay_level,
                "originMsgId": message.message_id,
                "originTopic": message.topic,
                "unitMode": False,
                "maxReconsumeTimes": max_reconsume_times,
            }
        )
        request = Request(codes.Request.CONSUMER_SEND_MSG_BACK, f"giving back {message!r}", fields)
        self._client.network.ask(self._client.master(broker), request, deadline).expect()

    def _one(self, queue: Partition, message: Message) -> tuple[Request, str]:
        stamped = message.stamped()
        fields = self._fields(queue, message, write_properties(stamped), batch=False)
        what = f"sending to {_checked(queue, message)}"
        return Request(codes.Request.SEND_MESSAGE, what, fields, message.body), stamped[UNIQUE_KEY]

    def _several(self, queue: Partition, messages: Sequence[Message]) -> tuple[Request, str]:
        if not messages:
            raise SettingError("messages", messages, "one at least")
        parts: list[tuple[bytes, str, int]] = []
        keys: list[str] = []
        for each in messages:
            _checked(queue, each)
            if each.delay_level or each.sys_flag:
                raise SettingError("messages", each, "a batch takes no delayed and no compressed ones: send it alone")
            stamped = each.stamped()
            keys.append(stamped[UNIQUE_KEY])
            parts.append((each.body, write_properties(stamped), each.flag))
        # The batch as a whole has properties too; Java gives it a UNIQ_KEY of its own.
        whole = Message(queue.topic, encode_batch(parts))
        fields = self._fields(queue, whole, write_properties(whole.stamped()), batch=True)
        what = f"sending {len(messages)} to {queue}"
        return Request(codes.Request.SEND_BATCH_MESSAGE, what, fields, whole.body), ",".join(keys)

    def _fields(self, queue: Partition, message: Message, text: str, *, batch: bool) -> dict[str, str]:
        return as_fields(
            {
                "a": self.group,
                "b": queue.topic,
                "c": "TBW102",  # the template for topics that do not exist, if the broker creates topics
                "d": 4,
                "e": queue.number,
                "f": message.sys_flag,
                "g": wall_ms(),
                "h": message.flag,
                "i": text,
                "j": 0,
                "k": False,
                "m": batch,
            }
        )


def _checked(queue: Partition, message: Message) -> Partition:
    if message.topic != queue.topic:
        raise SettingError("topic", message.topic, f"the queue is one of {queue.topic}")
    return queue


def _read(queue: Partition, keys: str, answer: Answer) -> Sent:
    answer.expect(codes.FLUSH_DISK_TIMEOUT, codes.SLAVE_NOT_AVAILABLE, codes.FLUSH_SLAVE_TIMEOUT)
    return Sent(
        SendStatus(answer.code),
        queue._replace(number=answer.number("queueId")),
        answer.number("queueOffset"),
        answer.fields.get("msgId", ""),
        keys,
    )
