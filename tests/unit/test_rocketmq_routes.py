"""What is known of routes while topics and brokers come, move and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from holdfast.adapters.rocketmq.remoting.answers import Answer, NoAnswer
from holdfast.adapters.rocketmq.remoting.routes import Routes
from holdfast.errors import SourceUnavailable, UnknownTopic
from holdfast.timing import Deadline
from tests.harness.clocks import HandClock
from tests.unit.rocketmq_fake import route_body

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.adapters.rocketmq.remoting.in_flight import Request
    from holdfast.adapters.rocketmq.remoting.routes import Route


class NameServers:
    """What they say: topic to its broker's name and address. One whose answer is late is answered by `answer`."""

    def __init__(self) -> None:
        self.topics: dict[str, tuple[str, str]] = {}
        self.late: set[str] = set()
        self.asked: list[str] = []
        self._waits: list[Callable[[], None]] = []

    def begin_name_servers(
        self, request: Request, read: Callable[[Answer], Route], on_answer: Callable[[Any], None]
    ) -> None:
        topic = request.fields["topic"]
        self.asked.append(topic)

        def answer() -> None:
            if topic not in self.topics:
                on_answer(UnknownTopic(topic))
                return
            name, address = self.topics[topic]
            body = route_body({name: (1, 1)}, {name: {0: address}})
            on_answer(read(Answer("", "", 0, None, cast("Mapping[str, str]", {}), body)))

        if topic in self.late:
            self._waits.append(answer)
        else:
            answer()

    def keep(self, addresses: set[str]) -> None:
        pass


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def servers() -> NameServers:
    return NameServers()


@pytest.fixture
def routes(servers: NameServers, clock: HandClock) -> Routes:
    return Routes(cast("Any", servers), 30.0, clock)


def ask(routes: Routes, *topics: str, within_s: float = 1.0) -> dict[str, Any]:
    return routes.ask(topics, Deadline(within_s))


def test_a_broker_that_has_moved_is_where_the_newest_route_says(servers: NameServers, routes: Routes) -> None:
    servers.topics = {"orders": ("a", "10.0.0.1:1"), "deleted": ("a", "10.0.0.1:1")}
    ask(routes, "orders", "deleted")
    servers.topics = {"orders": ("a", "10.0.0.2:1")}
    ask(routes, "orders", "deleted")
    assert routes.brokers() == {"a": {0: "10.0.0.2:1"}} == {"a": routes.addresses("a")}


def test_a_topic_that_was_deleted_is_forgotten_with_brokers_that_only_it_named(
    servers: NameServers, routes: Routes, clock: HandClock
) -> None:
    servers.topics = {"orders": ("a", "10.0.0.1:1"), "deleted": ("b", "10.0.0.9:1")}
    ask(routes, "orders", "deleted")
    del servers.topics["deleted"]
    for _ in range(11):
        assert set(routes.brokers()) == {"a", "b"}
        ask(routes, "orders", "deleted")
        clock.sleep(60.0)
    ask(routes, "orders")
    assert set(routes.brokers()) == {"a"}


def test_name_servers_that_were_away_for_long_cost_no_broker(
    servers: NameServers, routes: Routes, clock: HandClock
) -> None:
    servers.topics = {"orders": ("a", "10.0.0.1:1"), "refunds": ("b", "10.0.0.2:1")}
    ask(routes, "orders", "refunds")
    clock.sleep(36_000.0)
    ask(routes, "orders")
    assert routes.addresses("b") == {0: "10.0.0.2:1"}
    assert set(routes.brokers()) == {"a", "b"}


def test_many_topics_are_asked_for_at_once_and_one_without_an_answer_hides_no_other(
    servers: NameServers, routes: Routes
) -> None:
    servers.topics = {f"orders-{number}": ("a", "10.0.0.1:1") for number in range(30)}
    servers.late = {"orders-7", "unknown"}
    found = ask(routes, *servers.topics, "unknown-too", "unknown", within_s=0.05)
    assert servers.asked == [*servers.topics, "unknown-too", "unknown"]
    without = {topic for topic, route in found.items() if isinstance(route, SourceUnavailable)}
    assert without == {"orders-7", "unknown"}
    assert isinstance(found["orders-7"], NoAnswer)
    assert isinstance(found["unknown-too"], UnknownTopic)
    assert {route.topic for route in found.values() if not isinstance(route, Exception)} == set(
        servers.topics
    ) - without
