"""No partition waits for another's backlog: shares of what may be in the process, and turns at the workers."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Settings
from holdfast.plugin.engine.partition.partitioned import Partitioned
from holdfast.records import Partition
from tests.harness.engine import Bench, numbered, partition

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast import Record
    from tests.harness.engine import Member

#: How many handlers may start between a fresh record's coming into the process and its start: what runs, what each
#: worker has in hand besides, and a turn of the backlog's partition.
SOON = 4
SMALL: list[dict[str, Any]] = [{}, {"max_in_flight": 20}, {"poll_batch": 7}, {"max_in_flight_bytes": 200}]


def family_of(member: Member) -> Partitioned:
    """Who has the partitions."""
    engine = member.app._engine
    assert engine is not None
    family = engine.family
    assert isinstance(family, Partitioned)
    return family


def in_process(member: Member, number: int, topic: str = "orders") -> int:
    """Records of a partition that are admitted."""
    engine = member.app._engine
    owner = None if engine is None else family_of(member).owners.get(Partition(topic, number))
    return 0 if owner is None else owner.in_process


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Quick handlers get no chunks, which are turns of some milliseconds: starts are counted here."""
    monkeypatch.setattr("holdfast.plugin.engine.record.workers._CHUNK_AT_MOST", 1)


@pytest.mark.parametrize("settings", SMALL, ids=str)
@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
def test_a_fresh_record_starts_soon_beside_a_backlog(ordering: Any, settings: dict[str, Any]) -> None:
    stops = [100, 200, 300]
    with Bench(orders=2) as bench:
        backlog = numbered("a", range(400))
        bench.work.hold(*(backlog[each] for each in stops))
        bench.broker.produce("orders", 0, *backlog)
        member = bench.member(settings=Settings(workers=1, ordering=ordering, **settings))
        for each in stops:
            bench.wait_running(backlog[each])
            before = len(bench.work.started)
            bench.broker.produce("orders", 1, f"fresh{each}")
            bench.wait(lambda: in_process(member, 1) == 1, "the fresh record does not come")
            bench.work.let_go(backlog[each])
            bench.wait_ended(f"fresh{each}")
            assert [seen.value for seen in bench.work.started].index(f"fresh{each}") - before <= SOON
        bench.wait_ended(*backlog)
    assert set(bench.work.starts().values()) == {1}


def test_partitions_that_are_all_behind_get_as_many_starts_each() -> None:
    with Bench(orders=4) as bench:
        for number in range(4):
            bench.broker.produce("orders", number, *numbered(f"{number}x", range(300)))
        bench.work.hold("0x0")
        member = bench.member(settings=Settings(workers=1))
        # All are here: with less, quick handlers would outrun what comes of one partition, which then has no turn.
        bench.wait(lambda: all(in_process(member, number) == 300 for number in range(4)), "some are not here")
        bench.work.let_go()
        bench.wait(lambda: len(bench.work.ended) == 1_200)
        order = [seen.value[0] for seen in bench.work.started]
    for at in range(20, 800, 40):
        counts = [order[at : at + 40].count(str(number)) for number in range(4)]
        assert min(counts) >= 9, (at, counts)


def test_a_batch_of_one_partition_goes_while_another_has_a_backlog() -> None:
    gate, got = threading.Event(), list[str]()
    with Bench(orders=2) as bench:

        def handle(records: list[Record]) -> None:
            gate.wait(60)
            with bench.changed:
                got.append(f"{records[0].partition.number}:{len(records)}")
                bench.changed.notify_all()

        bench.broker.produce("orders", 0, *numbered("a", range(400)))
        settings = Settings(workers=1, max_in_flight=100, mark_batch=20)
        member = bench.member(settings=settings, handler=handle, batch=BatchOf(records=10, wait_s=math.inf))
        bench.wait(lambda: in_process(member, 0) > 0)
        bench.broker.produce("orders", 1, *numbered("b", range(10)))
        bench.wait(lambda: in_process(member, 1) == 10)
        gate.set()
        bench.wait(lambda: len(got) == 41)
    assert got.index("1:10") <= SOON


def test_what_waits_goes_on_inside_of_a_rebalance() -> None:
    """A drain polls nothing; partitions that stay work on with what was polled before."""
    with Bench(orders=2) as bench:
        bench.work.hold("0x0", "1x0")
        bench.broker.produce("orders", 0, *numbered("0x", range(200)))
        bench.broker.produce("orders", 1, "1x0")
        settings = Settings(workers=2, max_in_flight=10, drain_timeout_s=3600.0, linger_timeout_s=3600.0)
        first = bench.member("a", settings=settings)
        bench.wait_running("0x0", "1x0")
        engine = first.app._engine
        assert engine is not None
        bench.wait(lambda: engine.parts.intake.waiting.records > 64)
        second = bench.member("b", settings=settings)
        bench.group.aim({first.source: [partition(0)], second.source: [partition(1)]})
        bench.wait(lambda: family_of(first).owners[partition(1)].phase.name == "FENCED", "no drain begins")
        bench.work.let_go("0x0")
        bench.wait(lambda: len(bench.work.ended) >= 150, "the partition that stays does not go on")
        assert bench.work.is_running("1x0")
        bench.work.let_go()
        bench.wait(lambda: len(bench.work.ended) == 201)
    assert set(bench.work.starts().values()) == {1}


def test_a_topic_with_few_records_has_every_second_turn_beside_one_with_a_backlog_in_all_its_partitions() -> None:
    with Bench(orders=4, payments=1) as bench:
        bench.work.hold("0x0")
        for number in range(4):
            bench.broker.produce("orders", number, *numbered(f"{number}x", range(100)))
        bench.broker.produce("payments", 0, *numbered("pay", range(50)))
        member = bench.member(settings=Settings(workers=1), start=False)
        member.app.handler("payments", name="payments")(lambda record: bench.work.do("a", record))
        member.start()
        bench.wait_running("0x0")
        bench.wait(lambda: in_process(member, 0, "payments") == 50 and all(in_process(member, at) for at in range(4)))
        bench.work.let_go()
        bench.wait(lambda: len(bench.work.ended) == 450)
        order = ["pay" in seen.value for seen in bench.work.started]
    first = order.index(True)
    assert sum(order[first : first + 40]) >= 19


def test_a_key_with_a_backlog_leaves_the_other_keys_of_its_partition_going_on() -> None:
    with Bench(orders=1) as bench:
        bench.work.hold("a0")
        bench.broker.produce("orders", 0, *numbered("a", range(180)), key="a")
        for each in range(20):
            bench.broker.produce("orders", 0, f"b{each}", key=f"b{each}")
        bench.member(settings=Settings(workers=2, max_in_flight=100))
        bench.wait_ended(*numbered("b", range(20)))
        assert bench.work.is_running("a0")
        bench.work.let_go()
        bench.wait(lambda: len(bench.work.ended) == 200)
    assert set(bench.work.starts().values()) == {1}
    assert [seen.value for seen in bench.work.started if seen.value.startswith("a")] == numbered("a", range(180))


def test_of_keys_with_a_backlog_as_much_again_is_in_the_process_and_no_more() -> None:
    with Bench(orders=2) as bench:
        bench.work.hold("a0")
        bench.broker.produce("orders", 0, *numbered("a", range(1_000)), key="a")
        member = bench.member(settings=Settings(workers=2, max_in_flight=100))
        bench.wait_running("a0")
        most = 0
        for each in range(300):  # each is polled, started and ended: many turns
            bench.broker.produce("orders", 1, f"b{each}", key=f"b{each}")
            bench.wait_ended(f"b{each}")
            most = max(most, in_process(member, 0))
        assert 150 < most <= 200 + 64
        bench.work.let_go()
        bench.wait(lambda: len(bench.work.ended) == 1_300)


@pytest.mark.parametrize(("long_s", "given"), [(0.0, 2), (60.0, 4)], ids=["long", "short"])
def test_a_job_waits_in_each_workers_hand_unless_calls_are_long(
    monkeypatch: pytest.MonkeyPatch, long_s: float, given: int
) -> None:
    monkeypatch.setattr("holdfast.plugin.engine.record.workers._LONG_S", long_s)
    with Bench(orders=1) as bench:
        bench.work.hold("b0", "b1")
        bench.broker.produce("orders", 0, *numbered("a", range(40)))
        member = bench.member(settings=Settings(workers=2, ordering="none"))
        bench.wait_ended(*numbered("a", range(40)))
        bench.broker.produce("orders", 0, *numbered("b", range(20)))
        bench.wait_running("b0", "b1")
        workers = family_of(member)._parts.workers
        bench.wait(lambda: workers.outstanding == given, "as many jobs are not given")
        polled = family_of(member)._parts.meter.polled
        bench.broker.produce("orders", 0, *numbered("c", range(20)))
        bench.wait(lambda: family_of(member)._parts.meter.polled == polled + 20)
        bench.wait(lambda: in_process(member, 0) == 40)
        assert workers.outstanding == given
        bench.work.let_go()
        bench.wait_ended(*numbered("c", range(20)))


def test_what_was_given_while_calls_were_short_waits_for_its_turn_once_they_are_long() -> None:
    with Bench(orders=1, payments=1) as bench:
        backlog = numbered("b", range(20))
        bench.work.hold(*backlog[:4])
        bench.broker.produce("orders", 0, *numbered("a", range(40)))
        member = bench.member(settings=Settings(workers=4, ordering="none"), start=False)
        member.app.handler("payments", name="payments")(lambda record: bench.work.do("a", record))
        member.start()
        bench.wait_ended(*numbered("a", range(40)))
        bench.broker.produce("orders", 0, *backlog)
        workers = family_of(member)._parts.workers
        bench.wait(lambda: in_process(member, 0) == len(backlog))
        bench.wait(lambda: workers.outstanding == 4, "the jobs in hand are not taken back")
        bench.broker.produce("payments", 0, "fresh")
        bench.wait(lambda: in_process(member, 0, "payments") == 1)
        bench.work.let_go()
        bench.wait_ended("fresh", *backlog)
    after = [seen.value for seen in bench.work.started if seen.value[0] != "a"]
    assert after.index("fresh") <= 5
    assert len(after) == len(backlog) + 1


def test_the_first_pause_comes_early_and_each_further_one_at_four_times_as_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.plugin.engine.flow.intake._EARLY", 40)
    monkeypatch.setattr("holdfast.plugin.engine.loop.LATE_S", 0.0)  # else much may come in one turn
    monkeypatch.setattr("holdfast.plugin.engine.partition.partitioned._TEND_S", 0.0)  # and between two looks
    with Bench(orders=2) as bench:
        backlog = numbered("a", range(600))
        bench.work.hold(backlog[0])
        member = bench.member(settings=Settings(workers=1, max_in_flight=100, poll_batch=10))
        bench.wait(lambda: len(member.owns) == 2)
        pause, waited = member.source.pause, list[int]()

        def paused(partitions: Collection[Partition]) -> None:
            if partition() in partitions:
                waited.append(family_of(member)._parts.intake.waiting.records_of(partition()))
            pause(partitions)

        member.source.pause = paused  # type: ignore[method-assign]
        bench.broker.produce("orders", 0, *backlog)
        bench.wait(lambda: member.source.readers[partition()].paused, "it is not paused")
        bench.work.let_go()
        bench.wait_ended(*backlog)
    first, second = waited[:2]
    assert 40 <= first < 160 <= 4 * first <= second
    assert set(bench.work.starts().values()) == {1}
