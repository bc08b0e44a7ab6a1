"""Handlers of a list."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from holdfast import BatchFailed, BatchOf, KeyBusy, MemoryClaims, Retry, Settings, Skipped, Unretriable, idempotent
from holdfast.errors import HandlerFailed
from holdfast.plugin.events import RecordFailed
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Bench, Letters, numbered, partition
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.records import Record
    from holdfast.runtime import Condition

SETTINGS = Settings(workers=4, commit_interval_s=0.01)


AGAIN = "again-g"
ENDLESS = BatchOf(records=100, wait_s=math.inf)


class Returning(MemoryPartitionedSource):
    """Failed records are brought again in a topic of their own, all of them in one."""

    retry_topic = AGAIN

    def wants(self, topic: str) -> bool:
        return topic == AGAIN or super().wants(topic)


class Batches:
    """A batch handler that remembers, and raises what it was told to, once each."""

    def __init__(self, changed: Condition, *errors: BaseException | None) -> None:
        self._changed, self._errors = changed, list(errors)
        self.got: list[list[str]] = []

    def __call__(self, records: Sequence[Record]) -> None:
        with self._changed:
            self.got.append([(record.value or b"").decode() for record in records])
            self._changed.notify_all()
            error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error


class TestFailedTogether:
    def test_a_batch_that_fails_comes_back_as_one_and_is_told_of_once(self) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed, RuntimeError("one"), RuntimeError("two"))
            bench.broker.produce("orders", 0, *numbered("x", range(20)))
            retry = Retry(attempts=5, wait_initial_s=0.01, jitter_s=0.2)
            member = bench.member(
                settings=SETTINGS, handler=handler, batch=BatchOf(records=20, wait_s=60.0), retry=retry
            )
            bench.wait_committed(20)
            assert [(each.attempt, each.offset, each.records) for each in member.told(RecordFailed)] == [
                (1, 0, 20),
                (2, 0, 20),
            ]
        assert handler.got == [numbered("x", range(20))] * 3

    def test_what_one_call_says_of_single_records_is_told_of_each(self) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed, BatchFailed({1: RuntimeError("one"), 3: RuntimeError("three")}))
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
            member = bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=5, wait_s=0.05))
            bench.wait_committed(5)
            assert sorted((each.offset, each.records) for each in member.told(RecordFailed)) == [(1, 1), (3, 1)]


class TestSize:
    def test_full_batches_are_consecutive_records_of_one_partition(self) -> None:
        with Bench(orders=2) as bench:
            handler = Batches(bench.changed)
            for number in range(2):
                bench.broker.produce("orders", number, *numbered(f"{number}x", range(20)))
            bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=5, wait_s=60.0))
            bench.wait_committed(20, 0)
            bench.wait_committed(20, 1)
        for number in range(2):
            mine = [batch for batch in handler.got if batch[0].startswith(f"{number}x")]
            assert mine == [numbered(f"{number}x", range(start, start + 5)) for start in range(0, 20, 5)]

    def test_a_batch_that_waited_for_more_is_remembered_no_longer(self) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed)
            member = bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=2, wait_s=0.01))
            for number in range(5):
                bench.broker.produce("orders", 0, f"x{number}")
                bench.wait_committed(number + 1)
            engine = member.app._engine
            assert engine is not None
            assert not engine._dispatch._incomplete
        assert handler.got == [[f"x{number}"] for number in range(5)]

    @pytest.mark.parametrize("wait_s", [3600.0, math.inf])
    def test_what_a_batch_waits_for_is_remembered_once(self, wait_s: float) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed)
            member = bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=100, wait_s=wait_s))
            bench.wait(lambda: member.owns)
            engine = member.app._engine
            assert engine is not None
            intake = engine.parts.intake

            def came(records: int) -> bool:
                return intake.records == records

            for number in range(50):
                bench.broker.produce("orders", 0, f"x{number}")
                until(partial(came, number + 1))
            assert len(engine.parts.timers._heap) < 10
            bench.broker.produce("orders", 0, *numbered("y", range(50)))
            bench.wait_committed(100)

    def test_a_batch_that_does_not_fill_is_handled_after_its_wait(self) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed)
            bench.broker.produce("orders", 0, *numbered("x", range(7)))
            bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=5, wait_s=0.01))
            bench.wait_committed(7)
        assert handler.got == [numbered("x", range(5)), ["x5", "x6"]]

    def test_a_batch_is_not_handled_before_its_wait(self) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed)
            bench.broker.produce("orders", 0, *numbered("x", range(4)))
            member = bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=5, wait_s=3600.0))
            polls = member.source.polls
            bench.wait(lambda: member.source.polls > polls + 20)
            assert handler.got == []
            bench.broker.produce("orders", 0, "x4")
            bench.wait_committed(5)
        assert handler.got == [numbered("x", range(5))]

    @pytest.mark.parametrize("settings", [{"max_in_flight": 60}, {"max_in_flight_bytes": 60}], ids=str)
    def test_a_batch_does_not_wait_for_more_than_the_process_may_have(self, settings: dict[str, Any]) -> None:
        """Each of the partitions has a part of what may be in the process, and none a batch."""
        with Bench(orders=4) as bench:
            handler = Batches(bench.changed)
            bench.member(
                settings=replace(SETTINGS, **settings), handler=handler, batch=BatchOf(records=300, wait_s=math.inf)
            )
            for number in range(4):
                bench.broker.produce("orders", number, *numbered(f"{number}x", range(200)))
            bench.wait(lambda: sum(map(len, handler.got)) >= 500)
        for number in range(4):
            mine = [value for batch in handler.got for value in batch if value.startswith(f"{number}x")]
            assert mine == numbered(f"{number}x", range(len(mine)))

    def test_a_batch_does_not_wait_behind_which_another_handlers_record_stands(self) -> None:
        """In a retry topic of the broker's."""
        again = [("holdfast-retry-of", b"payments"), ("holdfast-retry-of", b"orders")]
        with Bench(orders=1, payments=1) as bench:
            bench.broker.create(AGAIN, 1)
            handlers = Batches(bench.changed), Batches(bench.changed)
            member = bench.member(settings=SETTINGS, source=Returning, start=False, handler=handlers[0], batch=ENDLESS)
            member.app.handler("payments", batch=ENDLESS, name="payments")(handlers[1])
            for number in range(7):
                bench.broker.produce(AGAIN, 0, f"x{number}", headers=[again[number % 2]])
            member.start()
            bench.wait_committed(6, topic=AGAIN)
            assert (handlers[0].got, handlers[1].got) == ([["x1"], ["x3"], ["x5"]], [["x0"], ["x2"], ["x4"]])

    def test_duplicates_are_left_out_of_a_batch(self) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed)
            bench.broker.produce("orders", 0, "a", "b", "a", "c")
            bench.member(
                settings=SETTINGS,
                handler=handler,
                batch=BatchOf(records=3, wait_s=0.05),
                key=lambda record: record.value or b"",
            )
            bench.wait_committed(4)
        assert sorted(value for batch in handler.got for value in batch) == ["a", "b", "c"]


class TestFailures:
    def test_only_the_records_named_are_tried_again(self) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed, BatchFailed({1: ValueError("b"), 3: ValueError("d")}))
            bench.broker.produce("orders", 0, "a", "b", "c", "d", "e")
            bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=5, wait_s=60.0))
            bench.wait(lambda: handler.got)
            bench.broker.produce("orders", 0, "f", "g", "h")
            bench.wait_committed(8)
        assert handler.got[0] == ["a", "b", "c", "d", "e"]
        assert [value for batch in handler.got[1:] for value in batch] == ["b", "d", "f", "g", "h"]

    def test_another_error_fails_all_of_them(self) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed, ValueError("all"))
            bench.broker.produce("orders", 0, "a", "b", "c")
            bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=3, wait_s=60.0))
            bench.wait_committed(3)
        assert handler.got == [["a", "b", "c"], ["a", "b", "c"]]

    def test_a_record_that_fails_for_good_goes_to_the_dead_letter_alone(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            handler = Batches(bench.changed, BatchFailed({1: Unretriable("no")}))
            bench.broker.produce("orders", 0, "a", "b", "c")
            batch = BatchOf(records=3, wait_s=60.0)
            bench.member(
                settings=SETTINGS, handler=handler, batch=batch, dead_letter="orders.dlq", dead_letters=letters
            )
            bench.wait_committed(3)
        assert handler.got == [["a", "b", "c"]]
        assert letters.values() == ["b"]

    @pytest.mark.parametrize(
        ("failures", "told"),
        [
            ({3: ValueError("beyond the end")}, "it names 3, and no such positions are there; give .* from 0 to 2"),
            ({-1: ValueError("from behind")}, "it names -1"),
            ({"0": ValueError("as JSON has it")}, "it names '0'"),
            ({0.5: ValueError("a"), np.float64(1.5): ValueError("b")}, r"it names 0.5, .*1.5"),
            ({}, "it names no position"),
        ],
    )
    def test_a_failure_that_names_no_record_of_the_batch_fails_all_of_it(
        self, failures: dict[int, Exception], told: str
    ) -> None:
        """Counted from 1, or empty by mistake: to take such records for done would lose them."""
        with Bench() as bench:
            handler = Batches(bench.changed, BatchFailed(failures))
            bench.broker.produce("orders", 0, "a", "b", "c")
            member = bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=3, wait_s=60.0))
            bench.wait_committed(3)
        assert handler.got == [["a", "b", "c"], ["a", "b", "c"]]
        assert re.search(told, member.told(RecordFailed)[0].error)

    def test_positions_may_be_numpys_whole_numbers(self) -> None:
        positions: Any = {np.int64(1): ValueError("b"), np.uint8(0): ValueError("a")}
        failure = BatchFailed(positions)
        assert failure.fits(2)
        assert [type(at) for at in failure.failures] == [int, int]

    @pytest.mark.parametrize("is_async", [False, True])
    @pytest.mark.parametrize("batch", [None, BatchOf(records=2, wait_s=0.05)])
    def test_what_another_call_is_still_busy_with_is_not_handled(
        self, batch: BatchOf | None, *, is_async: bool
    ) -> None:
        """That one may fail yet."""
        seen: list[str] = []

        def answer(records: Sequence[Record]) -> list[object]:
            new = [record.text() not in seen for record in records]
            seen.extend(record.text() for record in records)
            return [
                Skipped.BUSY if first and text == "b" else None
                for first, text in zip(new, seen[-len(new) :], strict=True)
            ]

        def plain(given: Any) -> object:
            return answer([given])[0] if batch is None else answer(given)

        async def coroutine(given: Any) -> object:
            return plain(given)

        with Bench() as bench:
            bench.broker.produce("orders", 0, "a", "b")
            member = bench.member(settings=SETTINGS, handler=coroutine if is_async else plain, batch=batch)
            bench.wait_committed(2)
            assert seen == ["a", "b", "b"]
            [told] = member.told(RecordFailed)
            assert (told.offset, told.error.partition(":")[0]) == (1, KeyBusy.__name__)

    def test_the_error_of_an_inner_call_for_some_of_the_records_fails_all_of_the_batch(self) -> None:
        """Its positions are those of a shorter list."""
        claims, calls = MemoryClaims(), [0]

        @idempotent(claims, key=lambda record: record.text(), name="load", batch=True, on_done="marker")
        def load(records: Sequence[Record]) -> None:
            calls[0] += 1
            if calls[0] == 2:
                raise BatchFailed({1: ValueError("the second of the second half")})

        with Bench() as bench:
            got = Batches(bench.changed)

            def handle(records: Sequence[Record]) -> None:
                got(records)
                half = len(records) // 2
                load(records[:half])
                load(records[half:])

            bench.broker.produce("orders", 0, *"abcd")
            bench.member(settings=SETTINGS, handler=handle, batch=BatchOf(records=4, wait_s=60.0))
            bench.wait_committed(4)
        assert got.got == [[*"abcd"], [*"abcd"]]
        assert calls[0] == 3  # the other three were done

    def test_a_text_in_the_place_of_an_error_fails_its_record_alone(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            failures: dict[int, Any] = {1: "no such customer"}
            handler = Batches(bench.changed, BatchFailed(failures), BatchFailed({0: SystemExit(3)}))  # type: ignore[dict-item]
            bench.broker.produce("orders", 0, "a", "b", "c")
            batch = BatchOf(records=3, wait_s=0.05)
            bench.member(
                settings=SETTINGS, handler=handler, batch=batch, dead_letter="orders.dlq", dead_letters=letters
            )
            bench.wait_committed(3)
        assert handler.got == [["a", "b", "c"], ["b"]]
        assert letters.values() == ["b"]

    def test_a_system_exit_in_a_batch_handler_stops_the_app_and_commits_nothing_of_it(self) -> None:
        with Bench() as bench:
            handler = Batches(bench.changed, SystemExit(1))
            bench.broker.produce("orders", 0, "a", "b")
            member = bench.member(settings=SETTINGS, handler=handler, batch=BatchOf(records=2, wait_s=60.0))
            with pytest.raises(HandlerFailed, match="SystemExit"):
                member.join()
            assert bench.group.offset(partition()) in (None, 0)


class TestAsync:
    def test_async_handlers_of_one_record(self) -> None:
        with Bench() as bench:

            async def handle(record: Record) -> None:
                await bench.work.do_async("a", record)

            bench.broker.produce("orders", 0, *numbered("x", range(100)))
            bench.member(settings=SETTINGS, handler=handle)
            bench.wait_committed(100)
        assert set(bench.work.starts().values()) == {1}
        assert len(bench.work.ended) == 100

    def test_as_many_run_at_once_as_there_are_async_workers_and_no_more(self) -> None:
        with Bench() as bench:

            async def handle(record: Record) -> None:
                await bench.work.do_async("a", record)

            bench.work.hold(*numbered("x", range(30)))
            bench.broker.produce("orders", 0, *numbered("x", range(30)))
            bench.member(settings=replace(SETTINGS, async_workers=4), handler=handle)
            bench.wait(lambda: len(bench.work.running) == 4)
            bench.work.let_go()
            bench.wait_committed(30)
        assert bench.work.most_running == 4

    def test_async_batch_handlers_with_partial_failures(self) -> None:
        with Bench() as bench:
            sync = Batches(bench.changed, BatchFailed({0: ValueError("a")}))

            async def handle(records: Sequence[Record]) -> None:
                sync(records)

            bench.broker.produce("orders", 0, "a", "b")
            bench.member(settings=SETTINGS, handler=handle, batch=BatchOf(records=2, wait_s=0.01))
            bench.wait_committed(2)
        assert sync.got == [["a", "b"], ["a"]]

    def test_async_callables_are_known_as_such(self) -> None:
        with Bench() as bench:

            class Handle:
                async def __call__(self, record: Record) -> None:
                    await bench.work.do_async("a", record)

            bench.broker.produce("orders", 0, "x")
            bench.member(settings=SETTINGS, handler=Handle())
            bench.wait_ended("x")

    def test_a_cancelled_task_fails_its_record(self) -> None:
        import asyncio  # noqa: PLC0415

        with Bench() as bench:

            async def handle(record: Record) -> None:
                raise asyncio.CancelledError

            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=SETTINGS, handler=handle)
            with pytest.raises(HandlerFailed, match="Cancelled"):
                member.join()
            assert bench.group.offset(partition()) in (None, 0)
