"""What RocketMQ's own Java code writes (5.5.0, recorded), and what we make of it."""

from __future__ import annotations

import struct
import sys
import zlib
from importlib.util import find_spec

import pytest

from holdfast.adapters.rocketmq.remoting import Credentials, Subscription, decode_messages
from holdfast.adapters.rocketmq.remoting.admin import _table
from holdfast.adapters.rocketmq.remoting.answers import Answer, Malformed
from holdfast.adapters.rocketmq.remoting.decoding import encode_batch
from holdfast.adapters.rocketmq.remoting.frame import decode
from holdfast.adapters.rocketmq.remoting.messages import StoredMessage, decompress
from holdfast.adapters.rocketmq.remoting.routes import read_route
from holdfast.errors import MissingExtraError
from holdfast.records import Partition

PLAIN = b"holdfast holdfast holdfast holdfast"
LZ4 = bytes.fromhex("04224d18607073130000009f686f6c64666173742009000250646661737400000000")
ZSTD = bytes.fromhex("28b52ffd00587c000048686f6c6466617374200100b4cb11010000")
ZLIB = bytes.fromhex("785ecbc8cf49494b2c2e51c8c0c90000f6390db5")

# MessageDecoder.encode of a message whose hosts have IPv6 addresses.
MESSAGE = bytes.fromhex(
    "00000096daa320a77d8eab38000000030000000700000000000000290000000000001267000000300000018bcfe568000000000000000000"
    "0000000000000001000013880000018bcfe56801fe80000000000000000000000000000100002a9f000000020000000000000009000000"
    "0470616964066f72646572730019610162024b455953016b31206b320254414753017061696402"
)
NOTICE = bytes.fromhex(
    "00000039010000340028000000000000050000000200000005677275c39f0000001a000d636f6e73756d657247726f757000000007"
    "62696c6c696e6778"
)
BATCH = bytes.fromhex(
    "000000250000000000000000000000000000000161000e70017102574149540174727565020000002000000000000000000000000300000000"
    "000a57414954017472756502"
)


def answer(body: bytes) -> Answer:
    return Answer("asking", "127.0.0.1:10911", 0, None, {}, body)


def test_a_message_with_ipv6_hosts_is_read() -> None:
    [message] = decode_messages(MESSAGE)
    assert (message.topic, message.queue_id, message.offset, message.physical_offset) == ("orders", 3, 41, 4711)
    assert (message.body, message.flag, message.reconsume_times, message.prepared_offset) == (b"paid", 7, 2, 9)
    assert (message.born_ms, message.stored_ms) == (1_700_000_000_000, 1_700_000_000_001)
    assert message.born_host == (bytes(15) + b"\1", 5000)
    assert message.properties == {"a": "b", "KEYS": "k1 k2", "TAGS": "paid"}
    assert (message.keys, message.tags, message.unique_key, message.origin_topic) == ("k1 k2", "paid", None, "orders")
    assert message.message_id == "FE80000000000000000000000000000100002A9F0000000000001267"


def test_a_body_that_was_damaged_is_told_at_the_message_and_not_before() -> None:
    at = MESSAGE.index(b"paid")
    [damaged, whole] = decode_messages(MESSAGE[:at] + b"pale" + MESSAGE[at + 4 :] + MESSAGE)
    with pytest.raises(Malformed, match="checksum"):
        _ = damaged.body
    assert damaged.offset == 41
    assert whole.body == b"paid"


@pytest.mark.parametrize("length", range(1, len(MESSAGE)))
def test_an_answer_that_ends_within_a_message_is_never_half_believed(length: int) -> None:
    with pytest.raises(Malformed):
        decode_messages(MESSAGE + MESSAGE[:length])


def test_a_notice_with_a_binary_header_is_read() -> None:
    command = decode(NOTICE[4:])
    assert (command.code, command.opaque, command.is_oneway, command.is_answer) == (40, 5, True, False)
    assert (command.remark, command.fields, command.body) == ("gru\u00df", {"consumerGroup": "billing"}, b"x")


def test_a_signature_is_javas() -> None:
    credentials = Credentials(access_key="access", secret_key="secret", security_token="token")  # noqa: S106
    fields = {"topic": "orders", "consumerGroup": "billing", "queueId": "3", "b": "\u00e4"}
    signed = credentials.sign(fields, b"body")
    assert signed["Signature"] == "RjQVWADYsMrmRsnJHKY14pgE51E="
    assert signed == fields | {
        "AccessKey": "access",
        "SecurityToken": "token",
        "Signature": signed["Signature"],
    }
    assert credentials.sign(signed, b"body") == signed


def test_credentials_are_never_shown() -> None:
    shown = repr(Credentials(access_key="access", secret_key="secret", security_token="token"))  # noqa: S106
    assert not any(each in shown for each in ("access", "secret", "token"))


def test_a_batch_is_written_as_java_does() -> None:
    assert encode_batch([(b"a", "p\x01q\x02WAIT\x01true\x02", 0), (b"", "WAIT\x01true\x02", 3)]) == BATCH


def test_a_batch_inside_one_message_becomes_its_messages() -> None:
    [first, second] = decode_messages(_inner(BATCH))
    assert (first.offset, first.body, first.properties, first.flag) == (41, b"a", {"p": "q", "WAIT": "true"}, 0)
    assert (second.offset, second.body, second.properties, second.flag) == (42, b"", {"WAIT": "true"}, 3)
    with pytest.raises(Malformed):
        decode_messages(_inner(BATCH[:-1]))


def _inner(batch: bytes) -> bytes:
    """MESSAGE with that body, marked as a batch; its checksum is left to fit."""
    at = MESSAGE.index(b"\0\0\0\4paid")
    whole = bytearray(MESSAGE[:at] + struct.pack(">i", len(batch)) + batch + MESSAGE[at + 8 :])
    struct.pack_into(">i", whole, 0, len(whole))
    struct.pack_into(">i", whole, 8, zlib.crc32(batch) & 0x7FFFFFFF)
    struct.pack_into(">i", whole, 36, 0x30 | 0xC0)
    return bytes(whole)


def test_tags_are_hashed_as_brokers_compare_them() -> None:
    tags = Subscription(topic="orders", expression=" paid || gr\u00f6\u00dfe-\U0001f600||").data()
    assert dict(zip(tags["tagsSet"], tags["codeSet"], strict=True)) == {
        "paid": 3433164,
        "gr\u00f6\u00dfe-\U0001f600": 175616671,
    }


@pytest.mark.parametrize("kind", [0, 3])
def test_a_body_compressed_with_zlib_is_read(kind: int) -> None:
    assert StoredMessage("t", 0, 0, raw_body=ZLIB, sys_flag=1 | kind << 8).body == PLAIN


@pytest.mark.parametrize(("kind", "package", "body"), [(1, "lz4", LZ4), (2, "zstandard", ZSTD)])
def test_a_body_of_lz4_or_zstd_is_read_or_the_error_says_what_to_install(kind: int, package: str, body: bytes) -> None:
    if find_spec(package) is not None:
        assert decompress(body, kind) == PLAIN
        with pytest.raises(Malformed):
            decompress(body[:-4], kind)
        with pytest.raises(Malformed):
            decompress(b"no such thing", kind)
    else:
        with pytest.raises(
            MissingExtraError, match=rf"{package} is not installed: pip install 'holdfast-mq\[rocketmq-codecs"
        ):
            decompress(body, kind)


@pytest.mark.parametrize(("kind", "package"), [(1, "lz4.frame"), (2, "zstandard")])
def test_without_its_package_a_body_is_an_error_and_the_others_are_read(
    kind: int, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    compressed = StoredMessage("t", 0, 0, raw_body=b"x", sys_flag=1 | kind << 8)
    with pytest.raises(MissingExtraError, match="rocketmq-codecs"):
        _ = compressed.body
    assert StoredMessage("t", 0, 1, raw_body=b"x").body == b"x"


def test_a_cluster_whose_keys_have_no_quotes_is_read() -> None:
    body = (
        b'{"brokerDatas":[{"brokerAddrs":{0:"127.0.0.1:10911",1:"127.0.0.1:10921"},"brokerName":"a","cluster":"c",'
        b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,'
        b'"readQueueNums":2,"topicSysFlag":0,"writeQueueNums":1}]}'
    )
    route = read_route("orders", answer(body))
    assert route.brokers == {"a": {0: "127.0.0.1:10911", 1: "127.0.0.1:10921"}}
    assert route.queues() == [Partition("orders", 0, "a"), Partition("orders", 1, "a")]
    assert route.queues(read=False) == [Partition("orders", 0, "a")]


def test_a_table_whose_keys_are_objects_is_read() -> None:
    body = (
        b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
        b'{"brokerOffset":7,"consumerOffset":3,"lastTimestamp":1795273311932,"pullOffset":0}}}'
    )
    names = ("brokerOffset", "consumerOffset", "lastTimestamp")
    assert _table(answer(body), names) == {Partition("orders", 0, "broker-a"): (7, 3, 1795273311932)}
    assert _table(answer(b'{"offsetTable":{}}'), names) == {}
