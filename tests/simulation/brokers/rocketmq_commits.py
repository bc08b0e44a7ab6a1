"""QueueCommits: the commits of one member of a RocketMQ group, their answers, and offsets that others overwrote."""

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

#: How long a hand-over waits for the answer to the last commit.
LAST_COMMIT_S = 2.0
#: Time between comparisons of the broker's offsets with the acknowledged ones.
_LOOK_S = 5.0
#: The timeout of a request.
_REQUEST_S = 5.0
_LEAST_S = 0.001


class Answer(NamedTuple):
    """The answer to one commit."""

    queue: Partition
    offset: int
    fate: CommitFate


class Committing(Protocol):
    """The member, as its commits see it."""

    @property
    def broker(self) -> RocketBroker:
        """The member's broker."""
        ...

    @property
    def group(self) -> str:
        """The name of the group."""
        ...

    @property
    def line(self) -> Line:
        """The line to the broker."""
        ...

    def wake(self) -> None:
        """Wake a poll that waits: there is an answer."""
        ...


class QueueCommits:
    """Of each queue one commit is under way, and the newest waits behind it. Guarded by the broker's lock."""

    def __init__(self, member: Committing) -> None:
        self._member, self._broker, self._group = member, member.broker, member.group
        #: Answers that the listener has not been told.
        self.answers: deque[Answer] = deque()
        self._under_way: dict[Partition, int] = {}
        self._following: dict[Partition, int] = {}
        #: Queue -> offset that was acknowledged last, or the broker's offset when the queue was assigned.
        self._acknowledged: dict[Partition, int] = {}
        self._look_at = 0.0

    def begin(self, now: float, queue: Partition, offset: int) -> None:
        """Commit an offset, after the commit of that queue that is under way."""
        if queue in self._under_way:
            self._following[queue] = offset
        else:
            self._send(now, queue, offset)

    def refuse(self, queue: Partition, offset: int) -> None:
        """Answer the commit of a queue that the member has lost; nothing is sent."""
        self.answers.append(Answer(queue, offset, CommitFate.DISCARD))

    def came(self, found: Mapping[Partition, int | None]) -> None:
        """Note the broker's offsets of newly assigned queues."""
        for queue, at in found.items():
            if at is not None and queue not in self._under_way:
                self._acknowledged.setdefault(queue, at)

    def forget(self, queue: Partition) -> None:
        """Forget a queue that the member has lost."""
        self._acknowledged.pop(queue, None)

    def look(self, now: float) -> Sequence[tuple[Partition, int]]:
        """Each `_LOOK_S`: queues whose offset differs from the acknowledged one, with that offset. Called without the
        lock."""
        line = self._member.line
        if now < self._look_at or not (line.hears and line.speaks):
            return ()
        self._look_at = now + _LOOK_S
        with self._broker.changed:
            known = [each for each in self._acknowledged.items() if each[0] not in self._under_way]
            found = [(queue, at, self._broker.offsets.get((self._group, queue), -1)) for queue, at in known]
        return [(queue, other) for queue, at, other in found if other != at]

    def wait(self, news: Event) -> None:
        """Wait until all commits under way are answered, for at most `LAST_COMMIT_S`. Called without the lock."""
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
    """Drop an answer."""
