"""Retry topics: what they are called, how their delays are written, and what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, RedisClaims, Retry
from holdfast.adapters.rocketmq import RocketMQSource
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.errors import SettingError
from holdfast.plugin.retrying.retry_topics import RetryTopics, steps_of
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Letters

if TYPE_CHECKING:
    from holdfast.records import Record


def app(source: Any = None, claims: Any = None, **given: Any) -> Holdfast:
    return Holdfast(source or MemoryPartitionedSource(MemoryBroker(orders=1), "billing"), claims=claims, **given)


def handle(record: Record) -> None: ...


@pytest.mark.parametrize(
    ("delay", "seconds", "name"),
    [
        ("10s", 10.0, "10s"),
        ("1min", 60.0, "1min"),
        ("5m", 300.0, "5min"),
        ("90s", 90.0, "90s"),
        ("120 s", 120.0, "2min"),
        ("1.5h", 5400.0, "90min"),
        ("2d", 172_800.0, "2d"),
        ("250ms", 0.25, "250ms"),
        (30, 30.0, "30s"),
        (0.5, 0.5, "500ms"),
        (timedelta(minutes=10), 600.0, "10min"),
    ],
)
def test_a_delay_is_written_as_people_do(delay: Any, seconds: float, name: str) -> None:
    retry = Retry(topics=[delay])
    [step] = steps_of(["orders"], retry, "billing")
    assert (step.delay_s, step.topic) == (seconds, f"orders.billing.retry.{name}")


@pytest.mark.parametrize("delay", ["soon", "10", "", "-1s", 0, -5, float("inf"), float("nan"), timedelta(0), "0s"])
def test_what_is_no_delay_is_refused(delay: Any) -> None:
    with pytest.raises(SettingError, match=r"^topics=.*name delays"):
        Retry(topics=[delay])


def test_one_text_is_no_list_and_equal_delays_are_one_topic() -> None:
    with pytest.raises(SettingError, match=r"name a list of delays: \['10s'\]"):
        Retry(topics="10s")
    with pytest.raises(SettingError, match="let them differ"):
        Retry(topics=["60s", "1min"])


def test_each_topic_leads_to_the_next_and_counts_what_was_tried() -> None:
    found = RetryTopics.of([(["orders", "refunds"], Retry(attempts=3, topics=["10s", "1min"]))], "billing", [])
    assert found.following == {
        "orders": "orders.billing.retry.10s",
        "orders.billing.retry.10s": "orders.billing.retry.1min",
        "refunds": "refunds.billing.retry.10s",
        "refunds.billing.retry.10s": "refunds.billing.retry.1min",
    }
    assert found.born_in("orders.billing.retry.1min") == "orders"
    assert [found.attempts_before(each) for each in ("orders", *list(found.steps)[:2])] == [0, 3, 6]


def test_the_application_may_name_them() -> None:
    retry = Retry(topics=["10s"], topic_name="again-{delay}-{topic}")
    assert [step.topic for step in steps_of(["orders"], retry, "billing")] == ["again-10s-orders"]


@pytest.mark.parametrize("group", ["billing group", "x" * 250])
def test_a_name_that_kafka_does_not_take_is_refused_when_the_handler_is_registered(group: str) -> None:
    source = MemoryPartitionedSource(MemoryBroker(orders=1), group)
    with pytest.raises(SettingError, match=r"^topic_name=.*give Retry\(topic_name"):
        app(source).handler("orders", retry=Retry(topics=["10s"]))(handle)


def test_a_pattern_has_none() -> None:
    with pytest.raises(SettingError, match="retry topics go with names"):
        app().handler("^orders.*", retry=Retry(topics=["10s"]))(handle)


@pytest.mark.parametrize(
    "others",
    [
        {"topics": "again", "name": "of the same name"},
        {"topics": "bills", "name": "letters there", "dead_letter": "again"},
        {"topics": "bills", "name": "retries there", "retry": Retry(topics=["1min"], topic_name="again")},
    ],
)
def test_a_name_that_is_taken_is_refused_before_the_start(others: dict[str, Any]) -> None:
    made = app()
    made.handler("orders", retry=Retry(topics=["10s"], topic_name="again"))(handle)
    made.handler(**others)(lambda record: None)
    with pytest.raises(SettingError, match=r"^topic_name='again'"):
        made.run()


def test_a_name_that_is_the_same_for_two_delays_is_refused() -> None:
    made = app()
    made.handler("orders", retry=Retry(topics=["10s", "1min"], topic_name="{topic}.again"))(handle)
    with pytest.raises(SettingError, match=r"^topic_name='orders\.again'"):
        made.run()


def test_letters_of_the_applications_own_are_refused_beside_them() -> None:
    broker = MemoryBroker(orders=1)
    with pytest.raises(SettingError, match=r"leave dead_letters=\.\.\. out"):
        app(dead_letters=Letters(broker.changed)).handler("orders", retry=Retry(topics=["10s"]))(handle)


def test_rocketmq_has_delays_of_its_own() -> None:
    store = RedisClaims.from_url("redis://127.0.0.1:1/0")
    source = RocketMQSource(namesrv="127.0.0.1:1", group="billing", coordinator=RedisCoordinator(store))
    with pytest.raises(SettingError, match=r'RocketMQSource\(retry="broker"\)'):
        app(source, store).handler("orders", retry=Retry(topics=["10s"]))(handle)
    store.close()
