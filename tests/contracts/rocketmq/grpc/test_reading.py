"""What a poll brought is read message by message: what a producer has made of one is a failure of that one."""

from __future__ import annotations

import gzip
import zlib
from typing import Any

import pytest

from holdfast.adapters.rocketmq.grpc.client import _consumer_class, load
from holdfast.adapters.rocketmq.packages import load_grpc
from holdfast.adapters.rocketmq.remoting.messages import MOST_BODY_BYTES

_IDENTITY, _GZIP = 1, 2
_TOO_MUCH = bytes(MOST_BODY_BYTES + 1)


def read(*bodies: tuple[bytes, int]) -> list[Any]:
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

    return list(consumer._Consumer__handle_receive_message_response([*responses, status], Queue))


def test_messages_are_read_as_they_were_sent() -> None:
    found = read((b"a", _IDENTITY), (zlib.compress(b"b"), _GZIP), (gzip.compress(b"c"), _GZIP))
    assert [(each.body, getattr(each, "fault", None)) for each in found] == [(b"a", None), (b"b", None), (b"c", None)]


@pytest.mark.parametrize(
    "odd",
    [
        b"not compressed",
        zlib.compress(_TOO_MUCH),
        gzip.compress(_TOO_MUCH),
        gzip.compress(b"") + gzip.compress(_TOO_MUCH),
    ],
    ids=["not compressed", "zlib grows too large", "gzip grows too large", "a second part grows too large"],
)
def test_one_that_cannot_be_read_is_left_as_it_is_and_the_others_are_read(odd: bytes) -> None:
    before, found, after = read((b"a", _IDENTITY), (odd, _GZIP), (zlib.compress(b"b"), _GZIP))
    assert (before.body, after.body) == (b"a", b"b")
    assert len(found.body) == len(odd)  # told at a glance: the other would be shown byte by byte
    assert before.fault is after.fault is None
    assert isinstance(found.fault, Exception)
