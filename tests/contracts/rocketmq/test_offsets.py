"""Offsets at the real broker: where a group begins, resets, and commits that are not ours."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.plugin.events import AdvanceIgnored, CommitOverwritten, LogWentBack, ResetHonoured, RewindIgnored
from holdfast.timing import Deadline
from tests.harness.rocketmq_field import PATIENCE_S, Field, numbered

if TYPE_CHECKING:
    from tests.harness.servers.rocketmq import RocketMQServer


def deadline() -> Deadline:
    return Deadline(PATIENCE_S)


class TestFirstStart:
    @pytest.mark.parametrize(
        ("start", "expected"),
        [
            ({}, ["old", "new"]),
            ({"consume_from_where": "CONSUME_FROM_LAST_OFFSET"}, ["new"]),
            ({"consume_from_where": "CONSUME_FROM_TIMESTAMP", "consume_timestamp": "now"}, ["new"]),
        ],
    )
    def test_a_group_begins_where_it_says(
        self, rocketmq: RocketMQServer, redis_url: str, start: dict[str, Any], expected: list[str]
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce("old")
            time.sleep(0.05)  # what is stored in one millisecond cannot be told apart by time
            if "consume_timestamp" in start:
                start = {**start, "consume_timestamp": datetime.now(UTC)}
            app = field.app(**start)
            field.wait(lambda: len(app.owns) == 1)
            field.produce("new")
            field.wait_handled("new")
            field.wait_committed()
        assert field.values() == expected

    def test_where_it_began_is_remembered_though_nothing_came(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce("old")
            app = field.app(consume_from_where="latest")
            field.wait(lambda: len(app.owns) == 1)
            app.stop()
            field.produce("between")
            field.app(consume_from_where="latest")
            field.wait_handled("between")
        assert field.values() == ["between"]

    def test_a_queue_that_is_added_later_is_read_from_its_beginning(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce("old")
            app = field.app(consume_from_where="latest")
            field.wait(lambda: len(app.owns) == 1)
            app.stop()
            field.create(field.topic, 2)
            field.produce("added", queue=1)
            field.app(consume_from_where="latest")
            field.wait_handled("added")
        assert field.values() == ["added"]


class TestResets:
    def test_a_reset_while_it_runs_is_honoured(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            field.produce(*numbered("x", 10), queue=0)
            app = field.app(dedup="position")
            field.wait_handled(*numbered("x", 10))
            field.wait_committed()
            [queue, _] = field.queues()
            field.admin.reset(field.group, queue, 4, deadline())
            field.produce("wakes", queue=0)
            field.wait(lambda: len(field.handled) == 17)
            field.wait_committed()
            assert app.told(ResetHonoured) == [ResetHonoured(partition=queue, offset=4, watermark=10)]
        assert [offset for *_, offset in field.handled[10:]] != list(range(10))
        assert sorted(offset for *_, offset in field.handled) == sorted([*range(11), *range(4, 10)])

    def test_a_reset_while_nobody_runs_is_honoured(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce(*numbered("x", 10))
            app = field.app(dedup="position")
            field.wait_committed()
            app.stop()
            [queue] = field.queues()
            field.admin.reset(field.group, queue, 7, deadline())
            field.app(dedup="position")
            field.wait(lambda: len(field.handled) == 13)
            field.wait_committed()


class TestForeignCommits:
    @pytest.mark.parametrize("offset", [2, 50])
    def test_a_commit_that_is_not_ours_is_replaced(self, rocketmq: RocketMQServer, redis_url: str, offset: int) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce(*numbered("x", 10))
            app = field.app(dedup="position")
            field.wait_committed()
            [queue] = field.queues()
            field.client.commit_offset(queue, field.group, offset, deadline())
            app.source._watch.look_now()
            field.wait(lambda: app.told(CommitOverwritten))
            field.wait_committed()
            assert app.told(CommitOverwritten)[0].offset == offset
        assert len(field.handled) == 10

    @pytest.mark.parametrize(("offset", "kind"), [(2, RewindIgnored), (50, AdvanceIgnored)])
    def test_one_that_was_made_while_nobody_ran_neither_repeats_nor_loses(
        self, rocketmq: RocketMQServer, redis_url: str, offset: int, kind: type[Any]
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce(*numbered("x", 10))
            app = field.app(dedup="position")
            field.wait_committed()
            app.stop()
            [queue] = field.queues()
            field.client.commit_offset(queue, field.group, offset, deadline())
            field.produce("y")
            app = field.app(dedup="position")
            field.wait_handled("y")
            field.wait_committed()
            assert [event.offset for event in app.told(kind)] == [offset]
        assert len(field.handled) == 11


class TestLogs:
    def test_a_topic_that_was_deleted_and_made_again_is_read_from_its_beginning(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce(*numbered("x", 10))
            app = field.app(dedup="position")
            field.wait_committed()
            app.stop()
            field.admin.delete_topic(field.topic, deadline())
            field.create(field.topic, 1)
            field.produce(*numbered("y", 3))
            app = field.app(dedup="position")
            field.wait_handled(*numbered("y", 3))
            field.wait_committed()
            assert len(app.told(LogWentBack)) == 1
        assert sorted(field.values()) == sorted([*numbered("x", 10), *numbered("y", 3)])
