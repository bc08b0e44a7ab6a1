"""What a loop commits by hand, by its `KafkaConsumer`: over a broker in memory, with a store that goes away."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from holdfast.adapters.kafka import loop_offsets
from holdfast.adapters.kafka.loop_offsets import LoopOffsets
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from tests.harness.engine import FlakyClaims, numbered, partition
from tests.harness.waiting import until
from tests.unit.engine.test_driven import Loops, end, take, taken

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from holdfast.adapters.kafka.messages import MessageSource
    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.records import Partition


@pytest.fixture
def store() -> FlakyClaims:
    return FlakyClaims()


@pytest.fixture
def loops(store: FlakyClaims) -> Iterator[Loops]:
    made = Loops(claims=store)
    yield made
    store.come_back()
    for each in made.made:
        end(each)


class Committing:
    """A loop's commits, with offsets, and what the broker was asked."""

    def __init__(self, loop: Driven) -> None:
        source = loop.family.source
        assert isinstance(source, MemoryPartitionedSource)
        self.asked: list[dict[Partition, int]] = []
        source.commit_now = self._commit_now  # type: ignore[attr-defined]
        self._loop, self._offsets = loop, LoopOffsets(loop, cast("MessageSource", source))

    def _commit_now(self, offsets: Mapping[Partition, int]) -> list[TopicPartition]:
        self.asked.append(dict(offsets))
        return [TopicPartition(each.topic, each.number, offset) for each, offset in offsets.items()]

    def commit(self, offset: int | None) -> list[tuple[int, int]]:
        with self._loop.lock:
            named = None if offset is None else [TopicPartition("orders", 0, offset)]
            below = self._offsets.done_below(named)
            if below is None and self._loop.done_when != "explicit":
                self._loop.end_all()
            replies = self._offsets.commit(below, asynchronous=False)
        assert replies is not None
        return [(each.partition, each.offset) for each in replies]


def refused(commits: Committing, offset: int | None) -> int:
    with pytest.raises(KafkaException) as raised:
        commits.commit(offset)
    return cast("int", raised.value.args[0].code())


def test_what_is_done_is_committed_when_the_store_is_back(loops: Loops, store: FlakyClaims) -> None:
    loops.produce(*numbered("r", range(5)))
    loop = loops.loop("commit")
    commits = Committing(loop)
    taken(loop, 5)
    store.go_down(["mark"])
    threading.Timer(0.2, store.come_back).start()
    assert commits.commit(3) == [(0, 3)]
    assert commits.asked == [{partition(0): 3}]


@pytest.mark.parametrize("offset", [3, None])
def test_without_an_answer_of_the_store_it_raises_as_the_client_does_without_one_of_the_broker(
    loops: Loops, store: FlakyClaims, monkeypatch: pytest.MonkeyPatch, offset: int | None
) -> None:
    loops.produce(*numbered("r", range(5)))
    loop = loops.loop("commit")
    commits = Committing(loop)
    taken(loop, 5)
    store.go_down()
    with monkeypatch.context() as patched:
        patched.setattr(loop_offsets, "_ASK_S", 0.1)
        assert refused(commits, offset) == KafkaError._TIMED_OUT
    assert commits.asked == []
    store.come_back()
    assert commits.commit(offset) == [(0, offset or 5)]


def test_what_the_loop_was_not_given_is_no_success(loops: Loops) -> None:
    loops.produce(*numbered("r", range(5)))
    loop = loops.loop("commit")
    commits = Committing(loop)
    until(lambda: take(loop, 2) == ["r0", "r1"])
    assert refused(commits, 4) == KafkaError._ASSIGNMENT_LOST
    assert commits.asked == []
    assert commits.commit(2) == [(0, 2)]


def test_what_another_thread_has_in_hand_holds_an_explicit_loops_commit_back(loops: Loops) -> None:
    loops.produce(*numbered("r", range(5)))
    loop = loops.loop("explicit")
    commits = Committing(loop)
    taken(loop, 5)
    loop.end(partition(0), 0)
    loop.end(partition(0), 2)
    assert commits.commit(None) == [(0, 1)]


@pytest.mark.parametrize("offset", [3, None])
def test_what_was_lost_is_not_nothing_to_commit(loops: Loops, store: FlakyClaims, offset: int | None) -> None:
    """Another member has the partition, which this loop has not heard of: it was slow."""
    loops.produce(*numbered("r", range(5)))
    loop, other = loops.loop("commit"), loops.loop("commit")
    source, its = loop.family.source, other.family.source
    assert isinstance(source, MemoryPartitionedSource)
    assert isinstance(its, MemoryPartitionedSource)
    loops.broker.group("g").aim({source: [partition(0)], its: []})
    until(lambda: take(loop, 3) == ["r0", "r1", "r2"], meanwhile=lambda: take(other))
    assert loop.parts.sessions.session is not None
    store.inner.expire(loop.parts.sessions.session.id)
    loop.parts.sessions.session.renew()
    loops.broker.group("g").lose(source, partition(0))
    loops.broker.group("g").aim({source: [], its: [partition(0)]})
    taken(other, 5)
    commits = Committing(loop)
    assert refused(commits, offset) == KafkaError._ASSIGNMENT_LOST
    until(lambda: take(loop) == [] and partition(0) not in loop.family.partitions.assignment)
    # Said once of what was returned; always of what is named.
    assert refused(commits, offset) == (KafkaError._NO_OFFSET if offset is None else KafkaError._ASSIGNMENT_LOST)
    assert commits.asked == []
