"""A Redis that sentinels watch: the master is found, followed when it is another, and left when it was replaced."""

from __future__ import annotations

import logging
import traceback
from typing import TYPE_CHECKING, Any, Literal

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from holdfast import RedisClaims, Settings
from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.redis_existing import existing_claims
from holdfast.dedup.redis_sentinel import SentinelUrl, sentinel_client
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.dedup.spark_batches import BatchId, BatchVerdict, Begun, Fate
from holdfast.errors import AccessRefused, SettingError, StoreRefused, StoreUnavailable
from holdfast.plugin.events import StoreDown
from tests.contracts.redis.bad_urls import SECRET, refused_without_its_password
from tests.contracts.redis.test_faults import answered
from tests.harness.clocks import HandClock
from tests.harness.engine import Bench, numbered
from tests.harness.servers.sentinels import NAME, Sentinels
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.harness.engine import Member

LEASE_S = 3600.0
KEYED: dict[str, Any] = {"key": lambda record: record.value or b""}


@pytest.fixture
def sentinels() -> Iterator[Sentinels]:
    with Sentinels() as made:
        yield made


def claim(key: str) -> Claim:
    return Claim(ClaimKey("h", key), Token("p", 0, 1))


def evaluated(server: Any) -> int:
    """How many scripts a server has run since its statistics were reset."""
    with server.client() as raw:
        stats = raw.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("eval", "evalsha"))


class TestUrl:
    def test_it_says_who_is_asked_for_whom_and_how(self) -> None:
        read = SentinelUrl.read(
            "rediss+sentinel://app:p%40ss@s1:1,s2,[::1]:3/orders/2"
            "?ssl_ca_certs=/ca.pem&sentinel_username=ask&sentinel_password=w%26rd&socket_timeout=1"
        )
        assert read.sentinels == [("s1", 1), ("s2", 26379), ("::1", 3)]
        assert read.name == "orders"
        tls = {"ssl": True, "ssl_ca_certs": "/ca.pem", "socket_timeout": 1.0}
        assert read.options == {"db": 2, "username": "app", "password": "p@ss", **tls}
        assert read.sentinel_options == {"username": "ask", "password": "w&rd", **tls}

    def test_database_and_credentials_may_be_left_out(self) -> None:
        read = SentinelUrl.read("redis+sentinel://s1:1/orders")
        assert read.options == {"db": 0}
        assert read.sentinel_options == {"username": None, "password": None}

    @pytest.mark.parametrize(
        "url",
        [
            f"redis+sentinel://:{SECRET}@s1:26379",
            f"redis+sentinel://:{SECRET}@s1:26379/",
            f"redis+sentinel://app:{SECRET}@s1:port/orders/0",
            "redis+sentinel://app:secret@s1:1/orders/nine",
            "redis+sentinel://app:secret@s1:1,/orders/0",
            "redis+sentinel://app:secret@s1:1/orders/0?socket_timeout=x&sentinel_password=secret",
        ],
    )
    def test_one_that_cannot_be_read_is_refused_with_a_sample_and_without_its_password(self, url: str) -> None:
        refused_without_its_password(url, r"redis\+sentinel://user:password@host:port")

    def test_neither_password_is_shown(self) -> None:
        claims = RedisClaims.from_url("redis+sentinel://app:pass1@127.0.0.1:1/orders/0?sentinel_password=pass2")
        with pytest.raises(StoreUnavailable, match="no sentinel of 'orders' answers") as caught:
            claims.connect()
        shown = repr(claims) + "".join(traceback.format_exception(caught.value))
        assert "pass1" not in shown
        assert "pass2" not in shown
        claims.close()


def test_a_client_of_replicas_is_refused() -> None:
    sentinel = Sentinel([("127.0.0.1", 1)])  # type: ignore[no-untyped-call]
    replica = sentinel.slave_for("orders", socket_timeout=0.2, retry=Retry(NoBackoff(), 0))  # type: ignore[no-untyped-call]
    with pytest.raises(SettingError, match="master_for"):
        RedisClaims(replica)


def test_the_master_is_found_and_the_next_one_followed_and_named(
    sentinels: Sentinels, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast.dedup")
    claims = RedisClaims.from_url(sentinels.url())
    session = claims.begin(LEASE_S)
    assert session.claim([claim("before")]) == [Verdict.NEW]
    assert f"now 127.0.0.1:{sentinels.master.port}, by the sentinels" in repr(claims)
    assert "cut off from them, it would go on" in caplog.text
    tool = existing_claims(sentinels.url())
    assert tool.parts().layout.shards == 1
    tool.close()
    new = sentinels.fail_over()
    assert answered(session.renew)
    assert session.finish([claim("before")]) == [Verdict.DONE]
    assert session.claim([claim("after")]) == [Verdict.NEW]
    assert evaluated(new)
    assert f"now 127.0.0.1:{new.port}, by the sentinels" in repr(claims)
    assert f"the sentinels of 'orders' name another master: 127.0.0.1:{new.port}" in caplog.text
    assert f"another server answers session {session.id} than before" in caplog.text
    new.kill()
    with pytest.raises(StoreUnavailable, match=f"orders/0 \\(now 127.0.0.1:{new.port}, by the sentinels"):
        session.renew()
    session.abandon()
    claims.close()


def test_sentinels_that_do_not_know_the_name_or_refuse_the_question_are_told_apart(
    sentinels: Sentinels, caplog: pytest.LogCaptureFixture
) -> None:
    asked = sentinels.url().replace("/orders/", "/payments/")
    claims = RedisClaims.from_url(asked)
    with pytest.raises(StoreRefused, match="know no master 'payments': check the name"):
        claims.connect()
    claims.close()
    for each in sentinels.sentinels:
        with redis.Redis(port=each.port) as raw:
            raw.acl_setuser("ask", enabled=True, passwords=["+word"], commands=["+sentinel|master"])
            raw.acl_setuser("default", enabled=True, nopass=True, commands=["-@all", "+acl"])
    claims = RedisClaims.from_url(sentinels.url())
    with pytest.raises(AccessRefused, match="sentinel_username"):
        claims.connect()
    claims.close()
    claims = RedisClaims.from_url(f"{sentinels.url()}?sentinel_username=ask&sentinel_password=word")
    session = claims.begin(LEASE_S)
    for each in sentinels.sentinels:
        with redis.Redis(port=each.port) as raw:
            raw.acl_deluser("ask")
    renewed = []

    def unknown() -> bool:
        renewed.append(session.renew())  # the master still lets it in, and nobody has named another
        return "it is not known whether" in caplog.text

    until(unknown, "nobody says that the sentinels refuse")
    assert all(renewed)
    claims.close()


def test_a_sentinel_that_is_silent_is_not_waited_for_and_is_asked_again_later(
    sentinels: Sentinels, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = HandClock()
    client = sentinel_client(sentinels.url(), 1.0, None, clock.now)
    assert isinstance(client.connection_pool, SentinelConnectionPool)
    manager = client.connection_pool.sentinel_manager
    first, asked = manager.sentinels[0], 0
    ask = first.sentinel_master

    def counted(name: str) -> object:
        nonlocal asked
        asked += 1
        return ask(name)

    monkeypatch.setattr(first, "sentinel_master", counted)
    master = ("127.0.0.1", sentinels.master.port)
    sentinels.sentinels[0].pause()
    assert [manager.discover_master(NAME), manager.discover_master(NAME)] == [master, master]
    assert asked == 1
    sentinels.sentinels[0].resume()
    clock.sleep(10.0)
    assert manager.discover_master(NAME) == master
    assert asked == 2
    client.close_all()


def _leave(bench: Bench, member: Member, committed: int) -> None:
    """Once its work is acknowledged, by the store and so by the broker."""
    bench.wait_committed(committed)
    member.stop()


@pytest.mark.full
@pytest.mark.parametrize("durability", ["none", "wait1"])
def test_a_failover_repeats_at_most_what_was_acknowledged_in_the_lost_time(
    sentinels: Sentinels, durability: Literal["none", "wait1"]
) -> None:
    """A member that lives says it again; so the one here leaves, as soon as its work is acknowledged."""
    claims = RedisClaims.from_url(sentinels.url(), durability=durability, lease_s=LEASE_S)
    settings = Settings(workers=4, commit_interval_s=0.01)
    kept, late = numbered("kept", range(50)), numbered("late", range(50))
    with Bench(claims=claims) as bench:
        first = bench.member("a", settings=settings, **KEYED)
        bench.broker.produce("orders", 0, *kept)
        bench.wait_committed(50)
        sentinels.cut_replicas()
        bench.broker.produce("orders", 0, *late)
        if durability == "none":
            _leave(bench, first, 100)
        else:
            bench.wait(lambda: first.told(StoreDown))
        sentinels.fail_over()
        if durability == "wait1":
            _leave(bench, first, 100)
        bench.member("b", settings=settings, **KEYED)
        bench.broker.produce("orders", 0, *kept, *late)  # the producer sends all of it again
        bench.wait_committed(200)
    times = bench.work.starts()
    assert set(times) == {*kept, *late}
    assert {value for value, count in times.items() if count > 1} == (set(late) if durability == "none" else set())
    assert max(times.values()) <= 2


@pytest.mark.full
class TestCutOff:
    """The master is away for replicas and sentinels, and not for its clients: it takes what they write."""

    def test_one_that_was_replaced_is_not_believed_whoever_still_names_it(self, sentinels: Sentinels) -> None:
        lonely = sentinels.lonely()
        claims = RedisClaims.from_url(sentinels.url(lonely))
        session = claims.begin(LEASE_S)
        assert session.claim([claim("before")]) == [Verdict.NEW]
        sentinels.cut_off()
        new = sentinels.promoted()
        assert lonely.names() == sentinels.master.port
        with sentinels.master.client() as raw:
            assert raw.set("taken", "still")
            raw.config_resetstat()
        assert session.renew()
        assert session.claim([claim("after")]) == [Verdict.NEW]
        assert session.finish([claim("before")]) == [Verdict.DONE]
        assert evaluated(sentinels.master) == 0
        assert evaluated(new)
        session.abandon()
        claims.close()

    def test_an_attempt_at_a_batch_ends_with_its_master_and_executors_follow_as_the_driver_does(
        self, sentinels: Sentinels
    ) -> None:
        driver, executor = RedisClaims.from_url(sentinels.url()), RedisClaims.from_url(sentinels.url())
        batches, of = RedisBatches.of(driver), BatchId("orders", "q", 0)
        first = batches.begin(of, driver.begin(LEASE_S))
        assert isinstance(first, Begun)
        assert RedisBatches.of(executor).claim(first.attempt, ["a"]) == [BatchVerdict.NEW]
        sentinels.cut_off()
        new = sentinels.promoted()
        with sentinels.master.client() as raw:
            raw.config_resetstat()
        assert RedisBatches.of(executor).claim(first.attempt, ["a", "b"]) == [BatchVerdict.FENCED] * 2
        assert batches.fate(first.attempt) is Fate.MOVED
        assert not batches.finish(first.attempt)
        second = batches.begin(of, driver.begin(LEASE_S))
        assert isinstance(second, Begun)
        claimed = RedisBatches.of(executor).claim(second.attempt, ["a", "b"])
        assert claimed == [BatchVerdict.TAKEN_OVER, BatchVerdict.NEW]
        assert batches.finish(second.attempt)
        assert evaluated(sentinels.master) == 0
        assert evaluated(new)
        driver.close()
        executor.close()

    def test_of_a_client_that_asks_the_wrong_sentinel_first_nothing_is_renewed(self, sentinels: Sentinels) -> None:
        lonely = sentinels.lonely()
        places = [("127.0.0.1", each.port) for each in (lonely, *sentinels.sentinels)]
        manager = Sentinel(places, socket_timeout=2.0)  # type: ignore[no-untyped-call]
        client = manager.master_for(  # type: ignore[no-untyped-call]
            NAME, socket_timeout=2.0, retry=Retry(NoBackoff(), 0), password=sentinels.password
        )
        claims = RedisClaims(client)
        session = claims.begin(LEASE_S)
        assert session.renew()
        sentinels.cut_off()
        new = sentinels.promoted()
        with pytest.raises(StoreUnavailable, match=f"name 127.0.0.1:{new.port} as the master.*is not believed"):
            session.renew()
        lonely.stop()
        assert session.renew()
        assert f"now 127.0.0.1:{new.port}," in repr(claims)
        session.abandon()
        client.close()

    def test_one_that_asks_for_a_replica_takes_nothing(
        self, sentinels: Sentinels, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO, "holdfast.dedup")
        with sentinels.master.client() as raw:
            raw.config_set("min-replicas-to-write", 1)
        claims = RedisClaims.from_url(sentinels.url())
        session = claims.begin(LEASE_S)
        assert "it would go on" not in caplog.text
        sentinels.cut_off()
        until(lambda: _refused(session.claim, [claim("k")]), "the master takes work that nobody else has")
        sentinels.promoted()
        assert session.renew()
        assert session.claim([claim("k")]) == [Verdict.NEW]
        session.abandon()
        claims.close()


def _refused(call: Any, *args: Any) -> bool:
    try:
        call(*args)
    except StoreUnavailable as error:
        return "NOREPLICAS" in str(error)
    return False
