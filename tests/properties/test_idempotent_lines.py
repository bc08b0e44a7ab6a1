"""A call of an idempotent function that is broken off at any of its lines leaves no key, no lock and no claim behind.

Each line of `holdfast/dedup/calls` that a call takes, plain or async, is struck: by an exception, as a signal's handler
raises it; and by a collection that finds two forgotten coroutines of the same store, one in its body and one whose
question the store has answered. What has returned is done, and runs no second time.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchFailed, KeyBusy, MemoryClaims, Skipped, current_claim, idempotent
from holdfast.dedup import calls
from holdfast.dedup.calls import debts
from holdfast.dedup.calls.functions import Names
from holdfast.dedup.claims import Claim, ClaimKey, Token
from holdfast.dedup.memory_session import MemorySession
from holdfast.dedup.memory_state import Claimed
from holdfast.errors import HoldfastError, KeyReused, ResultNotStored, StoreRefused
from tests.harness.lines import Lines, Struck
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is owed is told again at once."""
    monkeypatch.setattr(debts, "_PAUSE_FIRST_S", 0.001)


CALLS = Path(calls.__path__[0])
BUSY = Claim(ClaimKey("f", "n:9"), Token("another", 1, 1))


class Never:
    """A coroutine that waits for it goes no further."""

    def __await__(self) -> Any:
        yield self


class World:
    """A store, functions with bodies of all kinds, and what they have done."""

    def __init__(self) -> None:
        self.claims = MemoryClaims(renewals=False, lease_s=3600.0)
        self.another = MemoryClaims(renewals=False, lease_s=3600.0)
        self.another.state = self.claims.state
        #: Keys of bodies that have returned.
        self.done: list[object] = []
        self.fails: BaseException | None = None
        #: Set by the body of a task that waits until it is cancelled.
        self.began = asyncio.Event()

    def _body(self, order: Any) -> str:
        assert current_claim() is not None
        if self.fails is not None:
            fails, self.fails = self.fails, None
            raise fails
        self.done.append(order)
        return "done"

    def guarded(self, function: Callable[..., Any], key: str = "order", **choices: Any) -> Any:
        """All of them have one name, as in several processes."""
        self.claims.calls.names = Names()
        return idempotent(self.claims, key=key, name="f", **choices)(function)

    def plain(self, **choices: Any) -> Any:
        def f(order: int) -> str:
            return self._body(order)

        return self.guarded(f, **choices)

    def coroutine(self, **choices: Any) -> Any:
        async def f(order: int) -> str:
            await asyncio.sleep(0)
            if order in (6, 7):
                await Never()
            if order == 4:
                self.began.set()
                await asyncio.get_running_loop().create_future()
            return self._body(order)

        return self.guarded(f, **choices)

    def batch(self, **choices: Any) -> Any:
        def f(orders: list[dict[str, int]]) -> list[str]:
            if len(orders) > 1:
                self.done.append(orders[0]["id"])
                raise BatchFailed({1: ValueError()})
            return [self._body(order["id"]) for order in orders]

        return self.guarded(f, "id", batch=True, **choices)

    def silent(self, *, hears: bool) -> Callable[[], None]:
        return lambda: self.claims.go_silent(hears=hears)

    def held_by_another(self) -> None:
        self.another.calls.session().claim([BUSY])

    def held(self) -> set[ClaimKey]:
        return {key for key, value in list(self.claims.state.keys.items()) if isinstance(value, Claimed)}

    def check(self, seen: str) -> None:
        """Nothing was left behind, and everything goes on."""
        self.claims.speak_again()
        self.fails = None
        owed = self.claims.calls.process.debts
        until(
            lambda: not owed and self.held() <= {BUSY.key}, f"{seen}: left behind", meanwhile=lambda: time.sleep(0.0005)
        )
        assert not owed.expected, f"{seen}: a call is still entered"
        assert current_claim() is None, f"{seen}: a claim is left"
        call = self.plain()  # a thread may ask still
        for order in {1, 2, 3, 8, *self.done}:
            with suppress(ResultNotStored):
                assert call(order) in ("done", None), f"{seen}: {order}"
        twice = {order for order in self.done if self.done.count(order) > 1}
        assert not twice, f"{seen}: {twice} has run twice"
        self.claims.close()


def fresh(world: World) -> None:
    assert world.plain()(1) == "done"


def fails(world: World) -> None:
    world.fails = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        world.plain()(1)


def is_interrupted(world: World) -> None:
    world.fails = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        world.plain()(1)


def a_second_time(world: World) -> None:
    f = world.plain()
    assert f(1) == f(1) == "done"


def another_payload(world: World) -> None:
    f = world.plain(fingerprint=lambda order: len(world.done))
    assert f(1) == "done"
    with pytest.raises(KeyReused):
        f(1)


def a_batch_of_which_some_fail(world: World) -> None:
    world.plain()(2)
    with pytest.raises(BatchFailed):
        world.batch()([{"id": 1}, {"id": 2}, {"id": 3}])


def a_key_that_is_busy(world: World) -> None:
    world.held_by_another()
    with pytest.raises(KeyBusy):
        world.plain(wait_s=0.001)(9)
    assert world.plain(on_busy="skip")(9) is Skipped.BUSY
    with pytest.raises(KeyBusy):
        world.batch(on_busy="raise")([{"id": 1}, {"id": 9}])


def no_answer_before_the_body(world: World) -> None:
    world.plain()(2)
    world.claims.go_silent(hears=True)
    with pytest.raises(HoldfastError):
        world.plain()(1)


def no_answer_after_the_body(world: World) -> None:
    def f(order: int) -> str:
        world.claims.go_silent(hears=False)
        world.done.append(order)
        return "done"

    assert world.guarded(f)(1) == "done"


def a_result_is_refused(world: World) -> None:
    with pytest.MonkeyPatch.context() as patch:
        finish = MemorySession.finish

        def limited(session: MemorySession, done: Any, results: Any = None) -> Any:
            if any(len(result) > 1 for result in results):
                raise StoreRefused("too large")
            return finish(session, done, results)

        patch.setattr(MemorySession, "finish", limited)
        with suppress(HoldfastError):
            world.plain(on_done="result")(5)


def in_a_task(world: World) -> None:
    assert asyncio.run(world.coroutine()(1)) == "done"


def a_task_that_fails(world: World) -> None:
    world.fails = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        asyncio.run(world.coroutine()(1))


def a_task_that_is_cancelled(world: World) -> None:
    async def main() -> None:
        task, began = asyncio.create_task(world.coroutine()(4)), asyncio.create_task(world.began.wait())
        await asyncio.wait([task, began], return_when=asyncio.FIRST_COMPLETED)
        began.cancel()
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())


def coroutines_that_are_closed(world: World) -> None:
    """One while the store is asked, one in its body."""

    async def main() -> None:
        asking = world.coroutine()(1)
        asking.send(None)
        asking.close()
        running = world.coroutine()(6)
        await as_far_as_it_goes(running)
        running.close()

    asyncio.run(main())


CALLED: list[Callable[[World], None]] = [
    *(fresh, fails, is_interrupted, a_second_time, another_payload, a_batch_of_which_some_fail, a_key_that_is_busy),
    *(no_answer_before_the_body, no_answer_after_the_body, a_result_is_refused),
    *(in_a_task, a_task_that_fails, a_task_that_is_cancelled, coroutines_that_are_closed),
]


async def as_far_as_it_goes(coroutine: Any) -> None:
    """Take the coroutine's steps until it waits for what never comes."""
    while not isinstance(waits_for := coroutine.send(None), Never):
        if waits_for is None:
            await asyncio.sleep(0)
        else:
            waits_for._asyncio_future_blocking = False
            await asyncio.wait([waits_for])


def forgotten(world: World) -> Callable[[], None]:
    """Coroutines of the same store that only a collection finds. Returns: what collects them."""

    async def main() -> list[Any]:
        running = world.coroutine()(7)
        await as_far_as_it_goes(running)
        asking = world.coroutine()(8)
        answer = asking.send(None)
        answer._asyncio_future_blocking = False
        await asyncio.wait([answer])
        cycle: list[Any] = [running, asking]
        cycle.append(cycle)
        return cycle

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    loop.close()
    return collect


def collect() -> None:
    gc.collect()


def strike() -> None:
    raise Struck


@contextmanager
def few_to_collect() -> Iterator[None]:
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


#: The calls that were struck so far.
PLAYED: list[str] = []


def play(called: Callable[[World], None], at: int, *, others: bool = False, collects: bool = False) -> Lines:
    world = World()
    deed = forgotten(world) if collects else strike
    lines = Lines(CALLS, at=at, others=others, deed=deed)
    with suppress(Struck), lines.watched():
        called(world)
    if collects:
        gc.collect()
    place = f"{called.__name__}, struck at {at}"
    world.check(place)
    PLAYED.append(place)
    return lines


def search(called: Callable[[World], None], step: int, **how: bool) -> None:
    """Strike at each line, or at each of so many."""
    at = 1
    while play(called, at, **how).taken >= at:
        at += step


def in_time(call: Callable[[], Any]) -> Any:
    """In a thread that may stand still: one call takes some milliseconds. Returns what it does."""
    ended: list[Any] = []
    raised: list[BaseException] = []

    def run() -> None:
        try:
            ended.append(call())
        except BaseException as error:  # noqa: BLE001 - it is raised again
            raised.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    while thread.is_alive():
        before = len(PLAYED)
        thread.join(60)
        assert not thread.is_alive() or len(PLAYED) > before, f"it stands still after {PLAYED[-1:]}"
    if raised:
        raise raised[0]
    return ended[0]


#: All of them are for `make test-all`.
STEPS = [11, pytest.param(1, marks=pytest.mark.full)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("called", CALLED)
def test_an_exception_at_any_line_leaves_nothing_behind(called: Callable[[World], None], step: int) -> None:
    in_time(lambda: search(called, step))


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("others", [False, True])
@pytest.mark.parametrize("called", CALLED)
def test_a_collection_at_any_line_leaves_nothing_behind(
    called: Callable[[World], None], step: int, *, others: bool
) -> None:
    with few_to_collect():
        in_time(lambda: search(called, step, collects=True, others=others))


def test_nearly_all_lines_are_struck() -> None:
    """Of functions that run for a call: a count of them, so that the search does not come to nothing unseen."""
    struck: set[tuple[str, int]] = set()
    taken = 0
    for called in CALLED:
        lines = [play(called, 0), play(called, 0, others=True)]
        taken += sum(each.taken for each in lines)
        struck = struck.union(*(each.places for each in lines))
    assert taken > 4_500
    assert len(struck) > 380
