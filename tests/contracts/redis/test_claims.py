"""The contract of claims.py, row by row, on memory, on a real Redis, and with its scripts in this process."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from holdfast.dedup.claims import (
    NEVER,
    Acquired,
    AskInHand,
    Claim,
    ClaimKey,
    Drop,
    InHand,
    LetGo,
    Mark,
    Token,
    Verdict,
    Wait,
)
from holdfast.errors import StoreUnavailable
from tests.harness.stores import ClusterBench, LuaBench, MemoryBench, RedisBench, on_its_way

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.dedup.claims import ClaimSession
    from tests.harness.stores import Bench

P = "orders-0"
NEW, DONE, BUSY, FENCED = Verdict.NEW, Verdict.DONE, Verdict.BUSY, Verdict.FENCED


@pytest.fixture(
    params=[
        "memory",
        *(
            f"{server}{layout}"
            for server in ("redis", "lua")
            for layout in ("", " in 3 shards", " with digests", " with digests in one bucket")
        ),
        *(
            pytest.param(f"cluster{layout}", marks=pytest.mark.full)
            for layout in ("", " in 3 shards", " with digests in 3 shards")
        ),
    ]
)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made: Bench
    kind = request.param.partition(" ")[0]
    if kind == "memory":
        made = MemoryBench()
    else:
        url = ""
        if kind == "cluster":
            url = request.getfixturevalue("redis_cluster").url
        elif kind == "redis":
            url = request.getfixturevalue("redis_url")
        made = {"lua": LuaBench, "redis": RedisBench, "cluster": ClusterBench}[kind](
            url,
            shards=3 if "3" in request.param else 1,
            hash_keys="digests" in request.param,
            keys_expected=1 if "one bucket" in request.param else 1_000_000,
        )
    yield made
    made.close()


def own(session: ClaimSession, partition: str = P) -> Acquired:
    [reply] = session.acquire([partition])
    assert isinstance(reply, Acquired), reply
    return reply._replace(born_ms=0, begun=False, since=NEVER)  # of which there are tests of their own


def claim(key: str, offset: int = 0, *, partition: str = P, epoch: int = 1, handler: str = "h") -> Claim:
    return Claim(ClaimKey(handler, key), Token(partition, offset, epoch))


def mark(session: ClaimSession, epoch: int, offsets: Sequence[int], watermark: int = 0) -> set[int]:
    [fenced] = session.mark([Mark(P, epoch, watermark, offsets)])
    return set(fenced)


class TestAcquire:
    def test_a_first_owner_gets_epoch_one_and_nothing_done(self, bench: Bench) -> None:
        assert own(bench.begin()) == Acquired(1, 0, frozenset(), frozenset())

    def test_waits_while_another_session_that_lives_owns(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        own(a)
        assert b.acquire([P]) == [Wait.WAIT]
        assert mark(a, 1, [0]) == set()

    def test_takes_over_from_a_dead_owner_who_then_is_fenced(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        own(a)
        bench.kill(a.id)
        assert own(b).epoch == 2
        assert mark(a, 1, [0, 1]) == {0, 1}

    def test_takes_over_from_an_owner_that_let_go_and_from_one_that_ended(self, bench: Bench) -> None:
        a, b, c = bench.begin(), bench.begin(), bench.begin()
        a.let_go([LetGo(P, own(a).epoch, [])])
        assert own(b).epoch == 2
        b.end()
        assert own(c).epoch == 3

    def test_a_dead_session_gets_nothing_and_learns_that_it_is_lost(self, bench: Bench) -> None:
        a = bench.begin()
        bench.kill(a.id)
        assert a.acquire([P]) == [FENCED]
        assert not a.live()

    def test_asked_again_by_the_owner_raises_the_epoch(self, bench: Bench) -> None:
        a = bench.begin()
        assert [own(a).epoch, own(a).epoch] == [1, 2]
        assert mark(a, 1, [0]) == {0}

    def test_answers_for_many_partitions_in_their_order(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        names = [f"orders-{n}" for n in range(20)]
        for name in names[::3]:
            own(a, name)
        replies = b.acquire(names)
        assert [isinstance(reply, Wait) for reply in replies] == [n % 3 == 0 for n in range(20)]


class TestFailover:
    """The acquire is lost, and the session is not: nobody can have taken over."""

    def test_a_position_stays_with_who_had_it(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        fail_over = bench.replica()
        epoch = own(a).epoch
        fail_over()
        assert mark(a, epoch, [5, 7], watermark=3) == set()
        assert b.acquire([P]) == [Wait.WAIT]
        a.let_go([LetGo(P, epoch, [9])])
        assert own(b) == Acquired(2, 3, frozenset({5, 7}), frozenset({9}))

    def test_what_is_in_hand_is_handed_over(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        a.let_go([LetGo(P, own(a).epoch, [])])
        fail_over = bench.replica()
        epoch = own(a).epoch
        fail_over()
        a.let_go([LetGo(P, epoch, [4])])
        assert own(b) == Acquired(3, 0, frozenset(), frozenset({4}))

    def test_so_it_does_after_an_owner_that_crashed(self, bench: Bench) -> None:
        dead, a = bench.begin(), bench.begin()
        own(dead)
        bench.kill(dead.id)
        fail_over = bench.replica()
        epoch = own(a).epoch
        fail_over()
        assert a.poll([AskInHand(P, epoch, [1])]) == [InHand(frozenset(), frozenset({1}))]
        assert a.drop([Drop(P, epoch, 8)]) == [True]
        assert mark(a, epoch, [9]) == set()

    def test_who_lets_go_leaves_the_marks_that_were_lost(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        fail_over = bench.replica()
        assert mark(a, epoch, [0, 1, 7], watermark=2) == set()
        fail_over()
        assert a.exchange([], [Mark(P, epoch, 2, [9])], []).fenced == [frozenset()]
        a.let_go([LetGo(P, epoch, [5])])
        assert own(b) == Acquired(2, 2, frozenset({7, 9}), frozenset({5}))

    def test_but_none_of_before_a_reset(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        fail_over = bench.replica()
        assert mark(a, epoch, [6, 7], watermark=6) == set()
        fail_over()
        assert a.drop([Drop(P, epoch, 3)]) == [True]
        assert mark(a, epoch, [4]) == set()
        a.let_go([LetGo(P, epoch, [])])
        assert own(b) == Acquired(2, 3, frozenset({4}), frozenset())

    def test_nor_where_another_took_over(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        fail_over = bench.replica()
        assert mark(a, epoch, [6, 7], watermark=6) == set()
        fail_over()
        bench.kill(a.id)
        assert own(b).epoch == 2
        a.let_go([LetGo(P, epoch, [])])
        assert own(b) == Acquired(3, 0, frozenset(), frozenset())

    def test_but_not_from_another_that_lives_and_not_to_a_dead_one(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        fail_over = bench.replica()
        own(a)
        epoch = own(a).epoch
        fail_over()
        bench.kill(a.id)
        assert mark(a, epoch, [0]) == {0}
        own(b)
        assert mark(a, epoch, [0]) == {0}
        assert b.poll([AskInHand(P, 1, [0])]) == [InHand(frozenset(), frozenset({0}))]


class TestMark:
    def test_what_is_marked_is_done_for_the_next_owner(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        assert mark(a, epoch, [0, 1, 2, 5, 255, 256, 257, 1000, 2**40], watermark=3) == set()
        a.let_go([LetGo(P, epoch, [])])
        assert own(b) == Acquired(2, 3, frozenset({5, 255, 256, 257, 1000, 2**40}), frozenset())

    def test_the_owner_may_leap_over_what_it_never_marked(self, bench: Bench) -> None:
        a = bench.begin()
        epoch = own(a).epoch
        mark(a, epoch, [10, 300, 70_000])
        mark(a, epoch, [], watermark=2**50)
        mark(a, epoch, [2**50 + 1])
        assert own(a) == Acquired(2, 2**50, frozenset({2**50 + 1}), frozenset())

    def test_the_watermark_never_falls(self, bench: Bench) -> None:
        a = bench.begin()
        epoch = own(a).epoch
        mark(a, epoch, [7], watermark=7)
        mark(a, epoch, [3], watermark=2)
        assert own(a) == Acquired(2, 7, frozenset({7}), frozenset())

    def test_a_dead_session_still_marks_while_nobody_took_over(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        bench.kill(a.id)
        assert mark(a, epoch, [0, 1], watermark=2) == set()
        assert own(b).watermark == 2

    def test_a_former_owner_marks_exactly_what_it_handed_over_and_moves_no_watermark(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        a.let_go([LetGo(P, epoch, [4, 6])])
        assert own(b).running == {4, 6}
        assert mark(a, epoch, [4, 5], watermark=100) == {5}
        assert own(b) == Acquired(3, 0, frozenset({4}), frozenset({6}))

    def test_what_is_done_is_ok_for_anybody(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        mark(a, own(a).epoch, [0, 9], watermark=1)
        assert mark(b, 17, [0, 9, 10]) == {10}

    def test_asked_again_says_the_same(self, bench: Bench) -> None:
        a = bench.begin()
        epoch = own(a).epoch
        assert mark(a, epoch, [1, 2]) == mark(a, epoch, [1, 2]) == set()
        assert own(a).done == {1, 2}

    def test_offsets_that_are_not_ascending_mark_nothing_else(self, bench: Bench) -> None:
        a = bench.begin()
        mark(a, own(a).epoch, [5, 5, 8, 7])
        assert own(a).done == {5, 7, 8}

    def test_many_marks_of_one_partition_in_one_call_are_applied_in_order(self, bench: Bench) -> None:
        a = bench.begin()
        former, epoch = own(a).epoch, own(a).epoch
        assert a.mark([Mark(P, epoch, 0, [3]), Mark(P, former, 50, [3, 4]), Mark(P, epoch, 1, [5])]) == [
            frozenset(),
            {4},
            frozenset(),
        ]
        assert own(a) == Acquired(3, 1, frozenset({3, 5}), frozenset())


class TestHandover:
    def test_hands_are_added_to_those_of_earlier_owners(self, bench: Bench) -> None:
        a, b, c = bench.begin(), bench.begin(), bench.begin()
        a.let_go([LetGo(P, own(a).epoch, [1, 2])])
        b.let_go([LetGo(P, own(b).epoch, [3])])
        assert own(c).running == {1, 2, 3}

    def test_hands_that_are_done_are_not_handed_over(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        mark(a, epoch, [0, 5], watermark=1)
        a.let_go([LetGo(P, epoch, [0, 5, 6])])
        assert own(b).running == {6}

    def test_letting_go_of_another_ownership_changes_nothing(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        own(a)
        own(a)
        a.let_go([LetGo(P, 1, [3])])
        b.let_go([LetGo(P, 2, [3]), LetGo(P, 0, [3])])
        assert b.acquire([P]) == [Wait.WAIT]
        assert own(a).running == set()

    def test_epoch_zero_lets_go_of_an_acquire_whose_answer_never_came(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        own(a)
        a.let_go([LetGo(P, 0, [8])])
        assert own(b) == Acquired(2, 0, frozenset(), frozenset({8}))
        assert mark(a, 1, [8]) == set()

    def test_poll_tells_done_yours_and_still_running(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        a.let_go([LetGo(P, epoch, [1, 2, 3])])
        mine = own(b).epoch
        mark(a, epoch, [1])
        a.release([Token(P, 2, epoch)])
        assert b.poll([AskInHand(P, mine, [1, 2, 3])]) == [InHand(frozenset({1}), frozenset({2}))]

    def test_poll_takes_over_from_a_dead_holder_who_then_is_fenced(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        a.let_go([LetGo(P, epoch, [1])])
        mine = own(b).epoch
        bench.kill(a.id)
        assert b.poll([AskInHand(P, mine, [1])]) == [InHand(frozenset(), frozenset({1}))]
        assert mark(a, epoch, [1]) == {1}

    def test_a_dead_holder_may_mark_until_it_is_taken_over(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        a.let_go([LetGo(P, epoch, [1])])
        mine = own(b).epoch
        bench.kill(a.id)
        assert mark(a, epoch, [1]) == set()
        assert b.poll([AskInHand(P, mine, [1])]) == [InHand(frozenset({1}), frozenset())]

    def test_poll_by_another_than_the_owner_is_fenced_and_takes_nothing(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        a.let_go([LetGo(P, epoch, [1])])
        own(b)
        bench.kill(a.id)
        assert a.poll([AskInHand(P, epoch, [1])]) == [FENCED]
        assert mark(a, epoch, [1]) == set()

    def test_release_is_of_one_ownership_only(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        a.let_go([LetGo(P, own(a).epoch, [1])])
        a.let_go([LetGo(P, own(a).epoch, [2])])
        a.release([Token(P, 1, 2), Token(P, 2, 1), Token(P, 2, 2)])
        assert own(b).running == {1}

    def test_a_reset_forgets_what_is_done_and_no_fence(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        [first] = a.acquire([P])
        assert isinstance(first, Acquired)
        assert first.born_ms > 0
        assert a.drop([Drop(P, first.epoch, 3)]) == [True]
        a.let_go([LetGo(P, first.epoch, [])])
        [second] = b.acquire([P])
        assert isinstance(second, Acquired)
        assert (second.epoch, second.watermark) == (2, 3)
        assert second.born_ms >= first.born_ms

    def test_many_partitions_are_let_go_and_released_in_one_call(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        names = [f"orders-{n}" for n in range(60)]
        a.acquire(names)
        a.let_go([LetGo(name, 1, [n, n + 1]) for n, name in enumerate(names)])
        a.release([Token(name, n, 1) for n, name in enumerate(names)])
        assert [own(b, name) for name in names] == [Acquired(2, 0, frozenset(), frozenset({n + 1})) for n in range(60)]
        polls = [AskInHand(name, 2, [n, n + 1]) for n, name in enumerate(names)]
        assert b.poll(polls) == [InHand(frozenset(), frozenset({n})) for n in range(60)]

    def test_the_owner_that_does_a_waited_for_record_ends_the_wait(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        a.let_go([LetGo(P, epoch, [1, 9])])
        mine = own(b).epoch
        mark(b, mine, [9], watermark=2)
        assert own(b) == Acquired(3, 2, frozenset({9}), frozenset())


def begun(session: ClaimSession) -> bool:
    [reply] = session.acquire([P])
    assert isinstance(reply, Acquired), reply
    return reply.begun


class TestBegun:
    """A group that stands at 0 is told from one that nobody has ever seen there."""

    def test_who_has_acquired_a_position_and_no_more_has_not_begun(self, bench: Bench) -> None:
        a, b, c = (bench.begin() for _ in range(3))
        assert not begun(a)
        a.let_go([LetGo(P, 1, ())])
        assert not begun(b)
        bench.kill(b.id)
        assert not begun(c)

    def test_a_drop_to_the_first_record_begins(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        assert not begun(a)
        assert a.drop([Drop(P, 1, 0)]) == [True]
        bench.kill(a.id)
        assert begun(b)

    def test_a_mark_of_no_record_begins_and_what_follows_does_not_change_that(self, bench: Bench) -> None:
        a, b, c = (bench.begin() for _ in range(3))
        assert not begun(a)
        assert mark(a, 1, []) == set()
        bench.kill(a.id)
        assert begun(b)
        b.let_go([LetGo(P, 2, [])])
        assert begun(c)

    def test_a_mark_of_who_does_not_own_it_begins_nothing(self, bench: Bench) -> None:
        a, b, c = (bench.begin() for _ in range(3))
        assert not begun(a)
        bench.kill(a.id)
        assert not begun(b)
        mark(a, 1, [])
        mark(c, 1, [])
        bench.kill(b.id)
        assert not begun(c)

    def test_what_was_let_go_in_hand_alone_is_not_begun_but_known(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        assert not begun(a)
        a.let_go([LetGo(P, 1, [4])])
        [reply] = b.acquire([P])
        assert isinstance(reply, Acquired)
        assert not reply.begun
        assert reply.running == {4}


class TestDrop:
    def test_forgets_what_is_done_and_running_from_there_on(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        mark(a, epoch, [7, 400], watermark=6)
        a.let_go([LetGo(P, epoch, [8, 500])])
        assert b.drop([Drop(P, own(b).epoch, 3)]) == [True]
        assert own(b) == Acquired(3, 3, frozenset(), frozenset(), again=501)
        assert mark(a, epoch, [8]) == {8}

    def test_how_far_it_was_known_is_remembered_until_the_position_is_forgotten(self, bench: Bench) -> None:
        a = bench.begin()
        mark(a, own(a).epoch, [255, 600], watermark=6)
        assert a.drop([Drop(P, own(a).epoch, 3)]) == [True]
        assert a.drop([Drop(P, own(a).epoch, 2)]) == [True]
        mark(a, own(a).epoch, [2], watermark=3)
        assert own(a).again == 601
        mark(a, own(a).epoch, [1000], watermark=700)
        assert a.drop([Drop(P, own(a).epoch, 0)]) == [True]
        assert own(a).again == 1001

    def test_all_below_is_done(self, bench: Bench) -> None:
        a = bench.begin()
        assert a.drop([Drop(P, own(a).epoch, 1_000_000)]) == [True]
        assert own(a) == Acquired(2, 1_000_000, frozenset(), frozenset())

    def test_of_another_ownership_is_fenced(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        former, epoch = own(a).epoch, own(a).epoch
        mark(a, epoch, [0], watermark=1)
        assert b.drop([Drop(P, epoch, 0)]) == [False]
        assert b.drop([Drop(P, epoch + 1, 0)]) == [False]
        assert a.drop([Drop(P, former, 0)]) == [False]
        assert own(a).watermark == 1

    def test_of_many_each_gets_its_own_answer(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        names = [f"orders-{number}" for number in range(20)]
        former = [own(a, name).epoch for name in names]
        for name in names[::2]:
            a.let_go([LetGo(name, 1, [])])
            own(b, name)
        drops = [Drop(name, epoch, 5 + number) for number, (name, epoch) in enumerate(zip(names, former, strict=True))]
        assert a.drop(drops) == [False, True] * 10
        assert [own(a, name).watermark for name in names[1::2]] == list(range(6, 26, 2))
        assert [own(b, name).watermark for name in names[::2]] == [0] * 10


class TestClaim:
    def test_a_key_is_new_once_and_done_after_finish(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        assert a.claim([claim("k")]) == [NEW]
        assert b.claim([claim("k", 1)]) == [BUSY]
        assert a.finish([claim("k")]) == [DONE]
        assert b.claim([claim("k", 1)]) == [DONE]

    def test_asked_again_by_the_same_record_is_new_again(self, bench: Bench) -> None:
        a = bench.begin()
        assert [a.claim([claim("k")]), a.claim([claim("k")])] == [[NEW], [NEW]]

    @pytest.mark.parametrize("other", [claim("k", 1), claim("k", epoch=2), claim("k", partition="orders-1")])
    def test_two_records_of_one_key_are_never_both_new(self, bench: Bench, other: Claim) -> None:
        a = bench.begin()
        assert a.claim([claim("k"), other]) == [NEW, BUSY]
        assert a.finish([other]) == [FENCED]
        assert a.finish([claim("k")]) == [DONE]

    def test_what_a_dead_session_held_is_taken_over_and_its_finish_is_fenced(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        a.claim([claim("k")])
        bench.kill(a.id)
        assert b.claim([claim("k", epoch=2)]) == [NEW]
        assert a.finish([claim("k")]) == [FENCED]
        a.unclaim([claim("k")])
        assert b.finish([claim("k", epoch=2)]) == [DONE]

    def test_a_dead_session_finishes_what_nobody_took_over(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        a.claim([claim("k")])
        bench.kill(a.id)
        assert a.finish([claim("k")]) == [DONE]
        assert b.claim([claim("k", 1)]) == [DONE]

    def test_a_dead_session_claims_nothing_and_learns_that_it_is_lost(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        bench.kill(a.id)
        assert a.claim([claim("k"), claim("l")]) == [FENCED, FENCED]
        assert not a.live()
        assert b.claim([claim("k", 1)]) == [NEW]

    def test_a_dead_session_does_not_finish_what_is_absent(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        bench.kill(a.id)
        assert a.finish([claim("k")]) == [FENCED]
        assert a.finish([claim("k")], ["1"]) == [FENCED]
        assert b.claim([claim("k", 1)]) == [NEW]

    def test_what_a_failover_lost_under_a_session_that_lives_is_done(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        fail_over = bench.replica()
        assert a.claim([claim("k"), claim("l", 1), claim("m", 2)]) == [NEW] * 3
        fail_over()
        assert a.finish([claim("k")]) == [DONE]
        assert a.finish([claim("l", 1)], ["7"]) == [NEW]
        assert b.claim([claim("k", 3), claim("l", 4)]) == [DONE, DONE]
        assert b.results([claim("l").key]) == ["7"]

    def test_what_a_failover_gave_back_to_a_dead_session_is_done_by_who_had_it(self, bench: Bench) -> None:
        dead, a = bench.begin(), bench.begin()
        dead.claim([claim("k"), claim("l", 1)])
        bench.kill(dead.id)
        fail_over = bench.replica()
        assert a.claim([claim("k", epoch=2), claim("l", 1, epoch=2)]) == [NEW, NEW]
        fail_over()
        assert a.finish([claim("k", epoch=2)]) == [DONE]
        assert a.finish([claim("l", 1, epoch=2)], ["7"]) == [NEW]
        assert a.results([claim("l").key]) == ["7"]

    def test_what_another_has_claimed_since_a_failover_is_fenced(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        fail_over = bench.replica()
        a.claim([claim("k")])
        fail_over()
        assert b.claim([claim("k", 1)]) == [NEW]
        assert a.finish([claim("k")]) == [FENCED]
        assert a.finish([claim("k")], ["1"]) == [FENCED]
        assert b.finish([claim("k", 1)]) == [DONE]

    def test_the_stores_id_stays_and_is_another_once_all_is_lost(self, bench: Bench) -> None:
        bench.begin()
        known = bench.claims.store_id
        bench.begin()
        assert known
        assert bench.claims.store_id == known
        bench.empty()
        bench.begin()
        assert bench.claims.store_id not in ("", known)

    def test_a_store_that_was_emptied_has_no_session_that_lives(self, bench: Bench) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        bench.empty()
        assert a.finish([claim("k")]) == [FENCED]

    def test_finish_asked_again_is_done(self, bench: Bench) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        assert [a.finish([claim("k")]), a.finish([claim("k")])] == [[DONE], [DONE]]

    def test_unclaim_gives_back_what_is_held_by_this_very_record_only(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        a.claim([claim("k")])
        b.unclaim([claim("k")])
        a.unclaim([claim("k", 1), claim("k", epoch=2)])
        assert b.claim([claim("k", 5)]) == [BUSY]
        a.unclaim([claim("k")])
        assert b.claim([claim("k", 5)]) == [NEW]

    def test_unclaim_does_not_undo_what_is_done(self, bench: Bench) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        a.finish([claim("k")])
        a.unclaim([claim("k")])
        assert a.claim([claim("k", 1)]) == [DONE]

    def test_scopes_do_not_meet(self, bench: Bench) -> None:
        a = bench.begin()
        scopes = [("a:b", "c"), ("a", "b:c"), ("a", ":b:c"), ("", "a:b:c"), ("a", "é"), ("a", "\udce9"), ("a", "\x00")]
        claims = [claim(key, n, handler=handler) for n, (handler, key) in enumerate(scopes)]
        assert a.claim(claims) == [NEW] * len(claims)

    def test_a_partition_of_any_name_is_told_from_others(self, bench: Bench) -> None:
        a = bench.begin()
        assert a.claim([claim("k", partition="x|1"), claim("k", partition="x")]) == [NEW, BUSY]

    def test_a_batch_of_many_is_answered_in_its_order(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        claims = [claim(f"k{n}", n) for n in range(2000)]
        a.claim(claims[::2])
        a.finish(claims[::4])
        wanted = [DONE if n % 4 == 0 else BUSY if n % 2 == 0 else NEW for n in range(2000)]
        assert b.claim(claims) == wanted

    def test_records_of_many_ownerships_in_one_call_hold_each_its_own(self, bench: Bench) -> None:
        session = bench.begin()
        asked = [claim(f"k{n}", n, partition=f"p {n % 300}", epoch=n % 7) for n in range(700)]
        assert session.claim(asked) == [NEW] * 700
        others = [
            each._replace(token=each.token._replace(partition=f"p {(n + 1) % 300}")) for n, each in enumerate(asked)
        ]
        assert session.claim(others) == [BUSY] * 700
        assert session.finish([*others[350:], *asked[349::-1]]) == [FENCED] * 350 + [DONE] * 350
        assert session.claim(others) == [DONE] * 350 + [BUSY] * 350

    def test_a_batch_of_many_is_given_back(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        claims = [claim(f"k{n}", n) for n in range(200)]
        a.claim(claims)
        a.unclaim(claims)
        assert b.claim(claims) == [NEW] * 200

    def test_a_partition_with_a_line_break_in_its_name_holds_nobody_elses_key(self, bench: Bench) -> None:
        a = bench.begin()
        with contextlib.suppress(ValueError):  # refusing it is as good
            a.claim([claim("k", partition="x\n1|2|y"), claim("l", partition="x")])
        bench.kill(a.id)
        assert a.finish([claim("k", partition="x")]) == [FENCED]

    def test_nothing_asked_is_nothing_answered(self, bench: Bench) -> None:
        a = bench.begin()
        assert (a.claim([]), a.finish([]), a.mark([]), a.poll([]), a.acquire([])) == ([], [], [], [], [])
        a.unclaim([])
        a.let_go([])
        a.release([])


class TestFence:
    def test_rises_with_each_claim_of_a_key_whoever_claims(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        fences = []
        for n in range(10):
            session = (a, b)[n % 2]
            [(verdict, fence)] = session.claim_fenced([claim("k", n)])
            assert verdict is NEW
            fences.append(fence)
            if n == 5:
                bench.kill(b.id)
                b = bench.begin()
            else:
                session.unclaim([claim("k", n)])
        assert fences == sorted(set(fences))
        assert fences[0] > 0

    def test_verdicts_are_those_of_claim_and_what_is_not_new_has_none(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        a.claim([claim(f"k{n}", n) for n in range(0, 60, 2)])
        a.finish([claim(f"k{n}", n) for n in range(0, 60, 4)])
        replies = b.claim_fenced([claim(f"k{n}", n) for n in range(60)])
        assert [verdict for verdict, _ in replies] == [(DONE, NEW, BUSY, NEW)[n % 4] for n in range(60)]
        assert [fence > 0 for _, fence in replies] == [n % 2 == 1 for n in range(60)]

    def test_a_dead_session_gets_none(self, bench: Bench) -> None:
        a = bench.begin()
        bench.kill(a.id)
        assert a.claim_fenced([claim("k"), claim("l")]) == [(FENCED, 0)] * 2
        assert not a.live()


class TestResults:
    def test_a_result_is_there_for_everybody_once_its_key_is_done(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        a.claim([claim("k"), claim("l", 1)])
        assert b.results([claim("k").key, claim("l").key]) == [None, None]
        assert a.finish([claim("k"), claim("l", 1)], ['{"paid": "é\udce9\\u0000"}', ""]) == [NEW, NEW]
        assert b.results([claim("l").key, claim("k").key]) == ["", '{"paid": "é\udce9\\u0000"}']

    def test_of_a_key_that_nobody_has_claimed_there_is_none(self, bench: Bench) -> None:
        assert bench.begin().results([claim("k").key]) == [None]

    def test_a_key_that_was_finished_without_one_has_none(self, bench: Bench) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        a.finish([claim("k")])
        assert a.results([claim("k").key]) == [""]

    def test_who_was_taken_over_leaves_none(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        a.claim([claim("k")])
        bench.kill(a.id)
        assert b.claim([claim("k", epoch=2)]) == [NEW]
        assert a.finish([claim("k")], ["1"]) == [FENCED]
        assert b.results([claim("k").key]) == [None]
        assert b.finish([claim("k", epoch=2)], ["2"]) == [NEW]
        assert a.finish([claim("k")], ["1"]) == [DONE]  # it is done, whoever asks
        assert a.results([claim("k").key]) == ["2"]

    def test_a_dead_session_leaves_one_while_nobody_took_over(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        a.claim([claim("k")])
        bench.kill(a.id)
        assert a.finish([claim("k")], ["1"]) == [NEW]
        assert b.results([claim("k").key]) == ["1"]

    def test_the_first_one_stays(self, bench: Bench) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        assert a.finish([claim("k")], ["1"]) == [NEW]
        assert a.finish([claim("k")], ["2"]) == [DONE]
        assert a.finish([claim("k")]) == [DONE]
        assert a.results([claim("k").key]) == ["1"]

    def test_many_are_kept_and_told_in_the_order_of_their_keys(self, bench: Bench) -> None:
        a = bench.begin()
        claims = [claim(f"k{n}", n) for n in range(500)]
        a.claim(claims)
        a.finish(claims, [str(n) if n % 3 else "" for n in range(500)])
        assert a.results([each.key for each in claims]) == [str(n) if n % 3 else "" for n in range(500)]

    def test_one_for_each_claim_or_none_at_all(self, bench: Bench) -> None:
        a = bench.begin()
        a.claim([claim("k")])
        with pytest.raises(ValueError, match="zip"):
            a.finish([claim("k")], [])
        assert a.finish([], []) == []
        assert a.results([]) == []


class TestSession:
    def test_a_dead_session_is_never_revived(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        own(a)
        bench.kill(a.id)
        assert a.live()  # it has not heard of it yet
        assert not a.renew()
        assert not a.live()
        assert own(b).epoch == 2

    def test_an_ended_session_is_dead_and_ending_twice_is_no_error(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        own(a)
        a.end()
        a.end()
        assert not a.live()
        assert not a.renew()
        assert own(b).epoch == 2

    def test_ids_differ(self, bench: Bench) -> None:
        assert len({bench.begin().id for _ in range(20)}) == 20


class TestLateRequests:
    """A request that is overtaken by one with a higher call generation does nothing any more."""

    def test_a_late_claim_does_not_take_a_key_that_was_given_back(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        late = on_its_way(a)  # a call on its way: it carries the generation of now
        a.raise_generation()
        a.unclaim([claim("k")])
        with pytest.raises(StoreUnavailable):
            late.claim([claim("k")])
        assert b.claim([claim("k", 1)]) == [NEW]

    def test_a_late_let_go_does_not_end_a_later_ownership(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        late = on_its_way(a)
        a.raise_generation()
        a.let_go([LetGo(P, 0, [])])
        own(a)
        with pytest.raises(StoreUnavailable):
            late.let_go([LetGo(P, 0, [])])
        assert b.acquire([P]) == [Wait.WAIT]

    def test_a_late_acquire_does_not_raise_the_epoch(self, bench: Bench) -> None:
        a = bench.begin()
        late = on_its_way(a)
        a.raise_generation()
        epoch = own(a).epoch
        with pytest.raises(StoreUnavailable):
            late.acquire([P])
        assert mark(a, epoch, [0]) == set()

    def test_the_barrier_outlives_the_session(self, bench: Bench) -> None:
        a = bench.begin()
        late = on_its_way(a)
        a.raise_generation()
        a.claim([claim("k")])
        bench.kill(a.id)
        with pytest.raises(StoreUnavailable):
            late.unclaim([claim("k")])
        assert a.finish([claim("k")]) == [DONE]

    def test_a_call_overtaken_by_another_thread_is_asked_again_and_answered(self, bench: Bench) -> None:
        a = bench.begin()
        stop = threading.Event()

        def disturb() -> None:
            while not stop.is_set():
                a.raise_generation()

        def work(thread: int) -> list[Verdict]:
            verdicts = []
            for n in range(30):
                while True:
                    try:
                        verdicts += a.claim([claim(f"{thread}-{n}", n)])
                        break
                    except StoreUnavailable:
                        continue
            return verdicts

        with ThreadPoolExecutor(4) as pool:
            disturbing = pool.submit(disturb)
            try:
                results = list(pool.map(work, range(3)))
            finally:
                stop.set()
            disturbing.result()
        assert results == [[NEW] * 30] * 3
