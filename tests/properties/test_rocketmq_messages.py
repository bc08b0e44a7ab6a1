"""RocketMQ's messages: what is written is read again; any bytes are messages or one clear error, in bounded memory."""

from __future__ import annotations

import json
import struct
import tracemalloc
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.adapters.rocketmq.remoting import Message, RemotingClient, Sender, decode_messages
from holdfast.adapters.rocketmq.remoting.admin import Admin
from holdfast.adapters.rocketmq.remoting.answers import Answer, Malformed
from holdfast.adapters.rocketmq.remoting.decoding import MAGIC_V1, MAGIC_V2, read_plain
from holdfast.adapters.rocketmq.remoting.membership import read_locked, read_members
from holdfast.adapters.rocketmq.remoting.messages import MOST_BODY_BYTES, decompress, read_properties, write_properties
from holdfast.adapters.rocketmq.remoting.queues import read_commit, read_offset, read_pull, read_query
from holdfast.adapters.rocketmq.remoting.routes import read_route
from holdfast.errors import MissingExtraError, SettingError, SourceError
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.tiers import examples

if TYPE_CHECKING:
    from collections.abc import Callable

int64 = st.integers(-(1 << 63), (1 << 63) - 1)
int32 = st.integers(-(1 << 31), (1 << 31) - 1)
words = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=8)
pairs = st.dictionaries(words, words, max_size=4)


@dataclass
class Stored:
    """A message as a broker has it."""

    topic: str
    body: bytes
    properties: dict[str, str] = field(default_factory=dict)
    offset: int = 0
    physical_offset: int = 0
    queue: int = 0
    flag: int = 0
    times: int = 0
    born_ms: int = 0
    stored_ms: int = 0
    v2: bool = False
    born_v6: bool = False
    store_v6: bool = False
    zlib: bool = False

    def encode(self) -> bytes:
        body = zlib.compress(self.body) if self.zlib else self.body
        bits = (0x301 if self.zlib else 0) | (0x10 if self.born_v6 else 0) | (0x20 if self.store_v6 else 0)
        topic, text = self.topic.encode(), write_properties(self.properties).encode()
        after = struct.pack(
            ">iiiqqiq", zlib.crc32(body) & 0x7FFFFFFF, self.queue, self.flag, self.offset, self.physical_offset, bits,
            self.born_ms,
        )  # fmt: skip
        after += bytes(16 if self.born_v6 else 4) + struct.pack(">iq", 5000, self.stored_ms)
        after += bytes(16 if self.store_v6 else 4) + struct.pack(">iiqi", 10911, self.times, 0, len(body)) + body
        after += struct.pack(">h" if self.v2 else ">B", len(topic)) + topic + struct.pack(">h", len(text)) + text
        return struct.pack(">ii", 8 + len(after), MAGIC_V2 if self.v2 else MAGIC_V1) + after


stored = st.builds(
    Stored,
    words,
    st.binary(max_size=40),
    pairs,
    int64,
    int64,
    int32,
    int32,
    int32,
    int64,
    int64,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(stored, max_size=4))
def test_what_a_broker_has_is_read_whole(sent: list[Stored]) -> None:
    read = decode_messages(b"".join(each.encode() for each in sent))
    assert [
        Stored(
            each.topic, each.body, dict(each.properties), each.offset, each.physical_offset, each.queue_id, each.flag,
            each.reconsume_times, each.born_ms, each.stored_ms, was.v2, was.born_v6, was.store_v6, was.zlib,
        )
        for each, was in zip(read, sent, strict=True)
    ] == sent  # fmt: skip


@given(stored, st.data())
def test_a_message_with_some_bytes_changed_is_read_or_malformed(message: Stored, data: st.DataObject) -> None:
    whole = bytearray(message.encode())
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        for each in decode_messages(bytes(whole)):
            assert isinstance(each.properties, dict)
            assert isinstance(each.body, bytes)
    except (Malformed, MissingExtraError):
        return


@given(st.lists(stored, max_size=4), st.data())
def test_what_is_read_as_plain_is_what_a_whole_message_has(sent: list[Stored], data: st.DataObject) -> None:
    payload = bytearray(b"".join(each.encode() for each in sent))
    for _ in range(data.draw(st.integers(0, 2)) if payload else 0):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    plain = read_plain(bytes(payload))
    if plain is not None:
        assert plain == [
            (each.offset, each.born_ms, each.reconsume_times, each.body, each.raw_properties)
            for each in decode_messages(bytes(payload))
        ]


@given(words, st.binary(max_size=40), pairs, int64, int32, int64)
def test_usual_messages_are_plain(
    topic: str, body: bytes, pairs: dict[str, str], offset: int, times: int, born_ms: int
) -> None:
    message = Stored(topic, body, pairs, offset=offset, times=times, born_ms=born_ms)
    assert read_plain(message.encode() * 2) == [(offset, born_ms, times, body, write_properties(pairs).encode())] * 2


@given(st.binary(max_size=300))
def test_any_bytes_are_messages_or_malformed(payload: bytes) -> None:
    try:
        decode_messages(payload)
    except Malformed:
        return


@given(st.text(max_size=60))
def test_any_properties_are_read(text: str) -> None:
    assert all(name and value for name, value in read_properties(text).items())


@given(pairs)
def test_properties_are_read_as_they_were_written(sent: dict[str, str]) -> None:
    assert read_properties(write_properties(sent)) == sent


@pytest.mark.parametrize("wrong", [{"": "x"}, {"a\x01": "x"}, {"a": "x\x02"}, {"a": "x" * 40_000}])
def test_properties_that_could_not_be_told_apart_are_not_sent(wrong: dict[str, str]) -> None:
    with pytest.raises(SettingError):
        write_properties(wrong)


def test_a_body_that_grows_without_end_is_stopped_early() -> None:
    writer = zlib.compressobj(9)
    mib = bytes(1024 * 1024)
    bomb = b"".join(writer.compress(mib) for _ in range(256)) + writer.flush()
    tracemalloc.start()
    try:
        with pytest.raises(Malformed, match="grow"):
            decompress(bomb, 3)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 3 * MOST_BODY_BYTES  # a buffer that doubles, and a copy


def test_a_number_without_end_is_malformed() -> None:
    for text in ("9" * 10_000, "9" * 19, "-9223372036854775809", "\u0661", "1_0", " 1", ""):
        with pytest.raises(Malformed):
            Answer("asking", "server:1", 0, None, {"offset": text}, b"").number("offset")
    for number in (-(1 << 63), (1 << 63) - 1, 0, -1):
        assert Answer("asking", "server:1", 0, None, {"offset": str(number)}, b"").number("offset") == number


@given(st.binary(max_size=100), st.integers(0, 7))
def test_any_compressed_body_is_read_or_an_error_of_ours(body: bytes, kind: int) -> None:
    try:
        decompress(body, kind)
    except (Malformed, MissingExtraError):
        return


# -- whatever a server may answer

readers: list[Callable[[Answer], Any]] = [
    read_pull,
    read_query,
    read_commit,
    read_offset,
    read_members,
    read_locked,
    lambda answer: read_route("t", answer).queues(),
]
scalars = st.none() | st.booleans() | st.integers(-5, 70_000) | int64 | st.floats() | st.text(max_size=6)
names = st.sampled_from(
    ["queueDatas", "brokerDatas", "brokerName", "readQueueNums", "writeQueueNums", "perm", "brokerAddrs", "0", "topic",
     "consumerIdList", "lockOKMQSet", "queueId", "brokerAddrTable", "clusterAddrTable", "offsetTable", "connectionSet"]
)  # fmt: skip
bodies_of_any_kind = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=12,
).map(lambda value: json.dumps(value).encode())


fields = st.dictionaries(
    st.sampled_from(["offset", "nextBeginOffset", "minOffset", "maxOffset", "suggestWhichBrokerId"]),
    int64.map(str) | st.text(max_size=25),
    max_size=5,
)
answers = st.builds(
    Answer,
    st.just("asking"),
    st.just("server:1"),
    st.sampled_from([0, 0, 0, 1, 2, 17, 19, 20, 21, 22, 99]),
    st.none() | st.text(max_size=5),
    fields,
    bodies_of_any_kind | st.binary(max_size=20),
)


@given(answers)
@settings(max_examples=examples(300))
def test_any_answer_is_read_or_a_source_error(answer: Answer) -> None:
    for read in readers:
        try:
            read(answer)
        except SourceError:
            continue


class _Scripted(RemotingClient):
    """A client whose servers all say the same."""

    def __init__(self, answer: Answer) -> None:
        super().__init__("127.0.0.1:1")
        self.network.ask = lambda *_: answer  # type: ignore[method-assign]
        self.network.ask_name_servers = lambda *asked: asked[-1](answer)  # type: ignore[method-assign]


QUEUE = Partition("t", 0, "a")


@given(answers)
@settings(max_examples=examples(100))
def test_whatever_servers_answer_tools_get_a_value_or_a_source_error(answer: Answer) -> None:
    client = _Scripted(answer)
    admin, sender, deadline = Admin(client), Sender(client), Deadline(5)
    calls: list[Callable[[], object]] = [
        lambda: admin.cluster(deadline),
        lambda: admin.lag("g", "t", deadline),
        lambda: admin.topic_stats("t", deadline),
        lambda: admin.connections("a", "g", deadline),
        lambda: admin.create_topic("t", deadline),
        lambda: sender.send(QUEUE, Message("t", b""), deadline),
        lambda: client.query_offset(QUEUE, "g", deadline),
        lambda: client.consumer_ids("a", "g", deadline),
    ]
    for call in calls:
        try:
            call()
        except SourceError:
            continue
