"""A group's offsets at the brokers: asked for, committed, and looked after, since any commit of anybody is taken.

- A RocketMQ source asks for what it may need in the midst of work (the end of a log, under the group's and each
  topic's name) before it joins: a permission that is missing is to end the start, not the night.
- A slave knows offsets a minute late, and takes commits in silence (5.5.0): masters alone are asked for offsets and
  given them.
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

#: A request that is not waited for; the engine asks again.
_REQUEST_S = 5.0
#: Until a question about a queue is asked again that was refused.
_REFUSED_S = 5.0
#: A refusal that lasts so long is no passing one.
_LASTS_S = 10.0
#: A broker that does not say in time whether we may ask is taken at its word later.
_ACCESS_S = 3.0


class _Away(NamedTuple):
    times: int
    until: float


_HERE = _Away(0, 0.0)


class _Refusal(NamedTuple):
    since: float
    #: None: it was told, and no commit was refused since.
    tell_at: float | None
    error: SourceError


class Offsets:
    """Commits are begun and their fates kept until the source takes them. `changed` guards the state.

    Args:
        client: asks and commits.
        group: whose offsets.
        changed: of the source; notified when a commit was answered.
    """

    def __init__(self, client: RemotingClient, group: str, changed: threading.Condition) -> None:
        self._client, self._group, self._changed = client, group, changed
        self._retries = retry_topic(group)
        self._fates: deque[tuple[Partition, int, CommitFate]] = deque()
        #: Queues with a commit that is not answered; what is to be committed after it; what was acknowledged last, or
        #: found when the queue came: of one that came with everything handled, nothing is committed.
        self._under_way: set[Partition] = set()
        self._next: dict[Partition, int] = {}
        self._acknowledged: dict[Partition, int] = {}
        #: Queues that went while their commit was under way.
        self._gone: set[Partition] = set()
        #: Queues whose last commit was not taken. Of connections' threads.
        self._refused: set[Partition] = set()
        #: Queues of which a broker refuses whatever is committed. Without an answer it refuses nothing.
        self._refusals: dict[Partition, _Refusal] = {}
        #: No broker has taken a commit yet.
        self.never_taken = True
        #: Queues whose offset at the broker is not the one that it has acknowledged, with that offset.
        self.overwritten: deque[tuple[Partition, int]] = deque()
        #: Brokers that did not answer, and queues of which one refused to, and until when they are not asked.
        self._away: dict[str | Partition, _Away] = {}
        self._asked_ends: dict[Partition, int | SourceError] | None = None
        self._asked_of: Sequence[Partition] = ()

    # ---- commits
    def commit(self, queue: Partition, offset: int) -> None:
        """Begin to commit. Never waits. One at a time of a queue: a broker may work on two the other way round."""
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
        """Refuse a commit of a queue that is not ours any more: nothing is sent."""
        with self._changed:
            self._fates.append((queue, offset, CommitFate.DISCARD))

    def wait(self, deadline: Deadline, queues: Collection[Partition] | None = None) -> bool:
        """Until all that is under way of these queues (None: of all) is answered. False = the deadline has passed
        before."""
        with self._changed:
            under_way = self._under_way
            return self._changed.wait_for(
                lambda: not under_way if queues is None else under_way.isdisjoint(queues), deadline.left_s()
            )

    def fates(self) -> Iterable[tuple[Partition, int, CommitFate]]:
        """The fate of commits, each told once."""
        with self._changed:
            found = list(self._fates)
            self._fates.clear()
        return found

    @property
    def has_news(self) -> bool:
        """Whether there is something to tell. Under the lock."""
        return bool(self._fates or self.overwritten)

    def forget(self, queues: Iterable[Partition]) -> None:
        """Forget queues that are not ours any more: what was to be committed after an answer that has not come is not
        sent any more, since their next owner may have committed meanwhile."""
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
        else:  # once an outage
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
        """A queue of which a broker has refused each commit for some seconds, and what to do about it; the next call
        tells of another. Nothing begins in a queue whose first commit is not taken."""
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
        """Whether no commit of the group was ever taken, and those of all these queues are refused for some seconds."""
        with self._changed:
            due = SYSTEM_CLOCK.now() - _LASTS_S
            return self.never_taken and all(
                (refusal := self._refusals.get(queue)) is not None and refusal.since <= due for queue in queues
            )

    def look(self, deadline: Deadline) -> None:
        """Compare what brokers have with what they have acknowledged, or had when a queue came. Waits: not for the
        loop. Raises SourceError: one does not say; what the others have is compared all the same."""
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
        """The group's offsets; None = the broker says that there is none. Raises SourceError."""
        return self._ask(queues, self._begin_query, deadline)

    def committed_of_some(self, queues: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int | None]:
        """The committed offsets, without those of brokers that do not answer; these are not asked again at once. Raises
        SourceError:
        none of them did."""
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
        """The ends of the logs, of the masters. Raises SourceError."""
        found = self._ask(queues, self._begin_end, deadline)
        return {queue: end for queue, end in found.items() if end is not None}

    def check_access(self, queues: Sequence[Partition], deadline: Deadline) -> None:
        """At the start: whether we may ask for what is asked for later, at an expired log say, in the midst of work.

        Raises NotAuthorised. Brokers that do not answer are not waited for.
        """
        # What another way of consumption has left may be another group's by the same name: rights for it are not asked.
        mine = [queue for queue in queues if not queue.topic.startswith(RETRY)]
        one_each = {(queue.topic, queue.broker): queue for queue in mine}
        for broker in {queue.broker for queue in queues}:
            one_each[self._retries, broker] = Partition(self._retries, 0, broker)  # which need not exist yet
        asked = list(one_each.values())
        for answer in self._answers(asked, self._begin_end, Deadline(deadline.left_s(_ACCESS_S))).values():
            if isinstance(answer, NotAuthorised):
                raise NotAuthorised(
                    f"{answer}: a RocketMQSource needs Sub and Get for its topics and for its group"
                ) from answer

    def first(self, queue: Partition, start: str, start_ms: int, deadline: Deadline) -> int:
        """Where a group begins that has no offset there. Raises SourceError."""
        if start == "earliest":
            return self._client.min_offset(queue, deadline)
        if start == "latest":
            return self._client.max_offset(queue, deadline)
        return self._client.offset_at(queue, start_ms, deadline)

    def begins(self, queue: Partition, deadline: Deadline) -> int:
        """The beginning of the log. Raises SourceError."""
        return self._client.min_offset(queue, deadline)

    def check_master(self, queue: Partition, deadline: Deadline) -> None:
        """Raises SourceError: what is known as that queue's master is none. A slave acts for it
        (enableSlaveActingMaster), say, and may have less of the log."""
        found = Admin(self._client).cluster(deadline).brokers.get(queue.broker, {})
        if found.get(codes.MASTER) != self._client.master(queue.broker):
            self._client.routes.doubt()
            raise SourceUnavailable(f"{queue.broker} has no master that is known: does a slave act for it?")

    def unread(self, queue: Partition, deadline: Deadline) -> int:
        """Messages behind the group's offset. Raises SourceError."""
        offset, end = self.committed([queue], deadline)[queue], self.ends([queue], deadline)[queue]
        return max(0, end - (offset or 0))

    def look_at_ends(self, queues: Sequence[Partition]) -> Mapping[Partition, int] | None:
        """Ask for the ends, or see what was asked before. None = not all is answered yet. Raises SourceError."""
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
        """All at once. An error is never "none"."""
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
    """Begin a request. One that cannot even be sent is answered by the reason."""
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
    # Ignored: a reset waits at the broker, and the next pull brings it.
    again = isinstance(error, (SourceUnavailable, CommitIgnored))
    return CommitFate.AGAIN if again or not isinstance(error, UnknownTopic) else CommitFate.DISCARD
