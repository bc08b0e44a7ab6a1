"""Records that a source delivers though their message cannot be read: no handler gets them, and they hold up nobody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from holdfast import BatchOf, Settings, record_key
from holdfast.dedup.none import NoSession
from holdfast.errors import HandlerFailed, RecordUnreadable
from holdfast.plugin.engine.partition.ownership import Ownership
from holdfast.plugin.engine.record.admission import Admission
from holdfast.plugin.ports import Batch
from holdfast.plugin.retrying.dead_letter import headers_of
from holdfast.records import Partition, Record
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.clocks import HandClock
from tests.harness.engine import Bench, Letters


class Session(NoSession):
    lives = True

    def live(self) -> bool:
        return self.lives


class Source(MemoryPartitionedSource):
    """Cannot read values that begin with ?."""

    def poll(self, max_records: int, timeout_s: float) -> Batch:
        batch = super().poll(max_records, timeout_s)
        bad = [record for record in batch.records if (record.value or b"").startswith(b"?")]
        return batch._replace(
            unreadable={
                (each.partition, each.offset): RecordUnreadable(f"{each.partition}@{each.offset} cannot be read")
                for each in bad
            }
        )


@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
@pytest.mark.parametrize("handling", [{}, {"key": record_key()}, {"batch": BatchOf(records=3)}], ids=str)
def test_they_become_dead_letters_and_their_neighbours_are_handled(ordering: Any, handling: dict[str, Any]) -> None:
    values = ["a", "?b", "?c", "d", "e", "?f"]
    with Bench() as bench:
        letters = Letters(bench.changed)
        for value in values:
            bench.broker.produce("orders", 0, value, key=value)
        settings = Settings(workers=4, commit_interval_s=0.01, ordering=ordering)

        def handle(given: Record | list[Record]) -> None:
            for record in given if isinstance(given, list) else [given]:
                bench.work.do("a", record)

        bench.member(
            settings=settings, dead_letter="dlq", dead_letters=letters, source=Source, handler=handle, **handling
        )
        bench.wait_committed(len(values))
        assert sorted((letter.record.value or b"").decode() for letter in letters.sent) == ["?b", "?c", "?f"]
        said = dict(headers_of(letters.sent[0]))
    assert said["holdfast-error-type"] == b"holdfast.errors.RecordUnreadable"
    assert sorted(bench.work.values()) == ["a", "d", "e"]


def test_without_a_dead_letter_the_app_stops_and_says_where() -> None:
    with Bench() as bench:
        for value in ("a", "?b"):
            bench.broker.produce("orders", 0, value)
        member = bench.member(settings=Settings(workers=4, commit_interval_s=0.01), source=Source)
        assert member.over.wait(30)
        with pytest.raises(HandlerFailed, match="orders-0@1 cannot be read"):
            member.join()
    assert bench.work.values() in ([], ["a"])  # the stop may come before its turn


def test_of_one_that_is_never_handled_nothing_is_kept() -> None:
    """It is known as done, or its partition has gone while it waited for its turn."""
    member = Session()
    fence = Ownership(Partition("orders", 0), member)
    record, later = (Record(fence.partition, offset, None, b"?", (), -1, fence) for offset in (0, 1))
    nothing: Any = SimpleNamespace(admit=lambda _: [])
    admission = Admission(
        family=nothing,
        routes=nothing,
        settings=Settings(),
        group="g",
        clock=HandClock(),
        lanes=nothing,
        intake=nothing,
        claiming=nothing,
        workers=nothing,
        unacked=nothing,
    )

    def came(record: Record) -> Batch:
        place = record.partition, record.offset
        return Batch([record], (), {place: RecordUnreadable("cut short")})

    admission.note(came(record))
    admission.admit([record])
    assert admission._unreadable == {}
    admission.note(came(record))
    member.lives = False
    admission.note(came(later))
    assert list(admission._unreadable) == [(later.partition, 1)]
