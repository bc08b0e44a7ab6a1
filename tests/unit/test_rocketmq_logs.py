"""Whether a queue's log is the one that was read before: what a pull at its mark says, and what follows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from holdfast.adapters.rocketmq.inbox import AnotherLog, Moved, Proved, Trouble
from holdfast.adapters.rocketmq.log import Found, Mark, judge
from holdfast.adapters.rocketmq.remoting import PullAnswer, PullStatus
from holdfast.dedup.memory_coordinator import MemoryCoordinator
from holdfast.errors import SourceUnavailable
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.properties.test_rocketmq_messages import Stored
from tests.unit.rocketmq_queues import Parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.adapters.rocketmq.log import Log
    from holdfast.adapters.rocketmq.queue import Queue
    from holdfast.adapters.rocketmq.remoting import PullRequest

Q = Partition("orders", 0, "a")


def found(offset: int, stored_ms: int, *, least: int = 0) -> PullAnswer:
    body = Stored("orders", b"x", offset=offset, stored_ms=stored_ms).encode()
    return PullAnswer(PullStatus.FOUND, offset + 1, least, 100, body, "a:1", 0, None)


def none(status: PullStatus, next_offset: int, *, least: int = 0, most: int = 100) -> PullAnswer:
    return PullAnswer(status, next_offset, least, most, b"", "a:1", 0, None)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (found(7, 50), Found.SAME),
        (found(7, 51), Found.OTHER),
        (found(9, 50), Found.GONE),
        (none(PullStatus.NONE_MATCHED, 9), Found.GONE),
        (none(PullStatus.NONE_MATCHED, 7), Found.LATER),
        (none(PullStatus.NONE_NEW, 7, most=7), Found.BEYOND),
        (none(PullStatus.MOVED, 3, most=3), Found.BEYOND),
        (none(PullStatus.MOVED, 8, least=8), Found.GONE),
        (none(PullStatus.MOVED, 4), Found.RESET),
        (none(PullStatus.MOVED, 2, most=3), Found.RESET),
    ],
)
def test_what_lies_at_a_mark(answer: PullAnswer, expected: Found) -> None:
    assert judge(7, Mark(7, 50), answer) is expected


def test_a_note_is_read_as_it_was_written_and_what_is_none_is_nothing() -> None:
    assert Mark.of_text(Mark(7, 50).text) == Mark(7, 50)
    for text in (None, "", "7", "@", "-1@5", "x@y"):
        assert Mark.of_text(text) is None


class Pull(NamedTuple):
    request: PullRequest
    answer: Callable[[Any], None]


class Bench:
    """A queue beside a broker that answers probes when a test says so."""

    def __init__(self) -> None:
        self.pulls: list[Pull] = []
        self.coordinator = MemoryCoordinator()
        self.parts = Parts(self, self.coordinator)
        self.queues = self.parts.queues
        self.queues.assign([Q])

    @property
    def queue(self) -> Queue:
        return self.queues[Q]

    @property
    def log(self) -> Log:
        assert self.queue.log is not None
        return self.queue.log

    def may_read(self) -> bool:
        return self.log.proved

    @property
    def others(self) -> list[AnotherLog]:
        return self.parts.events(AnotherLog)

    def begin_pull(self, request: PullRequest, on_answer: Callable[[Any], None]) -> None:
        if request.max_messages == 1:
            self.pulls.append(Pull(request, on_answer))

    def brokers_at(self, address: str) -> list[str]:
        return [address.partition(":")[0]]

    def same_up_to(self, answer: PullAnswer) -> int:
        """Where the broker answers that."""
        self.pull = lambda request, deadline: answer
        return self.queue.same_up_to(Deadline(1.0))

    def note(self, mark: Mark) -> None:
        self.coordinator.note("g", {"orders/a/0": mark.text})

    @property
    def noted(self) -> str | None:
        [text] = self.coordinator.noted("g", ["orders/a/0"])
        return text

    def begin(self, offset: int) -> None:
        self.queue.seek(offset)
        self.queues.prove()


def test_from_the_beginning_of_all_logs_nothing_has_to_be_proved() -> None:
    bench = Bench()
    bench.begin(0)
    assert bench.may_read()
    assert not bench.pulls


def test_above_it_nothing_is_read_before_the_mark_is_seen() -> None:
    bench = Bench()
    bench.note(Mark(20, 50))
    bench.begin(30)
    assert not bench.may_read()
    [pull] = bench.pulls
    assert (pull.request.offset, pull.request.suspend_s, pull.request.subscription.expression) == (20, 0, "*")
    pull.answer(found(20, 50))
    assert bench.may_read()
    assert bench.parts.events(Proved) == [Proved(Q)]


def test_another_message_at_the_mark_is_another_log() -> None:
    bench = Bench()
    bench.note(Mark(20, 50))
    bench.begin(30)
    bench.pulls[0].answer(found(20, 51))
    assert not bench.may_read()
    [other] = bench.others
    assert "message 20 is another" in other.log.why


def test_whatever_log_it_is_what_lies_above_all_that_was_done_may_be_read() -> None:
    bench = Bench()
    bench.note(Mark(20, 50))
    bench.begin(30)
    bench.pulls[0].answer(none(PullStatus.MOVED, 30, least=30))
    assert bench.may_read()
    bench.queue.seek(30)
    bench.queues.prove()
    bench.pulls[1].answer(found(31, 51, least=30))
    assert bench.may_read()


@pytest.mark.parametrize("orphan", [False, True])
def test_where_nothing_is_noted_the_groups_offset_at_the_broker_tells(*, orphan: bool) -> None:
    bench = Bench()
    bench.queue.taken_over(None if orphan else 30)
    bench.begin(30)
    assert bench.pulls[0].request.offset == 29
    bench.pulls[0].answer(found(29, 50))
    assert bench.may_read() is not orphan
    assert [other.queue for other in bench.others] == [Q] * orphan
    bench.queues.store_marks()
    assert bench.noted == (None if orphan else "29@50")  # then it is


def test_a_group_that_begins_at_the_end_has_no_offset_and_nothing_to_tell() -> None:
    bench = Bench()
    bench.queue.taken_over(None)
    bench.queue.orphan = False
    bench.begin(30)
    bench.pulls[0].answer(found(29, 50))
    assert bench.may_read()


def test_what_a_log_has_brought_vouches_for_it_only_after_the_last_mark_was_seen_again() -> None:
    bench = Bench()
    bench.begin(0)
    bench.log.came(found(0, 50).body)
    assert bench.log.done_below(5)
    bench.queues.renew_marks()
    assert bench.noted == "0@50"
    bench.log.came(found(5, 60).body)
    bench.queues.renew_marks()
    assert not bench.pulls  # it is not done
    bench.log.done_below(9)
    bench.queues.renew_marks()
    assert bench.noted == "0@50"
    bench.pulls[0].answer(found(0, 50))
    bench.queues.renew_marks()
    assert bench.noted == "5@60"
    bench.log.came(found(9, 70).body)
    bench.log.done_below(12)
    bench.queues.renew_marks()
    bench.pulls[1].answer(found(5, 65))
    bench.queues.renew_marks()
    assert bench.noted == "5@60"
    assert not bench.may_read()
    assert len(bench.others) == 1


def marked() -> Bench:
    """Message 0 was read, and is the mark; all before 5 is done."""
    bench = Bench()
    bench.begin(0)
    bench.log.came(found(0, 50).body)
    bench.log.done_below(5)
    bench.queues.renew_marks()
    return bench


def test_after_trouble_with_its_broker_it_is_proved_anew() -> None:
    bench = marked()
    bench.queue.doubt()
    assert not bench.may_read()
    bench.queues.prove()
    bench.pulls[0].answer(SourceUnavailable("away"))
    assert [queue for queue, _ in bench.parts.events(Trouble)] == [Q]
    assert not bench.may_read()


def test_after_trouble_the_newest_message_that_was_read_is_looked_at_not_the_mark() -> None:
    """A slave with less that is made the master has the mark as well, and other messages behind it."""
    bench = marked()
    bench.log.came(found(7, 57).body + found(8, 58).body)
    bench.queues.connection_broke("a:1")
    bench.queues.prove()
    assert bench.pulls[-1].request.offset == 8
    bench.pulls[-1].answer(found(8, 99))
    assert not bench.may_read()
    assert [other.log.why for other in bench.others] == ["it is not the log that was read before: message 8 is another"]
    assert bench.same_up_to(found(0, 50)) == 1
    assert bench.same_up_to(found(0, 51)) == 0


def test_an_answer_about_the_mark_that_was_asked_for_before_the_trouble_does_not_end_the_doubt() -> None:
    bench = marked()
    bench.log.came(found(7, 57).body + found(8, 58).body)
    bench.log.done_below(9)
    bench.queues.renew_marks()  # asks at the mark, for a newer one
    bench.queues.connection_broke("a:1")
    bench.pulls[-1].answer(found(0, 50))
    assert not bench.may_read()
    bench.queues.prove()
    assert [pull.request.offset for pull in bench.pulls] == [0, 8]
    bench.pulls[-1].answer(found(8, 58))
    assert bench.may_read()


def test_what_was_done_before_the_trouble_is_noted_in_the_midst_of_it() -> None:
    """Who reads the queue next would know nothing of its log otherwise."""
    bench = Bench()
    bench.begin(0)
    bench.log.came(found(0, 50).body)
    bench.queues.connection_broke("a:1")
    assert bench.log.done_below(5)
    bench.queues.renew_marks()
    assert bench.noted == Mark(0, 50).text


def test_a_connection_of_another_broker_that_broke_puts_nothing_in_doubt() -> None:
    bench = Bench()
    bench.begin(0)
    bench.log.came(found(0, 50).body)
    bench.queues.connection_broke("b:1")
    assert bench.may_read()
    bench.queues.connection_broke("a:1")
    assert not bench.may_read()


def test_answers_about_a_reading_that_is_over_say_nothing() -> None:
    bench = Bench()
    bench.note(Mark(20, 50))
    bench.begin(30)
    bench.queues.let_go([Q])
    bench.queues.assign([Q])
    bench.begin(0)
    bench.pulls[0].answer(found(20, 51))
    assert bench.may_read()
    assert not bench.others


def test_a_reset_that_the_answer_told_of_is_passed_on() -> None:
    bench = Bench()
    bench.note(Mark(20, 50))
    bench.begin(30)
    bench.pulls[0].answer(none(PullStatus.MOVED, 4))
    [moved] = bench.parts.events(Moved)
    assert (moved.queue, moved.asked, moved.answer.next_offset) == (Q, 20, 4)
    assert not bench.may_read()


def test_a_mark_is_read_from_a_message_of_any_kind() -> None:
    some = Stored("orders", b"x", offset=7, stored_ms=50)
    kinds = [some, replace(some, born_v6=True), replace(some, v2=True), replace(some, zlib=True)]
    for kind in (*kinds, replace(some, store_v6=True)):
        assert Mark.first_of(kind.encode() + Stored("orders", b"y", offset=8).encode()) == Mark(7, 50)
        assert Mark.last_of(Stored("orders", b"y", offset=6).encode() + kind.encode()) == Mark(7, 50)
    assert Mark.first_of(b"") is None
    assert Mark.last_of(b"") is None


def test_the_mark_of_a_queue_that_is_gone_for_good_goes_too() -> None:
    bench = Bench()
    bench.note(Mark(20, 50))
    bench.queues.forget_marks([Q])
    assert bench.noted is None
