"""What a broker's word that an offset was moved is taken for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast.adapters.rocketmq.inbox import AnotherLog, Inbox, Moved
from holdfast.adapters.rocketmq.log import Log
from holdfast.adapters.rocketmq.moves import Moves
from holdfast.adapters.rocketmq.remoting import PullAnswer, PullStatus
from holdfast.errors import SourceUnavailable
from holdfast.records import Partition

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.timing import Deadline

Q = Partition("orders", 0, "a")


class Parts:
    """Queue, offsets and listener in one: notes what it is asked for. The master's log; None = it is away.

    same: up to where the log is the one that was read. acting: it is a slave's, which acts for the master. waits: the
    queue was not sought elsewhere meanwhile.
    """

    def __init__(
        self,
        end: int | None = 0,
        beginning: int | None = 0,
        *,
        same: int = 0,
        acting: bool = False,
        waits: bool = True,
    ) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.partition, self.start = Q, None
        self._waits = waits
        self._end, self._beginning, self._same, self._acting = end, beginning, same, acting

    def check_master(self, queue: Partition, deadline: Deadline) -> None:
        if self._acting:
            raise SourceUnavailable("a slave acts for it")

    def same_up_to(self, deadline: Deadline) -> int:
        return self._same

    def go_on_at(self, moved: Moved, offset: int, *, wait_s: float = 0.0) -> bool:
        self.asked.append(("go on", offset, wait_s > 0))
        return self._waits

    def ends(self, queues: Sequence[Partition], deadline: Deadline) -> dict[Partition, int]:
        if self._end is None:
            raise SourceUnavailable("away")
        return dict.fromkeys(queues, self._end)

    def begins(self, queue: Partition, deadline: Deadline) -> int:
        if self._beginning is None:
            raise SourceUnavailable("away")
        return self._beginning

    def reset(self, queue: Partition, offset: int, *, cut: bool = False) -> None:
        self.asked.append(("cut" if cut else "reset", offset))


def follow(parts: Any, asked: int, to: int, *, log: tuple[int, int]) -> int | None:
    """Returns from where on its log is known to be there."""
    answer = PullAnswer(PullStatus.MOVED, to, *log, b"", "a:1", 0, None)
    Moves({Q: parts}, parts, Inbox()).follow(Moved(Q, asked, answer), parts)
    start: int | None = parts.start
    return start


@pytest.mark.parametrize(
    ("asked", "to", "log"),
    [
        (50, 20, (10, 100)),  # back
        (50, 80, (10, 100)),  # forward
        (50, 10, (10, 100)),  # to the beginning
        (50, 100, (10, 100)),  # to the end
        (100, 40, (10, 100)),  # by who had read it all
        (5, 40, (10, 100)),  # by who was below the beginning
        (5, 100, (10, 100)),  # to the end
        (150, 40, (10, 100)),  # or beyond the end
    ],
)
def test_a_reset(asked: int, to: int, log: tuple[int, int]) -> None:
    parts = Parts()
    follow(parts, asked, to, log=log)
    assert parts.asked == [("reset", to)]


@pytest.mark.parametrize("beginning", [0, 5, None])
def test_a_slave_that_has_less_and_a_master_that_is_away_expire_nothing(beginning: int | None) -> None:
    parts = Parts(beginning=beginning)
    assert follow(parts, 5, 10, log=(10, 100)) is None
    assert parts.asked == [("go on", 5, True)]


@pytest.mark.parametrize("waits", [True, False])
def test_what_has_expired_counts_as_read_where_it_was_to_be_read(*, waits: bool) -> None:
    parts = Parts(end=100, beginning=10, waits=waits)
    assert follow(parts, 5, 10, log=(10, 100)) == (10 if waits else None)
    assert parts.asked == [("go on", 10, False)]


def test_a_log_that_ends_before_what_was_read_is_read_from_its_beginning() -> None:
    parts = Parts(end=3)
    follow(parts, 50, 3, log=(0, 3))
    assert parts.asked == [("cut", 0)]


def test_what_it_still_has_of_what_was_read_is_not_read_again() -> None:
    parts = Parts(end=40, same=31)
    follow(parts, 50, 40, log=(0, 40))
    assert parts.asked == [("cut", 31)]


@pytest.mark.parametrize("asked", [5, 150])
def test_a_slave_that_acts_for_its_master_moves_nothing(asked: int) -> None:
    parts = Parts(end=100, beginning=10, acting=True)
    follow(parts, asked, 10 if asked == 5 else 100, log=(10, 100))
    assert parts.asked == [("go on", asked, True)]


@pytest.mark.parametrize("end", [60, None])
def test_a_slave_that_is_behind_and_a_master_that_is_away_cut_nothing(end: int | None) -> None:
    parts = Parts(end=end)
    follow(parts, 50, 30, log=(0, 30))
    assert parts.asked == [("go on", 50, True)]


@pytest.mark.parametrize(("asked", "to"), [(5, 500), (500, 10), (700, 10)])
def test_a_log_that_begins_beyond_its_end_is_asked_for_again_after_a_wait_and_that_is_told(
    asked: int, to: int, caplog: pytest.LogCaptureFixture
) -> None:
    """apache/rocketmq#10417: an election has cut the index, and the beginning stayed. Its messages may be there."""
    parts = Parts(end=10, beginning=500)
    assert follow(parts, asked, to, log=(500, 10)) is None
    assert parts.asked == [("go on", asked, True)]
    assert "begins at 500 and ends at 10" in caplog.text


class Other:
    """A queue whose log is another one; notes whether it is probed again."""

    def __init__(self, queue: Partition) -> None:
        self.partition, self.log = queue, Log(9, orphan=True)
        self.again = False

    def same_up_to(self, deadline: Deadline) -> int:
        return 0

    def prove_again(self, log: Log) -> None:
        self.again = log is self.log


def test_a_master_that_is_away_is_asked_once_and_not_for_each_of_its_queues() -> None:
    asked: list[str] = []

    class Master(Parts):
        def ends(self, queues: Sequence[Partition], deadline: Deadline) -> dict[Partition, int]:
            asked.append(queues[0].broker)
            if queues[0].broker == "away":
                raise SourceUnavailable("away")
            return super().ends(queues, deadline)

    queues = [Partition("orders", number, broker) for number in range(3) for broker in ("away", "here")]
    parts: Any = Master(end=20, beginning=3)
    others: dict[Partition, Any] = {queue: Other(queue) for queue in queues}
    moves = Moves(others, parts, Inbox())
    moves.begin_round()
    for queue in queues:
        moves.follow(AnotherLog(queue, others[queue].log), parts)
    moves.follow(AnotherLog(queues[1], Log(9, orphan=True)), parts)  # it was sought elsewhere since
    moves.follow(AnotherLog(Partition("orders", 9, "not read any more"), Log(9, orphan=True)), parts)
    assert sorted(asked) == ["away", "here", "here", "here"]
    assert [queue for queue in queues if others[queue].again] == [queue for queue in queues if queue.broker == "away"]
    assert parts.asked == [("cut", 3)] * 3
