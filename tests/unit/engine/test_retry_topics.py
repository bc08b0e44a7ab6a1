"""Records that the broker brings again by way of a topic of its own, as RocketMQ does."""

from __future__ import annotations

import pytest

from holdfast import Settings
from holdfast.errors import HandlerFailed, Unretriable
from holdfast.plugin.events import DeadLettered, SentBack
from holdfast.plugin.retrying.dead_letter import headers_of
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Bench, Letters, partition

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
AGAIN = "again-g"


class Returning(MemoryPartitionedSource):
    """Failed records are brought again in a topic of their own, until they say that it is enough."""

    retry_topic = AGAIN

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.retries = lambda record: record.header("enough") is None

    def wants(self, topic: str) -> bool:
        return topic == AGAIN or super().wants(topic)


class PuttingAway(Returning):
    unroutable_letters = "away"


def born(topic: str) -> list[tuple[str, bytes | None]]:
    return [("holdfast-retry-of", topic.encode())]


def bench_of(**topics: int) -> Bench:
    bench = Bench(**topics)  # type: ignore[arg-type]
    bench.broker.create(AGAIN, 1)
    return bench


class TestSendingBack:
    def test_a_failed_record_is_sent_back_at_once_and_its_position_is_done(self) -> None:
        with bench_of(orders=1) as bench:
            letters = Letters(bench.changed)
            bench.work.fail("x", ValueError("not now"))
            bench.broker.produce("orders", 0, "x", "y")
            member = bench.member(settings=SETTINGS, source=Returning, dead_letters=letters)
            bench.wait_committed(2)
            assert [(letter.topic, letter.attempts) for letter in letters.sent] == [(AGAIN, 1)]
            assert [event.topic for event in member.told(SentBack)] == [AGAIN]
            assert member.told(DeadLettered) == []
        assert bench.work.starts() == {"x": 1, "y": 1}

    def test_its_key_is_free_for_when_it_comes_again(self) -> None:
        with bench_of(orders=1) as bench:
            letters = Letters(bench.changed)
            bench.work.fail("x", ValueError("not now"))
            bench.broker.produce("orders", 0, "x")
            bench.member(settings=SETTINGS, source=Returning, dead_letters=letters, key=lambda _: "one key")
            bench.wait(lambda: letters.values() == ["x"])
            bench.broker.produce(AGAIN, 0, "x", headers=born("orders"))
            bench.wait_ended("x")
            bench.wait_committed(1, topic=AGAIN)
        assert bench.work.starts() == {"x": 2}

    def test_whose_times_are_over_goes_to_the_dead_letters(self) -> None:
        with bench_of(orders=1) as bench:
            letters = Letters(bench.changed)
            bench.work.fail("x", ValueError("never"))
            bench.broker.produce(AGAIN, 0, "x", headers=[*born("orders"), ("enough", b"")])
            member = bench.member(settings=SETTINGS, source=Returning, dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(1, topic=AGAIN)
            assert [letter.topic for letter in letters.sent] == ["dlq"]
            assert len(member.told(DeadLettered)) == 1
            assert dict(headers_of(letters.sent[0]))["holdfast-origin-topic"] == b"orders"

    def test_without_dead_letters_the_broker_puts_the_last_one_away(self) -> None:
        with bench_of(orders=1) as bench:
            letters = Letters(bench.changed)
            bench.work.fail("x", ValueError("never"))
            bench.broker.produce(AGAIN, 0, "x", headers=[*born("orders"), ("enough", b"")])
            bench.member(settings=SETTINGS, source=Returning, dead_letters=letters)
            bench.wait_committed(1, topic=AGAIN)
            assert [letter.topic for letter in letters.sent] == [AGAIN]

    def test_what_no_attempt_can_cure_goes_there_at_once(self) -> None:
        with bench_of(orders=1) as bench:
            letters = Letters(bench.changed)
            bench.work.fail("x", Unretriable("cannot be read"))
            bench.broker.produce("orders", 0, "x")
            bench.member(settings=SETTINGS, source=Returning, dead_letter="dlq", dead_letters=letters)
            bench.wait_committed(1)
            assert [letter.topic for letter in letters.sent] == ["dlq"]


class TestRetryTopics:
    def test_a_record_goes_to_the_handler_of_the_topic_where_it_was_born(self) -> None:
        seen: list[tuple[str, str]] = []
        with bench_of(orders=1, payments=1) as bench:
            member = bench.member(
                settings=Settings(workers=4, ordering="partition", commit_interval_s=0.01),
                source=Returning,
                dead_letters=Letters(bench.changed),
                start=False,
                handler=lambda record: seen.append(("orders", (record.value or b"").decode())),
            )
            member.app.handler("payments", name="payments")(
                lambda record: seen.append(("payments", (record.value or b"").decode()))
            )
            for number in range(6):
                bench.broker.produce(AGAIN, 0, f"x{number}", headers=born(("orders", "payments")[number // 2 % 2]))
            member.start()
            bench.wait_committed(6, topic=AGAIN)
        assert seen == [
            ("orders", "x0"), ("orders", "x1"), ("payments", "x2"), ("payments", "x3"), ("orders", "x4"),
            ("orders", "x5"),
        ]  # fmt: skip

    def test_only_the_broker_says_where_it_was_born(self) -> None:
        """What its producer has written into it says nothing."""
        with bench_of(orders=1) as bench:
            headers = [("holdfast-origin-topic", b"payments"), *born("orders")]
            bench.broker.produce(AGAIN, 0, "x", headers=headers)
            bench.member(settings=SETTINGS, source=Returning, dead_letters=Letters(bench.changed))
            bench.wait_committed(1, topic=AGAIN)
        assert bench.work.values() == ["x"]

    def test_its_business_key_is_the_one_of_that_topic(self) -> None:
        with bench_of(orders=1) as bench:
            bench.broker.produce("orders", 0, "x")
            bench.member(
                settings=SETTINGS, source=Returning, dead_letters=Letters(bench.changed), key=lambda _: "one key"
            )
            bench.wait_committed(1)
            bench.broker.produce(AGAIN, 0, "copy", headers=born("orders"))
            bench.wait_committed(1, topic=AGAIN)
        assert bench.work.values() == ["x"]

    def test_one_that_does_not_say_where_it_was_born_is_put_away_and_the_rest_goes_on(self) -> None:
        with bench_of(orders=1) as bench:
            letters = Letters(bench.changed)
            bench.broker.produce(AGAIN, 0, "unroutable")
            bench.broker.produce(AGAIN, 0, "x", headers=born("orders"))
            member = bench.member(settings=SETTINGS, source=PuttingAway, dead_letters=letters)
            bench.wait_committed(2, topic=AGAIN)
            assert [(letter.topic, letter.record.value) for letter in letters.sent] == [("away", b"unroutable")]
            assert [event.offset for event in member.told(DeadLettered)] == [0]
        assert bench.work.values() == ["x"]

    def test_one_that_nobody_handles_any_more_stops_the_app_and_stays(self) -> None:
        with bench_of(orders=1) as bench:
            bench.broker.produce(AGAIN, 0, "x", headers=born("gone"))
            member = bench.member(settings=SETTINGS, source=Returning, dead_letters=Letters(bench.changed))
            with pytest.raises(HandlerFailed, match="gone"):
                member.join()
            assert bench.group.offset(partition(0, AGAIN)) in (None, 0)
