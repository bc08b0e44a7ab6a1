"""Offsets: what masters answer about a group's offsets, and about the beginnings and ends of logs.

- Before it joins, the source tries requests that it may need later (the end of a log, with the group's and each topic's
  name): a missing permission should stop the start, not a running app.
- A slave has offsets up to a minute late. Only masters are asked.
- Where the group has no offset, "latest" applies to topics that it has never read, as found before the join. A queue
  that is added later has only messages sent since, and is read from its beginning.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from holdfast.adapters.rocketmq.names import RETRY, retry_topic
from holdfast.adapters.rocketmq.remoting import Admin, NoAnswer, codes
from holdfast.adapters.rocketmq.remoting.answers import is_of_broker
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.records import Partition
from holdfast.timing import SYSTEM_CLOCK, Deadline

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.adapters.rocketmq.remoting import RemotingClient
    from holdfast.adapters.rocketmq.settings import PullSettings

    _Question = Callable[[Partition, Callable[[int | SourceError | None], None]], None]

_log = logging.getLogger("holdfast.rocketmq")

#: The timeout of an asynchronous request; the engine repeats it.
REQUEST_S = 5.0
#: The wait until a refused request about a queue is repeated.
_REFUSED_S = 5.0
#: The time for the check of permissions. A broker that does not answer in time is not checked.
_ACCESS_S = 3.0


class _Away(NamedTuple):
    times: int
    until: float


_HERE = _Away(0, 0.0)


class Offsets:
    """Asks masters for the group's offsets, and for the beginnings and ends of logs.

    Args:
        client: sends the requests.
        group: the consumer group.
        changed: the inbox' lock; notified when an answer has come.
    """

    def __init__(self, client: RemotingClient, group: str, changed: threading.Condition) -> None:
        self._client, self._group, self._changed = client, group, changed
        self._retries = retry_topic(group)
        #: Brokers that did not answer, and queues that were refused -> until when they are not asked.
        self._away: dict[str | Partition, _Away] = {}
        self._asked_ends: dict[Partition, int | SourceError] | None = None
        self._asked_of: Sequence[Partition] = ()

    def committed(self, queues: Sequence[Partition], deadline: Deadline) -> Mapping[Partition, int | None]:
        """The group's offsets; None: the broker has none. Raises SourceError."""
        return self._ask(queues, self._begin_query, deadline)

    def each_committed(
        self, queues: Sequence[Partition], deadline: Deadline
    ) -> Mapping[Partition, int | SourceError | None]:
        """The group's offset of each queue, or the error: also where a broker does not answer. None: there is none."""
        return self._answers(queues, self._begin_query, deadline)

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
        if trouble is not None and found:
            _log.info("taking over what other brokers have: %s", trouble)
        if not found:
            raise trouble or SourceUnavailable(f"no broker of {', '.join(map(str, queues[:5]))} answers for now")
        return found

    def forget(self, queue: Partition) -> None:
        """Ask about this queue without a wait, if it comes again."""
        self._away.pop(queue, None)

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
        self._client.begin_query_offset(queue, self._group, on_answer, timeout_s=REQUEST_S)

    def _begin_end(self, queue: Partition, on_answer: Callable[[int | SourceError], None]) -> None:
        self._client.begin_max_offset(queue, on_answer, timeout_s=REQUEST_S)

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


class StartingOffsets:
    """Finds starting offsets by the settings. One thread."""

    def __init__(self, offsets: Offsets, settings: PullSettings) -> None:
        self._offsets, self._settings = offsets, settings
        self._never_read: Collection[Partition] = ()

    def look(self, queues: Sequence[Partition], deadline: Deadline) -> None:
        """Find, before the join, the topics that the group has never read: "latest" applies only to topics in which it
        has no offset at all. Queues and topics that are added later are read from their beginning, so that messages
        sent before the source sees them are not skipped. Raises SourceError: a broker does not answer, and no other has
        an offset of the topic."""
        if self._settings.start == "latest":
            found = self._offsets.committed_of_some(queues, deadline)
            read = {queue.topic for queue, offset in found.items() if offset is not None}
            self._never_read = frozenset(queue for queue in queues if queue.topic not in read)
            if unsure := self._never_read.difference(found):
                raise SourceUnavailable(
                    f"whether {self._settings.group} has ever read {min(unsure)} is known to its broker alone, which "
                    f"does not answer"
                )

    def of_some(self, queues: Sequence[Partition], deadline: Deadline) -> dict[Partition, int]:
        """The starting offsets, without queues whose broker does not answer. Raises SourceError: no broker answered."""
        found: dict[Partition, int] = {}
        trouble: SourceError | None = None
        for queue in queues:
            try:
                found[queue] = self.of(queue, deadline)
            except SourceError as error:
                trouble = error
        if trouble is not None and not found:
            raise trouble
        return found

    def of(self, queue: Partition, deadline: Deadline) -> int:
        """The starting offset of a queue now. Retry topics start at their beginning: their messages are the group's own
        failures. Raises SourceError."""
        start = self._settings.start
        if queue.topic.startswith(RETRY) or (start == "latest" and queue not in self._never_read):
            start = "earliest"
        return self._offsets.first(queue, start, self._settings.start_ms, deadline)


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
