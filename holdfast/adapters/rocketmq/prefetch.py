"""Prefetch: long polls for each queue that is read, all of a broker's on one connection, and their messages.

Bounded in records and bytes, for each queue and in all: one big queue leaves room for the others. A pull under way
counts as much as the last answer had. At the end of a log, where pulls wait, that is next to nothing. The first pull of
a queue counts as a full answer, and therefore does not wait at the broker. Callbacks run on connections' threads and
begin the next pulls at once; the thread that takes records decodes them.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.reading import Chunk, Moved, Reading
from holdfast.adapters.rocketmq.remoting import PullRequest, PullStatus
from holdfast.adapters.rocketmq.remoting.messages import POLL_BYTES
from holdfast.adapters.rocketmq.told import Told
from holdfast.errors import SourceError
from holdfast.plugin.ports import Batch, End
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from holdfast.adapters.rocketmq.logs import Logs
    from holdfast.adapters.rocketmq.remoting import PullAnswer, RemotingClient, Subscription
    from holdfast.adapters.rocketmq.settings import PullSettings
    from holdfast.errors import HoldfastError, RecordUnreadable
    from holdfast.records import Fence, Partition, Record

_log = logging.getLogger("holdfast.rocketmq")

_MIB = 1024 * 1024
#: How often idle queues (without a pull under way, after trouble or for lack of room) are looked at.
_LOOK_S = 0.02
#: Idle queues in one look, so that its cost does not grow with the number of queues.
_LOOKED_AT = 256
#: The wait after a pull to a slave that is behind: it does not hold the pull, but answers at once that nothing matched.
_BEHIND_S = 0.5
#: How long a slave must be behind before it is logged.
_BEHIND_FOR_S = 10.0
#: The wait between two empty pulls if brokers do not hold pulls (broker_suspend_max_time_s=0).
_NOT_HELD_S = 0.1
#: The most bytes of an answer, by default (maxTransferBytesOnMessageInMemory); one larger message comes alone.
_ANSWER_BYTES = 256 * 1024
#: A GetMessageStatus of brokers, in an empty answer whose next offset is further on: the file of the log was removed.
_REMOVED = "MESSAGE_WAS_REMOVING"
#: Chunks of a queue that are taken together. Consecutive records go on as one run: 256 with chunks of 32. More would
#: wait for the budget of `mark_batch`.
_IN_A_ROW = 8


class Prefetch:
    """The messages that wait to be taken. `changed` guards all state, and is notified when messages arrive. While it is
    held, only Prefetch's and Logs' own methods are called.

    Args:
        client: sends the pulls.
        changed: the source's.
        settings: the limits.
        logs: decides which queues may be read; None: all.
        born_in: see `Topics`.
    """

    def __init__(
        self,
        client: RemotingClient,
        changed: threading.Condition,
        settings: PullSettings,
        logs: Logs | None = None,
        born_in: Callable[[str], str | None] = lambda named: named,
    ) -> None:
        self._client, self._changed, self._settings, self._logs = client, changed, settings, logs
        self._born_in = born_in
        self._readings: dict[Partition, Reading] = {}
        self._row: deque[Reading] = deque()
        self._count = self._size = 0
        #: The same for pulls under way: the sums of `Reading.reserved`.
        self._count_to_come = self._size_to_come = 0
        #: Idle queues, without a pull under way, in the order in which `look` visits them.
        self._still: dict[Partition, None] = {}
        self._behind: Told[Partition] = Told(_BEHIND_FOR_S)
        #: The part of `_count` that belongs to paused queues.
        self._kept = 0
        self._look_at = 0.0
        self._most_size = int(settings.pull_threshold_size_for_all * _MIB)
        self._most_size_of_queue = int(settings.pull_threshold_size_for_queue * _MIB)
        #: A broker has answered a pull: this user had the permissions then.
        self.let_in = False
        #: Moves and errors that the source has not taken yet.
        self.moved: deque[Moved] = deque()
        self.troubles: deque[tuple[Partition, SourceError]] = deque()
        #: The error at which reading stopped. All records before it were delivered.
        self.broken: HoldfastError | None = None

    @property
    def has_some(self) -> bool:
        """Whether `take` would return something. Under the lock."""
        return bool(self._row)

    # ---- which queues, and from where
    def add(self, queue: Partition, subscription: Subscription, offset: int | None, *, paused: bool) -> None:
        """Read a queue. `offset` None: not before a seek."""
        with self._changed:
            self._readings[queue] = reading = Reading(
                queue, subscription, offset, paused=paused, group=self._settings.group, born_in=self._born_in
            )
        self._pull([reading])

    def remove(self, queues: Collection[Partition]) -> None:
        """Stop reading these queues. Their messages are dropped, and answers to their pulls ignored."""
        with self._changed:
            for queue in queues:
                reading = self._readings.pop(queue, None)
                self._still.pop(queue, None)
                if reading is not None:
                    self._drop(reading, None)
            self._behind.forget(queues)

    def seek(self, queue: Partition, offset: int) -> bool:
        """Read on from this offset. Returns False if the queue is not read."""
        with self._changed:
            reading = self._readings.get(queue)
            if reading is None:
                return False
            self._drop(reading, offset)
            reading.troubles, reading.wait_until = 0, 0.0
        self._pull([reading])
        return True

    def go_on_at(self, moved: Moved, offset: int, *, wait_s: float = 0.0) -> bool:
        """Read on from this offset, after a wait. Messages that have arrived before stay: no pull would bring them
        again. Returns False if there was a seek since, or the queue is not read any more."""
        with self._changed:
            reading = self._readings.get(moved.queue)
            if reading is None or reading.pulls.next is not None:
                return False
            self._restart(reading, offset)
            reading.troubles, reading.wait_until = 0, SYSTEM_CLOCK.now() + wait_s if wait_s else 0.0
            reading.chunks.append(Chunk(moved.answer._replace(body=b"", next_offset=offset), moved.asked))
            self._enqueue(reading)
        self._pull([reading])
        return True

    def pause(self, queues: Collection[Partition]) -> None:
        """Stop pulling these queues; messages that have arrived are kept, and not delivered."""
        with self._changed:
            for queue in queues:
                if queue in self._readings:
                    self._pause(self._readings[queue], paused=True)

    def resume(self, queues: Collection[Partition]) -> None:
        """Pull and deliver these queues again."""
        with self._changed:
            going = [self._readings[queue] for queue in queues if queue in self._readings]
            for reading in going:
                self._pause(reading, paused=False)
                self._enqueue(reading)
        self._pull(going)

    def ends(self) -> Mapping[Partition, int]:
        """The ends of the logs, from the last answers."""
        with self._changed:
            ends = {queue: reading.pulls.end for queue, reading in self._readings.items()}
        return {queue: end for queue, end in ends.items() if end is not None}

    # ---- taking
    def take(self, at_most: int, owners: Mapping[Partition, Fence]) -> Batch:
        """Take records that have arrived, some chunks of each queue in turn: at most `at_most`, and bodies until their
        bytes reach `POLL_BYTES`. The next call goes on within a compressed chunk."""
        records: list[Record] = []
        ends: list[End] = []
        unreadable: dict[tuple[Partition, int], RecordUnreadable] = {}
        room = POLL_BYTES
        while at_most > 0 and room > 0 and self.broken is None:
            with self._changed:
                if not self._row:
                    break
                reading = self._row.popleft()
                reading.queued = False
            for _ in range(_IN_A_ROW):
                chunk = self._first(reading)
                if chunk is None or at_most <= 0 or room <= 0:
                    break
                taken = self._of(chunk, reading, at_most, room, owners)
                records += taken
                at_most, room = at_most - len(taken), chunk.room
                if chunk.unreadable:
                    unreadable.update({(reading.queue, at): error for at, error in chunk.unreadable.items()})
                if not chunk.over or self.broken is not None:
                    break
                ends.append(End(reading.queue, chunk.next_offset))
                self._done(reading, chunk)
            with self._changed:
                self._enqueue(reading)
        return Batch(records, ends, unreadable)

    def _first(self, reading: Reading) -> Chunk | None:
        with self._changed:
            return reading.chunks[0] if reading.chunks and not reading.paused else None

    def _done(self, reading: Reading, chunk: Chunk) -> None:
        with self._changed:
            if reading.chunks and reading.chunks[0] is chunk:  # it was not dropped meanwhile
                reading.chunks.popleft()
                self._add_to_counts(reading, -chunk.count, -len(chunk.body))
            waits = next(iter(self._still), None)
            first = None if waits is None else self._readings.get(waits)
        # There is room again. The first idle queue gets it first: else this queue would use it up while it has lag.
        self._pull([reading] if first is None else [first, reading])

    def _of(
        self, chunk: Chunk, reading: Reading, at_most: int, room: int, owners: Mapping[Partition, Fence]
    ) -> Sequence[Record]:
        fence = owners.get(reading.queue)
        if fence is None or chunk.over:
            chunk.over, chunk.room = True, room
            return ()
        found, self.broken = reading.records(chunk, fence, at_most=at_most, room=room)
        return found

    # ---- pulling
    def look(self) -> None:
        """Pull idle queues, in turn. Called often; acts 50 times a second at most, and only if there is room."""
        now = SYSTEM_CLOCK.now()
        if now >= self._look_at and self._still:
            self._look_at = now + _LOOK_S
            with self._changed:
                if not self._kept and self._room_of_all() <= 0:
                    return
                still = [self._readings[queue] for queue in islice(self._still, _LOOKED_AT)]
            self._pull(still)

    def go_on(self, queue: Partition) -> None:
        """Pull a queue that may be read now. Any thread."""
        with self._changed:
            reading = self._readings.get(queue)
        self._pull([] if reading is None else [reading])

    def _pull(self, readings: Iterable[Reading]) -> None:
        for reading in readings:
            while (wanted := self._wanted(reading)) is not None:
                turn, request = wanted
                try:
                    self._client.begin_pull(request, partial(self._answered, reading, turn, request.offset))
                except SourceError as error:
                    self._answered(reading, turn, request.offset, error)
            with self._changed:
                self._note_idle(reading)

    def _wanted(self, reading: Reading) -> tuple[int, PullRequest] | None:
        """The next pull of a queue and its turn; None: do not pull now."""
        settings = self._settings
        with self._changed:
            if (
                reading.paused
                or self._readings.get(reading.queue) is not reading
                or not self._is_proved(reading.queue)
                or reading.size >= self._most_size_of_queue
                or (reading.wait_until and SYSTEM_CLOCK.now() < reading.wait_until)
                or (offset := reading.pulls.begin(self._room(reading))) is None
            ):
                return None
            self._reserve(reading)
            return reading.pulls.turn, PullRequest(
                queue=reading.queue,
                group=settings.group,
                offset=offset,
                subscription=reading.subscription,
                max_messages=settings.pull_batch_size,
                suspend_s=0 if reading.expected is None else settings.broker_suspend_max_time_s,
            )

    def _answered(self, reading: Reading, turn: int, asked: int, answer: PullAnswer | SourceError) -> None:
        """Take the answer to a pull. On a connection's thread."""
        with self._changed:
            if self._is_reset(reading.queue, asked, answer) or reading.pulls.turn != turn:
                return
            if isinstance(answer, SourceError):
                self._restart(reading, reading.pulls.next)
                reading.troubles += 1
                reading.wait_until = SYSTEM_CLOCK.now() + (BACKOFF.wait_s(reading.troubles, answer) or 0.0)
                self._note_idle(reading)
                self.troubles.append((reading.queue, answer))
                if self._logs is not None:
                    self._logs.doubt(reading.queue)
                self._changed.notify_all()
                return
            reading.troubles, reading.wait_until, self.let_in = 0, 0.0, True
            if not self._is_proved(reading.queue):  # the connection broke: another server may have answered
                self._restart(reading, reading.pulls.next)
                self._note_idle(reading)
                return
            if answer.status is not PullStatus.MOVED:
                got = max(0, answer.next_offset - asked)
                reading.expected = (got, len(answer.body)) if answer.next_offset < answer.max_offset else (0, 0)
            for at, due in reading.pulls.answered(asked, answer):
                self._take_answer(reading, at, due)
            self._reserve(reading)
        self._pull([reading])

    # ---- under the lock
    def _is_proved(self, queue: Partition) -> bool:
        return self._logs is None or self._logs.proved(queue)

    def _room(self, reading: Reading) -> int:
        settings = self._settings
        of_all = self._room_of_all(reading)
        if self._kept and not reading.chunks:
            of_all = max(of_all, 1)  # messages of paused queues must not keep other queues from being read
        return min(of_all, settings.pull_threshold_for_queue - reading.count)

    def _expected(self, reading: Reading) -> tuple[int, int]:
        return (self._settings.pull_batch_size, _ANSWER_BYTES) if reading.expected is None else reading.expected

    def _room_of_all(self, reading: Reading | None = None) -> int:
        """The number of messages for which there is room, with those reserved for `reading`. Waiting messages exceed
        the limit by one pull at most."""
        if self._size + self._size_to_come >= self._most_size:
            return 0
        own = 0 if reading is None else reading.reserved[0]
        return self._settings.pull_threshold_for_all - self._count - self._count_to_come + own

    def _reserve(self, reading: Reading) -> None:
        """Reserve room for the messages that the queue's pulls under way may bring."""
        times, (count, size) = reading.pulls.under_way, self._expected(reading)
        before, reading.reserved = reading.reserved, (times * count, times * size)
        self._count_to_come += reading.reserved[0] - before[0]
        self._size_to_come += reading.reserved[1] - before[1]

    def _restart(self, reading: Reading, offset: int | None) -> None:
        reading.pulls.restart(offset)
        self._reserve(reading)

    def _note_idle(self, reading: Reading) -> None:
        """Put the queue at the end of the idle ones if no pull is under way, so that `look` will pull it."""
        queue = reading.queue
        if self._readings.get(queue) is not reading:
            return
        self._still.pop(queue, None)
        if not reading.pulls.under_way and reading.pulls.next is not None and not reading.paused:
            self._still[queue] = None

    def _is_reset(self, queue: Partition, asked: int, answer: PullAnswer | SourceError) -> bool:
        """Whether the answer is a reset, which is noted then. A broker sends it once, as the answer to the group's next
        pull. So it is noted also if the pull is of an earlier turn, or ahead of its order."""
        if isinstance(answer, SourceError) or answer.status is not PullStatus.MOVED:
            return False
        moved, reading = Moved(queue, asked, answer), self._readings.get(queue)
        if reading is None or not moved.is_reset:
            return False
        self._move(reading, moved)
        return True

    def _move(self, reading: Reading, moved: Moved) -> None:
        self._restart(reading, None)  # until the source decides where to read on
        self.moved.append(moved)
        self._changed.notify_all()

    def _take_answer(self, reading: Reading, asked: int, answer: PullAnswer) -> None:
        if answer.status is PullStatus.MOVED:
            self._move(reading, Moved(reading.queue, asked, answer))
        elif answer.body or answer.next_offset > asked:
            if self._logs is not None:
                self._logs.came(reading.queue, answer.body)
            chunk = Chunk(answer, asked)
            reading.chunks.append(chunk)
            self._add_to_counts(reading, chunk.count, len(chunk.body))
            self._enqueue(reading)
            self._changed.notify_all()
            if answer.status is PullStatus.NONE_MATCHED and answer.remark == _REMOVED:
                _log.warning(
                    "%s: messages %d to %d were removed by their broker before they were read: their log has expired",
                    reading.queue,
                    asked,
                    answer.next_offset - 1,
                )
        elif answer.status is PullStatus.NONE_MATCHED:
            reading.wait_until = SYSTEM_CLOCK.now() + _BEHIND_S
            if self._behind.due(reading.queue):
                _log.warning(
                    "%s is not read on from %d: %s does not have that yet, as a slave that is behind. It is asked for "
                    "again; does replication go on there?",
                    reading.queue,
                    asked,
                    answer.address,
                )
        elif not self._settings.broker_suspend_max_time_s:
            reading.wait_until = SYSTEM_CLOCK.now() + _NOT_HELD_S

    def _enqueue(self, reading: Reading) -> None:
        if reading.chunks and not reading.queued and not reading.paused:
            reading.queued = True
            self._row.append(reading)

    def _drop(self, reading: Reading, offset: int | None) -> None:
        """Drop messages that have arrived and pulls under way; go on at this offset."""
        self._restart(reading, offset)
        self._add_to_counts(reading, -reading.count, -reading.size)
        reading.chunks.clear()

    def _pause(self, reading: Reading, *, paused: bool) -> None:
        self._kept += reading.count * (paused - reading.paused)
        reading.paused = paused
        if paused:
            self._still.pop(reading.queue, None)

    def _add_to_counts(self, reading: Reading, count: int, size: int) -> None:
        self._kept += count * reading.paused
        reading.count += count
        reading.size += size
        self._count += count
        self._size += size
