"""Records that failed: brought again by the real broker, or put away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast import Retry
from holdfast.adapters.rocketmq.remoting import PullRequest, Subscription
from holdfast.plugin.events import DeadLettered, SentBack
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.contracts.rocketmq_field import PATIENCE_S, QUICK, Field

if TYPE_CHECKING:
    from holdfast.records import Record
    from tests.servers.rocketmq import RocketMQServer


def wait_bodies(field: Field, topic: str, *bodies: bytes) -> None:
    """A broker acknowledges a message before its queue has it."""
    field.client.route(topic, Deadline(PATIENCE_S), fresh=True)
    queue = Partition(topic, 0, "broker-a")
    request = PullRequest(queue=queue, group="looks", offset=0, subscription=Subscription(topic=topic), suspend_s=0)

    def found() -> list[bytes]:
        return [message.body for message in field.client.pull(request, Deadline(PATIENCE_S)).messages()]

    field.wait(lambda: found() == list(bodies))


class TestByTheBroker:
    def test_a_record_that_failed_comes_again_with_its_key_and_its_origin(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        """The first delay of the broker is 10 s."""
        with Field(rocketmq, redis_url, queues=1) as field:
            tries: list[Record] = []

            def fail_once(record: Record) -> None:
                tries.append(record)
                if len(tries) == 1:
                    raise ValueError("not now")

            field.do = fail_once
            field.produce("x", keys="order-1")
            app = field.app(retry="broker", handling={"key": lambda record: (record.key or b"").decode()})
            field.wait_committed()
            assert [event.topic for event in app.told(SentBack)] == [f"%RETRY%{field.group}"]
            field.wait_handled("x")
            field.wait_committed(f"%RETRY%{field.group}")
            first, second = tries
            assert second.topic == f"%RETRY%{field.group}"
            assert (second.key, second.value) == (first.key, first.value)
            assert second.header("UNIQ_KEY") == first.header("UNIQ_KEY")
            assert second.header("RECONSUME_TIMES") == b"1"
            assert second.header("holdfast-retry-of") == field.topic.encode()

    def test_past_the_last_time_the_broker_puts_it_away(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:

            def fail(_: Record) -> None:
                raise ValueError("never")

            field.do = fail
            field.produce("x")
            field.app(retry="broker", max_reconsume_times=0)
            field.wait_committed()
            wait_bodies(field, f"%DLQ%{field.group}", b"x")


class TestStrays:
    def test_what_somebody_has_put_into_the_retry_topic_by_hand_is_put_away_and_the_app_goes_on(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            retries = f"%RETRY%{field.group}"
            field.create(retries, 1)
            field.produce("stray", topic=retries)
            field.produce("returned", topic=retries, properties={"RETRY_TOPIC": field.topic})
            app = field.app()
            field.produce("x")
            field.wait_handled("x", "returned")
            field.wait_committed(retries)
            wait_bodies(field, f"%DLQ%{field.group}", b"stray")
            assert [event.handler for event in app.told(DeadLettered)] == ["holdfast.strays"]
        assert sorted(field.values()) == ["returned", "x"]


class TestInPlace:
    def test_it_is_tried_in_its_place_and_then_a_dead_letter(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            seen: list[bytes | None] = []

            def fail(record: Record) -> None:
                seen.append(record.value)
                if record.value == b"bad":
                    raise ValueError("never")

            field.do = fail
            field.produce("bad", "good")
            app = field.app(
                settings=replace(QUICK, ordering="partition"),
                handling={
                    "retry": Retry(attempts=3, wait_initial_s=0.01, jitter_s=0.0),
                    "dead_letter": "%DLQ%",
                },
            )
            field.wait_handled("good")
            field.wait_committed()
            assert len(app.told(DeadLettered)) == 1
            wait_bodies(field, f"%DLQ%{field.group}", b"bad")
        assert seen == [b"bad"] * 3 + [b"good"]
