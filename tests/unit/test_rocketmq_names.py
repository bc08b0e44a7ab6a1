"""What a RocketMQSource is called, and what it subscribes to, without a server."""

from __future__ import annotations

import pytest

from holdfast.adapters.rocketmq.names import (
    client_id,
    is_ours,
    matching,
    position_name,
    subscription_text,
    tags_of,
)
from holdfast.errors import SettingError
from holdfast.records import Partition


def test_queues_of_one_number_on_two_brokers_have_two_positions() -> None:
    names = {position_name("g", Partition("orders", 3, broker)) for broker in ("a", "b")}
    assert len(names) == 2


def test_each_start_has_a_client_id_of_its_own_that_is_recognised() -> None:
    first, second = client_id("shop"), client_id("shop")
    assert first != second
    assert is_ours(first)
    assert "@shop#" in first
    assert not is_ours("10.0.0.7@4711#123")


@pytest.mark.parametrize(
    ("expression", "tags"),
    [("*", None), ("a", {"a"}), ("b||a", {"a", "b"}), (" a ||  b ", {"a", "b"})],
)
def test_tags_of_an_expression(expression: str, tags: set[str] | None) -> None:
    assert tags_of(expression) == tags


@pytest.mark.parametrize("expression", ["", "a||", "a||*", "a b", "||"])
def test_what_is_no_expression_of_tags_is_refused(expression: str) -> None:
    with pytest.raises(SettingError, match="subscriptions"):
        tags_of(expression)


def test_who_subscribes_alike_says_so_in_the_same_words() -> None:
    assert subscription_text(["b", "a"], {"a": "y||x"}) == subscription_text(["a", "b", "a"], {"a": "x || y", "b": "*"})
    assert subscription_text(["a"], {}) != subscription_text(["a"], {"a": "x"})


def test_patterns_mean_topics_of_users_alone() -> None:
    topics = [
        "orders.eu",
        "orders.us",
        "%RETRY%orders",
        "%DLQ%orders",
        "SCHEDULE_TOPIC_XXXX",
        "rmq_sys_orders",
        "TBW102",
    ]
    assert matching(topics, ["^orders"]) == {"orders.eu", "orders.us"}
    assert matching(topics, ["^.*"]) == {"orders.eu", "orders.us"}
