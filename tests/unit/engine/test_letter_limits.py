"""A handler that is broken does not send its whole topic to the dead letters."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import BatchOf, DeadLetterLimit, Retry, Settings, Unretriable
from holdfast.errors import HandlerFailed
from holdfast.plugin.events import DeadLettered, DeadLetterLimitReached, DeadLettersResumed
from tests.harness.engine import Bench, Letters, numbered, partition

SETTINGS = Settings(workers=4, commit_interval_s=0.01)
#: Which records fail first is certain.
IN_TURN = Settings(workers=1, commit_interval_s=0.01)
#: Not tried again within a test, unless the test says so.
LONG = DeadLetterLimit(in_a_row=3, pause_s=3600.0)
SHORT = DeadLetterLimit(in_a_row=3, pause_s=0.02)


class Broken:
    """A handler that fails on everything until it is mended."""

    def __init__(self, bench: Bench) -> None:
        self.bench, self.mended = bench, False

    def handle(self, record: Any) -> None:
        if not self.mended:
            raise KeyError("adress")
        self.bench.work.do("a", record)


def going(bench: Bench, limit: DeadLetterLimit | None, **more: Any) -> dict[str, Any]:
    letters = Letters(bench.changed)
    return {"settings": SETTINGS, "dead_letter": "dlq", "dead_letters": letters, "dead_letter_limit": limit} | more


@pytest.mark.parametrize("ordering", ["key", "partition", "none"])
def test_a_broken_handler_is_paused_and_goes_on_with_every_record_when_it_is_mended(ordering: Any) -> None:
    with Bench(orders=2) as bench:
        broken = Broken(bench)
        settings = Settings(workers=4, commit_interval_s=0.01, ordering=ordering)
        how = going(bench, SHORT, settings=settings, handler=broken.handle)
        values = numbered("x", range(40))
        for number, value in enumerate(values):
            bench.broker.produce("orders", number % 2, value, key=value)
        member = bench.member(**how)
        bench.wait(lambda: member.told(DeadLetterLimitReached))
        [reached] = member.told(DeadLetterLimitReached)
        assert (reached.failed, reached.then, reached.error) == (4, "pause", "KeyError: 'adress'")
        assert member.app.snapshot().load.handlers_paused == 1
        bench.wait(lambda: len(how["dead_letters"].sent) == 3)
        broken.mended = True
        bench.wait(lambda: member.told(DeadLettersResumed))
        bench.wait_committed(20, 0)
        bench.wait_committed(20, 1)
        assert member.app.snapshot().load.handlers_paused == 0
    assert len(how["dead_letters"].sent) == len(member.told(DeadLettered)) == 3
    assert sorted([*how["dead_letters"].values(), *bench.work.values()]) == sorted(values)


def test_while_one_is_paused_its_topic_is_not_read_and_others_go_on() -> None:
    with Bench(orders=1, payments=1) as bench:
        broken = Broken(bench)
        how = going(bench, LONG, settings=IN_TURN, handler=broken.handle, start=False)
        member = bench.member(**how)
        member.app.handler("payments", name="pay")(lambda record: bench.work.do("a", record))
        bench.broker.produce("orders", 0, *numbered("x", range(4)))
        member.start()
        bench.wait(lambda: member.told(DeadLetterLimitReached))
        bench.wait(lambda: member.app.snapshot().load.partitions_paused == 1)
        assert [(each.partition.topic, each.paused) for each in member.app.snapshot().partitions] == [
            ("orders", "its handler is paused at the limit of its dead letters"),
            ("payments", None),
        ]
        bench.broker.produce("orders", 0, *numbered("y", range(50)))
        bench.broker.produce("payments", 0, *numbered("p", range(50)))
        bench.wait_committed(50, topic="payments")
        assert member.app.snapshot().load.in_flight <= 1, "the one that waits"
        bench.wait_committed(3)


def test_a_record_that_fails_again_keeps_the_pause_and_the_next_is_tried() -> None:
    with Bench(orders=1) as bench:
        bench.work.fail("x3", *[Unretriable("for ever")] * 1000)
        for value in ("x0", "x1", "x2"):
            bench.work.fail(value, Unretriable("once"))
        bench.work.fail("x4", Unretriable("once"))
        how = going(bench, SHORT, settings=IN_TURN)
        with bench.changed:  # of one turn: x3 and x4 both wait
            bench.broker.produce("orders", 0, *numbered("x", range(5)))
        member = bench.member(**how)
        bench.wait_ended("x4")
        bench.wait(lambda: member.told(DeadLettersResumed))
        bench.wait_committed(5)
    assert sorted(how["dead_letters"].values()) == ["x0", "x1", "x2", "x3"]


def test_of_a_batch_that_failed_the_first_is_tried_again_until_it_is_handled() -> None:
    # Each record of it waits for itself, and those behind the first of their partition could not start.
    tried: list[int] = []

    def handle(records: Any) -> None:
        tried.append(len(records))
        if len(tried) < 4:
            raise KeyError("adress")
        for record in records:
            bench.work.do("a", record)

    with Bench(orders=1) as bench:
        values = numbered("x", range(8))
        bench.broker.produce("orders", 0, *values)
        how = going(bench, SHORT, handler=handle, batch=BatchOf(records=8), retry=Retry(attempts=1))
        member = bench.member(**how)
        bench.wait(lambda: member.told(DeadLettersResumed))
        bench.wait_committed(8, 0)
    assert tried[1:4] == [1, 1, 1]
    assert sorted([*how["dead_letters"].values(), *bench.work.values()]) == sorted(values)


def test_it_stops_the_app_where_that_is_said_and_the_next_start_goes_on_there() -> None:
    with Bench(orders=1) as bench:
        limit = DeadLetterLimit(in_a_row=3, then="stop")
        how = going(bench, limit, handler=Broken(bench).handle)
        bench.broker.produce("orders", 0, *numbered("x", range(10)))
        settings = Settings(workers=1, commit_interval_s=0.01, ordering="partition")
        member = bench.member(**{**how, "settings": settings})
        with pytest.raises(HandlerFailed, match=r"4 of 4 records.*dead_letter_limit.*adress") as caught:
            member.join()
        assert isinstance(caught.value.__cause__, KeyError)
        assert [event.then for event in member.told(DeadLetterLimitReached)] == ["stop"]
        assert bench.group.offset(partition()) == 3
        bench.member("b", settings=SETTINGS)
        bench.wait_committed(10)
    assert bench.work.times() == dict.fromkeys(numbered("x", range(3, 10)), 1)


def test_what_waits_goes_to_the_new_owner_of_its_partition() -> None:
    with Bench(orders=1) as bench:
        how = going(bench, LONG, settings=IN_TURN, handler=Broken(bench).handle)
        bench.broker.produce("orders", 0, *numbered("x", range(10)))
        first = bench.member(**how)
        bench.wait(lambda: first.told(DeadLetterLimitReached))
        bench.wait_committed(3)
        second = bench.member("b", settings=SETTINGS)
        bench.group.aim({second.source: [partition()]})
        bench.wait_committed(10)
    assert set(bench.work.times().values()) == {1}
    assert len(bench.work.ended) == 7


def test_it_is_on_unless_a_handler_says_otherwise() -> None:
    with Bench(orders=1) as bench:
        how = going(bench, None, handler=Broken(bench).handle)
        del how["dead_letter_limit"]
        bench.broker.produce("orders", 0, *numbered("x", range(150)))
        member = bench.member(**how)
        bench.wait(lambda: member.told(DeadLetterLimitReached))
        bench.wait(lambda: len(how["dead_letters"].sent) == 100)
        without = going(bench, None, handler=Broken(bench).handle)
        member.stop()
        bench.member("b", **without)
        bench.wait_committed(150)
    assert len(how["dead_letters"].sent) == 100
    assert len(without["dead_letters"].sent) == 50
