"""The end of the dead letters' producer, whatever state it is in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException

from holdfast.adapters.kafka import dead_letter
from holdfast.adapters.kafka.dead_letter import KafkaDeadLetters
from holdfast.plugin.retrying.dead_letter import Letter
from holdfast.testing.records import make_record
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Finished:
    """Takes a letter; then it is fatally broken, as an idempotent producer is that has lost its sequence. The client
    raises that out of the call that serves its events next."""

    def __init__(self, conf: dict[str, Any]) -> None:
        self.flushed = False

    def produce(self, topic: str, *, on_delivery: Callable[..., None], **_: object) -> None:
        on_delivery(None, None)

    def poll(self, timeout_s: float) -> int:
        return 0

    def flush(self, timeout_s: float) -> int:
        self.flushed = True
        raise KafkaException(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "lost its place", fatal=True))

    def __len__(self) -> int:
        return 0


def test_a_producer_that_has_ended_ends_without_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter, "Producer", Finished)
    letters = KafkaDeadLetters({"bootstrap.servers": "127.0.0.1:1"})
    record = make_record(b"x")
    letters.send(
        Letter(record=record, topic="dlq", handler="h", reason=ValueError(), attempts=1, group="g"), Deadline(5.0)
    )
    running = letters._running[False]
    letters.close(Deadline(5.0))
    assert not running._thread.is_alive()
