"""Handlers that hang: cancelled, then given up; the record to its dead letter, or the app stops."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast, MemoryClaims, Settings
from holdfast.errors import DeadLetterError, HandlerHung
from holdfast.plugin.engine.record.hung_handlers import Hung, _Watched
from holdfast.plugin.engine.record.workers import Workers
from holdfast.plugin.events import HandlerGivenUp, HandlerOverdue, LateResult, RecordFailed, SessionLost, StoreDown
from tests.harness.engine import Bench, FlakyClaims, FlakySession, Letters, Work, numbered, partition
from tests.harness.waiting import PATIENCE_S
from tests.simulation.brokers.leased import MemoryLeasedSource, MemoryQueue
from tests.unit.engine.test_campaigns import Campaign

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from holdfast.dedup.claims import ClaimSession
    from holdfast.dedup.memory_session import MemorySession
    from holdfast.plugin.engine.record.attempts import Ended
    from holdfast.plugin.engine.record.call import Call
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.records import Record
    from tests.harness.engine import Member

P0 = partition()


def settings(**changes: Any) -> Settings:
    """Short: what is waited for is the rule, not the time."""
    chosen = {"workers": 2, "commit_interval_s": 0.01, "handler_timeout_s": 0.05, "handler_grace_s": 0.05} | changes
    return Settings(**chosen)


#: A grace that no test outlasts.
LONG = 3600.0


@pytest.fixture(autouse=True)
def hangs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Values of records whose handlers are to hang; what is held at `Bench.work` is one while it is held. No other
    handler is seen to run for long, although a thread may be stopped for longer than the timeouts here.

    What a look sees depends on the set, which handlers change from their threads: unlike what it sees of a call itself.
    """
    values: set[str] = set()
    entries, hold, let_go = _Watched.entries.fget, Work.hold, Work.let_go  # type: ignore[attr-defined]

    def held(work: Work, *names: str) -> None:
        values.update(names)
        hold(work, *names)

    def gone(work: Work, *names: str) -> None:
        values.difference_update(names or list(values))
        let_go(work, *names)

    def meant(watched: _Watched) -> Sequence[Entry]:
        seen: Sequence[Entry] = entries(watched)
        return seen if any((each.record.value or b"").decode() in values for each in seen) else ()

    monkeypatch.setattr(Work, "hold", held)
    monkeypatch.setattr(Work, "let_go", gone)
    monkeypatch.setattr(_Watched, "entries", property(meant))
    return values


def hung(member: Member) -> Any:
    engine = member.app._engine
    assert engine is not None
    return engine.parts.hung


class TestOverdue:
    def test_exactly_that_record_is_cancelled_and_a_handler_that_ends_in_its_grace_is_done(
        self, hangs: set[str]
    ) -> None:
        hangs.add("slow")
        with Bench() as bench:
            seen: dict[str, bool] = {}
            other_may_end = threading.Event()

            def handle(record: Record) -> None:
                value = (record.value or b"").decode()
                if value == "slow":
                    bench.wait(lambda: record.cancelled)
                    other_may_end.set()
                else:
                    assert other_may_end.wait(PATIENCE_S)
                    seen[value] = record.cancelled

            member = bench.member(settings=settings(handler_grace_s=LONG), handler=handle, start=False)
            member.app.handler("others", name="patient", timeout_s=LONG)(handle)
            bench.broker.create("others", 1)
            bench.broker.produce("orders", 0, "slow")
            bench.broker.produce("others", 0, "quick")
            member.start()
            bench.wait_committed(1)
            bench.wait_committed(1, 0, "others")
            [event] = member.told(HandlerOverdue)
            assert (event.partition, event.offset, event.handler, event.records) == (P0, 0, "handle", 1)
            assert event.running_s >= 0.05
            assert not member.told(HandlerGivenUp)
        assert seen == {"quick": False}

    def test_one_that_raises_in_its_grace_is_tried_again_and_is_not_cancelled_then(self, hangs: set[str]) -> None:
        hangs.add("x")
        with Bench() as bench:
            cancelled: list[bool] = []

            def handle(record: Record) -> None:
                cancelled.append(record.cancelled)
                if len(cancelled) == 1:
                    bench.wait(lambda: record.cancelled)
                    hangs.clear()
                    raise TimeoutError

            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=settings(handler_grace_s=LONG), handler=handle)
            bench.wait_committed(1)
            assert [event.attempt for event in member.told(RecordFailed)] == [1]
        assert cancelled == [False, False]

    def test_one_without_a_timeout_of_its_own_may_take_however_long_where_others_may_not(self, hangs: set[str]) -> None:
        hangs.add("y")
        with Bench() as bench:
            bench.work.hold("x")
            bench.broker.produce("orders", 0, "x")
            bench.broker.create("others", 1)
            bench.broker.produce("others", 0, "y")
            member = bench.member(settings=settings(handler_grace_s=LONG), timeout_s=float("inf"), start=False)
            member.app.handler("others", name="other")(lambda record: bench.wait(lambda: record.cancelled))
            member.start()
            bench.wait(lambda: member.told(HandlerOverdue))
            bench.wait_committed(1, 0, "others")
            assert {event.handler for event in member.told(HandlerOverdue)} == {"other"}
            assert bench.work.is_running("x")

    def test_of_a_batch_all_records_are_cancelled_and_it_is_one_event(self, hangs: set[str]) -> None:
        hangs.add("x0")
        with Bench() as bench:

            def handle(records: Sequence[Record]) -> None:
                bench.wait(lambda: all(record.cancelled for record in records))

            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            batch = BatchOf(records=3, wait_s=1)
            member = bench.member(settings=settings(handler_grace_s=LONG), handler=handle, batch=batch)
            bench.wait_committed(3)
            assert [(event.offset, event.records) for event in member.told(HandlerOverdue)] == [(0, 3)]


class TestDeadLetter:
    def test_a_record_whose_thread_hangs_goes_there_and_the_others_go_on(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(20)), key="one lane")
            member = bench.member(settings=settings(), dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(20)
            assert bench.work.is_running("x1")
            [letter] = letters.sent
            assert (letter.record.offset, letter.attempts, type(letter.reason)) == (1, 1, HandlerHung)
            [event] = member.told(HandlerGivenUp)
            assert (event.offset, event.then, event.stuck) == (1, "dead_letter", 1)
            assert hung(member).given_up == 1
            bench.work.let_go()
            # What it says late changes nothing, and its thread is not missed.
            bench.wait(lambda: member.told(LateResult))
            assert [(late.offset, late.outcome) for late in member.told(LateResult)] == [(1, "ok")]
            bench.broker.produce("orders", 0, *numbered("y", range(20)))
            bench.wait_committed(40)
            member.stop()
            assert bench.ids() == []
        assert bench.work.starts()["x1"] == 1

    def test_a_late_failure_is_no_failure_any_more(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.hold("x")
            bench.work.fail("x", ValueError("late"))
            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=settings(), dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(1)
            bench.work.let_go()
            bench.wait(lambda: member.told(LateResult))
            assert [late.outcome for late in member.told(LateResult)] == ["failed: ValueError"]
            assert [event.attempt for event in member.told(RecordFailed)] == [1]
        assert letters.values() == ["x"]

    def test_capacity_stays_even_where_the_only_worker_hangs_and_others_queue_behind_it(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.hold("x0", "x1")
            bench.broker.produce("orders", 0, *numbered("x", range(30)))
            member = bench.member(settings=settings(workers=3), dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(30)
            assert sorted(letters.values()) == ["x0", "x1"]
            assert max(event.stuck for event in member.told(HandlerGivenUp)) == 2

    def test_the_records_of_a_batch_go_there_all(self, hangs: set[str]) -> None:
        hangs.add("x0")
        with Bench() as bench:
            letters, may_end = Letters(bench.changed), threading.Event()

            def handle(records: Sequence[Record]) -> None:
                if records[0].value == b"x0":
                    may_end.wait(PATIENCE_S)

            bench.broker.produce("orders", 0, *numbered("x", range(6)))
            batch = BatchOf(records=3, wait_s=1)
            bench.member(settings=settings(), handler=handle, batch=batch, dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(6)
            may_end.set()
        assert sorted(letters.values()) == ["x0", "x1", "x2"]

    def test_a_letter_that_is_not_acknowledged_is_sent_again(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            letters.fail(DeadLetterError("1"), DeadLetterError("2"))
            bench.work.hold("x")
            bench.broker.produce("orders", 0, "x")
            bench.member(settings=settings(), dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(1)
            assert bench.work.starts() == {"x": 1}
        assert letters.tries == 3

    def test_one_that_ends_well_while_its_letter_is_not_acknowledged_is_dead_lettered_and_nobody_waits_behind_it(
        self, hangs: set[str]
    ) -> None:
        """Whether the letter that failed was written nobody knows: so what it says is what counts."""
        with Bench() as bench:
            letters = Letters(bench.changed)
            letters.fail(DeadLetterError("1"))
            bench.work.hold("x")
            bench.broker.produce("orders", 0, "x", "follower", key="k")
            member = bench.member(settings=settings(), dead_letter="dlq", dead_letters=letters)
            bench.wait(lambda: letters.tries == 1)
            bench.work.let_go("x")
            bench.wait(lambda: member.told(LateResult))
            bench.wait_committed(2)
            assert letters.values() == ["x"]
            assert bench.work.starts() == {"x": 1, "follower": 1}
            assert member.app.snapshot().records.handled == 1
            assert hung(member).stuck == 0
            assert not hung(member).owes_letters

    def test_its_key_is_free_for_the_next_copy(self, hangs: set[str]) -> None:
        hangs.add('{"id": 1}')
        with Bench() as bench:
            letters = Letters(bench.changed)
            first, may_end, starts = threading.Event(), threading.Event(), list[int]()

            def handle(record: Record) -> None:
                starts.append(record.offset)
                if not first.is_set():
                    first.set()
                    may_end.wait(PATIENCE_S)

            bench.broker.produce("orders", 0, '{"id": 1}')
            bench.member(settings=settings(), handler=handle, key="id", dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(1)
            hangs.clear()
            bench.broker.produce("orders", 0, '{"id": 1}')
            bench.wait_committed(2)
            may_end.set()
        assert starts == [0, 1]

    def test_as_many_that_hang_as_there_are_workers_stop_the_app(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            bench.work.hold("x0", "x1")
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            member = bench.member(settings=settings(), dead_letter="dlq", dead_letters=letters)
            with pytest.raises(HandlerHung, match="one of 2 calls that hang, as many as workers"):
                member.join()
            assert [event.then for event in member.told(HandlerGivenUp)] == ["dead_letter", "stop"]


class TestStop:
    @pytest.mark.parametrize("letter", [None, "dlq"])
    def test_everything_else_is_drained_and_committed_below_it_and_the_successor_waits_for_the_lease(
        self, letter: str | None
    ) -> None:
        with Bench() as bench:
            bench.work.hold("x2")
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            rule = "stop" if letter else "dead_letter"
            chosen = settings(on_handler_timeout=rule, drain_timeout_s=LONG, linger_timeout_s=LONG)
            member = bench.member(
                settings=chosen, dead_letter=letter, dead_letters=Letters(bench.changed) if letter else None
            )
            with pytest.raises(
                HandlerHung, match=r"handle did not end on orders-0@2 within .*0\.05 s.*record\.cancelled"
            ):
                member.join()
            assert bench.group.offset(P0) == 2
            assert [event.then for event in member.told(HandlerGivenUp)] == ["stop"]
            [session] = bench.ids()  # abandoned, not ended: its handler runs
            b = bench.member("b", settings=Settings(commit_interval_s=0.01))
            bench.wait(lambda: b.owns)
            bench.wait(lambda: len(bench.work.ended) == 9)
            assert bench.work.starts()["x2"] == 1
            bench.claims.expire(session)  # type: ignore[attr-defined]
            bench.wait(lambda: bench.work.starts()["x2"] == 2)
            bench.work.let_go()
            bench.wait_committed(10)
        assert set(bench.work.starts().values()) == {1, 2}

    def test_what_queues_behind_the_only_worker_keeps_nobody_waiting(self) -> None:
        with Bench() as bench:
            bench.work.hold("x0")
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            member = bench.member(settings=settings(workers=1, drain_timeout_s=LONG, linger_timeout_s=LONG))
            with pytest.raises(HandlerHung):
                member.join()
            assert bench.work.starts()["x0"] == 1

    def test_one_that_hangs_while_the_app_leaves_ends_the_linger(self) -> None:
        with Bench() as bench:
            bench.work.hold("x")
            bench.broker.produce("orders", 0, "x")
            chosen = settings(drain_timeout_s=0.01, linger_timeout_s=LONG, handler_timeout_s=0.3)
            member = bench.member(settings=chosen)
            bench.wait_running("x")
            member.app.stop()
            with pytest.raises(HandlerHung):
                member.join()
            assert len(bench.ids()) == 1

    def test_one_that_ends_while_the_app_drains_the_others_is_done_after_all(self) -> None:
        with Bench() as bench:
            bench.work.hold("x0", "x1")
            bench.broker.produce("orders", 0, "x0", "x1")
            bench.broker.create("others", 1)
            bench.broker.produce("others", 0, "x1")
            member = bench.member(settings=settings(workers=4, drain_timeout_s=LONG), start=False)
            member.app.handler("others", name="patient", timeout_s=LONG)(lambda record: bench.work.do("p", record))
            bench.broker.cut("orders", 0, 1)
            member.start()
            bench.wait(lambda: member.told(HandlerGivenUp))
            assert bench.work.is_running("x1")
            bench.work.let_go("x0")
            bench.wait(lambda: bench.position() == (1, set()))
            bench.work.let_go()
            with pytest.raises(HandlerHung):
                member.join()
            assert bench.group.offset(P0) == 1
            assert bench.ids() == []  # nothing is in hand: its successor need not wait for the lease
            assert not member.told(LateResult)


class TestLeasedSource:
    def test_a_record_whose_handler_hangs_is_acknowledged_by_its_dead_letter(self, hangs: set[str]) -> None:
        hangs.add("hangs")
        queue, changed, may_end = MemoryQueue(), threading.Condition(), threading.Event()
        letters = Letters(changed)
        queue.put("hangs", "x")
        overdue: list[bool] = []
        app = Holdfast(
            MemoryLeasedSource(queue), claims=MemoryClaims(), settings=settings(workers=4), dead_letters=letters
        )

        @app.handler("jobs", dead_letter="dlq")
        def handle(record: Record) -> None:
            if record.value == b"hangs":
                may_end.wait(PATIENCE_S)
                overdue.append(record.cancelled)

        thread = threading.Thread(target=lambda: app.run(install_signal_handlers=False), daemon=True)
        thread.start()
        with queue.changed:
            assert queue.changed.wait_for(lambda: not queue.open, PATIENCE_S)
        assert letters.values() == ["hangs"]
        may_end.set()
        app.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert overdue == [True]


class TestHandedOver:
    """A handler that outlived the drain, and hangs: whoever waits for it waits for timeout and grace, no longer."""

    def moved(self, bench: Bench, hangs: set[str], **handling: Any) -> tuple[Member, Member]:
        """x0 hangs in a, and its partition has gone to b."""
        bench.work.hold("x0")
        hangs.clear()  # not before that
        bench.broker.produce("orders", 0, *numbered("x", range(3)))
        a = bench.member("a", settings=settings(drain_timeout_s=0.01, handler_timeout_s=0.4), **handling)
        bench.wait_running("x0")
        b = bench.member("b", settings=settings(), start=False, **handling)
        bench.group.aim({b.source: [P0]})
        b.start()
        bench.wait(lambda: b.owns)
        hangs.add("x0")
        return a, b

    def test_its_owner_of_then_sends_the_dead_letter_and_nobody_runs_it_again(self, hangs: set[str]) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            self.moved(bench, hangs, dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(3)
            assert bench.work.is_running("x0")
        assert letters.values() == ["x0"]
        assert bench.work.starts() == {"x0": 1, "x1": 1, "x2": 1}

    def test_a_letter_that_fails_then_is_sent_again_by_who_failed_to_send_it(self, hangs: set[str]) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)
            letters.fail(DeadLetterError("1"))
            self.moved(bench, hangs, dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(3)
            assert bench.work.starts()["x0"] == 1
        assert letters.values() == ["x0"]

    def test_without_a_store_nobody_waits_so_it_is_the_new_owners_alone(self, hangs: set[str]) -> None:
        with Bench(claims=None) as bench:
            letters = Letters(bench.changed)
            bench.work.hold("x0")
            hangs.clear()  # not before it is handed over
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            how: dict[str, Any] = {"claims": None, "dead_letter": "dlq", "dead_letters": letters}
            a = bench.member("a", settings=settings(drain_timeout_s=0.01, handler_timeout_s=0.4), **how)
            bench.wait_running("x0")
            b = bench.member("b", settings=settings(handler_timeout_s=LONG), start=False, **how)
            bench.group.aim({b.source: [P0]})
            b.start()
            bench.wait(lambda: b.owns)
            hangs.add("x0")
            bench.wait(lambda: a.told(HandlerGivenUp))
            bench.work.let_go()
            bench.wait(lambda: a.told(LateResult))
            bench.wait_committed(3)
            a.stop()
        assert letters.sent == []
        assert bench.work.starts()["x0"] == 2

    def test_without_a_dead_letter_its_process_ends_and_its_lease_with_it(self, hangs: set[str]) -> None:
        with Bench() as bench:
            a, _ = self.moved(bench, hangs)
            session = a.session
            with pytest.raises(HandlerHung):
                a.join()
            bench.claims.expire(session)  # type: ignore[attr-defined]
            bench.work.let_go()
            bench.wait_committed(3)
        assert bench.work.starts()["x0"] == 2


class TestCoroutines:
    def test_one_that_hangs_is_cancelled_and_its_record_goes_to_the_dead_letter(self) -> None:
        with Bench() as bench:
            letters = Letters(bench.changed)

            async def handle(record: Record) -> None:
                await bench.work.do_async("a", record)

            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            member = bench.member(
                settings=settings(handler_grace_s=LONG), handler=handle, dead_letter="dlq", dead_letters=letters
            )
            bench.wait_committed(10)
            [letter] = letters.sent
            assert (letter.record.offset, letter.attempts, type(letter.reason)) == (1, 1, HandlerHung)
            assert not member.told(HandlerGivenUp)

    def test_a_cancelled_one_has_ended_so_a_stop_leaves_nothing_in_hand(self) -> None:
        with Bench() as bench:

            async def handle(record: Record) -> None:
                await bench.work.do_async("a", record)

            bench.work.hold("x1")
            bench.broker.produce("orders", 0, *numbered("x", range(3)))
            member = bench.member(settings=settings(on_handler_timeout="stop", handler_grace_s=LONG), handler=handle)
            with pytest.raises(HandlerHung, match="was cancelled"):
                member.join()
            assert bench.group.offset(P0) == 1
            assert bench.ids() == []

    def test_one_that_ends_between_two_looks_is_named_by_its_record(self, hangs: set[str], monkeypatch: Any) -> None:
        hangs.add("x0")
        came_back = Hung.came_back

        def looked_at_first(self: Hung, ended: Ended) -> Ended | None:
            for watched in self._watched:
                watched.seen = None  # as when a look falls between the handler's end and its call's
            return came_back(self, ended)

        monkeypatch.setattr(Hung, "came_back", looked_at_first)
        with Bench() as bench:
            letters = Letters(bench.changed)

            async def handle(record: Record) -> None:
                await asyncio.sleep(LONG)

            bench.broker.produce("orders", 0, "x0")
            bench.member(
                settings=settings(handler_grace_s=LONG), handler=handle, dead_letters=letters, dead_letter="dlq"
            )
            bench.wait_committed(1)
            [letter] = letters.sent
            assert "did not end on orders-0@0" in str(letter.reason)

    @pytest.mark.parametrize("fails", [False, True])
    def test_how_it_ends_after_its_cancellation_is_its_own_word(
        self, fails: bool, hangs: set[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        hangs.add("x")
        cancel, heard = Workers.cancel, threading.Event()

        def cancel_and_wait(workers: Workers, call: Call) -> None:
            cancel(workers, call)
            assert heard.wait(PATIENCE_S)  # from here on `hangs` says something else: a look asks it once

        monkeypatch.setattr(Workers, "cancel", cancel_and_wait)
        with Bench() as bench:
            attempts: list[int] = []

            async def handle(record: Record) -> None:
                attempts.append(record.offset)
                if len(attempts) > 1:
                    return
                try:
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    hangs.clear()
                    heard.set()
                    if fails:
                        raise ConnectionError from None

            bench.broker.produce("orders", 0, "x")
            member = bench.member(settings=settings(handler_grace_s=LONG), handler=handle)
            bench.wait_committed(1)
            assert len(member.told(HandlerOverdue)) == 1
        assert len(attempts) == (2 if fails else 1)

    def test_one_that_does_not_let_itself_be_cancelled_is_given_up(self, hangs: set[str]) -> None:
        hangs.add("x0")
        with Bench() as bench:
            letters, may_end, loops = Letters(bench.changed), asyncio.Event(), []

            async def handle(record: Record) -> None:
                loops.append(asyncio.get_running_loop())
                while record.value == b"x0" and not may_end.is_set():
                    with suppress(asyncio.CancelledError):
                        await may_end.wait()

            bench.broker.produce("orders", 0, *numbered("x", range(10)))
            member = bench.member(settings=settings(), handler=handle, dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(10)
            assert letters.values() == ["x0"]
            [event] = member.told(HandlerGivenUp)
            assert (event.offset, event.then) == (0, "dead_letter")
            loops[0].call_soon_threadsafe(may_end.set)
            bench.wait(lambda: member.told(LateResult))

    def test_one_that_blocks_the_event_loop_stops_the_app_and_costs_no_innocent_record(
        self, hangs: set[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nor does it keep the process: what this loop is to close is left open."""
        monkeypatch.setattr("holdfast.plugin.engine.resources._LOOKS_AT_A_BLOCKED_LOOP", 3)
        with Bench() as bench:
            letters, other, may_end = Letters(bench.changed), asyncio.Event(), threading.Event()

            async def handle(record: Record) -> None:
                if record.value == b"x0":
                    await other.wait()
                    hangs.update(["x0", "x1"])  # not before: it would be cancelled where it can be
                    may_end.wait(PATIENCE_S)
                else:
                    other.set()
                    await asyncio.sleep(0.05)

            bench.broker.produce("orders", 0, *numbered("x", range(2)))
            member = bench.member(
                settings=settings(), handler=handle, dead_letter="dlq", dead_letters=letters, start=False
            )

            @member.app.resource
            async def pool() -> AsyncIterator[str]:
                yield "open"

            member.start()
            with pytest.raises(HandlerHung, match="blocks the event loop"):
                member.join()
            may_end.set()
            assert letters.sent == []
            assert len(bench.ids()) == 1


class LastLook(FlakyClaims):
    """Once armed, a lease ends just before a worker asks whether its session lives; the app's thread sees it later."""

    armed = False

    def begin(self, lease_s: float) -> ClaimSession:
        return _Looked(self, self.inner.begin(lease_s))


class _Looked(FlakySession):
    def __init__(self, store: LastLook, inner: MemorySession) -> None:
        super().__init__(store, inner)
        self._app, self._last, self._looks = threading.current_thread(), store, 0

    def live(self) -> bool:
        if threading.current_thread() is self._app:
            self._looks -= self._looks > 0
            return self._looks > 0 or self._inner.live()
        if self._last.armed:
            self._last.armed = False
            self._looks = 5
            self._last.inner.expire(self._inner.id)
            assert self._inner.renew() is False
        return self._inner.live()


def test_one_whose_session_ends_in_an_outage_before_its_letter_is_sent_is_kept_by_nobody() -> None:
    store = LastLook()
    with Bench(claims=store) as bench:
        letters = Letters(bench.changed)
        letters.hold()
        bench.work.hold("x")
        bench.broker.produce("orders", 0, "x")
        member = bench.member(settings=settings(workers=4), dead_letter="dlq", dead_letters=letters)
        bench.wait(lambda: letters.tries == 1)
        store.go_down()
        bench.broker.produce("orders", 0, "y")
        bench.wait(lambda: member.told(StoreDown))
        store.armed = True
        letters.fail(DeadLetterError("1"))
        letters.let_go()
        bench.wait(lambda: member.told(SessionLost))
        store.come_back()
        bench.wait_committed(2)
        engine: Any = member.app._engine
        assert not engine.parts.outcomes.stuck
        assert letters.values() == ["x"]


class Hanging(Campaign):
    """Members come and go at random, the store loses answers, and some handlers never come back."""

    def __init__(self, bench: Bench, store: FlakyClaims, seed: int) -> None:
        super().__init__(bench, store, seed, rough=False)
        self.hung: set[str] = set()
        self.letters = Letters(bench.changed)

    def produce(self) -> None:
        number, value = self.random.randrange(4), f"hung{len(self.produced)}"
        if len(self.hung) < 12 and self.random.random() < 0.6:
            self.bench.work.hold(value)
            self.hung.add(value)
            [offset] = self.bench.broker.produce("orders", number, value, key=f"k{self.random.randrange(6)}")
            self.produced.add((number, offset))
        if self.random.random() < 0.2:
            self.letters.fail(DeadLetterError("at random"))
        for _ in range(self.random.randrange(5, 15)):
            number, value = self.random.randrange(4), f"v{len(self.produced)}"
            [offset] = self.bench.broker.produce("orders", number, value, key=f"k{self.random.randrange(6)}")
            self.produced.add((number, offset))
            self.values.add(value)

    def join(self) -> None:
        if len(self.members) < 4:
            self._joined += 1
            chosen = settings(workers=16, commit_interval_s=0.005, drain_timeout_s=self.random.choice([0.01, 0.5]))
            more: dict[str, Any] = {"key": lambda record: record.value or b""} if self.keyed else {}
            self.members.append(
                self.bench.member(
                    f"m{self._joined}", settings=chosen, dead_letter="dlq", dead_letters=self.letters, **more
                )
            )

    def let_go(self) -> None:
        """Those that hang do not come back for anybody's asking."""


@pytest.mark.parametrize("seed", range(4))
def test_whatever_else_happens_each_goes_to_the_dead_letter_once_and_nobody_runs_it_twice(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FlakyClaims()
    with Bench(orders=4, claims=store) as bench:
        campaign = Hanging(bench, store, seed)
        with monkeypatch.context() as patch:
            patch.setattr(bench.work, "let_go", campaign.let_go)
            campaign.run(20)
        assert campaign.hung
        assert sorted(campaign.letters.values()) == sorted(campaign.hung)
        assert set(bench.work.starts().values()) == {1}
        assert set(bench.work.values()) == campaign.values
