"""Which queues a source reads, and what it says where it cannot find out."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.adapters.rocketmq import RocketMQSource
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.adapters.rocketmq.remoting.routes import QueueData, Route
from holdfast.adapters.rocketmq.topics import Topics
from holdfast.dedup.memory_coordinator import MemoryCoordinator
from holdfast.errors import SettingError, SourceError, SourceUnavailable, UnknownTopic
from holdfast.timing import Deadline
from tests.unit.test_rocketmq_connection import unused_address

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_a_name_server_that_is_not_there_is_told_by_the_topic_that_somebody_has_named() -> None:
    address = unused_address()
    with RemotingClient(address) as client:
        topics = Topics(client, "billing", {})
        topics.choose(["orders"])
        with pytest.raises(SourceUnavailable, match=rf"the route of orders.*{address}") as caught:
            topics.look(Deadline(5.0), first=True)
    assert "%RETRY%" not in str(caught.value)


class _NameServer:
    """What one says of routes; a topic to its brokers."""

    def __init__(self) -> None:
        self.topics: dict[str, list[str]] = {}
        #: Of these it does not answer.
        self.silent: set[str] = set()

    def routes_of(self, topics: Sequence[str], deadline: Deadline) -> dict[str, Route | SourceError]:
        return {topic: self._route(topic) for topic in topics}

    def _route(self, topic: str) -> Route | SourceError:
        if topic in self.silent:
            return SourceUnavailable(topic)
        if topic not in self.topics:
            return UnknownTopic(topic)
        names = self.topics[topic]
        return Route(
            topic=topic,
            queue_datas=tuple(QueueData(name, 1, 1, 6) for name in names),
            brokers={name: {0: f"{name}:10911"} for name in names},
        )

    def ask_name_server(self, *_: object) -> object:
        return SimpleNamespace(body=json.dumps({"topicList": list(self.topics)}).encode())


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Any:
    made = SimpleNamespace(at=1_000.0)
    made.now = lambda: made.at
    monkeypatch.setattr("holdfast.adapters.rocketmq.topics.SYSTEM_CLOCK", made)
    return made


def _looking(server: _NameServer, *topics: str) -> Topics:
    made = Topics(cast("RemotingClient", server), "billing", {})
    made.choose(topics)
    return made


@pytest.mark.parametrize("named", ["^orders-", "orders-1"], ids=["a pattern's", "one that is named"])
def test_a_topic_that_was_deleted_is_given_up_once_no_name_server_has_known_it_for_long(named: str, clock: Any) -> None:
    server = _NameServer()
    server.topics = {"orders-1": ["broker-a"], "%RETRY%billing": ["broker-a"]}
    topics = _looking(server, named)
    assert len(topics.look(Deadline(1.0), first=True)) == 2
    del server.topics["orders-1"]
    topics.look(Deadline(1.0))
    clock.at += 590
    assert len(topics.look(Deadline(1.0))) == 2
    clock.at += 20
    assert [queue.topic for queue in topics.look(Deadline(1.0))] == ["%RETRY%billing"]
    assert [queue.topic for queue in topics.gone] == ["orders-1"]


def test_name_servers_that_were_away_for_long_and_know_one_broker_at_first_cost_no_queue(clock: Any) -> None:
    server = _NameServer()
    server.topics = {"orders": ["broker-a", "broker-b"]}
    topics = _looking(server, "orders")
    known = topics.look(Deadline(1.0), first=True)
    clock.at += 3600  # nobody answers: `look` raises, and brokers serve on
    server.topics = {"orders": ["broker-a"]}
    assert topics.look(Deadline(1.0)) == known
    clock.at += 30
    server.topics = {"orders": ["broker-a", "broker-b"]}
    assert topics.look(Deadline(1.0)) == known
    server.topics = {"orders": ["broker-a"]}
    topics.look(Deadline(1.0))
    clock.at += 601
    assert [queue.broker for queue in topics.look(Deadline(1.0))] == ["broker-a"]


def test_all_names_that_do_not_exist_are_told_together() -> None:
    server = _NameServer()
    server.topics = {"orders": ["broker-a"]}
    topics = _looking(server, "orders", "refunds", "returns")
    with pytest.raises(UnknownTopic, match=r"^refunds; returns$"):
        topics.look(Deadline(1.0), first=True)


def test_a_topic_of_which_nothing_is_known_now_hides_no_new_queue_of_another(clock: Any) -> None:
    server = _NameServer()
    server.topics = {"orders": ["broker-a"], "refunds": ["broker-a"]}
    topics = _looking(server, "orders", "refunds")
    topics.look(Deadline(1.0), first=True)
    server.silent = {"orders"}
    server.topics["refunds"] = ["broker-a", "broker-b"]
    with pytest.raises(SourceUnavailable, match="orders"):
        topics.look(Deadline(1.0))
    assert [(queue.topic, queue.broker) for queue in topics.queues] == [
        ("orders", "broker-a"),
        ("refunds", "broker-a"),
        ("refunds", "broker-b"),
    ]


@pytest.mark.parametrize("named", ["orders", "^ord"])
@pytest.mark.parametrize("between", ["_", "+"])
def test_what_was_given_out_one_by_one_and_not_acknowledged_is_read(named: str, between: str, clock: Any) -> None:
    server = _NameServer()
    left = f"%RETRY%billing{between}orders"
    server.topics = {"orders": ["broker-a"], left: ["broker-a"], f"%RETRY%billing{between}refunds": ["broker-a"]}
    topics = _looking(server, named)
    assert {queue.topic for queue in topics.look(Deadline(1.0), first=True)} == {"orders", left}
    assert (topics.brings_again(left), topics.born_in(left)) == (True, "orders")
    assert not topics.brings_again("orders")
    assert left not in {each.topic for each in topics.subscriptions}  # of the group's members some may not know it


def test_a_source_says_in_one_sentence_that_nothing_listens_at_its_name_servers() -> None:
    """Before dead letters are looked at: they are not to blame."""
    address = unused_address()
    source = RocketMQSource(address, "billing", coordinator=MemoryCoordinator(), consume_from_where="earliest")
    with pytest.raises(SourceUnavailable) as caught:
        source.reach(["orders"], Deadline(0.5))
    said = f"{address} refuses connections: nothing listens there: check the address, and that the server runs"
    assert str(caught.value) == said
    source.close(Deadline(1.0))


@pytest.mark.parametrize("topics", [["orders"], ["orders", "^refund-"]])
def test_tags_of_a_topic_that_no_handler_has_are_refused(topics: list[str]) -> None:
    """A name that was misspelled would let all messages of the right one through."""
    made = Topics(cast("RemotingClient", _NameServer()), "billing", {"order": "paid"})
    with pytest.raises(SettingError, match=r"subscriptions='order'.*no handler has this topic"):
        made.choose(topics)


def test_a_pattern_has_the_topics_that_it_means() -> None:
    made = Topics(cast("RemotingClient", _NameServer()), "billing", {"orders-1": "paid"})
    made.choose(["^orders-"])
    assert made.subscription("orders-1").expression == "paid"
