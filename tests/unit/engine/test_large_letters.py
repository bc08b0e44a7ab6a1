"""Letters that are too large for the topic that they go to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast import Settings
from holdfast.errors import HandlerFailed, LetterTooLarge, Unretriable
from holdfast.plugin.events import DeadLettered, SentBack
from holdfast.plugin.retrying.dead_letter import Letter
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import Bench, Letters

if TYPE_CHECKING:
    from holdfast.timing import Deadline

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
AGAIN = "again-g"


class Returning(MemoryPartitionedSource):
    retry_topic = AGAIN

    def __init__(self, *args: object, **named: object) -> None:
        super().__init__(*args, **named)  # type: ignore[arg-type]
        self.retries = lambda _: True


class Narrow(Letters):
    """Some topics take no value."""

    narrow = frozenset({AGAIN, "dlq"})

    def send(self, letter: Letter, deadline: Deadline) -> None:
        if letter.topic in self.narrow and letter.value is not None:
            raise LetterTooLarge(f"{letter.topic} takes no value")
        super().send(letter, deadline)


def bench_of() -> Bench:
    bench = Bench(orders=1)
    bench.broker.create(AGAIN, 1)
    return bench


@pytest.mark.parametrize("retry_topic", [False, True])
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("key", [None, lambda record: str(record.offset)])
def test_by_choice_it_goes_without_its_value_and_the_record_is_settled(
    retry_topic: bool,
    is_async: bool,
    key: object,
) -> None:
    with bench_of() as bench:
        letters, told = Narrow(bench.changed), list[Letter]()
        bench.work.fail("x", *[ValueError("no")] * 9)
        bench.broker.produce("orders", 0, "x", "y")

        async def handle(record: object) -> None:
            bench.work.do("a", record)  # type: ignore[arg-type]

        member = bench.member(
            settings=SETTINGS,
            source=Returning if retry_topic else MemoryPartitionedSource,
            dead_letters=letters,
            dead_letter="dlq",
            letter_too_large="without_value",
            handler=handle if is_async else None,
            key=key,
            start=False,
        )
        member.app.on_dead_letter(told.append)
        member.start()
        bench.wait_committed(2)
        bench.wait(lambda: told)
        assert [(each.topic, each.value, each.record.value) for each in letters.sent] == [("dlq", None, b"x")]
        assert [each.without_value for each in told] == [True]
        assert [event.topic for event in member.told(DeadLettered)] == ["dlq"]
        assert member.told(SentBack) == []


def test_a_retry_topic_that_refuses_it_is_passed_over() -> None:
    with bench_of() as bench:
        letters = Narrow(bench.changed)
        letters.narrow = frozenset({AGAIN})
        bench.work.fail("x", ValueError("no"))
        bench.broker.produce("orders", 0, "x", "y")
        bench.member(settings=SETTINGS, source=Returning, dead_letters=letters, dead_letter="dlq")
        bench.wait_committed(2)
        assert [(each.topic, each.value) for each in letters.sent] == [("dlq", b"x")]
    assert bench.work.starts() == {"x": 1, "y": 1}


@pytest.mark.parametrize("dead_letter", [None, "dlq"])
def test_else_the_app_stops_and_the_record_stays(dead_letter: str | None) -> None:
    with bench_of() as bench:
        letters = Narrow(bench.changed)
        bench.work.fail("x", Unretriable("no") if dead_letter else ValueError("no"))
        bench.broker.produce("orders", 0, "x")
        member = bench.member(settings=SETTINGS, source=Returning, dead_letters=letters, dead_letter=dead_letter)
        bench.wait(member.over.is_set)
        with pytest.raises((LetterTooLarge, HandlerFailed), match="takes no value"):
            member.join()
        bench.members.remove(member)
        assert bench.group.offset(next(iter(bench.broker.logs))) in {None, 0}
        assert letters.sent == []
