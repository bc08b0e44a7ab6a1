"""Copies of one message at two positions, as a producer stores them that had no answer to its first send."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import BatchOf, Settings
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Bench, Letters, numbered, partition

if TYPE_CHECKING:
    from holdfast.plugin.settings import Ordering
    from holdfast.records import Record


class Identifying(MemoryPartitionedSource):
    """Knows messages by a header; those without one only by their position."""

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.identity = _identity


def _identity(record: Record) -> str | None:
    found = record.header("id")
    return None if found is None else found.decode()


def produce(bench: Bench, number: int, value: str, identity: str | None) -> None:
    headers = [] if identity is None else [("id", identity.encode())]
    bench.broker.produce("orders", number, value, headers=headers)


class TestCopies:
    @pytest.mark.parametrize("ordering", ["key", "partition", "none"])
    def test_of_two_copies_one_is_handled_also_on_two_partitions(self, ordering: Ordering) -> None:
        with Bench(orders=2) as bench:
            for number in range(6):
                produce(bench, number % 2, f"x{number}", f"id{number // 3}")
            bench.member(settings=Settings(workers=4, ordering=ordering, commit_interval_s=0.01), source=Identifying)
            bench.wait_committed(3, 0)
            bench.wait_committed(3, 1)
        assert len(bench.work.started) == 2

    def test_a_batch_handler_gets_one_of_them(self) -> None:
        got: list[bytes | None] = []
        with Bench() as bench:
            for number in range(6):
                produce(bench, 0, f"x{number}", f"id{number // 2}")
            bench.member(
                settings=Settings(workers=2, commit_interval_s=0.01),
                source=Identifying,
                batch=BatchOf(records=10, wait_s=0.01),
                handler=lambda records: got.extend(record.value for record in records),
            )
            bench.wait_committed(6)
        assert sorted(value or b"" for value in got) == [b"x0", b"x2", b"x4"]

    def test_messages_without_an_identity_are_known_by_their_position(self) -> None:
        with Bench() as bench:
            for value in numbered("x", range(3)):
                produce(bench, 0, value, None)
            bench.member(settings=Settings(workers=4, commit_interval_s=0.01), source=Identifying)
            bench.wait_committed(3)
        assert sorted(bench.work.values()) == ["x0", "x1", "x2"]

    def test_a_business_key_is_claimed_instead(self) -> None:
        with Bench() as bench:
            produce(bench, 0, "x0", "same")
            produce(bench, 0, "x1", "same")
            bench.member(
                settings=Settings(workers=4, commit_interval_s=0.01),
                source=Identifying,
                key=lambda record: (record.value or b"").decode(),
            )
            bench.wait_committed(2)
        assert sorted(bench.work.values()) == ["x0", "x1"]

    def test_a_reset_replays_what_was_handled_and_goes_on_in_the_next_owners_hands(self) -> None:
        settings = Settings(workers=1, mark_batch=1, commit_interval_s=0.01, ordering="partition")
        with Bench() as bench:
            for number in range(6):
                produce(bench, 0, f"x{number}", f"id{number}")
            first = bench.member("a", settings=settings, source=Identifying)
            bench.wait_committed(6)
            bench.work.hold("x3")
            first.source.news.append(lambda listener: listener.reset(partition(), 1))
            bench.wait_running("x3")
            produce(bench, 0, "copy", "id0")
            first.app.stop()
            bench.work.let_go()
            first.join()
            bench.member("b", settings=settings, source=Identifying)
            bench.wait_committed(7)
        assert bench.work.times() == {"x0": 1, **dict.fromkeys(numbered("x", range(1, 6)), 2)}

    def test_a_copy_of_one_that_failed_is_handled(self) -> None:
        with Bench() as bench:
            bench.work.fail("x0", *[ValueError("no")] * 3)
            letters = Letters(bench.changed)
            produce(bench, 0, "x0", "same")
            bench.member(source=Identifying, dead_letter="dlq", dead_letters=letters)
            bench.wait(lambda: letters.values() == ["x0"])
            produce(bench, 0, "x1", "same")
            bench.wait_ended("x1")
