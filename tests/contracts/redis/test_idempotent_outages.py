"""`idempotent` while the store does not answer: before the body, after it, and for how long."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from holdfast import BatchFailed, MemoryClaims, RedisClaims, Skipped, current_claim, idempotent
from holdfast.dedup.calls.process import ProcessState
from holdfast.dedup.memory_session import MemorySession
from holdfast.errors import ResultNotStored, StoreRefused, StoreUnavailable, Unconfirmed
from tests.contracts.redis.test_faults import answered
from tests.harness.servers.redis import RedisServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def claims() -> MemoryClaims:
    return MemoryClaims()


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer() as made:
        yield made


class CountingLock:
    """Tells of each thread that comes to it."""

    def __init__(self) -> None:
        self.came = threading.Semaphore(0)
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        self.came.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class TestBefore:
    @pytest.mark.parametrize("hears", [True, False])
    def test_nothing_runs_and_what_was_asked_is_given_back(self, claims: MemoryClaims, *, hears: bool) -> None:
        ran: list[int] = []
        f = idempotent(claims, key="order_id", name="f", wait_s=20.0)(appends(ran))
        f(0)
        claims.go_silent(hears=hears)
        for _ in range(3):
            with pytest.raises(StoreUnavailable):
                f(1)
        assert ran == [0]
        claims.speak_again()
        f(1)
        assert ran == [0, 1]

    def test_also_where_it_was_never_there(self, claims: MemoryClaims) -> None:
        claims.go_silent(hears=False)
        f = idempotent(claims, key="order_id", name="f")(lambda order_id: "ran")
        with pytest.raises(StoreUnavailable):
            f(1)
        claims.speak_again()
        assert f(1) == "ran"

    def test_who_waits_while_another_asks_in_vain_does_not_ask_again(self) -> None:
        here, asked, may_answer = ProcessState(), [], threading.Event()
        lock = CountingLock()
        here._beginning = lock  # type: ignore[assignment]

        def begin() -> Any:
            asked.append(1)
            assert may_answer.wait(30)
            raise StoreUnavailable("a store that is down")

        def call(_: int) -> bool:
            with pytest.raises(StoreUnavailable):
                here.session(begin)
            return True

        with ThreadPoolExecutor(8) as pool:
            running = [pool.submit(call, n) for n in range(8)]
            for _ in range(8):
                assert lock.came.acquire(timeout=30)
            may_answer.set()
            assert all(each.result(30) for each in running)
        assert len(asked) == 1
        assert call(0)
        assert len(asked) == 2

    def test_open_by_choice_it_runs_without_protection_and_says_so_once(
        self, claims: MemoryClaims, caplog: pytest.LogCaptureFixture
    ) -> None:
        seen: list[Any] = []
        f = idempotent(claims, key="order_id", name="f", store_down="open")(
            lambda order_id: seen.append(current_claim())
        )
        claims.go_silent(hears=False)
        with caplog.at_level(logging.WARNING, "holdfast.dedup"):
            for _ in range(3):
                f(1)
            claims.speak_again()
            f(2)
        assert [(each.fence > 0, bool(each.session), each.cancelled) for each in seen] == [
            (False, False, False)
        ] * 3 + [(True, True, False)]
        assert [record.getMessage().split(",")[0] for record in caplog.records] == [
            "the store is down",
            "the store is back; calls that ran without protection: 3",
        ]

    def test_and_what_the_store_had_heard_all_the_same_is_done_afterwards(self, claims: MemoryClaims) -> None:
        ran = []

        @idempotent(claims, key="order_id", name="f", store_down="open", wait_s=20.0)
        def f(order_id: int) -> str:
            ran.append(order_id)
            return "result"

        f(0)
        claims.go_silent(hears=True)
        assert f(1) == "result"
        claims.speak_again()
        assert f(1) == "result"
        assert ran == [0, 1]

    def test_a_refusal_is_no_outage(self, server: RedisServer) -> None:
        with server.client() as raw:
            raw.config_set("maxmemory", "64mb")
            raw.config_set("maxmemory-policy", "allkeys-lru")
        claims = RedisClaims.from_url(server.url)
        ran: list[int] = []
        f = idempotent(claims, key="order_id", name="f", store_down="open")(appends(ran))
        with pytest.raises(StoreRefused):
            f(1)
        assert ran == []
        claims.close()

    def test_a_server_that_was_restarted_is_found_again(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        ran: list[int] = []
        f = idempotent(claims, key="order_id", name="f")(appends(ran))
        f(1)
        server.kill()
        with pytest.raises(StoreUnavailable):
            f(2)
        server.restart()  # and has forgotten everything: our session as well
        f(2)
        f(2)
        assert ran == [1, 2]
        claims.close()


class TestAfter:
    """The body has run, and the store does not answer that it is done."""

    def make(self, claims: MemoryClaims, *, hears: bool, **choices: Any) -> Any:
        ran = []

        def f(order_id: int) -> int:
            ran.append(order_id)
            if len(ran) == 1:
                claims.go_silent(hears=hears)
            return len(ran)

        return idempotent(claims, key="order_id", name="f", wait_s=20.0, **choices)(f), ran

    @pytest.mark.parametrize("hears", [True, False])
    def test_the_result_is_returned_and_the_debt_is_paid(self, claims: MemoryClaims, *, hears: bool) -> None:
        f, ran = self.make(claims, hears=hears)
        assert f(1) == 1
        claims.speak_again()
        assert f(1) == 1
        assert ran == [1]

    def test_it_is_paid_also_where_nobody_calls_again(self, claims: MemoryClaims) -> None:
        f, _ = self.make(claims, hears=False)
        assert f(1) == 1
        claims.speak_again()
        other = MemoryClaims()
        other.state = claims.state
        g: Any = idempotent(other, key="order_id", name="f", wait_s=30.0)(never)
        assert g(1) == 1

    def test_or_the_caller_is_told(self, claims: MemoryClaims) -> None:
        f, ran = self.make(claims, hears=False, on_unconfirmed="raise")
        with pytest.raises(Unconfirmed) as caught:
            f(1)
        assert caught.value.retriable
        claims.speak_again()
        assert f(1) == 1
        assert ran == [1]

    def test_a_body_that_fails_then_keeps_its_own_error_and_its_key_is_given_back(self, claims: MemoryClaims) -> None:
        failed: list[int] = []

        @idempotent(claims, key="order_id", name="f", wait_s=20.0)
        def f(order_id: int) -> str:
            if not failed:
                failed.append(order_id)
                claims.go_silent(hears=False)
                raise ZeroDivisionError
            return "done"

        with pytest.raises(ZeroDivisionError):
            f(1)
        claims.speak_again()
        assert f(1) == "done"

    def test_what_the_store_never_takes_stops_no_other_call(
        self, claims: MemoryClaims, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        finish = MemorySession.finish

        def limited(session: MemorySession, done: Any, results: Any = None) -> Any:
            if results[0] in ('"a result"', "!"):  # and nothing in its place either
                raise StoreRefused("too large")
            return finish(session, done, results)

        monkeypatch.setattr(MemorySession, "finish", limited)
        ran: list[int] = []

        @idempotent(claims, key="order_id", name="f")
        def f(order_id: int) -> str:
            ran.append(order_id)
            return "a result" if order_id == 0 else ""

        assert f(0) == "a result"
        assert [f(n % 5 + 1) for n in range(20)] == [""] * 20
        assert ran == [0, 1, 2, 3, 4, 5]

    def test_the_session_is_not_ended_before_all_is_paid(self, claims: MemoryClaims) -> None:
        f, _ = self.make(claims, hears=False)
        f(1)
        session = claims.calls.session()
        claims.calls.close()
        assert session.live()
        claims.speak_again()
        while claims.calls.process.debts:
            pass
        claims.calls.close()
        assert not session.live()

    @pytest.mark.parametrize("length", [1_500_000, 20_000_000], ids=["it says no", "it closes the connection"])
    def test_a_result_above_the_servers_limit_is_left_out_and_its_key_is_done(
        self, server: RedisServer, length: int
    ) -> None:
        with server.client() as raw:
            raw.config_set("proto-max-bulk-len", "1mb")
        claims = RedisClaims.from_url(server.url, lease_s=3600.0)
        ran: list[int] = []

        @idempotent(claims, key="order_id", name="f", wait_s=60.0)
        def f(order_id: int) -> str:
            ran.append(order_id)
            return "x" * length if order_id == 0 else "small"

        with suppress(ResultNotStored):  # it is told at once, or as after a call without an answer
            f(0)
        with pytest.raises(ResultNotStored, match="too large"):
            f(0)
        until(lambda: not claims.calls.process.debts)
        assert f(1) == "small"
        assert ran == [0, 1]
        claims.close()

    def test_in_a_batch_the_others_keep_theirs(self, server: RedisServer) -> None:
        with server.client() as raw:
            raw.config_set("proto-max-bulk-len", "1mb")
        claims = RedisClaims.from_url(server.url, lease_s=3600.0, shards=4)

        @idempotent(claims, key="id", name="f", batch=True)
        def f(orders: list[dict[str, int]]) -> list[str]:
            return ["x" * (1_500_000 if order["id"] == 2 else order["id"]) for order in orders]

        items = [{"id": n} for n in range(5)]
        with suppress(BatchFailed):
            f(items)
        with pytest.raises(BatchFailed) as caught:
            f(items)
        assert {n: type(error) for n, error in caught.value.failures.items()} == {2: ResultNotStored}
        assert f([items[n] for n in (0, 1, 3, 4)]) == ["", "x", "xxx", "xxxx"]
        claims.close()

    def test_on_a_real_server(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url, timeout_s=0.3, lease_s=3600.0)
        ran = []

        @idempotent(claims, key="order_id", name="f", wait_s=60.0)
        def f(order_id: int) -> str:
            ran.append(order_id)
            server.pause()
            return "done"

        assert answered(lambda: f(1)) == "done"
        server.resume()
        assert [answered(lambda: f(1)) for _ in range(2)] == ["done", "done"]
        assert ran == [1]
        claims.close()


def test_results_that_cannot_be_read_now_run_nothing(claims: MemoryClaims) -> None:
    f = idempotent(claims, key="order_id", name="f")(lambda order_id: "result")
    marks = idempotent(claims, key="order_id", name="f ", on_done="marker")(lambda order_id: None)
    f(1)
    marks(1)
    session: Any = claims.calls.session()
    results, session.results = session.results, _no_answer
    with pytest.raises(StoreUnavailable):
        f(1)
    assert marks(1) is Skipped.DONE
    session.results = results
    assert f(1) == "result"


def appends(ran: list[int]) -> Callable[[int], None]:
    def append(order_id: int) -> None:
        ran.append(order_id)

    return append


def never(order_id: int) -> str:
    raise AssertionError


def _no_answer(_: object) -> None:
    raise StoreUnavailable("a test says so")
