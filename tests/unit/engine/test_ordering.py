"""What runs one after the other, what runs at the same time, and what a commit waits for."""

from __future__ import annotations

import random
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from holdfast import Settings
from tests.harness.engine import Bench, numbered, partition
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Hashable

    from holdfast.plugin.settings import Ordering
    from holdfast.records import Partition, Record
    from holdfast.testing.brokers.kafka_group import CommitRequest
    from tests.harness.engine import Seen


def key_of(seen: Seen) -> str:
    return seen.value.split(":")[0]


class TestOrderingByKey:
    def test_records_of_one_key_run_in_order_and_never_at_the_same_time(self) -> None:
        order = random.Random(1)
        with Bench(orders=2) as bench:
            for number in range(2):
                for sequence in range(300):
                    key = f"{number}k{order.randrange(7)}"
                    bench.broker.produce("orders", number, f"{key}:{sequence}", key=key)
            bench.member(settings=Settings(workers=8, ordering="key"))
            bench.wait(lambda: len(bench.work.ended) == 600)
            running: set[Hashable] = set()
            last: dict[Hashable, int] = defaultdict(lambda: -1)
            for what, seen in bench.work.story:
                key = key_of(seen)
                if what == "start":
                    assert key not in running
                    assert seen.offset > last[key]
                    running.add(key)
                    last[key] = seen.offset
                else:
                    running.remove(key)

    def test_other_keys_go_on_while_one_is_stuck(self) -> None:
        with Bench() as bench:
            bench.work.hold("a:0")
            bench.broker.produce("orders", 0, "a:0", "a:1", key="a")
            for number in range(20):
                bench.broker.produce("orders", 0, f"b{number}", key=f"b{number}")
            bench.member()
            bench.wait_ended(*numbered("b", range(20)))
            assert "a:1" not in bench.work.starts()
            assert bench.group.offset(partition()) in (None, 0)

    def test_records_without_a_key_wait_for_nobody(self) -> None:
        with Bench() as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            bench.member()
            bench.wait_ended(*numbered("x", range(1, 10)))

    def test_a_slow_record_among_quick_ones_holds_up_nobody_else(self) -> None:
        """Quick records are given to workers several at a time: the others of such a chunk must not wait for it."""
        with Bench() as bench:
            bench.work.hold("slow")
            for number in range(2000):
                value = "slow" if number == 1500 else f"x{number}"
                bench.broker.produce("orders", 0, value, key=value)
            bench.member(settings=Settings(workers=2, poll_batch=2000))
            bench.wait(lambda: len(bench.work.ended) == 1999, patience_s=PATIENCE_S / 2)


class TestOrderingByPartition:
    def test_records_of_one_partition_run_in_order_and_partitions_side_by_side(self) -> None:
        with Bench(orders=3) as bench:
            for number in range(3):
                for sequence in range(50):
                    bench.broker.produce("orders", number, f"{number}:{sequence}", key=str(sequence))
            bench.work.hold("0:10", "1:10", "2:10")
            bench.member(settings=Settings(workers=8, ordering="partition"))
            bench.wait_running("0:10", "1:10", "2:10")
            bench.work.let_go()
            bench.wait(lambda: len(bench.work.ended) == 150)
            for number in range(3):
                story = [(what, seen.offset) for what, seen in bench.work.story if seen.partition.number == number]
                assert story == [(what, offset) for offset in range(50) for what in ("start", "end")]


class TestNoOrdering:
    def test_records_of_one_key_run_at_the_same_time(self) -> None:
        with Bench() as bench:
            bench.work.hold(*numbered("a", range(4)))
            bench.broker.produce("orders", 0, *numbered("a", range(4)), key="a")
            bench.member(settings=Settings(workers=4, ordering="none"))
            bench.wait_running(*numbered("a", range(4)))


@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
def test_never_more_handlers_run_than_there_are_workers(ordering: Ordering) -> None:
    with Bench(orders=8) as bench:
        for number in range(8):
            for value in range(30):
                bench.broker.produce("orders", number, f"{number}:{value}", key=str(value % 5))
        bench.work.hold(*(f"{number}:{value}" for number in range(8) for value in range(30)))
        member = bench.member(settings=Settings(workers=3, ordering=ordering))
        bench.wait(lambda: len(bench.work.running) == 3)
        polls = member.source.polls
        bench.wait(lambda: member.source.polls > polls + 20)
        bench.work.let_go()
        bench.wait(lambda: len(bench.work.ended) == 240)
        assert bench.work.most_running == 3


class TestCommits:
    def test_a_commit_waits_for_the_oldest_record_and_then_jumps(self) -> None:
        with Bench() as bench:
            bench.work.hold("x2")
            bench.broker.produce("orders", 0, *numbered("x", range(20)))
            bench.member(settings=Settings(workers=4, commit_interval_s=0.01))
            bench.wait(lambda: len(bench.work.ended) == 19)
            bench.wait_committed(2)
            bench.wait(lambda: bench.position() == (2, set(range(3, 20))))
            bench.work.let_go()
            bench.wait_committed(20)
        assert max(attempt.offset for attempt in bench.group.attempts) == 20

    def test_no_commit_is_ever_ahead_of_what_is_marked_at_the_store(self) -> None:
        ahead: list[tuple[int, int]] = []
        with Bench() as bench:
            commit = bench.group.commit

            def checked(sent: CommitRequest, part: Partition) -> object:
                offset = sent.offsets[part]
                watermark, above = bench.position()
                while watermark in above:
                    watermark += 1
                if offset > watermark:
                    ahead.append((offset, watermark))
                return commit(sent, part)

            bench.group.commit = checked  # type: ignore[assignment,method-assign]
            bench.member(settings=Settings(workers=4, commit_interval_s=0.001))
            for number in range(200):
                bench.broker.produce("orders", 0, f"x{number}")
            bench.wait(lambda: len(bench.work.ended) == 200)
        assert bench.group.offset(partition()) == 200
        assert ahead == []

    def test_gaps_in_the_log_count_as_done_also_at_its_end(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            bench.broker.compact("orders", 0, [1, 2, 7])
            bench.broker.leave_out("orders", 0, 2)
            bench.member(settings=Settings(commit_interval_s=0.01))
            bench.wait_committed(12)
            bench.broker.leave_out("orders", 0, 1)
            bench.wait_committed(13)
            bench.broker.produce("orders", 0, "last")
            bench.wait_committed(14)
        assert sorted(bench.work.values()) == ["last", "x1", "x2", "x7"]

    def test_a_stop_commits_the_end_of_the_log_and_leaves_nothing_owed(self) -> None:
        with Bench(orders=3) as bench:
            for number in range(3):
                bench.broker.produce("orders", number, *numbered("x", range(10)))
            member = bench.member(settings=Settings(commit_interval_s=3600.0))
            bench.wait(lambda: len(bench.work.ended) == 30)
            member.stop()
            assert [bench.group.offset(partition(number)) for number in range(3)] == [10, 10, 10]
            assert bench.ids() == []
            assert bench.group.members == []

    def test_a_tombstone_is_a_record_like_any_other(self) -> None:
        with Bench() as bench:
            seen: list[Record] = []
            bench.broker.produce("orders", 0, None, key="a")
            bench.member(handler=seen.append, settings=Settings(commit_interval_s=0.01))
            bench.wait_committed(1)
            assert [(record.key, record.value) for record in seen] == [(b"a", None)]
