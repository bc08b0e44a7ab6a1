"""DeserializingKafkaConsumer: way 2 for loops around `confluent_kafka.DeserializingConsumer`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from holdfast.adapters.kafka._client import (
    ConsumeError,
    KeyDeserializationError,
    MessageField,
    SerializationContext,
    ValueDeserializationError,
)
from holdfast.adapters.kafka.consumer import KafkaConsumer
from holdfast.adapters.kafka.quirks.header_names import headers_of
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.kafka._client import Message
    from holdfast.adapters.kafka.loop_config import LoopConfig


class DeserializingKafkaConsumer(KafkaConsumer):
    """A drop-in for `confluent_kafka.DeserializingConsumer`: with key.deserializer and value.deserializer.

    `key=` applies to the deserialised record: a name is a field of a mapping or an attribute of the value (if the value
    is text, a field of its JSON), and a function gets that record. A Protobuf field that is not set has its default: if
    0 is no valid id, give a function. For a message that cannot be deserialised, `poll` raises the client's error when
    it would return that message; the message then counts as returned. Catch the error and go on, or the message stays
    undone.

    Raises:
        SettingError: as `KafkaConsumer`; also for a `.builder`: make the deserialiser and pass it.
    """

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next message, its key and value deserialised in place.

        Raises:
            KeyDeserializationError, ValueDeserializationError: as the client.
            ConsumeError: in cases in which `KafkaConsumer.poll` returns a message that carries an error.
        """
        message = super().poll(timeout)
        if message is not None and (error := message.error()) is not None:
            raise ConsumeError(error, kafka_message=message)
        return message

    def consume(self, num_messages: int = 1, timeout: float | None = -1) -> NoReturn:
        """Raise NotImplementedError, as the client does."""
        raise NotImplementedError("use poll(), as with confluent_kafka.DeserializingConsumer")

    def _deserialiser(self, own: LoopConfig) -> Callable[[Message], None]:
        for name in own.deserialisers:
            if name.endswith(".builder"):
                raise SettingError(name, "...", f"make the deserialiser and pass it as {name.removesuffix('.builder')}")
        key, value = (_function(own, f"{part}.deserializer") for part in ("key", "value"))

        def deserialise(message: Message) -> None:
            headers: list[Any] | None = list(headers_of(message)) or None
            context = SerializationContext(message.topic() or "", MessageField.KEY, headers)
            if key is not None:
                try:
                    message.set_key(key(message.key(), context))
                except Exception as error:
                    raise KeyDeserializationError(exception=error, kafka_message=message) from error
            if value is not None:
                context.field = MessageField.VALUE
                try:
                    message.set_value(value(message.value(), context))
                except Exception as error:
                    raise ValueDeserializationError(exception=error, kafka_message=message) from error

        return deserialise


def _function(own: LoopConfig, name: str) -> Callable[[Any, SerializationContext], Any] | None:
    given: Callable[[Any, SerializationContext], Any] | None = own.deserialisers.get(name)
    if given is not None and not callable(given):
        raise SettingError(name, given, "use a deserialiser: a function of (bytes, SerializationContext)")
    return given
