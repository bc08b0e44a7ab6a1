"""A loop that seeks: what it gets next, what it may still say of what it has, and what its successor gets."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from holdfast import MemoryClaims
from holdfast.errors import SourceUnavailable
from tests.harness.engine import FlakyClaims, numbered, partition
from tests.harness.waiting import until
from tests.tiers import first_and_full
from tests.unit.engine.test_driven import Loops, end, records, take

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.plugin.own_loop.user_loop import DoneWhen

MODES: list[DoneWhen] = ["next_poll", "commit", "explicit"]


@pytest.fixture
def loops() -> Iterator[Loops]:
    made = Loops()
    yield made
    for each in made.made:
        end(each)


def seek(loop: Driven, offset: int) -> None:
    with loop.lock, loop.whole():
        loop.read_from(partition(), offset)


def got(loop: Driven, count: int) -> list[int]:
    """The offsets of the next records."""
    found: list[int] = []
    until(lambda: len(found) >= count, meanwhile=lambda: found.extend(each.offset for each in records(loop, 1)))
    return found


def commit_below(loop: Driven, offset: int) -> None:
    with loop.lock, loop.whole():
        loop.end_below(partition(), offset)


def settled(loop: Driven) -> None:
    """Until the store knows all that the loop has said; the loop takes nothing meanwhile."""

    def all_said() -> bool:
        with loop.lock, loop.whole():
            loop.collect()
            loop.settle()
        return not loop.parts.settling.waiting

    until(all_said)


def crash(loops: Loops, loop: Driven) -> None:
    """It is gone, with what it had."""
    settled(loop)
    session = loop.parts.sessions.session
    assert session is not None
    inner = loops.claims.inner if isinstance(loops.claims, FlakyClaims) else loops.claims
    assert isinstance(inner, MemoryClaims)
    inner.expire(session.id)
    source: Any = loop.family.source
    loops.broker.group("g").lose(source)
    loops.made.remove(loop)


def give(loops: Loops, loop: Driven) -> None:
    source: Any = loop.family.source
    loops.broker.group("g").aim({source: [partition()]})


def successors(loops: Loops, done_when: DoneWhen = "commit") -> list[int]:
    """What the next owner gets of the log."""
    loop = loops.loop(done_when)
    give(loops, loop)
    loops.produce("the end")
    last = loops.broker.logs[partition()].end - 1
    found: list[int] = []
    until(lambda: last in found, meanwhile=lambda: found.extend(each.offset for each in records(loop)))
    return found[:-1]


@pytest.mark.parametrize("done_when", ["commit", "explicit"])
@pytest.mark.parametrize("to", [0, 3, 5, 8], ids=["to the start", "backwards", "to its own position", "forwards"])
def test_a_seek_says_nothing_of_what_is_done(loops: Loops, done_when: DoneWhen, to: int) -> None:
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop(done_when)
    assert got(loop, 5) == [0, 1, 2, 3, 4]
    seek(loop, to)
    assert got(loop, 2) == [to, to + 1]
    crash(loops, loop)
    assert successors(loops) == list(range(10))


@pytest.mark.parametrize("done_when", ["commit", "explicit"])
def test_what_was_returned_before_a_seek_can_still_be_ended(loops: Loops, done_when: DoneWhen) -> None:
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop(done_when)
    got(loop, 5)
    seek(loop, 4)
    assert got(loop, 1) == [4]
    if done_when == "commit":
        commit_below(loop, 3)
    else:
        for offset in range(3):
            loop.end(partition(), offset)
    settled(loop)
    crash(loops, loop)
    assert successors(loops) == list(range(3, 10))


def test_a_seek_back_to_the_last_record_tries_it_again_where_the_next_poll_ends_it(loops: Loops) -> None:
    loops.produce(*numbered("r", range(3)))
    loop = loops.loop("next_poll")
    assert got(loop, 2) == [0, 1]
    seek(loop, 1)
    assert got(loop, 2) == [1, 2]
    crash(loops, loop)
    assert successors(loops) == [2]


def test_what_a_seek_passes_over_is_done_with_what_is_ended_behind_it(loops: Loops) -> None:
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("commit")
    assert got(loop, 2) == [0, 1]
    seek(loop, 6)
    assert got(loop, 1) == [6]
    commit_below(loop, 7)
    crash(loops, loop)
    assert successors(loops) == [7, 8, 9]


def test_what_was_given_back_is_not_passed_over(loops: Loops) -> None:
    """As of an asyncio loop's poll that was cancelled: the loop has not had it."""
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("explicit")
    assert got(loop, 5) == [0, 1, 2, 3, 4]
    loop.again(partition(), 3)
    seek(loop, 8)
    assert got(loop, 2) == [3, 8]
    for offset in (0, 1, 2, 4, 8):
        loop.end(partition(), offset)
    crash(loops, loop)
    assert {3, 9} <= set(successors(loops)) <= {3, 5, 6, 7, 9}


def test_what_was_done_above_a_seek_is_replayed_by_a_successor_too(loops: Loops) -> None:
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("explicit")
    got(loop, 8)
    for offset in (1, 2, 5, 6):
        loop.end(partition(), offset)
    settled(loop)
    seek(loop, 4)
    assert got(loop, 2) == [4, 5]
    crash(loops, loop)
    assert successors(loops) == [0, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("below", [0, 2], ids=["behind an open one", "at the watermark"])
def test_what_has_ended_and_is_not_marked_yet_comes_again_after_a_seek(loops: Loops, below: int) -> None:
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("explicit")
    assert got(loop, 5) == [0, 1, 2, 3, 4]
    for offset in range(below):
        loop.end(partition(), offset)
    settled(loop)
    for offset in (2, 3, 4):
        loop.end(partition(), offset)
    seek(loop, 3)
    assert got(loop, 2) == [3, 4]
    crash(loops, loop)
    assert set(range(3, 10)) <= set(successors(loops))


def test_a_replay_is_committed_before_its_partition_can_go(loops: Loops) -> None:
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("explicit", commit_interval_s=60.0)
    got(loop, 8)
    for offset in range(8):
        loop.end(partition(), offset)
    settled(loop)
    seek(loop, 6)
    assert loops.committed() == 6


def test_a_replay_of_which_the_store_never_heard_is_the_next_owners() -> None:
    """Its session ends before the store answers: the group's offset alone says so."""
    store = FlakyClaims()
    loops = Loops(claims=store)
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("explicit")
    got(loop, 8)
    for offset in range(8):
        loop.end(partition(), offset)
    settled(loop)
    store.go_down(["drop"])
    seek(loop, 2)
    assert loops.committed() == 2
    crash(loops, loop)
    store.come_back()
    assert successors(loops) == [2, 3, 4, 5, 6, 7, 8, 9]
    end(loop)


def test_a_commit_of_before_a_replay_that_comes_late_takes_nothing_of_it_away(loops: Loops) -> None:
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("explicit")
    got(loop, 8)
    for offset in range(8):
        loop.end(partition(), offset)
    until(lambda: take(loop, 1) is not None and loops.committed() == 8)
    group = loops.broker.group("g")
    before = group.committed[partition()]
    seek(loop, 2)
    assert got(loop, 1) == [2]
    group.committed[partition()] = before
    crash(loops, loop)
    assert successors(loops) == [2, 3, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("done_when", MODES)
def test_a_seek_to_where_the_loop_stands_fetches_nothing_anew(loops: Loops, done_when: DoneWhen) -> None:
    """Loops do it after each pause."""
    loops.produce(*numbered("r", range(20)))
    loop = loops.loop(done_when)
    source: Any = loop.family.source
    assert got(loop, 5) == [0, 1, 2, 3, 4]
    source.fail("seek", *[SourceUnavailable("no")] * 1000)
    seek(loop, 5)
    assert got(loop, 5) == [5, 6, 7, 8, 9]


def test_a_seek_while_the_store_is_away_is_made_when_it_is_back() -> None:
    store = FlakyClaims()
    loops = Loops(claims=store)
    loops.produce(*numbered("r", range(10)))
    loop = loops.loop("explicit")
    got(loop, 8)
    loop.end(partition(), 6)
    settled(loop)
    store.go_down()
    loop.end(partition(), 5)
    until(lambda: take(loop) == [] and loop.parts.sessions.stalled)
    seek(loop, 4)
    assert take(loop, timeout_s=0.02) == []
    store.come_back()
    assert got(loop, 3) == [4, 5, 6]
    end(loop)


def test_a_partition_that_is_not_taken_over_yet_is_moved_in_when_it_is(loops: Loops) -> None:
    """What its former owner had not done is not lost by that."""
    loops.produce(*numbered("r", range(10)))
    first = loops.loop("commit")
    got(first, 6)
    commit_below(first, 2)
    settled(first)
    give(loops, first)
    second = loops.loop("commit")
    source: Any = second.family.source
    source.fail("committed", *[SourceUnavailable("no leader")] * 1000)
    crash(loops, first)
    give(loops, second)
    until(lambda: take(second) == [] and partition() in second.family.partitions.assignment)
    seek(second, 5)
    assert take(second, timeout_s=0.02) == []
    source.forgive("committed")
    assert got(second, 1) == [5]
    crash(loops, second)
    assert successors(loops) == list(range(2, 10))


class Said:
    """What a loop has said of a log, by the client's rules."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.next = 0
        self.hand: set[int] = set()
        self.passed: set[int] = set()
        self.done: set[int] = set()
        #: All that was ever passed over: above what is open, its successor gets that.
        self.again: set[int] = set()

    def seek(self, to: int) -> None:
        if to != self.next:
            self.passed |= set(range(self.next, to)) - self.done
            self.again |= self.passed
            for each in (self.hand, self.passed, self.done):
                each.difference_update(range(to, self.length + 1))
        self.next = to

    def returned(self, offsets: list[int]) -> None:
        assert offsets == [each for each in range(self.next, self.length) if each not in self.done][: len(offsets)]
        self.hand |= set(offsets)
        self.next = offsets[-1] + 1

    def ended(self, ended: set[int]) -> None:
        behind = max(ended, default=0)
        self.done |= ended | {each for each in self.passed if each < behind}
        self.hand -= ended
        self.passed -= self.done


@pytest.mark.parametrize("done_when", ["commit", "explicit"])
@pytest.mark.parametrize("seed", first_and_full(range(12), 4))
def test_wherever_a_loop_seeks_its_successor_gets_what_it_has_not_said_to_be_done(
    loops: Loops, done_when: DoneWhen, seed: int
) -> None:
    chance = random.Random(f"{done_when} {seed}")
    said = Said(length=16)
    loops.produce(*numbered("r", range(said.length)))
    loop = loops.loop(done_when)
    for _ in range(14):
        step = chance.choice(["take", "take", "seek", "end"])
        left = [each for each in range(said.next, said.length) if each not in said.done]
        if step == "take" and left:
            said.returned(got(loop, chance.randint(1, min(4, len(left)))))
        elif step == "seek" and partition() in loop.family.owners:
            to = chance.choice([said.next, chance.randint(0, said.length - 1)])
            moves = to != said.next
            seek(loop, to)
            said.seek(to)
            if moves:  # a crash before it took effect forgets it, as with the client
                said.returned(got(loop, 1))
        elif step == "end" and said.hand and done_when == "explicit":
            offset = chance.choice(sorted(said.hand))
            loop.end(partition(), offset)
            settled(loop)
            said.ended({offset})
        elif step == "end" and said.hand:
            below = chance.choice(sorted(said.hand)) + 1
            commit_below(loop, below)
            settled(loop)
            said.ended({each for each in said.hand if each < below})
    crash(loops, loop)
    got_again = successors(loops)
    not_done = {each for each in range(said.length) if each not in said.done}
    assert (
        not_done
        <= set(got_again)
        <= not_done | {each for each in said.again if each > min(not_done, default=said.length)}
    )
    assert got_again == sorted(got_again)


def test_what_a_seek_passes_over_is_not_far_ahead_and_stands_in_nobodys_way(loops: Loops) -> None:
    loops.produce(*numbered("r", range(60)))
    loop = loops.loop("commit", max_ahead=20)
    assert got(loop, 2) == [0, 1]
    seek(loop, 50)
    assert got(loop, 10) == list(range(50, 60))
