"""What one pull of a queue brought becomes records."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from holdfast.adapters.rocketmq.reading import Chunk, Reading
from holdfast.adapters.rocketmq.remoting import Malformed, PullAnswer, PullStatus, Subscription
from holdfast.records import Partition
from tests.properties.test_rocketmq_messages import Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import HoldfastError
    from holdfast.records import Record

FENCE: Any = SimpleNamespace()


def read(
    *messages: Stored | bytes, topic: str = "orders", tags: str = "*"
) -> tuple[Sequence[Record], HoldfastError | None]:
    body = b"".join(each if isinstance(each, bytes) else each.encode() for each in messages)
    answer = PullAnswer(PullStatus.FOUND, len(messages), 0, len(messages), body, "broker", 0, None)
    reading = Reading(Partition(topic, 3, "broker-a"), Subscription(topic=topic, expression=tags), 0, paused=False)
    return reading.records(Chunk(answer, 0), FENCE)


def test_a_record_is_the_same_whatever_else_is_in_its_chunk() -> None:
    plain = Stored("orders", b"one", {"KEYS": "k", "a": "b"}, offset=7, born_ms=5)
    [alone], _ = read(plain)
    [beside, other], _ = read(plain, Stored("orders", b"two" * 50, offset=8, zlib=True))
    assert (alone.partition.number, alone.offset, alone.key, alone.value, alone.timestamp_ms) == (3, 7, b"k", b"one", 5)
    assert (beside[:4], tuple(beside.headers)) == (alone[:4], tuple(alone.headers))
    assert other.value == b"two" * 50


def test_what_lies_before_a_damaged_message_is_delivered() -> None:
    damaged = bytearray(Stored("orders", b"two", offset=1).encode())
    damaged[88] ^= 1
    records, error = read(Stored("orders", b"one"), bytes(damaged))
    assert ([record.value for record in records], type(error)) == ([b"one"], Malformed)


def test_tags_are_compared_again() -> None:
    records, _ = read(*(Stored("orders", b"x", {"TAGS": tag}) for tag in ("a", "b", "c")), tags="a || c")
    assert [record.header("TAGS") for record in records] == [b"a", b"c"]


def test_what_was_tried_before_says_how_often_and_where_it_was_born() -> None:
    again = Stored("%RETRY%g", b"x", {"RETRY_TOPIC": "orders", "KEYS": "k"}, times=2)
    [record], _ = read(again, topic="%RETRY%g")
    assert (record.header("RECONSUME_TIMES"), record.header("holdfast-retry-of"), record.key) == (b"2", b"orders", b"k")


def test_a_value_in_base64_is_read_as_it_was() -> None:
    [record], _ = read(Stored("orders", b"x", {"holdfast-base64-KEYS": "/w=="}))
    assert (record.key, record.header("KEYS")) == (b"\xff", b"\xff")
