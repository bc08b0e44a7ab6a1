"""The promises on RocketMQ: the same stories as on Kafka, and those that only RocketMQ can tell."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.stories import stories_crash, stories_graceful, stories_rocketmq

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.group.story import Story
    from tests.harness.servers.redis import RedisServer
    from tests.harness.servers.rocketmq import RocketMQServer

#: Told on Kafka in each run too, or by the engine's tests.
_also = partial(pytest.param, marks=pytest.mark.full)
_GRACEFUL = [
    _also(stories_graceful.scale),
    stories_graceful.rolling_restart,
    _also(stories_graceful.partitions_are_added),
    _also(stories_graceful.new_topic_matches),
    _also(stories_rocketmq.several_topics),
]
_SLOW_HANDLERS = [
    _also(stories_graceful.handler_longer_than_poll_interval),
    stories_graceful.handler_outlives_the_drain,
    _also(stories_graceful.poison_in_rolling_restart),
]
_CRASHES = [
    stories_crash.kill,
    stories_crash.stall,
    _also(stories_crash.takeover_with_a_backlog),
    _also(stories_crash.business_keys_through_a_crash),
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


@pytest.mark.full
def test_while_the_store_is_away_nothing_runs_twice_and_then_the_group_goes_on(
    rocketmq: RocketMQServer, redis_server: RedisServer, tmp_path: Path
) -> None:
    assert not _told(rocketmq, redis_server, tmp_path, stories_crash.store_stalls)
