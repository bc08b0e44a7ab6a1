"""The audit on a real broker: two apps and a loop of one's own share a group, and their events say what happened."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer

from holdfast import Audit, Holdfast, RedisClaims, Settings
from holdfast.adapters.kafka import KafkaConsumer, KafkaEvents, KafkaSource
from holdfast.errors import SettingError
from holdfast.plugin.audit.schema import Assigned, Event, Outcome, Progress, Revoked, Spans, Started, Stopped, decode
from tests.harness.kafka_brokers import closed_port
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.servers.kafka import KafkaServer

__all__ = ["closed_port"]


class Group:
    """One topic, one topic for events, and the members of a group that tell what they do."""

    def __init__(self, kafka: KafkaServer, redis_url: str) -> None:
        name = uuid.uuid4().hex[:8]
        self.kafka, self.redis_url = kafka, redis_url
        self.topic, self.group, self.events = f"orders-{name}", f"group-{name}", f"audit-{name}"
        kafka.create_topic(self.topic, 4)
        kafka.create_topic(self.events, 2)
        self.handled: Counter[tuple[str, str, int]] = Counter()
        self.stores: list[RedisClaims] = []
        self.apps: dict[str, tuple[Holdfast, threading.Thread]] = {}

    def how(self, member: str) -> tuple[dict[str, Any], dict[str, Any]]:
        conf = {
            "bootstrap.servers": self.kafka.bootstrap,
            "group.id": self.group,
            "auto.offset.reset": "earliest",
            "group.protocol": "consumer",
        }
        audit = Audit(KafkaEvents(conf, self.events), member=member, flush_s=0.2, progress_s=0.5)
        self.stores.append(RedisClaims.from_url(self.redis_url, namespace=self.group))
        return conf, {"claims": self.stores[-1], "audit": audit}

    def start(self, member: str) -> Holdfast:
        conf, how = self.how(member)
        app = Holdfast(KafkaSource(conf), settings=Settings(workers=4, ramp=None), **how)

        @app.handler(self.topic, name="handle")
        def handle(record: Any) -> None:
            self.handled[member, str(record.partition.number), record.offset] += 1

        thread = threading.Thread(target=lambda: app.run(install_signal_handlers=False), daemon=True)
        self.apps[member] = app, thread
        thread.start()
        return app

    def stop(self, member: str) -> None:
        app, thread = self.apps[member]
        app.stop()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()

    def produce(self, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.kafka.bootstrap})
        for number in range(count):
            producer.produce(self.topic, b"x", partition=number % 4)
        assert producer.flush(PATIENCE_S) == 0

    def told(self) -> list[Event]:
        """All events that the topic has, as some reader reads them."""
        reader = Consumer(
            {
                "bootstrap.servers": self.kafka.bootstrap,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        reader.subscribe([self.events])
        found: list[Event] = []
        expected = sum(self.kafka.end_offsets(self.events).values())
        try:
            while len(found) < expected:
                for message in reader.consume(500, 1.0):
                    event = decode(message.value() or b"")
                    assert (message.key() or b"").decode() == event.stamp.run
                    found.append(event)
        finally:
            reader.close()
        return found


@pytest.fixture
def group(kafka: KafkaServer, redis_url: str) -> Iterator[Group]:
    made = Group(kafka, redis_url)
    yield made
    for store in made.stores:
        store.close()


def handled(events: list[Event]) -> Counter[tuple[str, str, int]]:
    return Counter(
        (event.stamp.member, event.body.partition, offset)
        for event in events
        if isinstance(event.body, Spans)
        for span in event.body.spans
        if span.outcome is Outcome.HANDLED
        for offset in range(span.first or 0, span.next or 0)
    )


def places(events: list[Event], kind: type[Assigned | Revoked], member: str) -> list[tuple[str, int | None]]:
    return sorted(
        (place.partition, place.position)
        for event in events
        if isinstance(event.body, kind) and event.stamp.member == member
        for place in event.body.partitions
    )


def test_members_that_come_and_go_say_who_did_what(group: Group) -> None:
    first = group.start("a")
    group.produce(200)
    until(lambda: group.handled.total() == 200)
    second = group.start("b")
    until(lambda: len(first.snapshot().partitions) == 2 == len(second.snapshot().partitions))
    group.produce(200)
    until(lambda: group.handled.total() == 400)
    group.stop("a")
    until(lambda: len(second.snapshot().partitions) == 4)
    # A loop that has no handlers, under the same names.
    conf, how = group.how("c")
    loop = KafkaConsumer(conf, **how)
    loop.subscribe([group.topic])
    group.stop("b")
    group.produce(40)
    got: list[tuple[str, str, int]] = []

    def more() -> bool:
        if (message := loop.poll(0.1)) is not None:
            got.append(("c", str(message.partition()), message.offset() or 0))
        return len(got) + group.handled.total() == 440

    until(more)
    loop.close()

    events = group.told()
    by_run: dict[str, list[int]] = {}
    for event in events:
        by_run.setdefault(event.stamp.run, []).append(event.stamp.seq)
    assert len(by_run) == 3
    assert all(numbers == list(range(len(numbers))) for numbers in by_run.values())
    last = got[-1:]  # what the loop has, and has not said is done, when it closes: the next one's
    assert handled(events) == group.handled + Counter(got) - Counter(last)
    assert {event.stamp.member: event.body.source for event in events if isinstance(event.body, Started)} == {
        "a": "KafkaSource",
        "b": "KafkaSource",
        "c": "KafkaConsumer",
    }
    assert places(events, Assigned, "a") == [(str(number), 0) for number in range(4)]
    gone = dict(places(events, Revoked, "a"))
    assert sorted(gone.values(), key=str) == [100, 100, 50, 50]
    assert dict(places(events, Assigned, "b")) == gone
    samples = [place for event in events if isinstance(event.body, Progress) for place in event.body.partitions]
    assert max(place.position or 0 for place in samples) >= 100
    assert max(place.end or 0 for place in samples) >= 100
    stopped = {event.stamp.member: event.body for event in events if isinstance(event.body, Stopped)}
    assert {member: body.records["handled"] for member, body in stopped.items()} == Counter(
        member for member, _, _ in handled(events).elements()
    )
    assert stopped["a"].clean
    assert stopped["b"].clean
    assert {event.stamp.dropped for event in events} == {0}


def test_a_broker_that_is_away_holds_up_neither_work_nor_the_end(
    group: Group, closed_port: str, caplog: pytest.LogCaptureFixture
) -> None:
    conf, how = group.how("a")
    nowhere = KafkaEvents({"bootstrap.servers": closed_port}, "audit")
    how["audit"] = Audit(nowhere, flush_s=0.01, progress_s=0.01, buffer_events=10, close_s=0.1)
    loop = KafkaConsumer(conf, **how)
    loop.subscribe([group.topic])
    group.produce(40)
    got: list[Any] = []

    def more() -> bool:
        got.extend(loop.consume(40, 0.1))
        return len(got) == 40

    until(more)
    loop.close()
    assert "events were dropped" in caplog.text


def test_credentials_are_masked_and_what_cannot_work_is_refused() -> None:
    conf = {"bootstrap.servers": "kafka:9092", "sasl.password": "secret-1"}
    assert "secret-1" not in repr(Audit(KafkaEvents(conf, "audit")))
    for field, build in (
        ("conf", lambda: KafkaEvents({}, "audit")),
        ("topic", lambda: KafkaEvents(conf, "")),
        ("conf", lambda: KafkaEvents(conf | {"no.such": 1}, "audit").open("m", "r")),
    ):
        with pytest.raises(SettingError) as refused:
            build()
        assert refused.value.field == field
