"""RocketMQProducer: a small producer that sends, waits for the broker's acknowledgement, and returns the position."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn, Self

from holdfast.adapters.rocketmq import outgoing
from holdfast.adapters.rocketmq.delivery import Delivery
from holdfast.adapters.rocketmq.outgoing import Message
from holdfast.adapters.rocketmq.remoting import Message as WireMessage
from holdfast.adapters.rocketmq.remoting import RemotingClient, SendStatus
from holdfast.adapters.rocketmq.remoting.messages import UNIQUE_KEY
from holdfast.adapters.rocketmq.unique_keys import UniqueKeys
from holdfast.errors import SettingError
from holdfast.timing import Deadline

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import Credentials
    from holdfast.records import Partition


class Stored(NamedTuple):
    """The position of a stored message."""

    partition: Partition
    #: Its offset in the queue. A delayed message gets another offset, in its topic's queue, when it is due.
    offset: int
    #: RocketMQ's offset message id: the broker's address and the position in its commit log.
    message_id: str
    #: Its UNIQ_KEY, the same in all copies of the message.
    unique_key: str
    #: False: the master has the message, but has not flushed it in time, or its replica has not answered in time (if
    #: the broker is configured to wait for these).
    safe: bool


class RocketMQProducer:
    """Sends messages to RocketMQ. Any thread; a forked child makes its own.

    A message that is not acknowledged is sent again, to another broker if there is one, with the same UNIQ_KEY. It may
    then be stored twice, and holdfast's consumers skip the second copy by that key. With a sharding key it is sent only
    to the key's queue, so that messages of equal keys stay in order. Topics must exist. There are no transactions.

    Args:
        namesrv: the name servers, "host:port;host:port".
        group: the producer group's name at the brokers.
        credentials: as `RocketMQSource`.
        tls: as `RocketMQSource`.
        timeout_s: seconds for a call, with all its tries.
        attempt_timeout_s: seconds for one try.
        compress_above_bytes: larger values are compressed (zlib); None: no value is.
        max_message_bytes: `maxMessageSize` of the brokers.

    Raises:
        SettingError: an argument cannot work.
    """

    def __init__(
        self,
        namesrv: str,
        *,
        group: str = "holdfast-producer",
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
        timeout_s: float = 10.0,
        attempt_timeout_s: float = 3.0,
        compress_above_bytes: int | None = outgoing.COMPRESS_ABOVE_BYTES,
        max_message_bytes: int = 4 << 20,
    ) -> None:
        for name, value in (("timeout_s", timeout_s), ("attempt_timeout_s", attempt_timeout_s)):
            if not 0 < value < 3600:
                raise SettingError(name, value, "seconds, above 0")
        if max_message_bytes < 1:
            raise SettingError("max_message_bytes", max_message_bytes, "at least 1")
        self._client = RemotingClient(namesrv, credentials=credentials, tls=tls)
        self._delivery = Delivery(self._client, group, attempt_timeout_s)
        self._timeout_s, self._keys = timeout_s, UniqueKeys()
        self._compress_above, self._most_bytes = compress_above_bytes, max_message_bytes

    def send(
        self,
        topic: str,
        value: bytes,
        *,
        keys: str | Sequence[str] = (),
        tag: str | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        sharding_key: str | None = None,
        unique_key: str | None = None,
        timeout_s: float | None = None,
    ) -> Stored:
        """Send one message; returns when a broker has acknowledged it. For the arguments see `Message`.

        Raises:
            SettingError: RocketMQ would not accept it; nothing was sent.
            NotAcknowledged: no answer in time; the message may be stored.
            UnknownTopic, NotAuthorised, BrokerRefused: the broker refuses it.
        """
        message = Message(
            value=value,
            keys=keys,
            tag=tag,
            properties=properties or {},
            delay_level=delay_level,
            unique_key=unique_key,
        )
        [stored] = self._send(topic, [message], sharding_key, Deadline(timeout_s or self._timeout_s), batch=False)
        return stored

    def send_batch(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        sharding_key: str | None = None,
        timeout_s: float | None = None,
    ) -> list[Stored]:
        """Send several messages to one queue in one request: all are stored, one after the other, or none. Raises as
        `send`.

        They are not compressed, cannot be delayed, and together must be smaller than `max_message_bytes`.
        """
        if not messages:
            return []
        if any(message.delay_level for message in messages):
            raise SettingError("delay_level", "of a batch", "brokers delay no batches: send these one by one")
        return self._send(topic, messages, sharding_key, Deadline(timeout_s or self._timeout_s), batch=True)

    def send_message_in_transaction(self, *_: object, **__: object) -> NoReturn:
        """Not offered. Raises SettingError."""
        raise SettingError(
            "transaction",
            "asked for",
            "this producer has none: take rocketmq-client-python's TransactionMQProducer, or note the message in your "
            "database's own transaction and send it from there (an outbox)",
        )

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(
        self, topic: str, messages: Sequence[Message], sharding_key: str | None, deadline: Deadline, *, batch: bool
    ) -> list[Stored]:
        outgoing.check_topic(topic)
        properties = [message.told(self._keys.next()) for message in messages]
        if batch:
            size = outgoing.batch_bytes([message.value for message in messages], properties)
            outgoing.check_size(size, self._most_bytes, "messages")
            bodies = [(message.value, 0) for message in messages]
        else:
            bodies = [outgoing.packed(messages[0].value, self._compress_above)]
            outgoing.check_size(len(bodies[0][0]), self._most_bytes, "value")
        wire = [
            WireMessage(topic, body, properties=each, sys_flag=sys_flag)
            for (body, sys_flag), each in zip(bodies, properties, strict=True)
        ]
        sent = self._delivery.send(wire, deadline, batch=batch, sharding_key=sharding_key)
        ids = sent.message_id.split(",")
        return [
            Stored(
                sent.queue,
                sent.offset + index,
                ids[min(index, len(ids) - 1)],
                each[UNIQUE_KEY],
                sent.status is SendStatus.OK,
            )
            for index, each in enumerate(properties)
        ]
