"""The promises on a RocketMQ whose servers go and come back: the only broker, the name server, one of two brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.servers.rocketmq import RocketMQServer
from tests.stories import stories_rocketmq

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.group.story import Story
    from tests.harness.servers.redis import RedisServer


@pytest.fixture(scope="module")
def own_rocketmq() -> Iterator[RocketMQServer]:
    """One whose servers are stopped."""
    with RocketMQServer() as server:
        yield server


@pytest.fixture(scope="module")
def two_brokers() -> Iterator[RocketMQServer]:
    with RocketMQServer(brokers=2) as server:
        yield server


@pytest.mark.parametrize(
    "story",
    [
        stories_rocketmq.rolling_restart_on_two_brokers,
        stories_rocketmq.one_of_two_brokers_restarts,
        stories_rocketmq.one_of_two_brokers_is_killed,
    ],
    ids=lambda story: story.name,
)
def test_nothing_is_lost_and_nothing_runs_twice(
    two_brokers: RocketMQServer, redis_server: RedisServer, tmp_path: Path, story: Story
) -> None:
    assert not story.faults(story.tell(two_brokers, redis_server.url, tmp_path, "rocketmq", 1))


@pytest.mark.parametrize(
    "story",
    [stories_rocketmq.broker_restarts, stories_rocketmq.broker_is_killed, stories_rocketmq.name_server_restarts],
    ids=lambda story: story.name,
)
def test_while_a_broker_or_a_name_server_is_away_nothing_runs_twice_and_then_the_group_goes_on(
    own_rocketmq: RocketMQServer, redis_server: RedisServer, tmp_path: Path, story: Story
) -> None:
    assert not story.faults(story.tell(own_rocketmq, redis_server.url, tmp_path, "rocketmq", 1))
