"""Digests of keys in buckets: each key lives and ends for itself, whatever its neighbours do."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING, Any

import pytest

from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.redis_store import RedisClaims

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import redis

    from tests.harness.servers.redis import RedisServer

NEW, DONE, BUSY = Verdict.NEW, Verdict.DONE, Verdict.BUSY
TAG = b"{hf:holdfast:0}:"
ONE_BUCKET = TAG + b"d:"
CLAIMS = TAG + b"claims"
WEEK_MS = 7 * 86_400_000


@pytest.fixture
def raw(redis_url: str, redis_server: RedisServer) -> Iterator[redis.Redis]:
    with redis_server.client() as client:
        yield client


@pytest.fixture
def store(redis_url: str) -> Iterator[Callable[..., RedisClaims]]:
    """Stores of one namespace, all of whose keys are in one bucket."""
    made: list[RedisClaims] = []

    def make(**settings: Any) -> RedisClaims:
        made.append(RedisClaims.from_url(redis_url, hash_keys=True, **{"keys_expected": 1, **settings}))
        return made[-1]

    yield make
    for each in made:
        each.close()


def claims_of(*names: str) -> list[Claim]:
    return [Claim(ClaimKey("h", name), Token("p", 0, 1)) for name in names]


def digest(name: str) -> bytes:
    return hashlib.sha256(f"1:h:{name}".encode()).digest()[:16]


def numbers(reply: Any) -> dict[bytes, int]:
    return {field: int(value) for field, value in reply.items()}


def do(store: RedisClaims, *names: str) -> None:
    session = store.begin(3600.0)
    assert session.claim(claims_of(*names)) == [NEW] * len(names)
    assert session.finish(claims_of(*names)) == [DONE] * len(names)


def now_ms(raw: redis.Redis) -> int:
    seconds, micros = raw.time()
    return int(seconds) * 1000 + int(micros) // 1000


def past(raw: redis.Redis, moment_ms: int) -> None:
    """Wait until the server's clock has passed it."""
    while now_ms(raw) <= moment_ms:
        time.sleep(0.002)


class TestWindows:
    def test_each_key_of_a_bucket_has_its_own(self, store: Callable[..., RedisClaims], raw: redis.Redis) -> None:
        long, short = store(), store(window_s=0.2)
        do(long, "a")
        do(short, "b")
        do(long, "c")
        names = claims_of("a", "b", "c")
        asking = long.begin(3600.0)
        past(raw, now_ms(raw) + 200)
        assert asking.claim(names) == [DONE, NEW, DONE]

    def test_are_never_shorter_than_asked(self, store: Callable[..., RedisClaims], raw: redis.Redis) -> None:
        do(store(), "neighbour")  # keeps the bucket, for us to look into it, however slow we are
        session = store(window_s=0.1).begin(3600.0)
        asked = claims_of("k")
        session.claim(asked)
        began = now_ms(raw)
        session.finish(asked)
        answered = now_ms(raw)
        until = numbers(raw.hgetall(ONE_BUCKET))[digest("k")]
        assert began + 100 <= until <= answered + 100
        seen_done_at = answered
        while True:
            before = now_ms(raw)
            if session.claim([asked[0]._replace(token=Token("p", 1, 1))]) == [NEW]:
                break
            seen_done_at = before
        assert seen_done_at <= until < now_ms(raw)

    def test_a_bucket_expires_after_its_last_key_whoever_writes_last(
        self, store: Callable[..., RedisClaims], raw: redis.Redis
    ) -> None:
        long, short = store(), store(window_s=60.0)
        for order in ([long, short], [short, long], [short, long, short]):
            raw.delete(ONE_BUCKET)
            for n, each in enumerate(order):
                do(each, f"{len(order)}{order[0] is long}{n}")
            assert raw.pttl(ONE_BUCKET) + now_ms(raw) >= max(numbers(raw.hgetall(ONE_BUCKET)).values())

    def test_a_bucket_nobody_writes_is_gone_after_its_keys(
        self, store: Callable[..., RedisClaims], raw: redis.Redis
    ) -> None:
        do(store(), "a", "b")
        assert raw.exists(ONE_BUCKET)
        raw.delete(ONE_BUCKET)
        do(store(window_s=0.1), "a", "b")
        past(raw, now_ms(raw) + 125)
        assert not raw.exists(ONE_BUCKET)

    def test_a_key_that_ended_is_claimed_and_finished_anew(
        self, store: Callable[..., RedisClaims], raw: redis.Redis
    ) -> None:
        do(store(), "neighbour")
        claims = store(window_s=0.1)
        do(claims, "k")
        past(raw, now_ms(raw) + 100)
        do(store(), "k")
        assert claims.begin(3600.0).claim(claims_of("k")) == [DONE]


class TestSweep:
    def test_removes_what_has_ended_and_nothing_else(self, store: Callable[..., RedisClaims], raw: redis.Redis) -> None:
        short, long = store(window_s=0.2), store()
        ended, alive = [f"e{n}" for n in range(50)], [f"a{n}" for n in range(50)]
        do(short, *ended)
        past(raw, now_ms(raw) + 200)
        do(long, *alive)
        assert set(numbers(raw.hgetall(ONE_BUCKET))) == {digest(name) for name in alive}
        asked = long.begin(3600.0).claim(claims_of(*ended, *alive))
        assert asked == [NEW] * 50 + [DONE] * 50

    def test_comes_again_when_a_quarter_of_the_window_has_passed(
        self, store: Callable[..., RedisClaims], raw: redis.Redis
    ) -> None:
        claims = store()
        do(claims, "old", "k")
        raw.hset(ONE_BUCKET, digest("old"), now_ms(raw) - 1)
        do(claims, "soon")
        assert raw.hexists(ONE_BUCKET, digest("old"))
        raw.pexpire(ONE_BUCKET, WEEK_MS - 1)  # as after a quarter
        do(claims, "later")
        assert set(numbers(raw.hgetall(ONE_BUCKET))) == {digest(name) for name in ("k", "soon", "later")}


class TestOutgrown:
    def test_a_bucket_that_outgrew_its_limit_answers_rightly(
        self, store: Callable[..., RedisClaims], raw: redis.Redis
    ) -> None:
        claims = store()
        names = [f"k{n}" for n in range(3000)]
        do(claims, *names[::2])
        assert raw.hlen(ONE_BUCKET) == 1500
        assert raw.object("encoding", ONE_BUCKET) == b"hashtable"
        assert claims.begin(3600.0).claim(claims_of(*names)) == [DONE, NEW] * 1500

    def test_it_is_swept_bit_by_bit(self, store: Callable[..., RedisClaims], raw: redis.Redis) -> None:
        short, long = store(window_s=0.3), store()
        ended = [f"e{n}" for n in range(2000)]
        do(short, *ended)
        alive = [f"a{n}" for n in range(2000)]
        past(raw, now_ms(raw) + 300)
        # It would expire: what is alive beside the ended ones keeps it.
        for first in range(0, 2000, 500):
            do(long, *alive[first : first + 500])
        left = set(numbers(raw.hgetall(ONE_BUCKET)))
        assert {digest(name) for name in alive} <= left
        assert len(left) < 2200
        assert long.begin(3600.0).claim(claims_of(*ended, *alive)) == [NEW] * 2000 + [DONE] * 2000


class TestLayout:
    def test_buckets_of_as_many_keys_as_expected_are_one_block_of_memory_each(
        self, store: Callable[..., RedisClaims], raw: redis.Redis
    ) -> None:
        claims = store(keys_expected=20_000)
        for first in range(0, 20_000, 2000):
            do(claims, *(f"k{n}" for n in range(first, first + 2000)))
        buckets = list(raw.scan_iter(ONE_BUCKET + b"*", count=1000))
        assert 500 < len(buckets) <= 1024
        encodings = {raw.object("encoding", bucket) for bucket in buckets}
        assert encodings <= {b"listpack", b"ziplist"}
        assert not raw.exists(CLAIMS)

    @pytest.mark.parametrize(
        ("keys_expected", "whole", "mask"),
        [(24, 0, 0), (25, 0, 0x80), (100_000, 1, 0xF8), (1_000_000, 2, 0), (2_000_000, 2, 0x80)],
    )
    def test_names_are_the_same_in_every_process(
        self, store: Callable[..., RedisClaims], raw: redis.Redis, keys_expected: int, whole: int, mask: int
    ) -> None:
        do(store(keys_expected=keys_expected), *(f"k{n}" for n in range(20)))
        digests = [digest(f"k{n}") for n in range(20)]
        wanted = {ONE_BUCKET + each[:whole] + (bytes([each[whole] & mask]) if mask else b"") for each in digests}
        assert set(raw.scan_iter(ONE_BUCKET + b"*")) == wanted

    @pytest.mark.parametrize("keys_expected", [1, 25, 10_000, 10**6, 10**7, 10**9])
    def test_any_number_of_buckets_answers_rightly(self, store: Callable[..., RedisClaims], keys_expected: int) -> None:
        claims = store(keys_expected=keys_expected)
        names = [f"k{n}" for n in range(600)]
        do(claims, *names[::2])
        assert claims.begin(3600.0).claim(claims_of(*names)) == [DONE, NEW] * 300


class TestGarbage:
    def test_claims_that_nobody_finished_are_removed_in_the_end_and_others_are_kept(
        self, store: Callable[..., RedisClaims], raw: redis.Redis
    ) -> None:
        claims = store()
        left, session = claims.begin(3600.0), claims.begin(3600.0)
        names = [f"k{n}" for n in range(40)]
        left.claim(claims_of(*names))
        stored: Any = raw.hgetall(CLAIMS)
        old = [digest(name) for name in names[::2]]
        for field in old:
            raw.hset(CLAIMS, field, b"%013d" % (now_ms(raw) - WEEK_MS - 1) + stored[field][13:])
        tried = 0
        while any(raw.hmget(CLAIMS, old)) and tried < 2000:  # which ones are looked at is left to chance
            session.claim(claims_of("other"))
            session.unclaim(claims_of("other"))
            tried += 1
        left.end()
        assert left.finish(claims_of(*names)) == [Verdict.FENCED, DONE] * 20

    def test_all_claims_end_with_the_last(self, store: Callable[..., RedisClaims], raw: redis.Redis) -> None:
        store().begin(3600.0).claim(claims_of("k"))
        assert WEEK_MS - 10_000 < raw.pttl(CLAIMS) <= WEEK_MS
