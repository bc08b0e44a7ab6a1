"""Dead letters: there when `send` returns, or an error."""

from __future__ import annotations

import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaError, Producer

from holdfast.adapters.kafka import dead_letter
from holdfast.adapters.kafka.dead_letter import KafkaDeadLetters
from holdfast.errors import (
    DeadLetterError,
    DeadLetterRefused,
    LetterTooLarge,
    SettingError,
    SourceUnavailable,
    UnknownTopic,
)
from holdfast.plugin.retrying.dead_letter import Letter
from holdfast.testing.records import make_record
from holdfast.timing import Deadline
from tests.harness.kafka_brokers import all_of, bootstrap, closed_port, mock_cluster
from tests.harness.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["bootstrap", "closed_port", "mock_cluster"]


#: Which no compression makes smaller.
RANDOM = random.Random(1).randbytes(1_100_000)


def letter(
    topic: str,
    offset: int = 0,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    reason: Exception = ValueError("no"),  # noqa: B008 - never raised
) -> Letter:
    headers = (("trace", b"7"), ("empty", None))
    record = make_record(
        value, topic="orders", partition=3, offset=offset, key=key, headers=headers, timestamp_ms=1_700_000_000_000
    )
    return Letter(record=record, topic=topic, handler="handle", reason=reason, attempts=5, group="billing")


@pytest.fixture
def letters(bootstrap: str) -> Iterator[KafkaDeadLetters]:
    # As a consumer's configuration is: with properties that a producer does not know.
    made = KafkaDeadLetters(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "billing",
            "session.timeout.ms": 6_000,
            "enable.auto.commit": False,
        }
    )
    yield made
    made.close(Deadline(20))


@pytest.fixture
def topic(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """A topic of the broker at hand; the mock cluster makes its own."""
    name = f"dlq-{uuid.uuid4().hex[:8]}"
    if bootstrap != request.getfixturevalue("mock_cluster"):
        server: KafkaServer = request.getfixturevalue("kafka")
        server.create_topic(name, 2)
    return name


@pytest.mark.parametrize(("key", "value"), [(b"k", b"v"), (None, b"v"), (b"k", None), (b"", b"")])
def test_a_letter_is_there_when_send_returns(
    letters: KafkaDeadLetters, bootstrap: str, topic: str, key: bytes | None, value: bytes | None
) -> None:
    letters.check([topic], Deadline(20))
    letters.send(letter(topic, 41, key, value), Deadline(20))
    [message] = all_of(bootstrap, topic, 1)
    assert (message.key(), message.value()) == (key, value)
    headers = message.headers()
    assert isinstance(headers, list)
    assert headers[:2] == [("trace", b"7"), ("empty", None)]
    said = dict(headers)
    assert said["holdfast-origin-topic"] == b"orders"
    assert said["holdfast-origin-partition"] == b"3"
    assert said["holdfast-origin-offset"] == b"41"
    assert said["holdfast-error-type"] == b"ValueError"


def test_threads_send_at_once_and_each_waits_for_its_own(letters: KafkaDeadLetters, bootstrap: str, topic: str) -> None:
    def send(offset: int) -> int:
        letters.send(letter(topic, offset), Deadline(30))
        return offset

    with ThreadPoolExecutor(16) as threads:
        assert sorted(threads.map(send, range(64))) == list(range(64))
    offsets = [
        int(dict(message.headers() or ())["holdfast-origin-offset"] or b"") for message in all_of(bootstrap, topic, 64)
    ]
    assert sorted(offsets) == list(range(64))


def test_a_record_that_was_read_from_a_large_topic_fits_the_client(kafka: KafkaServer) -> None:
    kafka.create_topic("dlq-large", 1, {"max.message.bytes": "4000000"})
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"})
    letters.send(letter("dlq-large", value=b"x" * 3_000_000), Deadline(30))
    letters.close(Deadline(10))
    [message] = all_of(kafka.bootstrap, "dlq-large", 1)
    assert len(message.value() or b"") == 3_000_000


def test_a_letter_that_the_topic_never_takes_is_refused_for_good(kafka: KafkaServer) -> None:
    kafka.create_topic("dlq-small", 1, {"max.message.bytes": "2000"})
    kafka.create_topic("dlq-compacted", 1, {"cleanup.policy": "compact"})
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"})
    with pytest.raises(DeadLetterRefused, match=r"max\.message\.bytes"):
        letters.send(letter("dlq-small", value=RANDOM[:5_000]), Deadline(20))
    with pytest.raises(DeadLetterRefused, match="without a key"):
        letters.send(letter("dlq-compacted", key=None), Deadline(20))
    letters.send(letter("dlq-small", value=b"small"), Deadline(20))
    # With its traceback it would not fit.
    large = letter("dlq-small", value=RANDOM[:1_400], reason=OSError(RANDOM[:450].hex()))
    letters.send(large, Deadline(20))
    letters.close(Deadline(10))
    small, bare = all_of(kafka.bootstrap, "dlq-small", 2)
    assert [small.value(), bare.value()] == [b"small", RANDOM[:1_400]]
    assert [("holdfast-traceback" in dict(each.headers() or ())) for each in (small, bare)] == [True, False]


@pytest.mark.full
def test_a_letter_that_waits_for_its_broker_is_one_letter_however_often_it_is_tried() -> None:
    with KafkaServer() as server:
        server.create_topic("dlq", 1)
        letters = KafkaDeadLetters({"bootstrap.servers": server.bootstrap, "group.id": "billing"})
        letters.check(["dlq"], Deadline(20))
        server.pause_broker()
        for _ in range(3):
            with pytest.raises(DeadLetterError, match="not acknowledged within"):
                letters.send(letter("dlq", 7), Deadline(1))
        server.resume_broker()
        letters.send(letter("dlq", 7), Deadline(20))
        letters.send(letter("dlq", 7, value=b"replayed"), Deadline(20))
        letters.close(Deadline(20))
        assert [each.value() for each in all_of(server.bootstrap, "dlq", 2)] == [b"v", b"replayed"]
        assert server.end_offsets("dlq") == {0: 2}


@pytest.mark.parametrize("hint", [{}, {"compression.codec": "gzip", "message.max.bytes": 1_000_000}])
def test_a_record_that_its_own_topic_took_compressed_fits(kafka: KafkaServer, hint: dict[str, object]) -> None:
    """The broker's limit is about what is stored."""
    topic = f"dlq-packed-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap, "group.id": "billing", **hint})
    letters.send(letter(topic, value=b"y" * 3_000_000), Deadline(30))
    letters.close(Deadline(10))
    [message] = all_of(kafka.bootstrap, topic, 1)
    assert message.value() == b"y" * 3_000_000
    assert "holdfast-traceback" in dict(message.headers() or ())


def test_a_record_at_the_very_limit_fits_with_its_origin_alone(kafka: KafkaServer) -> None:
    topic = f"dlq-limit-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"})
    letters.send(letter(topic, value=RANDOM[:1_048_300]), Deadline(30))
    letters.close(Deadline(10))
    [message] = all_of(kafka.bootstrap, topic, 1)
    assert message.value() == RANDOM[:1_048_300]
    ours = {name for name in dict(message.headers() or ()) if name.startswith("holdfast-")}
    assert ours == {f"holdfast-origin-{name}" for name in ("topic", "partition", "offset", "timestamp")}


def test_what_fits_in_no_form_fits_without_its_value(kafka: KafkaServer) -> None:
    topic = f"dlq-without-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"})
    whole = letter(topic, value=RANDOM)
    with pytest.raises(LetterTooLarge, match="letter_too_large"):
        letters.send(whole, Deadline(30))
    letters.send(replace(whole, without_value=True), Deadline(30))
    large = letter(topic, 1, key=RANDOM, value=RANDOM)
    letters.send(replace(large, without_value=True), Deadline(30))
    letters.close(Deadline(10))
    first, second = all_of(kafka.bootstrap, topic, 2)
    assert (first.key(), first.value(), second.key(), second.value()) == (b"k", None, None, None)
    said = [dict(each.headers() or ()) for each in (first, second)]
    assert [each["holdfast-left-out"] for each in said] == [b"value", b"value, key, headers"]
    assert [each["holdfast-value-bytes"] for each in said] == [b"1100000"] * 2
    assert [each["holdfast-origin-offset"] for each in said] == [b"0", b"1"]


def test_a_dead_letter_topic_that_takes_less_than_an_origin_is_told_at_the_start(
    kafka: KafkaServer, caplog: pytest.LogCaptureFixture
) -> None:
    topic = f"dlq-less-{uuid.uuid4().hex[:8]}"
    kafka.create_topic(topic, 1)
    kafka.create_topic(f"{topic}-wide", 1, {"max.message.bytes": "5000000"})
    kafka.create_topic(f"{topic}-alike", 1)
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"})
    letters.check_keeping({}, {topic: [f"{topic}-alike"]}, Deadline(30))
    assert not [line for line in caplog.messages if "max.message.bytes" in line]
    letters.check_keeping({}, {topic: [f"{topic}-alike", f"{topic}-wide"]}, Deadline(30))
    letters.close(Deadline(10))
    [line] = [line for line in caplog.messages if "max.message.bytes" in line]
    assert f"{topic}-wide takes records of up to 5000000" in line


def test_a_letter_that_is_too_large_takes_no_other_along(kafka: KafkaServer) -> None:
    """The broker measures what it gets in one batch."""
    kafka.create_topic("dlq-narrow", 1, {"max.message.bytes": "3000"})
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"})

    def send(offset: int) -> bool:
        try:
            letters.send(letter("dlq-narrow", offset, value=RANDOM[: 5_000 if offset % 10 == 5 else 500]), Deadline(30))
        except DeadLetterRefused:
            return False
        return True

    with ThreadPoolExecutor(16) as threads:
        refused = [offset for offset, sent in enumerate(threads.map(send, range(200))) if not sent]
    letters.close(Deadline(10))
    assert refused == list(range(5, 200, 10))


def test_a_missing_topic_is_told_at_the_start(kafka: KafkaServer) -> None:
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"})
    kafka.create_topic("dlq-there", 1)
    with pytest.raises(UnknownTopic, match="dlq-missing"):
        letters.check(["dlq-there", "dlq-missing"], Deadline(20))
    letters.close(Deadline(10))


def test_a_letter_to_a_missing_topic_is_refused_in_bounded_time(kafka: KafkaServer) -> None:
    letters = KafkaDeadLetters({"bootstrap.servers": kafka.bootstrap, "group.id": "billing"})
    with pytest.raises(DeadLetterRefused, match="dlq-missing"):
        letters.send(letter("dlq-missing"), Deadline(60))
    letters.close(Deadline(10))


def test_without_a_broker_a_letter_is_not_acknowledged_and_may_be_sent_again(closed_port: str) -> None:
    letters = KafkaDeadLetters({"bootstrap.servers": closed_port, "group.id": "billing"})
    with pytest.raises(DeadLetterError, match=closed_port) as caught:
        letters.send(letter("dlq"), Deadline(0.3))
    assert caught.value.retriable
    with pytest.raises(SourceUnavailable, match=closed_port):
        letters.check(["dlq"], Deadline(0.3))
    letters.close(Deadline(0))


@pytest.mark.parametrize("let_in", ["check", "send"])
def test_who_was_let_in_once_is_not_refused_for_what_a_broker_said_of_its_credentials(
    monkeypatch: pytest.MonkeyPatch, let_in: str
) -> None:
    """As a broker does that has not loaded its users yet: hours later another one is away, and the app would stop."""
    monkeypatch.setitem(dead_letter._OWN, "message.timeout.ms", 1_000)
    brokers = [Producer({"bootstrap.servers": "x", "test.mock.num.brokers": 1})]
    [broker] = brokers[0].list_topics(timeout=20).brokers.values()
    letters = KafkaDeadLetters({"bootstrap.servers": f"{broker.host}:{broker.port}", "group.id": "billing"})
    if let_in == "check":
        letters.check(["dlq"], Deadline(20))
    else:
        _until_sent(letters)
    assert letters._running
    letters._running[False]._told(KafkaError(KafkaError._AUTHENTICATION, "a broker that had not loaded its users yet"))
    brokers.clear()
    for _ in range(2):  # also by the producer that takes the place of the first
        with pytest.raises(DeadLetterError, match="a new producer tries again") as caught:
            letters.send(letter("dlq", 1), Deadline(20))
        assert caught.value.retriable
        letters._start()._told(KafkaError(KafkaError._AUTHENTICATION, "the same"))
    letters.close(Deadline(0))


def _until_sent(letters: KafkaDeadLetters) -> None:
    """A second is little where the machine is busy."""
    for _ in range(60):
        with suppress(DeadLetterError):
            return letters.send(letter("dlq"), Deadline(20))
    raise AssertionError("no letter was sent")


def test_nothing_is_sent_after_the_end(letters: KafkaDeadLetters, topic: str) -> None:
    letters.send(letter(topic), Deadline(20))
    letters.close(Deadline(20))
    letters.close(Deadline(20))
    with pytest.raises(DeadLetterError, match="closed"):
        letters.send(letter(topic), Deadline(20))


def test_what_librdkafka_refuses_is_a_setting(bootstrap: str) -> None:
    letters = KafkaDeadLetters({"bootstrap.servers": bootstrap, "group.id": "billing", "no.such.property": 1})
    with pytest.raises(SettingError, match=r"no\.such\.property"):
        letters.check(["dlq"], Deadline(20))
