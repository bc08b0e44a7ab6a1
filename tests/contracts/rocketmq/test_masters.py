"""A master that does not come back, on real brokers: its slave is read, and made the master by hand."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.remoting import Subscription, queues
from holdfast.errors import SourceError
from holdfast.plugin.events import LogWentBack
from holdfast.timing import Deadline
from tests.harness.rocketmq_field import PATIENCE_S, Field
from tests.harness.servers.rocketmq import RocketMQServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.rocketmq_field import App

pytestmark = pytest.mark.full


@pytest.fixture
def server() -> Iterator[RocketMQServer]:
    with RocketMQServer(settings={"slaveReadEnable": "true"}) as server:
        yield server


@pytest.fixture
def acting() -> Iterator[RocketMQServer]:
    """Slaves act for their masters while these are away."""
    settings = {"slaveReadEnable": "true", "enableSlaveActingMaster": "true"}
    with RocketMQServer(settings=settings, name_server={"supportActingMaster": "true"}) as server:
        yield server


def reached(condition: Callable[[], object]) -> None:
    """Until it is true; servers may be away meanwhile."""
    until(condition, despite=(SourceError,))


def wait_noted(field: Field, app: App, offset: int) -> None:
    """Until the mark of each queue is that message, or a later one, also for who reads it next."""
    logs = [app.source._queues[queue].log for queue in field.queues()]
    field.wait(lambda: all(log is not None and log.noted is not None and log.noted.offset >= offset for log in logs))


def has(field: Field, address: str, messages: int) -> bool:
    """Whether a slave has so many in each queue."""
    for queue in field.queues():
        asked = queues.PullRequest(
            queue=queue, group=field.group, offset=0, subscription=Subscription(topic=queue.topic), suspend_s=0
        )
        answer = field.client.network.ask(address, queues.pull(asked, of_master=False), Deadline(PATIENCE_S))
        if queues.read_pull(answer).max_offset < messages:
            return False
    return True


@pytest.mark.parametrize("dedup", ["message", "position"])
def test_a_slave_that_is_made_the_master_and_has_less_makes_nothing_run_again_that_lies_before_the_last_mark(
    server: RocketMQServer, redis_url: str, dedup: Any
) -> None:
    """Masters acknowledge what slaves do not have yet: that is lost, and its offsets are given to other messages."""
    with Field(server, redis_url, queues=2) as field:
        app = field.app(dedup=dedup)
        old = field.fill("old", 300)
        field.wait_handled(*old)
        slave = server.add_slave("broker-a")
        reached(lambda: has(field, server.address(slave), 300))
        marked = field.fill("marked", 10)
        field.wait_handled(*marked)
        reached(lambda: has(field, server.address(slave), 310))
        wait_noted(field, app, 300)
        server.kill_broker(slave)
        gone = field.fill("gone", 20)
        field.wait_handled(*gone)
        field.wait_committed()
        server.kill_broker("broker-a")
        server.promote(slave)
        field._sent.clear()
        reached(field.ends)
        assert set(field.ends().values()) == {310}
        new = field.fill("new", 50)
        field.wait_handled(*new)
        field.wait_committed()
        times = Counter(field.values())
        assert set(times) == {*old, *marked, *gone, *new}
        assert not {value for value, count in times.items() if count > 1}.intersection(old)


def test_a_slave_that_acts_for_its_master_is_read_and_has_offsets_committed_and_that_it_has_less_moves_nothing(
    acting: RocketMQServer, redis_url: str
) -> None:
    with Field(acting, redis_url, queues=2) as field:
        app = field.app("first", dedup="position")
        old = field.fill("old", 30)
        field.wait_handled(*old)
        slave = acting.add_slave("broker-a")
        reached(lambda: has(field, acting.address(slave), 30))
        acting.kill_broker(slave)
        # The slave's log ends where the mark is: that alone could be a log made again.
        last = field.fill("last", 1)
        field.wait_handled(*last)
        field.wait_committed()
        wait_noted(field, app, 30)
        acting.kill_broker("broker-a")
        acting.start_broker(slave)
        second = field.app("second", dedup="position")
        field.wait(lambda: len(app.owns) == len(second.owns) == 1, "a queue changes hands while the slave acts")
        acting.start_broker("broker-a")
        field.wait(lambda: field.client.brokers_at(acting.address()), "the master is known again")
        new = field.fill("new", 20)
        field.wait_handled(*new)
        reached(lambda: field.committed() == field.ends())
        assert Counter(field.values()) == Counter([*old, *last, *new])
        for each in field.apps:
            assert not each.told(LogWentBack)
