"""Servers for all tests, one set a run. A server that cannot start fails what asks for it; nothing skips."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

import pytest
from hypothesis import HealthCheck, settings

from tests import tiers
from tests.golden.java_group import JavaGroup
from tests.golden.oracle import KAFKA_LIB, ROCKETMQ_LIB, Oracle
from tests.golden.recorded import Mode, Recorded, plan_of
from tests.harness.servers.redis import redis_server, redis_url
from tests.harness.servers.redis_cluster import redis_cluster, shared_redis_cluster
from tests.harness.servers.rocketmq import RocketMQServer
from tests.harness.servers.shared import Landlord, kafka_of, rocketmq_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from tests.harness.servers.kafka import KafkaServer

__all__ = ["kafka", "redis_cluster", "redis_server", "redis_url", "shared_redis_cluster"]

# Time is asserted nowhere, so a machine that is busy makes no test fail. Each run draws the same examples, as it plays
# the same stories; with `--hypothesis-profile=free`, as in `make test-all`, it draws others, and more of them.
_CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("holdfast", _CALM, derandomize=True, max_examples=_CALM.max_examples // 3)
settings.register_profile("free", _CALM)
settings.load_profile("holdfast")

_LANDLORD = pytest.StashKey[Landlord]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--seed", type=int, default=0, help="which protocol each story is played on where it is played once"
    )
    parser.addoption("--oracles", choices=get_args(Mode), default="recorded", help="whom the Java classes' tests ask")


@pytest.hookimpl(tryfirst=True)  # before `-m` looks at the marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    tiers.mark(items, config.getoption("--seed"))
    tiers.order(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    return tiers.scheduler(config, log)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """pytest-xdist starts a test process: it is told who has the servers."""
    stash = node.config.stash
    if _LANDLORD not in stash:
        stash[_LANDLORD] = Landlord()
    node.workerinput["landlord"] = stash[_LANDLORD].address


def pytest_unconfigure(config: pytest.Config) -> None:
    if _LANDLORD in config.stash:
        config.stash[_LANDLORD].close()


@pytest.fixture(scope="session")
def landlord(request: pytest.FixtureRequest) -> str | None:
    """Where the run's servers are asked for; None = this process is the only one."""
    told: str | None = getattr(request.config, "workerinput", {}).get("landlord")
    return told


@pytest.fixture(scope="session")
def kafka(landlord: str | None) -> Iterator[KafkaServer]:
    """A real broker, the only one of the run: nobody stops it."""
    with kafka_of(landlord) as server:
        yield server


@pytest.fixture(scope="session")
def rocketmq(landlord: str | None) -> Iterator[RocketMQServer]:
    """A real RocketMQ, the only one of the run: name server and one broker. Nobody stops one of them."""
    with rocketmq_of(landlord) as server:
        yield server


@pytest.fixture(scope="session")
def rocketmq_proxy() -> Iterator[RocketMQServer]:
    """The same with the proxy that clients by gRPC need."""
    with RocketMQServer(proxy=True) as server:
        yield server


@pytest.fixture(scope="session")
def kafka_assignors(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """The assignors of the Java client of Kafka."""
    with Recorded("KafkaAssignors.java", KAFKA_LIB, request.config.getoption("--oracles"), plan_of) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def rocketmq_strategies(request: pytest.FixtureRequest) -> Iterator[Oracle]:
    """The strategies of the Java client of RocketMQ."""
    with Recorded("RocketMQStrategies.java", ROCKETMQ_LIB, request.config.getoption("--oracles")) as oracle:
        yield oracle


@pytest.fixture(scope="session")
def java_group() -> Iterator[JavaGroup]:
    """Consumers of the Java client of Kafka."""
    with Oracle("JavaGroup.java", KAFKA_LIB) as oracle:
        yield JavaGroup(oracle)
