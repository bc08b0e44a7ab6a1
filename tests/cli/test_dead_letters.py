"""`holdfast dead-letters` on the real servers: what failed is shown, goes back, and is handled once."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from holdfast import RedisClaims
from holdfast.adapters.cli.replayed import NAMESPACE, names_of
from holdfast.adapters.kafka.tools.dead_letters import KafkaDeadLetterTool
from holdfast.timing import Deadline
from tests.cli.bench import ROOT, Shop, holdfast, lay_out, lines
from tests.harness.kafka_brokers import all_of
from tests.harness.servers.redis import RedisServer
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from tests.harness.servers.kafka import KafkaServer


@pytest.fixture
def shop(kafka: KafkaServer, redis_url: str) -> Shop:
    """Ten orders, three of them declined and in the dead letter topic."""
    shop = Shop(kafka, redis_url)
    shop.declined = {2, 5, 8}
    shop.send(range(10))
    with shop.app():
        shop.until(billed=7)
        shop.until_letters(3)
    return shop


def test_letters_are_listed_with_their_reason_and_their_origin(shop: Shop) -> None:
    asked = ("dead-letters", "list", "--topic", shop.dlq, "--bootstrap", shop.kafka.bootstrap)
    *letters, summary = lines(holdfast(*asked, "--json", "--values"))
    assert {each["value"]["text"] for each in letters} == {f'{{"order_id": {number}}}' for number in (2, 5, 8)}
    for each in letters:
        assert each["origin_topic"] == shop.topic
        assert each["handler"] == "shop.bill"
        assert each["error_type"] == "holdfast.errors.Unretriable"
        assert each["error_message"].startswith("no money for")
        assert each["attempts"] == 1
        assert each["key"]["text"].startswith("customer-")
    assert summary == {
        "type": "summary",
        "letters": 3,
        "shown": 3,
        "by_error_type": {"holdfast.errors.Unretriable": 3},
    }
    told = holdfast(*asked, "--limit", 1).stdout
    assert "1 of 3 letters shown" in told
    assert "no money for" in told
    assert holdfast(*asked, "--error-type", "Unretriable", "--origin", shop.topic, "--since", "1h").stdout != ""
    for nobody in (["--error-type", "KeyError"], ["--handler", "x"], ["--origin", "x"], ["--since", "2999-01-01T00Z"]):
        assert "no letters" in holdfast(*asked, *nobody).stdout


def test_a_replay_brings_each_letter_back_once_and_the_app_handles_it(shop: Shop) -> None:
    asked = ("dead-letters", "replay", "--topic", shop.dlq, "--origin", shop.topic, *shop.both, "--json")
    before = sum(shop.kafka.end_offsets(shop.topic).values())
    [dry] = lines(holdfast(*asked, "--dry-run"))
    assert dry["sent"] == {shop.topic: 3}
    assert sum(shop.kafka.end_offsets(shop.topic).values()) == before
    [result] = lines(holdfast(*asked, "--limit", 2))
    assert (result["sent"], result["stopped"]) == ({shop.topic: 2}, "limit")
    [result] = lines(holdfast(*asked))
    assert (result["sent"], result["already_replayed"]) == ({shop.topic: 1}, 2)
    [result] = lines(holdfast(*asked))
    assert result["sent"] == {}
    assert sum(shop.kafka.end_offsets(shop.topic).values()) == before + 3
    shop.declined.clear()
    with shop.app():
        shop.until(billed=10)
    assert shop.billed == Counter(range(10))


def test_what_a_filter_leaves_is_sent_by_a_later_replay(kafka: KafkaServer, redis_url: str) -> None:
    lay_out(redis_url)
    kafka.create_topic("filtered", 1)
    kafka.create_topic("filtered.dlq", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(300):
        handler = "odd" if number % 2 else "even"
        headers: dict[str, str | bytes | None] = {
            "holdfast-origin-topic": "filtered",
            "holdfast-handler": handler,
            "mine": "x",
        }
        producer.produce("filtered.dlq", value=str(number), key=b"k", headers=headers)
    assert producer.flush(20) == 0
    where = ("--topic", "filtered.dlq", "--bootstrap", kafka.bootstrap)
    asked = ("dead-letters", "replay", *where, "--redis", redis_url, "--origin", "filtered")
    [odd] = lines(holdfast(*asked, "--handler", "odd", "--json"))
    assert (odd["sent"], odd["not_wanted"]) == ({"filtered": 150}, 150)
    look = ("dead-letters", "list", *where, "--redis", redis_url, "--limit", 0, "--json")
    assert [lines(holdfast(*look, *more))[0]["letters"] for more in ([], ["--pending"])] == [300, 150]
    assert "150 letters sent" in holdfast(*asked).stdout
    assert "nothing sent" in holdfast(*asked).stdout
    copies = all_of(kafka.bootstrap, "filtered", 300)
    numbers = [int(copy.value() or b"") for copy in copies]
    assert numbers == [*range(1, 300, 2), *range(0, 300, 2)]
    assert dict(copies[0].headers() or ())["mine"] == b"x"
    assert dict(copies[0].headers() or ())["holdfast-origin-topic"] == b"filtered"


def test_letters_of_other_tools_are_refused_unless_a_target_is_named(kafka: KafkaServer, redis_url: str) -> None:
    lay_out(redis_url)
    kafka.create_topic("foreign", 1)
    kafka.create_topic("foreign.dlq", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    producer.produce("foreign.dlq", value="1")
    producer.produce("foreign.dlq", value="2", headers={"holdfast-origin-topic": "no-such-topic"})
    for origin in (b"", b"a\0b", b"\xff", b"../x", b"foreign.dlq"):
        producer.produce("foreign.dlq", value="3", headers={"holdfast-origin-topic": origin})
    assert producer.flush(20) == 0
    asked = ("dead-letters", "replay", "--topic", "foreign.dlq", "--bootstrap", kafka.bootstrap, "--redis", redis_url)
    named = ("--origin", "no-such-topic", "--origin", "foreign.dlq")
    told = holdfast(*asked, code=1).stdout
    assert "5 refused: without a topic in holdfast-origin-topic" in told
    assert "1 refused: from no-such-topic by their headers" in told
    told = holdfast(*asked, *named, code=1).stdout
    assert "1 refused: from no-such-topic, which does not exist" in told
    assert "1 refused: from foreign.dlq itself" in told
    assert "7 letters sent to foreign" in holdfast(*asked, "--to", "foreign").stdout
    assert [copy.value() for copy in all_of(kafka.bootstrap, "foreign", 7)] == [b"1", b"2", *[b"3"] * 5]


def test_no_header_chooses_where_a_replay_writes(kafka: KafkaServer, redis_url: str) -> None:
    """Whoever may write to the dead letter topic may not write to any other with the operator's rights."""
    lay_out(redis_url)
    for topic in ("aims", "aims.dlq", "aims.payments"):
        kafka.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for origin in ("aims", "aims.payments"):
        headers = {"holdfast-origin-topic": origin, "holdfast-failed-at-ms": "9" * 5_000, "holdfast-attempts": "-1"}
        producer.produce("aims.dlq", value=origin, headers={**headers, "holdfast-origin-partition": "9" * 5_000})
    assert producer.flush(20) == 0
    asked = ("dead-letters", "replay", "--topic", "aims.dlq", "--bootstrap", kafka.bootstrap, "--redis", redis_url)
    told = holdfast(*asked, code=1).stdout
    for origin in ("aims", "aims.payments"):
        assert f"1 refused: from {origin} by their headers: if you mean that topic, name it with" in told
    [result] = lines(holdfast(*asked, "--origin", "aims", "--json"))
    assert (result["sent"], result["not_wanted"]) == ({"aims": 1}, 1)
    assert kafka.end_offsets("aims.payments") == {0: 0}


def test_a_letter_that_its_topic_never_takes_keeps_no_other_back(kafka: KafkaServer, redis_url: str) -> None:
    lay_out(redis_url)
    kafka.create_topic("narrow", 1, {"max.message.bytes": "2000"})
    kafka.create_topic("narrow.dlq", 1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(102):  # the first chunk's first, and the whole of the second
        value = random.Random(1).randbytes(5_000) if number in (0, 100, 101) else str(number).encode()
        producer.produce("narrow.dlq", value=value, headers={"holdfast-origin-topic": "narrow"})
    assert producer.flush(20) == 0
    where = ("--topic", "narrow.dlq", "--bootstrap", kafka.bootstrap, "--redis", redis_url)
    asked = ("dead-letters", "replay", *where, "--origin", "narrow")
    for sent in (99, 0):
        [result] = lines(holdfast(*asked, "--json", code=1))
        assert sum(result["sent"].values()) == sent
        [(why, count)] = result["refused"].items()
        assert count == 3
        assert "max.message.bytes" in why


def test_what_was_compressed_goes_back_and_what_has_no_value_does_not(kafka: KafkaServer, redis_url: str) -> None:
    lay_out(redis_url)
    kafka.create_topic("large", 1)
    kafka.create_topic("large.dlq", 1)
    producer = Producer(
        {
            "bootstrap.servers": kafka.bootstrap,
            "message.max.bytes": 5_000_000,
            "compression.type": "zstd",
            "log_level": 0,
        }
    )
    born: dict[str, str | bytes | None] = {
        "holdfast-origin-topic": "large",
        "holdfast-origin-partition": "0",
        "holdfast-origin-offset": "7",
    }
    producer.produce("large.dlq", value=b"y" * 3_000_000, headers=born)
    left_out: dict[str, str | bytes | None] = {**born, "holdfast-left-out": "value", "holdfast-value-bytes": "3000000"}
    producer.produce("large.dlq", key=b"k", headers=left_out)
    assert producer.flush(20) == 0
    where = ("--topic", "large.dlq", "--bootstrap", kafka.bootstrap)
    assert "left out: 2.9 MiB" in holdfast("dead-letters", "list", *where).stdout
    [result] = lines(
        holdfast("dead-letters", "replay", *where, "--redis", redis_url, "--origin", "large", "--json", code=1)
    )
    assert result["sent"] == {"large": 1}
    [(why, count)] = result["refused"].items()
    assert (count, "without their value" in why) == (1, True)
    assert kafka.end_offsets("large") == {0: 1}


def test_a_letter_goes_back_to_the_partition_that_it_came_from(kafka: KafkaServer, redis_url: str) -> None:
    shop = Shop(kafka, redis_url, partitions=5, key=None)
    shop.declined = set(range(20))
    shop.send(range(20), partitioner="murmur2_random")  # Java's: not what this client would choose by the key
    with shop.app():
        shop.until_letters(20)
    first = {number: end for number, end in kafka.end_offsets(shop.topic).items() if end}
    holdfast("dead-letters", "replay", "--topic", shop.dlq, "--origin", shop.topic, *shop.both)
    assert {number: end for number, end in kafka.end_offsets(shop.topic).items() if end} == {
        number: 2 * end for number, end in first.items()
    }


class Many:
    """Letters in the thousands, and a replay of them that a test can end in the middle."""

    def __init__(self, kafka: KafkaServer, redis_url: str, count: int = 40_000) -> None:
        """By default two seconds of a replay's work, so that a test can step in, though it may be stopped for one."""
        lay_out(redis_url)
        self.count = count
        self.kafka, self.topic = kafka, f"many-{uuid.uuid4().hex[:8]}"
        kafka.create_topic(self.topic, 2)
        kafka.create_topic(f"{self.topic}.dlq", 2)
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        for number in range(self.count):
            producer.produce(
                f"{self.topic}.dlq",
                value=str(number),
                key=str(number % 7),
                headers={"holdfast-origin-topic": self.topic, "holdfast-origin-partition": str(number % 2)},
            )
        assert producer.flush(60) == 0
        where = ("--bootstrap", kafka.bootstrap, "--redis", redis_url)
        self.command = ("dead-letters", "replay", "--topic", f"{self.topic}.dlq", "--origin", self.topic, *where)

    def end_in_the_middle(self, number: signal.Signals) -> tuple[int, int]:
        """Exit code, and how many copies there are."""
        with subprocess.Popen(
            [sys.executable, "-m", "holdfast", *self.command], cwd=ROOT, stdout=subprocess.DEVNULL
        ) as process:
            while process.poll() is None and sum(self.kafka.end_offsets(self.topic).values()) < 300:
                pass  # each look is a question to the broker
            process.send_signal(number)
            code = process.wait(60)
        sent = sum(self.kafka.end_offsets(self.topic).values())
        assert 300 <= sent < self.count
        return code, sent

    def copies(self) -> Counter[int]:
        count = sum(self.kafka.end_offsets(self.topic).values())
        return Counter(int(copy.value() or b"") for copy in all_of(self.kafka.bootstrap, self.topic, count))


@pytest.mark.full
def test_a_replay_that_is_killed_loses_no_letter_and_repeats_a_hundred_at_most(
    kafka: KafkaServer, redis_url: str
) -> None:
    many = Many(kafka, redis_url)
    many.end_in_the_middle(signal.SIGKILL)
    holdfast(*many.command)  # waits for the killed one's lease
    copies = many.copies()
    assert set(copies) == set(range(many.count))
    assert copies.total() - many.count <= 100
    assert "nothing sent" in holdfast(*many.command).stdout


def test_a_replay_that_is_interrupted_ends_with_what_it_began_and_repeats_nothing(
    kafka: KafkaServer, redis_url: str
) -> None:
    many = Many(kafka, redis_url)
    code, sent = many.end_in_the_middle(signal.SIGINT)
    assert code == 130
    assert f"{many.count - sent:,} letters sent" in holdfast(*many.command).stdout
    assert many.copies() == Counter(range(many.count))


@pytest.mark.full
def test_a_replay_whose_store_goes_away_says_what_may_be_sent_twice(kafka: KafkaServer) -> None:
    with RedisServer() as server:
        many = Many(kafka, server.url)
        command = [sys.executable, "-m", "holdfast", *many.command, "--timeout", "3"]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None and sum(kafka.end_offsets(many.topic).values()) < 300:
                pass
            server.pause()
            _, told = process.communicate(timeout=60)
        assert process.returncode == 3
        assert "letters were sent and could not be noted" in told
        server.resume()
        holdfast(*many.command)
    copies = many.copies()
    assert set(copies) == set(range(many.count))
    assert copies.total() - many.count <= 100


def test_two_replays_at_once_send_each_letter_once(kafka: KafkaServer, redis_url: str) -> None:
    many = Many(kafka, redis_url, 4_000)
    # The second one waits for the first one no longer than --timeout says, and is refused then.
    command = (*many.command, "--timeout", PATIENCE_S)
    with ThreadPoolExecutor(2) as both:
        list(both.map(lambda _: holdfast(*command), range(2)))
    assert many.copies() == Counter(range(many.count))


def test_a_replay_that_another_one_keeps_waiting_for_too_long_is_refused_and_has_sent_nothing(
    kafka: KafkaServer, redis_url: str
) -> None:
    many = Many(kafka, redis_url, 300)
    with closing(KafkaDeadLetterTool({"bootstrap.servers": kafka.bootstrap})) as tool:
        names = tool.position_names(tool.partitions(f"{many.topic}.dlq", Deadline(20)), Deadline(20))
    with closing(RedisClaims.from_url(redis_url, namespace=NAMESPACE)) as store:
        session = store.begin(3600.0)
        session.acquire(list(names_of(names, [many.topic]).values()))
        [told] = lines(holdfast(*many.command, "--timeout", 1, "--json", code=1))
        assert (told["sent"], told["may_have_been_sent"]) == ({}, 0)
        assert "still holds" in told["error"]
        session.end()
    assert many.copies() == Counter()
    holdfast(*many.command)
    assert many.copies() == Counter(range(many.count))
