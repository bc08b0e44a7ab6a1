"""A signal's handler raises into a call, a job's time limit say: that ends the call, and no other gets its reply."""

from __future__ import annotations

import gc
import linecache
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.redis_admin import RedisAdmin
from holdfast.dedup.redis_groups import RedisGroupSession
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import StoreUnavailable
from tests.harness.servers.sentinels import NAME, Sentinels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from tests.harness.servers.redis import RedisServer
    from tests.harness.servers.redis_cluster import RedisCluster

#: A socket that is being connected is nobody's yet.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

#: Where a call goes, but not where redis-py counts for its metrics: that takes whatever is raised there for a defect.
_FILES = ("redis/connection.py", "redis/client.py", "redis/sentinel.py", "redis/retry.py", "redis/_parsers/resp2.py")
_OURS = "holdfast/dedup/redis_"


class SoftTimeLimit(Exception):
    """As Celery's and RQ's."""


class SilentForTooLong(TimeoutError):
    """As many handlers of SIGALRM raise; redis-py takes it for its socket's."""


@contextmanager
def handler(raises: Callable[[], BaseException]) -> Iterator[None]:
    """While it is installed, SIGUSR1 raises that."""

    def handle(*_: object) -> None:
        raise raises()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def struck_at(line: int) -> Iterator[list[str]]:
    """The signal comes at the line of that number, of those that a call takes in redis-py and here; gives the file of
    each line up to there."""
    lines: list[str] = []

    def trace(frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        # What a connection does when it is thrown away is nobody's call.
        if not (name.endswith(_FILES) or _OURS in name) or frame.f_code.co_name in ("__del__", "disconnect"):
            return None
        # Python looks for no signals between a lock that is taken and the block that gives it back, nor at its end. A
        # `try:` is outside of what it begins: right behind a `with`, the lock would stay taken, and the thread in which
        # that client is collected would wait for it.
        if event == "line" and not linecache.getline(name, frame.f_lineno).strip().startswith(("with ", "try:")):
            if len(lines) == line:
                sys.settrace(None)
                signal.raise_signal(signal.SIGUSR1)
            lines.append(name)
        return trace

    gc.disable()  # what a finalizer of another test's client raises is nobody's, and ours would be lost in it
    sys.settrace(trace)
    try:
        yield lines
    finally:
        sys.settrace(None)
        gc.enable()


@pytest.fixture(autouse=True)
def _no_lock_stays_taken() -> Iterator[None]:
    """Else whichever thread comes to collect such a client, of any test, stands still for ever."""
    yield
    gc.collect()  # a socket that was being connected would warn in whichever test comes to collect it
    taken: list[redis.ConnectionPool] = []

    def look() -> None:
        pools = [each for each in gc.get_objects() if isinstance(each, redis.ConnectionPool)]
        for pool in pools:
            if pool._lock.acquire(blocking=False):
                pool._lock.release()
            else:
                taken.append(pool)

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert taken == []


def at_many_lines(call: Callable[[], object], raised: type[Exception], after: Callable[[], object]) -> None:
    """Break the call off at each of its lines between a request and its reply, and at some of the others."""
    call()
    with struck_at(-1) as lines:
        call()
    assert len(lines) > 40
    others = range(0, len(lines), max(1, len(lines) // 40))
    with handler(raised):
        for line in sorted({*others, *(n for n, name in enumerate(lines) if name.endswith("redis_client.py"))}):
            try:
                with struck_at(line):
                    call()
            except raised:
                after()


def all_is_read(pool: redis.ConnectionPool) -> None:
    """Each connection that the next call may get has no reply to come, and is as it was asked to be."""
    for connection in list(pool._available_connections):
        if connection._sock is None:
            continue
        asked = [("ECHO", "nonce"), ("CLIENT", "GETNAME"), ("CLIENT", "INFO")]
        for command in asked:
            connection.send_command(*command)
        echo, name, info = (connection.read_response() for _ in asked)
        assert (echo, name) == (b"nonce", b"holdfast")
        assert b" db=%d " % pool.connection_kwargs.get("db", 0) in info


def claim(key: str) -> Claim:
    return Claim(ClaimKey("h", key), Token("p", 0, 1))


CALLS: dict[str, Callable[[RedisClaims, Any], object]] = {
    "claim": lambda _, session: session.claim([claim("k")]),
    "exchange": lambda _, session: session.exchange([claim("k")], [], [claim("other")]),
    "begin": lambda claims, _: claims.begin(3600.0).end(),
    "group": lambda claims, _: RedisGroupSession(claims.parts(), "g").standing(),
    "notes": lambda claims, _: RedisGroupSession(claims.parts(), "g").noted(["a", "b"]),
    "tools": lambda claims, _: RedisAdmin.of(claims).positions(),
}


@pytest.mark.parametrize("fresh", [False, True], ids=["connected", "connects"])
@pytest.mark.parametrize("raised", [SoftTimeLimit, SilentForTooLong])
@pytest.mark.parametrize(
    "called",
    [
        "claim",
        "exchange",
        "group",
        "notes",
        *(pytest.param(name, marks=pytest.mark.full) for name in ("begin", "tools")),
    ],
)
def test_wherever_a_call_is_broken_off_its_error_comes_out_and_no_reply_is_left(
    redis_url: str, called: str, raised: type[Exception], *, fresh: bool
) -> None:
    claims = RedisClaims.from_url(redis_url.removesuffix("/0") + "/3")
    session = claims.begin(3600.0)
    pool = claims.parts().client.connection_pool

    def call() -> None:
        if fresh:
            pool.disconnect(inuse_connections=False)
        CALLS[called](claims, session)

    at_many_lines(call, raised, lambda: all_is_read(pool))
    claims.close()


@pytest.mark.parametrize("raised", [pytest.param(SoftTimeLimit, marks=pytest.mark.full), SilentForTooLong])
def test_nor_is_one_left_in_a_redis_cluster(redis_cluster: RedisCluster, raised: type[Exception]) -> None:
    claims = RedisClaims.from_url(redis_cluster.url, shards=4)
    session = claims.begin(3600.0)
    client: Any = claims.parts().client

    def call() -> None:
        assert session.claim([claim(f"k{number}") for number in range(8)]) == [Verdict.NEW] * 8

    def after() -> None:
        for _, node in client.nodes():
            all_is_read(node.connection_pool)

    at_many_lines(call, raised, after)
    claims.close()


def test_a_time_limit_is_not_lost_while_a_cluster_is_asked_for_its_nodes(redis_cluster: RedisCluster) -> None:
    claims = RedisClaims.from_url(redis_cluster.url, shards=4)
    claims.connect()
    client: Any = claims.parts().client
    asked, may_end = threading.Event(), threading.Event()
    initialize = client._cluster.nodes_manager.initialize

    def slow() -> None:
        asked.set()
        assert may_end.wait(30)
        initialize()

    client._cluster.nodes_manager.initialize = slow
    main = threading.main_thread().ident
    assert main is not None

    def strike() -> None:
        assert asked.wait(30)
        signal.pthread_kill(main, signal.SIGUSR1)

    with ThreadPoolExecutor(1) as pool, handler(SoftTimeLimit):
        struck = pool.submit(strike)
        with pytest.raises(SoftTimeLimit):
            client.look()
        struck.result(30)
    may_end.set()
    client._cluster.nodes_manager.initialize = initialize
    assert claims.begin(3600.0).claim([claim("new")]) == [Verdict.NEW]
    claims.close()


@pytest.mark.parametrize("raised", [pytest.param(SoftTimeLimit, marks=pytest.mark.full), SilentForTooLong])
def test_nor_while_sentinels_are_asked_for_the_master(raised: type[Exception]) -> None:
    with Sentinels() as sentinels:
        claims = RedisClaims.from_url(sentinels.url())
        session = claims.begin(3600.0)
        pool: Any = claims.parts().client.connection_pool

        def call() -> None:
            pool.disconnect(inuse_connections=False)
            session.renew()

        def after() -> None:
            all_is_read(pool)
            for each in pool.sentinel_manager.sentinels:
                for connection in list(each.connection_pool._available_connections):
                    if connection._sock is not None:
                        connection.send_command("PING", "nonce")
                        assert connection.read_response() in (b"nonce", b"PONG", [b"pong", b"nonce"])

        at_many_lines(call, raised, after)
        assert pool.service_name == NAME
        claims.close()


def test_an_error_that_was_being_handled_when_the_call_began_is_not_raised_again(redis_server: RedisServer) -> None:
    claims = RedisClaims(
        redis.Redis(port=redis_server.port, db=3, socket_timeout=2.0, retry=Retry(NoBackoff(), 0), max_connections=1)
    )
    session = claims.begin(3600.0)
    pool = claims.parts().client.connection_pool
    with handler(SoftTimeLimit):
        try:
            signal.raise_signal(signal.SIGUSR1)
        except SoftTimeLimit:
            taken = pool.get_connection()
            with pytest.raises(StoreUnavailable):
                session.claim([claim("k")])
            pool.release(taken)
    claims.close()


class Provider(redis.CredentialProvider):
    """Asks a service for the password, over a library of its own."""

    failure: Exception | None = None

    def get_credentials(self) -> tuple[str]:
        if self.failure is not None:
            raise self.failure
        return ("secret",)


class TokenServiceDown(Exception):
    """Of that library: neither redis-py's nor the system's."""


@pytest.mark.parametrize("of", ["url", "client"])
def test_a_credential_provider_that_fails_is_no_answer(redis_server: RedisServer, of: str) -> None:
    with redis_server.client() as raw:
        raw.config_set("requirepass", "secret")
        raw.auth("secret")
        try:
            provider = Provider()
            if of == "url":
                claims = RedisClaims.from_url(f"redis://127.0.0.1:{redis_server.port}", credential_provider=provider)
            else:
                client = redis.Redis(
                    port=redis_server.port,
                    socket_timeout=2.0,
                    retry=Retry(NoBackoff(), 0),
                    credential_provider=provider,
                )
                claims = RedisClaims(client)
            session = claims.begin(3600.0)
            claims.parts().client.connection_pool.disconnect()
            provider.failure = TokenServiceDown("no route to the service")
            with pytest.raises(StoreUnavailable, match="TokenServiceDown: no route to the service"):
                session.claim([claim(of)])
            provider.failure = None
            # Not by a connection that never said its password.
            assert session.claim([claim(of)]) == [Verdict.NEW]
        finally:
            raw.config_set("requirepass", "")
    claims.close()


@pytest.mark.parametrize("wrap", ["function", "method", "partial", "object"])
def test_a_handler_is_known_however_it_is_written(redis_url: str, wrap: str) -> None:
    class Limit:
        def over(self, *_: object) -> None:
            raise SilentForTooLong

        def __call__(self, *_: object) -> None:
            self.over()

    def over(_: str, *__: object) -> None:
        raise SilentForTooLong

    limit = Limit()
    handlers: dict[str, Any] = {
        "function": lambda *_: limit.over(),
        "method": limit.over,
        "partial": partial(partial(over), "a"),
        "object": limit,
    }
    claims = RedisClaims.from_url(redis_url)
    session = claims.begin(3600.0)
    before = signal.signal(signal.SIGUSR1, handlers[wrap])
    try:
        for line in range(0, 100, 5):
            with pytest.raises(SilentForTooLong), struck_at(line):
                session.claim([claim("k")])
    finally:
        signal.signal(signal.SIGUSR1, before)
    claims.close()
