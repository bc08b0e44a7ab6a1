"""RocketMQSource on the real broker."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from holdfast.plugin.events import RewindIgnored
from holdfast.timing import Deadline
from tests.harness.rocketmq_field import PATIENCE_S, QUICK, Field, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from holdfast.records import Partition, Record
    from tests.harness.servers.rocketmq import RocketMQServer


class TestConsuming:
    def test_a_member_consumes_a_topic_and_commits_up_to_its_end(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url) as field:
            field.produce(*numbered("x", 20))
            field.app()
            field.wait_handled(*numbered("x", 20))
            field.wait_committed()
        assert sorted(field.values()) == sorted(numbered("x", 20))


class TestHandOver:
    def test_joining_and_leaving_repeats_nothing_and_leaves_everything_committed(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=6) as field:
            stop = threading.Event()
            produced: list[str] = []

            def produce() -> None:
                for number in count():
                    if stop.is_set():
                        return
                    field.produce(f"x{number}", queue=number % 6)
                    produced.append(f"x{number}")
                    time.sleep(0.002)

            producer = threading.Thread(target=produce)
            producer.start()
            first = field.app("a")
            field.wait(lambda: len(first.owns) == 6)
            second = field.app("b")
            field.wait(lambda: len(first.owns) == len(second.owns) == 3)
            third = field.app("c")
            field.wait(lambda: [len(app.owns) for app in (first, second, third)] == [2, 2, 2])
            field.wait(lambda: {name for name, *_ in field.handled} == {"a", "b", "c"})
            first.stop()
            field.wait(lambda: [len(app.owns) for app in (second, third)] == [3, 3])
            second.stop()
            field.wait(lambda: len(third.owns) == 6)
            stop.set()
            producer.join()
            field.wait_handled(*produced)
            third.stop()
            assert field.committed() == field.ends()
        assert Counter(field.values()) == Counter(produced)
        # Who takes a queue over reads the offset that was committed before it was let go.
        assert not any(app.told(RewindIgnored) for app in field.apps)

    def test_a_commit_that_is_under_way_is_answered_before_its_queue_goes(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            first = field.app("first")
            field.wait(lambda: len(first.owns) == 2)
            field.produce_many(0, ["a"])
            field.produce_many(1, ["b"])
            field.wait_committed()
            held: list[Callable[[], None]] = []
            commits, client = first.source._commits, first.source._client
            begin_commit, wait = client.begin_commit, commits.wait

            def hold(queue: Partition, *args: Any, **named: Any) -> None:
                begin = partial(begin_commit, queue, *args, **named)
                if queue.topic == field.topic:  # its retry topic's queues have commits too
                    held.append(begin)
                else:
                    begin()

            def release() -> None:
                client.begin_commit = begin_commit  # type: ignore[method-assign]
                while held:
                    held.pop()()

            def wait_for_late_answers(deadline: Deadline, queues: Collection[Partition] | None = None) -> bool:
                threading.Timer(1.0, release).start()  # sooner than the wait ends, later than a queue goes without one
                return wait(deadline, queues)

            client.begin_commit = hold  # type: ignore[method-assign]
            commits.wait = wait_for_late_answers  # type: ignore[method-assign]
            field.produce_many(0, ["c"])
            field.produce_many(1, ["d"])
            field.wait(lambda: len(held) == 2)
            second = field.app("second")
            field.wait(lambda: len(first.owns) == len(second.owns) == 1)
            assert not second.told(RewindIgnored)

    def test_a_queue_stays_in_order_across_members(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            field.produce_many(0, numbered("a", 200))
            field.produce_many(1, numbered("b", 200))
            settings = replace(QUICK, ordering="partition", poll_batch=20)
            second_came = threading.Event()

            def work(_: Record) -> None:
                if len(field.handled) > 40:
                    assert second_came.wait(PATIENCE_S)
                time.sleep(0.001)

            field.do = work
            first = field.app("first", settings=settings)
            field.wait(lambda: len(field.handled) > 40)
            second = field.app("second", settings=settings)
            field.wait(lambda: len(first.owns) == 1)  # one is being handed over, and waits for its handler
            second_came.set()
            field.wait(lambda: len(first.owns) == len(second.owns) == 1)
            field.wait_committed()
            queues = field.queues()
        of_queues = [[(name, offset) for name, each, offset in field.handled if each == queue] for queue in queues]
        for handled in of_queues:
            assert [offset for _, offset in handled] == list(range(200))
        assert sorted(len({name for name, _ in handled}) for handled in of_queues) == [1, 2]


class TestRecords:
    def test_properties_are_headers_and_keys_are_the_key(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=1) as field:
            field.produce("x", keys="order-17", tags="new", properties={"shop": "ä"})
            field.app()
            field.wait_handled("x")
        [record] = field.records
        assert record.key == b"order-17"
        assert record.header("shop") == "ä".encode()
        assert record.header("TAGS") == b"new"
        assert len(record.header("UNIQ_KEY") or b"") == 32
        assert record.timestamp_ms > 1_700_000_000_000

    def test_tags_are_filtered_and_what_is_left_out_counts_as_done(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            # "AaAa" and "BBBB" have one hash in Java, by which the broker compares.
            for number, tag in enumerate(["AaAa", "BBBB", "other"] * 10):
                field.produce(f"{tag}{number}", queue=number % 2, tags=tag)
            field.produce("untagged", queue=0)
            field.app(subscriptions={field.topic: "AaAa || more"})
            field.wait_committed()
        assert len(field.values()) == 10
        assert all(value.startswith("AaAa") for value in field.values())

    def test_a_message_that_its_producer_has_stored_twice_is_handled_once(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            for queue in (0, 1, 1):
                field.produce("x", queue=queue, properties={"UNIQ_KEY": "AC1100050001"})
            field.app()
            field.wait_committed()
        assert field.values() == ["x"]

    def test_two_messages_to_which_their_producer_has_given_one_name_are_two(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            for value in ("x", "y", "x"):
                field.produce(value, queue=0, properties={"UNIQ_KEY": "AC1100050001"})
            field.app()
            field.wait_committed()
        assert field.values() == ["x", "y"]

    def test_by_position_alone_each_copy_is_a_record(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=2) as field:
            for queue in (0, 1, 1):
                field.produce("x", queue=queue, properties={"UNIQ_KEY": "AC1100050001"})
            field.app(dedup="position")
            field.wait_committed()
        assert field.values() == ["x"] * 3

    def test_a_batch_that_is_one_entry_of_its_log_is_read_on_from_within_it(
        self, rocketmq: RocketMQServer, redis_url: str
    ) -> None:
        """Whatever is asked for of it, the broker gives all of it."""
        with Field(rocketmq, redis_url, queues=1) as field:
            field.topic += "-batches"
            field.admin.create_topic(field.topic, Deadline(PATIENCE_S), queues=1, attributes="+queue.type=BatchCQ")
            field.wait(field.queues)
            field.produce_many(0, numbered("x", 6))
            held = threading.Event()
            field.do = lambda record: held.wait(PATIENCE_S) if record.offset >= 3 else None  # type: ignore[assignment]
            first = field.app("first", settings=replace(QUICK, workers=1, ordering="partition", drain_timeout_s=0.5))
            field.wait_handled(*numbered("x", 3))
            first.app.stop()
            first.app.stop()
            held.set()
            first.join()
            field.app("second")
            field.wait_handled(*numbered("x", 6))
            field.produce_many(0, numbered("y", 2))
            field.wait_handled(*numbered("y", 2))
            field.wait_committed()
        assert sorted(field.values()) == [*numbered("x", 6), *numbered("y", 2)]


class TestQueues:
    def test_a_big_queue_leaves_room_for_the_others(self, rocketmq: RocketMQServer, redis_url: str) -> None:
        with Field(rocketmq, redis_url, queues=4) as field:
            field.produce_many(0, numbered("big", 3000))
            held = threading.Event()
            field.do = lambda _: held.wait(PATIENCE_S)  # type: ignore[assignment]
            app = field.app(
                settings=replace(QUICK, max_in_flight=100, poll_batch=20),
                pull_threshold_for_queue=100,
                pull_threshold_for_all=300,
            )
            big, *_, small = field.queues()
            queues, most = app.source._queues, 0

            def in_process(queue: Partition) -> int:
                nonlocal most
                most = max(most, queues[big].count)
                taken = sum(each.in_flight for each in app.app.snapshot().partitions if each.partition == queue)
                return queues[queue].count + taken

            field.wait(lambda: big in queues and in_process(big) >= 200)
            # More than one pull brings: the first may have waited at the broker since there was room for all.
            field.produce_many(small, numbered("small", 60))
            field.wait(lambda: in_process(small) == 60)
            held.set()
            field.wait_handled(*numbered("small", 60))
            field.wait_committed()
            assert most <= 100 + 32
        assert len(field.values()) == 3060
