"""What a LeasedSource asks brokers at its start, where it knows them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.rocketmq.grpc.broker_look import NothingDelivered, look_at_group
from holdfast.adapters.rocketmq.remoting import RemotingClient, codes
from holdfast.errors import UnknownGroup
from holdfast.timing import Deadline
from tests.unit.rocketmq_fake import FakeServer, Peer, route_body

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting.frame import Command


def look(*, times: int = 16, code: int = 0, first: int = 0, end: int = 100, known: int | None = None) -> None:
    """At a broker that says this of the group, and of each of two queues."""

    def broker(command: Command, peer: Peer) -> None:
        if command.code == codes.Request.GET_SUBSCRIPTION_GROUP:
            body = json.dumps({"retryQueueNums": 1, "retryMaxTimes": times}).encode()
            peer.answer(command, body=body, code=code)
        elif command.code == codes.Request.QUERY_CONSUMER_OFFSET:
            peer.answer(command, {"offset": str(known or 0)}, code=codes.QUERY_NOT_FOUND if known is None else 0)
        else:
            peer.answer(command, {"offset": str(end if command.code == codes.Request.GET_MAX_OFFSET else first)})

    with FakeServer(broker) as server:
        route = route_body({"a": (2, 2)}, {"a": {0: server.address}})
        with (
            FakeServer(lambda command, peer: peer.answer(command, body=route)) as names,
            RemotingClient(names.address) as client,
        ):
            look_at_group(client, "billing", ["orders"], Deadline(30.0))


def test_a_group_whose_messages_all_go_to_the_dead_letters_is_refused() -> None:
    with pytest.raises(NothingDelivered, match=r"retryMaxTimes=-1 .*mqadmin updateSubGroup"):
        look(times=-1)
    look(times=0)


def test_a_group_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownGroup, match="mqadmin updateSubGroup"):
        look(code=codes.GROUP_NOT_EXIST)


def test_where_a_new_group_passes_over_messages_it_is_told_how_many(caplog: pytest.LogCaptureFixture) -> None:
    look(first=40)
    assert "orders-a-0, orders-a-1" in caplog.text
    assert "passes over 118 before that" in caplog.text


@pytest.mark.parametrize("seen", [{"first": 0}, {"first": 40, "known": 60}, {"first": 99}], ids=str)
def test_else_nothing_is_said(seen: dict[str, int], caplog: pytest.LogCaptureFixture) -> None:
    look(**seen)
    assert caplog.text == ""


def test_brokers_that_do_not_say_hold_nobody_up() -> None:
    look(code=codes.SYSTEM_BUSY)
