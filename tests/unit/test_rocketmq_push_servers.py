"""What a PushSource asks brokers before its client starts, and where the group begins."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.push.servers import Servers
from holdfast.adapters.rocketmq.remoting import codes
from holdfast.errors import SourceError, SourceUnavailable, SubscriptionDiffers, UnknownGroup
from holdfast.timing import Deadline
from tests.unit.rocketmq_fake import FakeServer, Peer, route_body

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.adapters.rocketmq.remoting.frame import Command

LOG = ("10", "100")


@dataclass
class Broker:
    """Its log is from 10 to 100 in each queue."""

    offsets: dict[int, int] = field(default_factory=dict)
    group: tuple[int, bytes] = (0, b'{"retryQueueNums":1,"retryMaxTimes":16}')
    connected: tuple[int, Mapping[str, Any]] = (codes.CONSUMER_NOT_ONLINE, {})
    asked: list[int] = field(default_factory=list)

    def __call__(self, command: Command, peer: Peer) -> None:
        self.asked.append(command.code)
        queue = int(command.fields.get("queueId", -1))
        if command.code == codes.Request.GET_SUBSCRIPTION_GROUP:
            peer.answer(command, body=self.group[1], code=self.group[0])
        elif command.code == codes.Request.GET_CONSUMER_CONNECTIONS:
            peer.answer(command, body=json.dumps(self.connected[1]).encode(), code=self.connected[0])
        elif command.code == codes.Request.QUERY_CONSUMER_OFFSET:
            known = self.offsets.get(queue)
            peer.answer(command, {} if known is None else {"offset": str(known)}, code=0 if known is not None else 22)
        elif command.code == codes.Request.UPDATE_CONSUMER_OFFSET:
            self.offsets[queue] = int(command.fields["commitOffset"])
            peer.answer(command)
        else:
            peer.answer(command, {"offset": LOG[command.code == codes.Request.GET_MAX_OFFSET]})


def begin(*brokers: Broker, tags: str = "*", latest: bool = False) -> None:
    """As a PushSource does, in the topic "orders" with two queues on each."""
    servers = [FakeServer(each) for each in brokers]
    members = {f"broker-{number}": {0: each.address} for number, each in enumerate(servers)}
    route = route_body(dict.fromkeys(members, (2, 2)), members)
    with FakeServer(lambda command, peer: peer.answer(command, body=route)) as names:
        asked = Servers(names.address, "billing", None)
        try:
            asked.check({"orders": tags}, Deadline(30.0))
            asked.commit_first_offsets(Deadline(30.0), latest=latest)
        finally:
            asked.close()
            for each in servers:
                each.close()


def test_latest_is_meant_for_a_topic_that_the_group_has_never_read() -> None:
    new = Broker()
    begin(new, latest=True)
    assert new.offsets == {0: 100, 1: 100}


def test_what_a_known_group_missed_on_a_broker_that_is_new_is_read() -> None:
    known, new = Broker(offsets={0: 50, 1: 60}), Broker()
    begin(known, new, latest=True)
    assert (known.offsets, new.offsets) == ({0: 50, 1: 60}, {0: 10, 1: 10})


def test_a_group_that_a_broker_does_not_have_and_does_not_make_is_refused_and_not_made() -> None:
    broker = Broker(group=(codes.GROUP_NOT_EXIST, b""))
    with pytest.raises(UnknownGroup, match=r"mqadmin updateSubGroup .* -g billing"):
        begin(broker)
    assert codes.Request.CREATE_SUBSCRIPTION_GROUP not in broker.asked
    assert broker.offsets == {}


def test_a_broker_that_drops_what_is_given_back_is_refused() -> None:
    with pytest.raises(SourceError, match="retryQueueNums=0"):
        begin(Broker(group=(0, b'{"retryQueueNums":0}')))


def online(expression: str, kind: str = "TAG") -> tuple[int, dict[str, Any]]:
    member = {"clientId": "10.0.0.9@java", "clientAddr": "10.0.0.9:1", "language": "JAVA", "version": 453}
    subscriptions = {
        "orders": {"topic": "orders", "subString": expression, "expressionType": kind},
        "%RETRY%billing": {"topic": "%RETRY%billing", "subString": "*"},
    }
    return 0, {"connectionSet": [member], "subscriptionTable": subscriptions}


@pytest.mark.parametrize(
    ("theirs", "ours"), [("Paid", "Paid || Refunded"), ("*", "Paid"), ("Paid", "*"), ("amount > 3", "Paid")]
)
def test_members_that_subscribe_otherwise_are_told_by_their_broker_whatever_client_they_are(
    theirs: str, ours: str
) -> None:
    broker = Broker(connected=online(theirs))
    with pytest.raises(SubscriptionDiffers, match=r"10\.0\.0\.9@java"):
        begin(broker, tags=ours)
    assert broker.offsets == {}


def test_members_that_mean_the_same_are_welcome() -> None:
    begin(Broker(connected=online("b||a")), tags="a || b")


def test_who_may_not_ask_for_the_members_goes_on() -> None:
    begin(Broker(connected=(codes.NO_PERMISSION, {})))


def test_a_member_that_one_broker_lists_is_in_the_group_also_while_another_is_away() -> None:
    away, there = FakeServer(Broker()), FakeServer(Broker(connected=online("*")))
    members = {"broker-0": {0: away.address}, "broker-1": {0: there.address}}
    route = route_body(dict.fromkeys(members, (2, 2)), members)
    with there, FakeServer(lambda command, peer: peer.answer(command, body=route)) as names:
        asked = Servers(names.address, "billing", None)
        asked.check({"orders": "*"}, Deadline(30.0))
        away.close()
        assert asked.lists("java", Deadline(30.0))
        with pytest.raises(SourceUnavailable):
            asked.lists("another", Deadline(30.0))
        asked.close()


def test_what_is_missing_is_waited_for_while_name_servers_know_no_broker_yet() -> None:
    known: list[str] = []

    def just_started(command: Command, peer: Peer) -> None:
        if command.code == codes.Request.GET_BROKER_CLUSTER_INFO:
            peer.answer(command, body=b'{"brokerAddrTable":{},"clusterAddrTable":{}}')
            known.append("broker-0")
        elif known:
            peer.answer(command, body=route_body({"broker-0": (2, 2)}, {"broker-0": {0: "127.0.0.1:1"}}))
        else:
            peer.answer(command, code=codes.TOPIC_NOT_EXIST)

    with FakeServer(just_started) as names:
        asked = Servers(names.address, "billing", None)
        asked.reach(["orders"], Deadline(30.0))
        asked.close()
    assert known == ["broker-0"]
