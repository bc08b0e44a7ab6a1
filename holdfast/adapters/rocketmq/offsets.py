"""A group's offsets at the brokers: reads, commits and checks them, since brokers accept commits from every client.

- Before it joins, the source tries requests that it may need later (the end of a log, with the group's and each topic's
  name): a missing permission should stop the start, not a running app.
- A slave has offsets up to a minute late, and accepts commits without applying them (5.5.0). Only masters are asked.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.group_settings import missing
from holdfast.adapters.rocketmq.names import RETRY, retry_topic
from holdfast.adapters.rocketmq.remoting import Admin, BrokerRefused, CommitIgnored, NoAnswer, codes
from holdfast.adapters.rocketmq.remoting.answers import is_of_broker
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable, UnknownTopic
from holdfast.plugin.ports import CommitFate
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import RemotingClient

    _Question = Callable[[Partition, Callable[[int | SourceError | None], None]], None]

_log = logging.getLogger("holdfast.rocketmq")

#: The timeout of an asynchronous request; the engine repeats it.
_REQUEST_S = 5.0
#: The wait until a refused request about a queue is repeated.
_REFUSED_S = 5.0
#: A refusal that lasts this long is not temporary.
_LASTS_S = 10.0
#: The time for the check of permissions. A broker that does not answer in time is not checked.
_ACCESS_S = 3.0


class _Away(NamedTuple):
    times: int
    until: float


_HERE = _Away(0, 0.0)


class _Refusal(NamedTuple):
    since: float
    #: When to report it; None: it is reported already.
    tell_at: float | None
    error: SourceError


class Offsets:
    """Begins commits, and keeps their fates until the source takes them. `changed` guards the state.

    Args:
        client: sends the requests.
        group: the consumer group.
        changed: the source's; notified when a commit is answered.
    """

    def __init__(self, client: RemotingClient, group: str, changed: threading.Condition) -> None:
        self._client, self._group, self._changed = client, group, changed
        self._retries = retry_topic(group)
        self._fates: deque[tuple[Partition, int, CommitFate]] = deque()
        #: Queues with an unanswered commit.
        self._under_way: set[Partition] = set()
        #: Queue -> the offset to commit after the answer.
        self._next: dict[Partition, int] = {}
        #: Queue -> the offset that the broker acknowledged last, or had when the queue was assigned: a queue in which
        #: everything was handled before gets no commit.
        self._acknowledged: dict[Partition, int] = {}
        #: Queues that were revoked while their commit was under way.
        self._gone: set[Partition] = set()
        #: Queues whose last commit was not accepted. Used on connections' threads.
        self._refused: set[Partition] = set()
        #: Queues whose commits a broker refuses. A missing answer is no refusal.
        self._refusals: dict[Partition, _Refusal] = {}
        #: No broker has accepted a commit yet.
        self.never_taken = True
        #: (queue, offset at the broker), where that offset is not the acknowledged one.
        self.overwritten: deque[tuple[Partition, int]] = deque()
        #: Brokers that did not answer, and queues that were refused -> until when they are not asked.
        self._away: dict[str | Partition, _Away] = {}
        self._asked_ends: dict[Partition, int | SourceError] | None = None
        self._asked_of: Sequence[Partition] = ()

    # ---- commits
    def commit(self, queue: Partition, offset: int) -> None:
        """Begin to commit. Never waits. One commit at a time for each queue: a broker may reorder two."""
        with self._changed:
            self._gone.discard(queue)
            if queue in self._under_way:
                self._next[queue] = offset
                return
            self._under_way.add(queue)
        self._begin_commit(queue, offset)

    def _begin_commit(self, queue: Partition, offset: int) -> None:
        answered = partial(self._answered, queue, offset)
        try:
            self._client.begin_commit(queue, self._group, offset, answered, timeout_s=_REQUEST_S)
        except SourceError as error:
            answered(error)

    def refuse(self, queue: Partition, offset: int) -> None:
        """Discard a commit of a queue that this member has lost. Sends nothing."""
        with self._changed:
            self._fates.append((queue, offset, CommitFate.DISCARD))

    def wait(self, deadline: Deadline, queues: Collection[Partition] | None = None) -> bool:
        """Wait until the commits of these queues (None: of all) are answered. Returns False if the deadline passes
        first."""
        with self._changed:
            under_way = self._under_way
            return self._changed.wait_for(
                lambda: not under_way if queues is None else under_way.isdisjoint(queues), deadline.left_s()
            )

    def fates(self) -> Iterable[tuple[Partition, int, CommitFate]]:
        """Take the fates of answered commits: (queue, offset, fate)."""
        with self._changed:
            found = list(self._fates)
            self._fates.clear()
        return found

    @property
    def has_news(self) -> bool:
        """Whether fates or foreign commits wait for the source. Under the lock."""
        return bool(self._fates or self.overwritten)

    def forget(self, queues: Iterable[Partition]) -> None:
        """Forget queues that this member has lost. A commit that waits for an earlier answer is not sent: the next
        owner may have committed meanwhile."""
        with self._changed:
            for queue in queues:
                self._acknowledged.pop(queue, None)
                self._next.pop(queue, None)
                self._refusals.pop(queue, None)
                self._away.pop(queue, None)
                self._refused.discard(queue)
                if queue in self._under_way:
                    self._gone.add(queue)

    def _answered(self, queue: Partition, offset: int, error: SourceError | None) -> None:
        fate = _fate(error)
        if error is None:
            self._refused.discard(queue)
        else:  # INFO once per outage
            _log.log(logging.DEBUG if queue in self._refused else logging.INFO, "a commit was not taken: %s", error)
            self._refused.add(queue)
        with self._changed:
            following = self._next.pop(queue, None)
            if following is None:
                self._under_way.discard(queue)
            self._note_refusal(queue, error)
            if fate is CommitFate.DONE and queue not in self._gone:
                self._acknowledged[queue] = offset
            else:
                self._acknowledged.pop(queue, None)
            self._gone.discard(queue)
            self._fates.append((queue, offset, fate))
            self._changed.notify_all()
        if following is not None:
            self._begin_commit(queue, following)

    def _note_refusal(self, queue: Partition, error: SourceError | None) -> None:
        if error is None or queue in self._gone:
            self.never_taken = self.never_taken and error is not None
            self._refusals.pop(queue, None)
        elif not isinstance(error, (SourceUnavailable, CommitIgnored, UnknownTopic)):
            now = SYSTEM_CLOCK.now()
            before = self._refusals.get(queue, _Refusal(now, None, error))
            tell_at = now + _LASTS_S if before.tell_at is None else before.tell_at
            self._refusals[queue] = _Refusal(before.since, tell_at, error)

    def lasting_refusal(self) -> tuple[Partition, SourceError] | None:
        """A queue whose commits a broker has refused for 10 s, and the error; None: there is none. Each is returned
        once. It matters because no record of a queue starts before its first commit is accepted."""
        if not self._refusals:
            return None
        with self._changed:
            now = SYSTEM_CLOCK.now()
            found = next((each for each in self._refusals.items() if now >= (each[1].tell_at or math.inf)), None)
            if found is None:
                return None
            queue, refusal = found
            self._refusals[queue] = refusal._replace(tell_at=None)
        error = refusal.error
        if isinstance(error, BrokerRefused) and error.code == codes.GROUP_NOT_EXIST:
            return queue, missing(self._group, queue.broker)
        return queue, error

    def refused_as_a_whole(self, queues: Collection[Partition]) -> bool:
        """Whether no commit of the group was ever accepted, and those of all these queues are refused for 10 s."""
        with self._changed:
            due = SYSTEM_CLOCK.now() - _LASTS_S
            return self.never_taken and all(
                (refusal := self._refusals.get(queue)) is not None and refusal.since <= due for queue in queues
            )

    def look(self, deadline: Deadline) -> None:
        """Compare the brokers' offsets with the acknowledged ones. Waits, so not on the loop's thread. Raises
        SourceError: a broker does not answer; the others' offsets are compared all the same."""
        with self._changed:
            known = [(queue, at) for queue, at in self._acknowledged.items() if queue not in self._under_way]
        found = self._answers([queue for queue, _ in known], self._begin_query, deadline)
        trouble: SourceError | None = None
        with self._changed:
            for queue, at in known:
                other = found[queue]
                if isinstance(other, SourceError):
                    trouble = other
                elif self._acknowledged.get(queue) == at and queue not in self._under_way and other != at:
                    self.overwritten.append((queue, -1 if other is None else other))
            self._changed.notify_all()
        if trouble is not None:
            raise trouble

    # ---- questions
    def committed(self, queues: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int | None]:
        """The group's offsets; None: the broker has none. Raises SourceError."""
        return self._ask(queues, self._begin_query, deadline)

    def committed_of_some(self, queues: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int | None]:
        """The committed offsets, without those of brokers that do not answer; these are asked again after a wait.
        Raises SourceError: no broker answered."""
        now = SYSTEM_CLOCK.now()
        away = self._away
        asked = [each for each in queues if now >= max(away.get(key, _HERE).until for key in (each.broker, each))]
        found: dict[Partition, int | None] = {}
        trouble: SourceError | None = None
        for queue, answer in self._answers(asked, self._begin_query, deadline).items():
            if isinstance(answer, SourceError):
                trouble = answer
                key = queue.broker if is_of_broker(answer) else queue
                before = away.get(key, _HERE)
                if key is queue and not before.times:
                    _log.warning("%s stands still: its broker does not report the group's offset: %s", queue, answer)
                if before.until <= now:
                    times = before.times + 1
                    away[key] = _Away(times, now + (BACKOFF.wait_s(times, answer) or _REFUSED_S))
            else:
                away.pop(queue.broker, None)
                away.pop(queue, None)
                found[queue] = answer
        with self._changed:
            for queue, at in found.items():
                if at is not None and queue not in self._under_way:
                    self._acknowledged.setdefault(queue, at)
        if trouble is not None and found:
            _log.info("taking over what other brokers have: %s", trouble)
        if not found:
            raise trouble or SourceUnavailable(f"no broker of {', '.join(map(str, queues[:5]))} answers for now")
        return found

    def ends(self, queues: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int]:
        """The ends of the logs, from the masters. Raises SourceError."""
        found = self._ask(queues, self._begin_end, deadline)
        return {queue: end for queue, end in found.items() if end is not None}

    def check_access(self, queues: Sequence[Partition], deadline: Deadline) -> None:
        """Check at the start that this user may send the requests that are needed later, for example at an expired log.

        Raises NotAuthorised. Brokers that do not answer within 3 s are not checked.
        """
        # POP retry topics may belong to another group with an ambiguous name: no permission for them is required.
        mine = [queue for queue in queues if not queue.topic.startswith(RETRY)]
        one_each = {(queue.topic, queue.broker): queue for queue in mine}
        for broker in {queue.broker for queue in queues}:
            one_each[self._retries, broker] = Partition(self._retries, 0, broker)  # it need not exist yet
        asked = list(one_each.values())
        for answer in self._answers(asked, self._begin_end, Deadline(deadline.left_s(_ACCESS_S))).values():
            if isinstance(answer, NotAuthorised):
                raise NotAuthorised(
                    f"{answer}: a RocketMQSource needs Sub and Get for its topics and for its group"
                ) from answer

    def first(self, queue: Partition, start: str, start_ms: int, deadline: Deadline) -> int:
        """The starting offset of a queue in which the group has none. Raises SourceError."""
        if start == "earliest":
            return self._client.min_offset(queue, deadline)
        if start == "latest":
            return self._client.max_offset(queue, deadline)
        return self._client.offset_at(queue, start_ms, deadline)

    def begins(self, queue: Partition, deadline: Deadline) -> int:
        """The beginning of the log. Raises SourceError."""
        return self._client.min_offset(queue, deadline)

    def check_master(self, queue: Partition, deadline: Deadline) -> None:
        """Check that the known master of the queue is one. Raises SourceError: it is not. For example a slave acts for
        it (enableSlaveActingMaster), and may have less of the log."""
        found = Admin(self._client).cluster(deadline).brokers.get(queue.broker, {})
        if found.get(codes.MASTER) != self._client.master(queue.broker):
            self._client.routes.doubt()
            raise SourceUnavailable(f"{queue.broker} has no master that is known: does a slave act for it?")

    def unread(self, queue: Partition, deadline: Deadline) -> int:
        """The number of messages from the group's offset to the end of the log. Raises SourceError."""
        offset, end = self.committed([queue], deadline)[queue], self.ends([queue], deadline)[queue]
        return max(0, end - (offset or 0))

    def look_at_ends(self, queues: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """Send requests for the ends of the logs, or return the answers to the previous call's. None: not all are
        answered yet. Raises SourceError."""
        with self._changed:
            answers = self._asked_ends
            if answers is not None:
                if len(answers) < len(self._asked_of):
                    return None
                self._asked_ends = None
        if answers is not None:
            return {queue: _value(answer) for queue, answer in answers.items()}
        answers = self._asked_ends = {}
        self._asked_of = list(queues)

        def answered(queue: Partition, answer: int | SourceError) -> None:
            with self._changed:
                answers[queue] = answer

        for queue in queues:
            _begin(self._begin_end, queue, partial(answered, queue))
        return None

    def _begin_query(self, queue: Partition, on_answer: Callable[[int | SourceError | None], None]) -> None:
        self._client.begin_query_offset(queue, self._group, on_answer, timeout_s=_REQUEST_S)

    def _begin_end(self, queue: Partition, on_answer: Callable[[int | SourceError], None]) -> None:
        self._client.begin_max_offset(queue, on_answer, timeout_s=_REQUEST_S)

    def _ask(self, queues: Sequence[Partition], begin: _Question, deadline: Deadline) -> dict[Partition, int | None]:
        """Ask for all queues at once. Raises an error rather than return None for it."""
        answers = self._answers(queues, begin, deadline)
        return {queue: None if answer is None else _value(answer) for queue, answer in answers.items()}

    def _answers(
        self, queues: Sequence[Partition], begin: _Question, deadline: Deadline
    ) -> dict[Partition, int | SourceError | None]:
        answers: dict[Partition, int | SourceError | None] = {}

        def answered(queue: Partition, answer: int | SourceError | None) -> None:
            with self._changed:
                answers[queue] = answer
                self._changed.notify_all()

        for queue in queues:
            _begin(begin, queue, partial(answered, queue))
        with self._changed:
            self._changed.wait_for(lambda: len(answers) == len(queues), deadline.left_s())
            found = dict(answers)
        silent = [queue for queue in queues if queue not in found]
        if silent:
            error = NoAnswer(
                f"no answer about {', '.join(map(str, silent[:5]))} within {deadline.budget_s:.1f} s: is the "
                f"broker {silent[0].broker} up, and reachable from here?"
            )
            found.update(dict.fromkeys(silent, error))
        return found


def _begin(ask: _Question, queue: Partition, on_answer: Callable[[int | SourceError | None], None]) -> None:
    """Begin a request. If it cannot be sent, the answer is the error."""
    try:
        ask(queue, on_answer)
    except SourceError as error:
        on_answer(error)


def _value(answer: int | SourceError) -> int:
    if isinstance(answer, SourceError):
        raise answer
    return answer


def _fate(error: SourceError | None) -> CommitFate:
    if error is None:
        return CommitFate.DONE
    # CommitIgnored: a reset waits at the broker, and the next pull is answered by it.
    again = isinstance(error, (SourceUnavailable, CommitIgnored))
    return CommitFate.AGAIN if again or not isinstance(error, UnknownTopic) else CommitFate.DISCARD
