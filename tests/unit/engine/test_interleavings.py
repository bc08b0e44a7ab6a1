"""The loop looks at its workers between any two of their steps: all of these are played, one after the other."""

from __future__ import annotations

import asyncio
import sys
import threading
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Settings
from holdfast.dedup.none import NoSession
from holdfast.plugin.engine.partition.ledger import Ledger
from holdfast.plugin.engine.partition.ownership import Ownership
from holdfast.plugin.engine.record import attempts as pipeline
from holdfast.plugin.engine.record.attempts import Ended, Outcome, run_batch, run_batch_async, run_each, run_each_async
from holdfast.plugin.engine.record.call import Call
from holdfast.plugin.engine.record.entry import Entry, Lane
from holdfast.plugin.engine.record.hung_handlers import Hung
from holdfast.plugin.engine.record.workers import Workers
from holdfast.plugin.events import HandlerGivenUp, HandlerOverdue
from holdfast.plugin.handlers import Handler
from holdfast.records import Partition, Record
from tests.harness.engine import Bench, Letters, numbered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from holdfast.plugin.events import Event


def steps_of(worker: Callable[[], object], meanwhile: Callable[[int], None]) -> int:
    """Do what a worker does; `meanwhile` is called before each step (bytecode) of it that is in `pipeline`, with its
    number, as if the interpreter had gone to the loop's thread there. Returns how many there were."""
    count = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename != pipeline.__file__:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            meanwhile(count)
            count += 1
        return trace

    before = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # Python 3.12 tells of none if it is asked after `settrace`
    sys.settrace(trace)
    try:
        worker()
    finally:
        sys.settrace(before)
    return count


def at_each_step(play: Callable[[int], int]) -> Iterator[int]:
    """Numbers of steps, for as long as what `play` returned for the last one says that there are more."""
    number = 0
    while number < play(number):
        number += 1
        yield number


def owned() -> Ownership:
    owner = Ownership(Partition("t", 0), NoSession())
    owner.own(Ledger(0))
    return owner


def records(owner: Ownership, *offsets: int) -> list[Record]:
    return [Record(owner.partition, offset, None, b"v", (), -1, owner) for offset in offsets]


def taken(entry: Entry) -> Entry:
    entry.lane = Lane({}, entry.record.offset)
    entry.taken()
    return entry


@pytest.mark.parametrize("is_async", [False, True])
class TestTakenBackBehindASlowRecord:
    """A chunk of a run, a record and another run, which is late at once."""

    def play(self, at: int, is_async: bool) -> int:
        owner, handled, ended = owned(), list[int](), list[Ended]()

        def handle(record: Record) -> None:
            handled.append(record.offset)

        async def handle_async(record: Record) -> None:
            handled.append(record.offset)

        handler = Handler(name="h", call=handle_async if is_async else handle, topics=("t",))
        chunk = [
            taken(Entry.run(records(owner, *offsets), owner, handler, 0.0)) for offsets in ((0, 1, 2), (3,), (4, 5))
        ]
        workers, call = Workers(1, "t"), Call(chunk)
        call.began = float("-inf")
        workers._chunks.append(call)
        back: list[tuple[list[int], int]] = []

        def loop(number: int) -> None:
            if number == at:
                back.extend((entry.offsets, begun) for entry, _, begun in workers.overdue())

        def work() -> None:
            if is_async:
                asyncio.run(run_each_async(call, ended.append))
            else:
                run_each(call, ended.append)

        count = steps_of(work, loop)
        free = [offset for offsets, begun in back for offset in offsets[begun:]]
        assert sorted(handled + free) == [0, 1, 2, 3, 4, 5]
        # What is given to another worker next, and what this one says to have ended, are never the same.
        told = [offset for each in ended for offset in each.entry.offsets]
        assert [offset for offset in told if offset not in free] == handled
        assert not [offsets for offsets, begun in back if not begun and set(offsets) & set(told)]
        return count

    def test_each_record_is_with_one_worker_and_none_counts_as_ended_that_was_not_handled(self, is_async: bool) -> None:
        assert len(list(at_each_step(partial(self.play, is_async=is_async)))) > 100


class _Frozen(NoSession):
    """Its process is frozen, and its lease runs out, after the first look at the clock."""

    looks = 0

    def live(self) -> bool:
        self.looks += 1
        return self.looks == 1


def test_a_batch_whose_process_is_frozen_while_its_records_start_starts_with_all_or_with_none() -> None:
    owner, given = Ownership(Partition("t", 0), _Frozen()), list[list[int]]()
    owner.own(Ledger(0))

    def handle(batch: list[Record]) -> None:
        given.append([record.offset for record in batch])

    handler = Handler(name="h", call=handle, topics=("t",), batch=BatchOf(records=6))
    for after in ([[0, 1, 2, 3]], []):  # the second one comes when the lease is over
        ended = list[Ended]()
        entries = [taken(Entry.run(records(owner, *pair), owner, handler, 0.0)) for pair in ((0, 1), (2, 3))]
        run_batch(Call(entries), ended.append)
        assert given == after
        assert {each.outcome for each in ended} == {Outcome.OK if after else Outcome.NOT_STARTED}
        assert [entry.started for entry in entries] == ([2, 2] if after else [0, 0])
        given.clear()


@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
class TestOverdueAndBack:
    """A handler runs past its timeout and its grace while it ends."""

    def play(self, overdue_at: int, grace: int, batch: bool, is_async: bool) -> int:
        def handle(_: object) -> None:
            pass

        async def handle_async(_: object) -> None:
            pass

        owner = owned()
        handler = Handler(
            name="h",
            call=handle_async if is_async else handle,
            topics=("t",),
            batch=BatchOf(records=1) if batch else None,
            timeout_s=overdue_at + 0.5,
            dead_letter="dlq",
        )
        entry = taken(Entry.run(records(owner, 0), owner, handler, 0.0))
        workers, call, now = Workers(1, "t"), Call([entry]), 0
        workers.timed.append(call)
        workers._charge(call)
        told: list[Event] = []
        back: list[Ended] = []
        given_up: list[Entry] = []
        core = SimpleNamespace(
            workers=workers,
            clock=SimpleNamespace(now=lambda: now),
            settings=SimpleNamespace(handler_grace_s=grace, workers=1),
            storeless=False,
            lanes=SimpleNamespace(),
            tell=told.append,
            fail=lambda _: None,
            outcomes=SimpleNamespace(
                dead_letter_of=lambda *_: "dlq", gave_up=lambda entry, *_, **__: given_up.append(entry)
            ),
        )
        hung = Hung(**vars(core))

        def loop(_: int) -> None:
            nonlocal now
            now += 1
            back.extend(each for ended in workers.ended() if (each := hung.came_back(ended)) is not None)
            hung.step()

        def work() -> None:
            if is_async:
                asyncio.run((run_batch_async if batch else run_each_async)(call, workers._ended.append))
            else:
                (run_batch if batch else run_each)(call, workers._ended.append)

        count = steps_of(work, loop)
        workers._finish(call)
        loop(count)
        loop(count)
        # It came back, or it was given up: never both, never neither; and nothing is kept of it.
        assert [each.outcome for each in back] == ([] if given_up else [Outcome.OK])
        assert len([event for event in told if isinstance(event, HandlerGivenUp)]) == len(given_up) <= 1
        assert len([event for event in told if isinstance(event, HandlerOverdue)]) <= 1
        assert not hung.known
        assert given_up or not owner.late
        return count

    def test_what_has_come_back_is_neither_overdue_nor_given_up(self, batch: bool, is_async: bool) -> None:
        for grace in (1, 5):
            steps = list(at_each_step(lambda at, grace=grace: self.play(at, grace, batch, is_async)))  # type: ignore[misc]
            assert len(steps) > 50


def test_a_run_that_its_worker_has_only_looked_at_stays_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers had it, one of them with nothing left to do: it was marked and committed while it ran."""
    run, overdue = pipeline._run, Workers.overdue
    held, looked, looks = threading.Event(), threading.Event(), list[bool]()

    def later(entry: Entry, call: Call) -> Ended:
        if not held.is_set():
            held.set()
            assert looked.wait(5)
        return run(entry, call)

    def look(workers: Workers) -> list[tuple[Entry, int, int]]:
        looks.append(held.is_set())
        back = overdue(workers)
        if looks[-1]:
            looked.set()
        return back

    monkeypatch.setattr(pipeline, "_run", later)
    monkeypatch.setattr(Workers, "overdue", look)
    monkeypatch.setattr(Workers, "chunk", property(lambda _: 10))
    monkeypatch.setattr(Call, "is_late", lambda *_: looks[-1] and not looked.is_set())
    with Bench() as bench:
        bench.work.hold("x0")
        bench.broker.produce("orders", 0, *numbered("x", range(10)), key="one lane")
        bench.member(settings=Settings(workers=2, commit_interval_s=0.01))
        bench.wait_running("x0")
        since = len(looks)
        bench.wait(lambda: len(looks) > since + 10)  # so that whatever else is under way comes back
        assert bench.position() == (0, set())
        assert bench.work.starts() == {"x0": 1}
        bench.work.let_go()
        bench.wait_committed(10)
        assert bench.work.values() == numbered("x", range(10))


def test_what_is_done_is_not_given_up_while_its_call_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had a dead letter beside its mark."""
    finish, step, looks = Workers._finish, Hung.step, set[float]()

    def look(hung: Hung) -> None:
        step(hung)
        looks.add(hung._look_at)

    with Bench() as bench:

        def later(workers: Workers, call: Call) -> bool:
            engine: Any = member.app._engine
            for watched in engine.parts.hung._watched:
                if watched.overdue_at is not None:
                    watched.overdue_at = float("-inf")  # its grace is over
            since = len(looks)
            bench.wait(lambda: call.kind is None or call.over or len(looks) > since + 2)  # None: a dead letter
            return finish(workers, call)

        letters = Letters(bench.changed)
        bench.broker.produce("orders", 0, "x")
        member = bench.member(
            settings=Settings(commit_interval_s=0.01, handler_timeout_s=0.02, handler_grace_s=3600.0),
            handler=lambda record: bench.wait(lambda: record.cancelled),
            dead_letter="dlq",
            dead_letters=letters,
            start=False,
        )
        with monkeypatch.context() as patch:
            patch.setattr(Workers, "_finish", later)
            patch.setattr(Hung, "step", look)
            member.start()
            bench.wait_committed(1)
            member.stop()
        assert member.told(HandlerGivenUp) == []
        assert letters.sent == []
