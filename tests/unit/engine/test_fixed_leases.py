"""Leases that cannot be renewed, of a broker that drops what was delivered too often: Kafka's share groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import pytest

from holdfast import DeadLetterLimit, Holdfast, MemoryClaims, Retry, Settings
from holdfast.errors import DeliveriesSpent
from holdfast.plugin.ports import FixedLeaseSource
from holdfast.runtime import Machine
from tests.harness.clocks import HandClock
from tests.harness.engine import QUICK, Letters, Work, numbered
from tests.harness.running import Running
from tests.harness.waiting import PATIENCE_S, until
from tests.simulation.brokers.leased import MemoryLeasedSource, MemoryQueue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.records import Record
    from tests.simulation.brokers.leased import Message

LEASE_S, SPARE_S, LIMIT = 30.0, 3.0, 3


class LimitedQueue(MemoryQueue):
    """A message that was delivered `LIMIT` times in vain is archived."""

    def __init__(self) -> None:
        super().__init__(LEASE_S, runtime=Machine(HandClock()))
        self.archived: list[str] = []

    def receive(self, at_most: int, now: float, holder: object = None) -> list[tuple[int, Message]]:
        for number, message in list(self._open.items()):
            if message.deliveries >= LIMIT and message.visible_at <= now:
                self.archived.append(message.value.decode())
                del self._open[number]
        return super().receive(at_most, now, holder)


class FixedSource(MemoryLeasedSource):
    spare_s = SPARE_S

    def left_s(self, record: Record) -> float:
        return self.queue.of(record.offset).visible_at - self.queue.now()

    def deliveries_left(self, record: Record) -> int:
        return LIMIT - self.queue.of(record.offset).deliveries

    def refusal(self, record: Record) -> Exception | None:
        return None if self.deliveries_left(record) else DeliveriesSpent("the last")

    def extend(self, records: Sequence[Record]) -> None:
        """The client cannot."""


class Consumer(Running):
    def __init__(
        self,
        queue: LimitedQueue,
        work: Work,
        claims: MemoryClaims,
        retry: Retry,
        *,
        limit: DeadLetterLimit | None = None,
        **settings: Any,
    ) -> None:
        super().__init__(queue.changed)
        self.source = FixedSource(queue)
        self.letters = Letters(queue.changed)
        given = {"workers": 2, "ramp": None, "handler_timeout_s": 10.0, "handler_grace_s": 1.0}
        self.app = Holdfast(
            self.source,
            claims=claims,
            settings=Settings(**(given | settings)),
            observers=[self],
            dead_letters=self.letters,
        )
        handler = self.app.handler("jobs", name="handle", retry=retry, dead_letter="dead", dead_letter_limit=limit)
        handler(lambda record: work.do("a", record))

    @property
    def dead(self) -> list[tuple[str, Exception]]:
        return [((letter.record.value or b"").decode(), letter.reason) for letter in self.letters.sent]


class Field:
    def __init__(self) -> None:
        self.queue = LimitedQueue()
        self.work = Work(self.queue.changed)
        self.claims = MemoryClaims()
        self.consumers: list[Consumer] = []

    def consumer(self, retry: Retry = QUICK, **settings: Any) -> Consumer:
        made = Consumer(self.queue, self.work, self.claims, retry, **settings)
        self.consumers.append(made)
        made.start()
        return made

    def deliver(self, times: int) -> None:
        """To a member that dies with it."""
        for _ in range(times):
            with self.queue.changed:
                assert self.queue.receive(10, self.queue.now())
            self.queue.pass_time(LEASE_S)

    def wait(self, over: Any) -> None:
        until(over, lambda: self.work.story[-10:], changed=self.queue.changed)

    def __enter__(self) -> Self:
        return self


@pytest.fixture
def field() -> Iterator[Field]:
    made = Field()
    yield made
    made.work.let_go()
    for consumer in made.consumers:
        consumer.app.stop()
        assert consumer.over.wait(PATIENCE_S)
    made.claims.close()


def test_it_is_told_from_a_source_that_renews() -> None:
    assert isinstance(FixedSource(LimitedQueue()), FixedLeaseSource)
    assert not isinstance(MemoryLeasedSource(MemoryQueue()), FixedLeaseSource)


def test_what_cannot_end_within_its_lease_is_given_back_and_not_begun(field: Field) -> None:
    """Two workers are busy; the others wait until less is left than their handler's timeout and the spare time."""
    field.work.hold("x0", "x1")
    field.queue.put(*numbered("x", range(4)))
    first = field.consumer()
    field.wait(lambda: field.work.is_running("x0") and field.work.is_running("x1"))
    field.queue.pass_time(LEASE_S - 10.0 - 1.0 - SPARE_S + 0.5)
    field.wait(lambda: first.source.released >= 2)
    assert field.work.starts().keys() == {"x0", "x1"}
    field.work.let_go()
    field.wait(lambda: field.queue.open == [])
    assert set(field.work.starts().values()) == {1}
    assert field.queue.archived == []


def test_a_failed_record_is_tried_again_within_its_lease_alone(field: Field) -> None:
    field.work.fail("x", ValueError("no"))
    field.queue.put("x")
    consumer = field.consumer(retry=Retry(attempts=5, wait_initial_s=3600, wait_max_s=3600, jitter_s=0))
    field.wait(lambda: field.work.starts().get("x") == 1)
    field.queue.pass_time(LEASE_S * 0.6)  # too little is left for its next attempt, which would be in an hour
    field.wait(lambda: field.queue.open == [])
    assert field.work.starts() == {"x": 2}
    assert consumer.source.released == 1
    assert consumer.dead == []


def test_one_that_would_come_back_only_to_be_refused_is_a_dead_letter_with_its_own_error(field: Field) -> None:
    field.work.fail("x", *[ValueError("no")] * 9)
    field.queue.put("x")
    field.deliver(LIMIT - 2)
    consumer = field.consumer(retry=Retry(attempts=5, wait_initial_s=3600, wait_max_s=3600, jitter_s=0))
    field.wait(lambda: field.work.starts().get("x") == 1)
    field.queue.pass_time(LEASE_S * 0.6)
    field.wait(lambda: field.queue.open == [])
    [(value, reason)] = consumer.dead
    assert (value, isinstance(reason, DeliveriesSpent)) == ("x", False)
    assert field.queue.archived == []


def test_at_its_last_delivery_no_handler_gets_a_record(field: Field) -> None:
    field.queue.put("x")
    field.deliver(LIMIT - 1)
    consumer = field.consumer()
    field.wait(lambda: field.queue.open == [])
    assert [(value, type(reason)) for value, reason in consumer.dead] == [("x", DeliveriesSpent)]
    assert field.work.starts() == {}
    assert field.queue.archived == []


def test_what_is_done_is_no_dead_letter_when_it_comes_for_the_last_time(field: Field) -> None:
    field.queue.put("x")
    first = field.consumer()
    first.source.acknowledge = list  # type: ignore[method-assign,assignment]
    field.wait(lambda: "x" in field.work.values())
    first.stop()
    field.queue.pass_time(LEASE_S)
    field.deliver(LIMIT - 2)
    consumer = field.consumer()
    field.wait(lambda: field.queue.open == [])
    assert (field.work.starts(), consumer.dead, field.queue.archived) == ({"x": 1}, [], [])


def test_refused_records_say_nothing_of_the_handler(field: Field) -> None:
    """The limit of dead letters is for handlers that are broken."""
    field.queue.put(*numbered("x", range(60)))
    for _ in range(LIMIT - 1):
        with field.queue.changed:
            assert len(field.queue.receive(60, field.queue.now())) == 60
        field.queue.pass_time(LEASE_S)
    consumer = Consumer(field.queue, field.work, field.claims, QUICK, limit=DeadLetterLimit(in_a_row=10, then="stop"))
    field.consumers.append(consumer)
    consumer.start()
    field.wait(lambda: field.queue.open == [])
    assert len(consumer.dead) == 60
    assert consumer.error is None
