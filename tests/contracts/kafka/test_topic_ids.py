"""The identity of topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.kafka.admin import Admin
from holdfast.adapters.kafka.topic_ids import TopicIds
from holdfast.errors import SourceUnavailable, UnknownTopic
from holdfast.timing import Deadline
from tests.harness.kafka_brokers import closed_port, mock_cluster

if TYPE_CHECKING:
    from tests.harness.servers.kafka import KafkaServer

__all__ = ["closed_port", "mock_cluster"]


def ids(address: str, *topics: str, within_s: float = 20) -> dict[str, str]:
    return TopicIds(Admin({"bootstrap.servers": address, "group.id": "asks"})).of(topics, Deadline(within_s))


def test_a_topic_that_was_deleted_and_made_again_has_another_id(kafka: KafkaServer) -> None:
    kafka.create_topic("ids-again", 1)
    first = ids(kafka.bootstrap, "ids-again")["ids-again"]
    assert first == ids(kafka.bootstrap, "ids-again")["ids-again"]
    kafka.delete_topic("ids-again")
    kafka.create_topic("ids-again", 1)
    second = ids(kafka.bootstrap, "ids-again")["ids-again"]
    assert first
    assert second
    assert first != second


def test_topics_are_told_apart(kafka: KafkaServer) -> None:
    kafka.create_topic("ids-a", 1)
    kafka.create_topic("ids-b", 1)
    found = ids(kafka.bootstrap, "ids-b", "ids-a")
    assert set(found) == {"ids-a", "ids-b"}
    assert len(set(found.values())) == 2


def test_a_missing_topic_is_an_error_and_not_an_empty_id(kafka: KafkaServer) -> None:
    with pytest.raises(UnknownTopic, match="ids-missing"):
        ids(kafka.bootstrap, "ids-missing")


def test_a_cluster_without_ids_gives_none_to_any_topic(mock_cluster: str) -> None:
    assert ids(mock_cluster, "orders", "payments") == {"orders": "", "payments": ""}


def test_no_answer_is_an_error_and_not_an_empty_id(closed_port: str) -> None:
    with pytest.raises(SourceUnavailable, match=closed_port):
        ids(closed_port, "orders", within_s=1)


def test_nothing_asked_is_nothing_answered_without_a_broker(closed_port: str) -> None:
    assert ids(closed_port) == {}
