"""An event loop of the application's that makes no task for a handler: the app ends with that error."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchOf, Holdfast, MemoryClaims, Settings
from holdfast.plugin.events import LetterHookFailed
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import QUICK, Letters, numbered, partition
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from holdfast.plugin.events import Event
    from holdfast.records import Record

COUNT = 20
REFUSED = "no task today"


class Factory:
    """Makes tasks, but for the coroutines whose names it was told; the first `allows` of them too."""

    def __init__(self, refuses: str, *, allows: int = 0) -> None:
        self._refuses, self._allows = refuses, allows

    def __call__(self, loop: Any, coroutine: Any, **how: Any) -> asyncio.Task[Any]:
        if self._refuses in repr(coroutine):
            if not self._allows:
                raise LookupError(REFUSED)
            self._allows -= 1
        return asyncio.Task(coroutine, loop=loop, **how)


class Group:
    def __init__(self) -> None:
        self.broker = MemoryBroker(orders=1)
        self.broker.produce("orders", 0, *numbered("r", range(COUNT)))
        self.claims = MemoryClaims()
        self.letters = Letters(self.broker.changed)

    def app(self, handler: Callable[..., Any], *, observers: Sequence[Any] = (), **handling: Any) -> Holdfast:
        app = Holdfast(
            MemoryPartitionedSource(self.broker),
            claims=self.claims,
            settings=Settings(ramp=None, commit_interval_s=0.01),
            dead_letters=self.letters,
            observers=observers,
        )
        app.handler("orders", name="handle", retry=QUICK, **handling)(handler)
        return app

    @property
    def committed(self) -> int | None:
        return self.broker.group("g").offset(partition())


@pytest.fixture(autouse=True)
def nothing_of_asyncio_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nobody reads there why an app does nothing."""
    yield
    assert [each for each in caplog.records if each.name == "asyncio" and each.levelno > logging.INFO] == []


def run(app: Holdfast, factory: Factory) -> None:
    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        await app.run_async()

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


@pytest.mark.parametrize("allows", [0, 1, 7])
def test_for_a_record(allows: int) -> None:
    group, handled = Group(), list[int]()

    async def handle(record: Record) -> None:
        await asyncio.sleep(0)
        handled.append(record.offset)

    with pytest.raises(LookupError, match=REFUSED):
        run(group.app(handle), Factory("Workers._run_async", allows=allows))
    # What ran to its end is settled; nothing else is.
    assert handled == list(range(len(handled)))
    assert (group.committed or 0) == len(handled)


def test_for_a_batch() -> None:
    group = Group()

    async def handle(records: list[Record]) -> None:
        raise AssertionError(records)

    with pytest.raises(LookupError, match=REFUSED):
        run(group.app(handle, batch=BatchOf(records=5)), Factory("Workers._run_async"))
    assert group.committed in (None, 0)


def test_for_a_resource() -> None:
    group = Group()

    async def handle(record: Record) -> None:
        raise AssertionError(record)

    app = group.app(handle)

    @app.resource
    async def pool() -> AsyncIterator[str]:
        yield "never"

    with pytest.raises(LookupError, match=REFUSED):
        run(app, Factory("_InLoop._hold"))
    assert group.committed is None


def test_for_a_letter_hook() -> None:
    """It fails, and nothing else: nothing follows from hooks."""
    group, told = Group(), list[LetterHookFailed]()

    async def handle(record: Record) -> None:
        if record.offset == 3:
            raise ValueError(record.offset)

    class Tell:
        def on_event(self, event: Event) -> None:
            if isinstance(event, LetterHookFailed):
                told.append(event)
                app.stop()

    app = group.app(handle, dead_letter="dead", observers=[Tell()])

    @app.on_dead_letter
    async def hook(letter: Any) -> None:
        raise AssertionError(letter)

    run(app, Factory("_Call.run_async"))
    assert [each.error for each in told] == [f"LookupError: {REFUSED}"]
    assert [each.record.offset for each in group.letters.sent] == [3]
