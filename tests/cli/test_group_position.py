"""One answer to where a group goes on: of the app that does, of `holdfast reset` and of `holdfast lag`."""

from __future__ import annotations

import threading
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition

from holdfast import Holdfast, RedisClaims
from holdfast.adapters.kafka import KafkaSource
from holdfast.timing import Deadline
from tests.cli.bench import Member, holdfast, lay_out, lines
from tests.harness.rocketmq_field import Field
from tests.harness.waiting import until

if TYPE_CHECKING:
    from holdfast.records import Record
    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.rocketmq import RocketMQServer

WRITTEN, FIRST = 60, 20


class Log:
    """A partition with records from FIRST to WRITTEN, and a group that may have handled all of them."""

    def __init__(self, kafka: KafkaServer, redis_url: str, *, store: bool, policy: str, handled: bool) -> None:
        self._kafka, self._redis_url, self._store, self._policy = kafka, redis_url, store, "earliest"
        self.topic, self.group = f"t-{uuid.uuid4().hex[:8]}", f"g-{uuid.uuid4().hex[:8]}"
        self._changed, self._handled = threading.Condition(), list[int]()
        lay_out(redis_url)
        kafka.create_topic(self.topic, 1)
        self.write(WRITTEN)
        if handled:
            self.begins_at(until_=WRITTEN - 1)
        self._policy = policy
        here = TopicPartition(self.topic, 0, FIRST)
        kafka.admin.delete_records([here])[here].result(20)

    def write(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap, "log_level": 0})
        for _ in range(count):
            producer.produce(self.topic, b"x", partition=0)
        assert producer.flush(20) == 0

    def commit(self, offset: int) -> None:
        self._kafka.reset(self.group, [TopicPartition(self.topic, 0, offset)])

    def begins_at(self, until_: int) -> int:
        """The first record that an app of the group handles."""
        claims = RedisClaims.from_url(self._redis_url, lease_s=5.0)
        conf = {
            "bootstrap.servers": self._kafka.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": self._policy,
        }
        app = Holdfast(KafkaSource(conf, assignment="sticky"), claims=claims if self._store else None)

        def handle(record: Record) -> None:
            with self._changed:
                self._handled.append(record.offset)
                self._changed.notify_all()

        app.handler(self.topic)(handle)
        self._handled.clear()
        with Member(app, claims):
            until(lambda: until_ in self._handled, lambda: self._handled, changed=self._changed)
        return min(self._handled)

    def told(self) -> tuple[int | None, dict[str, Any]]:
        """Where it goes on, by a reset's plan, and what `lag` says."""
        common = ("--group", self.group, "--topic", self.topic, "--bootstrap", self._kafka.bootstrap, "--json")
        redis = ("--redis", self._redis_url) if self._store else ()
        reset = holdfast("reset", *common, "--to", "latest", "--dry-run", *(redis or ("--no-store",)))
        lag = holdfast("lag", *common, *redis, code=(0, 1))
        [move] = [each for each in lines(reset) if each["type"] == "partition"]
        [found] = [each for each in lines(lag) if each["type"] == "partition"]
        assert move["skipped_at_most"] == WRITTEN - move["at"]
        return move["at"], found


@pytest.mark.parametrize("store", [True, False], ids=["store", "no store"])
@pytest.mark.parametrize("policy", ["earliest", pytest.param("latest", marks=pytest.mark.full)])
@pytest.mark.parametrize("committed", [FIRST - 10, FIRST + 10, WRITTEN + 100])
@pytest.mark.parametrize("handled", [pytest.param(False, marks=pytest.mark.full), True], ids=["new", "handled"])
def test_an_offset_that_another_tool_has_set_is_where_all_say(
    committed: int, policy: str, store: bool, handled: bool, kafka: KafkaServer, redis_url: str
) -> None:
    log = Log(kafka, redis_url, store=store, policy=policy, handled=handled)
    log.commit(committed)
    at, lag = log.told()
    if committed > WRITTEN:
        assert (lag["state"], lag["lag"]) == ("beyond_end", None)
    else:
        assert lag["lag"] == WRITTEN - (at or 0)
    assert log.begins_at(until_=WRITTEN - 1) == at


def test_what_the_store_knows_counts_where_the_offset_has_expired(kafka: KafkaServer, redis_url: str) -> None:
    log = Log(kafka, redis_url, store=True, policy="earliest", handled=True)
    other = f"{log.topic}-other"  # or the broker would not know the group any more
    kafka.create_topic(other, 1)
    kafka.admin.delete_consumer_groups([log.group])[log.group].result(20)
    kafka.reset(log.group, [TopicPartition(other, 0, 0)])
    at, lag = log.told()
    assert (at, lag["committed"], lag["position"], lag["lag"]) == (WRITTEN, None, WRITTEN, 0)
    log.write(1)
    assert log.begins_at(until_=WRITTEN) == WRITTEN


@pytest.mark.parametrize("committed", [2, 9, 30])
def test_on_rocketmq_the_store_counts_and_what_others_commit_does_not(
    committed: int, rocketmq: RocketMQServer, redis_url: str
) -> None:
    with Field(rocketmq, redis_url, queues=1) as field:
        [queue] = field.queues()
        orders = [f"order-{number}" for number in range(5)]
        field.produce(*orders)
        app = field.app()
        field.wait_handled(*orders)
        field.wait_committed()
        app.stop()
        late = [f"late-{number}" for number in range(5)]
        field.produce(*late)
        field.client.commit_offset(queue, field.group, committed, Deadline(20))
        where = ("--group", field.group, "--namesrv", rocketmq.namesrv, "--redis", redis_url, "--json")
        lag = lines(holdfast("lag", *where, "--topic", field.topic))
        [found] = [each for each in lag if each["type"] == "partition"]
        assert (found["committed"], found["position"], found["lag"]) == (committed, 5, 5)
        reset = lines(holdfast("reset", *where, "--topic", field.topic, "--to", "latest", "--dry-run"))
        assert reset[0]["at"] == 5
        field.app()
        field.wait_handled(*late)
        field.wait_committed()
        assert sorted(field.values()) == sorted([*orders, *late])
