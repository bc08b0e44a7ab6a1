"""An `async def` handler that blocks its event loop is told of, by its name and the line at which it stands."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from holdfast import BatchOf, Holdfast, MemoryClaims, Settings
from holdfast.plugin.engine.record import hung_handlers
from holdfast.plugin.events import EventLoopBlocked
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import numbered
from tests.harness.waiting import PATIENCE_S, until

if TYPE_CHECKING:
    from holdfast.plugin.events import Event


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hung_handlers, "_BLOCKED_S", 0.3)


class Told:
    """What the observers were told, and a handler that blocks until they were."""

    def __init__(self) -> None:
        self.blocked: list[EventLoopBlocked] = []
        self._been = threading.Event()

    def on_event(self, event: Event) -> None:
        if isinstance(event, EventLoopBlocked):
            self.blocked.append(event)
            self._been.set()

    def block(self) -> None:
        assert self._been.wait(PATIENCE_S)


def app_on(told: Told, *, records: int = 3) -> Holdfast:
    broker = MemoryBroker(orders=1)
    broker.produce("orders", 0, *numbered("r", range(records)))
    return Holdfast(
        MemoryPartitionedSource(broker), claims=MemoryClaims(), settings=Settings(ramp=None), observers=[told]
    )


@pytest.mark.parametrize("batch", [None, BatchOf(records=1)], ids=["one", "batch"])
@pytest.mark.parametrize("beside", [False, True], ids=["own loop", "the application's loop"])
def test_it_is_told_once_by_its_name_and_the_line_at_which_it_stands(batch: BatchOf | None, *, beside: bool) -> None:
    told, blocks, handled = Told(), threading.Event(), list[int]()
    app = app_on(told)

    @app.handler("orders", name="bill", batch=batch)
    async def handle(_: object) -> None:
        await asyncio.sleep(0)
        blocks.set()
        told.block()
        handled.append(1)

    async def main() -> None:
        running = asyncio.create_task(app.run_async())
        await asyncio.to_thread(until, lambda: len(handled) == 3)
        app.stop()
        await running

    if beside:
        asyncio.run(main())
    else:
        app.start()
        until(lambda: len(handled) == 3)
        app.stop(wait=True)
    [event] = told.blocked
    assert event.handler == "bill"
    code = told.block.__code__
    assert event.where.rpartition(":")[0] == code.co_filename
    assert code.co_firstlineno <= int(event.where.rpartition(":")[2]) <= code.co_firstlineno + 2


def test_one_that_waits_blocks_nothing() -> None:
    told, goes_on = Told(), threading.Event()
    app = app_on(told)

    @app.handler("orders", name="bill")
    async def handle(_: object) -> None:
        await asyncio.to_thread(goes_on.wait, PATIENCE_S)

    app.start()
    until(lambda: any(each.lowest and each.lowest.for_s > 0.6 for each in app.snapshot().partitions))  # long enough
    goes_on.set()
    until(lambda: app.snapshot().records.handled == 3)
    app.stop(wait=True)
    assert told.blocked == []
