"""What `idempotent` promises, on memory and on a real Redis."""

from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchFailed, Fenced, KeyBusy, MemoryClaims, RedisClaims, Skipped, current_claim, idempotent
from holdfast.dedup.calls import results
from holdfast.dedup.calls.results import encode
from holdfast.errors import KeyReused, ResultNotStored
from holdfast.runtime import Machine
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(params=["memory", "redis", "redis in 3 shards with digests"])
def claims(request: pytest.FixtureRequest) -> Iterator[MemoryClaims | RedisClaims]:
    store: MemoryClaims | RedisClaims
    if request.param == "memory":
        store = MemoryClaims()
    else:
        url = request.getfixturevalue("redis_url")
        store = RedisClaims.from_url(url, shards=3 if "3" in request.param else 1, hash_keys="digests" in request.param)
    yield store
    store.close()


Claims = MemoryClaims | RedisClaims


@pytest.fixture
def other(claims: Claims) -> Iterator[Claims]:
    """The same store as another process has it: with a session of its own."""
    store: Claims
    if isinstance(claims, MemoryClaims):
        store = MemoryClaims()
        store.state = claims.state
    else:
        assert claims._make_client is not None
        layout = claims._layout
        store = RedisClaims(claims._make_client(), shards=layout.shards, hash_keys=layout.hash_keys, runtime=Machine())
    yield store
    store.close()


class SoftTimeLimit(Exception):
    """As Celery's: what a signal handler raises, anywhere."""


class Body:
    """A body that a test holds, lets go, and counts."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        self.began = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, order_id: int) -> int:
        self.ran.append(order_id)
        self.began.set()
        assert self.may_end.wait(30)
        return len(self.ran)


class TestDone:
    def test_a_second_call_returns_what_the_first_returned(self, claims: Claims) -> None:
        ran = []

        @idempotent(claims, key="order_id", name="f")
        def f(order_id: int, *, note: str) -> dict[str, Any]:
            ran.append(order_id)
            return {"order": order_id, "note": note, "é": ["\x00", None, 1.5, {}]}

        first = f(1, note="a")
        assert f(1, note="b") == first == {"order": 1, "note": "a", "é": ["\x00", None, 1.5, {}]}
        assert f(2, note="b") == {"order": 2, "note": "b", "é": ["\x00", None, 1.5, {}]}
        assert ran == [1, 2]

    def test_or_a_marker_and_then_no_result_has_to_be_json(self, claims: Claims) -> None:
        f = idempotent(claims, key="order_id", name="f", on_done="marker")(lambda order_id: {order_id})
        assert [f(1), f(1), f(1)] == [{1}, Skipped.DONE, Skipped.DONE]

    @pytest.mark.parametrize("on_done", ["result", "marker"])
    def test_a_call_with_another_payload_is_refused_by_whichever_process_gets_it(
        self, claims: Claims, other: Claims, on_done: Any
    ) -> None:
        ran = []

        def charge(order_id: int, amount: int) -> int:
            ran.append(amount)
            return amount

        f, g = (
            idempotent(store, key="order_id", name="f", fingerprint=True, on_done=on_done)(charge)
            for store in (claims, other)
        )
        f(1, 5)
        assert g(1, 5) == (5 if on_done == "result" else Skipped.DONE)
        with pytest.raises(KeyReused):
            g(1, 6)
        unasked = idempotent(other, key="order_id", name="f", on_done=on_done)(charge)
        assert unasked(1, 6) == (5 if on_done == "result" else Skipped.DONE)
        assert ran == [5]

    def test_nothing_is_a_result_too(self, claims: Claims) -> None:
        ran = []

        @idempotent(claims, key="order_id", name="f")
        def f(order_id: int) -> None:
            ran.append(order_id)

        for _ in range(2):
            f(1)
        assert ran == [1]

    @pytest.mark.parametrize(
        "result", [object(), (1, 2), {1: "a"}, float("nan"), b"x", {"a": [{"b": (1,)}]}, {"a", "b"}, Counter("aab")]
    )
    def test_a_result_that_is_not_json_is_told_at_once_and_its_body_is_not_run_again(
        self, claims: Claims, result: object
    ) -> None:
        ran = []

        @idempotent(claims, key="order_id", name="f")
        def f(order_id: int) -> object:
            ran.append(order_id)
            return result

        for _ in range(3):
            with pytest.raises(ResultNotStored, match="on_done='marker'"):
                f(1)
        assert ran == [1]

    def test_what_was_done_by_another_process_is_done(self, claims: Claims, other: Claims) -> None:
        assert idempotent(claims, key="order_id", name="f")(lambda order_id: "first")(1) == "first"
        assert idempotent(other, key="order_id", name="f")(lambda order_id: "second")(1) == "first"


class TestFailure:
    def test_a_body_that_raises_frees_its_key(self, claims: Claims) -> None:
        errors: list[BaseException] = [RuntimeError("no"), KeyboardInterrupt(), SystemExit(), StopIteration()]

        @idempotent(claims, key="order_id", name="f")
        def f(order_id: int) -> str:
            if errors:
                raise errors.pop(0)
            return "done"

        for expected in (RuntimeError, KeyboardInterrupt, SystemExit, StopIteration):
            with pytest.raises(expected):
                f(1)
        assert f(1) == "done"

    @pytest.mark.parametrize("method", ["claim_fenced", "finish", "unclaim"])
    @pytest.mark.parametrize("heard", [True, False])
    @pytest.mark.parametrize("struck", [KeyboardInterrupt, SoftTimeLimit])
    def test_an_interruption_while_the_store_is_asked_leaves_no_key_behind(
        self, claims: Claims, method: str, struck: type[BaseException], *, heard: bool
    ) -> None:
        ran = []

        @idempotent(claims, key="order_id", name="f", wait_s=20.0)
        def f(order_id: int) -> str:
            ran.append(order_id)
            if method == "unclaim" and len(ran) == 1:
                raise RuntimeError
            return "done"

        session: Any = claims.calls.session()
        ask = getattr(session, method)

        def interrupted(*args: Any) -> None:
            setattr(session, method, ask)
            if heard:
                ask(*args)
            raise struck

        setattr(session, method, interrupted)
        with pytest.raises(struck):
            f(1)
        assert f(1) == "done"
        assert len(ran) == {"claim_fenced": 1, "finish": 1, "unclaim": 2}[method]
        until(lambda: not claims.calls.process.debts)

    def test_what_has_run_is_done_wherever_the_interruption_came(
        self, claims: Claims, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def encoded(result: object) -> Any:
            ran.append("encoded")
            if len(ran) == 2:
                raise KeyboardInterrupt
            return encode(result)

        monkeypatch.setattr(results, "encode", encoded)
        ran = []

        @idempotent(claims, key="order_id", name="f", wait_s=20.0)
        def f(order_id: int) -> dict[str, int]:
            ran.append("body")
            return {"total": order_id}

        with pytest.raises(KeyboardInterrupt):
            f(1)
        assert f(1) == {"total": 1}
        assert ran.count("body") == 1
        until(lambda: not claims.calls.process.debts)

    def test_and_somebody_who_waits_for_it_runs_it(self, claims: Claims) -> None:
        body, ran = Body(), []

        def fails(order_id: int) -> None:
            body(order_id)
            ran.append(order_id)
            if len(ran) == 1:
                raise RuntimeError

        f = idempotent(claims, key="order_id", name="f")(fails)
        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(f, 1)
            assert body.began.wait(30)
            second = pool.submit(f, 1)
            body.may_end.set()
            with pytest.raises(RuntimeError):
                first.result(30)
            assert second.result(30) is None
        assert ran == [1, 1]


class TestBusy:
    @pytest.fixture
    def held(self, claims: Claims) -> Iterator[tuple[Body, Callable[..., Callable[[int], Any]]]]:
        """A body that runs for key 1, and a way to call the same function with other choices."""
        body = Body()

        def make(**choices: Any) -> Any:
            return idempotent(claims, key="order_id", name="f", **choices)(body)

        first = make()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(first, 1)
            assert body.began.wait(30)
            yield body, make
            body.may_end.set()
            running.result(30)

    def test_raise(self, held: Any) -> None:
        body, make = held
        with pytest.raises(KeyBusy, match="call again later") as caught:
            make(on_busy="raise")(1)
        assert caught.value.retriable
        assert body.ran == [1]

    def test_skip(self, held: Any) -> None:
        body, make = held
        assert make(on_busy="skip")(1) is Skipped.BUSY
        assert body.ran == [1]

    def test_wait_until_a_limit(self, held: Any) -> None:
        body, make = held
        for wait_s in (0, 0.05):
            with pytest.raises(KeyBusy, match=f"within {wait_s} s"):
                make(wait_s=wait_s)(1)
        assert body.ran == [1]

    def test_wait_until_it_is_done(self, held: Any) -> None:
        body, make = held
        with ThreadPoolExecutor(5) as pool:
            waiting = [pool.submit(make(), 1) for _ in range(5)]
            body.may_end.set()
            assert [each.result(30) for each in waiting] == [1] * 5
        assert body.ran == [1]

    def test_other_keys_are_not_held_up(self, held: Any) -> None:
        body, make = held
        body.may_end.set()
        assert make(on_busy="raise")(2) in (1, 2)


def test_of_many_threads_and_keys_each_key_is_run_once(claims: Claims) -> None:
    ran: list[int] = []
    together = threading.Barrier(8)

    @idempotent(claims, key="order_id", name="f")
    def f(order_id: int) -> int:
        ran.append(order_id)
        return order_id * 10

    def call(thread: int) -> list[int]:
        together.wait(30)
        return [f((thread + n) % 20) for n in range(20)]

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(call, range(8)))
    assert sorted(ran) == list(range(20))
    assert results == [[(thread + n) % 20 * 10 for n in range(20)] for thread in range(8)]


class TestBatch:
    def test_those_that_are_new_are_run_once_each_and_all_get_their_result(self, claims: Claims) -> None:
        ran = []

        @idempotent(claims, key="id", name="f", batch=True)
        def f(orders: list[dict[str, Any]], factor: int) -> list[int]:
            ran.append([order["id"] for order in orders])
            return [order["id"] * factor for order in orders]

        assert f([{"id": n} for n in (1, 2, 1, 3)], 10) == [10, 20, 10, 30]
        assert f([{"id": n} for n in (4, 3, 4, 1)], factor=100) == [400, 30, 400, 10]
        assert f([{"id": 1}], 5) == [10]
        assert f([], 5) == []
        assert ran == [[1, 2, 3], [4]]

    def test_markers_stand_for_those_that_were_not_run(self, claims: Claims) -> None:
        f = idempotent(claims, key=lambda item: item, name="f", batch=True, on_done="marker")(lambda items: None)
        assert f([1, 2, 1]) == [None, None, Skipped.DONE]
        assert f([2, 3]) == [Skipped.DONE, None]

    def test_some_may_fail_and_the_others_are_done(self, claims: Claims) -> None:
        ran = []

        @idempotent(claims, key=lambda item: item, name="f", batch=True)
        def f(items: list[int]) -> None:
            ran.append(list(items))
            if 3 in items:
                raise BatchFailed({items.index(3): ValueError("3")})

        f([1])
        with pytest.raises(BatchFailed) as caught:
            f([1, 2, 3, 4, 3])
        assert {position: str(error) for position, error in caught.value.failures.items()} == {2: "3", 4: "3"}
        with pytest.raises(BatchFailed):
            f([2, 3, 4])
        assert ran == [[1], [2, 3, 4], [3]]

    @pytest.mark.parametrize("error", [RuntimeError("all"), BatchFailed({7: ValueError()}), BatchFailed({})])
    def test_if_all_fail_all_are_free(self, claims: Claims, error: Exception) -> None:
        errors = [error]

        @idempotent(claims, key=lambda item: item, name="f", batch=True)
        def f(items: list[int]) -> list[int]:
            if errors:
                raise errors.pop()
            return items

        with pytest.raises(type(error)) as caught:
            f([1, 2])
        assert caught.value is error
        assert f([1, 2]) == [1, 2]

    @pytest.mark.parametrize("returned", [[1], [1, 2, 3], 5, {"a": 1, "b": 2}])
    def test_results_that_cannot_be_told_apart_are_told_at_once(self, claims: Claims, returned: object) -> None:
        ran = []

        @idempotent(claims, key=lambda item: item, name="f", batch=True)
        def f(items: list[int]) -> object:
            ran.append(items)
            return returned

        for _ in range(2):
            with pytest.raises(BatchFailed) as caught:
                f([1, 2])
            assert [type(error) for error in caught.value.failures.values()] == [ResultNotStored] * 2
        assert ran == [[1, 2]]

    def test_two_batches_that_hold_what_the_other_wants_both_come_to_an_end(self, claims: Claims) -> None:
        ran: list[int] = []
        together = threading.Barrier(2)

        @idempotent(claims, key=lambda item: item, name="f", batch=True)
        def f(items: list[int]) -> list[int]:
            ran.extend(items)
            return items

        def call(items: list[int]) -> list[int]:
            together.wait(30)
            return f(items)

        there, back = list(range(200)), list(range(200))[::-1]
        with ThreadPoolExecutor(2) as pool:
            assert [each.result(30) for each in [pool.submit(call, there), pool.submit(call, back)]] == [there, back]
        assert sorted(ran) == there

    def test_what_is_busy_is_waited_for_while_the_others_are_done(self, claims: Claims) -> None:
        body, ran = Body(), []

        @idempotent(claims, key=lambda item: item, name="f", batch=True)
        def f(items: list[int]) -> list[int]:
            ran.append(items)
            if 1 in items:
                body(1)
            return items

        with ThreadPoolExecutor(2) as pool:
            first = pool.submit(f, [1])
            assert body.began.wait(30)
            second = pool.submit(f, [1, 2])
            while len(ran) < 2:
                assert not second.done()
            body.may_end.set()
            assert first.result(30) == [1]
            assert second.result(30) == [1, 2]
        assert ran == [[1], [2]]

    @pytest.mark.parametrize("on_busy", ["raise", "skip"])
    def test_or_not_waited_for(self, claims: Claims, on_busy: Any) -> None:
        body, ran = Body(), []

        def make(**choices: Any) -> Any:
            def f(items: list[int]) -> list[int]:
                ran.append(items)
                if 1 in items:
                    body(1)
                return items

            return idempotent(claims, key=lambda item: item, name="f", batch=True, **choices)(f)

        hasty = make(on_busy=on_busy)
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(make(), [1])
            assert body.began.wait(30)
            if on_busy == "skip":
                assert hasty([1, 2]) == [Skipped.BUSY, 2]
                assert ran == [[1], [2]]
            else:
                with pytest.raises(KeyBusy):
                    hasty([1, 2])
                assert ran == [[1]]
            body.may_end.set()
            first.result(30)
        assert hasty([2, 1]) == [2, 1]


class TestCurrentClaim:
    def test_is_there_in_a_body_and_nowhere_else(self, claims: Claims) -> None:
        seen = []

        @idempotent(claims, key="order_id", name="inner")
        def inner(order_id: int) -> None:
            seen.append(current_claim())

        @idempotent(claims, key="order_id", name="outer")
        def outer(order_id: int) -> None:
            inner(order_id + 1)
            seen.append(current_claim())

        assert current_claim() is None
        outer(1)
        assert current_claim() is None
        assert [(each.name, each.keys, each.cancelled) for each in seen if each is not None] == [
            ("inner", ("n:2",), False),
            ("outer", ("n:1",), False),
        ]

    def test_a_batch_has_all_keys_of_its_call(self, claims: Claims) -> None:
        seen = []
        f = idempotent(claims, key=lambda item: item, name="f", batch=True)(lambda items: seen.append(current_claim()))
        f([1, 2])
        f([2, 3])
        assert [each and each.keys for each in seen] == [("n:1", "n:2"), ("n:3",)]


def kill_session(claims: Claims) -> None:
    """As if its lease had passed, at the store and by the process' own clock."""
    session: Any = claims.calls.session()
    if isinstance(claims, MemoryClaims):
        claims.expire(session.id)
    else:
        for shard in range(claims._layout.shards):
            claims._client.hdel(claims._layout.sessions(shard).decode(), session.id)
    assert not session.renew()


class TestOutlivesItsSession:
    def make(self, claims: Claims, then: Callable[[], object], **choices: Any) -> Any:
        ran: list[int] = []

        def f(order_id: int) -> str:
            ran.append(order_id)
            claim: Any = current_claim()
            assert not claim.cancelled
            kill_session(claims)
            assert claim.cancelled
            then()
            return "mine"

        return idempotent(claims, key="order_id", name="f", **choices)(f), ran

    def test_it_still_counts_while_nobody_took_over(self, claims: Claims, other: Claims) -> None:
        f, ran = self.make(claims, lambda: None)
        g = idempotent(other, key="order_id", name="f")(lambda order_id: "other's")
        assert [f(1), f(1), g(1)] == ["mine"] * 3
        assert ran == [1]

    def test_it_is_fenced_when_another_took_over(self, claims: Claims, other: Claims) -> None:
        g = idempotent(other, key="order_id", name="f", on_busy="raise")(lambda order_id: "other's")
        f, ran = self.make(claims, lambda: g(1))
        with pytest.raises(Fenced, match="drop the result"):
            f(1)
        assert [f(1), g(1)] == ["other's"] * 2
        assert ran == [1]

    def test_unless_told_otherwise(self, claims: Claims, other: Claims) -> None:
        body = Body()
        g = idempotent(other, key="order_id", name="f")(body)
        with ThreadPoolExecutor(1) as pool:
            running: list[Any] = []

            def take_over() -> None:
                running.append(pool.submit(g, 1))
                assert body.began.wait(30)

            f, _ = self.make(claims, take_over, on_fenced="return")
            assert f(1) == "mine"
            body.may_end.set()
            assert running[0].result(30) == 1
        assert f(1) == 1

    def test_it_is_fenced_while_the_other_is_still_running(self, claims: Claims, other: Claims) -> None:
        body = Body()
        g = idempotent(other, key="order_id", name="f")(body)
        with ThreadPoolExecutor(1) as pool:
            running: list[Any] = []

            def take_over() -> None:
                running.append(pool.submit(g, 1))
                assert body.began.wait(30)

            f, _ = self.make(claims, take_over)
            with pytest.raises(Fenced, match="drop the result"):
                f(1)
            body.may_end.set()
            assert running[0].result(30) == 1
        assert [f(1), g(1)] == [1, 1]
