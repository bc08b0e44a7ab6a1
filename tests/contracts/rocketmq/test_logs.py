"""A queue whose log is another one than before, on real brokers: a topic made again, a store that was emptied."""

from __future__ import annotations

import shutil
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import redis

from holdfast.plugin.events import LogWentBack
from holdfast.timing import Deadline
from tests.harness.rocketmq_field import PATIENCE_S, Field
from tests.harness.servers.rocketmq import RocketMQServer

if TYPE_CHECKING:
    from collections.abc import Iterator

DEDUPS = pytest.mark.parametrize("dedup", ["message", "position"])


def make_again(field: Field, queues: int) -> None:
    field.admin.delete_topic(field.topic, Deadline(PATIENCE_S))
    field._sent.clear()
    field.create(field.topic, queues)


def forget_notes(redis_url: str) -> None:
    """As where members of an older version have read until now."""
    with redis.Redis.from_url(redis_url) as client:
        for name in client.scan_iter(b"*:gn:*"):
            client.delete(name)


class TestATopicThatWasMadeAgain:
    @DEDUPS
    def test_is_read_whole_though_its_log_is_longer_than_what_was_read(
        self, rocketmq: RocketMQServer, redis_url: str, dedup: Any
    ) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            old = field.fill("old", 30)
            app = field.app(dedup=dedup)
            field.wait_handled(*old)
            field.wait_committed()
            app.stop()
            make_again(field, 2)
            new = field.fill("new", 50)
            app = field.app(dedup=dedup)
            field.wait_handled(*new)
            field.wait_committed()
            assert len(app.told(LogWentBack)) == 2
        assert Counter(field.values()) == Counter([*old, *new])

    @DEDUPS
    def test_is_read_whole_under_a_member_that_runs(self, rocketmq: RocketMQServer, redis_url: str, dedup: Any) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            old = field.fill("old", 30)
            app = field.app(dedup=dedup)
            field.wait_handled(*old)
            field.wait_committed()
            make_again(field, 2)
            new = field.fill("new", 50)
            field.wait_handled(*new)
            field.wait_committed()
            assert app.told(LogWentBack)
        assert set(field.values()) == {*old, *new}

    def test_is_read_whole_where_nothing_was_noted_of_the_old_one(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            old = field.fill("old", 30)
            app = field.app()
            field.wait_committed()
            app.stop()
            forget_notes(redis_url)
            make_again(field, 1)
            new = field.fill("new", 50)
            field.app()
            field.wait_handled(*new)
            field.wait_committed()
        assert Counter(field.values()) == Counter([*old, *new])


class TestTheSameLog:
    def test_members_of_an_older_version_have_noted_nothing_and_nothing_runs_again(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            old = field.fill("old", 30)
            app = field.app(dedup="position")
            field.wait_handled(*old)
            field.wait_committed()
            app.stop()
            forget_notes(redis_url)
            new = field.fill("new", 5)
            app = field.app(dedup="position")
            field.wait_handled(*new)
            field.wait_committed()
            assert not app.told(LogWentBack)
        assert Counter(field.values()) == Counter([*old, *new])

    def test_a_group_that_begins_at_the_end_does_not_read_what_lies_before(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.fill("old", 30)
            app = field.app(consume_from_where="latest")
            field.wait(lambda: len(app.owns) == 1)
            new = field.fill("new", 5)
            field.wait_handled(*new)
            field.wait_committed()
        assert Counter(field.values()) == Counter(new)


@pytest.fixture(scope="module")
def alone() -> Iterator[RocketMQServer]:
    """A server that is stopped, killed and emptied."""
    with RocketMQServer() as server:
        yield server


@pytest.mark.full  # servers of their own
class TestABroker:
    def test_that_is_killed_and_comes_back_has_the_same_log(self, alone: RocketMQServer, redis_url: str) -> None:
        """It has forgotten the group's offsets of the last seconds, perhaps all of them."""
        with Field(alone, redis_url, queues=2) as field:
            old = field.fill("old", 30)
            app = field.app("a", dedup="position")
            field.wait_handled(*old)
            field.wait_committed()
            app.stop()
            alone.kill_broker()
            alone.start_broker()
            app = field.app("b", dedup="position")
            new = field.fill("new", 5)
            field.wait_handled(*new)
            field.wait_committed()
            alone.stop_broker()
            alone.start_broker()
            more = field.fill("more", 5)
            field.wait_handled(*more)
            field.wait_committed()
            assert not app.told(LogWentBack)
        assert Counter(field.values()) == Counter([*old, *new, *more])

    def test_whose_store_was_emptied_is_read_whole(self, alone: RocketMQServer, redis_url: str) -> None:
        with Field(alone, redis_url, queues=2) as field:
            old = field.fill("old", 30)
            app = field.app(dedup="position")
            field.wait_handled(*old)
            field.wait_committed()
            app.stop()
            alone.stop_broker()
            shutil.rmtree(alone._home / "broker-a")
            alone.start_broker()
            field.create(field.topic, 2)
            field._sent.clear()
            new = field.fill("new", 50)
            app = field.app(dedup="position")
            field.wait_handled(*new)
            field.wait_committed()
            assert app.told(LogWentBack)
        assert Counter(field.values()) == Counter([*old, *new])
