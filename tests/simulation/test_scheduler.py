"""The scheduler: who goes when is decided by the seed alone, and a process that is gone does nothing more."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import pytest

from holdfast.testing.scheduler import Scheduler
from tests.simulation.played import run_all, world

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.runtime import Runtime

#: Threads that take turns at a lock, wait for each other and look at clocks; prints who did what, and the digest.
DIGEST = """
import asyncio
from holdfast.testing.scheduler import Scheduler

def play(seed):
    scheduler, told = Scheduler(seed, yield_odds=0.1), []
    for name in ("one", "two", "three"):
        process = scheduler.process(name, clock_rate=1.01)
        runtime = process.runtime
        lock, event, jobs = runtime.lock(), runtime.event(), runtime.queue()

        def work(runtime=runtime, lock=lock, jobs=jobs, name=name):
            for n in range(20):
                with lock:
                    told.append((name, n, runtime.now(), runtime.token(4)))
                jobs.put(n)
                runtime.sleep(runtime.random.random())

        def wait(event=event, jobs=jobs, name=name):
            while True:
                told.append((name, jobs.get()))
                event.set()

        def run(runtime=runtime, event=event, name=name):
            async def coroutine(n):
                await asyncio.sleep(n / 10)
                told.append((name, "async", n))

            async def all_of_them():
                await asyncio.gather(*(coroutine(n) for n in range(5)))

            event.wait()
            runtime.event_loop().run_until_complete(all_of_them())

        process.spawn(work, "work")
        process.spawn(wait, "wait")
        process.spawn(run, "run")
        scheduler.at(scheduler.now + 3, lambda process=process: process.stall(1.0))
    scheduler.run(lambda: False, scheduler.now + 100)
    scheduler.end()
    assert not scheduler.errors, scheduler.errors
    return scheduler.digest, len(told), told[-3:]

if __name__ == "__main__":
    print(play(7), play(8))
"""


def _digest(hash_seed: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", DIGEST],
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_same_seed_plays_the_same_world_in_any_process() -> None:
    first = _digest("1")
    assert first == _digest("2")
    assert first.strip()


def _order(seed: int) -> list[str]:
    order: list[str] = []
    with world(seed) as scheduler:
        process = scheduler.process("p")
        for name in "abcdef":
            process.spawn(partial(order.append, name), name)
        run_all(scheduler)
    return order


def test_another_seed_lets_others_go_first() -> None:
    assert _order(1) == _order(1)
    assert len({tuple(_order(seed)) for seed in range(10)}) > 5


def test_without_jitter_they_go_in_the_order_of_waking() -> None:
    order: list[str] = []
    with world(jitter=False) as scheduler:
        process = scheduler.process("p")
        for name in "abcdef":
            process.spawn(partial(order.append, name), name)
        run_all(scheduler)
    assert order == list("abcdef")


def test_time_passes_by_waiting_and_costs_none() -> None:
    with world() as scheduler:
        process, began = scheduler.process("p"), scheduler.now
        process.spawn(lambda: process.runtime.sleep(86_400.0), "sleeper")
        run_all(scheduler, for_s=1e6)
        assert 86_400.0 <= scheduler.now - began < 86_401.0


def test_a_crashed_process_does_nothing_more() -> None:
    told: list[float] = []

    def tick(runtime: Runtime) -> None:
        while True:
            told.append(runtime.now())
            runtime.sleep(1.0)

    with world() as scheduler:
        process = scheduler.process("p")
        tasks = [process.spawn(partial(tick, process.runtime), "a"), process.spawn(partial(tick, process.runtime), "b")]
        scheduler.at(scheduler.now + 10, process.crash)
        run_all(scheduler)
        assert len(told) == 20
        assert not any(task.is_alive() for task in tasks)
    assert len(told) == 20


def test_a_task_that_crashes_its_process_does_not_come_back() -> None:
    told: list[str] = []
    with world() as scheduler:
        process = scheduler.process("p")

        def main() -> None:
            try:
                process.crash()
                told.append("came back")
            except RuntimeError:
                told.append("raised")

        process.spawn(main, "main")
        run_all(scheduler)
    assert told == []


def test_a_stall_postpones_and_loses_nothing() -> None:
    told: list[float] = []
    with world() as scheduler:
        process, began = scheduler.process("p"), scheduler.now
        wake = process.runtime.event()

        def main() -> None:
            assert wake.wait(2.0)
            told.append(scheduler.now - began)
            process.stall(5.0)
            told.append(scheduler.now - began)

        process.spawn(main, "main")
        scheduler.at(began + 1, partial(process.stall, 10.0))
        scheduler.at(began + 1.5, wake.set)
        run_all(scheduler)
    assert 11.0 <= told[0] < 11.1
    assert 16.0 <= told[1] < 16.1


def test_clocks_differ_and_each_waits_by_its_own() -> None:
    with world() as scheduler:
        process, began = scheduler.process("fast", clock_offset_s=50.0, clock_rate=2.0), scheduler.now
        took: list[float] = []

        def main() -> None:
            before = process.runtime.now()
            assert abs(before - (2.0 * began + 50.0)) < 0.1
            process.runtime.sleep(10.0)
            took.append(process.runtime.now() - before)

        process.spawn(main, "main")
        run_all(scheduler)
        assert 10.0 <= took[0] < 10.1
        assert 5.0 <= scheduler.now - began < 5.1


def test_what_a_task_raises_is_kept_and_the_others_go_on() -> None:
    scheduler, told = Scheduler(1), list[int]()
    process = scheduler.process("p")

    def bad() -> None:
        raise ValueError("bad")

    def good() -> None:
        process.runtime.sleep(1.0)
        told.append(1)

    process.spawn(bad, "bad")
    process.spawn(good, "good")
    run_all(scheduler)
    scheduler.end()
    assert [(crash.task, str(crash.error)) for crash in scheduler.errors] == [("bad", "bad")]
    assert "in bad" in scheduler.errors[0].trace
    assert told == [1]


def test_an_interrupt_is_raised_where_the_task_waits() -> None:
    told: list[str] = []
    scheduler = Scheduler(1)
    process = scheduler.process("p")

    def main() -> None:
        try:
            process.runtime.event().wait()
        except KeyboardInterrupt:
            told.append("first")
        process.runtime.queue().get()

    task = process.spawn(main, "main")
    scheduler.at(scheduler.now + 1, lambda: task.interrupt(KeyboardInterrupt()))
    scheduler.at(scheduler.now + 2, lambda: task.interrupt(KeyboardInterrupt()))
    run_all(scheduler)
    scheduler.end()
    assert told == ["first"]
    assert [type(crash.error) for crash in scheduler.errors] == [KeyboardInterrupt]


def test_who_looks_at_the_clock_all_the_time_lets_others_go_on() -> None:
    told: list[str] = []
    with world(yield_odds=0.0) as scheduler:
        process = scheduler.process("p")

        def busy() -> None:
            until = process.runtime.now() + 1.0
            while process.runtime.now() < until:
                pass
            told.append("busy")

        process.spawn(busy, "busy")
        process.spawn(lambda: told.append("other"), "other")
        run_all(scheduler)
    assert told == ["other", "busy"]


def test_the_clock_of_a_server_overtakes_nobody() -> None:
    told: list[str] = []
    with world(yield_odds=0.5) as scheduler:
        server, other = scheduler.process("server", preempted=False), scheduler.process("other")

        def step(name: str) -> None:
            for _ in range(100):
                with server.runtime.lock():
                    server.runtime.now()
            told.append(name)

        other.spawn(partial(step, "a"), "a")
        other.spawn(partial(step, "b"), "b")
        run_all(scheduler)
        assert scheduler.switches == 2
    assert sorted(told) == ["a", "b"]


def test_at_the_end_everything_is_left_at_once() -> None:
    left: list[str] = []
    scheduler = Scheduler(1)
    process, dead = scheduler.process("p"), scheduler.process("dead")

    def main(runtime: Runtime, name: str) -> None:
        try:
            with runtime.lock():
                runtime.sleep(1e9)
        finally:
            left.append(name)

    process.spawn(partial(main, process.runtime, "alive"), "main")
    dead.spawn(partial(main, dead.runtime, "dead"), "main")
    scheduler.at(scheduler.now + 1, dead.crash)
    run_all(scheduler)
    assert left == []
    scheduler.end()
    assert left == ["alive", "dead"]
    assert scheduler.errors == []
    scheduler.end()


def test_the_end_of_a_task_that_waits_again_and_again_is_the_end() -> None:
    def main(runtime: Runtime) -> None:
        while True:
            try:
                runtime.sleep(1.0)
            finally:
                runtime.event().wait(1.0)

    with world() as scheduler:
        process = scheduler.process("p")
        task = process.spawn(partial(main, process.runtime), "main")
        run_all(scheduler, for_s=5)
    assert not task.is_alive()


def test_the_hub_waits_for_nothing() -> None:
    with world() as scheduler:
        runtime = scheduler.process("p").runtime
        waits: list[Callable[[], object]] = [
            lambda: runtime.sleep(1.0),
            lambda: runtime.event().wait(),
            lambda: runtime.queue().get(),
        ]
        for wait in waits:
            with pytest.raises(RuntimeError, match="hub"):
                wait()
        before = runtime.now()
        assert runtime.now() == before, "who only judges moves nothing"


def test_run_goes_on_where_it_ended() -> None:
    told: list[int] = []
    with world() as scheduler:
        began = scheduler.now
        for n in range(5):
            scheduler.at(began + n, partial(told.append, n))
        assert scheduler.run(lambda: len(told) == 2, began + 100)
        assert not scheduler.run(lambda: False, began + 3.5)
        assert told == [0, 1, 2, 3]
        assert not scheduler.run(lambda: False, began + 100)
        assert told == [0, 1, 2, 3, 4]
