"""Sending back reads the message once more in the group's name, and what a broker answers to that is not lost."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.inbox import Inbox, Moved
from holdfast.adapters.rocketmq.remoting import RemotingClient, codes
from holdfast.adapters.rocketmq.remoting.decoding import INNER_BATCH
from holdfast.adapters.rocketmq.send_back import BrokerRetries
from holdfast.errors import DeadLetterError, DeadLetterRefused
from holdfast.plugin.retrying.dead_letter import Letter
from holdfast.records import Partition, Record
from holdfast.timing import Deadline
from tests.properties.test_rocketmq_messages import Stored
from tests.unit.rocketmq_fake import FakeServer, Peer, route_body

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting.frame import Command

QUEUE = Partition("orders", 0, "a")
FENCE: Any = SimpleNamespace(epoch=1, session="s", cancelled=False)
RECORD = Record(QUEUE, 7, None, b"x", (), 0, FENCE)
LETTER = Letter(
    record=RECORD, topic="%RETRY%billing", handler="handle", reason=ValueError("no"), attempts=1, group="billing"
)


class Letters:
    """Gets no letter here."""

    def close(self, deadline: Deadline) -> None: ...


def send(
    code: int,
    log: tuple[int, int],
    body: bytes = b"",
    *,
    to: int = 3,
    group: tuple[int, bytes] = (0, b'{"retryQueueNums":1}'),
) -> tuple[Exception | None, list[Moved], list[Command]]:
    """One letter, to a broker that answers the read like this; its log from and to; where it sends the
    reader; what it says of the group."""

    def broker(command: Command, peer: Peer) -> None:
        if command.code == codes.Request.GET_SUBSCRIPTION_GROUP:
            peer.answer(command, body=group[1], code=group[0])
            return
        if command.code != codes.Request.PULL_MESSAGE:
            peer.answer(command)
            return
        fields = {
            "nextBeginOffset": str(to),
            "minOffset": str(log[0]),
            "maxOffset": str(log[1]),
            "suggestWhichBrokerId": "0",
        }
        peer.answer(command, fields, body, code)

    inbox = Inbox()
    with FakeServer(broker) as server:
        route = route_body({"a": (1, 1)}, {"a": {0: server.address}})
        with FakeServer(lambda command, peer: peer.answer(command, body=route)) as names:
            letters: Any = Letters()
            retries = BrokerRetries(lambda: RemotingClient(names.address), "billing", 16, letters, inbox)
            try:
                retries.send(LETTER, Deadline(30))
            except DeadLetterError as error:
                return error, moves(inbox), server.received
            finally:
                retries.close(Deadline(5))
        return None, moves(inbox), server.received


def moves(inbox: Inbox) -> list[Moved]:
    """All that was posted."""
    found = list[Moved]()
    while (event := inbox.take()) is not None:
        assert isinstance(event, Moved)
        found.append(event)
    return found


def test_what_is_read_is_sent_back_by_its_place_in_the_log() -> None:
    body = Stored("orders", b"x", offset=7, physical_offset=4711).encode()
    error, moved, asked = send(codes.SUCCESS, (0, 9), body)
    assert (error, moved) == (None, [])
    [*_, back] = asked
    assert (back.code, back.fields["offset"], back.fields["group"]) == (36, "4711", "billing")


def test_one_that_says_that_it_is_several_and_is_not_is_sent_back_too() -> None:
    """Its producer may set that flag; where there is no dead letter topic there is no other way for it."""
    body = bytearray(Stored("orders", b"x", offset=7, physical_offset=4711).encode())
    body[36:40] = struct.pack(">i", INNER_BATCH)
    error, _, asked = send(codes.SUCCESS, (0, 9), bytes(body))
    assert error is None
    assert asked[-1].fields["offset"] == "4711"


@pytest.mark.parametrize(("says", "level"), [("orders", "0"), ("payments", "-1")])
def test_one_whose_producer_says_that_it_was_born_elsewhere_is_put_away(says: str, level: str) -> None:
    body = Stored("orders", b"x", {"RETRY_TOPIC": says}, offset=7).encode()
    error, _, asked = send(codes.SUCCESS, (0, 9), body)
    assert error is None
    assert asked[-1].fields["delayLevel"] == level


@pytest.mark.parametrize(("log", "to"), [((0, 9), 3), ((8, 90), 90), ((8, 90), 40)])
def test_a_reset_that_is_told_here_is_handed_on_and_the_letter_is_tried_again(log: tuple[int, int], to: int) -> None:
    """Also where the message has expired."""
    error, moved, _ = send(codes.PULL_OFFSET_MOVED, log, to=to)
    assert type(error) is DeadLetterError
    [told] = moved
    assert (told.queue, told.asked, told.answer.next_offset) == (QUEUE, 7, to)


@pytest.mark.parametrize("code", [codes.PULL_NOT_FOUND, codes.PULL_OFFSET_MOVED])
def test_a_slave_that_is_behind_is_asked_again_later(code: int) -> None:
    error, moved, _ = send(code, (0, 5), to=5)
    assert (type(error), moved) == (DeadLetterError, [])


def test_what_has_expired_is_refused() -> None:
    error, moved, _ = send(codes.PULL_OFFSET_MOVED, (8, 9), to=8)
    assert (type(error), moved) == (DeadLetterRefused, [])


READ = Stored("orders", b"x", offset=7).encode()


def test_a_broker_that_would_drop_it_and_say_that_all_is_well_does_not_get_it() -> None:
    error, _, asked = send(codes.SUCCESS, (0, 9), READ, group=(0, b'{"retryQueueNums":0}'))
    assert type(error) is DeadLetterRefused
    assert "retryQueueNums" in str(error)
    assert codes.Request.CONSUMER_SEND_MSG_BACK not in [each.code for each in asked]


def test_nor_does_one_that_does_not_know_the_group() -> None:
    error, _, asked = send(codes.SUCCESS, (0, 9), READ, group=(codes.GROUP_NOT_EXIST, b""))
    assert type(error) is DeadLetterError
    assert codes.Request.CONSUMER_SEND_MSG_BACK not in [each.code for each in asked]


@pytest.mark.parametrize("code", [codes.NOT_SUPPORTED, codes.NO_PERMISSION])
def test_one_that_does_not_tell_does(code: int) -> None:
    error, _, asked = send(codes.SUCCESS, (0, 9), READ, group=(code, b""))
    assert error is None
    assert asked[-1].code == codes.Request.CONSUMER_SEND_MSG_BACK
