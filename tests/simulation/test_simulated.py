"""What a process finds in its simulated machine: as `threading` and `queue` have it."""

from __future__ import annotations

from queue import Empty
from typing import TYPE_CHECKING

import pytest

from tests.simulation.played import played

if TYPE_CHECKING:
    from holdfast.runtime import Condition, Event, Queue, Runtime

SEEDS = range(20)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_lock_is_held_by_one(seed: int) -> None:
    inside, most = [0], [0]

    def main(runtime: Runtime) -> None:
        lock = runtime.lock()

        def work() -> None:
            for _ in range(10):
                with lock:
                    inside[0] += 1
                    most[0] = max(most[0], inside[0])
                    runtime.sleep(0.01)
                    inside[0] -= 1

        threads = [runtime.spawn(work, str(n)) for n in range(5)]
        for thread in threads:
            thread.join()
        assert not any(thread.is_alive() for thread in threads)

    played(main, seed)
    assert (inside, most) == ([0], [1])


@pytest.mark.parametrize("seed", SEEDS)
def test_an_rlock_is_taken_again_by_its_holder_alone(seed: int) -> None:
    told: list[str] = []

    def main(runtime: Runtime) -> None:
        lock = runtime.rlock()

        def other() -> None:
            with lock:
                told.append("other")

        with lock, lock:
            runtime.spawn(other, "other")
            runtime.sleep(1.0)
            with lock:
                told.append("first")
            runtime.sleep(1.0)

    played(main, seed)
    assert told == ["first", "other"]


@pytest.mark.parametrize("seed", SEEDS)
def test_an_event_wakes_all_also_where_it_is_cleared_at_once(seed: int) -> None:
    told: list[bool] = []

    def main(runtime: Runtime) -> None:
        event = runtime.event()
        for n in range(3):
            runtime.spawn(lambda: told.append(event.wait(10.0)), str(n))
        runtime.sleep(1.0)
        event.set()
        event.clear()
        assert not event.is_set()
        assert not event.wait(0.5)

    played(main, seed)
    assert told == [True] * 3


def test_a_wait_ends_with_its_timeout() -> None:
    def main(runtime: Runtime) -> None:
        event, began = runtime.event(), runtime.now()
        assert not event.wait(2.0)
        assert 2.0 <= runtime.now() - began < 2.1
        for _ in range(1000):
            event.wait(0.001)
        assert not event._waiters  # type: ignore[attr-defined] # who has gone is forgotten
        assert not event.wait(0.0)
        assert not event.wait(-1.0)

    played(main)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_condition_is_waited_for_without_its_lock(seed: int) -> None:
    taken: list[int] = []

    def main(runtime: Runtime) -> None:
        condition, items = runtime.condition(), list[int]()

        def take() -> None:
            with condition:
                while len(taken) < 10:
                    assert condition.wait_for(lambda: bool(items) or len(taken) == 10, 100.0)
                    if items:
                        taken.append(items.pop(0))
                        condition.notify_all()

        threads = [runtime.spawn(take, str(n)) for n in range(3)]
        for n in range(10):
            with condition:
                items.append(n)
                condition.notify_all()
            runtime.sleep(0.01)
        for thread in threads:
            thread.join(50.0)
            assert not thread.is_alive()

    played(main, seed)
    assert taken == list(range(10))


def test_a_condition_gives_up_in_time_and_needs_its_lock() -> None:
    def main(runtime: Runtime) -> None:
        condition, began = runtime.condition(), runtime.now()
        with condition, condition:
            assert not condition.wait(1.0)
            assert not condition.wait_for(lambda: False, 1.0)
            assert 2.0 <= runtime.now() - began < 2.1
        for call in (condition.wait, condition.notify_all):
            with pytest.raises(RuntimeError):
                call()

    played(main)


def test_a_condition_of_a_server_is_waited_for_by_the_tasks_of_others() -> None:
    from tests.simulation.played import run_all, world  # noqa: PLC0415

    told: list[str] = []
    with world() as scheduler:
        condition: Condition = scheduler.process("server", preempted=False).runtime.condition()
        one, two = scheduler.process("one"), scheduler.process("two")

        def wait() -> None:
            with condition:
                condition.wait()
                told.append("told")

        def tell() -> None:
            two.runtime.sleep(1.0)
            with condition:
                condition.notify_all()

        one.spawn(wait, "wait")
        two.spawn(tell, "tell")
        run_all(scheduler)
    assert told == ["told"]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_queue_gives_each_item_once_in_order(seed: int) -> None:
    got: list[int] = []

    def main(runtime: Runtime) -> None:
        queue: Queue[int | None] = runtime.queue()

        def take() -> None:
            while (item := queue.get()) is not None:
                got.append(item)
                runtime.sleep(0.001)

        threads = [runtime.spawn(take, str(n)) for n in range(3)]
        for n in range(30):
            queue.put(n)
        for _ in threads:
            queue.put(None)
        for thread in threads:
            thread.join()
        with pytest.raises(Empty):
            queue.get_nowait()

    played(main, seed)
    assert sorted(got) == list(range(30))


def test_threads_are_told_apart_and_a_join_may_give_up() -> None:
    def main(runtime: Runtime) -> None:
        seen: list[object] = []
        event: Event = runtime.event()

        def other() -> None:
            seen.append(runtime.current())
            event.wait()

        thread = runtime.spawn(other, "other")
        thread.join(1.0)
        assert thread.is_alive()
        assert seen == [thread]
        assert runtime.current() != thread
        event.set()
        thread.join()
        assert not thread.is_alive()
        thread.join()

    played(main)


def test_names_and_chance_are_those_of_one_start_of_one_process() -> None:
    def of(seed: int) -> list[tuple[str, float]]:
        from tests.simulation.played import world  # noqa: PLC0415

        with world(seed) as scheduler:
            runtimes = [scheduler.process(name).runtime for name in ("a", "a", "b")]
            return [(runtime.token(8), runtime.random.random()) for runtime in runtimes]

    assert of(1) == of(1)
    assert len({*of(1), *of(2)}) == 6
    assert all(len(token) == 16 for token, _ in of(1))


def test_the_time_of_day_goes_with_the_clock() -> None:
    def main(runtime: Runtime) -> None:
        before = runtime.wall_ms()
        runtime.sleep(60.0)
        assert 60_000 <= runtime.wall_ms() - before < 60_100
        assert before > 1_600_000_000_000

    played(main)
