"""`idempotent` on coroutines: tasks, cancellation, many event loops, a loop that goes on while the store is asked."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

import pytest

from holdfast import BatchFailed, KeyBusy, MemoryClaims, RedisClaims, Skipped, current_claim, idempotent
from tests.harness.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

Claims = MemoryClaims | RedisClaims


@pytest.fixture(params=["memory", "redis"])
def claims(request: pytest.FixtureRequest) -> Iterator[Claims]:
    store: Claims
    store = MemoryClaims() if request.param == "memory" else RedisClaims.from_url(request.getfixturevalue("redis_url"))
    yield store
    store.close()


def test_of_many_tasks_each_key_is_run_once_and_all_get_its_result(claims: Claims) -> None:
    ran = []

    @idempotent(claims, key="order_id", name="f")
    async def f(order_id: int) -> int:
        await asyncio.sleep(0)
        ran.append(order_id)
        return order_id * 10

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*(f(n % 7) for n in range(100)))

    assert asyncio.run(all_of_them()) == [n % 7 * 10 for n in range(100)]
    assert sorted(ran) == list(range(7))


def test_many_loops_one_after_the_other_and_at_once_share_a_session(claims: Claims) -> None:
    ran: list[int] = []

    @idempotent(claims, key="order_id", name="f", on_done="marker")
    async def f(order_id: int) -> None:
        ran.append(order_id)

    async def some(first: int) -> None:
        await asyncio.gather(*(f(n) for n in range(first, first + 5)))

    for _ in range(3):
        asyncio.run(some(0))
    session = claims.calls.session()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: asyncio.run(some(n)), range(4)))
    assert sorted(ran) == list(range(8))
    assert claims.calls.session() is session


def test_batches(claims: Claims) -> None:
    ran = []

    @idempotent(claims, key="id", name="f", batch=True)
    async def f(orders: list[dict[str, int]]) -> list[int]:
        ran.append([order["id"] for order in orders])
        if len(ran) == 2:
            raise BatchFailed({0: ValueError()})
        return [order["id"] for order in orders]

    assert asyncio.run(f([{"id": 1}, {"id": 1}])) == [1, 1]
    with pytest.raises(BatchFailed) as caught:
        asyncio.run(f([{"id": 1}, {"id": 2}, {"id": 3}]))
    assert set(caught.value.failures) == {1}
    assert ran == [[1], [2, 3]]


def test_a_body_has_its_claim_and_so_have_its_tasks_and_no_others(claims: Claims) -> None:
    seen: dict[str, Any] = {}

    @idempotent(claims, key="order_id", name="f")
    async def f(order_id: int) -> None:
        seen["body"] = current_claim()
        seen["task"] = await asyncio.create_task(ask())
        seen["thread"] = await asyncio.to_thread(current_claim)

    async def ask() -> Any:
        return current_claim()

    async def main() -> None:
        task = asyncio.create_task(f(1))
        seen["beside"] = current_claim()
        await task
        seen["after"] = current_claim()

    asyncio.run(main())
    assert seen["body"].keys == ("n:1",)
    assert seen["body"].fence > 0
    assert seen["body"] is seen["task"] is seen["thread"]
    assert seen["beside"] is seen["after"] is None


def test_plain_functions_work_in_an_event_loop_too(claims: Claims) -> None:
    f = idempotent(claims, key="order_id", name="f", on_done="marker")(lambda order_id: "ran")

    async def main() -> list[object]:
        return [f(1), f(1), f(2)]

    assert asyncio.run(main()) == ["ran", Skipped.DONE, "ran"]


class Held:
    """A coroutine that a test holds."""

    def __init__(self, claims: Claims, **choices: Any) -> None:
        self.ran: list[int] = []
        self.began = asyncio.Event()
        self.may_end = asyncio.Event()

        async def body(order_id: int) -> int:
            self.ran.append(order_id)
            self.began.set()
            await self.may_end.wait()
            return len(self.ran)

        self.call = idempotent(claims, key="order_id", name="f", **choices)(body)


class SlowStore:
    """While it is entered, the store has heard a call and does not answer."""

    def __init__(self, claims: MemoryClaims) -> None:
        self._claims = claims
        self._lock = claims.state.lock
        self._asked = threading.Event()
        self._answers = threading.Event()

    async def is_asked(self) -> None:
        assert await asyncio.to_thread(self._asked.wait, 30)

    def __enter__(self) -> Self:
        slow: Any = self
        self._claims.state.lock = type("Lock", (), {"__enter__": lambda _: slow.wait(), "__exit__": lambda *_: None})()
        return self

    def wait(self) -> None:
        self._asked.set()
        assert self._answers.wait(30)

    def __exit__(self, *_: object) -> None:
        self._claims.state.lock = self._lock
        self._answers.set()


class TestCancelled:
    """Whenever it comes, the key is free afterwards, and never done."""

    def test_while_the_body_runs(self, claims: Claims) -> None:
        async def main() -> None:
            held = Held(claims, wait_s=20.0)
            task = asyncio.create_task(held.call(1))
            await held.began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            held.may_end.set()
            assert await held.call(1) == 2

        asyncio.run(main())

    def test_by_a_timeout(self, claims: Claims) -> None:
        async def main() -> None:
            held = Held(claims)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await held.call(1)
            held.may_end.set()
            await held.call(1)

        asyncio.run(main())

    def test_while_it_waits_for_another(self, claims: Claims) -> None:
        async def main() -> None:
            held = Held(claims)
            first = asyncio.create_task(held.call(1))
            await held.began.wait()
            waiting = asyncio.create_task(held.call(1))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(waiting, 0.05)
            held.may_end.set()
            assert await first == 1
            assert await held.call(1) == 1

        asyncio.run(main())

    def test_while_the_store_is_asked_for_the_key(self) -> None:
        claims = MemoryClaims(renewals=False, lease_s=3600.0)

        async def main() -> None:
            held = Held(claims, wait_s=20.0)
            held.may_end.set()
            await held.call(0)
            with SlowStore(claims) as slow:
                task = asyncio.create_task(held.call(1))
                await slow.is_asked()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await held.call(1) == 2
            assert held.ran == [0, 1]

        asyncio.run(main())

    def test_but_what_has_run_is_done(self) -> None:
        claims = MemoryClaims(renewals=False, lease_s=3600.0)

        async def main() -> None:
            held = Held(claims, wait_s=20.0)
            task = asyncio.create_task(held.call(1))
            await held.began.wait()
            with SlowStore(claims) as slow:
                held.may_end.set()
                await slow.is_asked()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert await held.call(1) == 1
            assert held.ran == [1]

        asyncio.run(main())

    def test_a_loop_that_ends_with_calls_in_it_frees_their_keys(self, claims: Claims) -> None:
        ran = []
        all_run = asyncio.Event()

        async def body(order_id: int) -> int:
            ran.append(order_id)
            if len(ran) == 5:
                all_run.set()
            if len(ran) < 6:
                await asyncio.Event().wait()
            return len(ran)

        f = idempotent(claims, key="order_id", name="f", wait_s=20.0)(body)

        async def leaves() -> None:
            tasks = [asyncio.create_task(f(n)) for n in range(5)]
            await all_run.wait()
            del tasks

        asyncio.run(leaves())

        async def comes() -> list[int]:
            return await asyncio.gather(*(f(n) for n in range(5)))

        assert sorted(asyncio.run(comes())) == [6, 7, 8, 9, 10]


def test_a_busy_key_raises_or_is_skipped_or_waited_for(claims: Claims) -> None:
    async def main() -> None:
        began, may_end = asyncio.Event(), asyncio.Event()

        async def body(order_id: int) -> str:
            began.set()
            await may_end.wait()
            return "done"

        def make(**choices: Any) -> Any:
            return idempotent(claims, key="order_id", name="f", **choices)(body)

        first = asyncio.create_task(make()(1))
        await began.wait()
        for choices in ({"on_busy": "raise"}, {"wait_s": 0.02}):
            with pytest.raises(KeyBusy):
                await make(**choices)(1)
        assert await make(on_busy="skip")(1) is Skipped.BUSY
        waiting = asyncio.create_task(make()(1))
        may_end.set()
        assert await first == await waiting == "done"

    asyncio.run(main())


def test_the_event_loop_goes_on_while_the_store_is_silent() -> None:
    with RedisServer() as server:
        claims = RedisClaims.from_url(server.url, timeout_s=20.0)

        async def body(order_id: int) -> int:
            return order_id

        f = idempotent(claims, key="order_id", name="f")(body)

        async def main() -> None:
            await f(0)
            server.pause()
            task = asyncio.create_task(f(1))
            for _ in range(100):
                await asyncio.sleep(0.001)
            assert not task.done()
            server.resume()
            assert await task == 1

        asyncio.run(main())
        claims.close()


def test_an_object_whose_call_is_a_coroutine(claims: Claims) -> None:
    class Caller:
        async def __call__(self, order_id: int) -> int:
            return threading.get_ident()

    f = idempotent(claims, key="order_id", name="f")(Caller())
    assert asyncio.run(f(1)) == asyncio.run(f(1)) == threading.get_ident()
