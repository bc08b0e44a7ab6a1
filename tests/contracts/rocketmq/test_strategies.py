"""Strategies by RocketMQ's names, chosen by members that consume from the real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.rocketmq.names import retry_topic
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.plugin.assign import ByConfig, strategy_of
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.golden import rocketmq as classes
from tests.harness.rocketmq_field import PATIENCE_S, Field

if TYPE_CHECKING:
    from tests.golden.oracle import Oracle
    from tests.harness.servers.rocketmq import RocketMQServer


@pytest.mark.parametrize("name", ["AVG_BY_CIRCLE", "CONSISTENT_HASH"])
def test_members_have_the_queues_that_the_java_class_gives_to_clients_of_their_names(
    rocketmq: RocketMQServer, redis_url: str, rocketmq_strategies: Oracle, name: str
) -> None:
    with Field(rocketmq, redis_url, queues=8) as field:
        apps = {
            instance: field.app(instance, allocate_strategy=name, instance_name=instance)
            for instance in ("shop-1", "shop-2", "shop-3")
        }
        coordinator = RedisCoordinator(field.apps[0].store)
        field.wait(lambda: len(coordinator.describe(field.group).members) == 3)
        field.wait(lambda: coordinator.describe(field.group).settled)
        members = {member.id: member.client_id for member in coordinator.describe(field.group).members}
        theirs = classes.ask(rocketmq_strategies, strategy_of(name), [*members.values()], field.queues()).plan
        instances = {queue: client.partition("@")[2].partition("#")[0] for queue, client in theirs.items()}
        field.wait(lambda: {queue: instance for instance, app in apps.items() for queue in app.owns} == instances)
        field.produce(*"abcdefgh")
        field.wait_handled(*"abcdefgh")
        with field.changed:
            assert {queue: instance for instance, queue, _ in field.handled} == instances


def test_with_lists_each_reads_its_own_and_nobody_reads_what_is_in_none(
    rocketmq: RocketMQServer, redis_url: str
) -> None:
    with Field(rocketmq, redis_url) as field:
        q0, q1, q2, q3 = field.queues()
        lists = ByConfig(queues={"shop-1": [q0, q1], "shop-2": [q2]})
        field.produce("0", "1", "2", "nobody's")
        first, second = (
            field.app(instance, allocate_strategy=lists, instance_name=instance, retry="broker")
            for instance in ("shop-1", "shop-2")
        )
        field.wait(lambda: (first.owns, second.owns) == ({q0, q1}, {q2}))
        field.wait_handled("0", "1", "2")
        coordinator = RedisCoordinator(second.store)
        # What is sent back has to come again: the retry topic is read, though it is in no list.
        retries = Partition(retry_topic(field.group), 0, "broker-a")
        field.wait(lambda: coordinator.describe(field.group).plan.owners.keys() == {q0, q1, q2, retries})
        first.stop()
        field.wait(lambda: coordinator.describe(field.group).plan.owners.keys() == {q2, retries})
        assert field.client.query_offset(q3, field.group, Deadline(PATIENCE_S)) is None
    assert "nobody's" not in field.values()
