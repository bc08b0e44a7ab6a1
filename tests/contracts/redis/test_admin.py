"""Looking into a real Redis, and mending it by hand."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from holdfast.dedup.claims import Acquired, AskInHand, Claim, ClaimKey, InHand, LetGo, Mark, Token, Verdict, Wait
from holdfast.dedup.redis_admin import Forgotten, KeyShown, KeyState, PositionShown, RedisAdmin, Running
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import StoreRefused, StoreUnavailable
from tests.contracts.redis.test_claims import own
from tests.harness.servers.redis import RedisServer
from tests.harness.stores import ClusterBench, RedisBench

if TYPE_CHECKING:
    from collections.abc import Iterator

P = "billing/orders/0"


@pytest.fixture(
    params=[
        "plain",
        "in 3 shards",
        "digests",
        "digests in 3 shards",
        "digests in one bucket",
        pytest.param("cluster in 3 shards", marks=pytest.mark.full),
        pytest.param("cluster, digests in 3 shards", marks=pytest.mark.full),
    ]
)
def bench(request: pytest.FixtureRequest) -> Iterator[RedisBench]:
    cluster = request.param.startswith("cluster")
    made = (ClusterBench if cluster else RedisBench)(
        request.getfixturevalue("redis_cluster").url if cluster else request.getfixturevalue("redis_url"),
        shards=3 if "3" in request.param else 1,
        hash_keys="digests" in request.param,
        keys_expected=1 if "one bucket" in request.param else 1_000_000,
    )
    yield made
    made.close()


@pytest.fixture
def admin(bench: RedisBench) -> RedisAdmin:
    return RedisAdmin.of(bench.claims)


def key(name: str, scope: str = "billing/orders") -> ClaimKey:
    return ClaimKey(scope, name)


def claim(name: str, offset: int = 0, scope: str = "billing/orders") -> Claim:
    return Claim(key(name, scope), Token(P, offset, 1))


@pytest.mark.parametrize("name", ["short", "long" * 1000])
def test_a_scope_is_known_by_any_of_its_keys(bench: RedisBench, admin: RedisAdmin, name: str) -> None:
    bench.begin().claim([claim(name, scope="a")])
    known = None if bench.claims.parts().layout.hash_keys else True
    assert admin.knows_scope("a") is known
    assert not admin.knows_scope("b")


class TestShow:
    def test_tells_absent_claimed_and_done_in_the_order_of_the_keys(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a, dead = bench.begin(), bench.begin()
        a.claim([claim("running", 7), claim("done", 8)])
        a.finish([claim("done", 8)])
        dead.claim([claim("left", 9)])
        bench.kill(dead.id)
        done, absent, left, running = admin.show([key("done"), key("absent"), key("left"), key("running")])
        assert done.state is KeyState.DONE
        assert done.left_s is not None
        assert 7 * 86_400 - 60 < done.left_s <= 7 * 86_400
        assert not done.has_result
        assert absent == KeyShown(key=key("absent"), state=KeyState.ABSENT)
        assert left == KeyShown(
            key=key("left"), state=KeyState.CLAIMED, session=dead.id, session_lives=False, token=Token(P, 9, 1)
        )
        assert running == KeyShown(
            key=key("running"), state=KeyState.CLAIMED, session=a.id, session_lives=True, token=Token(P, 7, 1)
        )

    def test_tells_whether_there_is_a_result(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a = bench.begin()
        claims = [claim("with", 1), claim("without", 2)]
        a.claim(claims)
        a.finish(claims, ["{}", ""])
        assert [shown.has_result for shown in admin.show([key("with"), key("without")])] == [True, False]

    def test_of_many_keys_is_answered_in_their_order(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a = bench.begin()
        claims = [claim(f"k{n}", n) for n in range(1200)]
        a.claim(claims[::2])
        a.finish(claims[::4])
        wanted = [KeyState.DONE, KeyState.ABSENT, KeyState.CLAIMED, KeyState.ABSENT] * 300
        assert [shown.state for shown in admin.show([each.key for each in claims])] == wanted
        assert admin.show([]) == []

    def test_changes_nothing(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        admin.show([key("k"), key("l")])
        assert a.claim([claim("k"), claim("l", 1)]) == [Verdict.NEW, Verdict.NEW]
        assert a.finish([claim("k")]) == [Verdict.DONE]


class TestLongKeys:
    """A key above 512 bytes is stored as a digest in both layouts."""

    @pytest.mark.parametrize("hash_keys", [False, True])
    def test_are_told_apart_found_forgotten_and_cost_no_more_than_others(
        self, redis_url: str, redis_server: RedisServer, *, hash_keys: bool
    ) -> None:
        text = "ä" * 300_000
        longs = [claim(text), claim(text + "x", 1), claim(text[:256], 2), claim(text[:256] + "y", 3)]
        keys = [each.key for each in longs]
        claims = RedisClaims.from_url(redis_url, hash_keys=hash_keys)
        session = claims.begin(3600.0)
        assert session.claim(longs) == [Verdict.NEW] * 4
        assert session.finish(longs[:1], ["7"]) == [Verdict.NEW]
        assert session.results(keys) == ["7", None, None, None]
        admin = RedisAdmin.of(claims)
        assert [each.state for each in admin.show(keys)] == [KeyState.DONE, *[KeyState.CLAIMED] * 3]
        assert [each.key for each in admin.show(keys)] == keys
        if not hash_keys:
            assert admin.stats().by_scope == {"billing/orders": 4}
        with redis_server.client() as raw:
            assert max(len(bytes(name)) for name in raw.scan_iter()) < 600
        assert admin.forget(keys[:1]) == [Forgotten.DONE]
        assert session.claim([claim(text, 4)]) == [Verdict.NEW]
        session.end()
        claims.close()

    def test_a_key_that_looks_like_the_digest_of_another_is_another(self, redis_url: str) -> None:
        text = "k" * 513
        claims = RedisClaims.from_url(redis_url)
        session = claims.begin(3600.0)
        assert session.claim([claim(text), claim(hashlib.sha256(text.encode()).hexdigest(), 1)]) == [Verdict.NEW] * 2
        session.end()
        claims.close()


class TestForget:
    def test_what_is_done_is_new_again_without_its_result(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a = bench.begin()
        claims = [claim("k"), claim("other", 1)]
        a.claim(claims)
        a.finish(claims, ["{}", "{}"])
        assert admin.forget([key("k"), key("absent")]) == [Forgotten.DONE, Forgotten.NOTHING]
        assert a.claim([claim("k", 2), claim("other", 2)]) == [Verdict.NEW, Verdict.DONE]
        a.finish([claim("k", 2)])
        assert a.results([key("k"), key("other")]) == ["", "{}"]

    def test_what_a_living_session_holds_is_kept_unless_forced(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        assert admin.forget([key("k")]) == [Forgotten.HELD]
        assert a.claim([claim("k", 1)]) == [Verdict.BUSY]
        assert admin.forget([key("k")], force=True) == [Forgotten.CLAIMED]
        assert a.claim([claim("k", 1)]) == [Verdict.NEW]
        assert a.finish([claim("k")]) == [Verdict.FENCED]

    def test_a_forced_key_that_nobody_takes_is_done_when_its_handler_ends(
        self, bench: RedisBench, admin: RedisAdmin
    ) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        assert admin.forget([key("k")], force=True) == [Forgotten.CLAIMED]
        assert a.finish([claim("k")]) == [Verdict.DONE]
        assert a.claim([claim("k", 1)]) == [Verdict.DONE]

    def test_what_a_dead_session_left_is_removed(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        bench.kill(a.id)
        assert admin.forget([key("k")]) == [Forgotten.CLAIMED]
        assert a.finish([claim("k")]) == [Verdict.FENCED]

    def test_works_when_memory_is_full(self) -> None:
        with RedisServer(maxmemory="32mb", policy="noeviction") as server, server.client() as raw:
            claims = RedisClaims.from_url(server.url)
            session = claims.begin(3600.0)
            session.claim([claim("k")])
            session.finish([claim("k")])
            raw.config_set("maxmemory", 1)
            admin = RedisAdmin.of(claims)
            assert admin.forget([key("k")]) == [Forgotten.DONE]
            assert admin.show([key("k")])[0].state is KeyState.ABSENT
            session.abandon()
            claims.close()


class TestStats:
    def test_counts_what_is_there_of_this_namespace(self, bench: RedisBench, admin: RedisAdmin, redis_url: str) -> None:
        others = RedisClaims.from_url(redis_url, namespace="t:0")
        stranger = others.begin(3600.0)
        stranger.claim([claim("k")])
        a, dead = bench.begin(), bench.begin()
        bench.kill(dead.id)
        first = [claim(f"k{n}", n) for n in range(100)]
        second = [claim(f"k{n}", n, "other[a-z]*") for n in range(50)]
        a.claim(first + second)
        a.finish(first)
        a.finish(second[:5], ["{}"] * 5)
        a.acquire([P, "q"])
        steps: list[tuple[int, int]] = []
        stats = admin.stats(lambda seen, total: steps.append((seen, total)))
        assert (stats.done, stats.claimed, stats.results, stats.positions) == (105, 45, 5, 2)
        assert (stats.sessions_live, stats.sessions_dead) == (1, 1)
        hashed = bench.claims.parts().layout.hash_keys
        assert stats.by_scope == (None if hashed else {"billing/orders": 100, "other[a-z]*": 50})
        assert 150 * 20 < stats.memory_bytes < 150 * 1000
        assert steps[-1][0] == steps[-1][1] > 0
        others.close()

    def test_what_is_past_its_window_does_not_count(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a = bench.begin()
        early, late = [claim(f"e{n}", n) for n in range(20)], [claim(f"l{n}", n) for n in range(30)]
        a.claim(early + late)
        a.finish(early)
        bench.age(6.9 * 86_400)
        a.finish(late)
        assert admin.stats().done == 50
        bench.age(0.2 * 86_400)
        assert admin.stats().done == 30
        assert {shown.state for shown in admin.show([each.key for each in early])} == {KeyState.ABSENT}
        assert admin.forget([early[0].key, late[0].key]) == [Forgotten.NOTHING, Forgotten.DONE]

    def test_of_an_empty_namespace_are_zero(self, admin: RedisAdmin) -> None:
        stats = admin.stats()
        assert (stats.done, stats.claimed, stats.positions, stats.sessions_live) == (0, 0, 0, 0)


class TestPositions:
    def test_are_listed_by_prefix_with_owner_and_hands(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a, b = bench.begin(), bench.begin()
        names = ["g/orders*/0", "g/orders*/1", "g/ordersX/0", "h/orders*/0"]
        a.acquire(names)
        a.mark([Mark(names[0], 1, 5, [0, 9, 300])])
        a.let_go([LetGo(names[0], 1, [6, 7])])
        b.acquire([names[0]])
        bench.kill(a.id)
        assert admin.positions("g/orders*") == [
            PositionShown(
                name="g/orders*/0",
                epoch=2,
                owner=b.id,
                owner_lives=True,
                watermark=5,
                done_above=2,
                running=(Running(6, a.id, lives=False), Running(7, a.id, lives=False)),
            ),
            PositionShown(
                name="g/orders*/1", epoch=1, owner=a.id, owner_lives=False, watermark=0, done_above=0, running=()
            ),
        ]
        assert [each.name for each in admin.positions()] == sorted(names)

    def test_set_drops_what_is_known_and_fences_who_held_it(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a, b = bench.begin(), bench.begin()
        a.acquire([P])
        a.mark([Mark(P, 1, 50, [60])])
        a.let_go([LetGo(P, 1, [61])])
        assert admin.set_position(P, 10)
        assert a.mark([Mark(P, 1, 0, [61])]) == [{61}]
        assert own(b, P) == Acquired(2, 10, frozenset(), frozenset(), again=62)
        assert b.poll([AskInHand(P, 2, [61])]) == [InHand(frozenset(), frozenset({61}))]

    def test_set_is_refused_while_a_living_session_owns_it(self, bench: RedisBench, admin: RedisAdmin) -> None:
        a, b = bench.begin(), bench.begin()
        a.acquire([P])
        a.mark([Mark(P, 1, 50, [])])
        assert not admin.set_position(P, 10)
        assert b.acquire([P]) == [Wait.WAIT]
        bench.kill(a.id)
        assert admin.set_position(P, 10)
        assert a.mark([Mark(P, 1, 0, [51])]) == [{51}]
        assert own(b, P) == Acquired(2, 10, frozenset(), frozenset(), again=50)

    def test_set_makes_one_that_nobody_has_acquired(self, bench: RedisBench, admin: RedisAdmin) -> None:
        assert admin.set_position(P, 7)
        assert own(bench.begin(), P) == Acquired(1, 7, frozenset(), frozenset())

    def test_set_refuses_what_is_no_offset(self, admin: RedisAdmin) -> None:
        with pytest.raises(ValueError, match="2\\^53"):
            admin.set_position(P, -1)


def test_a_namespace_that_is_laid_out_in_another_way_is_refused(redis_url: str) -> None:
    claims = RedisClaims.from_url(redis_url)
    claims.connect()
    with pytest.raises(StoreRefused, match="laid out"):
        RedisAdmin.of(RedisClaims.from_url(redis_url, shards=2))
    claims.close()


def test_a_server_that_went_away_is_unavailable() -> None:
    with RedisServer() as server:
        claims = RedisClaims.from_url(server.url)
        admin = RedisAdmin.of(claims)
        server.kill()
        for call in (admin.stats, admin.positions, lambda: admin.show([key("k")]), lambda: admin.set_position(P, 1)):
            with pytest.raises(StoreUnavailable):
                call()
        claims.close()
