"""Sending messages: 310, 320, and 36, which gives one back to the broker for a later try.

A broker works on several requests of one connection at once: two messages sent without waiting may change places.
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
        topic: the queue's that it is sent to.
        body: any bytes; 4 MiB at most by default.
        tags: one tag, for subscriptions.
        keys: for the broker's index: one, or several without blanks in them.
        properties: the user's own, and UNIQ_KEY where the sender has made the message's identity itself.
        delay_level: 0 = at once; 1 to 18 as the broker's messageDelayLevel says (1 s ... 2 h).
        flag: the user's own number.
        sys_flag: bits of RocketMQ: 0x301 for a body that is compressed with zlib already.

    Raises:
        SettingError: something the protocol cannot carry.
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
        """All properties, with an identity."""
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
    """How safe it is; stored it is in all of them."""

    OK = codes.SUCCESS
    FLUSH_DISK_TIMEOUT = codes.FLUSH_DISK_TIMEOUT
    SLAVE_NOT_AVAILABLE = codes.SLAVE_NOT_AVAILABLE
    FLUSH_SLAVE_TIMEOUT = codes.FLUSH_SLAVE_TIMEOUT


class Sent(NamedTuple):
    """Where a message went. A delayed one has the place of its wait, not of its topic."""

    status: SendStatus
    queue: Partition
    offset: int
    message_id: str  #: by its place in the log; several parted by commas for a batch
    unique_key: str  #: likewise


class Sender:
    """Sends through a client, to masters. Any thread. No answer means that the message may have been stored.

    Args:
        client: its connections are used; it stays the caller's to close.
        group: the producer's, as brokers and tools show it.
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
        """Send without waiting. Of two sends that are under way at once, either may be stored first."""
        request, keys = self._one(queue, message)
        self._client.begin_master(queue, request, timeout_s, lambda answer: _read(queue, keys, answer), on_answer)

    def send_batch(self, queue: Partition, messages: Sequence[Message], deadline: Deadline) -> Sent:
        """Store several in one go, all or none: of one topic, not delayed. Raises SourceError, SettingError."""
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
        """Give a message back: it comes again on the group's retry topic, and past the most tries on its dead letters'.

        Args:
            broker: that has the message.
            group: that consumes it. For one that the broker does not know it does nothing, and says that all is well.
            message: as it was pulled.
            deadline: for the answer.
            delay_level: 0 = longer with each try; 1 to 18; below 0 = to the dead letters at once.
            max_reconsume_times: how often at most.

        Raises:
            SourceError: it was not taken.
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
        # The batch as a whole has properties too; Java gives it an identity of its own.
        whole = Message(queue.topic, encode_batch(parts))
        fields = self._fields(queue, whole, write_properties(whole.stamped()), batch=True)
        what = f"sending {len(messages)} to {queue}"
        return Request(codes.Request.SEND_BATCH_MESSAGE, what, fields, whole.body), ",".join(keys)

    def _fields(self, queue: Partition, message: Message, text: str, *, batch: bool) -> dict[str, str]:
        return as_fields(
            {
                "a": self.group,
                "b": queue.topic,
                "c": "TBW102",  # the topic whose settings one is made with that does not exist yet, where brokers do so
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
