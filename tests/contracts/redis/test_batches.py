"""The contract of spark_batches.py, row by row, on memory and on a real Redis, beside sessions that know nothing of
batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest

from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.memory_spark_batches import MemoryBatches
from holdfast.dedup.redis_admin import Forgotten, KeyState, RedisAdmin
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.dedup.spark_batches import BatchId, BatchVerdict, Begun, Behind, Elsewhere, Fate, Finished, Lost
from holdfast.errors import StoreRefused
from tests.harness.servers.redis import RedisServer
from tests.harness.stores import ClusterBench, LuaBench, MemoryBench, RedisBench

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.dedup.claims import ClaimSession
    from holdfast.dedup.spark_batches import Attempt, BatchAttempts
    from tests.harness.stores import Bench

SINK = "orders-lake"
NEW, TAKEN_OVER, DONE, BUSY, FENCED = (
    BatchVerdict.NEW,
    BatchVerdict.TAKEN_OVER,
    BatchVerdict.DONE,
    BatchVerdict.BUSY,
    BatchVerdict.FENCED,
)


class Field(NamedTuple):
    bench: Bench
    batches: BatchAttempts

    def begin(self, batch: int = 0, *, query: str = "q", sink: str = SINK) -> Attempt:
        found = self.batches.begin(BatchId(sink, query, batch), self.bench.begin())
        assert isinstance(found, Begun), found
        return found.attempt

    def ask(self, batch: int = 0, *, query: str = "q", session: ClaimSession | None = None) -> object:
        return self.batches.begin(BatchId(SINK, query, batch), session or self.bench.begin())

    def claim(self, attempt: Attempt, *keys: str) -> list[BatchVerdict]:
        return self.batches.claim(attempt, keys)

    def promote(self) -> None:
        """Another life of the server, with all that it had."""
        if isinstance(self.batches, MemoryBatches):
            self.batches.life += "'"
        elif isinstance(self.bench, LuaBench):
            self.bench.server.replica()()
        else:
            assert isinstance(self.bench, RedisBench)
            self.bench.raw.execute_command("REPLICAOF", "127.0.0.1", "1")  # type: ignore[no-untyped-call] # nobody there
            self.bench.raw.execute_command("REPLICAOF", "NO", "ONE")  # type: ignore[no-untyped-call]


@pytest.fixture(
    params=[
        "memory",
        "redis",
        "redis with digests",
        "lua",
        "lua with digests",
        pytest.param("cluster", marks=pytest.mark.full),
        pytest.param("cluster with digests", marks=pytest.mark.full),
    ]
)
def field(request: pytest.FixtureRequest) -> Iterator[Field]:
    if request.param == "memory":
        memory = MemoryBench()
        yield Field(memory, MemoryBatches(memory.claims))
        memory.close()
    else:
        lua, digests = request.param.startswith("lua"), "digests" in request.param
        if lua:
            bench: RedisBench = LuaBench("", hash_keys=digests)
        elif request.param.startswith("cluster"):
            bench = ClusterBench(request.getfixturevalue("redis_cluster").url, hash_keys=digests)
        else:
            bench = RedisBench(request.getfixturevalue("redis_url"), hash_keys=digests)
        yield Field(bench, RedisBatches.of(bench.claims))
        bench.close()


def other(session: ClaimSession, key: str) -> Verdict:
    """What a consumer that is not Spark is told of a key in the same scope."""
    [verdict] = session.claim([Claim(ClaimKey(SINK, key), Token("orders-0", 7, 1))])
    return verdict


def test_attempts_count_up_and_a_finished_batch_is_not_begun_again(field: Field) -> None:
    first = field.begin()
    assert field.batches.finish(first)
    assert field.ask() == Finished(first)
    second = field.begin(1)
    assert (first.number, second.number) == (1, 2)


def test_beside_a_finished_batch_another_of_its_number_is_begun_and_is_the_one_that_is_finished_then(
    field: Field,
) -> None:
    def ask(beside: Attempt | None) -> object:
        return field.batches.begin(of, field.bench.begin(), origin="another", beside=beside)

    of = BatchId(SINK, "q", 0)
    first = field.batches.begin(of, field.bench.begin(), origin="one")
    assert isinstance(first, Begun)
    field.claim(first.attempt, "a")
    field.batches.finish(first.attempt)
    assert ask(None) == Finished(first.attempt, "one")
    second = ask(first.attempt)
    assert isinstance(second, Begun)
    assert second.last == first.attempt
    assert field.claim(second.attempt, "a", "b") == [DONE, NEW]
    assert field.batches.finish(second.attempt)
    assert ask(None) == ask(first.attempt) == Finished(second.attempt, "another")
    assert field.batches.done(SINK, ["a", "b"]) == [True, True]


def test_an_attempt_that_is_over_can_ask_why(field: Field) -> None:
    first = field.begin()
    assert field.batches.fate(first) is Fate.LIVES
    field.bench.kill(first.session)
    assert field.batches.fate(first) is Fate.SILENT
    second = field.begin(query="q2")
    assert field.batches.fate(first) is Fate.TAKEN
    ahead = replace(second, number=second.number + 1)  # a replica that was behind has taken over
    assert field.batches.fate(ahead) is Fate.LOST
    elsewhen = replace(second, born=second.born - 1)  # emptied, and begun anew
    assert field.batches.fate(elsewhen) is Fate.LOST


@pytest.mark.parametrize("field", ["memory", "redis", "redis with digests", "lua", "lua with digests"], indirect=True)
def test_after_a_failover_an_attempt_claims_and_finishes_nothing_and_the_next_one_does(field: Field) -> None:
    """Its last claims may be missing, and what it has not claimed would not be done."""
    finished = field.begin(0)
    field.claim(finished, "before")
    assert field.batches.finish(finished)
    attempt = field.begin(1)
    assert field.claim(attempt, "a", "b") == [NEW, NEW]
    field.promote()
    assert field.claim(attempt, "b", "c") == [FENCED, FENCED]
    assert field.batches.fate(attempt) is Fate.MOVED
    assert not field.batches.finish(attempt)
    assert field.batches.finish(finished)  # asked again: its end follows its claims, wherever both are known
    again = field.begin(1)
    assert field.claim(again, "before", "a", "b", "c") == [DONE, TAKEN_OVER, TAKEN_OVER, NEW]
    assert field.batches.finish(again)
    assert field.batches.done(SINK, ["a", "b", "c"]) == [True] * 3


def test_a_redis_that_was_emptied_is_named_as_that(redis_url: str) -> None:
    bench = RedisBench(redis_url)
    field = Field(bench, RedisBatches.of(bench.claims))
    attempt = field.begin()
    bench.raw.flushdb()
    assert field.claim(attempt, "a") == [FENCED]
    assert field.batches.fate(attempt) is Fate.LOST
    bench.close()


def test_a_batch_that_lies_behind_a_finished_one_is_told_apart_from_a_replay(field: Field) -> None:
    assert field.batches.finish(field.begin(5))
    assert field.ask(4) == Behind(5)


def test_the_next_attempt_hears_what_was_finished_last(field: Field) -> None:
    first = field.begin(3, query="one")
    field.batches.finish(first)
    found = field.ask(0, query="two")
    assert isinstance(found, Begun)
    assert found.last == first


def test_begin_and_finish_may_be_asked_again(field: Field) -> None:
    session = field.bench.begin()
    of = BatchId(SINK, "q", 0)
    found = field.batches.begin(of, session)
    assert found == field.batches.begin(of, session)
    assert isinstance(found, Begun)
    assert [field.batches.finish(found.attempt) for _ in range(2)] == [True, True]
    field.batches.give_up(session.id)
    assert field.batches.finish(found.attempt)


def test_a_dead_session_begins_nothing(field: Field) -> None:
    session = field.bench.begin()
    field.bench.kill(session.id)
    assert field.batches.begin(BatchId(SINK, "q", 0), session) is Lost.FENCED


def test_another_query_waits_for_a_living_attempt_and_not_for_a_dead_one(field: Field) -> None:
    living = field.begin(8, query="one")
    found = field.ask(0, query="two")
    assert isinstance(found, Elsewhere)
    assert (found.query, found.batch) == ("one", 8)
    assert 0 < found.left_s <= 3600
    field.bench.kill(living.session)
    assert field.begin(0, query="two").number == 2


def test_queries_of_one_sink_take_turns(field: Field) -> None:
    """One whose batches follow each other at once leaves the sink free for moments that another never meets."""
    waits, first = field.bench.begin(), field.begin(0, query="one")
    assert isinstance(field.ask(0, query="two", session=waits), Elsewhere)
    assert isinstance(field.ask(0, query="three"), Elsewhere)
    assert field.batches.finish(first)
    found = field.ask(1, query="one")
    assert isinstance(found, Elsewhere)
    assert (found.query, found.batch) == ("two", 0)
    assert isinstance(field.ask(0, query="three"), Elsewhere)
    second = field.ask(0, query="two", session=waits)
    assert isinstance(second, Begun)
    assert isinstance(field.ask(1, query="one"), Elsewhere)
    assert field.batches.finish(second.attempt)
    assert isinstance(field.ask(1, query="two"), Elsewhere)
    assert isinstance(field.ask(1, query="one"), Begun)


@pytest.mark.parametrize("end", ["killed", "given up"])
def test_a_turn_ends_with_its_session(field: Field, end: str) -> None:
    waits, first = field.bench.begin(), field.begin(0, query="one")
    assert isinstance(field.ask(0, query="two", session=waits), Elsewhere)
    assert field.batches.finish(first)
    if end == "killed":
        field.bench.kill(waits.id)
    else:
        field.batches.give_up(waits.id)
    assert isinstance(field.ask(1, query="one"), Begun)


def test_a_driver_that_comes_again_takes_its_own_attempt_over_whoever_waits(field: Field) -> None:
    field.begin(0, query="one")
    assert isinstance(field.ask(0, query="two"), Elsewhere)
    assert isinstance(field.ask(0, query="one"), Begun)


def test_sinks_know_nothing_of_each_other(field: Field) -> None:
    one, two = field.begin(query="one"), field.begin(query="two", sink="elsewhere")
    assert field.claim(one, "a") == field.claim(two, "a") == [NEW]


def test_a_claim_may_be_asked_again_by_its_own_attempt(field: Field) -> None:
    attempt = field.begin()
    assert field.claim(attempt, "a", "b") == [NEW, NEW]
    assert field.claim(attempt, "b", "c") == [NEW, NEW]


def test_the_next_attempt_fences_the_one_before_and_takes_its_keys_over(field: Field) -> None:
    first = field.begin()
    assert field.claim(first, "a", "b") == [NEW, NEW]
    second = field.begin()
    assert field.claim(second, "b", "c") == [TAKEN_OVER, NEW]
    assert field.claim(first, "a", "d") == [FENCED, FENCED]
    assert not field.batches.finish(first)
    assert field.claim(second, "a", "b") == [TAKEN_OVER, NEW]
    assert field.batches.finish(second)


def test_an_attempt_whose_session_died_does_not_finish(field: Field) -> None:
    attempt = field.begin()
    field.claim(attempt, "a")
    field.bench.kill(attempt.session)
    assert field.claim(attempt, "b") == [FENCED]
    assert not field.batches.finish(attempt)
    assert field.claim(field.begin(), "a", "b") == [TAKEN_OVER, NEW]


def test_keys_of_a_finished_attempt_are_done_and_its_late_claims_are_refused(field: Field) -> None:
    first = field.begin()
    field.claim(first, "a", "b")
    field.batches.finish(first)
    assert field.claim(field.begin(1), "a", "b", "c") == [DONE, DONE, NEW]
    assert field.claim(first, "d") == [FENCED]
    assert field.claim(field.begin(1), "d") == [NEW]


def test_a_finished_attempt_leaves_no_session(field: Field) -> None:
    attempt = field.begin()
    field.batches.finish(attempt)
    assert attempt.session not in field.bench.view().sessions


def test_an_attempt_that_was_given_up_leaves_its_keys_to_whoever_comes(field: Field) -> None:
    attempt = field.begin()
    field.claim(attempt, "a", "b")
    field.batches.give_up(attempt.session)
    assert not field.batches.finish(attempt)
    assert other(field.bench.begin(), "a") is Verdict.NEW
    assert field.claim(field.begin(), "b") == [TAKEN_OVER]


def test_a_finished_attempt_cannot_be_given_up(field: Field) -> None:
    attempt = field.begin()
    field.claim(attempt, "a")
    field.batches.finish(attempt)
    field.batches.give_up(attempt.session)
    assert field.claim(field.begin(1), "a") == [DONE]


def test_what_another_consumer_has_done_is_done_and_what_it_works_on_is_busy(field: Field) -> None:
    consumer = field.bench.begin()
    assert other(consumer, "done") is other(consumer, "busy") is Verdict.NEW
    consumer.finish([Claim(ClaimKey(SINK, "done"), Token("orders-0", 7, 1))])
    attempt = field.begin()
    assert field.claim(attempt, "done", "busy") == [DONE, BUSY]
    field.bench.kill(consumer.id)
    assert field.claim(attempt, "busy") == [TAKEN_OVER]


def test_another_consumer_waits_for_an_attempt_and_skips_what_it_has_finished(field: Field) -> None:
    attempt, consumer = field.begin(), field.bench.begin()
    field.claim(attempt, "a", "b")
    assert other(consumer, "a") is Verdict.BUSY
    field.batches.finish(attempt)
    assert other(consumer, "a") is other(field.bench.begin(), "b") is Verdict.DONE
    assert consumer.results([ClaimKey(SINK, "a"), ClaimKey(SINK, "c")]) == ["", None]
    claim = Claim(ClaimKey(SINK, "b"), Token("orders-0", 7, 1))
    assert consumer.finish([claim]) == [Verdict.DONE]
    assert consumer.finish([claim], ["late"]) == [Verdict.DONE]


def test_another_consumer_takes_over_what_a_dead_attempt_had_claimed_and_keeps_it(field: Field) -> None:
    attempt, consumer = field.begin(), field.bench.begin()
    field.claim(attempt, "a", "b")
    field.bench.kill(attempt.session)
    assert other(consumer, "a") is other(consumer, "b") is Verdict.NEW
    claims = [Claim(ClaimKey(SINK, key), Token("orders-0", 7, 1)) for key in ("a", "b")]
    consumer.finish(claims[:1])
    consumer.unclaim(claims[1:])
    assert field.claim(field.begin(), "a", "b") == [DONE, NEW]


def test_done_is_asked_without_a_claim(field: Field) -> None:
    attempt = field.begin()
    field.claim(attempt, "a")
    assert field.batches.done(SINK, ["a", "b"]) == [False, False]
    field.batches.finish(attempt)
    assert field.batches.done(SINK, ["a", "b"]) == [True, False]


@pytest.mark.parametrize("hash_keys", [False, True])
def test_keys_of_a_finished_attempt_are_done_for_a_window_from_its_end(redis_url: str, hash_keys: bool) -> None:
    bench = RedisBench(redis_url, hash_keys=hash_keys)
    field = Field(bench, RedisBatches.of(bench.claims))
    attempt = field.begin()
    field.claim(attempt, "a")
    assert field.batches.finish(attempt)
    name = b"{hf:t:0}:attempts"
    [(number, kept)] = [(each, value) for each, value in fields(bench, name).items() if each.isdigit()]
    until = int(kept[1:].partition(b":")[0])
    left_s = until / 1000 - bench.raw.time()[0]
    assert 7 * 86_400 - 60 < left_s <= 7 * 86_400 + 1
    assert all(bench.raw.pttl(key) / 1000 > left_s for key in bench.raw.scan_iter(b"{hf:t:0}:[kd]:*"))
    bench.raw.hset(name, number, kept.replace(b"F%d" % until, b"F%d" % (until - 8 * 86_400_000)))
    assert field.batches.done(SINK, ["a"]) == [False]
    assert other(bench.begin(), "a") is Verdict.NEW
    of = BatchId(SINK, "q", 0)
    over = Finished(attempt, kept=False)  # whether a batch is that one, its keys do not tell any more
    assert field.batches.begin(of, bench.begin(), beside=attempt) == field.ask() == over
    bench.close()


def test_what_is_finished_tells_the_print_of_its_keys(field: Field) -> None:
    assert field.batches.finish(field.begin(), keys="0123456789abcdef")
    found = field.ask()
    assert isinstance(found, Finished)
    assert found.keys == "0123456789abcdef"
    assert field.batches.finish(field.begin(1))
    found = field.ask(1)
    assert isinstance(found, Finished)
    assert not found.keys


@pytest.mark.parametrize("hash_keys", [False, True])
def test_an_attempt_that_ends_when_its_claims_may_have_run_out_does_not_count(redis_url: str, hash_keys: bool) -> None:
    """Digests share a bucket, which is kept for a quarter of the window less."""
    bench = RedisBench(redis_url, hash_keys=hash_keys)
    field = Field(bench, RedisBatches.of(bench.claims))
    hour_ms, window_ms = 3_600_000, 7 * 86_400_000
    ends = ((window_ms, True), (window_ms + 2 * hour_ms, not hash_keys), (2 * window_ms, False))
    for batch, (older_ms, counts) in enumerate(ends):
        attempt = field.begin(batch)
        begun = int(bench.raw.time()[0]) * 1000 - older_ms
        bench.raw.hset("{hf:t:0}:attempts", str(attempt.number + 1), f"R{begun}:{attempt.session}")
        assert field.batches.finish(attempt) is counts
        field.batches.give_up(attempt.session)
    bench.close()


def test_a_sink_is_known_for_as_long_as_its_keys_are_done(redis_url: str) -> None:
    """Else its last batch, come again, is begun anew: with all keys done, and so with nothing, in place of all."""
    bench = RedisBench(redis_url, window_s=365 * 86_400.0)
    field = Field(bench, RedisBatches.of(bench.claims))
    for end in (lambda _: None, field.batches.finish):
        end(field.begin())
        assert bench.raw.pttl("{hf:t:0}:b:" + SINK) > 365 * 86_400_000
    bench.close()


def test_attempts_whose_keys_are_past_their_window_are_swept_and_their_ids_are_not_used_again(redis_url: str) -> None:
    bench = RedisBench(redis_url)
    field = Field(bench, RedisBatches.of(bench.claims))
    name = b"{hf:t:0}:attempts"
    for batch in range(30):
        assert field.batches.finish(field.begin(batch))
    for number in filter(bytes.isdigit, fields(bench, name)):
        bench.raw.hset(name, number, b"F1:x")
    numbers = [field.begin(batch).number for batch in range(30, 60)]
    assert numbers == list(range(31, 61))
    assert not [value for value in fields(bench, name).values() if value == b"F1:x"]
    bench.close()


@pytest.mark.parametrize("hash_keys", [False, True])
def test_a_bucket_and_its_neighbours_are_claimed_each_by_its_own_rule(redis_url: str, hash_keys: bool) -> None:
    """Many keys in few buckets, in one call: some absent, some done, busy, or of the dead."""
    bench = RedisBench(redis_url, hash_keys=hash_keys, keys_expected=100)
    field = Field(bench, RedisBatches.of(bench.claims))
    consumer, dead = bench.begin(), bench.begin()
    keys = [f"s:{n}" for n in range(400)]
    done, busy, left = keys[0::4], keys[1::4], keys[2::4]
    for session, some in ((consumer, done), (consumer, busy), (dead, left)):
        claims = [Claim(ClaimKey(SINK, key), Token("orders-0", n, 1)) for n, key in enumerate(some)]
        session.claim(claims)
        if some is done:
            session.finish(claims)
    bench.kill(dead.id)
    attempt = field.begin()
    assert field.claim(attempt, *keys) == [DONE, BUSY, TAKEN_OVER, NEW] * 100
    assert field.claim(attempt, *keys) == [DONE, BUSY, NEW, NEW] * 100
    field.batches.finish(attempt)
    assert field.batches.done(SINK, keys) == [True, False, True, True] * 100
    bench.close()


@pytest.mark.parametrize("hash_keys", [False, True])
def test_tools_see_what_an_attempt_has_claimed_and_done(redis_url: str, hash_keys: bool) -> None:
    bench = RedisBench(redis_url, hash_keys=hash_keys)
    field, admin = Field(bench, RedisBatches.of(bench.claims)), RedisAdmin.of(bench.claims)
    attempt = field.begin()
    field.claim(attempt, "a", "b")
    [shown] = admin.show([ClaimKey(SINK, "a")])
    assert (shown.state, shown.session, shown.token) == (KeyState.CLAIMED, attempt.session, attempt.token)
    assert (admin.stats().claimed, admin.stats().done) == (2, 0)
    field.batches.finish(attempt)
    [shown] = admin.show([ClaimKey(SINK, "a")])
    assert shown.state is KeyState.DONE
    assert shown.left_s == pytest.approx(7 * 86_400, abs=60)
    assert (admin.stats().claimed, admin.stats().done) == (0, 2)
    assert admin.forget([ClaimKey(SINK, "a")]) == [Forgotten.DONE]
    assert field.batches.done(SINK, ["a", "b"]) == [False, True]
    bench.close()


def test_a_namespace_of_several_shards_is_refused(redis_url: str) -> None:
    bench = RedisBench(redis_url, shards=3)
    with pytest.raises(StoreRefused, match="namespace of its own"):
        RedisBatches.of(bench.claims)
    bench.close()


def test_fences_rise_from_attempt_to_attempt_and_stay_with_one(field: Field) -> None:
    first = field.begin()
    second = field.begin()
    assert 0 < first.fence < second.fence
    assert field.batches.finish(second)
    found = field.ask()
    assert isinstance(found, Finished)
    assert found.attempt.fence == second.fence
    third = field.batches.begin(BatchId(SINK, "q", 1), field.bench.begin())
    assert isinstance(third, Begun)
    assert third.last is not None
    assert third.last.fence == second.fence


def test_fences_go_on_rising_where_a_redis_has_lost_its_data(redis_url: str) -> None:
    bench = RedisBench(redis_url, hash_keys=False)
    field = Field(bench, RedisBatches.of(bench.claims))
    before = [field.begin().fence for _ in range(3)][-1]
    bench.claims.parts().client.flushdb()
    again = RedisBench(redis_url, hash_keys=False)
    assert Field(again, RedisBatches.of(again.claims)).begin().fence > before
    again.close()
    bench.close()


def test_a_copy_that_is_behind_gives_no_fence_a_second_time() -> None:
    """A failover loses the last begins: what they have written is not written over by their own fence."""
    with RedisServer() as server:
        bench = RedisBench(server.url)
        field = Field(bench, RedisBatches.of(bench.claims))
        fences = [field.begin().fence]
        behind = {name: bench.raw.dump(name) or b"" for name in bench.raw.scan_iter()}
        fences += [field.begin().fence for _ in range(3)]
        server.kill()
        server.restart()
        for name, dump in behind.items():
            bench.raw.restore(name, 0, dump)
        fences += [field.begin().fence for _ in range(2)]
        assert fences == sorted(set(fences))
        bench.close()


def fields(bench: RedisBench, name: bytes) -> dict[bytes, bytes]:
    return bench.raw.hgetall(name)  # type: ignore[return-value]
