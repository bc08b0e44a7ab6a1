"""Which log a queue has. A topic that was deleted and made again has its old name, and offsets that begin anew; so
has a broker whose store was emptied. What is known as done of the old log says nothing of the new one.

No field of a queue names its log. So of each a *mark* is remembered: the offset of a message that is done, and when the
broker stored it, which never changes and which no message of another log shares. Marks are noted beside the group,
where they outlive its members. A pull at the mark shows whether the log is still that one: before a queue is read from
above its beginning, after trouble with its broker, and before a newer mark takes the place of the last one.

| what lies at the mark | which log it is |
|---|---|
| a message that was stored then | the same |
| one that was stored at another time; or the log has not come so far, says its master | another |
| nothing any more (expired, compacted), or no mark is noted | the same, if the broker has an offset of the group, which
  goes with the topic; else nobody can tell |

Another one, and one of which nobody can tell, are read from their beginning; only a master's word counts. Where all
that is there lies at or above the offset that is to be read, nothing can be skipped, whatever log it is.

A slave with less than its master had, which is made the master, has the mark too, and gives the offsets behind it to
other messages. So who has read a queue remembers the newest message of it as well, and looks at that one after trouble
with the broker. Where it is another, the queue is read again from behind the mark.

A mark changes only after the last one was seen to hold still: written from what a log has just brought, it would vouch
for the new one. The pull takes all tags, and a reset that it is told of (once) is passed on.
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

#: After an answer that said nothing: a slave that is behind, a store that is away.
_AGAIN_S = 0.5


class Stage(Enum):
    """How much is known of a queue's log."""

    UNKNOWN = "unknown"  #: nobody has looked yet what is noted
    DOUBTED = "doubted"  #: a pull has to show it: nothing is read until then
    PROVED = "proved"
    OTHER = "other"  #: the source has to begin anew


class Log:
    """Of one queue that is read. Guarded by the lock of its Logs."""

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
        #: Where it is read from: what lies below is taken for done.
        self.begins = begins
        #: The broker had no offset of the group.
        self.orphan = orphan
        #: Nothing lies below the beginning of all logs.
        self.stage = Stage.UNKNOWN if begins else Stage.PROVED
        self.mark: Mark | None = None
        self.noted: Mark | None = None
        #: The newest message that was read of it, known by who read it alone. A master that is replaced by a slave with
        #: less has another there, once it has been written to, and at the mark the same as before.
        self.tail: Mark | None = None
        #: A message that was read since: the next mark, once it is done and the log is seen to be the same.
        self.candidate: Mark | None = None
        self.done = begins
        #: Why it is another. Has it not come as far as its mark, who was asked may only be behind.
        self.found = Found.SAME
        self.asking = False
        self.ask_at = 0.0
        self.times = 0

    @property
    def newest(self) -> Mark | None:
        """The newest message by which the log is known."""
        return self.tail or self.mark

    @property
    def is_due(self) -> bool:
        """Whether there may be a new mark."""
        return self.candidate is not None and self.done > self.candidate.offset

    @property
    def why(self) -> str:
        """For people."""
        if self.newest is not None and self.found is Found.OTHER:
            return f"it is not the log that was read before: message {self.newest.offset} is another"
        if self.newest is not None and self.found is Found.BEYOND:
            return f"it is not the log that was read before: it ends before message {self.newest.offset}"
        return "its broker has no offset of the group, and nothing tells whether it is the log that was read before"


class Logs:
    """`changed` guards its state. `begin`, `end`, `step` and `retry` are the source's thread's.

    Args:
        client: pulls.
        changed: of the source; notified when there is something to do for it.
        group: whose offsets.
        coordinator: keeps the marks.
    """

    def __init__(
        self, client: RemotingClient, changed: threading.Condition, group: str, coordinator: Coordinator
    ) -> None:
        self._client, self._changed, self._group, self._coordinator = client, changed, group, coordinator
        self._logs: dict[Partition, Log] = {}
        #: Queues that are not read before it is known which log they have.
        self._open: set[Partition] = set()
        self._orphans: set[Partition] = set()
        self._notes_at = 0.0
        client.on_broken = self.broken
        #: Told when a queue may be read. On a connection's thread, or the source's.
        self.on_proved: Callable[[Partition], None] = lambda _: None
        #: For the source: logs to begin anew, resets that answers told of, and what went wrong.
        self.others: deque[Log] = deque()
        self.moved: deque[Moved] = deque()
        self.troubles: deque[tuple[Partition, SourceError]] = deque()

    @property
    def has_news(self) -> bool:
        """Whether there is something for the source. Under the lock."""
        return bool(self.others or self.moved or self.troubles)

    # ---- the source's thread
    def orphaned(self, found: Mapping[Partition, int | None]) -> None:
        """Note what the brokers have said of the group's offsets, at a takeover."""
        self._orphans.difference_update(found)
        self._orphans.update(queue for queue, offset in found.items() if offset is None)

    def new(self, queues: Collection[Partition]) -> None:
        """The group begins in these: that it has no offset says nothing."""
        self._orphans.difference_update(queues)

    def begin(self, queue: Partition, offset: int) -> None:
        """Note that the queue is read from that offset on."""
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
        """Go on with what is not proved."""
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
        """A connection broke. Whoever answers for that broker next may have another log, also of queues that wait for
        no answer now. Any thread."""
        brokers = self._client.brokers_at(address)  # none: no route names it any more
        with self._changed:
            for queue in [queue for queue in self._logs if not brokers or queue.broker in brokers]:
                self.doubt(queue)
            self._changed.notify_all()

    def retry(self, log: Log) -> None:
        """Look again later: it could not be seen what to make of the log."""
        with self._changed:
            if self._logs.get(log.queue) is log:
                log.stage, log.ask_at = Stage.DOUBTED, SYSTEM_CLOCK.now() + _AGAIN_S
                self._open.add(log.queue)

    def same_up_to(self, queue: Partition, deadline: Deadline) -> int:
        """The offset behind the mark, if its message is still there: all below is of the log that was read, and is
        done. Else 0. Waits. Raises SourceError."""
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
        """Whether it is still that reading."""
        return self._logs.get(log.queue) is log

    def done(self, queue: Partition, offset: int) -> bool:
        """Everything below is done. Whether the first mark of the log is to be noted, which should not wait."""
        with self._changed:
            log = self._logs.get(queue)
            if log is None:
                return False
            log.done = max(log.done, offset)
            return log.mark is None and log.is_due

    # ---- under the lock
    def proved(self, queue: Partition) -> bool:
        """Whether it may be read."""
        log = self._logs.get(queue)
        return log is not None and log.stage is Stage.PROVED

    def came(self, queue: Partition, body: bytes) -> None:
        """Note the messages that a pull has brought of the queue."""
        log = self._logs.get(queue)
        if log is not None:
            log.tail = Mark.last_of(body) or log.tail
            if log.candidate is None:
                log.candidate = Mark.first_of(body)

    def doubt(self, queue: Partition) -> None:
        """There was trouble with its broker, which may come back with another store."""
        log = self._logs.get(queue)
        if log is not None and log.stage is Stage.PROVED and log.newest is not None:
            log.stage = Stage.DOUBTED
            log.begins = max(log.begins, log.newest.offset + 1)  # it was read so far meanwhile
            self._open.add(queue)

    # ---- the upkeep's thread, and at the end
    def look(self) -> None:
        """See whether logs that go on are the same, and note where they are. Waits for the store. Raises
        StoreUnavailable."""
        with self._changed:
            due = []
            for log in self._logs.values():
                if not log.is_due:
                    continue
                if log.mark is None:  # also in doubt: it is of the log that was read
                    log.mark, log.candidate = log.candidate, None
                elif log.stage is Stage.PROVED and not log.asking:
                    due.append(log)
        for log in due:
            self._ask(log)
        self.note()

    def note(self) -> None:
        """Keep the marks for who reads these queues next. Waits for the store. Raises StoreUnavailable."""
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
        """A connection's thread."""
        with self._changed:
            if self._logs.get(log.queue) is not log:
                return
            log.asking = False
            was_read = asked_in is Stage.PROVED  # in doubt since then: that answer does not end it
            if isinstance(answer, SourceError):
                log.times += 1
                log.ask_at = SYSTEM_CLOCK.now() + (BACKOFF.wait_s(log.times, answer) or _AGAIN_S)
                if not was_read:  # else the pulls tell
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
        """While it is read on: what was read since is of the same log, if the mark still is where it was."""
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
            log.stage = Stage.PROVED  # it ends before what is to be read, as the pull there will tell
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
    """Of a note."""
    return f"{queue.topic}/{queue.broker}/{queue.number}"
