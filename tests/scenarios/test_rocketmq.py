"""The promises on RocketMQ: the same stories as on Kafka, and those that only RocketMQ can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.scenarios import stories_crash, stories_graceful, stories_rocketmq

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.story import Story
    from tests.servers.redis import RedisServer
    from tests.servers.rocketmq import RocketMQServer

_GRACEFUL = [
    stories_graceful.join,
    stories_graceful.leave,
    stories_graceful.scale,
    stories_graceful.rolling_restart,
    stories_graceful.leave_as_another_joins,
    stories_graceful.partitions_are_added,
    stories_graceful.new_topic_matches,
    stories_rocketmq.several_topics,
]
_SLOW_HANDLERS = [
    stories_graceful.handler_longer_than_poll_interval,
    stories_graceful.handler_outlives_the_drain,
    stories_graceful.handler_outlives_the_drain_and_fails,
    stories_graceful.poison_in_rolling_restart,
]
_CRASHES = [
    stories_crash.kill,
    stories_crash.kill_under_backlog,
    stories_crash.kill_with_slow_handlers,
    stories_crash.stall,
    stories_crash.takeover_with_a_backlog,
    stories_crash.business_keys_through_a_crash,
]
_OUTAGES = [
    stories_crash.store_stalls,
    stories_crash.store_restarts,
    stories_crash.join_while_store_stalls,
    stories_rocketmq.broker_restarts,
    stories_rocketmq.broker_is_killed,
    stories_rocketmq.name_server_restarts,
]


def _told(rocketmq: RocketMQServer, redis_server: RedisServer, home: Path, story: Story) -> list[str]:
    return story.faults(story.tell(rocketmq, redis_server.url, home, "rocketmq", 1))


def _name(story: Story) -> str:
    return story.name


@pytest.mark.parametrize("story", _GRACEFUL, ids=_name)
def test_while_nobody_dies_nothing_is_lost_and_nothing_runs_twice(
    rocketmq: RocketMQServer, redis_server: RedisServer, tmp_path: Path, story: Story
) -> None:
    assert not _told(rocketmq, redis_server, tmp_path, story)


@pytest.mark.parametrize("story", _SLOW_HANDLERS, ids=_name)
def test_slow_and_failing_handlers_cost_no_queue_and_repeat_nothing(
    rocketmq: RocketMQServer, redis_server: RedisServer, tmp_path: Path, story: Story
) -> None:
    assert not _told(rocketmq, redis_server, tmp_path, story)


@pytest.mark.parametrize("story", _CRASHES, ids=_name)
def test_a_death_repeats_at_most_what_was_in_hand(
    rocketmq: RocketMQServer, redis_server: RedisServer, tmp_path: Path, story: Story
) -> None:
    assert not _told(rocketmq, redis_server, tmp_path, story)


@pytest.mark.parametrize("story", _OUTAGES, ids=_name)
def test_while_a_server_is_away_nothing_runs_twice_and_then_the_group_goes_on(
    rocketmq: RocketMQServer, redis_server: RedisServer, tmp_path: Path, story: Story
) -> None:
    assert not _told(rocketmq, redis_server, tmp_path, story)
