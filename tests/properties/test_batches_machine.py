"""Attempts that are followed, die and ask late, among consumers that know nothing of them, at the specification and
at a real Redis: every reply and what becomes of each key stays the same, step by step."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from holdfast.dedup.claims import Claim, ClaimKey, Token
from holdfast.dedup.memory_spark_batches import MemoryBatches
from holdfast.dedup.redis_spark_batches import RedisBatches
from holdfast.dedup.spark_batches import Attempt, BatchId, Begun, Elsewhere, Finished
from tests.harness.stores import MemoryBench, RedisBench
from tests.tiers import examples

if TYPE_CHECKING:
    from holdfast.dedup.memory_session import MemorySession
    from holdfast.dedup.redis_session import RedisSession

TEXTS = ["k", "l", "m"]
KEYS = [ClaimKey("sink", key) for key in TEXTS]

key_lists = st.lists(st.sampled_from(TEXTS), unique=True, min_size=1, max_size=3)
batch_ids = st.builds(BatchId, st.just("sink"), st.sampled_from(["q", "q", "q2"]), st.integers(0, 2))
#: Which of the attempts that there were; the last ones most often.
which = st.integers(0, 5).map(lambda n: n // 2)
consumers = st.integers(0, 1)


class Sessions(NamedTuple):
    memory: MemorySession
    redis: RedisSession


class Attempts(NamedTuple):
    memory: Attempt
    redis: Attempt


class BatchesMachine(RuleBasedStateMachine):
    url: ClassVar[str]
    settings: ClassVar[dict[str, Any]]

    def __init__(self) -> None:
        super().__init__()
        self.memory, self.redis = MemoryBench(), RedisBench(self.url, known=KEYS, **self.settings)
        self.batches = (MemoryBatches(self.memory.claims), RedisBatches.of(self.redis.claims))
        self.consumers = [self.new(), self.new()]
        self.attempts: list[Attempts] = []

    def new(self) -> Sessions:
        return Sessions(self.memory.begin(), self.redis.begin())

    def attempt(self, back: int) -> Attempts:
        return self.attempts[max(0, len(self.attempts) - 1 - back)]

    def begun(self, of: BatchId, sessions: Sessions, *, beside: bool) -> tuple[object, object]:
        expected, found = self.batches[0].begin(of, sessions.memory), self.batches[1].begin(of, sessions.redis)
        assert plain(found) == plain(expected)
        if beside and isinstance(expected, Finished) and isinstance(found, Finished):
            expected = self.batches[0].begin(of, sessions.memory, origin="o", beside=expected.attempt)
            found = self.batches[1].begin(of, sessions.redis, origin="o", beside=found.attempt)
            assert plain(found) == plain(expected)
        return expected, found

    def both(self, method: str, back: int, *args: Any) -> None:
        memory, redis = self.attempt(back)
        expected = getattr(self.batches[0], method)(memory, *args)
        found = getattr(self.batches[1], method)(redis, *args)
        assert found == expected, f"{method}{args}: {found}, and the specification says {expected}"

    @rule(of=batch_ids, twice=st.booleans(), beside=st.booleans())
    def begin(self, of: BatchId, twice: bool, beside: bool) -> None:
        sessions = self.new()
        expected, found = self.begun(of, sessions, beside=beside)
        if twice:
            expected, found = self.begun(of, sessions, beside=beside)
        if isinstance(expected, Begun) and isinstance(found, Begun):
            self.attempts.append(Attempts(expected.attempt, found.attempt))

    @precondition(lambda self: self.attempts)
    @rule(back=which, keys=key_lists)
    def claim(self, back: int, keys: list[str]) -> None:
        self.both("claim", back, keys)

    @precondition(lambda self: self.attempts)
    @rule(back=which)
    def finish(self, back: int) -> None:
        self.both("finish", back)

    @precondition(lambda self: self.attempts)
    @rule(back=which)
    def fate(self, back: int) -> None:
        self.both("fate", back)

    @precondition(lambda self: self.attempts)
    @rule(back=which)
    def give_up(self, back: int) -> None:
        memory, redis = self.attempt(back)
        self.batches[0].give_up(memory.session)
        self.batches[1].give_up(redis.session)

    @precondition(lambda self: self.attempts)
    @rule(back=which)
    def dies(self, back: int) -> None:
        memory, redis = self.attempt(back)
        self.memory.kill(memory.session)
        self.redis.kill(redis.session)

    @rule(consumer=consumers, key=st.sampled_from(KEYS), finish=st.booleans())
    def consume(self, consumer: int, key: ClaimKey, finish: bool) -> None:
        memory, redis = self.consumers[consumer]
        claim = [Claim(key, Token("orders-0", 7, 1))]
        assert redis.claim(claim) == memory.claim(claim)
        if finish:
            assert redis.finish(claim) == memory.finish(claim)

    @rule(consumer=consumers)
    def consumer_dies(self, consumer: int) -> None:
        memory, redis = self.consumers[consumer]
        self.memory.kill(memory.id)
        self.redis.kill(redis.id)
        self.consumers[consumer] = self.new()

    @invariant()
    def the_same_keys_are_done_and_claimed(self) -> None:
        expected, found = self.memory.view().keys, self.redis.view().keys
        assert {key: held and held[1] for key, held in found.items()} == {
            key: held and held[1] for key, held in expected.items()
        }
        assert self.batches[0].done("sink", TEXTS) == self.batches[1].done("sink", TEXTS)

    def teardown(self) -> None:
        self.memory.close()
        self.redis.close()


def plain(reply: object) -> object:
    """Without what differs from store to store: sessions' ids, and milliseconds."""
    if isinstance(reply, Begun):
        return Begun(nameless(reply.attempt), reply.last and nameless(reply.last))
    if isinstance(reply, Finished):
        return reply._replace(attempt=nameless(reply.attempt))
    return reply._replace(left_s=0.0) if isinstance(reply, Elsewhere) else reply


def nameless(attempt: Attempt) -> Attempt:
    return replace(attempt, session="", born=0)


@pytest.mark.parametrize("hash_keys", [False, True])
def test_redis_does_what_the_specification_says(redis_url: str, hash_keys: bool) -> None:
    class Machine(BatchesMachine):
        url: ClassVar[str] = redis_url
        settings: ClassVar[dict[str, Any]] = {"hash_keys": hash_keys}

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=examples(30),
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )
