"""GroupClient: the part of Kafka's client that works beside the application. It joins, sends heartbeats and leaves."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from holdfast.plugin.ports import CommitFate
from holdfast.testing.brokers.agenda import Line
from holdfast.testing.brokers.kafka_answers import Answer, Told
from holdfast.testing.brokers.kafka_group import CommitRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.records import Partition
    from holdfast.testing.brokers.kafka_answers import GroupMember
    from holdfast.testing.brokers.kafka_group import MemoryGroup
    from holdfast.testing.brokers.kafka_topics import KafkaTopics

_IDS = count(1)
#: The shortest wait. Two times that differ by a rounding error would let no time pass.
_LEAST_S = 0.001


class GroupClient:
    """One member's side of its group. All methods but `run` are called with the broker's lock.

    Without a session (`session_s` is None) there is no task: the client sends a heartbeat with each poll and learns
    everything at once.
    """

    def __init__(self, member: GroupMember, broker: KafkaTopics, group: MemoryGroup) -> None:
        self._member, self._broker, self._group = member, broker, group
        self.line = Line()
        self.session_s: float | None = None
        self.beat_s = 3.0
        self.max_poll_s = 300.0
        self.request_s = 5.0
        self.is_eager, self._rounds = group.protocol == "eager", group.protocol != "consumer"
        #: `_due` wakes the task, `news` wakes a poll that waits.
        self._due = broker.runtime.event()
        self.news = broker.runtime.event()
        self.closed = False
        #: The member id: a new one at each new join.
        self.id = next(_IDS)
        self.epoch = 0
        self.joined = False
        #: The last assignment that the group has sent; None = none yet.
        self.meant: frozenset[Partition] | None = None
        #: Whether the group has sent an assignment since it joined.
        self.placed = False
        #: Why it is no member any more, until the application has been told.
        self.expelled: Answer | None = None
        #: Whether a round is open that it has not joined.
        self.round = False
        #: Whether it has asked to join the round and has no answer.
        self._rejoins = False
        #: Whether a callback of the application runs: the client joins no round meanwhile.
        self.telling = False
        self.polled_at = 0.0
        self._beat_at = 0.0
        #: The number of the last request; (number, sent at) of the request that is waited for.
        self._requests = 0
        self._asked: tuple[int, float] | None = None
        #: Commits without an answer, by the number of their request.
        self.under_way: dict[int, Mapping[Partition, int]] = {}
        self.answered: list[tuple[Partition, int, CommitFate]] = []

    # ---- the task
    def run(self) -> None:
        """Run until the member is closed. A task of the member's process: while the process is frozen, no heartbeat is
        sent."""
        while not self.closed:
            self._due.clear()
            now = self._broker.settle()
            with self._broker.changed:
                wait_s = self.step(now)
            self._due.wait(wait_s)

    def step(self, now: float) -> float:
        """Do what is due now. Returns: seconds until the next step."""
        if self.closed or self.expelled is not None:
            return self.beat_s
        if self.session_s is not None and now - self.polled_at > self.max_poll_s:
            self.leave(now)
            self.expel(Answer.UNKNOWN_MEMBER_ID)
            return self.beat_s
        if self._asked is not None and now - self._asked[1] < self.request_s:
            return max(_LEAST_S, self._asked[1] + self.request_s - now)
        if not self.joined:
            member_id = self.id
            self._ask(now, lambda: self._group.join(self._member, member_id, self.session_s))
        elif self._rejoins or (self.round and not self.is_eager and self.settled):
            self.join_round(now)
        elif self.session_s is None or now >= self._beat_at:
            member_id, owned, static_id = self.id, self._member.owned, self._member.static_id
            self._ask(now, lambda: self._group.beat(member_id, static_id, owned, self.session_s))
        return self.beat_s

    @property
    def settled(self) -> bool:
        """Whether the application has been told of the last assignment."""
        return not self.telling and (self.meant is None or self.meant == frozenset(self._member.readers))

    def join_round(self, now: float) -> None:
        """Join the next generation; under the consumer protocol, report at once which partitions were given up."""
        self.round, self._rejoins = False, True
        if self.is_eager:
            self.meant = frozenset()  # until the round is over
        member_id, owned, static_id = self.id, self._member.owned, self._member.static_id
        self._ask(now, lambda: self._group.rejoin(member_id, static_id, owned))

    def leave(self, now: float, *, comes_back: bool = False) -> None:
        """Tell the group that the member leaves. A classic static member that comes back sends nothing."""
        if self.joined and not (comes_back and self._rounds):
            member_id, session_s = self.id, self.session_s
            self._broker.send(
                self.line,
                now,
                lambda: self._group.leave(member_id, comes_back=comes_back, session_s=session_s),
                lambda _: None,
            )

    def come_anew(self) -> None:
        """Become a new member, with a new member id."""
        self.id = next(_IDS)
        self.epoch, self.joined, self.meant, self.expelled, self.round = 0, False, None, None, False
        self._asked, self._rejoins, self.placed = None, False, False
        self._due.set()

    # ---- answers of the coordinator
    def is_told(self, member_id: int, told: Told) -> None:
        """The coordinator answers an earlier request."""
        line = self.line
        if line.speaks:
            self._broker.after(self._broker.time, line.delay_s, lambda: self._learn(member_id, told))

    def _ask(self, now: float, ask: Callable[[], Told]) -> None:
        self._requests += 1
        number, member_id = self._requests, self.id
        self._asked = (number, now)
        self._beat_at = now + self.beat_s

        def answered(told: Told) -> None:
            if self._asked is not None and self._asked[0] == number:  # else the request has timed out
                self._asked, self._rejoins = None, False
                self._learn(member_id, told)

        self._broker.send(self.line, now, ask, answered)

    def _learn(self, member_id: int, told: Told) -> None:
        if member_id != self.id or self.closed:
            return  # for an earlier member id
        if told.refusal is not None:
            self.expel(told.refusal)
            return
        if told.epoch < self.epoch:
            return  # a newer answer has overtaken it
        self.joined, self.epoch, self.round = True, told.epoch, told.rejoin
        if told.assigned is not None:
            self.meant, self.placed = told.assigned, True
        if not self.settled or self.round:
            self.news.set()
            self._due.set()

    def expel(self, why: Answer) -> None:
        """End the membership; the next poll tells the application."""
        self.expelled = why
        self.news.set()

    # ---- commits
    def commit(
        self,
        now: float,
        offsets: Mapping[Partition, int],
        topic_ids: Mapping[Partition, int],
        store: str,
        *,
        marked: bool = True,
    ) -> None:
        """Send a commit with the member id and the epoch of this moment."""
        self._requests += 1
        number = self._requests
        sent = CommitRequest(self._member, self.id, self.epoch, dict(offsets), topic_ids, store, marked)
        self.under_way[number] = sent.offsets

        def answered(fates: Mapping[Partition, CommitFate]) -> None:
            if self.under_way.pop(number, None) is not None and marked:
                self.answered += [(partition, offset, fates[partition]) for partition, offset in sent.offsets.items()]
                self.news.set()

        self._broker.send(self.line, now, lambda: self._group.commit_all(sent), answered)
        if self.line.twice_s is not None and self.line.hears:
            again = sent._replace(again=True)
            self._broker.after(now, self.line.delay_s + self.line.twice_s, lambda: void(self._group.commit_all(again)))
        if number in self.under_way:
            timed_out = dict.fromkeys(sent.offsets, CommitFate.AGAIN)
            self._broker.after(now, self.request_s, lambda: answered(timed_out))


def void(_: object) -> None:
    """Drop an answer."""
