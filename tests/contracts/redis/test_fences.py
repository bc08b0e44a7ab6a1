"""A partition's fence, born + epoch, as sinks compare it: over failovers, clocks that go back, and resets."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from holdfast import RedisClaims
from holdfast.dedup.claims import Acquired, LetGo, Mark
from holdfast.dedup.redis_admin import RedisAdmin

if TYPE_CHECKING:
    from collections.abc import Iterator

    import redis

    from holdfast.dedup.claims import ClaimSession
    from tests.harness.servers.redis import RedisServer

P = "g/orders/id/0"
HOUR_MS = 3_600_000


@pytest.fixture
def claims(redis_url: str) -> Iterator[RedisClaims]:
    made = RedisClaims.from_url(redis_url, lease_s=3600.0)
    yield made
    made.close()


def own(session: ClaimSession) -> Acquired:
    [reply] = session.acquire([P])
    assert isinstance(reply, Acquired)
    return reply


def fence(acquired: Acquired) -> int:
    return acquired.born_ms + acquired.epoch


def position(raw: redis.Redis) -> bytes:
    [name] = raw.keys("*:p:*")
    assert isinstance(name, bytes)
    return name


def owned_and_let_go(session: ClaimSession) -> int:
    acquired = own(session)
    session.let_go([LetGo(P, acquired.epoch, [])])
    return fence(acquired)


def a_millisecond_passes(raw: redis.Redis) -> None:
    began = raw.time()
    while raw.time()[0] * 1000 + raw.time()[1] // 1000 <= began[0] * 1000 + began[1] // 1000:
        time.sleep(0)


def test_a_copy_that_is_behind_gives_no_fence_a_second_time(claims: RedisClaims, redis_server: RedisServer) -> None:
    """A failover loses acquires: epochs come again, fences do not."""
    session = claims.begin(3600.0)
    with redis_server.client() as raw:
        fences = [owned_and_let_go(session)]
        name = position(raw)
        behind = raw.dump(name) or b""
        for _ in range(3):
            a_millisecond_passes(raw)  # an ownership lasts longer
            fences.append(owned_and_let_go(session))
        a_millisecond_passes(raw)
        raw.restore(name, 0, behind, replace=True)
        fences += [owned_and_let_go(session) for _ in range(3)]
    assert fences == sorted(set(fences))


def test_an_owner_whose_acquire_was_lost_marks_on_and_its_successor_is_above_it(
    claims: RedisClaims, redis_server: RedisServer
) -> None:
    a, b = claims.begin(3600.0), claims.begin(3600.0)
    with redis_server.client() as raw:
        owned_and_let_go(a)
        name = position(raw)
        behind = raw.dump(name) or b""
        a_millisecond_passes(raw)
        owned_and_let_go(b)
        a_millisecond_passes(raw)
        mine = own(a)
        a_millisecond_passes(raw)
        raw.restore(name, 0, behind, replace=True)
        assert a.mark([Mark(P, mine.epoch, 1, [0])]) == [frozenset()]
        a.let_go([LetGo(P, mine.epoch, [])])
    assert fence(own(b)) > fence(mine)


def test_a_clock_that_goes_back_lowers_no_fence_while_the_data_stays(
    claims: RedisClaims, redis_server: RedisServer
) -> None:
    """As if the server that gave the last fence had a clock an hour ahead of this one's."""
    session = claims.begin(3600.0)
    owned_and_let_go(session)
    with redis_server.client() as raw:
        ahead = int(raw.hget(position(raw), "born") or 0) + HOUR_MS
        raw.hset(position(raw), "born", str(ahead))
    fences = [owned_and_let_go(session) for _ in range(3)]
    assert fences == sorted(set(fences))
    assert fences[0] > ahead


def test_a_clock_that_goes_back_and_data_that_is_lost_lower_it_and_the_page_says_what_to_do(
    claims: RedisClaims, redis_server: RedisServer
) -> None:
    """The limit of what a number can say, in docs/how-to/fences.md."""
    session = claims.begin(3600.0)
    with redis_server.client() as raw:
        owned_and_let_go(session)
        ahead = int(raw.hget(position(raw), "born") or 0) + HOUR_MS
        raw.delete(position(raw))
    assert owned_and_let_go(session) < ahead


def test_an_operators_reset_is_followed_by_a_higher_one(claims: RedisClaims) -> None:
    session = claims.begin(3600.0)
    before = owned_and_let_go(session)
    assert RedisAdmin.of(claims).set_position(P, 0)
    assert owned_and_let_go(session) > before


def test_a_session_that_comes_back_for_its_partition_has_a_higher_one(claims: RedisClaims) -> None:
    """Also without a let_go: what an earlier ownership of this very process still writes is a former owner's."""
    session = claims.begin(3600.0)
    assert fence(own(session)) < fence(own(session))
