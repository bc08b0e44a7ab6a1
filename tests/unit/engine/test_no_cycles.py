"""What has been handled is gone at once: no record, and nothing that it came in, waits for Python's collector of
cycles. With each record in a cycle that collector took up to a third of the processor time of a batch handler."""

from __future__ import annotations

import gc

import pytest

from holdfast import BatchOf, Settings
from holdfast.plugin.engine.record.call import Call
from holdfast.plugin.engine.record.entry import Entry, Lane
from holdfast.records import Record
from tests.harness.engine import Bench, numbered

RECORDS = 200


async def waits_for_nothing(_: Record) -> None: ...


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        (Settings(workers=4), {}),
        (Settings(workers=4), {"key": lambda record: record.value}),
        (Settings(workers=0, ordering="partition"), {}),
        (Settings(workers=4), {"batch": BatchOf(records=20, wait_s=0.01)}),
        (Settings(workers=4), {"handler": waits_for_nothing}),
    ],
    ids=["threads", "keys", "polling thread", "batches", "coroutines"],
)
def test_what_was_handled_is_in_no_cycle(settings: Settings, options: dict[str, object]) -> None:
    with Bench() as bench:
        member = bench.member(settings=settings, **{"handler": lambda _: None} | options)  # type: ignore[arg-type]
        bench.broker.produce("orders", 0, *numbered("x", range(10)))
        bench.wait_committed(10)
        gc.collect()
        gc.disable()
        try:
            bench.broker.produce("orders", 0, *numbered("y", range(RECORDS)))
            bench.wait_committed(10 + RECORDS)
            member.stop()
            gc.set_debug(gc.DEBUG_SAVEALL)
            gc.collect()
            left = [each for each in gc.garbage if isinstance(each, Record | Entry | Lane | Call)]
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
    assert left == []
