"""What confluent-kafka's `ShareConsumer` and the broker do today, and what `ShareSource` is built on: docs/reference/
share-groups.md has it as a table. Where one of these fails with a newer client, the limit that it shows may have gone.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import AcknowledgeType, ConcurrentModificationException, IllegalStateException

from tests.contracts.kafka.share.lab import Field
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from confluent_kafka import Message

    from tests.harness.servers.kafka import KafkaServer

RELEASE = AcknowledgeType.RELEASE


def counts(messages: Sequence[Message]) -> list[int | None]:
    return [message.delivery_count() for message in messages]


def values(count: int) -> list[str]:
    return [f"x{number}" for number in range(count)]


def test_a_poll_brings_whole_batches_of_the_producer_whatever_it_asks_for(kafka: KafkaServer) -> None:
    field = Field(kafka)
    field.fill(values(100), batch=100)
    with field.client(max_poll_records=5) as client:
        assert len(client.poll()) == 100


def test_of_many_small_batches_it_brings_as_many_as_make_what_it_asks_for(kafka: KafkaServer) -> None:
    field = Field(kafka)
    field.fill(values(30), batch=1)
    with field.client(max_poll_records=5) as client:
        assert len(client.poll()) <= 5


def test_no_poll_before_all_of_the_last_one_is_acknowledged_but_parts_may_be(kafka: KafkaServer) -> None:
    field = Field(kafka)
    field.fill(values(4), batch=4)
    with field.client() as client:
        first, *others = client.poll()
        assert client.answer([first]) == []
        with pytest.raises(IllegalStateException, match="3 records from previous poll"):
            client.inner.poll(0.1)
        assert client.answer(others) == []
        assert list(client.inner.poll(0.1)) == []


def test_a_release_is_delivered_again_at_once_and_counts(kafka: KafkaServer) -> None:
    field = Field(kafka)
    field.fill(["x"])
    with field.client() as client:
        for number in (1, 2, 3):
            messages = client.poll()
            assert counts(messages) == [number]
            client.answer(messages, RELEASE)


def test_after_the_last_delivery_a_released_record_is_gone(kafka: KafkaServer) -> None:
    field = Field(kafka, deliveries=2)
    field.fill(["x"])
    with field.client() as client:
        for _ in range(2):
            client.answer(client.poll(), RELEASE)
    assert field.left() == []


def test_a_client_that_closes_gives_back_at_once_what_it_has_and_that_counts(kafka: KafkaServer) -> None:
    field = Field(kafka, lock_s=60)
    field.fill(["x"])
    with field.client() as client:
        client.poll()
    with field.client() as other:
        assert counts(other.poll()) == [2]


_HOLD = """
import sys, time
from confluent_kafka import ShareConsumer
conf = {"bootstrap.servers": sys.argv[1], "group.id": sys.argv[2], "share.acknowledgement.mode": "explicit"}
client = ShareConsumer(conf)
client.subscribe([sys.argv[3]])
while not list(client.poll(0.5)):
    pass
print("has it", flush=True)
time.sleep(600)
"""


def test_what_a_killed_process_had_comes_at_once_and_that_counts(kafka: KafkaServer) -> None:
    field = Field(kafka, lock_s=60)
    field.fill(["x"])
    command = [sys.executable, "-c", _HOLD, kafka.bootstrap, field.group, field.topic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"has it\n"
        process.kill()
    with field.client() as other:
        assert counts(other.poll()) == [2]


def test_after_the_end_of_a_lock_another_has_the_record_and_the_late_answer_is_refused(kafka: KafkaServer) -> None:
    field = Field(kafka, lock_s=1.0)
    field.fill(["x"])
    with field.client() as late, field.client() as other:
        messages = late.poll()
        assert counts(other.poll()) == [2]
        assert late.answer(messages) == ["INVALID_RECORD_STATE"]


def test_what_comes_while_nobody_polls_is_delivered_later_though_its_lock_has_ended(kafka: KafkaServer) -> None:
    """So a source may not count a lock from when its poll has returned."""
    field = Field(kafka, lock_s=1.0)
    with field.client(fetch_wait_max_ms=10_000) as idle:
        for _ in range(5):
            assert list(idle.inner.poll(0.5)) == []  # its request stays at the broker
        field.fill(["x"])
        with field.client() as other:
            assert counts(other.poll()) == [2]
            assert counts(idle.poll()) == [1]


def test_a_lock_cannot_be_renewed(kafka: KafkaServer) -> None:
    field = Field(kafka)
    field.fill(["x"])
    renew: Any = 4  # Kafka's protocol has it (KIP-1222), the client does not
    with field.client() as client:
        messages = client.poll()
        with pytest.raises(ValueError, match="Invalid argument"):
            client.inner.acknowledge(messages[0], renew)
        client.answer(messages)


def test_it_belongs_to_one_thread_at_a_time(kafka: KafkaServer) -> None:
    field = Field(kafka)
    field.fill(["x"])
    with field.client() as client:
        client.take()
        polls = threading.Thread(target=lambda: client.inner.poll(2.0))
        polls.start()

        def refused() -> bool:
            try:
                client.inner.commit_sync(0.1)
            except ConcurrentModificationException:
                return True
            return False

        until(lambda: refused() or None)
        polls.join()


def test_of_a_topic_that_is_missing_it_says_nothing(kafka: KafkaServer) -> None:
    field = Field(kafka)
    with field.client() as client:
        client.inner.subscribe(["nobody-has-made-it"])
        assert [list(client.inner.poll(0.5)) for _ in range(4)] == [[]] * 4
