"""ShareSource on a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import AcknowledgeType, Consumer

from holdfast import Holdfast, MemoryClaims, Retry, Settings
from holdfast.adapters.kafka import ShareSource
from holdfast.adapters.kafka.share.reader import Reader
from holdfast.errors import SettingError, SourceError, UnknownTopic
from tests.contracts.kafka.share.lab import Field, Gate
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from confluent_kafka import Message

    from tests.harness.servers.kafka import KafkaServer

#: Attempts that come long after the end of any lock.
MUCH_LATER = Retry(attempts=5, wait_initial_s=3600, wait_max_s=3600, jitter_s=0)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.let_go()


def values(count: int, prefix: str = "x") -> list[str]:
    return [f"{prefix}{number}" for number in range(count)]


def errors(letters: Sequence[Message]) -> list[tuple[str, str]]:
    """Value and kind of error of each."""
    found = []
    for letter in letters:
        kind = dict(letter.headers() or ())["holdfast-error-type"]
        assert isinstance(kind, bytes)
        found.append(((letter.value() or b"").decode(), kind.decode()))
    return found


def test_each_record_is_handled_once_and_acknowledged(kafka: KafkaServer, gate: Gate) -> None:
    field = Field(kafka, partitions=2)
    field.fill(values(200), batch=7)
    with field.app(gate):
        gate.wait_for(values(200))
    assert gate.twice == []
    assert field.left() == []


@pytest.mark.full
def test_a_record_is_acknowledged_after_its_handler_and_none_before(kafka: KafkaServer, gate: Gate) -> None:
    """Of one poll, the others are acknowledged while one still runs: nobody gets them when the process ends."""
    field = Field(kafka)
    gate.hold("x3")
    field.fill(values(6), batch=6)
    with field.app(gate, drain_timeout_s=0.1, linger_timeout_s=0.0):
        gate.wait(lambda: len(gate.ended) == 5 and "x3" in gate.started)
    gate.let_go()
    assert field.left() == ["x3"]


def test_a_failing_record_is_a_dead_letter_and_acknowledged(kafka: KafkaServer, gate: Gate) -> None:
    field = Field(kafka)
    gate.fail("x1")
    field.fill(values(3))
    with field.app(gate, handler={"retry": Retry(attempts=2, wait_initial_s=0.01, jitter_s=0)}):
        gate.wait_for(["x0", "x2"])
        assert errors(field.dead(1)) == [("x1", "ValueError")]
    assert field.left() == []
    assert gate.started.count("x1") == 2


def test_a_slow_record_holds_one_client_up_and_the_others_go_on(kafka: KafkaServer, gate: Gate) -> None:
    field = Field(kafka)
    gate.hold("slow")
    with field.app(gate, clients=2):
        field.fill(["slow"])
        gate.wait(lambda: "slow" in gate.started)
        field.fill(values(20))
        gate.wait_for(values(20))
        gate.let_go()
        gate.wait_for(["slow"])
    assert gate.twice == []


def test_who_stops_ends_what_runs_and_gives_the_rest_back_at_once(kafka: KafkaServer, gate: Gate) -> None:
    """The lock is longer than this test waits for anything."""
    field = Field(kafka, lock_s=60)
    gate.hold(*values(20))
    field.fill(values(20), batch=20)
    app = field.app(gate, workers=2)
    with app:
        gate.wait(lambda: len(gate.started) == 2)
        app.app.stop()
        other = Gate()
        with field.app(other):
            other.wait(lambda: len(other.ended) == 18)
            gate.let_go()
            gate.wait(lambda: len(gate.ended) == 2)
    assert sorted([*other.ended, *gate.ended]) == sorted(values(20))
    assert field.left() == []


@pytest.mark.full
def test_a_retry_that_comes_after_the_lock_is_another_delivery(kafka: KafkaServer, gate: Gate) -> None:
    field = Field(kafka, lock_s=4.0)
    gate.fail("x")
    field.fill(["x"])
    handler: dict[str, Any] = {"retry": MUCH_LATER, "timeout_s": 1.0}
    with field.app(gate, handler=handler, handler_grace_s=0.5):
        gate.wait(lambda: len(gate.started) == 2)
        with gate.changed:
            gate._failing.clear()
        gate.wait_for(["x"])
    assert field.left() == []


@pytest.mark.full
def test_a_record_that_always_fails_is_a_dead_letter_with_its_own_error_before_the_last_delivery(
    kafka: KafkaServer, gate: Gate
) -> None:
    field = Field(kafka, lock_s=4.0, deliveries=3)
    gate.fail("x")
    field.fill(["x"])
    with field.app(gate, handler={"retry": MUCH_LATER, "timeout_s": 1.0}, handler_grace_s=0.5):
        assert errors(field.dead(1)) == [("x", "ValueError")]
    assert gate.started == ["x", "x"]
    assert field.left() == []


def test_at_its_last_delivery_no_handler_gets_a_record(kafka: KafkaServer, gate: Gate) -> None:
    field = Field(kafka, deliveries=3)
    field.fill(["x"])
    with field.client() as client:
        for _ in range(2):
            client.answer(client.poll(), AcknowledgeType.RELEASE)
    with field.app(gate):
        assert errors(field.dead(1)) == [("x", "holdfast.errors.DeliveriesSpent")]
    assert gate.started == []
    assert field.left() == []


@pytest.mark.full
def test_what_came_for_the_last_time_is_saved_though_the_store_is_away(kafka: KafkaServer, gate: Gate) -> None:
    """The engine claims nothing then, so the record waits: its client writes the letter before the lock ends."""
    field = Field(kafka, deliveries=2, lock_s=4.0)
    field.fill(["x"])
    with field.client() as client:
        client.answer(client.poll(), AcknowledgeType.RELEASE)
    store = MemoryClaims()
    app = field.app(gate, store, handler={"timeout_s": 1.0}, handler_grace_s=0.5)
    original = app.source.poll

    def poll(max_records: int, timeout_s: float) -> Any:
        app.source._wanted_at = app.source._runtime.now()  # as in the second before the store went away
        return original(0, timeout_s)

    app.source.poll = poll  # type: ignore[method-assign]
    with app:
        assert errors(field.dead(1)) == [("x", "holdfast.errors.DeliveriesSpent")]
    assert field.left() == []


def test_what_is_done_and_comes_again_is_skipped(
    kafka: KafkaServer, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, store = Field(kafka), MemoryClaims()
    field.fill(values(5), batch=5)

    def silent(self: Reader, _: object, answers: Sequence[Any]) -> None:
        self._open -= len(answers)
        self.end()

    with monkeypatch.context() as patched:
        patched.setattr(Reader, "_tell", silent)  # no acknowledgement reaches the broker, and the client leaves
        with field.app(gate, store, clients=1):
            gate.wait_for(values(5))
    with field.app(gate, store) as app:
        until(lambda: app.app.snapshot().records.suppressed_by_key == 5 or None)
    assert gate.twice == []
    assert field.left() == []


@pytest.mark.full
def test_the_same_business_key_is_the_same_work(kafka: KafkaServer, gate: Gate) -> None:
    field = Field(kafka)
    field.fill(["a", "b", "a", "b"])
    with field.app(gate, handler={"key": lambda record: record.value.decode()}) as app:
        until(lambda: app.app.snapshot().records.suppressed_by_key == 2 or None)
    assert sorted(gate.ended) == ["a", "b"]
    assert field.left() == []


class TestStart:
    def test_a_handler_that_may_outlive_the_lock_is_refused_with_the_remedy(
        self, kafka: KafkaServer, gate: Gate
    ) -> None:
        field = Field(kafka, lock_s=10)
        app = field.app(gate)
        with pytest.raises(SettingError, match=r"lengthen the lock: kafka-configs.sh .*=15000"), app:
            app.over.wait()

    def test_a_topic_that_is_missing_is_named(self, kafka: KafkaServer) -> None:
        field = Field(kafka)
        app = Holdfast(ShareSource(field.conf), claims=MemoryClaims(), settings=Settings(handler_timeout_s=5.0))
        app.handler("nobody-has-made-it", dead_letter=field.letters)(print)
        with pytest.raises(UnknownTopic, match="nobody-has-made-it"):
            app.run(install_signal_handlers=False)

    def test_a_group_of_another_kind_is_named(self, kafka: KafkaServer, gate: Gate) -> None:
        field = Field(kafka)
        with_partitions = Consumer({**field.conf, "group.protocol": "consumer"})
        try:
            with_partitions.subscribe([field.topic])
            until(lambda: with_partitions.poll(0.1) is not None or bool(with_partitions.assignment()) or None)
            app = field.app(gate)
            with pytest.raises(SourceError, match="consumer group of that name"), app:
                app.over.wait()
        finally:
            with_partitions.close()

    def test_a_group_that_begins_at_the_end_is_told_of(
        self, kafka: KafkaServer, gate: Gate, caplog: pytest.LogCaptureFixture
    ) -> None:
        field = Field(kafka)
        field.group = f"{field.group}-unset"
        app = field.app(gate)
        with app:
            until(lambda: app.app.snapshot().state == "running" or None)
        assert "share.auto.offset.reset=earliest" in caplog.text
