"""A group's description from its coordinator, with parts that librdkafka does not pass on: subscriptions and epochs.

DescribeGroups (key 15, version 4, brokers from 2.4 on) for classic groups, ConsumerGroupDescribe (key 69, versions 0
and 1) for those of the consumer protocol. Layouts: Kafka's message definitions, and ConsumerProtocolSubscription.json.
Encoding and decoding are pure, `describe` does the I/O. Needs DESCRIBE on the group; key 69 on its topics too.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from holdfast.adapters.kafka.broker_features import fetch
from holdfast.adapters.kafka.wire import Malformed, Reader, answer, compact, exchange, request

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

    from holdfast.timing import Deadline

_DESCRIBE_GROUPS: Final = 15
_CONSUMER_GROUP_DESCRIBE: Final = 69
#: 1,000 members with 100 partitions each, and a topic's name of 249 letters for each of them.
_MOST_BYTES: Final = 64 << 20
_OPERATIONS_BYTES: Final = 4
_TOPIC_ID_BYTES: Final = 16


class Refused(Exception):
    """The coordinator answers with an error. `code` is Kafka's error code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"the coordinator answers with error {code}")
        self.code = code


class Told(NamedTuple):
    """The description of one member."""

    topics: frozenset[str]
    pattern: str | None = None
    rack: str = ""
    epoch: int | None = None
    #: Whether the member uses the classic protocol.
    classic: bool = True


class Description(NamedTuple):
    """A group as its coordinator describes it."""

    state: str  #: as Kafka writes it: "PreparingRebalance"
    #: "consumer" for a group of consumers ("connect" and others are not); "" = it never had a member.
    kind: str
    assignor: str
    epoch: int | None
    #: Member id -> its description; empty for classic groups that are not stable.
    members: Mapping[str, Told]


def describe(
    host: str, port: int, tls: ssl.SSLContext | None, group: str, deadline: Deadline, *, consumer_protocol: bool
) -> Description:
    """Ask the group's coordinator. Blocks until the deadline at most. Raises OSError, Malformed, Refused."""
    if not consumer_protocol:
        asked = encode_classic(group)
        return decode_classic(exchange(host, port, tls, asked, deadline, most_bytes=_MOST_BYTES))
    version = min(fetch(host, port, tls, deadline).ranges.get(_CONSUMER_GROUP_DESCRIBE, (0, 0))[1], 1)
    asked = encode_consumer(group, version)
    return decode_consumer(exchange(host, port, tls, asked, deadline, most_bytes=_MOST_BYTES), version)


# ---- bytes
def encode_classic(group: str) -> bytes:
    """DescribeGroups, version 4, of one group, without its authorized operations."""
    name = group.encode()
    return request(_DESCRIBE_GROUPS, 4, struct.pack(">ih", 1, len(name)) + name + b"\0")


def decode_classic(payload: bytes) -> Description:
    """Decode the answer about a classic group. Raises Malformed, Refused."""
    reader = answer(payload)
    reader.int32()  # throttle time
    if reader.int32() != 1:
        raise Malformed("an answer about another number of groups")
    if error := reader.int16():
        raise Refused(error)
    reader.text()  # the group
    state, kind, assignor = (reader.text() or "" for _ in range(3))
    members = {}
    for _ in range(reader.int32()):
        member_id = reader.text() or ""
        for _ in ("instance id", "client id", "host"):
            reader.text()
        metadata = reader.data(reader.int32()) or b""
        reader.data(reader.int32())  # the assignment
        if metadata and kind == "consumer":
            members[member_id] = read_subscription(metadata)
    return Description(state, kind, assignor, None, members)


def read_subscription(metadata: bytes) -> Told:
    """Read a member's metadata for the chosen assignor. Raises Malformed."""
    reader = Reader(metadata)
    version = reader.int16()
    topics = frozenset(reader.text() or "" for _ in range(reader.int32()))
    reader.data(reader.int32())  # the assignor's own data
    if version >= 1:
        for _ in range(reader.int32()):  # the partitions that it owned when it joined
            reader.text()
            reader.take(4 * reader.int32())
    if version >= 2:
        reader.int32()  # the generation in which it owned them
    return Told(topics, rack=(reader.text() or "") if version >= 3 else "")


def encode_consumer(group: str, version: int) -> bytes:
    """ConsumerGroupDescribe of one group, without its authorized operations."""
    return request(_CONSUMER_GROUP_DESCRIBE, version, b"\0\x02" + compact(group) + b"\0\0")


def decode_consumer(payload: bytes, version: int) -> Description:
    """Decode the answer about a group of the consumer protocol. Raises Malformed, Refused."""
    reader = answer(payload)
    reader.skip_tags()
    reader.int32()  # throttle time
    if reader.varint() != 2:
        raise Malformed("an answer about another number of groups")
    if error := reader.int16():
        raise Refused(error)
    reader.compact_text()  # the error's text
    reader.compact_text()  # the group
    state = reader.compact_text() or ""
    epoch = reader.int32()
    reader.int32()  # the epoch of the target assignment
    assignor = reader.compact_text() or ""
    members = {}
    for _ in range(reader.varint() - 1):
        member_id = reader.compact_text() or ""
        reader.compact_text()  # the instance id
        rack = reader.compact_text() or ""
        member_epoch = reader.int32()
        for _ in ("client id", "host"):
            reader.compact_text()
        topics = frozenset(reader.compact_text() or "" for _ in range(reader.varint() - 1))
        pattern = reader.compact_text()
        for _ in ("has", "is to have"):
            _skip_assignment(reader)
        classic = version >= 1 and reader.int8() == 0
        reader.skip_tags()
        members[member_id] = Told(topics, pattern, rack, member_epoch, classic)
    reader.take(_OPERATIONS_BYTES)
    return Description(state, "consumer", assignor, epoch, members)


def _skip_assignment(reader: Reader) -> None:
    for _ in range(reader.varint() - 1):
        reader.take(_TOPIC_ID_BYTES)
        reader.compact_text()
        reader.take(4 * (reader.varint() - 1))
        reader.skip_tags()
    reader.skip_tags()
