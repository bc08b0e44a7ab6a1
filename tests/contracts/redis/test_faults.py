"""A Redis that is slow, silent, full, emptied or restarted."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import warnings
from typing import TYPE_CHECKING, TypeVar

import pytest
import redis

from holdfast.dedup.claims import Acquired, AskInHand, Claim, ClaimKey, Drop, InHand, LetGo, Mark, Token, Verdict, Wait
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import StateError, StoreError, StoreUnavailable
from holdfast.runtime import Machine
from tests.contracts.redis.test_claims import own
from tests.harness.clocks import HandClock
from tests.harness.servers.redis import RedisServer
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.dedup.redis_session import RedisSession

P = "orders-0"
T = TypeVar("T")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """One that a test may stop and fill."""
    with RedisServer() as made:
        yield made


def claim(key: str, offset: int = 0, epoch: int = 1) -> Claim:
    return Claim(ClaimKey("h", key), Token(P, offset, epoch))


def answered(ask: Callable[[], T]) -> T:
    """Ask until there is an answer, and a replica has confirmed it where one has to, however slow the machine is."""
    while True:
        try:
            return ask()
        except StoreUnavailable:
            continue


class TestNoAnswer:
    def test_a_silent_server_says_nothing_and_asking_again_settles_it(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url, timeout_s=0.2)
        a, b = (answered(lambda: claims.begin(3600.0)) for _ in range(2))
        server.pause()
        with pytest.raises(StoreUnavailable):
            a.claim([claim("k")])
        server.resume()
        assert answered(lambda: a.claim([claim("k")])) == [Verdict.NEW]
        assert answered(lambda: b.claim([claim("k", 1)])) == [Verdict.BUSY]
        claims.close()

    def test_a_request_that_waited_in_the_socket_does_no_harm(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url, timeout_s=0.2)
        a, b = (answered(lambda: claims.begin(3600.0)) for _ in range(2))
        server.pause()
        for call in (lambda: a.claim([claim("k")]), lambda: a.acquire([P]), lambda: a.let_go([LetGo(P, 0, [])])):
            with pytest.raises(StoreUnavailable):
                call()
        server.resume()
        answered(lambda: a.unclaim([claim("k")]))
        answered(lambda: a.let_go([LetGo(P, 0, [])]))
        [mine] = answered(lambda: b.acquire([P]))
        assert isinstance(mine, Acquired)
        assert answered(lambda: b.claim([claim("k", 1)])) == [Verdict.NEW]
        claims.close()

    def test_a_connection_that_broke_is_made_anew(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url)
        session = claims.begin(3600.0)
        with server.client() as raw:
            raw.client_kill_filter(_type="normal", skipme=True)
        assert answered(lambda: session.claim([claim("k")])) == [Verdict.NEW]
        claims.close()

    def test_ending_does_not_raise_and_stops_the_session(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url, timeout_s=0.2)
        session = answered(lambda: claims.begin(3600.0))
        server.kill()
        session.end()
        assert not session.live()
        claims.close()


class TestLease:
    def test_is_judged_by_when_the_last_renewal_was_sent_and_is_lost_for_good(self, redis_url: str) -> None:
        clock = HandClock()
        claims = RedisClaims.from_url(redis_url, runtime=Machine(clock))
        session = claims.begin(3600.0)
        clock.sleep(3599)
        assert session.live()
        assert session.renew()
        clock.sleep(3599)
        assert session.live()
        clock.sleep(1)
        assert not session.live()
        clock.sleep(-3600)
        assert not session.live()
        claims.close()

    def test_a_renewal_without_an_answer_does_not_prolong_it(self, server: RedisServer) -> None:
        clock = HandClock()
        claims = RedisClaims.from_url(server.url, timeout_s=0.2, runtime=Machine(clock))
        session = answered(lambda: claims.begin(3600.0))
        clock.sleep(3599)
        server.pause()
        with pytest.raises(StoreUnavailable):
            session.renew()
        server.resume()
        clock.sleep(1)
        assert not session.live()
        claims.close()

    def test_is_the_shorter_of_the_stores_and_the_callers(self, redis_url: str, redis_server: RedisServer) -> None:
        claims = RedisClaims.from_url(redis_url, lease_s=100.0)
        with redis_server.client() as raw:
            for asked_s, lease_s in ((50.0, 50.0), (500.0, 100.0)):
                session = claims.begin(asked_s)
                left_ms = _ends_ms(raw, 0, session.id) - _now_ms(raw)
                assert lease_s * 1000 - 10_000 < left_ms <= lease_s * 1000
        claims.close()

    def test_a_session_outlives_its_lease_by_renewing(
        self, redis_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # Renewed as often as a lease of a second, and longer than this machine may stand still.
        monkeypatch.setattr("holdfast.dedup.lease._RENEW_EVERY", 0.01)
        claims = RedisClaims.from_url(redis_url, shards=2)
        session = claims.begin(30.0)
        with redis_server.client() as raw:
            begun = _now_ms(raw)
            until(lambda: all(_ends_ms(raw, shard, session.id) > begun + 31_000 for shard in range(2)))
        assert session.live()
        assert session.claim([claim(f"k{n}", n) for n in range(20)]) == [Verdict.NEW] * 20
        session.end()
        claims.close()

    def test_a_session_that_died_at_the_store_hears_of_it_by_its_renewal(
        self, redis_url: str, redis_server: RedisServer
    ) -> None:
        claims = RedisClaims.from_url(redis_url)
        session = claims.begin(2.0)
        with redis_server.client() as raw:
            raw.flushdb()
        until(lambda: not session.live())
        assert session.claim([claim("k")]) == [Verdict.FENCED]
        claims.close()

    def test_begin_removes_what_has_been_dead_for_an_hour_and_nothing_else(
        self, redis_url: str, redis_server: RedisServer
    ) -> None:
        claims = RedisClaims.from_url(redis_url)
        old, fresh = claims.begin(3600.0), claims.begin(3600.0)
        with redis_server.client() as raw:
            now_ms = _now_ms(raw)
            name = "{hf:holdfast:0}:sessions"
            raw.hset(name, old.id, f"{now_ms - 3_700_000}:5")
            raw.hset(name, fresh.id, f"{now_ms - 3_500_000}:5")
            new = claims.begin(3600.0)
            assert set(raw.hkeys(name)) == {fresh.id.encode(), new.id.encode()}
        claims.close()

    def test_a_forked_child_cannot_use_its_parents_session(self, redis_url: str) -> None:
        claims = RedisClaims.from_url(redis_url)
        session = claims.begin(3600.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 on: there are threads, which is the point
            child = os.fork()
        if child == 0:
            os._exit(_in_child(session))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert session.live()
        assert session.claim([claim("k")]) == [Verdict.NEW]
        session.end()
        claims.close()


def _in_child(session: RedisSession) -> int:
    gc.disable()  # clients of other tests in this process have threads, which the child has not
    try:
        session.claim([claim("k", 7)])
    except StateError:
        session.end()
        return int(session.live())
    return 2


def _now_ms(raw: redis.Redis) -> int:
    seconds, micros = raw.time()
    return int(seconds) * 1000 + int(micros) // 1000


def _ends_ms(raw: redis.Redis, shard: int, session_id: str) -> int:
    """When a session's lease ends, at the server."""
    field = raw.hget(f"{{hf:holdfast:{shard}}}:sessions", session_id)
    assert isinstance(field, bytes)
    return int(field.split(b":")[0])


class TestWindow:
    @pytest.mark.parametrize("hash_keys", [False, True])
    def test_a_result_is_kept_as_long_as_its_key_is_done_and_not_found_by_the_next_one(
        self, redis_url: str, *, hash_keys: bool
    ) -> None:
        with contextlib.closing(RedisClaims.from_url(redis_url, hash_keys=hash_keys)) as long:
            kept = long.begin(3600.0)
            kept.claim([claim("kept")])
            kept.finish([claim("kept")], ["1"])
            assert kept.results([claim("kept").key]) == ["1"]
        claims = RedisClaims.from_url(redis_url, window_s=0.3, hash_keys=hash_keys)
        session = claims.begin(3600.0)
        session.claim([claim("k")])
        session.finish([claim("k")], ["1"])
        seen: list[str | None] = []
        while session.claim([claim("k", 1)]) == [Verdict.DONE]:
            seen += session.results([claim("k").key])
        assert set(seen) <= {"1", None}  # a busy machine may look when both are gone
        session.finish([claim("k", 1)])
        assert session.results([claim("k").key]) == [""]
        claims.close()


class TestEmptied:
    def test_scripts_that_the_server_has_forgotten_are_sent_again(
        self, redis_url: str, redis_server: RedisServer
    ) -> None:
        claims = RedisClaims.from_url(redis_url, shards=3)
        session = claims.begin(3600.0)
        batch = [claim(f"k{n}", n) for n in range(30)]
        with redis_server.client() as raw:
            raw.script_flush()
            assert session.claim(batch) == [Verdict.NEW] * 30
            raw.script_flush()
            assert session.finish(batch) == [Verdict.DONE] * 30
        claims.close()

    def test_a_fence_goes_on_rising_over_the_loss_of_all_data(self, redis_url: str, redis_server: RedisServer) -> None:
        claims = RedisClaims.from_url(redis_url)
        fences = []
        for _ in range(3):
            session = claims.begin(3600.0)
            for _ in range(2):
                [reply] = session.acquire([P])
                assert isinstance(reply, Acquired)
                fences.append(reply.born_ms + reply.epoch)
                session.let_go([LetGo(P, reply.epoch, [])])
            with redis_server.client() as raw:
                raw.flushdb()
                began = _now_ms(raw)
                while _now_ms(raw) < began + 10:  # an ownership lasts longer than a millisecond, as a rule
                    pass
        assert fences == sorted(set(fences))
        claims.close()

    def test_a_server_that_lost_its_data_fences_old_sessions_takes_new_ones_and_is_named(
        self, server: RedisServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        claims = RedisClaims.from_url(server.url)
        old = claims.begin(3600.0)
        server.kill()
        server.restart()
        assert answered(lambda: old.claim([claim("k")])) == [Verdict.FENCED]
        assert claims.begin(3600.0).claim([claim("k", 1)]) == [Verdict.NEW]
        claims.begin(3600.0)
        assert len([line for line in caplog.messages if line.startswith("Redis has lost its data")]) == 1
        claims.close()


class TestFull:
    @pytest.fixture(params=["plain", "digests"])
    def full(self, request: pytest.FixtureRequest) -> Iterator[tuple[RedisServer, RedisClaims]]:
        with RedisServer(maxmemory="32mb", policy="noeviction") as server:
            claims = RedisClaims.from_url(server.url, hash_keys=request.param == "digests")
            claims.connect()
            yield server, claims
            claims.close()

    @staticmethod
    def fill(server: RedisServer) -> None:
        with server.client() as raw:
            raw.config_set("maxmemory", 1)
            with pytest.raises(redis.exceptions.OutOfMemoryError):
                raw.set("x", "x")

    @staticmethod
    def make_room(server: RedisServer) -> None:
        with server.client() as raw:
            raw.config_set("maxmemory", "32mb")

    def test_nothing_new_is_claimed_and_all_that_runs_is_settled(self, full: tuple[RedisServer, RedisClaims]) -> None:
        server, claims = full
        a, b = claims.begin(3600.0), claims.begin(3600.0)
        a.acquire([P])
        a.claim([claim("k"), claim("l", 1)])
        b.acquire(["orders-1"])
        self.fill(server)
        with pytest.raises(StoreUnavailable, match="out of memory"):
            a.claim([claim("m", 2)])
        with pytest.raises(StoreUnavailable):
            a.acquire(["orders-2"])
        if not server.settles_when_full:
            with pytest.raises(StoreUnavailable, match="out of memory"):
                a.finish([claim("k")])
            self.make_room(server)
        assert a.finish([claim("k")]) == [Verdict.DONE]
        assert a.mark([Mark(P, 1, 1, [0, 5])]) == [frozenset()]
        assert b.poll([AskInHand("orders-1", 1, [0])]) == [InHand(frozenset(), frozenset({0}))]
        assert b.drop([Drop("orders-1", 1, 7)]) == [True]
        assert a.renew()
        a.unclaim([claim("l", 1)])
        a.let_go([LetGo(P, 1, [3])])
        a.release([Token(P, 3, 1)])
        self.make_room(server)
        assert b.claim([claim("k", 9), claim("l", 9), claim("m", 9)]) == [Verdict.DONE, Verdict.NEW, Verdict.NEW]
        assert own(b) == Acquired(2, 1, frozenset({5}), frozenset())


class TestKept:
    """What Redis holds, for how long, and under which names."""

    def test_everything_expires_in_its_own_time_but_the_sessions(
        self, redis_url: str, redis_server: RedisServer
    ) -> None:
        claims = RedisClaims.from_url(redis_url, window_s=60.0, positions_ttl_s=120.0)
        session = claims.begin(3600.0)
        session.claim([claim("claimed"), claim("done", 1)])
        session.finish([claim("done", 1)])
        session.acquire([P])
        with redis_server.client() as raw:
            tag = "{hf:holdfast:0}:"
            assert 50 < raw.ttl(f"{tag}k:1:h:done") <= 60
            assert raw.ttl(f"{tag}k:1:h:claimed") > 6 * 86_400  # longer than any handler: its session judges a claim
            assert 110 < raw.ttl(f"{tag}p:{P}") <= 120
            raw.pexpire(f"{tag}p:{P}", 50_000)
            session.mark([Mark(P, 1, 1, [0])])
            assert 110 < raw.ttl(f"{tag}p:{P}") <= 120
            raw.pexpire(f"{tag}p:{P}", 50_000)
            session.drop([Drop(P, 1, 0)])
            assert 110 < raw.ttl(f"{tag}p:{P}") <= 120
            assert raw.ttl(f"{tag}sessions") == -1
        claims.close()

    def test_all_keys_of_a_shard_have_its_hash_tag_and_shards_are_all_used(
        self, redis_url: str, redis_server: RedisServer
    ) -> None:
        claims = RedisClaims.from_url(redis_url, namespace="ns", shards=4)
        session = claims.begin(3600.0)
        session.claim([claim(f"k{n}", n) for n in range(100)])
        session.acquire([f"orders-{n}" for n in range(20)])
        with redis_server.client() as raw:
            tags = {bytes(name).split(b"}")[0] for name in raw.scan_iter()}
        assert tags == {b"{hf:ns:%d" % shard for shard in range(4)}
        claims.close()

    def test_digests_hide_the_key(self, redis_url: str, redis_server: RedisServer) -> None:
        claims = RedisClaims.from_url(redis_url, hash_keys=True)
        claims.begin(3600.0).claim([claim("s:alice@example.com")])
        with redis_server.client() as raw:
            assert not [name for name in raw.scan_iter() if b"alice" in bytes(name)]
        claims.close()

    def test_chunks_below_the_watermark_are_removed(self, redis_url: str, redis_server: RedisServer) -> None:
        claims = RedisClaims.from_url(redis_url)
        session = claims.begin(3600.0)
        session.acquire([P])
        with redis_server.client() as raw:
            for watermark in (300, 2**40):  # passed one by one, and leapt over
                session.mark([Mark(P, 1, 0, [1, 257, 600, 70_000])])
                session.mark([Mark(P, 1, watermark, [])])
                chunks = {bytes(name) for name in raw.hkeys(f"{{hf:holdfast:0}}:p:{P}") if name.startswith(b"b:")}
                assert chunks == ({b"b:1", b"b:2", b"b:273"} if watermark == 300 else set())
        claims.close()

    def test_offsets_that_lua_cannot_count_are_refused(self, redis_url: str) -> None:
        claims = RedisClaims.from_url(redis_url)
        session = claims.begin(3600.0)
        for offset in (-1, 2**53):
            with pytest.raises(ValueError, match="2\\^53"):
                session.mark([Mark(P, 1, 0, [offset])])
        claims.close()


class TestReplica:
    @pytest.fixture
    def replica(self, server: RedisServer) -> Iterator[RedisServer]:
        with RedisServer(replica_of=server) as made:
            with server.client() as raw:
                until(lambda: raw.info("replication").get("slave0", {}).get("state") == "online")
            yield made

    def test_without_one_wait1_is_unavailable(self, server: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url, durability="wait1")
        with pytest.raises(StoreUnavailable, match="replica"):
            claims.connect()
        claims.close()

    def test_what_was_answered_survives_the_primary(self, server: RedisServer, replica: RedisServer) -> None:
        claims = RedisClaims.from_url(server.url, durability="wait1", timeout_s=10.0)
        session = claims.begin(3600.0)
        session.acquire([P])
        session.claim([claim("k")])
        assert session.finish([claim("k")]) == [Verdict.DONE]
        session.mark([Mark(P, 1, 5, [0, 9])])
        server.kill()
        with replica.client() as raw:
            raw.replicaof("NO", "ONE")
        promoted = RedisClaims.from_url(replica.url)
        heir = promoted.begin(3600.0)
        assert heir.claim([claim("k", 1)]) == [Verdict.DONE]
        assert heir.acquire([P]) == [Wait.WAIT]
        session.end()
        claims.close()
        promoted.close()

    def test_what_no_replica_confirmed_has_no_answer_however_often_it_is_asked(
        self, server: RedisServer, replica: RedisServer
    ) -> None:
        claims = RedisClaims.from_url(server.url, durability="wait1", timeout_s=1.0)
        session = answered(lambda: claims.begin(3600.0))
        answered(lambda: session.acquire([P]))
        answered(lambda: session.claim([claim("k")]))
        replica.pause()
        for _ in range(3):  # the second time there is nothing left to write
            with pytest.raises(StoreUnavailable):
                session.finish([claim("k")])
        assert answered(session.renew)  # needs no replica
        replica.resume()
        assert answered(lambda: session.finish([claim("k")])) == [Verdict.DONE]
        claims.close()

    def test_a_primary_that_becomes_a_replica_while_it_waits_for_one_has_not_answered(
        self, server: RedisServer, replica: RedisServer
    ) -> None:
        claims = RedisClaims.from_url(server.url, durability="wait1", timeout_s=60.0)
        session = claims.begin(3600.0)
        replica.pause()
        asked: list[Exception] = []

        def ask() -> None:
            try:
                session.claim([claim("k")])
            except StoreError as error:
                asked.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        with server.client() as raw:
            until(lambda: raw.info("clients")["blocked_clients"])
            raw.replicaof("127.0.0.1", "1")
            asking.join()
            raw.replicaof("NO", "ONE")
        replica.resume()
        assert [type(error) for error in asked] == [StoreUnavailable]
        assert "UNBLOCKED" in str(asked[0])
        assert answered(lambda: session.claim([claim("k")])) == [Verdict.NEW]
        claims.close()


def test_a_primary_that_became_a_replica_is_left_for_what_its_address_stands_for_now(
    redis_url: str, redis_server: RedisServer
) -> None:
    """Behind a name or a proxy another server may have taken over; only a new connection finds it."""
    client = redis.Redis.from_url(redis_url, socket_timeout=2, retry=None)
    claims = RedisClaims(client)
    session = claims.begin()
    before = client.client_id()
    with redis_server.client() as raw:
        raw.replicaof("127.0.0.1", "1")
        try:
            with pytest.raises(StoreUnavailable):
                session.claim([Claim(ClaimKey("h", "k"), Token("p", 0, 1))])
        finally:
            raw.replicaof("no", "one")
    assert client.client_id() != before
    assert session.claim([Claim(ClaimKey("h", "k"), Token("p", 0, 1))]) == [Verdict.NEW]
    session.end()
    client.close()
