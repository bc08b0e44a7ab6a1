"""The leased family: each record has a lease of its own, and is acknowledged alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

import pytest

from holdfast import DeadLetterLimit, Holdfast, MemoryClaims, Settings
from holdfast.errors import DeadLetterRefused, HandlerFailed, SettingError, SourceError, Unretriable
from holdfast.plugin.events import Overrun, SessionLost, SourceTrouble
from holdfast.plugin.ports import LeasedSource, PartitionedSource
from holdfast.runtime import Machine
from tests.harness.clocks import HandClock
from tests.harness.engine import QUICK, Bench, Letters, Work, numbered
from tests.harness.running import Running
from tests.harness.waiting import PATIENCE_S, until
from tests.simulation.brokers.leased import MemoryLeasedSource, MemoryQueue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.plugin.audit.settings import Audit
    from holdfast.plugin.ports import Batch

#: Renewals come each third of it, by the machine's clock; leases end by the queue's own clock, which tests turn.
LEASE_S = 0.15


class Consumer(Running):
    """One app on a queue."""

    def __init__(
        self,
        queue: MemoryQueue,
        work: Work,
        claims: MemoryClaims | None,
        audit: Audit | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(queue.changed)
        self.source = MemoryLeasedSource(queue)
        self.letters = Letters(queue.changed)
        self.dead_letter: str | None = None
        self._work = work
        self.app = Holdfast(
            self.source,
            claims=claims,
            settings=Settings(workers=4, **{"ramp": None} | settings),
            observers=[self],
            dead_letters=self.letters,
            audit=audit,
        )

    def start(self) -> Self:
        handle = self.app.handler("jobs", name="handle", retry=QUICK, dead_letter=self.dead_letter)
        handle(lambda record: self._work.do("a", record))
        return super().start()


class Field:
    def __init__(self) -> None:
        self.queue = MemoryQueue(LEASE_S, runtime=Machine(HandClock()))
        self.work = Work(self.queue.changed)
        self.claims = MemoryClaims()
        self.consumers: list[Consumer] = []

    def consumer(self, *, claims: bool = True, start: bool = True, **settings: Any) -> Consumer:
        made = Consumer(self.queue, self.work, self.claims if claims else None, **settings)
        self.consumers.append(made)
        return made.start() if start else made

    def wait(self, over: Any, what: str = "") -> None:
        until(over, what or (lambda: self.work.story[-10:]), changed=self.queue.changed)


@pytest.fixture
def field() -> Iterator[Field]:
    made = Field()
    yield made
    made.work.let_go()
    for consumer in made.consumers:
        consumer.app.stop()
        assert consumer.over.wait(PATIENCE_S)
    made.claims.close()


def test_each_family_is_told_from_the_other() -> None:
    with Bench() as bench:
        partitioned: PartitionedSource = bench.member().source
        assert not isinstance(cast("object", partitioned), LeasedSource)
    leased: LeasedSource = MemoryLeasedSource(MemoryQueue())
    assert isinstance(leased, LeasedSource)


class TestAcknowledgements:
    def test_each_record_is_acknowledged_after_its_handler_and_none_before(self, field: Field) -> None:
        field.work.hold("x3")
        field.queue.put(*numbered("x", range(10)))
        field.consumer()
        field.wait(lambda: field.queue.open == ["x3"])
        field.work.let_go()
        field.wait(lambda: field.queue.open == [])
        assert field.work.times() == dict.fromkeys(numbered("x", range(10)), 1)

    def test_without_a_store_too(self, field: Field) -> None:
        field.queue.put(*numbered("x", range(50)))
        field.consumer(claims=False)
        field.wait(lambda: field.queue.open == [])
        assert set(field.work.times().values()) == {1}

    def test_one_that_comes_too_late_is_told_and_the_redelivery_is_skipped(self, field: Field) -> None:
        field.work.hold("x")
        field.queue.put("x")
        consumer = field.consumer(start=False)
        consumer.source.go_away("extend", 1000)  # the broker takes no renewal
        consumer.start()
        field.wait(lambda: field.work.is_running("x"))
        field.queue.pass_time(2 * LEASE_S)
        field.wait(lambda: field.queue.messages[0].deliveries == 2)
        field.work.let_go()
        field.wait(lambda: field.queue.open == [])
        assert field.work.starts() == {"x": 1}
        assert consumer.source.late == 1
        assert any(isinstance(event, SourceTrouble) for event in consumer.events)

    def test_a_redelivery_after_the_end_is_skipped_and_acknowledged(self, field: Field) -> None:
        field.queue.put("x")
        consumer = field.consumer(start=False)
        consumer.source.acknowledge = list  # type: ignore[method-assign,assignment]
        consumer.start()
        field.wait(lambda: "x" in field.work.values())
        consumer.stop()
        field.queue.pass_time(2 * LEASE_S)
        field.consumer()
        field.wait(lambda: field.queue.open == [])
        assert field.work.starts() == {"x": 1}

    def test_a_broker_that_does_not_take_one_is_asked_again(self, field: Field) -> None:
        field.queue.put(*numbered("x", range(3)))
        consumer = field.consumer(start=False)
        consumer.source.go_away("acknowledge", 2)
        consumer.start()
        field.wait(lambda: field.queue.open == [])
        assert set(field.work.starts().values()) == {1}


class TestRenewals:
    def test_leases_are_renewed_while_a_long_handler_runs(self, field: Field) -> None:
        field.work.hold("x")
        field.queue.put("x")
        consumer = field.consumer()
        field.wait(lambda: field.work.is_running("x"))
        for _ in range(4):
            extends = consumer.source.extends
            field.wait(lambda seen=extends: consumer.source.extends > seen)
            field.queue.pass_time(0.9 * LEASE_S)
        field.work.let_go()
        field.wait(lambda: field.queue.open == [])
        assert field.queue.messages[0].deliveries == 1
        assert consumer.source.late == 0

    def test_a_renewal_that_fails_once_is_told_and_made_up_for(self, field: Field) -> None:
        field.work.hold("x")
        field.queue.put("x")
        consumer = field.consumer(start=False)
        consumer.source.go_away("extend", 1)
        consumer.start()
        field.wait(lambda: consumer.source.extends > 1)
        assert any(isinstance(event, SourceTrouble) for event in consumer.events)

    def test_the_source_is_asked_also_while_nothing_is_in_the_process(self, field: Field) -> None:
        consumer = field.consumer()
        field.wait(lambda: consumer.source.extends > 1)


class TestFailures:
    def test_a_record_that_fails_for_good_goes_to_the_dead_letter_and_is_acknowledged(self, field: Field) -> None:
        field.work.fail("bad", Unretriable("no"))
        field.queue.put("bad", "good")
        consumer = field.consumer(start=False)
        consumer.dead_letter = "dlq"
        consumer.start()
        field.wait(lambda: field.queue.open == [])
        assert consumer.letters.values() == ["bad"]

    def test_without_one_the_app_stops_and_the_record_is_given_back(self, field: Field) -> None:
        field.work.fail("bad", Unretriable("no"))
        field.queue.put("bad")
        consumer = field.consumer()
        with pytest.raises(HandlerFailed):
            consumer.join()
        assert field.queue.open == ["bad"]
        assert consumer.source.released == 1
        field.consumer()
        field.wait(lambda: field.queue.open == [])

    def test_a_letter_refused_for_good_stops_the_app(self, field: Field) -> None:
        field.work.fail("bad", Unretriable("no"))
        field.queue.put("bad")
        consumer = field.consumer(start=False)
        consumer.dead_letter = "dlq"
        consumer.letters.fail(DeadLetterRefused("too large"))
        consumer.start()
        with pytest.raises(DeadLetterRefused):
            consumer.join()
        assert field.queue.open == ["bad"]

    def test_a_broken_handler_stops_the_app_since_nothing_can_be_paused(self, field: Field) -> None:
        names = numbered("bad", range(120))
        for name in names:
            field.work.fail(name, *[Unretriable("no")] * 5)
        field.queue.put(*names)
        consumer = field.consumer(start=False)
        consumer.dead_letter = "dlq"
        consumer.start()
        with pytest.raises(HandlerFailed, match="dead_letter_limit"):
            consumer.join()
        assert len(consumer.letters.sent) <= 100

    def test_a_limit_that_pauses_is_refused(self, field: Field) -> None:
        app = Holdfast(MemoryLeasedSource(field.queue), claims=None)
        with pytest.raises(SettingError, match="use 'stop'"):
            app.handler("orders", dead_letter="dlq", dead_letter_limit=DeadLetterLimit(in_a_row=5))(print)


class TestEnd:
    def test_a_stop_drains_acknowledges_and_gives_back_what_was_not_started(self, field: Field) -> None:
        field.work.hold(*numbered("x", range(4)))
        field.queue.put(*numbered("x", range(300)))
        consumer = field.consumer()
        field.wait(lambda: len(field.work.running) == 4)
        consumer.app.stop()
        # Also what waits for a worker: those may be busy for long.
        field.wait(lambda: consumer.source.released == 296)
        field.wait(lambda: consumer.source.drained)
        field.work.let_go()
        consumer.join()
        left = field.queue.open
        assert sorted(left + field.work.values()) == sorted(numbered("x", range(300)))
        assert consumer.source.closed
        assert consumer.source.late == 0
        field.consumer()
        field.wait(lambda: field.queue.open == [])
        assert set(field.work.starts().values()) == {1}

    def test_what_outlives_the_drain_is_told_and_still_acknowledged(self, field: Field) -> None:
        field.work.hold("x")
        field.queue.put("x")
        consumer = field.consumer(drain_timeout_s=0.01)
        field.wait(lambda: field.work.is_running("x"))
        consumer.app.stop()
        field.wait(lambda: any(isinstance(event, Overrun) for event in consumer.events))
        field.work.let_go()
        consumer.join()
        assert field.queue.open == []

    def test_a_session_lost_during_the_drain_does_not_break_the_way_out(self, field: Field) -> None:
        field.work.hold("x")
        field.queue.put("x")
        consumer = field.consumer()
        field.wait(lambda: field.work.is_running("x"))
        consumer.app.stop()
        engine = consumer.app._engine
        assert engine is not None
        field.wait(lambda: all(not owner.open for owner in engine.family._owners.values()))  # type: ignore[attr-defined]
        assert engine.parts.sessions.session is not None
        field.claims.expire(engine.parts.sessions.session.id)
        engine.parts.sessions.session.renew()
        field.wait(lambda: any(isinstance(event, SessionLost) for event in consumer.events))
        field.work.let_go()
        consumer.join()
        assert field.work.values() == ["x"]

    def test_a_broker_that_does_not_answer_a_drain_does_not_break_the_way_out(self, field: Field) -> None:
        field.queue.put("x")
        consumer = field.consumer(start=False)
        consumer.source.go_away("drain")
        consumer.start()
        field.wait(lambda: field.queue.open == [])
        consumer.stop()
        assert any(isinstance(event, SourceTrouble) for event in consumer.events)

    def test_what_comes_while_the_app_is_leaving_is_given_back(self, field: Field) -> None:
        consumer = field.consumer(start=False)
        receive = consumer.source.poll

        def poll(max_records: int, timeout_s: float) -> Batch:
            batch = receive(max_records, timeout_s)
            if batch.records:
                consumer.app.stop()
            return batch

        consumer.source.poll = poll  # type: ignore[method-assign]
        field.queue.put(*numbered("x", range(5)))
        consumer.start()
        consumer.join()
        assert consumer.source.released == 5
        field.consumer()
        field.wait(lambda: field.queue.open == [])

    def test_a_broker_that_takes_nothing_back_does_not_break_the_way_out(self, field: Field) -> None:
        field.work.hold(*numbered("x", range(4)))
        field.queue.put(*numbered("x", range(300)))
        consumer = field.consumer(start=False)
        consumer.source.go_away("release", 1000)
        consumer.start()
        field.wait(lambda: len(field.work.running) == 4)
        consumer.app.stop()
        field.work.let_go()
        consumer.join()
        assert set(numbered("x", range(4))) <= set(field.work.values())
        assert not set(numbered("x", range(4))) & set(field.queue.open)


class TestSessions:
    def test_a_lost_session_begins_anew_and_nothing_is_lost(self, field: Field) -> None:
        field.work.hold("x0")
        field.queue.put(*numbered("x", range(20)))
        consumer = field.consumer()
        field.wait(lambda: field.work.is_running("x0") and len(field.queue.open) == 1)
        engine = consumer.app._engine
        assert engine is not None
        assert engine.parts.sessions.session is not None
        field.claims.expire(engine.parts.sessions.session.id)
        engine.parts.sessions.session.renew()
        field.wait(lambda: any(isinstance(event, SessionLost) for event in consumer.events))
        field.queue.put(*numbered("y", range(20)))
        field.wait(lambda: len(field.queue.open) == 1)
        field.work.let_go()
        field.wait(lambda: field.queue.open == [])
        starts = field.work.starts()
        assert {value for value, times in starts.items() if times > 1} <= {"x0"}

    def test_two_members_never_run_one_message_at_the_same_time(self, field: Field) -> None:
        field.work.hold("x")
        field.queue.put("x")
        first = field.consumer(start=False)
        first.source.go_away("extend", 1000)
        first.start()
        field.wait(lambda: field.work.is_running("x"))
        second = field.consumer()
        field.queue.pass_time(2 * LEASE_S)
        field.wait(lambda: field.queue.messages[0].deliveries == 2)
        extends = second.source.extends + first.source.extends
        field.wait(lambda: second.source.extends + first.source.extends >= extends)
        assert field.work.starts() == {"x": 1}
        field.work.let_go()
        field.wait(lambda: len(field.work.ended) == 1)
        # The delivery that was late is not the one that acknowledges.
        field.wait(lambda: field.queue.open == [] or field.queue.messages[0].deliveries > 2)
        assert field.work.starts() == {"x": 1}


def test_a_subscription_of_a_leased_source_cannot_change(field: Field) -> None:
    consumer = field.consumer()
    field.queue.put("x")
    field.wait(lambda: field.queue.open == [])
    consumer.app.subscribe(["jobs"])
    with pytest.raises(SourceError, match="cannot change its subscription"):
        consumer.join()
