"""The contract of a store of positions: on the specification, on SQLite, and on a real PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from holdfast.dedup.claims import Acquired, AskInHand, Drop, InHand, LetGo, Mark, Token, Wait
from holdfast.errors import StoreUnavailable
from tests.harness.servers.postgres import postgres
from tests.harness.sql_stores import Databases, Model, settled

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from holdfast.dedup.claims import ClaimSession
    from tests.harness.sql_stores import Session

__all__ = ["postgres"]

P = "billing/orders/4Yz0aQ/3"
#: `make test` installs no PostgreSQL.
KINDS = ["sqlite", pytest.param("postgresql", marks=pytest.mark.full)]


def made(kind: str, folder: Path, request: pytest.FixtureRequest) -> Databases:
    return Databases.of(kind, folder, lambda: request.getfixturevalue("postgres"))


@pytest.fixture(params=["specification", *KINDS])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Model | Databases]:
    bench = Model() if request.param == "specification" else made(request.param, tmp_path, request)
    yield bench
    bench.close()


@pytest.fixture(params=KINDS)
def databases(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Databases]:
    """Where there is a database."""
    databases = made(request.param, tmp_path, request)
    yield databases
    databases.close()


def own(session: Session | ClaimSession, partition: str = P) -> Acquired:
    [reply] = session.acquire([partition])
    assert isinstance(reply, Acquired), reply
    return settled(reply)._replace(begun=False)


def mark(session: Session | ClaimSession, epoch: int, offsets: Sequence[int], watermark: int = 0) -> set[int]:
    [fenced] = session.mark([Mark(P, epoch, watermark, offsets)])
    return set(fenced)


Bench = Model | Databases


class TestOwners:
    def test_a_first_owner_gets_epoch_one_and_nothing_done(self, bench: Bench) -> None:
        assert own(bench.begin()) == Acquired(1, 0, frozenset(), frozenset())

    def test_who_takes_over_fences_the_one_before_at_once(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        own(a)
        assert own(b).epoch == 2
        assert mark(a, 1, [0, 1]) == {0, 1}
        assert mark(b, 2, [0]) == set()

    def test_asked_again_by_the_owner_raises_the_epoch(self, bench: Bench) -> None:
        a = bench.begin()
        assert [own(a).epoch, own(a).epoch] == [1, 2]
        assert mark(a, 1, [0]) == {0}

    def test_a_fence_rises_with_each_acquire(self, bench: Bench) -> None:
        fences = []
        for _ in range(3):
            [reply] = bench.begin().acquire([P])
            assert isinstance(reply, Acquired)
            fences.append(reply.born_ms + reply.epoch)
        assert fences == sorted(set(fences))

    def test_answers_for_many_partitions_in_their_order(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        names = [f"orders/{n}" for n in range(50)]
        for name in names[::3]:
            own(a, name)
        replies = b.acquire(names)
        assert [reply.epoch if isinstance(reply, Acquired) else 0 for reply in replies] == [
            2 if n % 3 == 0 else 1 for n in range(50)
        ]

    def test_what_is_marked_after_it_was_let_go_counts_until_the_next_owner_comes(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        epoch = own(a).epoch
        a.let_go([LetGo(P, epoch, [4, 6])])
        assert mark(a, epoch, [4]) == set()
        assert own(b).done == {4}
        assert mark(a, epoch, [6]) == {6}


class TestMarks:
    def test_what_is_marked_is_done_for_the_next_owner(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        assert mark(a, own(a).epoch, [0, 1, 2, 5, 255, 256, 257, 1000, 2**40], watermark=3) == set()
        assert own(b) == Acquired(2, 3, frozenset({5, 255, 256, 257, 1000, 2**40}), frozenset())

    def test_the_watermark_never_falls(self, bench: Bench) -> None:
        a = bench.begin()
        epoch = own(a).epoch
        mark(a, epoch, [7], watermark=7)
        mark(a, epoch, [3], watermark=2)
        assert own(a) == Acquired(2, 8, frozenset(), frozenset())

    def test_the_owner_may_leap_over_what_it_never_marked(self, bench: Bench) -> None:
        a = bench.begin()
        epoch = own(a).epoch
        mark(a, epoch, [10, 300, 70_000])
        mark(a, epoch, [], watermark=2**50)
        mark(a, epoch, [2**50 + 1])
        assert own(a) == Acquired(2, 2**50, frozenset({2**50 + 1}), frozenset())

    def test_what_is_done_is_ok_for_anybody(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        mark(a, own(a).epoch, [0, 9], watermark=1)
        assert mark(b, 17, [0, 9, 10]) == {10}

    def test_many_marks_of_one_partition_in_one_call_are_applied_in_order(self, bench: Bench) -> None:
        a = bench.begin()
        former, epoch = own(a).epoch, own(a).epoch
        marks = [Mark(P, epoch, 0, [3]), Mark(P, former, 50, [3, 4]), Mark(P, epoch, 1, [5])]
        assert a.mark(marks) == [frozenset(), {4}, frozenset()]
        assert own(a) == Acquired(3, 1, frozenset({3, 5}), frozenset())

    def test_marks_of_many_partitions_are_answered_each(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        names = [f"orders/{n}" for n in range(30)]
        a.acquire(names)
        b.acquire(names[::2])
        replies = a.mark([Mark(name, 1, 0, [n]) for n, name in enumerate(names)])
        assert replies == [frozenset({n}) if n % 2 == 0 else frozenset() for n in range(30)]
        assert [own(a, name).done for name in names] == [set() if n % 2 == 0 else {n} for n in range(30)]

    def test_who_has_acquired_a_position_and_no_more_has_not_begun(self, bench: Bench) -> None:
        a, b, c = bench.begin(), bench.begin(), bench.begin()
        begun = []
        for session in (a, b, c):
            [reply] = session.acquire([P])
            assert isinstance(reply, Acquired)
            begun.append(reply.begun)
            if session is b:
                assert mark(b, reply.epoch, []) == set()
        assert begun == [False, False, True]


class TestDrops:
    def test_a_reset_forgets_what_is_done_and_remembers_how_far_it_was_known(self, bench: Bench) -> None:
        a = bench.begin()
        epoch = own(a).epoch
        mark(a, epoch, [255, 600], watermark=6)
        assert a.drop([Drop(P, epoch, 3)]) == [True]
        assert a.drop([Drop(P, epoch, 2)]) == [True]
        mark(a, epoch, [4])
        assert own(a) == Acquired(2, 2, frozenset({4}), frozenset(), again=601)

    def test_of_another_ownership_is_fenced(self, bench: Bench) -> None:
        a, b = bench.begin(), bench.begin()
        former, epoch = own(a).epoch, own(a).epoch
        mark(a, epoch, [0], watermark=1)
        assert b.drop([Drop(P, epoch, 0)]) == [False]
        assert a.drop([Drop(P, former, 0)]) == [False]
        assert own(a).watermark == 1


class TestAnswersThatAreLost:
    @pytest.mark.parametrize("lose", ["before", "after"])
    def test_a_mark_asked_again_is_done_once_and_what_follows_goes_on(self, databases: Databases, lose: str) -> None:
        a, unheard = databases.losing()
        epoch = own(a).epoch
        unheard.lose = lose
        with pytest.raises(StoreUnavailable):
            mark(a, epoch, [0, 1], watermark=2)
        assert mark(a, epoch, [0, 1], watermark=2) == set()
        assert mark(a, epoch, [2, 7], watermark=3) == set()
        assert own(databases.begin()) == Acquired(2, 3, frozenset({7}), frozenset())

    def test_an_acquire_asked_again_is_ours(self, databases: Databases) -> None:
        a, unheard = databases.losing()
        unheard.lose = "after"
        with pytest.raises(StoreUnavailable):
            a.acquire([P])
        assert own(a).epoch == 2
        assert mark(a, 2, [0]) == set()

    def test_an_acquire_whose_answer_never_came_can_be_let_go(self, databases: Databases) -> None:
        a, unheard = databases.losing()
        unheard.lose = "after"
        with pytest.raises(StoreUnavailable):
            a.acquire([P])
        a.let_go([LetGo(P, 0, ())])
        assert own(databases.begin(lease_s=3600.0)).epoch == 2

    def test_a_reset_asked_again_resets_to_the_same(self, databases: Databases) -> None:
        a, unheard = databases.losing()
        epoch = own(a).epoch
        mark(a, epoch, [8], watermark=6)
        unheard.lose = "after"
        with pytest.raises(StoreUnavailable):
            a.drop([Drop(P, epoch, 3)])
        assert a.drop([Drop(P, epoch, 3)]) == [True]
        assert mark(a, epoch, [4]) == set()
        assert own(a) == Acquired(2, 3, frozenset({4}), frozenset(), again=9)


class TestAProcessThatWasTakenForDead:
    """It learns by a refused mark that another has its position, and may hear it later from its broker."""

    def fenced(self, databases: Databases, lease_s: float) -> tuple[ClaimSession, ClaimSession]:
        a, b = databases.begin(lease_s=lease_s), databases.begin()
        epoch = own(a).epoch
        assert own(b).epoch == epoch + 1
        assert mark(a, epoch, [0]) == {0}
        return a, b

    def test_does_not_take_it_back(self, databases: Databases) -> None:
        a, b = self.fenced(databases, 3600.0)
        assert a.acquire([P]) == [Wait.WAIT]
        assert mark(b, 2, [0]) == set()

    def test_takes_other_positions(self, databases: Databases) -> None:
        a, _ = self.fenced(databases, 3600.0)
        assert a.acquire(["another", P])[1] is Wait.WAIT
        assert own(a, "another").epoch == 2

    def test_has_it_again_as_soon_as_the_other_lets_it_go(self, databases: Databases) -> None:
        a, b = self.fenced(databases, 3600.0)
        b.let_go([LetGo(P, 2, ())])
        assert own(a).epoch == 3

    def test_has_it_again_when_nothing_happens_there_for_a_lease(self, databases: Databases) -> None:
        a, _ = self.fenced(databases, 0.0)
        assert own(a).epoch == 3


class TestWithinOneProcess:
    """A partition that its process takes over anew, though the client keeps it, waits for what runs there."""

    def test_what_is_in_hand_is_waited_for_and_marked_by_who_runs_it(self, databases: Databases) -> None:
        a = databases.begin()
        former = own(a).epoch
        mark(a, former, [0], watermark=1)
        a.let_go([LetGo(P, former, [1, 2, 3])])
        assert own(a) == Acquired(2, 1, frozenset(), frozenset({1, 2, 3}))
        assert mark(a, former, [1, 9]) == {9}
        a.release([Token(P, 2, former)])
        assert a.poll([AskInHand(P, 2, [1, 2, 3])]) == [InHand(frozenset({1}), frozenset({2}))]
        assert own(databases.begin()) == Acquired(3, 2, frozenset(), frozenset())

    def test_not_once_another_process_has_had_it(self, databases: Databases) -> None:
        a, b = databases.begin(), databases.begin()
        a.let_go([LetGo(P, own(a).epoch, [1])])
        b.let_go([LetGo(P, own(b).epoch, ())])
        assert own(a).running == set()
        assert mark(a, 1, [1]) == {1}

    def test_a_mark_of_what_is_in_hand_may_be_asked_again(self, databases: Databases) -> None:
        a, unheard = databases.losing()
        former = own(a).epoch
        a.let_go([LetGo(P, former, [1, 2])])
        own(a)
        unheard.lose = "after"
        with pytest.raises(StoreUnavailable):
            mark(a, former, [1])
        assert mark(a, former, [1, 2]) == set()
        assert own(a).done == {1, 2}

    def test_polls_and_releases_tell_that_the_database_is_away(self, databases: Databases) -> None:
        a, unheard = databases.losing()
        epoch = own(a).epoch
        for ask in (lambda: a.poll([AskInHand(P, epoch, [1])]), lambda: a.release([Token(P, 1, epoch)]), a.renew):
            unheard.lose = "before"
            with pytest.raises(StoreUnavailable):
                ask()
