"""Dead letters to RocketMQ: there when `send` returns, or an error."""

from __future__ import annotations

import random
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast.adapters.rocketmq.dead_letter import OWN, RocketMQDeadLetters
from holdfast.adapters.rocketmq.headers import headers_of
from holdfast.adapters.rocketmq.remoting import RemotingClient
from holdfast.errors import (
    DeadLetterError,
    DeadLetterRefused,
    LetterTooLarge,
    NotAuthorised,
    SourceUnavailable,
    UnknownTopic,
)
from holdfast.plugin.retrying.dead_letter import Letter
from holdfast.records import Partition
from holdfast.testing.records import make_record
from holdfast.timing import Deadline
from tests.harness.rocketmq_topics import all_of, make_topic, messages_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.harness.servers.rocketmq import RocketMQServer

#: maxMessageSize of a broker is 4 MB, which no compression makes of these.
_TOO_LARGE = 5_000_000
_HEADERS = (
    ("KEYS", b"4711 k2"),
    ("TAGS", b"new"),
    ("UNIQ_KEY", b"7F0000010BAD18B4AAC2335A0F0F0000"),
    ("DELAY", b"3"),
    ("RETRY_TOPIC", b"orders"),
    ("MIN_OFFSET", b"0"),
    ("trace", b"7"),
    ("raw", b"\xff\x00"),
    ("none", None),
)


def letter(
    topic: str,
    offset: int = 0,
    value: bytes | None = b"v",
    headers: Sequence[tuple[str, bytes | None]] = (),
    key: bytes | None = None,
    reason: str = "no",
) -> Letter:
    record = make_record(value, offset=offset, key=key, headers=headers, timestamp_ms=1_700_000_000_000)
    record = record._replace(partition=Partition("orders", 3, "broker-a"))
    return Letter(record=record, topic=topic, handler="handle", reason=ValueError(reason), attempts=5, group="billing")


@pytest.fixture
def group() -> str:
    return f"billing-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def letters(rocketmq: RocketMQServer, group: str) -> Iterator[RocketMQDeadLetters]:
    made = RocketMQDeadLetters(partial(RemotingClient, rocketmq.namesrv), group)
    yield made
    made.close(Deadline(20))


def test_a_letter_is_there_when_send_returns_with_its_own_and_our_properties(
    letters: RocketMQDeadLetters, rocketmq: RocketMQServer
) -> None:
    topic = make_topic(rocketmq.namesrv, 2)
    letters.check([topic], Deadline(20))
    letters.send(letter(topic, 41, headers=_HEADERS), Deadline(20))
    [message] = messages_of(rocketmq.namesrv, topic, 1)
    assert (message.body, message.keys, message.tags) == (b"v", "4711 k2", "new")
    assert message.unique_key == "7F0000010BAD18B4AAC2335A0F0F0000", "the identity stays"
    said = dict(headers_of(message.raw_properties))
    assert (said["trace"], said["raw"]) == (b"7", b"\xff\x00")
    assert said["holdfast-origin-topic"] == b"orders"
    assert said["holdfast-origin-partition"] == b"broker-a-3"
    assert said["holdfast-origin-offset"] == b"41"
    assert said["holdfast-error-type"] == b"ValueError"
    assert not said.keys() & {"DELAY", "RETRY_TOPIC", "none"}


@pytest.mark.parametrize("value", [b"", None, b"x" * 100_000])
def test_a_letter_has_the_value_of_its_record(
    letters: RocketMQDeadLetters, rocketmq: RocketMQServer, value: bytes | None
) -> None:
    topic = make_topic(rocketmq.namesrv, 1)
    letters.send(letter(topic, value=value), Deadline(20))
    [message] = messages_of(rocketmq.namesrv, topic, 1)
    assert message.body == (value or b"")


def test_a_record_without_properties_gets_an_identity_and_its_key(
    letters: RocketMQDeadLetters, rocketmq: RocketMQServer
) -> None:
    topic = make_topic(rocketmq.namesrv, 1)
    letters.send(letter(topic, key=b"4711", reason="odd \x01 \x02 \ud800"), Deadline(20))
    [message] = messages_of(rocketmq.namesrv, topic, 1)
    assert message.keys == "4711"
    assert len(message.unique_key or "") == 32
    assert dict(headers_of(message.raw_properties))["holdfast-error-message"] == b"odd \x01 \x02 ?"


def test_the_dead_letter_topic_of_the_group_is_made_at_the_start(
    letters: RocketMQDeadLetters, rocketmq: RocketMQServer, group: str
) -> None:
    letters.check([OWN], Deadline(20))
    letters.check([OWN, f"%DLQ%{group}"], Deadline(20))
    letters.send(letter(OWN), Deadline(20))
    [(queue, found)] = all_of(rocketmq.namesrv, f"%DLQ%{group}", 1).items()
    assert (queue.number, [message.body for message in found]) == (0, [b"v"])


def test_threads_send_at_once_and_each_waits_for_its_own(
    letters: RocketMQDeadLetters, rocketmq: RocketMQServer
) -> None:
    topic = make_topic(rocketmq.namesrv, 2)

    def send(offset: int) -> int:
        letters.send(letter(topic, offset), Deadline(30))
        return offset

    with ThreadPoolExecutor(16) as threads:
        assert sorted(threads.map(send, range(64))) == list(range(64))
    found = [int(message.properties["holdfast-origin-offset"]) for message in messages_of(rocketmq.namesrv, topic, 64)]
    assert sorted(found) == list(range(64))


def test_a_letter_that_its_topic_never_takes_is_refused_for_good(
    letters: RocketMQDeadLetters, rocketmq: RocketMQServer
) -> None:
    topic = make_topic(rocketmq.namesrv, 1)
    incompressible = b"".join(uuid.uuid4().bytes for _ in range(300_000))
    with pytest.raises(DeadLetterRefused, match="maxMessageSize"):
        letters.send(letter(topic, value=incompressible), Deadline(20))
    with pytest.raises(DeadLetterRefused, match="32,255 at most"):
        letters.send(letter(topic, headers=[("long", b"x" * 32_300)]), Deadline(20))
    letters.send(letter(topic, value=b"small"), Deadline(20))
    assert [message.body for message in messages_of(rocketmq.namesrv, topic, 1)] == [b"small"]


@pytest.mark.parametrize("properties", [0, 1_000, 32_000], ids=["no properties", "some", "as many as there may be"])
def test_a_letter_that_is_too_large_arrives_without_its_value_and_says_what_it_lacks(
    letters: RocketMQDeadLetters, rocketmq: RocketMQServer, properties: int
) -> None:
    topic, large = make_topic(rocketmq.namesrv, 1), random.Random(7).randbytes(_TOO_LARGE)
    headers = [("UNIQ_KEY", b"7F0000010BAD18B4AAC2335A0F0F0001"), *([("p", b"x" * properties)] if properties else [])]
    whole = letter(topic, 41, large, headers, key=b"4711")
    with pytest.raises(LetterTooLarge, match="letter_too_large"):
        letters.send(whole, Deadline(20))
    letters.send(replace(whole, without_value=True), Deadline(20))
    letters.send(letter(topic, 42), Deadline(20))  # the topic goes on
    found, after = messages_of(rocketmq.namesrv, topic, 2)
    assert (found.body, after.body) == (b"", b"v")
    said = dict(headers_of(found.raw_properties))
    assert said["holdfast-value-bytes"] == str(_TOO_LARGE).encode()
    places = [said[f"holdfast-origin-{name}"] for name in ("topic", "partition", "offset")]
    assert places == [b"orders", b"broker-a-3", b"41"]
    assert said["holdfast-error-message"] == b"no"
    if properties < 32_000:
        assert said["holdfast-left-out"] == b"value"
        assert (found.unique_key, found.keys) == ("7F0000010BAD18B4AAC2335A0F0F0001", "4711")
        assert said.get("p", b"") == b"x" * properties
    else:
        assert said["holdfast-left-out"] == b"value, key, headers"


def test_a_topic_that_is_missing_or_closed_is_told_at_the_start_and_to_each_letter(
    letters: RocketMQDeadLetters, rocketmq: RocketMQServer
) -> None:
    closed = make_topic(rocketmq.namesrv, 1, perm=4)
    with pytest.raises(UnknownTopic, match=r"no-such.*mqadmin"):
        letters.check(["no-such"], Deadline(20))
    with pytest.raises(NotAuthorised, match="perm 6"):
        letters.check([closed], Deadline(20))
    with pytest.raises(DeadLetterRefused, match="no-such"):
        letters.send(letter("no-such"), Deadline(20))


def test_without_a_broker_a_letter_is_not_acknowledged_and_may_be_sent_again() -> None:
    letters = RocketMQDeadLetters(partial(RemotingClient, "127.0.0.1:1"), "billing")
    with pytest.raises(DeadLetterError, match=r"127\.0\.0\.1:1") as caught:
        letters.send(letter("dlq"), Deadline(0.3))
    assert caught.value.retriable
    with pytest.raises(SourceUnavailable, match=r"127\.0\.0\.1:1"):
        letters.check(["dlq"], Deadline(0.3))
    letters.close(Deadline(0))


def test_nothing_is_sent_after_the_end(letters: RocketMQDeadLetters, rocketmq: RocketMQServer) -> None:
    topic = make_topic(rocketmq.namesrv, 1)
    letters.send(letter(topic), Deadline(20))
    letters.close(Deadline(20))
    letters.close(Deadline(20))
    with pytest.raises(DeadLetterError, match="closed"):
        letters.send(letter(topic), Deadline(20))
