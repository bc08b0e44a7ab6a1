"""Logs: detects that a queue's log is another one than before. A topic that was deleted and created again has the old
name, and its offsets begin anew; the same happens if a broker's store was emptied. Positions in the old log must not
count for the new one.

No field of a queue identifies its log. Therefore a *mark* is kept for each queue: the offset of a message that is done,
and the time at which the broker stored it, which never changes and which no message of another log shares. The
coordinator stores marks beside the group, where they outlive its members. A pull at the mark shows whether the log is
the same. It is made before a queue is read from above its beginning, after trouble with its broker, and before a newer
mark replaces the last one.

| message at the mark | log |
|---|---|
| the message with the same store time | the same |
| a message with another store time; or the master's log ends before the mark | another |
| none (expired, compacted), or no mark is stored | the same, if the broker has an offset of the group, which is
  deleted with the topic; else it is not known |

A log that is another one, or not known, is read from its beginning; only a master's answer counts. If the whole log
lies at or above the offset that is to be read, nothing can be skipped, and any log is accepted.

If a slave that has less than its master becomes the master, it has the mark too, but other messages behind it.
Therefore the reader of a queue also remembers its newest message, in memory, and checks that one after trouble with the
broker. If it is another message, the queue is read again from behind the mark.

A mark is replaced only after the last one was found unchanged: a mark taken from a new log would confirm that log. The
pull takes all tags. If its answer is a reset, which a broker sends once, it is passed on.
"""

from __future__ import annotations

import logging
from collections import deque
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.marks import Found, Mark, judge
from holdfast.adapters.rocketmq.reading import Moved
from holdfast.adapters.rocketmq.remoting import PullRequest, Subscription
from holdfast.errors import SourceError, StoreUnavailable
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Mapping

    from holdfast.adapters.rocketmq.remoting import PullAnswer, RemotingClient
    from holdfast.dedup.coordinator import Coordinator
    from holdfast.records import Partition
    from holdfast.timing import Deadline

_log = logging.getLogger("holdfast.rocketmq")

#: The wait before the next try, after an inconclusive answer (a slave that is behind) or without the store.
_AGAIN_S = 0.5


class Stage(Enum):
    """The state of knowledge about a queue's log."""

    UNKNOWN = "unknown"  #: the stored mark is not read yet
    DOUBTED = "doubted"  #: a pull at the mark must decide; nothing is read until then
    PROVED = "proved"  #: the same log: it may be read
    OTHER = "other"  #: another log: the source must begin anew


class Log:
    """The log of one assigned queue. Guarded by the lock of its Logs."""

    __slots__ = (
        "ask_at",
        "asking",
        "begins",
        "candidate",
        "done",
        "found",
        "mark",
        "noted",
        "orphan",
        "queue",
        "stage",
        "tail",
        "times",
    )

    def __init__(self, queue: Partition, begins: int, *, orphan: bool) -> None:
        self.queue = queue
        #: The offset from which it is read. All records below count as done.
        self.begins = begins
        #: The broker had no offset of the group.
        self.orphan = orphan
        #: A queue that is read from offset 0 skips nothing, so its log needs no check.
        self.stage = Stage.UNKNOWN if begins else Stage.PROVED
        self.mark: Mark | None = None
        #: The mark that the coordinator has stored.
        self.noted: Mark | None = None
        #: The newest message that this member has read. If the master is replaced by a slave with less, its message at
        #: this offset differs, once one is written there, while the one at the mark is the same.
        self.tail: Mark | None = None
        #: A message read since: the next mark, once it is done and the log is found unchanged.
        self.candidate: Mark | None = None
        #: All records below are done.
        self.done = begins
        #: Why it is another log. BEYOND is checked at the master: a slave may only be behind.
        self.found = Found.SAME
        self.asking = False
        self.ask_at = 0.0
        self.times = 0

    @property
    def newest(self) -> Mark | None:
        """The newest message by which the log can be recognised."""
        return self.tail or self.mark

    @property
    def is_due(self) -> bool:
        """Whether the candidate is done and may become the mark."""
        return self.candidate is not None and self.done > self.candidate.offset

    @property
    def why(self) -> str:
        """Why the queue is read anew, for the log."""
        if self.newest is not None and self.found is Found.OTHER:
            return f"it is not the log that was read before: message {self.newest.offset} is another"
        if self.newest is not None and self.found is Found.BEYOND:
            return f"it is not the log that was read before: it ends before message {self.newest.offset}"
        return "its broker has no offset of the group, and nothing tells whether it is the log that was read before"


class Logs:
    """The logs of all assigned queues. `changed` guards the state. `begin`, `end`, `step` and `retry` are for the
    source's thread.

    Args:
        client: sends the pulls.
        changed: the source's; notified when the source has something to do.
        group: the consumer group.
        coordinator: stores the marks.
    """

    def __init__(
        self, client: RemotingClient, changed: threading.Condition, group: str, coordinator: Coordinator
    ) -> None:
        self._client, self._changed, self._group, self._coordinator = client, changed, group, coordinator
        self._logs: dict[Partition, Log] = {}
        #: Queues that are not read until their log is proved.
        self._open: set[Partition] = set()
        self._orphans: set[Partition] = set()
        self._notes_at = 0.0
        client.on_broken = self.broken
        #: Called when a queue may be read, on a connection's thread or the source's.
        self.on_proved: Callable[[Partition], None] = lambda _: None
        #: For the source: logs to begin anew, resets in answers, and errors.
        self.others: deque[Log] = deque()
        self.moved: deque[Moved] = deque()
        self.troubles: deque[tuple[Partition, SourceError]] = deque()

    @property
    def has_news(self) -> bool:
        """Whether the source has something to take. Under the lock."""
        return bool(self.others or self.moved or self.troubles)

    # ---- the source's thread
    def orphaned(self, found: Mapping[Partition, int | None]) -> None:
        """Note for which queues the brokers have no offset of the group, at a takeover."""
        self._orphans.difference_update(found)
        self._orphans.update(queue for queue, offset in found.items() if offset is None)

    def new(self, queues: Collection[Partition]) -> None:
        """Note queues in which the group begins: here a missing offset is no reason for doubt."""
        self._orphans.difference_update(queues)

    def begin(self, queue: Partition, offset: int) -> None:
        """Note that the queue is read from this offset on."""
        with self._changed:
            before = self._logs.get(queue)
            log = self._logs[queue] = Log(queue, offset, orphan=queue in self._orphans)
            self._open.discard(queue)
            if log.stage is not Stage.PROVED:
                self._open.add(queue)
                if before is not None and before.mark is not None:
                    log.mark, log.noted, log.stage = before.mark, before.noted, Stage.DOUBTED

    def end(self, queues: Iterable[Partition]) -> None:
        """Note that these queues are not read any more."""
        with self._changed:
            for queue in queues:
                self._logs.pop(queue, None)
                self._open.discard(queue)

    def step(self) -> None:
        """Read stored marks, and send pulls for queues that are not proved."""
        if not self._open:
            return
        now = SYSTEM_CLOCK.now()
        with self._changed:
            logs = [self._logs[queue] for queue in self._open]
            unknown = [log for log in logs if log.stage is Stage.UNKNOWN]
        if unknown and now >= self._notes_at:
            try:
                texts = self._coordinator.noted(self._group, [_name(log.queue) for log in unknown])
            except StoreUnavailable as error:
                _log.info("which logs were read is not known yet: %s", error)
                self._notes_at = now + _AGAIN_S
            else:
                with self._changed:
                    for log, text in zip(unknown, texts, strict=True):
                        log.mark = log.noted = Mark.of_text(text)
                        log.stage = Stage.DOUBTED
        for log in logs:
            if log.stage is Stage.DOUBTED and not log.asking and now >= log.ask_at:
                self._ask(log)

    def broken(self, address: str) -> None:
        """Doubt the logs of a broker whose connection broke, also of queues that wait for no answer now: the server
        that answers next for this broker may have another log. Any thread."""
        brokers = self._client.brokers_at(address)  # empty: no route has this address any more
        with self._changed:
            for queue in [queue for queue in self._logs if not brokers or queue.broker in brokers]:
                self.doubt(queue)
            self._changed.notify_all()

    def retry(self, log: Log) -> None:
        """Check the log again later: the source could not decide how to begin it anew."""
        with self._changed:
            if self._logs.get(log.queue) is log:
                log.stage, log.ask_at = Stage.DOUBTED, SYSTEM_CLOCK.now() + _AGAIN_S
                self._open.add(log.queue)

    def same_up_to(self, queue: Partition, deadline: Deadline) -> int:
        """The offset behind the mark, if the mark's message is still there: all below belongs to the log that was read,
        and is done. Else 0. Waits. Raises SourceError."""
        log = self._logs.get(queue)
        mark = None if log is None else log.mark
        if mark is None:
            return 0
        answer = self._client.pull(self._look_at_offset(queue, mark.offset), deadline)
        found = judge(mark.offset, mark, answer)
        if found is Found.RESET:
            with self._changed:
                self.moved.append(Moved(queue, mark.offset, answer))
        return mark.offset + 1 if found is Found.SAME else 0

    def is_read(self, log: Log) -> bool:
        """Whether this is still the current `Log` of its queue."""
        return self._logs.get(log.queue) is log

    def done(self, queue: Partition, offset: int) -> bool:
        """Note that all records below are done. Returns whether the log has got its first mark, which should be stored
        soon."""
        with self._changed:
            log = self._logs.get(queue)
            if log is None:
                return False
            log.done = max(log.done, offset)
            return log.mark is None and log.is_due

    # ---- under the lock
    def proved(self, queue: Partition) -> bool:
        """Whether the queue may be read."""
        log = self._logs.get(queue)
        return log is not None and log.stage is Stage.PROVED

    def came(self, queue: Partition, body: bytes) -> None:
        """Note the first and last message of a pull's answer."""
        log = self._logs.get(queue)
        if log is not None:
            log.tail = Mark.last_of(body) or log.tail
            if log.candidate is None:
                log.candidate = Mark.first_of(body)

    def doubt(self, queue: Partition) -> None:
        """Doubt the queue's log, after trouble with its broker, which may come back with another store."""
        log = self._logs.get(queue)
        if log is not None and log.stage is Stage.PROVED and log.newest is not None:
            log.stage = Stage.DOUBTED
            log.begins = max(log.begins, log.newest.offset + 1)  # it was read up to there since
            self._open.add(queue)

    # ---- the upkeep's thread, and at the end
    def look(self) -> None:
        """Check the logs whose next mark is due, and store new marks. Waits for the store. Raises StoreUnavailable."""
        with self._changed:
            due = []
            for log in self._logs.values():
                if not log.is_due:
                    continue
                if log.mark is None:  # also while in doubt: the candidate is from the log that was read
                    log.mark, log.candidate = log.candidate, None
                elif log.stage is Stage.PROVED and not log.asking:
                    due.append(log)
        for log in due:
            self._ask(log)
        self.note()

    def note(self) -> None:
        """Store new marks, for the next owners. Waits for the store. Raises StoreUnavailable."""
        with self._changed:
            new = {
                log.queue: log.mark
                for log in self._logs.values()
                if log.mark is not None and log.mark != log.noted and log.stage is not Stage.OTHER
            }
        if not new:
            return
        self._coordinator.note(self._group, {_name(queue): mark.text for queue, mark in new.items()})
        with self._changed:
            for queue, mark in new.items():
                if queue in self._logs:
                    self._logs[queue].noted = mark

    def forget(self, queues: Collection[Partition]) -> None:
        """Remove the marks of queues that are gone for good. Waits for the store. Raises StoreUnavailable."""
        if queues:
            self._coordinator.note(self._group, {_name(queue): None for queue in queues})

    # ---- inside
    def _ask(self, log: Log) -> None:
        with self._changed:
            asked_in = log.stage
            mark = log.mark if asked_in is Stage.PROVED else log.newest
            at = log.begins - 1 if mark is None else mark.offset
            log.asking = True
        answered = partial(self._answered, log, asked_in, at, mark)
        try:
            self._client.begin_pull(self._look_at_offset(log.queue, at), answered)
        except SourceError as error:
            answered(error)

    def _look_at_offset(self, queue: Partition, at: int) -> PullRequest:
        return PullRequest(
            queue=queue,
            group=self._group,
            offset=at,
            subscription=Subscription(topic=queue.topic),
            max_messages=1,
            suspend_s=0,
        )

    def _answered(
        self, log: Log, asked_in: Stage, at: int, mark: Mark | None, answer: PullAnswer | SourceError
    ) -> None:
        """Take the answer to a pull at the mark. On a connection's thread."""
        with self._changed:
            if self._logs.get(log.queue) is not log:
                return
            log.asking = False
            was_read = asked_in is Stage.PROVED  # such an answer does not end a doubt that arose since the request
            if isinstance(answer, SourceError):
                log.times += 1
                log.ask_at = SYSTEM_CLOCK.now() + (BACKOFF.wait_s(log.times, answer) or _AGAIN_S)
                if not was_read:  # else the pulls of Prefetch report it
                    self.troubles.append((log.queue, answer))
            else:
                log.times = 0
                if was_read:
                    self._look_at(log, at, answer)
                else:
                    self._prove(log, at, mark, answer)
            if log.stage is Stage.PROVED:
                self._open.discard(log.queue)
            self._changed.notify_all()
        if log.stage is Stage.PROVED and not was_read:
            self.on_proved(log.queue)

    def _look_at(self, log: Log, at: int, answer: PullAnswer) -> None:
        """Judge the answer while the queue is read. If the mark is unchanged, the messages read since are of the same
        log, and the candidate becomes the mark."""
        found = judge(at, log.mark, answer)
        if found in (Found.OTHER, Found.BEYOND):
            self._is_other(log, found)
        elif found is Found.RESET:
            self.moved.append(Moved(log.queue, at, answer))
        elif found in (Found.SAME, Found.GONE) and log.is_due and log.stage is Stage.PROVED:
            log.mark, log.candidate = log.candidate, None

    def _prove(self, log: Log, at: int, mark: Mark | None, answer: PullAnswer) -> None:
        found = judge(at, mark, answer)
        if found is Found.SAME and mark is not None:
            log.stage = Stage.PROVED
        elif found is Found.RESET:
            self.moved.append(Moved(log.queue, at, answer))
            log.ask_at = SYSTEM_CLOCK.now() + _AGAIN_S
        elif answer.min_offset >= log.begins:
            log.stage, log.mark, log.tail = Stage.PROVED, None, None
        elif found is Found.LATER:
            log.ask_at = SYSTEM_CLOCK.now() + _AGAIN_S
        elif found is Found.BEYOND and mark is None:
            log.stage = Stage.PROVED  # the log ends before the offset to read, and the pull there will be answered so
        elif found in (Found.OTHER, Found.BEYOND) or log.orphan:
            self._is_other(log, found)
        else:
            log.stage = Stage.PROVED
            log.mark = Mark.first_of(answer.body) if found is Found.SAME else None

    def _is_other(self, log: Log, found: Found) -> None:
        log.stage, log.found = Stage.OTHER, found
        self._open.discard(log.queue)
        self.others.append(log)


def _name(queue: Partition) -> str:
    """The key under which the coordinator stores the mark."""
    return f"{queue.topic}/{queue.broker}/{queue.number}"
