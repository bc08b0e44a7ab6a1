"""What one pull of a queue brought becomes records."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.reading import Chunk, Reader
from holdfast.adapters.rocketmq.remoting import PullAnswer, PullStatus, Subscription
from holdfast.adapters.rocketmq.remoting.decoding import encode_batch
from holdfast.records import Partition
from tests.properties.test_rocketmq_messages import Stored

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.errors import HoldfastError
    from holdfast.records import Record

FENCE: Any = SimpleNamespace()


def reader(topic: str = "orders", tags: str = "*") -> Reader:
    """Of a source that reads orders."""
    topics: Any = SimpleNamespace(
        subscription=lambda topic: Subscription(topic=topic, expression=tags),
        born_in=lambda named: "orders" if named in ("orders", LEFT) else None,
    )
    return Reader(Partition(topic, 3, "broker-a"), "billing", topics)


def read(
    *messages: Stored | bytes, topic: str = "orders", tags: str = "*"
) -> tuple[Sequence[Record], HoldfastError | None]:
    _, records, error = read_chunk(*messages, topic=topic, tags=tags)
    return records, error


#: Where a broker puts what "billing" was given of "orders" one by one, and did not acknowledge.
LEFT = "%RETRY%billing_orders"


def read_chunk(
    *messages: Stored | bytes, topic: str = "orders", tags: str = "*"
) -> tuple[Chunk, Sequence[Record], HoldfastError | None]:
    body = b"".join(each if isinstance(each, bytes) else each.encode() for each in messages)
    answer = PullAnswer(PullStatus.FOUND, len(messages), 0, len(messages), body, "broker", 0, None)
    reading = reader(topic, tags)
    chunk = Chunk(answer, 0)
    return chunk, *in_parts(reading, chunk)


def in_parts(reading: Reader, chunk: Chunk, **bounds: int) -> tuple[Sequence[Record], HoldfastError | None]:
    """As poll after poll reads it."""
    found: list[Record] = []
    while not chunk.over:
        records, error = reading.records(chunk, FENCE, **bounds)
        found += records
        if error is not None:
            return found, error
    return found, None


def test_a_record_is_the_same_whatever_else_is_in_its_chunk() -> None:
    plain = Stored("orders", b"one", {"KEYS": "k", "a": "b"}, offset=7, born_ms=5)
    [alone], _ = read(plain)
    [beside, other], _ = read(plain, Stored("orders", b"two" * 50, offset=8, zlib=True))
    assert (alone.partition.number, alone.offset, alone.key, alone.value, alone.timestamp_ms) == (3, 7, b"k", b"one", 5)
    assert (beside[:4], tuple(beside.headers)) == (alone[:4], tuple(alone.headers))
    assert other.value == b"two" * 50


def with_flags(message: Stored, flags: int) -> bytes:
    """As its producer may set them."""
    return message.encode()[:36] + struct.pack(">i", flags) + message.encode()[40:]


def damaged(message: Stored) -> bytes:
    body = bytearray(message.encode())
    body[88] ^= 1
    return bytes(body)


@pytest.mark.parametrize(
    "broken",
    [
        damaged(Stored("orders", b"two", {"k": "v"}, offset=1)),
        with_flags(Stored("orders", b"two", {"k": "v"}, offset=1), 0x1),
        with_flags(Stored("orders", b"two", {"k": "v"}, offset=1), 0x701),
        with_flags(Stored("orders", b"two", {"k": "v"}, offset=1), 0xC0),
    ],
    ids=["checksum", "not compressed", "unknown compression", "not several in one"],
)
def test_a_message_that_cannot_be_read_hides_none_of_its_neighbours_and_says_which_it_is(broken: bytes) -> None:
    chunk, records, error = read_chunk(Stored("orders", b"one"), broken, Stored("orders", b"three", offset=2))
    assert error is None
    assert [record.offset for record in records] == [0, 1, 2]
    assert [record.value for record in records][::2] == [b"one", b"three"]
    assert len(records[1].value or b"") == 3
    assert records[1].header("k") == b"v"
    [(offset, why)] = chunk.unreadable.items()
    assert offset == 1
    assert "orders-broker-a-3@1 (message " in str(why)


def test_one_whose_parts_do_not_fit_is_found_again_by_its_length() -> None:
    odd = bytearray(Stored("orders", b"two", offset=1).encode())
    odd[4:8] = b"abcd"
    chunk, records, error = read_chunk(Stored("orders", b"one"), bytes(odd), Stored("orders", b"three", offset=2))
    assert (error, [record.offset for record in records], list(chunk.unreadable)) == (None, [0, 1, 2], [1])
    assert records[1].value == bytes(odd)


def test_where_not_even_lengths_can_be_read_it_says_behind_which_and_what_came_before_is_delivered() -> None:
    records, error = read(Stored("orders", b"one", offset=4), b"\x7f" * 40)
    assert [record.value for record in records] == [b"one"]
    assert "orders-broker-a-3, behind offset 4" in str(error)


def test_a_message_that_says_it_is_several_does_not_stand_for_those_of_others() -> None:
    inner = encode_batch([(b"a", "", 0), (b"b", "", 0)])
    forged = with_flags(Stored("orders", inner, offset=0), 0xC0)
    chunk, records, _ = read_chunk(forged, Stored("orders", b"another's", offset=1))
    assert [(record.offset, record.value) for record in records] == [(0, inner), (1, b"another's")]
    assert list(chunk.unreadable) == [0]
    chunk, records, _ = read_chunk(forged, Stored("orders", b"another's", offset=2))
    assert [record.value for record in records] == [b"a", b"b", b"another's"]
    assert not chunk.unreadable


def test_of_several_in_one_those_before_what_was_asked_for_are_left_out() -> None:
    several = with_flags(Stored("orders", encode_batch([(b"a", "", 0), (b"b", "", 0), (b"c", "", 0)]), offset=4), 0xC0)
    answer = PullAnswer(PullStatus.FOUND, 7, 0, 7, several, "broker", 0, None)
    records, error = in_parts(reader(), Chunk(answer, 5))
    assert (error, [(record.offset, record.value) for record in records]) == (None, [(5, b"b"), (6, b"c")])


def test_tags_are_compared_again() -> None:
    records, _ = read(*(Stored("orders", b"x", {"TAGS": tag}) for tag in ("a", "b", "c")), tags="a || c")
    assert [record.header("TAGS") for record in records] == [b"a", b"c"]


@pytest.mark.parametrize("in_parts", [False, True], ids=["its parts", "what is in it"])
def test_one_whose_tag_cannot_be_read_is_not_left_out_for_it(in_parts: bool) -> None:
    odd = Stored("orders", b"two", {} if in_parts else {"TAGS": "a"}, offset=1)
    broken = with_flags(odd, 0xC0) if in_parts else odd.encode()[:4] + b"abcd" + odd.encode()[8:]
    others = damaged(Stored("orders", b"three", {"TAGS": "b"}, offset=2))
    chunk, records, error = read_chunk(broken, others, tags="a")
    assert (error, [record.offset for record in records]) == (None, [1])
    assert 1 in chunk.unreadable


@pytest.mark.parametrize(("tags", "times"), [("*", 0), ("*", 1), ("a", 0)])
def test_keys_that_are_empty_are_no_key_so_that_such_records_need_not_wait_for_each_other(
    tags: str, times: int
) -> None:
    [record], _ = read(Stored("orders", b"x", {"TAGS": "a", "KEYS": ""}, times=times), tags=tags)
    assert (record.key, record.header("KEYS")) == (None, b"")


def test_what_was_tried_before_says_how_often_and_where_it_was_born() -> None:
    again = Stored("%RETRY%g", b"x", {"RETRY_TOPIC": "orders", "KEYS": "k"}, times=2)
    [record], _ = read(again, topic="%RETRY%g")
    assert (record.header("RECONSUME_TIMES"), record.header("holdfast-retry-of"), record.key) == (b"2", b"orders", b"k")


def test_a_value_in_base64_is_read_as_it_was() -> None:
    [record], _ = read(Stored("orders", b"x", {"holdfast-base64-KEYS": "/w=="}))
    assert (record.key, record.header("KEYS")) == (b"\xff", b"\xff")


def packed(count: int, size: int, *, flags: int = 0) -> Chunk:
    """A pull of messages that are far larger unpacked."""
    each = [with_flags(Stored("orders", bytes(size), offset=n, zlib=True), 0x1 | flags) for n in range(count)]
    return Chunk(PullAnswer(PullStatus.FOUND, count, 0, count, b"".join(each), "broker", 0, None), 0)


def several(chunk_offset: int, inner: bytes, following: int) -> Chunk:
    """One entry that says that it is several messages."""
    entry = with_flags(Stored("orders", inner, offset=chunk_offset, zlib=True), 0x1 | 0xC0)
    return Chunk(PullAnswer(PullStatus.FOUND, following, 0, following, entry, "broker", 0, None), chunk_offset)


MIB = 1024 * 1024
READING = reader()


def test_no_more_is_unpacked_at_once_than_there_is_room_for_and_the_rest_comes_next() -> None:
    chunk = packed(20, MIB)
    assert len(chunk.body) < 30_000
    sizes = []
    while not chunk.over:
        records, error = READING.records(chunk, FENCE, room=2 * MIB)
        assert error is None
        sizes.append([(record.offset, len(record.value or b"")) for record in records])
    assert [len(each) for each in sizes] == [2] * 10
    assert [place for each in sizes for place in each] == [(n, MIB) for n in range(20)]


def test_what_was_unpacked_in_vain_takes_room_too() -> None:
    cut = zlib.compress(bytes(MIB))[:-1]
    body = b"".join(with_flags(Stored("orders", cut, offset=n), 0x1) for n in range(3))
    chunk = Chunk(PullAnswer(PullStatus.FOUND, 3, 0, 3, body, "broker", 0, None), 0)
    records, _ = READING.records(chunk, FENCE)
    assert [record.offset for record in records] == [0]
    assert not chunk.over


def test_of_a_batch_no_more_is_made_at_once_than_is_asked_for() -> None:
    inner = encode_batch([(b"%d" % n, "", 0) for n in range(1000)])
    chunk, again = several(7, inner, 1007), several(7, inner, 1007)
    first, _ = READING.records(chunk, FENCE, at_most=300)
    assert [record.value for record in first] == [b"%d" % n for n in range(300)]
    rest, error = in_parts(READING, chunk, at_most=300)
    whole, _ = in_parts(READING, again)
    assert (error, [*first, *rest]) == (None, whole)
    assert [record.offset for record in whole] == list(range(7, 1007))


def test_a_batch_without_the_place_for_its_messages_is_refused_before_any_is_made() -> None:
    inner = struct.pack(">5ih", 22, 0, 0, 0, 0, 0) * 400_000
    chunk = several(0, inner, 2)
    tracemalloc.start()
    try:
        [record], error = in_parts(READING, chunk)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (error, record.offset, list(chunk.unreadable)) == (None, 0, [0])
    assert most < 3 * len(inner)


def test_what_a_broker_has_given_out_one_by_one_is_born_in_the_topic_that_its_retry_topic_is_for() -> None:
    [record], error = read(Stored(LEFT, b"left", {"1ST_POP_TIME": "1", "ORIGIN_GROUP": "billing"}), topic=LEFT)
    assert error is None
    assert (record.topic, record.value, record.header("holdfast-retry-of")) == (LEFT, b"left", b"orders")


def test_what_another_group_has_in_a_retry_topic_of_the_same_name_is_not_ours() -> None:
    """%RETRY%billing_orders is the retry topic of a group "billing_orders" too, and of "billing_x" for a topic."""
    of_others = (
        Stored(LEFT, b"sent back", {"RETRY_TOPIC": "orders"}),
        Stored(LEFT, b"given out", {"1ST_POP_TIME": "1", "ORIGIN_GROUP": "billing_x"}, offset=1),
    )
    assert read(*of_others, topic=LEFT) == ([], None)


def test_what_was_sent_back_once_more_out_of_such_a_topic_is_still_born_where_it_was() -> None:
    [record], _ = read(Stored("%RETRY%billing", b"again", {"RETRY_TOPIC": LEFT}), topic="%RETRY%billing")
    assert record.header("holdfast-retry-of") == b"orders"
