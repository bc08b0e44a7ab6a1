"""Committed offsets that are not what this group left behind; logs that change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import MemoryClaims, Settings
from holdfast.dedup.claims import Acquired, Drop
from holdfast.errors import NotAuthorised, SourceFatal, SourceUnavailable, UnknownTopic
from holdfast.plugin.events import (
    AdvanceIgnored,
    CommitOverwritten,
    LogWentBack,
    RecordsExpired,
    ResetHonoured,
    RewindIgnored,
    SourceTrouble,
)
from holdfast.plugin.ports import CommitFate
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Bench, FlakyClaims, Member, numbered, partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.errors import SourceError
    from holdfast.records import Partition
    from holdfast.timing import Deadline

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
P0 = partition()


def handled(bench: Bench, *values: str) -> None:
    bench.broker.produce("orders", 0, *values)
    member = bench.member("before", settings=SETTINGS)
    bench.wait_committed(len(values))
    member.stop()


class TestResets:
    def test_a_foreign_offset_wins_and_what_lies_behind_runs_again(self) -> None:
        with Bench() as bench:
            handled(bench, *numbered("x", range(5)))
            bench.group.set_offset(P0, 3)
            member = bench.member(settings=SETTINGS)
            bench.wait(lambda: len(bench.work.ended) == 7)
            bench.wait_committed(5)
            assert member.told(ResetHonoured) == [ResetHonoured(partition=P0, offset=3, watermark=5)]
        assert bench.work.times() == {"x0": 1, "x1": 1, "x2": 1, "x3": 2, "x4": 2}

    def test_it_is_adopted_by_a_commit_of_ours_before_anything_runs(self) -> None:
        with Bench() as bench:
            handled(bench, *numbered("x", range(5)))
            bench.group.set_offset(P0, 3)
            marks: list[tuple[Any, ...] | None] = []
            begin = bench.work.begin

            def looked(seen: object) -> None:
                found = bench.group.committed.get(P0)
                marks.append(found and found[:2])
                begin(seen)  # type: ignore[arg-type]

            bench.work.begin = looked  # type: ignore[method-assign]
            bench.member(settings=SETTINGS)
            bench.wait(lambda: len(bench.work.ended) == 7)
        assert marks
        assert all(mark is not None and mark[1] for mark in marks)

    def test_a_skip_forward_is_honoured_too(self) -> None:
        with Bench() as bench:
            handled(bench, *numbered("x", range(2)))
            bench.broker.produce("orders", 0, *numbered("y", range(4)))
            bench.group.set_offset(P0, 4)
            bench.member(settings=SETTINGS)
            bench.wait_committed(6)
        assert sorted(bench.work.values()) == ["x0", "x1", "y2", "y3"]

    def test_a_group_that_holdfast_meets_for_the_first_time_goes_on_where_it_stands(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            bench.group.set_offset(P0, 3)
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(5)
            assert member.told(ResetHonoured) == []
        assert sorted(bench.work.values()) == ["x3", "x4"]

    def test_handlers_of_former_owners_are_not_waited_for_from_a_reset_on(self) -> None:
        with Bench() as bench:
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(3)), key="k")
            bench.member("a", settings=Settings(commit_interval_s=0.01, drain_timeout_s=0.02))
            bench.wait_running("x1")
            second = bench.member("b", settings=SETTINGS)
            bench.group.aim({})
            bench.wait(lambda: bench.group.owners == {})
            bench.group.set_offset(P0, 1)
            bench.group.aim({second.source: [P0]})
            bench.wait(lambda: any(seen.member == "b" for seen in bench.work.running))
            bench.work.let_go()
            bench.wait_committed(3)
        assert bench.work.starts() == {"x0": 1, "x1": 2, "x2": 1}


class TestRewinds:
    def test_an_older_commit_of_ours_makes_nothing_run_again_and_is_corrected(self) -> None:
        with Bench() as bench:
            handled(bench, *numbered("x", range(5)))
            bench.group.set_offset(P0, 2, ours=True)
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(5)
            assert member.told(RewindIgnored) == [RewindIgnored(partition=P0, offset=2, watermark=5)]
            bench.broker.produce("orders", 0, "next")
            bench.wait_committed(6)
        assert set(bench.work.times().values()) == {1}

    def test_no_committed_offset_while_positions_live_on_is_read_as_ours(self) -> None:
        with Bench() as bench:
            handled(bench, *numbered("x", range(5)))
            bench.group.set_offset(P0, None)
            bench.member(settings=SETTINGS)
            bench.wait_committed(5)
        assert set(bench.work.times().values()) == {1}

    def test_what_was_done_above_the_watermark_is_not_run_again(self) -> None:
        with Bench() as bench:
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(6)))
            first = bench.member("a", settings=Settings(commit_interval_s=0.01, drain_timeout_s=0.02))
            bench.wait(lambda: bench.position() == (1, {2, 3, 4, 5}))
            bench.member("b", settings=SETTINGS)
            first.app.stop()
            bench.work.let_go()
            bench.wait_committed(6)
        assert set(bench.work.starts().values()) == {1}


class Markless(MemoryPartitionedSource):
    """A broker whose commits carry no mark."""

    marked = False


class FromTheEnd(MemoryPartitionedSource):
    """Where the group has no offset it begins at the end, as auto.offset.reset=latest says."""

    def first_offsets(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, int | SourceError]:
        return self.last_offsets(partitions, deadline)


class Nowhere(MemoryPartitionedSource):
    """Where the group has no offset it is not to begin, as auto.offset.reset=error says."""

    def first_offsets(
        self, partitions: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, int | SourceError]:
        raise SourceFatal("the group has no offset, and none is to be chosen")


class MarklessFromTheEnd(Markless, FromTheEnd):
    pass


SOURCES = [FromTheEnd, MarklessFromTheEnd, Nowhere]


class TestOffsetsThatExpired:
    """A group that stands at 0 has begun there. What came while its offsets expired is not old."""

    @pytest.mark.parametrize("source", SOURCES)
    def test_a_partition_that_never_had_a_record_is_read_from_its_first(
        self, source: type[MemoryPartitionedSource]
    ) -> None:
        with Bench() as bench:
            first = bench.member("before", settings=SETTINGS, source=MemoryPartitionedSource)
            bench.wait_committed(0)
            first.stop()
            bench.group.set_offset(P0, None)
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            bench.member(settings=SETTINGS, source=source)
            bench.wait_committed(3)
        assert sorted(bench.work.values()) == ["x0", "x1", "x2"]

    @pytest.mark.parametrize("source", SOURCES)
    @pytest.mark.parametrize("stood_at", [0, 2])
    def test_also_where_nothing_was_handled_since_the_store_was_emptied(
        self, source: type[MemoryPartitionedSource], stood_at: int
    ) -> None:
        """The owner knew it by the committed offset alone."""
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(stood_at)))
            bench.group.set_offset(P0, stood_at, ours=True)
            first = bench.member("before", settings=SETTINGS)
            bench.wait(lambda: first.owns)
            first.stop()
            bench.group.set_offset(P0, None)
            bench.broker.produce("orders", 0, *numbered("y", range(2)))
            bench.member(settings=SETTINGS, source=source)
            bench.wait_committed(stood_at + 2)
        assert sorted(bench.work.values()) == ["y0", "y1"]

    @pytest.mark.parametrize("source", SOURCES)
    def test_also_where_its_owner_died_before_the_broker_had_its_first_commit(
        self, source: type[MemoryPartitionedSource]
    ) -> None:
        with Bench() as bench:
            bench.group.refuse(P0, *[CommitFate.AGAIN] * 1000)
            first = bench.member("before", settings=SETTINGS)
            bench.wait(lambda: bench.group.attempts)
            first.stop()
            bench.group._refusals.clear()
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            bench.member(settings=SETTINGS, source=source)
            bench.wait_committed(3)
        assert sorted(bench.work.values()) == ["x0", "x1", "x2"]

    def test_the_store_is_told_before_the_partition_is_owned(self) -> None:
        store = FlakyClaims()
        store.lose_request("mark", 2)
        with Bench(claims=store) as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            bench.group.set_offset(P0, 1, ours=True)
            owned: list[bool] = []
            bench.work.look = lambda _: owned.append(store.spent)
            bench.member(settings=SETTINGS)
            bench.wait_committed(3)
        assert owned == [True, True]

    @pytest.mark.parametrize("source", [FromTheEnd, MarklessFromTheEnd])
    def test_who_dies_before_the_group_has_begun_leaves_that_to_the_next(
        self, source: type[MemoryPartitionedSource]
    ) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("old", range(3)))
            claims = bench.claims
            assert isinstance(claims, MemoryClaims)
            session = claims.begin(60.0)
            session.acquire(["g/orders/1/0"])
            session.end()
            member = bench.member(settings=SETTINGS, source=source)
            bench.wait(lambda: member.owns)
            bench.broker.produce("orders", 0, "new")
            bench.wait_committed(4)
        assert bench.work.values() == ["new"]


class TestBrokersWithoutMarks:
    def test_what_is_done_wins_over_a_committed_offset_in_either_direction(self) -> None:
        kind: type[RewindIgnored | AdvanceIgnored]
        for found, kind in ((2, RewindIgnored), (9, AdvanceIgnored)):
            with Bench() as bench:
                handled(bench, *numbered("x", range(5)))
                bench.broker.produce("orders", 0, *numbered("y", range(5)))
                bench.group.set_offset(P0, found, ours=True)
                member = bench.member(settings=SETTINGS, source=Markless)
                bench.wait_committed(10)
                assert [(event.offset, event.watermark) for event in member.told(kind)] == [(found, 5)]
            assert set(bench.work.times().values()) == {1}
            assert len(bench.work.ended) == 10

    @pytest.mark.parametrize("found", [4, None], ids=["a late commit of a member that is gone", "it has expired"])
    def test_after_a_reset_to_the_first_record_that_is_what_is_known(self, found: int | None) -> None:
        """The watermark is 0, as where nobody has read anything; the group begins at the end where that is so."""
        with Bench() as bench:
            handled(bench, *numbered("x", range(5)))
            claims = bench.claims
            assert isinstance(claims, MemoryClaims)
            session, name = claims.begin(60.0), "g/orders/1/0"
            [acquired] = session.acquire([name])
            assert isinstance(acquired, Acquired)
            assert session.drop([Drop(name, acquired.epoch, 0)]) == [True]
            session.end()
            bench.group.set_offset(P0, found, ours=True)
            bench.member(settings=SETTINGS, source=MarklessFromTheEnd)
            bench.wait_committed(5)
        assert set(bench.work.times().values()) == {2}

    def test_of_many_partitions_all_begin_in_one_call(self) -> None:
        """A call each would take a rebalance as long as a thousand round trips."""
        store = FlakyClaims()
        with Bench(orders=20, claims=store) as bench:
            bench.broker.produce("orders", 0, "x")
            bench.member(settings=SETTINGS)
            bench.wait_committed(1)
        assert store.calls["drop"] == 1

    def test_where_nothing_is_known_the_group_goes_on_from_what_is_committed(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            bench.group.set_offset(P0, 3, ours=True)
            member = bench.member(settings=SETTINGS, source=Markless)
            bench.wait_committed(5)
            assert member.told(AdvanceIgnored) == []
        assert sorted(bench.work.values()) == ["x3", "x4"]

    def test_a_reset_that_the_broker_tells_of_is_honoured_while_running(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS, source=Markless)
            bench.wait_committed(5)
            member.source.news.append(lambda listener: listener.reset(P0, 3))
            bench.wait(lambda: len(bench.work.ended) == 7)
            bench.wait_committed(5)
            assert member.told(ResetHonoured) == [ResetHonoured(partition=P0, offset=3, watermark=5)]
        assert bench.work.times() == {"x0": 1, "x1": 1, "x2": 1, "x3": 2, "x4": 2}

    def test_a_record_that_runs_when_the_broker_tells_of_a_reset_runs_again(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(3)), key="k")
            bench.work.hold("x1")
            member = bench.member(settings=SETTINGS, source=Markless)
            bench.wait_running("x1")
            member.source.news.append(lambda listener: listener.reset(P0, 0))
            bench.wait(lambda: member.told(ResetHonoured))
            bench.work.let_go()
            bench.wait_committed(3)
        assert bench.work.starts() == {"x0": 2, "x1": 2, "x2": 1}

    def test_a_log_that_ends_before_what_was_read_is_told_and_read_from_where_it_begins(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS, source=Markless)
            bench.wait_committed(5)
            bench.broker.cut("orders", 0, 0)
            bench.broker.produce("orders", 0, *numbered("y", range(3)))
            member.source.news.append(lambda listener: listener.reset(P0, 0, cut=True))
            bench.wait_committed(3)
            assert LogWentBack(partition=P0, offset=0, expected=5) in member.told(LogWentBack)
        assert set(bench.work.times().values()) == {1}

    def test_a_commit_that_is_not_ours_is_told_of_and_replaced(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS, source=Markless)
            bench.wait_committed(5)
            bench.wait(lambda: not member.source.news)
            for found in (2, 9):
                bench.group.set_offset(P0, found)
                told = len(member.told(CommitOverwritten))
                bench.wait(lambda told=told, found=found: _tell(member, found, told))  # type: ignore[misc]
                bench.wait_committed(5)
        assert [event.offset for event in member.told(CommitOverwritten)] == [2, 9]
        assert {event.committed for event in member.told(CommitOverwritten)} == {5}


def _tell(member: Member, offset: int, told: int) -> bool:
    """Until the engine has no commit under way, and takes the word."""
    if len(member.told(CommitOverwritten)) > told:
        return True
    if not member.source.news:
        member.source.news.append(lambda listener: listener.overwritten(P0, offset))
    return False


class TestOnePartitionInTrouble:
    """What is wrong with one topic or partition keeps no other from being taken over."""

    @pytest.mark.parametrize("step", ["position_names", "committed", "first_offsets"])
    @pytest.mark.parametrize("error", [UnknownTopic("gone: no such topic"), SourceUnavailable("no leader")])
    def test_it_waits_alone_is_told_of_once_and_goes_on_when_it_can(self, step: str, error: SourceError) -> None:
        healed: list[bool] = []
        bad = partition(0, "bad")

        def answer(self: Any, asked: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Any]:
            found = getattr(MemoryPartitionedSource, step)(self, asked, deadline)
            return found if healed else {**found, **dict.fromkeys({bad} & set(asked), error)}

        troubled: Any = type("Troubled", (MemoryPartitionedSource,), {step: answer})
        with Bench(orders=2, bad=1) as bench:
            for topic, number in (("orders", 0), ("orders", 1), ("bad", 0)):
                bench.broker.produce(topic, number, f"{topic}{number}")
            member = bench.member(settings=SETTINGS, source=troubled, topics=("orders", "bad"))
            bench.wait_committed(1, 0)
            bench.wait_committed(1, 1)
            assert member.owns == {partition(0), partition(1)}
            [told] = member.told(SourceTrouble)
            assert str(bad) in told.error
            assert str(error) in told.error
            healed.append(True)
            bench.wait_committed(1, 0, "bad")
            assert len(member.told(SourceTrouble)) == 1
        assert set(bench.work.starts().values()) == {1}

    def test_a_right_that_is_taken_away_for_a_while_does_not_stop_an_app_that_was_let_in(self) -> None:
        with Bench(orders=1) as bench:
            member = bench.member(settings=SETTINGS, start=False)
            member.source.fail("committed", *[NotAuthorised("not any more")] * 2)
            bench.broker.produce("orders", 0, "x")
            member.start()
            bench.wait_committed(1)
            assert member.source.failing("committed") == 0


class TestSeveralBrokers:
    def test_what_one_of_them_does_not_answer_keeps_nothing_else_from_being_taken_over(self) -> None:
        silent = {"committed", "first"}

        class Several(MemoryPartitionedSource):
            def committed(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Any]:
                asked = [each for each in partitions if each != P0 or "committed" not in silent]
                return super().committed(asked, deadline)

            def first_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, Any]:
                asked = [each for each in partitions if each != P0 or "first" not in silent]
                return super().first_offsets(asked, deadline)

        with Bench(orders=2) as bench:
            bench.broker.produce("orders", 0, "x")
            bench.broker.produce("orders", 1, "y")
            member = bench.member(settings=SETTINGS, source=Several)
            bench.wait_committed(1, 1)
            silent.remove("committed")
            bench.broker.produce("orders", 1, "z")
            bench.wait_committed(2, 1)
            assert member.owns == {partition(1)}
            silent.clear()
            bench.wait_committed(1)
        assert sorted(bench.work.values()) == ["x", "y", "z"]


class TestRetention:
    """The log deletes records that the group has not read."""

    def test_what_was_deleted_unread_is_told(self) -> None:
        with Bench() as bench:
            handled(bench, *numbered("x", range(5)))
            bench.broker.produce("orders", 0, *numbered("y", range(10)))
            bench.broker.expire("orders", 0, 12)
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(15)
            assert member.told(RecordsExpired) == [RecordsExpired(partition=P0, first=5, next=12, records=7)]
            assert member.app.snapshot().records.expired == 7

    def test_also_where_the_log_is_empty_now(self) -> None:
        with Bench() as bench:
            handled(bench, *numbered("x", range(5)))
            bench.broker.produce("orders", 0, *numbered("y", range(10)))
            bench.broker.expire("orders", 0, 15)
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(15)
            assert member.told(RecordsExpired) == [RecordsExpired(partition=P0, first=5, next=15, records=10)]

    def test_while_it_is_read(self) -> None:
        with Bench() as bench:
            member = bench.member(settings=SETTINGS)
            bench.broker.produce("orders", 0, "x0")
            bench.wait_committed(1)
            with bench.changed:
                bench.broker.produce("orders", 0, *numbered("x", range(1, 9)))
                bench.broker.expire("orders", 0, 6)
            bench.wait_committed(9)
            assert member.told(RecordsExpired) == [RecordsExpired(partition=P0, first=1, next=6, records=5)]

    def test_a_log_that_has_holes_or_forgets_what_was_read_is_none(self) -> None:
        with Bench() as bench:
            handled(bench, *numbered("x", range(5)))
            bench.broker.produce("orders", 0, *numbered("y", range(10)))
            bench.broker.compact("orders", 0, keep=[9, 12, 14])
            bench.broker.expire("orders", 0, 5)
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(15)
            assert not member.told(RecordsExpired)

    def test_what_a_former_owner_has_done_is_not_unread(self) -> None:
        with Bench() as bench:
            bench.work.hold("x5")
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            first = bench.member("a", settings=Settings(workers=4, commit_interval_s=0.01, drain_timeout_s=0.02))
            bench.wait(lambda: bench.position() == (5, {6, 7, 8, 9}))
            bench.broker.produce("orders", 0, *numbered("y", range(10)))
            bench.broker.expire("orders", 0, 15)
            second = bench.member("b", settings=SETTINGS, start=False)
            with bench.changed:
                bench.group.aim({second.source: [P0]})
                second.start()
            bench.wait_committed(20)
            bench.work.let_go()
            told = {*first.told(RecordsExpired), *second.told(RecordsExpired)}  # either may come to it, or both
            assert told
            assert told <= {
                RecordsExpired(partition=P0, first=5, next=15, records=6),  # what is in hand may have to run again
                RecordsExpired(partition=P0, first=10, next=15, records=5),  # the first one had read on to there
            }


class TestLogs:
    def test_a_log_that_goes_back_is_told_and_read_again_from_there(self) -> None:
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(5)
            bench.broker.cut("orders", 0, 0)
            bench.broker.produce("orders", 0, *numbered("y", range(3)))
            bench.wait_ended("y0", "y1", "y2")
            bench.wait_committed(3)
            assert member.told(LogWentBack) == [LogWentBack(partition=P0, offset=0, expected=5)]
        assert set(bench.work.times().values()) == {1}

    def test_one_whose_log_cannot_be_asked_for_holds_up_itself_alone(self) -> None:
        class NoLeader(MemoryPartitionedSource):
            asked = 0

            def last_offsets(self, partitions: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
                if partition(1) in partitions and self.asked < 5:
                    self.asked += 1
                    raise UnknownTopic("orders-1 has no leader")
                return super().last_offsets(partitions, deadline)

        with Bench(orders=2) as bench:
            for number in range(2):
                bench.broker.produce("orders", number, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS, source=NoLeader)
            for number in range(2):
                bench.wait_committed(5, number)
            with bench.broker.changed:  # the client goes back by itself
                for reader in member.source.readers.values():
                    reader.position = 2
            for number in range(2):
                bench.broker.produce("orders", number, "y")
            bench.wait_committed(6, 0)
            bench.wait_committed(6, 1)
            assert any("no leader" in event.error for event in member.told(SourceTrouble))
        assert bench.work.starts() == {**dict.fromkeys(numbered("x", range(5)), 2), "y": 2}

    def test_a_topic_that_was_made_again_begins_anew(self) -> None:
        with Bench() as bench:
            handled(bench, *numbered("x", range(5)))
            bench.broker.delete("orders")
            bench.group.set_offset(P0, None)  # the broker drops it with the topic
            bench.broker.produce("orders", 0, *numbered("y", range(3)))
            bench.member(settings=SETTINGS)
            bench.wait_committed(3)
        assert set(bench.work.times().values()) == {1}
        assert len(bench.work.ended) == 8

    def test_a_client_that_goes_back_by_itself_makes_nothing_run_again(self) -> None:
        """An answer that comes after a seek, a reset after a passing error: the log is what it was."""
        with Bench() as bench:
            bench.broker.produce("orders", 0, *numbered("x", range(50)))
            member = bench.member(settings=SETTINGS)
            bench.wait_committed(50)
            with bench.broker.changed:
                member.source.readers[P0].position = 0
            bench.broker.produce("orders", 0, *numbered("y", range(5)))
            bench.wait_committed(55)
            assert member.told(LogWentBack) == []
        assert set(bench.work.times().values()) == {1}
