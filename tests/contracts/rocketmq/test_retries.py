"""Records that failed: brought again by the real broker, or put away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from holdfast import Retry
from holdfast.adapters.rocketmq.remoting import PullRequest, Subscription
from holdfast.errors import DeadLetterRefused, HandlerFailed
from holdfast.plugin.events import DeadLettered, SentBack
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.harness.rocketmq_field import PATIENCE_S, QUICK, Field

if TYPE_CHECKING:
    from holdfast.records import Record
    from tests.harness.servers.rocketmq import RocketMQServer


def wait_bodies(field: Field, topic: str, *bodies: bytes) -> None:
    """A broker acknowledges a message before its queue has it. Letters are sent side by side, in any order."""
    field.client.route(topic, Deadline(PATIENCE_S), fresh=True)
    queue = Partition(topic, 0, "broker-a")
    request = PullRequest(queue=queue, group="looks", offset=0, subscription=Subscription(topic=topic), suspend_s=0)

    def found() -> list[bytes]:
        return [message.body for message in field.client.pull(request, Deadline(PATIENCE_S)).messages()]

    field.wait(lambda: sorted(found()) == sorted(bodies))


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

    def test_a_group_of_which_the_broker_keeps_no_retries_loses_nothing(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        """It answers that all is well, and drops what is sent back."""
        with Field(rocketmq, redis_url, queues=1) as field:
            field.admin.create_group(field.group, Deadline(PATIENCE_S), retry_queues=0)

            def fail(_: Record) -> None:
                raise ValueError("no")

            field.do = fail
            field.produce("x")
            app = field.app(retry="broker")
            with pytest.raises(DeadLetterRefused, match="retryQueueNums=0"):
                app.join()
            assert set(field.committed().values()) == {0}

    def test_past_the_last_time_the_broker_puts_it_away(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:

            def fail(_: Record) -> None:
                raise ValueError("never")

            field.do = fail
            field.produce("x")
            field.app(retry="broker", max_reconsume_times=0)
            field.wait_committed()
            wait_bodies(field, f"%DLQ%{field.group}", b"x")


class TestGivenOut:
    @pytest.mark.full
    def test_what_was_given_out_one_by_one_and_not_acknowledged_is_handled_by_who_pulls(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        """As by a proxy to clients over gRPC, a LeasedSource say, which have died since. The shortest lease is 10 s."""
        with Field(rocketmq, redis_url, queues=2) as field:
            field.pop()  # a group begins at its first pop
            field.produce("one", "two", "three")
            field.wait(lambda: field.pop() == 0 and set(field.committed().values()) == {1, 2})
            app = field.app(poll_name_server_interval_s=1)
            field.wait_handled("one", "two", "three")
            left = f"%RETRY%{field.group}_{field.topic}"
            assert {record.topic for record in field.records} == {left}
            field.wait_committed(left)
            assert not app.told(DeadLettered)


class TestUnroutable:
    def test_what_somebody_has_put_into_the_retry_topic_by_hand_is_put_away_and_the_app_goes_on(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            retries = f"%RETRY%{field.group}"
            field.create(retries, 1)
            field.produce("unroutable", topic=retries)
            field.produce("returned", topic=retries, properties={"RETRY_TOPIC": field.topic})
            app = field.app()
            field.produce("x")
            field.wait_handled("x", "returned")
            field.wait_committed(retries)
            wait_bodies(field, f"%DLQ%{field.group}", b"unroutable")
            assert [event.handler for event in app.told(DeadLettered)] == ["holdfast.unroutable"]
        assert sorted(field.values()) == ["returned", "x"]


class TestUnreadable:
    def test_it_becomes_a_dead_letter_with_what_there_is_of_it_and_its_neighbours_are_handled(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce("one")
            field.produce("says it is compressed", sys_flag=0x1)
            field.produce("two")
            field.produce("is not zlib", sys_flag=0x301)
            field.produce("three")
            app = field.app(handling={"dead_letter": "%DLQ%"})
            field.wait_handled("one", "two", "three")
            field.wait_committed()
            wait_bodies(field, f"%DLQ%{field.group}", b"says it is compressed", b"is not zlib")
            assert sorted(event.offset for event in app.told(DeadLettered)) == [1, 3]
        assert sorted(field.values()) == ["one", "three", "two"]

    def test_without_a_dead_letter_the_app_stops_and_says_which(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce("one")
            field.produce("says it is compressed", sys_flag=0x1)
            app = field.app()
            with pytest.raises(
                HandlerFailed, match=rf"{field.topic}-broker-a-0@1 \(message [0-9A-F]{{32}}\) cannot be"
            ):
                app.join()
        assert field.values() in ([], ["one"])  # the stop may come before its turn


class TestForged:
    def test_who_says_to_be_born_in_another_topic_is_not_brought_again_as_one_of_that_topic(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            clicks = f"clicks-{field.topic}"
            field.create(clicks, 1)
            failed: list[Record] = []

            def fail_clicks(record: Record) -> None:
                if record.value == b"forged":
                    failed.append(record)
                    raise ValueError("as its sender wants")

            field.do = fail_clicks
            field.produce("forged", topic=clicks, properties={"RETRY_TOPIC": field.topic, "UNIQ_KEY": "4711"})
            field.app(topics=[field.topic, clicks], retry="broker")
            field.wait_committed(clicks)
            wait_bodies(field, f"%DLQ%{field.group}", b"forged")
            field.produce("real", properties={"UNIQ_KEY": "4711"})
            field.wait_handled("real")
            field.wait_committed()
        assert [record.topic for record in failed] == [clicks]


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
