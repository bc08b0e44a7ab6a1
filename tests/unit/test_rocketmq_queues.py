"""What is pulled when, and what becomes of answers that nobody waits for any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from holdfast.adapters.rocketmq import queue as queue_module
from holdfast.adapters.rocketmq import queues as queues_module
from holdfast.adapters.rocketmq import trouble_lines
from holdfast.adapters.rocketmq.inbox import Moved, Trouble
from holdfast.adapters.rocketmq.log import Stage
from holdfast.adapters.rocketmq.moves import Moves
from holdfast.adapters.rocketmq.queue import Queue
from holdfast.adapters.rocketmq.remoting import PullAnswer, PullStatus
from holdfast.adapters.rocketmq.remoting.messages import POLL_BYTES
from holdfast.errors import SourceUnavailable
from holdfast.plugin.ports import End
from holdfast.records import Partition
from tests.harness.clocks import HandClock
from tests.properties.test_rocketmq_messages import Stored
from tests.unit.rocketmq_queues import Parts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.adapters.rocketmq.remoting import PullRequest
    from holdfast.plugin.ports import Batch
    from holdfast.timing import Deadline

Q = [Partition("orders", number, "a") for number in range(4)]


class Pull(NamedTuple):
    request: PullRequest
    answer: Callable[[Any], None]


class Broker:
    """Answers when a test says so."""

    def __init__(self) -> None:
        self.pulls: list[Pull] = []
        self.away = False

    def begin_pull(self, request: PullRequest, on_answer: Callable[[Any], None]) -> None:
        if self.away:
            raise SourceUnavailable("away")
        self.pulls.append(Pull(request, on_answer))

    def asked(self) -> list[tuple[int, int]]:
        return [(pull.request.queue.number, pull.request.offset) for pull in self.pulls]

    def last(self, queue: Partition) -> Pull:
        [*_, found] = [pull for pull in self.pulls if pull.request.queue == queue]
        return found


def answer(next_offset: int, *, body: bytes = b"", status: PullStatus = PullStatus.FOUND) -> PullAnswer:
    return PullAnswer(status, next_offset, 0, 1000, body, "a:1", 0, None)


class Some(Parts):
    """Queues whose logs are proved as soon as it is known where to begin."""

    def add(self, queue: Partition, offset: int | None, *, paused: bool = False) -> None:
        self.queues.assign([queue])
        if paused:
            self.queues[queue].pause()
        if offset is not None:
            self.seek(queue, offset)

    def seek(self, queue: Partition, offset: int) -> bool:
        found = self.queues.get(queue)
        if found is None or not found.seek(offset):
            return False
        self.prove(queue)
        return True

    def prove(self, queue: Partition) -> None:
        log = self.queues[queue].log
        assert log is not None
        log.stage = Stage.PROVED
        self.queues[queue].pull()

    def pause(self, queues: Sequence[Partition]) -> None:
        for queue in queues:
            self.queues[queue].pause()

    def resume(self, queues: Sequence[Partition]) -> None:
        for queue in queues:
            self.queues[queue].resume()

    def remove(self, queues: Sequence[Partition]) -> None:
        self.queues.stop(queues)
        self.queues.let_go(queues)

    def take(self, at_most: int, owners: Any) -> Batch:
        return self.queues.take(at_most, owners)

    def look(self) -> None:
        self.queues.pull_idle()

    @property
    def has_some(self) -> bool:
        return self.queues.has_some

    @property
    def moved(self) -> list[Moved]:
        return self.events(Moved)

    @property
    def troubles(self) -> list[Trouble]:
        return self.events(Trouble)


def prefetch(broker: Broker, **named: Any) -> Some:
    return Some(broker, **named)


def test_the_next_pull_begins_where_the_last_answer_ended() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 7)
    broker.last(Q[0]).answer(answer(20, status=PullStatus.NONE_MATCHED))
    assert broker.asked() == [(0, 7), (0, 20)]
    assert some.take(10, {}).ends == [End(Q[0], 20)]  # what was filtered out is no record


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> HandClock:
    made = HandClock()
    for each in (queue_module, queues_module, trouble_lines):
        monkeypatch.setattr(each, "SYSTEM_CLOCK", made)
    return made


def test_a_slave_that_has_not_got_so_far_is_not_asked_without_a_pause(clock: HandClock) -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 7)
    broker.last(Q[0]).answer(answer(7, status=PullStatus.NONE_MATCHED))
    some.look()
    assert broker.asked() == [(0, 7)]
    clock.sleep(1.0)
    some.look()
    assert broker.asked() == [(0, 7)] * 2


def test_nothing_is_pulled_before_it_is_known_where_to_begin_nor_while_it_is_paused() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], None, paused=True)
    assert broker.pulls == []
    assert some.seek(Q[0], 5)
    assert broker.pulls == []
    some.resume([Q[0]])
    assert broker.asked() == [(0, 5)]


def test_answers_to_pulls_before_a_seek_are_not_looked_at() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 0)
    old = broker.last(Q[0])
    some.seek(Q[0], 100)
    old.answer(answer(32, body=b"x"))
    assert not some.has_some
    assert broker.asked() == [(0, 0), (0, 100)]


def test_nor_are_those_of_a_queue_that_went_and_came_back() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 0)
    old = broker.last(Q[0])
    some.remove([Q[0]])
    some.add(Q[0], 50)
    old.answer(answer(32, body=b"x"))
    assert not some.has_some
    assert not some.seek(Q[1], 0)


def test_a_queue_that_is_full_stands_still_until_something_was_taken() -> None:
    broker = Broker()
    some = prefetch(broker, pull_threshold_for_queue=40)
    some.add(Q[0], 0)
    broker.last(Q[0]).answer(answer(32, body=b"x"))
    broker.last(Q[0]).answer(answer(64, body=b"x"))
    assert broker.asked() == [(0, 0), (0, 32)]
    some.take(1, {})
    assert broker.asked() == [(0, 0), (0, 32), (0, 64)]


def test_in_a_long_log_the_next_pulls_begin_before_the_last_is_answered() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 0)
    broker.last(Q[0]).answer(answer(32, body=b"x"))
    broker.last(Q[0]).answer(answer(64, body=b"x"))
    assert broker.asked() == [(0, 0), (0, 32), (0, 64), (0, 96), (0, 128)]
    broker.pulls[4].answer(answer(160, body=b"x"))
    broker.pulls[3].answer(answer(128, body=b"x"))
    assert [end.offset for end in some.take(10, {}).ends] == [32, 64]
    broker.pulls[2].answer(answer(96, body=b"x"))
    assert [end.offset for end in some.take(10, {}).ends] == [96, 128, 160]


def test_what_was_asked_beyond_an_answer_that_ends_early_is_not_looked_at() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 0)
    for end in (32, 64):
        broker.last(Q[0]).answer(answer(end, body=b"x"))
    broker.pulls[2].answer(answer(70, body=b"x"))
    assert broker.asked()[5:] == [(0, 70)]
    broker.pulls[3].answer(answer(128, body=b"x"))
    broker.pulls[5].answer(answer(102, body=b"x"))
    assert [end.offset for end in some.take(10, {}).ends] == [32, 64, 70, 102]


def test_pulls_ahead_are_begun_as_far_as_there_is_room_and_the_log_goes_on() -> None:
    for bound, asked in ((96, 1), (128, 2), (1_000, 3)):
        broker = Broker()
        some = prefetch(broker, pull_threshold_for_queue=bound)
        some.add(Q[0], 0)
        for end in (32, 64):
            broker.last(Q[0]).answer(answer(end, body=b"x"))
        assert len(broker.pulls) == 2 + asked
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 900)
    for end in (932, 964):
        broker.last(Q[0]).answer(answer(end, body=b"x"))
    assert broker.asked()[2:] == [(0, 964)]


def test_after_trouble_the_pulls_ahead_do_not_count_any_more() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 0)
    for end in (32, 64):
        broker.last(Q[0]).answer(answer(end, body=b"x"))
    for pull in broker.pulls[2:]:
        pull.answer(SourceUnavailable("away"))
    assert len(some.troubles) == 1
    some.seek(Q[0], 64)
    assert broker.asked()[5:] == [(0, 64)]


def test_all_of_them_together_are_bounded_in_bytes() -> None:
    broker = Broker()
    some = prefetch(broker, pull_threshold_size_for_all=1)
    for queue in Q:
        some.add(queue, 0)
    for queue in Q:
        broker.last(queue).answer(answer(1, body=b"x" * 600_000))
    assert len(broker.pulls) == len(Q)


def test_what_is_under_way_counts_before_it_comes() -> None:
    broker, queues = Broker(), [Partition("orders", number, "a") for number in range(64)]
    some = prefetch(broker, pull_threshold_size_for_all=1)
    for queue in queues:
        some.add(queue, 0)
    assert len(broker.pulls) == 4  # of up to 256 KiB each
    for pull in list(broker.pulls):
        pull.answer(answer(32, body=b"x" * (256 << 10)))
    assert some.shared.room.size <= 1 << 20
    some.take(10_000, {})
    some.take(10_000, {})
    assert {queue for queue, _ in broker.asked()} > set(range(4))  # who has waited for room comes first


def test_queues_that_have_nothing_wait_at_the_broker_however_many_they_are(clock: HandClock) -> None:
    broker, queues = Broker(), [Partition("orders", number, "a") for number in range(1_000)]
    some = prefetch(broker, pull_threshold_size_for_all=1)
    for queue in queues:
        some.add(queue, 1000)
    seen = 0
    while seen < len(broker.pulls):
        for pull in broker.pulls[seen:]:
            seen += 1
            if not pull.request.suspend_s:
                pull.answer(answer(1000, status=PullStatus.NONE_NEW))
        clock.sleep(1.0)
        some.look()
    waiting = [pull.request.queue for pull in broker.pulls if pull.request.suspend_s]
    assert sorted(waiting) == queues


def test_where_there_is_no_room_a_look_looks_at_nothing(clock: HandClock, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    some = prefetch(broker, pull_threshold_size_for_all=1)
    for number in range(1_000):
        some.add(Partition("orders", number, "a"), 0)
    looked: list[Any] = []
    monkeypatch.setattr(Queue, "_next_pull", looked.append)
    clock.sleep(1.0)
    some.look()
    assert looked == []


def test_a_broker_that_does_not_hold_pulls_is_not_asked_without_a_pause(clock: HandClock) -> None:
    broker = Broker()
    some = prefetch(broker, broker_suspend_max_time_s=0)
    some.add(Q[0], 7)
    broker.last(Q[0]).answer(answer(7, status=PullStatus.NONE_NEW))
    some.look()
    assert broker.asked() == [(0, 7)]
    clock.sleep(1.0)
    some.look()
    assert broker.asked() == [(0, 7)] * 2


def test_what_was_removed_before_it_was_read_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """In the answer that says that no tag matches: here all are wanted, and their file is gone."""
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 7)
    gone = answer(20, status=PullStatus.NONE_MATCHED)._replace(remark="MESSAGE_WAS_REMOVING")
    broker.last(Q[0]).answer(gone)
    assert "messages 7 to 19 were removed" in caplog.text
    assert some.take(10, {}).ends == [End(Q[0], 20)]


def test_a_slave_that_never_gets_so_far_is_told_of(clock: HandClock, caplog: pytest.LogCaptureFixture) -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 7)
    for _ in range(60):
        broker.last(Q[0]).answer(answer(7, status=PullStatus.NONE_MATCHED))
        clock.sleep(0.6)
        some.look()
    assert caplog.text.count("is not read on from 7: a:1 does not have that yet") == 1


@pytest.mark.parametrize(
    ("at_most", "size"),
    [({"pull_threshold_for_all": 64}, 32), ({"pull_threshold_size_for_all": 1}, 600_000)],
    ids=["", "bytes"],
)
def test_what_is_kept_of_queues_that_are_paused_keeps_no_other_out(at_most: dict[str, Any], size: int) -> None:
    """A member that is handed many queues with a backlog holds these back for a while; the others are to go on."""
    broker = Broker()
    some = prefetch(broker, **at_most)
    for queue in Q[:2]:
        some.add(queue, 0)
    for queue in Q[:2]:
        broker.last(queue).answer(answer(32, body=b"x" * size))
    some.add(Q[2], 0)
    assert all(queue != 2 for queue, _ in broker.asked())  # there is no room
    some.pause(Q[:2])
    some.look()
    broker.last(Q[2]).answer(answer(32, body=b"x" * 32))
    assert broker.asked()[-1] == (2, 0)  # what it has is enough
    some.take(1000, {})
    assert broker.asked()[-1] == (2, 32)
    some.resume(Q[:1])
    some.remove(Q[1:2])
    some.take(1000, {})
    room = some.shared.room
    assert (room.count, room.size, room.kept) == (0, 0, 0)


def test_what_is_paused_stays_and_is_delivered_later() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 0)
    broker.last(Q[0]).answer(answer(9, status=PullStatus.NONE_MATCHED))
    some.pause([Q[0]])
    assert some.take(10, {}).ends == []
    some.resume([Q[0]])
    assert some.take(10, {}).ends == [End(Q[0], 9)]


def test_a_broker_that_is_away_is_asked_again_after_a_wait_and_told_of(clock: HandClock) -> None:
    broker = Broker()
    some = prefetch(broker)
    broker.away = True
    some.add(Q[0], 3)
    assert [queue for queue, _ in some.troubles] == [Q[0]]
    broker.away = False
    some.look()
    assert broker.pulls == []  # not at once
    clock.sleep(1.0)
    some.look()
    assert broker.asked() == [(0, 3)]


def test_an_offset_that_the_broker_has_moved_waits_for_a_seek() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 3)
    broker.last(Q[0]).answer(answer(0, status=PullStatus.MOVED))
    [moved] = some.moved
    assert (moved.queue, moved.asked, moved.answer.next_offset) == (Q[0], 3, 0)
    some.look()
    assert len(broker.pulls) == 1
    some.seek(Q[0], 0)
    assert broker.asked() == [(0, 3), (0, 0)]


def test_queues_are_taken_from_in_turn() -> None:
    broker = Broker()
    some = prefetch(broker)
    for queue in Q[:2]:
        some.add(queue, 0)
    for end in (1, 3, 6, 10, 15, 21, 28, 36, 45, 55):
        broker.last(Q[0]).answer(answer(end, status=PullStatus.NONE_MATCHED))
    broker.last(Q[1]).answer(answer(5, status=PullStatus.NONE_MATCHED))
    assert [end.partition.number for end in some.take(10, {}).ends] == [*[0] * 8, 1, 0, 0]


def records(first: int, count: int) -> PullAnswer:
    body = b"".join(Stored("orders", b"x", offset=offset).encode() for offset in range(first, first + count))
    return answer(first + count, body=body)


class Master:
    """What it says of its log."""

    def check_master(self, queue: Partition, deadline: Deadline) -> None: ...

    def begins(self, queue: Partition, deadline: Deadline) -> int:
        return 2

    def ends(self, queues: Sequence[Partition], deadline: Deadline) -> dict[Partition, int]:
        return dict.fromkeys(queues, 100)


def moves(some: Some) -> Moves:
    return Moves(some.queues, cast("Any", Master()), some.inbox)


@pytest.mark.parametrize(
    "said",
    [
        PullAnswer(PullStatus.MOVED, 2, 0, 2, b"", "a:1", 0, None),  # by a slave that is behind
        PullAnswer(PullStatus.MOVED, 9, 9, 100, b"", "a:1", 0, None),  # by one that has less
    ],
)
def test_what_has_come_is_delivered_where_the_master_has_not_moved_the_offset(
    clock: HandClock, said: PullAnswer
) -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 0)
    broker.last(Q[0]).answer(records(0, 3))
    broker.last(Q[0]).answer(said)
    moves(some).follow(some.moved[0], cast("Any", None))
    batch = some.take(10, {Q[0]: cast("Any", object())})
    assert [record.offset for record in batch.records] == [0, 1, 2]
    assert broker.asked() == [(0, 0), (0, 3)]
    clock.sleep(1.0)
    some.look()
    assert broker.asked() == [(0, 0), (0, 3), (0, 3)]


def test_what_came_before_the_rest_has_expired_is_delivered_first() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 0)
    broker.last(Q[0]).answer(records(0, 1))
    broker.last(Q[0]).answer(PullAnswer(PullStatus.MOVED, 2, 2, 100, b"", "a:1", 0, None))
    moves(some).follow(some.moved[0], cast("Any", None))
    batch = some.take(10, {Q[0]: cast("Any", object())})
    assert [record.offset for record in batch.records] == [0]
    assert batch.ends == [End(Q[0], 1), End(Q[0], 2)]
    assert some.queues[Q[0]].start == 2
    assert broker.asked() == [(0, 0), (0, 1), (0, 2)]


def test_what_a_broker_has_said_of_an_offset_is_over_where_the_queue_was_sought_elsewhere(
    clock: HandClock,
) -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 9)
    broker.last(Q[0]).answer(PullAnswer(PullStatus.MOVED, 5, 0, 5, b"", "a:1", 0, None))
    some.seek(Q[0], 7)
    moves(some).follow(some.moved[0], cast("Any", None))
    clock.sleep(1.0)
    some.look()
    assert broker.asked() == [(0, 9), (0, 7)]


RESET = PullAnswer(PullStatus.MOVED, 20, 0, 1000, b"", "a:1", 0, None)


def test_a_reset_that_a_pull_before_a_seek_was_told_of_counts() -> None:
    """Brokers tell of it once, to whichever pull of the group is the next."""
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 50)
    old = broker.last(Q[0])
    some.seek(Q[0], 70)
    old.answer(RESET)
    assert [(moved.queue, moved.answer.next_offset) for moved in some.moved] == [(Q[0], 20)]
    broker.last(Q[0]).answer(answer(102, body=b"x"))
    assert broker.asked() == [(0, 50), (0, 70)]  # nothing is read on before the engine has sought


def test_so_does_one_that_a_pull_ahead_was_told_of() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 0)
    for end in (32, 64):
        broker.last(Q[0]).answer(answer(end, body=b"x"))
    first, ahead, _ = broker.pulls[-3:]
    ahead.answer(RESET)
    first.answer(answer(70, body=b"x"))
    assert [moved.answer.next_offset for moved in some.moved] == [20]


def test_one_of_a_queue_that_is_not_read_any_more_is_nobodys() -> None:
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 50)
    some.remove([Q[0]])
    broker.last(Q[0]).answer(RESET)
    assert not some.moved


def test_what_comes_while_it_is_in_doubt_which_log_it_is_of_is_pulled_again_once_that_is_proved() -> None:
    """A pull that waited for a connection is answered by whoever is there then, maybe with another log."""
    broker = Broker()
    some = prefetch(broker)
    some.add(Q[0], 7)
    log = some.queues[Q[0]].log
    assert log is not None
    log.stage = Stage.DOUBTED
    broker.last(Q[0]).answer(records(7, 3))
    assert not some.has_some
    assert log.tail is None
    some.prove(Q[0])
    assert broker.asked() == [(0, 7), (0, 7)]
    broker.last(Q[0]).answer(records(7, 3))
    assert some.take(10, {}).ends == [End(Q[0], 10)]
    assert log.tail is not None


def test_one_poll_unpacks_no_more_than_it_may_however_many_queues_have_some() -> None:
    broker = Broker()
    some = prefetch(broker)
    packed = b"".join(Stored("orders", bytes(POLL_BYTES // 2), offset=n, zlib=True).encode() for n in range(4))
    for queue in Q[:2]:
        some.add(queue, 0)
        broker.last(queue).answer(answer(4, body=packed))
    owners = cast("Any", dict.fromkeys(Q, object()))
    polls = [some.take(500, owners) for _ in range(4)]
    assert [[(record.partition, record.offset) for record in batch.records] for batch in polls] == [
        [(queue, at), (queue, at + 1)] for at in (0, 2) for queue in Q[:2]
    ]
    assert [batch.ends for batch in polls] == [[], [], [End(Q[0], 4)], [End(Q[1], 4)]]  # not before all was brought
