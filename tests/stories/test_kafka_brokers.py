"""The promises on three Kafka brokers of which one is killed, stopped or loses its partitions while the group works."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.group.config import KAFKA
from tests.harness.servers.kafka import KafkaServer
from tests.stories import stories_brokers as stories

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.harness.group.config import Protocol
    from tests.harness.group.story import Story
    from tests.harness.servers.redis import RedisServer

pytestmark = pytest.mark.full

_SEED = 1


@pytest.fixture(scope="module")
def three_brokers() -> Iterator[KafkaServer]:
    with KafkaServer(brokers=3) as server:
        yield server


@pytest.mark.parametrize("protocol", KAFKA)
@pytest.mark.parametrize(
    "story",
    [stories.coordinator_is_killed, stories.rolling_restart_of_brokers],
    ids=lambda story: story.name,
)
def test_where_the_broker_decides_nothing_is_lost_and_nothing_runs_twice(
    three_brokers: KafkaServer, redis_server: RedisServer, tmp_path: Path, story: Story, protocol: Protocol
) -> None:
    assert not story.faults(story.tell(three_brokers, redis_server.url, tmp_path, protocol, _SEED))


@pytest.mark.parametrize(
    "story",
    [
        stories.coordinator_is_killed_as_a_member_leaves,
        stories.leader_is_killed,
        stories.partitions_are_reassigned,
        stories.too_few_replicas_for_dead_letters,
    ],
    ids=lambda story: story.name,
)
def test_nothing_is_lost_and_nothing_runs_twice(
    three_brokers: KafkaServer, redis_server: RedisServer, tmp_path: Path, story: Story, protocol: Protocol
) -> None:
    assert not story.faults(story.tell(three_brokers, redis_server.url, tmp_path, protocol, _SEED))
