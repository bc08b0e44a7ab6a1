"""Arguments of a loop's calls, checked as the client checks them, with the same errors. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.kafka._client import KafkaError, KafkaException, Message, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

#: The client's limit for one `consume`.
_MOST = 1_000_000


def topics_of(given: object) -> list[str]:
    """The names to subscribe to. Raises TypeError: not a list (a text would be one name a letter); KafkaException: no
    name."""
    if not isinstance(given, list):
        raise TypeError("expected list of topic unicode strings")
    if not given or not all(given):
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, "Failed to set subscription: no topic is named"))  # noqa: SLF001 - librdkafka's name
    return [str(each) for each in given]


def check_callbacks(**callbacks: Callable[..., object] | None) -> None:
    """Raises TypeError: one is no function."""
    for name, call in callbacks.items():
        if call is not None and not callable(call):
            raise TypeError(f"{name} expects a callable")


def partitions_given(given: object) -> list[TopicPartition]:
    """Partitions. Raises TypeError."""
    if not isinstance(given, list):
        raise TypeError("requires list of TopicPartition")
    for each in given:
        partition_given(each)
    return given


def partition_given(given: object) -> TopicPartition:
    """One partition. Raises TypeError."""
    if not isinstance(given, TopicPartition):
        raise TypeError(f"expected {TopicPartition.__module__}.{TopicPartition.__name__}")
    return given


def check_message(given: object, verb: str) -> None:
    """Raises TypeError: no message; KafkaException (_INVALID_ARG): the message carries an error, such as the end of a
    partition, and no record that could be done."""
    if not isinstance(given, Message):
        raise TypeError(f"expected {Message.__module__}.{Message.__name__}")
    if (error := given.error()) is not None:
        said = f"Cannot {verb} offsets for message with error: '{error.str()}'"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, said))  # noqa: SLF001 - librdkafka's name


def check_count(given: int) -> None:
    """Raises ValueError, TypeError."""
    if not 0 <= given <= _MOST:
        raise ValueError("num_messages must be between 0 and 1000000 (1M)")


def seconds(given: float | None, endless: float) -> float:
    """A timeout; None and negative numbers become `endless`. Raises TypeError."""
    if given is None:
        return endless
    if not isinstance(given, int | float):
        raise TypeError(f"must be real number, not {type(given).__name__}")
    return endless if given < 0 else given
