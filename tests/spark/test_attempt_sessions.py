"""An attempt's begin and finish while its Redis is away, comes back, or comes back empty: real Redis, no Spark."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from holdfast.adapters.spark import BatchFenced
from holdfast.adapters.spark.attempt_session import attempt_session, begin, check_still_ours, finish
from holdfast.adapters.spark.marking import fenced
from holdfast.adapters.spark.store import StoreAt
from holdfast.adapters.spark.tasks import NAME, PRINT, ROWS, VERDICT, claiming
from holdfast.adapters.spark.values import BatchWrite, StillOurs
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.dedup.redis_store import RedisClaims
from holdfast.dedup.spark_batches import BatchId, BatchVerdict, Begun, Finished
from holdfast.errors import StoreUnavailable
from tests.harness.servers.redis import RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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
    [(RedisClaims, "parts"), (RedisClaims, "begin"), (RedisBatches, "begin")],
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


@pytest.mark.parametrize("step", [finish, check_still_ours])
def test_a_redis_that_was_started_again_in_mid_batch_ends_the_attempt_and_the_next_one_finishes(
    server: RedisServer, step: Callable[..., None]
) -> None:
    """It has the attempt, and may lack its last claims: those keys would be written, and not be done."""
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        server.kill()
        server.restart()
        with pytest.raises(BatchFenced, match="Redis was started again in the middle of the batch"):
            step(begun.attempt, batches, own.session, _PATIENCE_S)
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        check_still_ours(begun.attempt, batches, own.session, _PATIENCE_S)
        finish(begun.attempt, batches, own.session, _PATIENCE_S)
        assert begin(OF, batches, own, _PATIENCE_S) == Finished(begun.attempt)


def test_an_attempt_whose_place_was_taken_or_whose_session_died_is_told_so_before_it_commits(
    server: RedisServer,
) -> None:
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        check_still_ours(begun.attempt, batches, own.session, _PATIENCE_S)
        with attempt_session(store, batches, 300.0, _PATIENCE_S) as other:
            begin(OF, batches, other, _PATIENCE_S)
            with pytest.raises(BatchFenced, match="another run of query q"):
                check_still_ours(begun.attempt, batches, own.session, _PATIENCE_S)
            batches.give_up(other.session.id)  # as if Redis had been away for longer than a lease
            with pytest.raises(BatchFenced):
                check_still_ours(begun.attempt, batches, own.session, _PATIENCE_S)


def test_what_an_executor_has_of_a_batch_pickles_and_asks_nobody() -> None:
    asked: list[str] = []
    batch = BatchWrite(
        sink="s", query="q", batch=0, attempt="a", rows=1, still=StillOurs(lambda: asked.append("driver"))
    )
    batch.check()
    copy = pickle.loads(pickle.dumps(batch))  # noqa: S301 - our own
    copy.check()
    assert (copy, asked) == (batch, ["driver"])


def test_a_replica_that_does_not_confirm_ends_what_asks_for_one(server: RedisServer) -> None:
    alone = replace(at(server), durability="wait1")
    with pytest.raises(StoreUnavailable, match="has no replica now, and durability='wait1' asks for one"):
        alone.batches()
    with (
        RedisServer(replica_of=server) as replica,
        alone.opened(_PATIENCE_S) as (store, batches),
        attempt_session(store, batches, 300.0, _PATIENCE_S) as own,
    ):
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        assert batches.claim(begun.attempt, ["a"]) == [BatchVerdict.NEW]
        replica.kill()
        with pytest.raises(StoreUnavailable, match="no replica of the Redis at"):
            batches.claim(begun.attempt, ["b"])


def test_a_redis_that_is_away_when_a_task_comes_to_it_is_asked_again_and_gives_no_claims_of_another_life(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = pa.RecordBatch.from_pydict({NAME: ["s:a", "s:b"]})
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        asked = away_for_the_first(monkeypatch, server, RedisClaims, "parts")
        [told] = claiming(at(server), begun.attempt, _PATIENCE_S)([names])
        rows = dict(zip(told[VERDICT].to_pylist(), told[ROWS].to_pylist(), strict=True))
        assert {verdict: rows[verdict] for verdict in rows if verdict != PRINT} == {BatchVerdict.FENCED.value: 2}
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
        with pytest.raises(BatchFenced, match="Redis has lost its data in the middle of the batch: it was emptied"):
            finish(begun.attempt, batches, own.session, _PATIENCE_S)


def test_another_run_of_the_query_is_named(server: RedisServer) -> None:
    with at(server).opened(_PATIENCE_S) as (store, batches), attempt_session(store, batches, 300.0, _PATIENCE_S) as own:
        begun = begin(OF, batches, own, _PATIENCE_S)
        assert isinstance(begun, Begun)
        with attempt_session(store, batches, 300.0, _PATIENCE_S) as other:
            begin(OF, batches, other, _PATIENCE_S)
            with pytest.raises(BatchFenced, match="another run of query q"):
                finish(begun.attempt, batches, own.session, _PATIENCE_S)
