"""Members that are processes: joining, leaving, killed; with PushSource, and with the client's PushConsumer alone."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from tests.contracts.rocketmq.classic.lab import Members, Topic, Traffic

if TYPE_CHECKING:
    from pathlib import Path

    from tests.harness.servers.rocketmq import RocketMQServer

_WORKERS = 8


def _rolling(topic: Topic, members: Members, *, kill: bool) -> None:
    """One joins, the first goes; another joins, the second goes. Each has work when it goes."""
    go = members.kill if kill else members.stop
    with Traffic(topic, backlog=400, wait_s=0.005) as traffic:
        first = members.start()
        second = members.start()
        go(first)
        third = members.start()
        go(second)
        sent = traffic.stop()
    members.wait(lambda: len(members.handled()) == sent)
    members.stop(third)
    assert len(members.handled()) == sent


@pytest.fixture
def topic(rocketmq: RocketMQServer) -> Topic:
    return Topic(rocketmq)


def test_joining_and_leaving_repeats_nothing(topic: Topic, redis_url: str, tmp_path: Path) -> None:
    with Members(topic, redis_url, tmp_path, handler_s=0.01) as members:
        _rolling(topic, members, kill=False)
        assert members.repeats() == 0


def test_a_kill_repeats_no_more_than_was_in_hand(topic: Topic, redis_url: str, tmp_path: Path) -> None:
    with Members(topic, redis_url, tmp_path, handler_s=0.01) as members:
        _rolling(topic, members, kill=True)
        assert members.repeats() <= 2 * _WORKERS


def test_the_client_alone_repeats(rocketmq: RocketMQServer, redis_url: str, tmp_path: Path) -> None:
    """The difference: the same schedule, leaving in good order by `shutdown()`. Once in a while all goes well."""
    for number in range(5):
        topic, home = Topic(rocketmq), tmp_path / str(number)
        home.mkdir()
        with Members(topic, redis_url, home, kind="plain", handler_s=0.01) as members:
            _rolling(topic, members, kill=False)
            if members.repeats() > 0:
                return
    pytest.fail("five schedules, and nothing was repeated")


def test_the_client_alone_does_not_end_without_shutdown(topic: Topic, redis_url: str, tmp_path: Path) -> None:
    """Limit: why `run()` always shuts it down."""
    topic.send(["m"])
    with Members(topic, redis_url, tmp_path, kind="careless", handler_s=0.0) as members:
        process = members.start()
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(3.0)
