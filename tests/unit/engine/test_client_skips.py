"""A client that goes past records: the engine looks twice before it takes a hole for the log's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import MemoryClaims, Settings
from holdfast.errors import SourceUnavailable
from holdfast.plugin.audit.schema import Outcome
from holdfast.plugin.engine.partition import holes
from holdfast.plugin.engine.partition.holes import Holes
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.plugin.engine.partition.ownership import Look, Ownership
from holdfast.plugin.engine.record.recorder import Recorder
from holdfast.plugin.events import ClientSkipped
from holdfast.plugin.ports import End
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.audit_events import MemoryEvents, once
from tests.harness.clocks import HandClock
from tests.harness.engine import Bench, numbered, partition

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.plugin.ports import Batch
    from holdfast.records import Partition
    from holdfast.testing.brokers.kafka_reader import Reader

P0 = partition()
SETTINGS = Settings(workers=4, commit_interval_s=0.01, ordering="partition")


class _Slips:
    """Leaves out what a test says, the first time that it is read."""

    def __init__(self) -> None:
        self.offsets: set[int] = set()

    def rebalanced(self, readers: object) -> None:
        pass

    def resumed(self, reader: object) -> None:
        pass

    def leaves_out(self, partition: Partition, reader: Reader, log: int, offset: int) -> bool:
        slips = partition == P0 and offset in self.offsets
        self.offsets -= {offset} if partition == P0 else set()
        return slips


class Slipping(MemoryPartitionedSource):
    """Beside that it counts seeks after it has begun to read, and refuses or loses those where a test says so."""

    def __init__(self, *args: object, **more: object) -> None:
        super().__init__(*args, **more)  # type: ignore[arg-type]
        self.slips = self.left_out = _Slips()
        self.seeks: list[int | None] = []
        self.refuses = self.has_read = False
        #: So many of its seeks to come are without effect.
        self.lost_seeks = 0

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        batch = super().poll(max_records, timeout_s)
        read = {*(each.partition for each in batch.records), *(each.partition for each in batch.ends)}
        self.has_read = self.has_read or P0 in read
        return batch

    def seek(self, partition: Partition, offset: int | None) -> None:
        if partition == P0 and self.has_read:
            if self.refuses:
                raise SourceUnavailable("not yet")
            self.seeks.append(offset)
            if self.lost_seeks:
                self.lost_seeks -= 1
                return
        super().seek(partition, offset)


def _member(
    bench: Bench, name: str = "a", *, leaves_out: Collection[int] = (), loses: int = 0, **more: object
) -> Slipping:
    member = bench.member(name, settings=SETTINGS, source=Slipping, start=False, **more)  # type: ignore[arg-type]
    source = member.source
    assert isinstance(source, Slipping)
    source.left_out.offsets |= set(leaves_out)
    source.lost_seeks = loses
    member.start()
    return source


def _skipped(bench: Bench) -> list[ClientSkipped]:
    return [each for member in bench.members for each in member.told(ClientSkipped)]


class TestHealed:
    @pytest.mark.parametrize("at", [0, 1, 5, 9])
    def test_what_the_client_leaves_out_is_handled_in_its_turn_and_told(self, at: int) -> None:
        """At the beginning, in the midst, at the end of the log."""
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            _member(bench, leaves_out={at})
            bench.wait_committed(10)
            assert bench.work.values() == numbered("x", range(10))
            assert _skipped(bench) == [ClientSkipped(partition=P0, first=at, next=at + 1, records=1)]
            assert bench.members[0].app.snapshot().records.client_skipped == 1

    def test_several_in_a_row_and_apart(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            source = _member(bench, leaves_out={3, 4, 5})
            bench.wait_committed(10)
            source.left_out.offsets |= {18, 19}
            bench.broker.produce("orders", 0, *numbered("x", range(10, 20)))
            bench.wait_committed(20)
            assert bench.work.values() == numbered("x", range(20))
            assert [(each.first, each.next, each.records) for each in _skipped(bench)] == [(3, 6, 3), (18, 20, 2)]

    def test_nothing_is_committed_behind_it_before(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            source = _member(bench, leaves_out={4})
            source.refuses = True
            bench.wait_committed(4)
            polls = source.polls
            bench.wait(lambda: source.polls > polls + 20)
            assert bench.group.offset(P0) == 4
            assert bench.position()[0] == 4
            source.refuses = False
            bench.wait_committed(10)
            assert bench.work.values() == numbered("x", range(10))

    def test_a_partition_that_goes_meanwhile_takes_its_hole_along(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            source = _member(bench, leaves_out={4})
            source.refuses = True
            bench.wait_committed(4)
            bench.members[0].stop()
            _member(bench, "b")
            bench.wait_committed(10)
            assert bench.work.values() == numbered("x", range(10))
            assert not _skipped(bench)  # nobody had gone past it

    def test_the_audit_has_it_as_skipped_by_the_client_and_as_handled(self) -> None:
        told = MemoryEvents()
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(6)))
            _member(bench, leaves_out={2}, audit=told.audit())
            bench.wait_committed(6)
        assert told.offsets(Outcome.HANDLED) == once(*range(6))
        assert told.offsets(Outcome.CLIENT_SKIPPED) == once(2)
        assert not told.offsets(Outcome.ABSENT)

    def test_an_end_beyond_the_log_is_none(self) -> None:
        """The client's position is one too far, and there is nothing behind it yet."""

        class Beyond(Slipping):
            def poll(self, max_records: int, timeout_s: float) -> Batch:
                batch = super().poll(max_records, timeout_s)
                ends = [End(each.partition, each.offset + (not self.seeks)) for each in batch.ends]
                return batch._replace(ends=ends)

        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member = bench.member(settings=SETTINGS, source=Beyond)
            assert isinstance(member.source, Beyond)
            source = member.source
            bench.wait(lambda: source.seeks == [3])
            polls = source.polls
            bench.wait(lambda: source.polls > polls + 5)  # it was told the true end
            source.left_out.offsets.add(3)
            bench.broker.produce("orders", 0, "x3", "x4")
            bench.wait_committed(5)
            assert bench.work.values() == numbered("x", range(5))
            assert [(each.first, each.records) for each in _skipped(bench)] == [(3, 1)]


class TestHolesOfTheLog:
    def test_a_compacted_log_costs_one_look(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(400)))
            bench.broker.compact("orders", 0, keep=range(1, 400, 2))
            source = _member(bench)
            bench.wait_committed(400)
            assert bench.work.values() == numbered("x", range(1, 400, 2))
            assert source.seeks == [0]
            assert not _skipped(bench)

    def test_markers_at_the_end_cost_one_look(self) -> None:
        with Bench() as bench:
            source = _member(bench)
            for at in range(0, 60, 3):
                with bench.changed:
                    bench.broker.produce("orders", 0, f"x{at}", f"x{at + 1}")
                    bench.broker.leave_out("orders", 0, 1)
                bench.wait_committed(at + 3)
            assert len(bench.work.values()) == 40
            assert source.seeks == [2]

    def test_a_log_that_was_believed_is_looked_at_again_after_each_rebalance(self) -> None:
        with Bench(orders=2) as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            bench.broker.compact("orders", 0, keep=[4, 9])
            source = _member(bench)
            bench.wait_committed(10)
            other = bench.member("b", settings=SETTINGS, start=False)
            bench.group.aim({source: [P0], other.source: [partition(1)]})
            other.start()
            bench.wait(lambda: other.owns == {partition(1)})
            source.left_out.offsets.add(10)
            bench.broker.produce("orders", 0, *numbered("y", range(3)))
            bench.wait_committed(13)
            assert bench.work.values()[2:] == ["y0", "y1", "y2"]
            assert [each.first for each in _skipped(bench)] == [10]

    def test_it_is_looked_at_again_after_a_while(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(holes, "_BELIEVED_S", 0.0)
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(8)))
            bench.broker.compact("orders", 0, keep=[1, 3, 5, 7])
            source = _member(bench)
            bench.wait_committed(8)
            assert source.seeks == [0, 2, 4, 6]

    def test_what_others_have_done_is_no_hole(self) -> None:
        """A former owner has handled what lies in it; of what nobody has, a look is taken."""
        source = MemoryPartitionedSource(MemoryBroker(orders=1))
        looks = Holes(source, Recorder(), lambda _: None, HandClock())
        session = MemoryClaims().begin(10.0)
        for until, passes in ((6, True), (7, False)):
            owner = Ownership(P0, session)
            owner.own(Ledger(2, {2, 3, 4, 5}))
            assert looks.pass_over(owner, until) is passes
            assert owner.second_look == (None if passes else Look(range(2, 7), at_end=False))

    def test_a_source_that_keeps_its_own_books_is_believed(self) -> None:
        class OwnBooks(Slipping):
            gaps_are_the_logs = True

        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(8)))
            bench.broker.compact("orders", 0, keep=[1, 7])
            member = bench.member(settings=SETTINGS, source=OwnBooks)
            bench.wait_committed(8)
            assert isinstance(member.source, OwnBooks)
            assert member.source.seeks == []


class TestASeekWithoutEffect:
    """The client stays where it is, and goes on from there: that is no second look."""

    @pytest.mark.parametrize("at", [0, 3, 9], ids=["the first", "in the midst", "the last"])
    @pytest.mark.parametrize("lost", [1, pytest.param(3, marks=pytest.mark.full)])
    @pytest.mark.parametrize("more", [1, 4], ids=["one record more", "more records"])
    def test_what_was_left_out_is_handled_when_more_comes(self, at: int, lost: int, more: int) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            source = _member(bench, leaves_out={at}, loses=lost)
            for n in range(lost):
                bench.wait(lambda n=n: len(source.seeks) == n + 1)  # type: ignore[misc]
                first = 10 + n * more
                bench.broker.produce("orders", 0, *numbered("x", range(first, first + more)))
            last = 10 + lost * more
            bench.wait_committed(last)
            assert bench.work.values() == numbered("x", range(last))
            assert sum(each.records for each in _skipped(bench)) >= 1

    def test_it_is_sought_again_when_nothing_more_comes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(holes, "_UNHEARD_S", 0.05)
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            source = _member(bench, leaves_out={9}, loses=2)
            bench.wait_committed(10)
            assert bench.work.values() == numbered("x", range(10))
            assert len(source.seeks) == 3

    @pytest.mark.parametrize(
        ("first", "second", "passes"),
        [
            (Look(range(2, 7), at_end=False), Look(range(2, 7), at_end=False), True),
            (Look(range(2, 7), at_end=False), Look(range(2, 6), at_end=False), True),
            (Look(range(2, 7), at_end=False), Look(range(2, 8), at_end=False), False),
            (Look(range(2, 7), at_end=False), Look(range(2, 7), at_end=True), True),  # the record is compacted by now
            (Look(range(2, 7), at_end=False), Look(range(2, 8), at_end=True), False),  # the end behind that record
            (Look(range(2, 7), at_end=True), Look(range(2, 7), at_end=True), True),
            (Look(range(2, 7), at_end=True), Look(range(2, 8), at_end=True), False),
            (Look(range(2, 7), at_end=True), Look(range(2, 6), at_end=False), True),
            (Look(range(2, 7), at_end=True), Look(range(2, 7), at_end=False), False),  # it has come since
        ],
    )
    def test_a_gap_is_confirmed_by_a_client_further_back(self, first: Look, second: Look, *, passes: bool) -> None:
        looks, owner = _looks(2)
        assert not looks.pass_over(owner, first.gap.stop, at_end=first.at_end)
        assert looks.pass_over(owner, second.gap.stop, at_end=second.at_end) is passes
        if not passes:  # another first look: it is confirmed by its like
            assert owner.ledger.watermark == 2
            assert looks.pass_over(owner, second.gap.stop, at_end=second.at_end)

    def test_an_end_that_moves_on_at_each_look_is_believed_in_the_end(self) -> None:
        """Transactions that are aborted, one after the other."""
        looks, owner = _looks(2)
        found = [looks.pass_over(owner, 7 + n, at_end=True) for n in range(7)]
        assert found == [False] * 6 + [True]
        looks, owner = _looks(2)
        assert not any(looks.pass_over(owner, 7 + n) for n in range(20))  # records that go on say the contrary


def _looks(start: int) -> tuple[Holes, Ownership]:
    owner = Ownership(P0, MemoryClaims().begin(10.0))
    owner.own(Ledger(start))
    return Holes(MemoryPartitionedSource(MemoryBroker(orders=1)), Recorder(), lambda _: None, HandClock()), owner


def test_a_look_during_which_the_client_was_moved_begins_anew() -> None:
    """A rebalance comes after the seek: the client may have gone past the record once more."""

    class Twice(Slipping):
        def seek(self, partition: Partition, offset: int | None) -> None:
            super().seek(partition, offset)
            if partition == P0 and len(self.seeks) == 1:
                self.left_out.offsets.add(4)  # it leaves the record out again,
                self.news.append(lambda listener: listener.revoked([]))  # since the group rebalances

    with Bench() as bench:
        bench.broker.produce("orders", 0, *numbered("x", range(10)))
        member = bench.member(settings=SETTINGS, source=Twice, start=False)
        assert isinstance(member.source, Twice)
        member.source.left_out.offsets.add(4)
        member.start()
        bench.wait_committed(10)
        assert bench.work.values() == numbered("x", range(10))
        assert member.source.seeks[:2] == [4, 4]
