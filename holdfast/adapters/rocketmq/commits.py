"""Commits of the group's offsets: one at a time for each queue, their fates, refusals, and commits of other programs.

A slave accepts commits without applying them (5.5.0): only masters get them. Brokers accept commits from every client,
so the offsets that they have are compared with those that they acknowledged.
"""

from __future__ import annotations

import logging
import math
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.inbox import CommitAnswered, Overwritten
from holdfast.adapters.rocketmq.offsets import REQUEST_S
from holdfast.adapters.rocketmq.remoting import BrokerRefused, CommitIgnored, codes
from holdfast.adapters.rocketmq.remoting.admin import missing_group
from holdfast.errors import SourceError, SourceUnavailable, UnknownTopic
from holdfast.plugin.ports import CommitFate
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from holdfast.adapters.rocketmq.inbox import Inbox
    from holdfast.adapters.rocketmq.offsets import Offsets
    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.rocketmq")

#: A refusal that lasts this long is not temporary.
_LASTS_S = 10.0


class _Refusal(NamedTuple):
    since: float
    #: When to report it; None: it is reported already.
    tell_at: float | None
    error: SourceError


class QueueCommits:
    """The commits of one queue. It outlives the queue's assignment until the last commit is answered: a broker may
    reorder two commits, also if the queue has come back meanwhile."""

    __slots__ = ("_commits", "_gone", "_next", "_refused", "acknowledged", "assigned", "queue", "under_way")

    def __init__(self, queue: Partition, commits: Commits) -> None:
        self.queue, self._commits = queue, commits
        self.assigned = True
        #: A commit is not answered yet.
        self.under_way = False
        #: The offset to commit after the answer.
        self._next: int | None = None
        #: The offset that the broker acknowledged last, or had when the queue was assigned: a queue in which everything
        #: was handled before gets no commit.
        self.acknowledged: int | None = None
        #: The queue was let go while its commit was under way.
        self._gone = False
        #: The last commit was not accepted, which is logged once.
        self._refused = False

    def begin(self, offset: int) -> None:
        """Begin to commit, or after the answer to the commit that is under way. Never waits."""
        with self._commits.changed:
            self._gone = False
            if self.under_way:
                self._next = offset
                return
            self.under_way = True
        self._send(offset)

    def found(self, offset: int | None) -> None:
        """Note the offset that the broker has when the queue is taken over."""
        with self._commits.changed:
            if self.acknowledged is None and not self.under_way:
                self.acknowledged = offset

    def let_go(self) -> None:
        """Note that this member has lost the queue. A commit that waits for an earlier answer is not sent: the next
        owner may have committed meanwhile."""
        self.acknowledged = self._next = None
        self.assigned, self._refused, self._gone = False, False, self.under_way

    def _send(self, offset: int) -> None:
        try:
            self._commits.send(self.queue, offset, partial(self._answered, offset))
        except SourceError as error:
            self._answered(offset, error)

    def _answered(self, offset: int, error: SourceError | None) -> None:
        fate = _fate(error)
        if error is not None:  # INFO once per outage
            _log.log(logging.DEBUG if self._refused else logging.INFO, "a commit was not taken: %s", error)
        self._refused = error is not None
        with self._commits.changed:
            following, self._next = self._next, None
            self.under_way = following is not None
            self._commits.answered(self, error, gone=self._gone)
            self.acknowledged = offset if fate is CommitFate.DONE and not self._gone else None
            self._gone = False
            self._commits.inbox.post(CommitAnswered(self.queue, offset, fate))
        if following is not None:
            self._send(following)


class Commits:
    """The commits of all queues. The inbox' lock guards the state.

    Args:
        client: sends the requests.
        group: the consumer group.
        inbox: gets the fates.
        offsets: reads the brokers' offsets.
    """

    def __init__(self, client: RemotingClient, group: str, inbox: Inbox, offsets: Offsets) -> None:
        self._client, self._group, self.offsets = client, group, offsets
        self.inbox, self.changed = inbox, inbox.changed
        self._queues: dict[Partition, QueueCommits] = {}
        #: Queues whose commits a broker refuses. A missing answer is no refusal.
        self._refusals: dict[Partition, _Refusal] = {}
        #: No broker has accepted a commit yet.
        self.never_taken = True

    def of(self, queue: Partition) -> QueueCommits:
        """The commits of an assigned queue."""
        with self.changed:
            commits = self._queues.setdefault(queue, QueueCommits(queue, self))
            commits.assigned = True
            return commits

    def refuse(self, queue: Partition, offset: int) -> None:
        """Discard a commit of a queue that this member has lost. Sends nothing."""
        self.inbox.post(CommitAnswered(queue, offset, CommitFate.DISCARD))

    def wait(self, deadline: Deadline, queues: Collection[Partition] | None = None) -> bool:
        """Wait until the commits of these queues (None: of all) are answered. Returns False if the deadline passes
        first."""

        def answered() -> bool:
            every = self._queues.values()
            return not any(each.under_way and (queues is None or each.queue in queues) for each in every)

        with self.changed:
            return self.changed.wait_for(answered, deadline.left_s())

    def let_go(self, queue: Partition) -> None:
        """Forget a queue that this member has lost, once its last commit is answered."""
        with self.changed:
            self._refusals.pop(queue, None)
            commits = self._queues.get(queue)
            if commits is not None:
                commits.let_go()
                if not commits.under_way:
                    del self._queues[queue]

    def look(self, deadline: Deadline) -> None:
        """Compare the brokers' offsets with the acknowledged ones. Waits, so not on the loop's thread. Raises
        SourceError: a broker does not answer; the others' offsets are compared all the same."""
        with self.changed:
            known = {
                each: each.acknowledged
                for each in self._queues.values()
                if each.acknowledged is not None and not each.under_way
            }
        answers = self.offsets.each_committed([each.queue for each in known], deadline)
        trouble: SourceError | None = None
        with self.changed:
            for each, at in known.items():
                found = answers[each.queue]
                if isinstance(found, SourceError):
                    trouble = found
                elif each.acknowledged == at and not each.under_way and found != at:
                    self.inbox.post(Overwritten(each.queue, -1 if found is None else found))
        if trouble is not None:
            raise trouble

    # ---- refusals
    def lasting_refusal(self) -> tuple[Partition, SourceError] | None:
        """A queue whose commits a broker has refused for 10 s, and the error; None: there is none. Each is returned
        once. It matters because no record of a queue starts before its first commit is accepted."""
        if not self._refusals:
            return None
        with self.changed:
            now = SYSTEM_CLOCK.now()
            found = next((each for each in self._refusals.items() if now >= (each[1].tell_at or math.inf)), None)
            if found is None:
                return None
            queue, refusal = found
            self._refusals[queue] = refusal._replace(tell_at=None)
        error = refusal.error
        if isinstance(error, BrokerRefused) and error.code == codes.GROUP_NOT_EXIST:
            return queue, missing_group(self._group, queue.broker)
        return queue, error

    def refused_as_a_whole(self, queues: Collection[Partition]) -> bool:
        """Whether no commit of the group was ever accepted, and those of all these queues are refused for 10 s."""
        with self.changed:
            due = SYSTEM_CLOCK.now() - _LASTS_S
            return self.never_taken and all(
                (refusal := self._refusals.get(queue)) is not None and refusal.since <= due for queue in queues
            )

    # ---- for QueueCommits
    def send(self, queue: Partition, offset: int, on_answer: Callable[[SourceError | None], None]) -> None:
        """Send a commit. Raises SourceError: it could not be sent."""
        self._client.begin_commit(queue, self._group, offset, on_answer, timeout_s=REQUEST_S)

    def answered(self, commits: QueueCommits, error: SourceError | None, *, gone: bool) -> None:
        """Note the answer to a commit. Under the lock."""
        queue = commits.queue
        if error is None or gone:
            self.never_taken = self.never_taken and error is not None
            self._refusals.pop(queue, None)
        elif not isinstance(error, (SourceUnavailable, CommitIgnored, UnknownTopic)):
            now = SYSTEM_CLOCK.now()
            before = self._refusals.get(queue, _Refusal(now, None, error))
            tell_at = now + _LASTS_S if before.tell_at is None else before.tell_at
            self._refusals[queue] = _Refusal(before.since, tell_at, error)
        if not commits.assigned and not commits.under_way:
            self._queues.pop(queue, None)


def _fate(error: SourceError | None) -> CommitFate:
    if error is None:
        return CommitFate.DONE
    # CommitIgnored: a reset waits at the broker, and the next pull is answered by it.
    again = isinstance(error, (SourceUnavailable, CommitIgnored))
    return CommitFate.AGAIN if again or not isinstance(error, UnknownTopic) else CommitFate.DISCARD
