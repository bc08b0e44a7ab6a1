"""`workers=0`: handlers run in the thread that polls, and all that is promised holds."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Settings
from holdfast.errors import SettingError
from holdfast.plugin.events import RebalanceReport
from tests.harness.engine import QUICK, Bench, Letters, Member, numbered, partition

if TYPE_CHECKING:
    from holdfast.plugin.settings import Ordering
    from holdfast.records import Record


def inline(ordering: Ordering = "key") -> Settings:
    return Settings(workers=0, ordering=ordering, commit_interval_s=0.005)


@pytest.mark.parametrize("batch", [None, BatchOf(records=30, wait_s=0.01)])
def test_handlers_run_in_the_thread_that_runs_the_app(batch: BatchOf | None) -> None:
    with Bench(orders=2) as bench:
        threads: set[str] = set()
        bench.work.look = lambda _: threads.add(threading.current_thread().name)
        for number in range(2):
            bench.broker.produce("orders", number, *numbered("ab"[number], range(300)), key="k")

        def handle(records: Any) -> None:
            for record in records if batch else [records]:
                bench.work.do("a", record)

        bench.member(settings=inline(), handler=handle, batch=batch)
        bench.wait_committed(300, 0)
        bench.wait_committed(300, 1)
        assert threads == {"member-a"}
        assert bench.work.most_running == 1
        assert set(bench.work.times().values()) == {1}
        assert len(bench.work.times()) == 600


@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
def test_what_fails_is_tried_again_and_only_its_lane_waits(ordering: Ordering) -> None:
    with Bench() as bench:
        failed: list[int] = []

        def handle(record: Record) -> None:
            enough = len(failed) == 2 if ordering == "partition" else "b7" in bench.work.values()
            if record.value == b"a3" and not enough:
                failed.append(record.offset)
                raise ValueError("not yet")
            bench.work.do("a", record)

        for prefix in "ab":
            bench.broker.produce("orders", 0, *numbered(prefix, range(8)), key=prefix)
        bench.member(settings=inline(ordering), handler=handle, retry=replace(QUICK, attempts=100_000))
        bench.wait_committed(16)
        a, b = numbered("a", range(8)), numbered("b", range(8))
        ended = bench.work.values()
        assert sorted(ended) == sorted([*a, *b])
        if ordering == "partition":
            assert ended == [*a, *b]
        else:
            assert ended.index("b7") < ended.index("a3")
        if ordering == "key":
            assert [value for value in ended if value in a] == a


def test_a_record_that_fails_for_good_goes_to_the_dead_letter_from_another_thread() -> None:
    with Bench() as bench:
        letters = Letters(bench.changed)
        bench.work.fail("a1", *[ValueError("always")] * 9)
        bench.broker.produce("orders", 0, *numbered("a", range(4)), key="a")
        letters.hold()
        bench.member(settings=inline(), dead_letters=letters, dead_letter="dlq")
        bench.wait_ended("a0")
        bench.broker.produce("orders", 0, "b0", key="b")
        bench.wait_ended("b0")  # the letter waits for its broker, the loop does not
        assert bench.group.offset(partition()) in (None, 0, 1)
        letters.let_go()
        bench.wait_committed(5)
        assert letters.values() == ["a1"]


def test_a_hand_over_finds_nothing_running(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.plugin.engine.loop.LATE_S", 0.0)  # a poll after each record
    with Bench(orders=2) as bench:
        bench.work.hold("a25")
        bench.broker.produce("orders", 0, *numbered("a", range(50)))
        bench.broker.produce("orders", 1, *numbered("b", range(50)))
        first = bench.member("a", settings=inline())
        bench.wait_running("a25")
        second = bench.member("b", settings=inline())
        bench.wait(lambda: len(bench.group.members) == 2)
        assert first.owns == {partition(0), partition(1)}  # its thread is in the handler
        bench.work.let_go()
        bench.wait(lambda: second.owns)
        bench.wait_committed(50, 0)
        bench.wait_committed(50, 1)
        [report] = [each for each in first.told(RebalanceReport) if each.given]
        assert report.abandoned == 0  # drained are those that have ended, and are not marked yet
        assert report.handed_back > 0
        assert {seen.member for seen in bench.work.ended} == {"a", "b"}
    assert set(bench.work.times().values()) == {1}
    assert len(bench.work.times()) == 100


def test_a_coroutine_or_a_timeout_is_refused_with_the_remedy() -> None:
    with Bench() as bench:

        async def handle(_: object) -> None: ...

        with pytest.raises(SettingError, match=r"workers=0: .* needs workers=1 or more"):
            bench.member(settings=inline(), handler=handle, start=False)
        with pytest.raises(SettingError, match="timeout_s=3: use workers=1 or more"):
            bench.member(settings=inline(), timeout_s=3, start=False)


@pytest.mark.parametrize("batch", [None, BatchOf(records=30, wait_s=0.01)])
@pytest.mark.parametrize("ordering", ["key", "partition"])
def test_ctrl_c_in_a_handler_is_no_failure_of_its_record(batch: BatchOf | None, ordering: Ordering) -> None:
    with Bench() as bench:
        letters = Letters(bench.changed)
        struck: list[int] = []

        def handle(records: Any) -> None:
            for record in records if batch else [records]:
                if record.value == b"x5" and not struck:
                    struck.append(record.offset)
                    raise KeyboardInterrupt
                bench.work.do("a", record)

        def member(name: str) -> Member:
            return bench.member(
                name,
                settings=inline(ordering),
                handler=handle,
                batch=batch,
                dead_letter="orders.dlq",
                dead_letters=letters,
            )

        bench.broker.produce("orders", 0, *numbered("x", range(10)), key="k")
        with pytest.raises(KeyboardInterrupt):
            member("a").join()
        assert bench.group.offset(partition()) == (0 if batch else 5)
        # It was given back, not kept: the next start has it at once.
        member("b")
        bench.wait_committed(10)
        assert letters.values() == []
        assert bench.work.times().keys() == set(numbered("x", range(10)))
