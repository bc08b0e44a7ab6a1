"""The promises on a RocketMQ whose masters or name servers are gone for good, or are read from their slaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.harness.servers.rocketmq import RocketMQServer
from tests.harness.servers.rocketmq_controller import ControllerRocketMQ
from tests.stories import stories_rocketmq_masters

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.harness.group.story import Story
    from tests.harness.servers.redis import RedisServer

pytestmark = pytest.mark.full


def _with_slaves() -> RocketMQServer:
    return RocketMQServer(brokers=2, settings={"slaveReadEnable": "true"})


def _told_of_name_servers() -> RocketMQServer:
    return RocketMQServer(settings={"updateNameServerAddrPeriod": "1000"})


@pytest.mark.parametrize(
    ("story", "servers"),
    [
        (stories_rocketmq_masters.a_master_is_away_and_its_slave_is_read, _with_slaves),
        (stories_rocketmq_masters.a_controller_makes_a_slave_the_master, ControllerRocketMQ),
        (stories_rocketmq_masters.name_servers_are_replaced, _told_of_name_servers),
    ],
    ids=lambda each: getattr(each, "name", ""),
)
def test_nothing_is_lost_and_nothing_runs_twice(
    servers: Callable[[], RocketMQServer], redis_server: RedisServer, tmp_path: Path, story: Story
) -> None:
    with servers() as server:
        assert not story.faults(story.tell(server, redis_server.url, tmp_path, "rocketmq", 1))
