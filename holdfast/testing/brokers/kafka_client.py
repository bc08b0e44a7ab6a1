"""Kafka's client beside the application: it joins, beats, is told, and leaves in time."""

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
#: No wait is shorter: of two that differ by the last digit of a float, no time would pass in between.
_LEAST_S = 0.001


class GroupClient:
    """One member's side of its group. All but `run` is called with the broker's lock.

    Where it has no session (`session_s` is None) it has no task either: it beats with each poll, and learns everything
    at once.
    """

    def __init__(self, member: GroupMember, broker: KafkaTopics, group: MemoryGroup) -> None:
        self._member, self._broker, self._group = member, broker, group
        self.line = Line()
        self.session_s: float | None = None
        self.beat_s = 3.0
        self.max_poll_s = 300.0
        self.request_s = 5.0
        self.is_eager, self._rounds = group.protocol == "eager", group.protocol != "consumer"
        #: Wakes the task; wakes a poll that waits.
        self._due = broker.runtime.event()
        self.news = broker.runtime.event()
        self.closed = False
        #: Another one each time that it comes anew.
        self.id = next(_IDS)
        self.epoch = 0
        self.joined = False
        #: What it should have, as it was told last; None = it was not told yet.
        self.meant: frozenset[Partition] | None = None
        #: The group has told it its share since it came.
        self.placed = False
        #: Why it is no member any more, until the application has been told.
        self.expelled: Answer | None = None
        #: A round is open that it has not joined.
        self.round = False
        #: It has said that it joins, and was not answered.
        self._rejoins = False
        #: The application is being told: nothing is joined meanwhile.
        self.telling = False
        self.polled_at = 0.0
        self._beat_at = 0.0
        #: Requests are numbered; the answer that is waited for, and since when.
        self._requests = 0
        self._asked: tuple[int, float] | None = None
        #: Commits without an answer.
        self.under_way: dict[int, Mapping[Partition, int]] = {}
        self.answered: list[tuple[Partition, int, CommitFate]] = []

    # ---- by itself
    def run(self) -> None:
        """Until the member is closed. A task of its own, of the member's process: stopped with it, it is silent."""
        while not self.closed:
            self._due.clear()
            now = self._broker.settle()
            with self._broker.changed:
                wait_s = self.step(now)
            self._due.wait(wait_s)

    def step(self, now: float) -> float:
        """Do what is due now. Returns: when to look again, in seconds."""
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
        """Whether the application has been told all that is known here."""
        return not self.telling and (self.meant is None or self.meant == frozenset(self._member.readers))

    def join_round(self, now: float) -> None:
        """Ready for the next generation, or, under the consumer protocol, said at once what it has given up."""
        self.round, self._rejoins = False, True
        if self.is_eager:
            self.meant = frozenset()  # until the round is over
        member_id, owned, static_id = self.id, self._member.owned, self._member.static_id
        self._ask(now, lambda: self._group.rejoin(member_id, static_id, owned))

    def leave(self, now: float, *, comes_back: bool = False) -> None:
        """Say so to the group. Of a classic static member that comes back the group hears nothing."""
        if self.joined and not (comes_back and self._rounds):
            member_id, session_s = self.id, self.session_s
            self._broker.send(
                self.line,
                now,
                lambda: self._group.leave(member_id, comes_back=comes_back, session_s=session_s),
                lambda _: None,
            )

    def come_anew(self) -> None:
        """Come back as another member than before."""
        self.id = next(_IDS)
        self.epoch, self.joined, self.meant, self.expelled, self.round = 0, False, None, None, False
        self._asked, self._rejoins, self.placed = None, False, False
        self._due.set()

    # ---- what is told
    def is_told(self, member_id: int, told: Told) -> None:
        """The coordinator answers what was asked before."""
        line = self.line
        if line.speaks:
            self._broker.after(self._broker.time, line.delay_s, lambda: self._learn(member_id, told))

    def _ask(self, now: float, ask: Callable[[], Told]) -> None:
        self._requests += 1
        number, member_id = self._requests, self.id
        self._asked = (number, now)
        self._beat_at = now + self.beat_s

        def answered(told: Told) -> None:
            if self._asked is not None and self._asked[0] == number:  # else it was given up
                self._asked, self._rejoins = None, False
                self._learn(member_id, told)

        self._broker.send(self.line, now, ask, answered)

    def _learn(self, member_id: int, told: Told) -> None:
        if member_id != self.id or self.closed:
            return  # of a life before
        if told.refusal is not None:
            self.expel(told.refusal)
            return
        if told.epoch < self.epoch:
            return  # overtaken
        self.joined, self.epoch, self.round = True, told.epoch, told.rejoin
        if told.assigned is not None:
            self.meant, self.placed = told.assigned, True
        if not self.settled or self.round:
            self.news.set()
            self._due.set()

    def expel(self, why: Answer) -> None:
        """Throw the member out; the application hears so in its next poll."""
        self.expelled = why
        self.news.set()

    # ---- commits
    def commit(
        self, now: float, offsets: Mapping[Partition, int], topic_ids: Mapping[Partition, int], store: str
    ) -> None:
        """Send one, with what is known of the group at this moment."""
        self._requests += 1
        number = self._requests
        sent = CommitRequest(self._member, self.id, self.epoch, dict(offsets), topic_ids, store)
        self.under_way[number] = sent.offsets

        def answered(fates: Mapping[Partition, CommitFate]) -> None:
            if self.under_way.pop(number, None) is not None:
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
    """Nobody hears that answer."""
