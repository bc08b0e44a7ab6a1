"""How long the broker waits for a member of the consumer protocol, asked of a real one; and what follows from it."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]  # not in its __all__

from holdfast import Holdfast, MemoryClaims
from holdfast.adapters.kafka import KafkaSource
from tests.harness.kafka_brokers import closed_port, mock_cluster
from tests.harness.waiting import until

if TYPE_CHECKING:
    from holdfast.dedup.memory_session import MemorySession
    from tests.harness.servers.kafka import KafkaServer

__all__ = ["closed_port", "mock_cluster"]


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


def source(bootstrap: str, group: str, **conf: Any) -> KafkaSource:
    how = {"assignment": conf.pop("assignment", "sticky")}
    return KafkaSource({"bootstrap.servers": bootstrap, "group.id": group, **conf}, **how)


class Leases(MemoryClaims):
    """What lease each session was begun with."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[float] = []

    def begin(self, lease_s: float = 10.0) -> MemorySession:
        self.begun.append(lease_s)
        return super().begin(lease_s)


def test_the_groups_own_session_is_told_or_else_the_brokers(kafka: KafkaServer, group: str) -> None:
    assert source(kafka.bootstrap, group).session_timeout_s == 6.0
    kafka.set_session(group, 3_000)
    assert source(kafka.bootstrap, group).session_timeout_s == 3.0


def test_the_lease_of_a_member_is_no_longer_than_that(kafka: KafkaServer, group: str) -> None:
    kafka.create_topic(group, 1)
    kafka.set_session(group, 3_000)
    store = Leases()
    app = Holdfast(source(kafka.bootstrap, group), claims=store)
    app.handler(group)(lambda _: None)
    app.stop()
    app.run()
    assert store.begun == [3.0]


def test_who_may_not_ask_goes_without(kafka: KafkaServer, group: str) -> None:
    kafka.forbid("group", group, AclOperation.DESCRIBE_CONFIGS)
    until(lambda: source(kafka.bootstrap, group).session_timeout_s is None)  # brokers hear of the rule a moment later


def test_where_the_client_decides_the_broker_is_not_asked(closed_port: str, group: str) -> None:
    client = {"assignment": "keep", "partition.assignment.strategy": "cooperative-sticky"}
    assert source(closed_port, group, **client).session_timeout_s is None
    assert source(closed_port, group, **client, **{"session.timeout.ms": 6_000}).session_timeout_s == 6.0


def test_brokers_that_leave_the_question_unanswered_are_not_asked(
    mock_cluster: str, group: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "holdfast")
    assert source(mock_cluster, group).session_timeout_s is None
    of_this_group = [told for told in caplog.messages if group in told]  # others' clients may still log
    assert of_this_group == []
