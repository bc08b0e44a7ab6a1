"""Commits of one member of a group of RocketMQ's: what becomes of them, and whether somebody has overwritten them."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple, Protocol

from holdfast.plugin.ports import CommitFate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from holdfast.records import Partition
    from holdfast.runtime import Event
    from holdfast.testing.brokers.agenda import Line
    from tests.simulation.brokers.rocketmq import RocketBroker

#: How long a hand-over waits for the broker's word on the last commit.
LAST_COMMIT_S = 2.0
#: How often a member compares the broker's offsets with what was acknowledged.
_LOOK_S = 5.0
#: A request that has no answer by then has none.
_REQUEST_S = 5.0
_LEAST_S = 0.001


class Answer(NamedTuple):
    """The answer to one commit."""

    queue: Partition
    offset: int
    fate: CommitFate


class Committing(Protocol):
    """The member whose commits they are."""

    @property
    def broker(self) -> RocketBroker:
        """The broker that they go to."""
        ...

    @property
    def group(self) -> str:
        """The group whose offsets they are."""
        ...

    @property
    def line(self) -> Line:
        """The line to the broker."""
        ...

    def wake(self) -> None:
        """There is an answer."""
        ...


class QueueCommits:
    """Of each queue one is under way, and the newest waits behind it. Guarded by the broker's lock."""

    def __init__(self, member: Committing) -> None:
        self._member, self._broker, self._group = member, member.broker, member.group
        #: What the listener is to be told.
        self.answers: deque[Answer] = deque()
        self._under_way: dict[Partition, int] = {}
        self._following: dict[Partition, int] = {}
        #: Or what the broker had when the queue came.
        self._acknowledged: dict[Partition, int] = {}
        self._look_at = 0.0

    def begin(self, now: float, queue: Partition, offset: int) -> None:
        """Commit it, after that which is under way."""
        if queue in self._under_way:
            self._following[queue] = offset
        else:
            self._send(now, queue, offset)

    def refuse(self, queue: Partition, offset: int) -> None:
        """Refuse a commit of a queue that is not ours any more: nothing is sent."""
        self.answers.append(Answer(queue, offset, CommitFate.DISCARD))

    def came(self, found: Mapping[Partition, int | None]) -> None:
        """Note the broker's offsets of queues that came."""
        for queue, at in found.items():
            if at is not None and queue not in self._under_way:
                self._acknowledged.setdefault(queue, at)

    def forget(self, queue: Partition) -> None:
        """Forget a queue that is not ours any more."""
        self._acknowledged.pop(queue, None)

    def look(self, now: float) -> Sequence[tuple[Partition, int]]:
        """Now and then: queues whose offset is not the one that was acknowledged, with it. Without the lock."""
        line = self._member.line
        if now < self._look_at or not (line.hears and line.speaks):
            return ()
        self._look_at = now + _LOOK_S
        with self._broker.changed:
            known = [each for each in self._acknowledged.items() if each[0] not in self._under_way]
            found = [(queue, at, self._broker.offsets.get((self._group, queue), -1)) for queue, at in known]
        return [(queue, other) for queue, at, other in found if other != at]

    def wait(self, news: Event) -> None:
        """Until all that is under way is answered, or for so long. Without the lock."""
        until = self._broker.settle() + LAST_COMMIT_S
        while self._under_way and (now := self._broker.settle()) < until:
            news.clear()
            with self._broker.changed:
                due = self._broker.next_due()
            if self._under_way:
                news.wait(max(_LEAST_S, min(until, until if due is None else due) - now))

    def _send(self, now: float, queue: Partition, offset: int) -> None:
        self._under_way[queue] = offset
        member, open_ = self._member, [True]

        def answered(fate: CommitFate) -> None:
            if open_.pop() if open_ else False:
                self.answers.append(Answer(queue, offset, fate))
                del self._under_way[queue]
                if fate is CommitFate.DONE:
                    self._acknowledged[queue] = offset
                else:
                    self._acknowledged.pop(queue, None)
                if queue in self._following:
                    self._send(self._broker.time, queue, self._following.pop(queue))
                member.wake()

        def apply() -> CommitFate:
            if queue not in self._broker.logs:
                return CommitFate.DISCARD
            taken = self._broker.commit(self._group, queue, offset, member)
            return CommitFate.DONE if taken else CommitFate.AGAIN

        self._broker.send(member.line, now, apply, answered)
        if member.line.twice_s is not None and member.line.hears:
            self._broker.after(now, member.line.delay_s + member.line.twice_s, lambda: _void(apply()))
        if open_:
            self._broker.after(now, _REQUEST_S, lambda: answered(CommitFate.AGAIN))


def _void(_: object) -> None:
    """Nobody hears that answer."""
