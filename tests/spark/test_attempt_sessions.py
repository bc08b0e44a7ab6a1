"""An attempt's begin and finish while its Redis is away, comes back, or comes back empty: real Redis, no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from holdfast.adapters.spark import BatchFenced
from holdfast.adapters.spark.attempt_session import attempt_session, begin, finish
from holdfast.adapters.spark.marking import fenced
from holdfast.adapters.spark.store import StoreAt
from holdfast.adapters.spark.tasks import NAME, PRINT, ROWS, VERDICT, claiming
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.dedup.redis_store import RedisClaims
from holdfast.dedup.spark_batches import BatchId, BatchVerdict, Begun, Finished
from holdfast.errors import StoreUnavailable
from tests.harness.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator

OF = BatchId("orders", "q", 0)
_PATIENCE_S = 60.0


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer(aof=True) as started:
        yield started


def at(server: RedisServer) -> StoreAt:
    return StoreAt(url=server.url, namespace="n", remember_s=600, hash_keys=False, keys_expected=1000, timeout_s=5.0)


def away_for_the_first(patch: pytest.MonkeyPatch, server: RedisServer, owner: Any, name: str) -> list[str]:
    """Redis is away for the first call, and is there again for the next one."""
    call, asked = getattr(owner, name), []

    def once(*args: Any, **given: Any) -> Any:
        asked.append(name)
        if len(asked) > 1:
            return call(*args, **given)
        server.kill()
        try:
            return call(*args, **given)
        finally:
            server.restart()

    patch.setattr(owner, name, once)
    return asked


@pytest.mark.parametrize(
    ("owner", "name"),
    [(RedisClaims, "parts"), (RedisClaims, "begin"), (RedisBatches, "begin"), (RedisBatches, "finish")],
)
def test_a_redis_that_is_away_at_a_step_is_asked_again(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    asked = away_for_the_first(monkeypatch, server, owner, name)
    with (
        at(server).opened(_PATIENCE_S) as (store, batches),
        attempt_session(store, batches, 300.0, _PATIENCE_S) as own,
    ):
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        finish(begun.attempt, batches, own.session, _PATIENCE_S)
        assert begin(OF, batches, own, _PATIENCE_S) == Finished(begun.attempt)
    assert len(asked) > 1


def test_a_redis_that_is_away_when_a_task_comes_to_it_is_asked_again(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = pa.RecordBatch.from_pydict({NAME: ["s:a", "s:b"]})
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        asked = away_for_the_first(monkeypatch, server, RedisClaims, "parts")
        [told] = claiming(at(server), begun.attempt, _PATIENCE_S)([names])
        rows = dict(zip(told[VERDICT].to_pylist(), told[ROWS].to_pylist(), strict=True))
        assert {verdict: rows[verdict] for verdict in rows if verdict != PRINT} == {BatchVerdict.NEW.value: 2}
    assert len(asked) > 1


def test_a_session_that_died_before_anything_was_begun_is_followed_by_another(server: RedisServer) -> None:
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        first = own.session.id
        batches.give_up(first)  # as if Redis had been away for longer than a lease
        assert isinstance(begin(OF, batches, own, _PATIENCE_S), Begun)
        assert own.session.id != first


def test_a_redis_that_does_not_come_back_is_said_after_patience(server: RedisServer) -> None:
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        server.kill()
        with pytest.raises(StoreUnavailable, match="no answer from the Redis"):
            finish(begun.attempt, batches, own.session, 0.1)
        assert "was silent for longer than lease_s, or Redis was away" in str(fenced(begun.attempt, batches))


def test_a_store_that_was_emptied_in_mid_batch_says_so(server: RedisServer) -> None:
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        store.parts().client.flushdb()
        with pytest.raises(BatchFenced, match="Redis has lost what it knew in the middle of it: it was emptied"):
            finish(begun.attempt, batches, own.session, _PATIENCE_S)


def test_another_run_of_the_query_is_named(server: RedisServer) -> None:
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        with attempt_session(store, batches, 300.0, _PATIENCE_S) as other:
            begin(OF, batches, other, _PATIENCE_S)
            with pytest.raises(BatchFenced, match="another run of query q"):
                finish(begun.attempt, batches, own.session, _PATIENCE_S)
