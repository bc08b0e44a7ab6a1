"""`record.fence` in a sink's hands: which numbers compare, and what becomes of a record that a sink has refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast import MemoryClaims, Settings, Unretriable
from tests.harness.engine import Bench, FlakyClaims, Letters
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.records import Record

SETTINGS = Settings(workers=4, commit_interval_s=0.01)


class FormerOwner(Unretriable):
    """A sink says so."""


class _Sink:
    """The highest epoch of each partition; writes of lower ones are refused."""

    def __init__(self) -> None:
        self.highest: dict[object, int] = {}
        self.written: list[str] = []

    def write(self, record: Record) -> None:
        epoch = record.fence.epoch
        if epoch < self.highest.get(record.partition, 0):
            raise FormerOwner(f"{record.partition}: epoch {epoch}, but {self.highest[record.partition]} has written")
        self.highest[record.partition] = epoch
        self.written.append((record.value or b"").decode())


class TestWhoIsRefusedByTheSink:
    """A zombie hears of its loss from the sink before its own loop has looked at the clock."""

    def refused(self, letters: Letters | None, dead_letter: str | None) -> tuple[Bench, _Sink]:
        bench, sink = Bench(), _Sink()
        if letters is not None:
            letters.changed = bench.changed
        first = [True]

        def handle(record: Record) -> None:
            with bench.changed:
                mine, first[0] = first[0], False
            if mine:  # another member has taken over and has written, while this process stood still
                sink.highest[record.partition] = record.fence.epoch + 1
                assert isinstance(bench.claims, MemoryClaims)
                bench.expire(member)
            try:
                sink.write(record)
            except FormerOwner:
                sink.highest.clear()  # of the next session's fence nobody is to be in doubt here
                raise

        with bench:
            bench.broker.produce("orders", 0, "x0")
            member = bench.member(
                settings=SETTINGS, handler=handle, dead_letters=letters, dead_letter=dead_letter, start=False
            )
            member.start()
            bench.wait_committed(1)
        return bench, sink

    def test_it_goes_on_as_a_member_and_does_not_stop_for_that(self) -> None:
        _, sink = self.refused(None, None)  # leaving the bench raises what the app raised
        assert sink.written == ["x0"]

    def test_it_writes_no_dead_letter_for_what_is_another_members_now(self) -> None:
        letters = Letters(None)  # type: ignore[arg-type]
        _, sink = self.refused(letters, "orders.dlq")
        assert (sink.written, letters.sent) == (["x0"], [])

    def test_a_handler_that_outlives_its_drain_is_refused_too_and_the_new_owner_handles_its_record(self) -> None:
        sink = _Sink()

        def handler_of(name: str) -> Callable[[Record], None]:
            def handle(record: Record) -> None:
                bench.work.do(name, record)
                sink.write(record)

            return handle

        with Bench() as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, "x0", key="k")
            settings = replace(SETTINGS, drain_timeout_s=0.01, linger_timeout_s=PATIENCE_S)
            a = bench.member("a", settings=settings, handler=handler_of("a"))
            bench.wait_running("x0")
            a.app.stop()
            bench.member("b", settings=settings, handler=handler_of("b"))
            bench.broker.produce("orders", 0, "x1", key="another")
            bench.wait_ended("x1")
            bench.wait(lambda: sink.written == ["x1"])
            bench.work.let_go()
            bench.wait_committed(2)
            a.join()
        assert sink.written == ["x1", "x0"]


class TestNumbers:
    def test_without_a_store_there_is_no_fence_rather_than_a_count_of_this_process(self) -> None:
        """Two processes that each count from 1 would have a sink refuse whoever has counted less."""
        epochs: list[int] = []
        with Bench() as bench:
            bench.broker.produce("orders", 0, "x0")
            bench.member(claims=None, settings=SETTINGS, handler=lambda record: epochs.append(record.fence.epoch))
            bench.wait_committed(1)
        assert epochs == [0]

    def test_what_is_owned_by_choice_without_the_store_has_no_fence(self) -> None:
        epochs: list[int] = []
        store = FlakyClaims()
        store.go_down()
        with Bench(claims=store) as bench:
            bench.broker.produce("orders", 0, "x0")
            bench.member(
                settings=replace(SETTINGS, store_down="open"),
                handler=lambda record: epochs.append(record.fence.epoch),
            )
            bench.wait_committed(1)
        assert epochs == [0]

    def test_each_owner_has_a_higher_one_than_the_last_also_where_the_store_begins_anew(self) -> None:
        epochs: list[int] = []
        for _ in range(2):
            with Bench() as bench:  # the second one's store knows nothing
                for number in range(3):
                    bench.broker.produce("orders", 0, f"x{number}")
                    member = bench.member(
                        f"m{number}", settings=SETTINGS, handler=lambda record: epochs.append(record.fence.epoch)
                    )
                    bench.wait_committed(number + 1)
                    member.stop()
        assert epochs == sorted(set(epochs))
        assert len(epochs) == 6
