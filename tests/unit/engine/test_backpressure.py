"""What is taken in is bounded; polling goes on; one that is stuck stops nobody else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Settings
from tests.harness.engine import Bench, numbered, partition

if TYPE_CHECKING:
    from tests.harness.engine import Member

#: What a partition may have in the process beyond the bound, so that membership and others go on (see intake.py).
GUARANTEED = 64


def in_flight(member: Member) -> int:
    engine = member.app._engine
    assert engine is not None
    return engine.parts.intake.records


class Most:
    """The most records that were in the process at once."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self.records = 0
        self.bytes = 0

    def look(self) -> None:
        engine = self._member.app._engine
        if engine is not None:
            self.records = max(self.records, engine.parts.intake.records)
            self.bytes = max(self.bytes, engine.parts.intake.bytes)


def watch(member: Member) -> Most:
    """Looked at in every poll, where the intake is at its fullest."""
    most = Most(member)
    poll = member.source.poll

    def looked(max_records: int, timeout_s: float) -> object:
        most.look()
        batch = poll(max_records, timeout_s)
        most.look()
        return batch

    member.source.poll = looked  # type: ignore[assignment,method-assign]
    return most


@pytest.fixture
def no_jam(monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the machine stands still: handlers keep up."""
    monkeypatch.setattr("holdfast.plugin.engine.flow.intake._GRACE_S", 3600.0)


class TestBounds:
    @pytest.mark.usefixtures("no_jam")
    def test_records_in_the_process_stay_within_max_in_flight_while_handlers_keep_up(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(2000)))
            member = bench.member(settings=Settings(workers=2, max_in_flight=50), start=False)
            most = watch(member)
            member.start()
            bench.wait(lambda: len(bench.work.ended) == 2000)
            assert 0 < most.records <= 50

    def test_a_jam_adds_no_more_than_what_a_partition_is_guaranteed(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(2000)))
            bench.work.hold(*numbered("x", range(2000)))
            member = bench.member(settings=Settings(workers=2, max_in_flight=10), start=False)
            most = watch(member)
            member.start()
            bench.wait(lambda: bool(member.source.readers) and member.source.readers[partition()].paused)
            polls = member.source.polls
            bench.wait(lambda: member.source.polls > polls + 20)
            assert most.records <= 10 + GUARANTEED
            bench.work.let_go()
            bench.wait(lambda: len(bench.work.ended) == 2000)

    @pytest.mark.usefixtures("no_jam")
    def test_bytes_are_bounded_too(self) -> None:
        with Bench() as bench:
            for number in range(300):
                bench.broker.produce("orders", 0, f"{number}" + "x" * 1000)
            settings = Settings(workers=2, max_in_flight_bytes=20_000, poll_batch=10)
            member = bench.member(settings=settings, start=False)
            most = watch(member)
            member.start()
            bench.wait(lambda: len(bench.work.ended) == 300)
            assert 0 < most.bytes <= 20_000 + 10 * 1003

    def test_nothing_is_counted_any_more_when_all_is_done(self) -> None:
        with Bench(orders=3) as bench:
            for number in range(3):
                bench.broker.produce("orders", number, *numbered("x", range(100)))
            member = bench.member(settings=Settings(max_in_flight=40, commit_interval_s=0.01))
            bench.wait(lambda: len(bench.work.ended) == 300)
            bench.wait(lambda: in_flight(member) == 0)
            engine = member.app._engine
            assert engine is not None
            assert engine.parts.intake.bytes == 0
            bench.wait(lambda: len(engine.parts.lanes) == 0)


class TestWhileFull:
    def test_polling_goes_on_and_a_rebalance_is_answered(self) -> None:
        with Bench(orders=2) as bench:
            for number in range(2):
                bench.broker.produce("orders", number, *numbered(f"{number}x", range(500)))
            bench.work.hold(*numbered("0x", range(500)), *numbered("1x", range(500)))
            settings = Settings(workers=2, max_in_flight=20, drain_timeout_s=0.01)
            first = bench.member("a", settings=settings)
            bench.wait(lambda: first.source.readers and all(each.paused for each in first.source.readers.values()))
            second = bench.member("b", settings=settings)
            bench.wait(lambda: len(second.owns) == 1)
            bench.wait(lambda: len(first.owns) == 1)
            bench.work.let_go()
            bench.wait(lambda: len(set(bench.work.values())) == 1000)
        assert set(bench.work.starts().values()) == {1}

    def test_a_partition_whose_records_all_wait_does_not_stop_the_others(self) -> None:
        with Bench(orders=2) as bench:
            bench.work.hold("0x0")
            bench.broker.produce("orders", 0, *numbered("0x", range(300)), key="one")
            bench.broker.produce("orders", 1, *numbered("1x", range(300)), key="two")
            bench.member(settings=Settings(workers=4, max_in_flight=20, poll_batch=20))
            bench.wait_ended(*numbered("1x", range(300)))
            assert bench.work.starts()["0x1"] == 0
            bench.work.let_go()
            bench.wait_ended(*numbered("0x", range(300)))

    def test_what_ends_without_an_acknowledgement_is_bounded_by_mark_batch(self) -> None:
        from tests.harness.engine import FlakyClaims  # noqa: PLC0415

        store = FlakyClaims()
        with Bench(claims=store) as bench:
            bench.member(settings=Settings(workers=2, mark_batch=5))
            bench.broker.produce("orders", 0, "first")
            bench.wait_committed(1)
            store.go_down(["mark"])
            bench.broker.produce("orders", 0, *numbered("x", range(300)))
            bench.wait(lambda: store.calls["mark"] > 3)
            assert len(bench.work.started) <= 1 + 2 + 5
            store.come_back()
            bench.wait(lambda: len(bench.work.ended) == 301)
        assert set(bench.work.starts().values()) == {1}
