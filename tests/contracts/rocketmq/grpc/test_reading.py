"""What a poll brought is read message by message: what a producer has made of one is a failure of that one."""

from __future__ import annotations

import gzip
import tracemalloc
import zlib
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.grpc.client import _consumer_class, _delivery, load
from holdfast.adapters.rocketmq.packages import load_grpc
from holdfast.adapters.rocketmq.remoting.messages import MOST_BODY_BYTES

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.grpc.delivery import Delivery

_IDENTITY, _GZIP = 1, 2
_TOO_MUCH = bytes(MOST_BODY_BYTES + 1)


def read_packed(*bodies: tuple[bytes, int]) -> list[Delivery]:
    load()
    package, requests = load_grpc(), load_grpc("rocketmq.grpc_protocol.service_pb2")
    responses = []
    for body, encoding in bodies:
        response = requests.ReceiveMessageResponse()
        response.message.body = body
        response.message.system_properties.body_encoding = encoding
        responses.append(response)
    status = requests.ReceiveMessageResponse()
    status.status.code = 20000
    consumer: Any = object.__new__(_consumer_class(package))
    consumer._consumer_group = "billing"

    class Queue:
        endpoints = None

    found = consumer._Consumer__handle_receive_message_response([*responses, status], Queue)
    return [_delivery(each) for each in found]


def read(*bodies: tuple[bytes, int]) -> list[Delivery]:
    """As they are when they are taken."""
    return [each.unpacked() for each in read_packed(*bodies)]


def test_messages_are_read_as_they_were_sent() -> None:
    parts = gzip.compress(b"c") + gzip.compress(b"d") + bytes(3)
    found = read((b"a", _IDENTITY), (zlib.compress(b"b"), _GZIP), (parts, _GZIP), (zlib.compress(b""), _GZIP))
    assert [(each.body, each.fault) for each in found] == [(b"a", None), (b"b", None), (b"cd", None), (b"", None)]


@pytest.mark.parametrize(
    "odd",
    [
        b"not compressed",
        b"",
        zlib.compress(b"cut")[:-1],
        gzip.compress(b"cut")[:-1],
        zlib.compress(_TOO_MUCH),
        gzip.compress(_TOO_MUCH),
        gzip.compress(b"") + gzip.compress(_TOO_MUCH),
    ],
    ids=[
        "not compressed",
        "empty",
        "zlib cut",
        "gzip cut",
        "zlib grows too large",
        "gzip grows too large",
        "a second part grows too large",
    ],
)
def test_one_that_cannot_be_read_is_left_as_it_is_and_the_others_are_read(odd: bytes) -> None:
    before, found, after = read((b"a", _IDENTITY), (odd, _GZIP), (zlib.compress(b"b"), _GZIP))
    assert (before.body, after.body) == (b"a", b"b")
    assert len(found.body) == len(odd)  # told at a glance: the other would be shown byte by byte
    assert before.fault is after.fault is None
    assert isinstance(found.fault, Exception)


def test_nothing_is_unpacked_before_its_message_is_taken() -> None:
    load()
    body = zlib.compress(bytes(MOST_BODY_BYTES))
    tracemalloc.start()
    try:
        found = read_packed(*[(body, _GZIP)] * 32)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [each.body for each in found] == [body] * 32
    assert most < MOST_BODY_BYTES
