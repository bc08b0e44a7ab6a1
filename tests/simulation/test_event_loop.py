"""The event loop of a simulated process: asyncio's own, but for waiting."""

from __future__ import annotations

import asyncio
import gc
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.simulation.played import played, run_all, world

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

    from holdfast.runtime import Runtime

SEEDS = range(10)


def _run(runtime: Runtime, coroutine: Coroutine[None, None, None]) -> None:
    loop = runtime.event_loop()
    try:
        loop.run_until_complete(coroutine)
    finally:
        loop.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_coroutines_sleep_together(seed: int) -> None:
    ended: list[int] = []

    async def one(n: int) -> None:
        await asyncio.sleep(n)
        ended.append(n)

    async def all_of_them() -> None:
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(one(n) for n in range(5, 0, -1)))
        assert 5.0 <= asyncio.get_running_loop().time() - began < 5.1

    played(lambda runtime: _run(runtime, all_of_them()), seed)
    assert ended == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_timeout_cancels(seed: int) -> None:
    told: list[str] = []

    async def main() -> None:
        try:
            async with asyncio.timeout(1.0):
                await asyncio.sleep(100.0)
        except TimeoutError:
            told.append("late")

    scheduler = played(lambda runtime: _run(runtime, main()), seed)
    assert told == ["late"]
    assert scheduler.now < 1002.0


@pytest.mark.parametrize("seed", SEEDS)
def test_another_thread_wakes_the_loop(seed: int) -> None:
    told: list[float] = []

    def main(runtime: Runtime) -> None:
        loop = runtime.event_loop()
        thread = runtime.spawn(loop.run_forever, "loop")
        runtime.sleep(10.0)
        loop.call_soon_threadsafe(lambda: told.append(loop.time()))
        runtime.sleep(1.0)
        assert told
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    played(main, seed)
    assert 1010.0 <= told[0] < 1010.1


@pytest.mark.parametrize("seed", SEEDS)
def test_a_call_in_another_thread_leaves_the_loop_free(seed: int) -> None:
    told: list[str] = []

    def main(runtime: Runtime) -> None:
        def slow(n: int) -> int:
            runtime.sleep(2.0)
            told.append("slow")
            return n

        def bad() -> None:
            raise ValueError("bad")

        async def coroutine() -> None:
            waiting = asyncio.create_task(asyncio.to_thread(slow, 7))
            await asyncio.sleep(1.0)
            told.append("free")
            assert await waiting == 7
            with pytest.raises(ValueError, match="bad"):
                await asyncio.to_thread(bad)
            async with asyncio.timeout(60.0):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(asyncio.to_thread(slow, 1), 1.0)
            await asyncio.sleep(5.0)

        _run(runtime, coroutine())

    played(main, seed)
    assert told == ["free", "slow", "slow"]


@pytest.mark.parametrize("seed", SEEDS)
def test_loops_of_several_processes_do_not_see_each_other(seed: int) -> None:
    ended: list[str] = []

    async def numbers(runtime: Runtime) -> AsyncIterator[int]:
        for n in range(20):
            runtime.now()  # looked at in a coroutine: others may go on in their loops
            yield n
            await asyncio.sleep(0.001)

    async def main(runtime: Runtime, name: str) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        async for _ in numbers(runtime):
            runtime.sleep(0.0005)  # a coroutine that blocks its thread
            assert asyncio.get_running_loop() is loop
            assert asyncio.current_task() is task
        ended.append(name)

    with world(seed, yield_odds=0.3) as scheduler:
        for name in "abc":
            process = scheduler.process(name)
            process.spawn(partial(_run, process.runtime, main(process.runtime, name)), "main")
        run_all(scheduler)
    assert sorted(ended) == ["a", "b", "c"]
    assert sys.get_asyncgen_hooks() == (None, None)


def test_what_is_unfinished_at_the_end_says_nothing() -> None:
    left: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.sleep(1e9)
        finally:
            left.append("left")

    async def blocks(runtime: Runtime) -> None:
        try:
            runtime.sleep(1e9)
        finally:
            left.append("blocked")

    async def main(runtime: Runtime) -> None:
        tasks = [asyncio.create_task(waits()), asyncio.create_task(blocks(runtime)), asyncio.create_task(waits())]
        await asyncio.gather(*tasks)

    with world() as scheduler:
        process, dead = scheduler.process("p"), scheduler.process("dead")
        for each in (process, dead):
            each.spawn(partial(_run, each.runtime, main(each.runtime)), "main")
        scheduler.at(scheduler.now + 1, dead.crash)
        run_all(scheduler, for_s=10.0)
        assert left == []
    assert sorted(left) == ["blocked", "blocked", "left", "left"], "the last ones have not begun, and do not"
    gc.collect()  # warnings are errors


def test_a_world_is_not_played_inside_of_a_loop() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="event loops of its own"), world():
            pass

    asyncio.run(main())
