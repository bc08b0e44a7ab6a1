"""`idempotent` in processes that are killed, frozen and forked, on a real Redis."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pytest

from holdfast import KeyBusy, RedisClaims, Skipped, current_claim, idempotent
from holdfast.errors import StateError
from tests.harness.processes import die_with_parent
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.harness.servers.redis import RedisServer

SESSIONS = "{hf:holdfast:0}:sessions"


def ours(order_id: int) -> str:
    return "ours"


class Member:
    """A process of idempotent_member.py."""

    def __init__(self, url: str, what: str, lease_s: float = 1.0) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.contracts.redis.idempotent_member", url, str(lease_s), what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )

    def hears(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        said: dict[str, Any] = json.loads(self.process.stdout.readline())
        return said

    def told(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def signal(self, number: int) -> None:
        os.kill(self.process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def claims(redis_url: str) -> Iterator[RedisClaims]:
    store = RedisClaims.from_url(redis_url, lease_s=3600.0)  # this process is not to lose its session
    yield store
    store.close()


def test_who_is_killed_in_the_body_is_followed_by_another_when_its_lease_ends(
    claims: RedisClaims, redis_url: str
) -> None:
    fences = []

    @idempotent(claims, key="order_id", name="f")
    def f(order_id: int) -> str:
        claim: Any = current_claim()
        fences.append(claim.fence)
        return "ours"

    with Member(redis_url, "hold") as member:
        fences.append(member.hears()["fence"])
        hasty = idempotent(claims, key="order_id", name="g", on_busy="raise")(lambda order_id: "not this one")
        assert hasty(1) == "not this one"  # another function's key
        member.signal(signal.SIGKILL)
        assert f(1) == "ours"
    assert fences[0] < fences[1]


def test_until_then_its_key_is_busy(claims: RedisClaims, redis_url: str) -> None:
    with Member(redis_url, "hold", lease_s=3600.0) as member:
        member.hears()
        member.signal(signal.SIGKILL)
        member.process.wait()
        with pytest.raises(KeyBusy):
            idempotent(claims, key="order_id", name="f", wait_s=0.1)(lambda order_id: None)(1)


def test_who_is_frozen_in_the_body_and_wakes_up_is_told_and_fenced(claims: RedisClaims, redis_url: str) -> None:
    f = idempotent(claims, key="order_id", name="f")(lambda order_id: "ours")
    with Member(redis_url, "hold") as member:
        member.hears()
        member.signal(signal.SIGSTOP)
        assert f(1) == "ours"
        member.signal(signal.SIGCONT)
        member.told()
        assert [member.hears(), member.hears()] == [{"cancelled": True}, {"raised": "Fenced"}]
    assert f(1) == "ours"


def test_who_is_frozen_and_followed_by_nobody_still_counts(
    claims: RedisClaims, redis_url: str, redis_server: RedisServer
) -> None:
    f: Any = idempotent(claims, key="order_id", name="f")(ours)
    with Member(redis_url, "hold", lease_s=1.0) as member, redis_server.client() as raw:
        member.hears()
        member.signal(signal.SIGSTOP)
        until_dead(raw)
        member.signal(signal.SIGCONT)
        member.told()
        assert member.hears() == {"cancelled": True}
        assert member.hears() == {"returned": member.process.pid}
        assert f(1) == member.process.pid


def test_a_body_may_take_many_times_the_lease(redis_url: str, redis_server: RedisServer) -> None:
    claims = RedisClaims.from_url(redis_url, lease_s=3600.0)
    f: Any = idempotent(claims, key="order_id", name="f", on_busy="skip")(ours)
    with Member(redis_url, "hold", lease_s=1.5) as member, redis_server.client() as raw:
        member.hears()
        results: set[object] = set()
        until_ms(raw, 3500, lambda: results.add(f(1)))
        assert results == {Skipped.BUSY}
        member.told()
        assert member.hears() == {"cancelled": False}
        assert member.hears() == {"returned": member.process.pid}
    assert f(1) == member.process.pid
    claims.close()


def now_ms(raw: Any) -> int:
    seconds, micros = raw.time()
    return int(seconds) * 1000 + int(micros) // 1000


def until_ms(raw: Any, ms: int, meanwhile: Callable[[], object] = lambda: None) -> None:
    """Until so much time has passed at the server."""
    end = now_ms(raw) + ms
    while now_ms(raw) < end:
        meanwhile()


def until_dead(raw: Any) -> None:
    """Until the leases of all sessions are over at the server: later than by their own processes' clocks."""
    until_ms(raw, max(int(field.split(b":")[0]) for field in raw.hvals(SESSIONS)) - now_ms(raw) + 1)


class TestExit:
    def test_a_process_that_ends_with_nothing_in_hand_ends_its_session_and_no_other(
        self, redis_url: str, redis_server: RedisServer
    ) -> None:
        with Member(redis_url, "leave_done", lease_s=3600.0) as member:
            said = [member.hears() for _ in range(3)]
            assert member.process.wait(30) == 0
        child, parent = sorted(said[:2], key=lambda each: not each["child"])
        assert child["session"] != parent["session"] == parent["of_the_parent"] == child["of_the_parent"]
        assert said[2] == {"session": parent["session"], "left": True}
        with redis_server.client() as raw:
            assert raw.hkeys(SESSIONS) == []

    def test_one_that_leaves_a_body_running_leaves_its_key_to_the_lease(
        self, claims: RedisClaims, redis_url: str, redis_server: RedisServer
    ) -> None:
        with Member(redis_url, "leave_running") as member, redis_server.client() as raw:
            session = member.hears()["session"]
            assert member.process.wait(30) == 0
            assert raw.hexists(SESSIONS, session)
            f = idempotent(claims, key="order_id", name="f")(lambda order_id: "ours")
            assert f(1) == "ours"

    def test_a_store_that_is_closed_ends_its_session_and_may_be_used_again(
        self, claims: RedisClaims, redis_server: RedisServer
    ) -> None:
        f = idempotent(claims, key="order_id", name="f", on_done="marker")(lambda order_id: None)
        f(1)
        with redis_server.client() as raw:
            assert raw.hlen(SESSIONS) == 1
            claims.close()
            assert raw.hlen(SESSIONS) == 0
            assert f(1) is Skipped.DONE
            assert raw.hlen(SESSIONS) == 1

    def test_a_store_that_nobody_has_any_more_ends_its_session(self, redis_url: str, redis_server: RedisServer) -> None:
        def use() -> str:
            claims = RedisClaims.from_url(redis_url, lease_s=3600.0)
            idempotent(claims, key="order_id", name="f")(ours)(1)
            return claims.calls.session().id

        session = use()
        gc.collect()
        with redis_server.client() as raw:
            until(lambda: not raw.hexists(SESSIONS, session))


class TestForked:
    """With the store made, connected and in use before the fork."""

    def test_a_child_has_a_session_of_its_own_and_sees_what_its_parent_holds(self, claims: RedisClaims) -> None:
        f = idempotent(claims, key="order_id", name="f", on_busy="skip")(lambda order_id: os.getpid())
        parent = claims.calls.session().id

        def in_child() -> list[object]:
            return [f(1), f(2).__class__.__name__, claims.calls.session().id != parent]

        @idempotent(claims, key="order_id", name="outer")
        def outer(order_id: int) -> None:
            assert f(1) == os.getpid()
            assert forked(in_child) == [os.getpid(), "int", True]

        outer(1)
        assert claims.calls.session().id == parent
        assert f(1) == os.getpid() != f(2)

    def test_a_child_does_not_say_that_its_parents_body_is_done(self, claims: RedisClaims) -> None:
        """A body that forks, and whose child runs on."""
        parent, ran = os.getpid(), []

        @idempotent(claims, key="order_id", name="f", wait_s=20.0)
        def f(order_id: int) -> int:
            ran.append(order_id)
            if len(ran) > 1:
                return os.getpid()
            read, write = os.pipe()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                child = os.fork()
            if child == 0:
                claim: Any = current_claim()
                os.write(write, b"1" if claim.cancelled else b"0")
                return 0
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert os.read(read, 1) == b"1"
            raise RuntimeError

        with pytest.raises((RuntimeError, StateError)) as caught:
            f(1)
        if os.getpid() != parent:
            os._exit(caught.type is not StateError)
        assert f(1) == parent

    def test_children_work_whatever_the_parents_threads_hold_at_the_fork(self, claims: RedisClaims) -> None:
        f = idempotent(claims, key="order_id", name="f")(lambda order_id: order_id)
        stop = threading.Event()

        def busy(thread: int) -> int:
            n = 0
            while not stop.is_set():
                f(f"{thread}-{n}")
                n += 1
            return n

        with ThreadPoolExecutor(4) as pool:
            running = [pool.submit(busy, thread) for thread in range(4)]
            try:
                for n in range(20):
                    assert forked(partial(list, map(f, ["0-0", f"child {n}"]))) == ["0-0", f"child {n}"]
            finally:
                stop.set()
            assert all(each.result(30) for each in running)

    def test_a_pool_of_forked_workers_runs_each_key_once(self, claims: RedisClaims) -> None:
        """As Celery and gunicorn do: the module is imported, the store made and used, then workers are forked."""
        f = idempotent(claims, key="order_id", name="f")(lambda order_id: os.getpid())
        f(0)
        workers = 4
        together = multiprocessing.get_context("fork").Barrier(workers)

        def work() -> list[int]:
            together.wait(30)
            return [f(n) for n in range(1, 101)]

        results = [each.result() for each in [Forked(work) for _ in range(workers)]]
        assert results == [results[0]] * workers
        assert os.getpid() not in results[0]


class Forked:
    """A forked child, and what it returns."""

    def __init__(self, call: Callable[[], Any]) -> None:
        context = multiprocessing.get_context("fork")
        self._mine, theirs = context.Pipe(duplex=False)

        def child() -> None:
            try:
                theirs.send((True, call()))
            except Exception:  # noqa: BLE001 - the parent tells
                theirs.send((False, traceback.format_exc()))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: there are threads, which is the point
            self._process = context.Process(target=child)
            self._process.start()
        theirs.close()

    def result(self) -> Any:
        assert self._mine.poll(60), "the child does not answer"
        well, result = self._mine.recv()
        self._process.join(30)
        assert well, result
        return result


def forked(call: Callable[[], Any]) -> Any:
    return Forked(call).result()
