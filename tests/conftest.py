"""Servers for all tests, started once a run. A server that cannot start fails what asks for it; nothing skips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.oracles.java_group import JavaGroup
from tests.oracles.oracle import KAFKA_LIB, ROCKETMQ_LIB, Oracle
from tests.servers.kafka import KafkaServer
from tests.servers.redis import redis_server, redis_url
from tests.servers.rocketmq import RocketMQServer

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["kafka", "redis_server", "redis_url"]

# Time is asserted nowhere, so a machine that is busy makes no test fail. Each run draws the same examples, as it plays
# the same scenarios; `pytest tests/properties tests/unit --hypothesis-profile=free` draws others.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("holdfast", _CALM, derandomize=True)
settings.register_profile("free", _CALM)
settings.load_profile("holdfast")


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """A real broker."""
    with KafkaServer() as server:
        yield server


@pytest.fixture(scope="session")
def rocketmq() -> Iterator[RocketMQServer]:
    """A real RocketMQ: name server and one broker."""
    with RocketMQServer() as server:
        yield server


@pytest.fixture(scope="session")
def rocketmq_proxy() -> Iterator[RocketMQServer]:
    """The same with the proxy that clients by gRPC need."""
    with RocketMQServer(proxy=True) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_assignors() -> Iterator[Oracle]:
    """The assignors of the Java client of Kafka."""
    with Oracle("KafkaAssignors.java", KAFKA_LIB) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def rocketmq_strategies() -> Iterator[Oracle]:
    """The strategies of the Java client of RocketMQ."""
    with Oracle("RocketMQStrategies.java", ROCKETMQ_LIB) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def java_group() -> Iterator[JavaGroup]:
    """Consumers of the Java client of Kafka."""
    with Oracle("JavaGroup.java", KAFKA_LIB) as oracle:
        yield JavaGroup(oracle)
