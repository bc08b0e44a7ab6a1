"""Coroutines that end without waiting go several as one task: nobody may notice, but by the processor time."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Holdfast, MemoryClaims, Settings
from holdfast.errors import HandlerHung
from holdfast.plugin.engine.record.call import Together
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import QUICK, Bench, Letters, numbered, partition
from tests.harness.waiting import PATIENCE_S

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.records import Record

COUNT = 40
VALUES = numbered("r", range(COUNT))
ORDERINGS = ("none", "key", "partition")
_seen: ContextVar[str] = ContextVar("seen", default="nothing")


@pytest.fixture(autouse=True)
def as_if_all_had_gone_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight go together, whatever came of the last ones."""
    monkeypatch.setattr(Together, "records", lambda *_: 8)


def bench_of(handler: Callable[[Bench], Callable[..., Any]], *, ordering: str, **how: Any) -> Bench:
    """A member that is given all records at once."""
    bench = Bench()
    bench.broker.produce("orders", 0, *VALUES)
    settings = Settings(ordering=ordering, commit_interval_s=0.01, **how.pop("settings", {}))  # type: ignore[arg-type]
    bench.member(settings=settings, handler=handler(bench), **how)
    return bench


def value(record: Record) -> str:
    return (record.value or b"").decode()


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_each_has_its_own_context_though_they_share_a_task(ordering: str) -> None:
    tasks, found = set[int](), list[str]()

    def handler(bench: Bench) -> Callable[..., Any]:
        async def handle(record: Record) -> None:
            tasks.add(id(asyncio.current_task()))
            found.append(_seen.get())
            _seen.set(value(record))
            if record.offset % 5 == 0:
                await asyncio.sleep(0)
                assert _seen.get() == value(record)
            await bench.work.do_async("a", record)

        return handle

    with bench_of(handler, ordering=ordering) as bench:
        bench.wait_committed(COUNT)
        assert bench.work.times() == dict.fromkeys(VALUES, 1)
    assert found == ["nothing"] * COUNT
    assert len(tasks) < COUNT


@pytest.mark.parametrize("ordering", ["none", "key"])
def test_one_that_waits_holds_up_no_other_lane(ordering: str) -> None:
    def handler(bench: Bench) -> Callable[..., Any]:
        bench.work.hold("r3", "r17")

        async def handle(record: Record) -> None:
            await bench.work.do_async("a", record)

        return handle

    with bench_of(handler, ordering=ordering) as bench:
        bench.wait_ended(*(each for each in VALUES if each not in ("r3", "r17")))
        bench.wait(lambda: bench.position()[0] == 3)  # a mark comes a moment after its handler has ended
        bench.work.let_go()
        bench.wait_committed(COUNT)
        assert bench.work.times() == dict.fromkeys(VALUES, 1)


def test_what_waits_behind_it_goes_before_what_came_later() -> None:
    """Or what is committed stands still until all the others have run."""
    started: list[str] = []

    def handler(bench: Bench) -> Callable[..., Any]:
        async def handle(record: Record) -> None:
            started.append(value(record))
            await asyncio.sleep(0.05 if value(record) in ("r2", "r5") else 0)  # the longer ones have company, for sure
            await bench.work.do_async("a", record)

        return handle

    with bench_of(handler, ordering="none", settings={"async_workers": 1}) as bench:
        bench.wait_committed(COUNT)
    assert started == VALUES


def test_one_that_waits_holds_up_its_own_lane() -> None:
    def handler(bench: Bench) -> Callable[..., Any]:
        bench.work.fail("r12", ValueError("first"), ValueError("second"))

        async def handle(record: Record) -> None:
            if record.offset % 3 == 0:
                await asyncio.sleep(0.001)
            await bench.work.do_async("a", record)

        return handle

    with bench_of(handler, ordering="partition", retry=QUICK) as bench:
        bench.wait_committed(COUNT)
        assert bench.work.values() == VALUES
        assert bench.work.starts() == dict.fromkeys(VALUES, 1) | {"r12": 3}


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_what_fails_fails_alone(ordering: str) -> None:
    def handler(bench: Bench) -> Callable[..., Any]:
        for each in ("r0", "r9", "r10", "r39"):
            bench.work.fail(each, ValueError("once"))

        async def handle(record: Record) -> None:
            await bench.work.do_async("a", record)

        return handle

    with bench_of(handler, ordering=ordering, retry=QUICK) as bench:
        bench.wait_committed(COUNT)
        twice = dict.fromkeys(("r0", "r9", "r10", "r39"), 2)
        assert bench.work.starts() == dict.fromkeys(VALUES, 1) | twice
        assert bench.work.times() == dict.fromkeys(VALUES, 1)


def test_no_more_at_once_than_said_though_nobody_knows_which_will_wait() -> None:
    def handler(bench: Bench) -> Callable[..., Any]:
        bench.work.hold(*VALUES)

        async def handle(record: Record) -> None:
            await bench.work.do_async("a", record)

        return handle

    with bench_of(handler, ordering="none", settings={"async_workers": 6}) as bench:
        bench.wait(lambda: len(bench.work.running) == 6)
        bench.work.let_go()
        bench.wait_committed(COUNT)
        assert bench.work.most_running == 6


def test_as_many_share_a_task_whatever_may_run_at_once() -> None:
    """Only one of them runs: they count as one."""
    tasks = list[object]()

    def handler(bench: Bench) -> Callable[..., Any]:
        async def handle(record: Record) -> None:
            tasks.append(asyncio.current_task())  # kept, so that no two have one id
            await bench.work.do_async("a", record)

        return handle

    with bench_of(handler, ordering="none", settings={"async_workers": 1}) as bench:
        bench.wait_committed(COUNT)
        assert bench.work.most_running == 1
    assert len(set(map(id, tasks))) < COUNT / 2


def test_one_that_cancels_its_own_task_hits_no_other() -> None:
    def handler(bench: Bench) -> Callable[..., Any]:
        async def handle(record: Record) -> None:
            if record.offset == 3:
                await asyncio.sleep(0)
            await bench.work.do_async("a", record)
            task = asyncio.current_task()
            if record.offset == 2 and task is not None:
                task.cancel()  # and ends before that comes

        return handle

    with bench_of(handler, ordering="none", retry=QUICK) as bench:
        bench.wait_committed(COUNT)
        assert bench.work.starts() == dict.fromkeys(VALUES, 1)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_one_that_hangs_is_cancelled_alone(ordering: str) -> None:
    def handler(bench: Bench) -> Callable[..., Any]:
        async def handle(record: Record) -> None:
            if record.offset == 5:
                await asyncio.Event().wait()
            await bench.work.do_async("a", record)

        return handle

    letters = Letters(threading.Condition())
    with bench_of(handler, ordering=ordering, timeout_s=0.05, dead_letter="dlq", dead_letters=letters) as bench:
        bench.wait_committed(COUNT)
        assert bench.work.times() == dict.fromkeys((each for each in VALUES if each != "r5"), 1)
    assert [value(letter.record) for letter in letters.sent] == ["r5"]


def test_one_that_blocks_the_event_loop_is_noticed() -> None:
    free = threading.Event()

    def handler(bench: Bench) -> Callable[..., Any]:
        async def handle(record: Record) -> None:
            if record.offset == 5:
                free.wait(PATIENCE_S)
            await bench.work.do_async("a", record)

        return handle

    bench = bench_of(
        handler,
        ordering="none",
        timeout_s=0.05,
        settings={"handler_grace_s": 0.05, "drain_timeout_s": 0.1, "linger_timeout_s": 0.1},
    )
    try:
        with pytest.raises(HandlerHung, match="blocks the event loop"), bench:
            bench.wait(bench.members[0].over.is_set)
    finally:
        free.set()


def test_what_the_application_cancels_is_not_handled_and_what_stands_behind_it_waits() -> None:
    broker, claims, handled = MemoryBroker(orders=1), MemoryClaims(), list[str]()
    broker.produce("orders", 0, *VALUES)

    async def main() -> None:
        waits = asyncio.Event()

        async def handle(record: Record) -> None:
            if record.offset == 3 and not waits.is_set():
                waits.set()
                await asyncio.Event().wait()
            handled.append(value(record))

        settings = Settings(ramp=None, ordering="partition", commit_interval_s=0.01)
        app = Holdfast(MemoryPartitionedSource(broker), claims=claims, settings=settings)
        app.handler("orders", name="handle")(handle)
        running = asyncio.create_task(app.run_async())
        await waits.wait()
        (task,) = [task for task in asyncio.all_tasks() if "_run_async" in repr(task.get_coro())]
        task.cancel()
        await running

    asyncio.run(main())
    assert handled == VALUES[: len(handled)]  # perhaps it began again before it left
    assert (broker.group("g").offset(partition()) or 0) <= len(handled)


class TestHowMany:
    """Of the real thing."""

    @pytest.fixture(autouse=True)
    def as_it_is(self, monkeypatch: pytest.MonkeyPatch, as_if_all_had_gone_well: None) -> None:
        monkeypatch.undo()

    def test_more_and_more_until_one_waits(self) -> None:
        together = Together()
        for at_most in (1, 2, 4, 8):
            assert together.records("h") == at_most
            together.ended("h", at_most, 1e-5, waited=False)
        together.ended("h", 16, 1e-5, waited=True)
        assert together.records("h") == 8
        together.ended("h", 1, 1e-5, waited=False)  # that says nothing of eight
        assert together.records("h") == 8
        together.ended("h", 8, 0.1, waited=False)  # nothing else ran for that long
        assert together.records("h") == 4
        for _ in range(20):
            together.ended("h", together.records("h"), 1e-5, waited=True)
        assert together.records("h") == together.records("another") == 1
        for _ in range(20):
            together.ended("h", 256, 1e-5, waited=False)
        assert together.records("h") == 256

    def test_those_that_never_wait_come_to_share_tasks_and_those_that_do_never(self) -> None:
        tasks = dict[str, set[int]]()
        with Bench(quick=1, slow=1) as bench:
            for topic in ("quick", "slow"):
                bench.broker.produce(topic, 0, *numbered(topic, range(300)))

            async def handle(record: Record) -> None:
                tasks.setdefault(record.topic, set()).add(id(asyncio.current_task()))
                if record.topic == "slow":
                    await asyncio.sleep(0)
                await bench.work.do_async("a", record)

            kept = list[Any]()

            class Keeping(asyncio.Task[Any]):
                """None is freed, so that no two have one id."""

            def factory(loop: Any, coroutine: Any, **how: Any) -> asyncio.Task[Any]:
                kept.append(Keeping(coroutine, loop=loop, **how))
                return kept[-1]  # type: ignore[no-any-return]

            settings = Settings(ramp=None, async_workers=8)  # how they do is seen before all are given away

            async def main() -> None:
                asyncio.get_running_loop().set_task_factory(factory)
                app = Holdfast(MemoryPartitionedSource(bench.broker), claims=bench.claims, settings=settings)
                for topic in ("quick", "slow"):
                    app.handler(topic, name=topic)(handle)
                async with app:
                    while len(bench.work.ended) < 600:  # noqa: ASYNC110 - as in `do_async`
                        await asyncio.sleep(0.001)

            asyncio.run(main())
        assert len(tasks["slow"]) == 300
        assert len(tasks["quick"]) < 150
