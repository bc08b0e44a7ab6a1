"""Offsets that somebody else's commit has replaced are seen, whoever has made the commit that was replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.inbox import Overwritten
from holdfast.errors import NotAuthorised, SourceUnavailable
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.unit.rocketmq_queues import commits_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.rocketmq.commits import Commits

Q0, Q1 = Partition("orders", 0, "a"), Partition("orders", 0, "b")


class Broker:
    """Answers at once, but of queues that it has away."""

    def __init__(self) -> None:
        self.offsets: dict[Partition, int] = {}
        self.away: set[Partition] = set()
        self.closed: set[Partition] = set()
        self.asked: list[Partition] = []
        #: Commits are answered when a test says so.
        self.slow = False
        self._waits: list[Callable[[None], None]] = []

    def begin_query_offset(
        self, queue: Partition, group: str, on_answer: Callable[[Any], None], *, timeout_s: float
    ) -> None:
        self.asked.append(queue)
        if queue in self.closed:
            on_answer(NotAuthorised("closed"))
            return
        on_answer(SourceUnavailable("away") if queue in self.away else self.offsets.get(queue))

    def begin_commit(
        self, queue: Partition, group: str, offset: int, on_answer: Callable[[None], None], *, timeout_s: float
    ) -> None:
        self.offsets[queue] = offset
        if self.slow:
            self._waits.append(on_answer)
        else:
            on_answer(None)

    def answer(self) -> None:
        while self._waits:
            self._waits.pop()(None)


def made() -> tuple[Broker, Commits]:
    broker = Broker()
    return broker, commits_of(broker)


def overwritten(commits: Commits) -> list[tuple[Partition, int]]:
    found = []
    while (event := commits.inbox.take()) is not None:
        if isinstance(event, Overwritten):
            found.append((event.queue, event.offset))
    return found


def take_over(commits: Commits, queue: Partition) -> None:
    commits.of(queue).found(commits.offsets.committed_of_some([queue], Deadline(1.0))[queue])


def test_of_a_queue_that_this_member_has_committed() -> None:
    broker, commits = made()
    commits.of(Q0).begin(7)
    broker.offsets[Q0] = 3
    commits.look(Deadline(1.0))
    assert overwritten(commits) == [(Q0, 3)]


def test_of_a_queue_that_came_with_everything_handled_so_that_nothing_is_to_be_committed() -> None:
    broker, commits = made()
    broker.offsets[Q0] = 7
    take_over(commits, Q0)
    commits.look(Deadline(1.0))
    assert not overwritten(commits)
    broker.offsets[Q0] = 3
    commits.look(Deadline(1.0))
    assert overwritten(commits) == [(Q0, 3)]


def test_of_one_that_has_gone_it_is_others_word() -> None:
    broker, commits = made()
    broker.offsets[Q0] = 7
    take_over(commits, Q0)
    commits.let_go(Q0)
    broker.offsets[Q0] = 3
    commits.look(Deadline(1.0))
    assert not overwritten(commits)


def test_though_another_broker_is_away_which_is_asked_again() -> None:
    broker, commits = made()
    for queue in (Q1, Q0):
        commits.of(queue).begin(7)
        broker.offsets[queue] = 3
    broker.away.add(Q1)
    with pytest.raises(SourceUnavailable, match="away"):
        commits.look(Deadline(1.0))
    assert overwritten(commits) == [(Q0, 3)]


def test_an_answer_to_the_last_commit_of_one_that_has_gone_says_nothing_any_more() -> None:
    broker, commits = made()
    broker.slow = True
    commits.of(Q0).begin(7)
    commits.of(Q0).begin(9)
    commits.let_go(Q0)
    broker.answer()
    assert broker.offsets == {Q0: 7}  # the other was not sent yet: the next owner may have committed since
    assert commits.wait(Deadline(0.0))
    broker.offsets[Q0] = 12
    commits.look(Deadline(1.0))
    assert not overwritten(commits)


def test_who_hands_a_queue_over_waits_for_its_own_commit_and_not_for_those_of_a_broker_that_hangs() -> None:
    broker, commits = made()
    broker.slow = True
    commits.of(Q1).begin(7)
    assert commits.wait(Deadline(0.0), [Q0])
    assert not commits.wait(Deadline(0.0), [Q0, Q1])
    assert not commits.wait(Deadline(0.0))
    broker.answer()
    assert commits.wait(Deadline(0.0), [Q0, Q1])


def test_a_queue_of_which_a_broker_tells_nothing_keeps_no_other_of_that_broker_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker, commits = made()
    closed = Partition("refunds", 0, Q0.broker)
    broker.closed, broker.offsets[Q0] = {closed}, 7
    assert commits.offsets.committed_of_some([Q0, closed], Deadline(1.0)) == {Q0: 7}
    assert commits.offsets.committed_of_some([Q0, closed], Deadline(1.0)) == {Q0: 7}
    assert broker.asked == [Q0, closed, Q0]
    assert caplog.text.count("stands still") == 1
