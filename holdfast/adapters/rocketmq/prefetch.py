"""Prefetch: long polls for each queue that is read, all of a broker's on one connection; and what they brought.

Bounded in records and bytes, in all and for each queue: one big queue leaves room for the others. Callbacks come on
connections' threads and begin the next pulls at once; records are decoded by the thread that takes them.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.reading import Chunk, Moved, Reading
from holdfast.adapters.rocketmq.remoting import PullRequest, PullStatus
from holdfast.adapters.rocketmq.remoting.messages import POLL_BYTES
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

_MIB = 1024 * 1024
#: How often queues are looked at that stand still: after trouble, or because all room was taken.
_LOOK_S = 0.02
#: A slave that has not got so far yet does not hold a pull: it answers at once that nothing matched.
_BEHIND_S = 0.5
#: Chunks of a queue that are taken together: what is consecutive goes its way as one run, of 256 records where a chunk
#: has 32. More would wait for the budget that `mark_batch` gives.
_IN_A_ROW = 8


class Prefetch:
    """`changed` guards all its state, and is notified when something came. Nothing is called under it but its own.

    Args:
        client: pulls.
        changed: of the source.
        settings: how much.
        logs: say which queues may be read; None: all.
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
        #: Of these, how many are of queues that are paused.
        self._kept = 0
        self._look_at = 0.0
        self._most_size = int(settings.pull_threshold_size_for_all * _MIB)
        self._most_size_of_queue = int(settings.pull_threshold_size_for_queue * _MIB)
        #: A pull was answered: what this process may do was right then.
        self.let_in = False
        #: What brokers have said, until the source takes it.
        self.moved: deque[Moved] = deque()
        self.troubles: deque[tuple[Partition, SourceError]] = deque()
        #: What cannot be read, and what lies before it was delivered.
        self.broken: HoldfastError | None = None

    @property
    def has_some(self) -> bool:
        """Whether `take` would bring something. Under the lock."""
        return bool(self._row)

    # ---- which queues, and from where
    def add(self, queue: Partition, subscription: Subscription, offset: int | None, *, paused: bool) -> None:
        """Read that queue. `offset` None: not before a seek."""
        with self._changed:
            self._readings[queue] = reading = Reading(
                queue, subscription, offset, paused=paused, group=self._settings.group, born_in=self._born_in
            )
        self._pull([reading])

    def remove(self, queues: Iterable[Partition]) -> None:
        """Read these no more; what has come of them is dropped, and what comes yet is not looked at."""
        with self._changed:
            for queue in queues:
                reading = self._readings.pop(queue, None)
                if reading is not None:
                    self._drop(reading, None)

    def seek(self, queue: Partition, offset: int) -> bool:
        """Read on from there. False = that queue is not read."""
        with self._changed:
            reading = self._readings.get(queue)
            if reading is None:
                return False
            self._drop(reading, offset)
            reading.troubles, reading.wait_until = 0, 0.0
        self._pull([reading])
        return True

    def go_on_at(self, moved: Moved, offset: int, *, wait_s: float = 0.0) -> bool:
        """Read on from there, after a wait, behind what has come already: nothing else would bring that. False = the
        queue was sought elsewhere meanwhile, or is not read any more."""
        with self._changed:
            reading = self._readings.get(moved.queue)
            if reading is None or reading.pulls.next is not None:
                return False
            reading.pulls.restart(offset)
            reading.troubles, reading.wait_until = 0, SYSTEM_CLOCK.now() + wait_s if wait_s else 0.0
            reading.chunks.append(Chunk(moved.answer._replace(body=b"", next_offset=offset), moved.asked))
            self._enqueue(reading)
        self._pull([reading])
        return True

    def pause(self, queues: Collection[Partition]) -> None:
        """Pull nothing of these; what has come stays, and is not delivered."""
        with self._changed:
            for queue in queues:
                if queue in self._readings:
                    self._pause(self._readings[queue], paused=True)

    def resume(self, queues: Collection[Partition]) -> None:
        """Go on."""
        with self._changed:
            going = [self._readings[queue] for queue in queues if queue in self._readings]
            for reading in going:
                self._pause(reading, paused=False)
                self._enqueue(reading)
        self._pull(going)

    def ends(self) -> Mapping[Partition, int]:
        """The ends of logs, as the last answers told them."""
        with self._changed:
            ends = {queue: reading.pulls.end for queue, reading in self._readings.items()}
        return {queue: end for queue, end in ends.items() if end is not None}

    # ---- taking
    def take(self, at_most: int, owners: Mapping[Partition, Fence]) -> Batch:
        """Take records that have come, some chunks of each queue in turn. At most so many, and so many bytes of bodies
        that one body more is too much (`POLL_BYTES`): what a pull has brought packed is read on by the next call."""
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
            if reading.chunks and reading.chunks[0] is chunk:  # not dropped meanwhile
                reading.chunks.popleft()
                self._count_in(reading, -chunk.count, -len(chunk.body))
        self._pull([reading])

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
        """Go on with queues that stand still and need not. Called often; does something 50 times a second at most."""
        now = SYSTEM_CLOCK.now()
        if now >= self._look_at:
            self._look_at = now + _LOOK_S
            with self._changed:
                still = [reading for reading in self._readings.values() if not reading.pulls.under_way]
            self._pull(still)

    def go_on(self, queue: Partition) -> None:
        """Read the queue on: it may be read by now. Any thread."""
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

    def _wanted(self, reading: Reading) -> tuple[int, PullRequest] | None:
        """The next pull of a queue, if there is to be one now, and its turn."""
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
            return reading.pulls.turn, PullRequest(
                queue=reading.queue,
                group=settings.group,
                offset=offset,
                subscription=reading.subscription,
                max_messages=settings.pull_batch_size,
                suspend_s=settings.broker_suspend_max_time_s,
            )

    def _answered(self, reading: Reading, turn: int, asked: int, answer: PullAnswer | SourceError) -> None:
        """A connection's thread."""
        with self._changed:
            if self._is_reset(reading.queue, asked, answer) or reading.pulls.turn != turn:
                return
            if isinstance(answer, SourceError):
                reading.pulls.restart(reading.pulls.next)
                reading.troubles += 1
                reading.wait_until = SYSTEM_CLOCK.now() + (BACKOFF.wait_s(reading.troubles, answer) or 0.0)
                self.troubles.append((reading.queue, answer))
                if self._logs is not None:
                    self._logs.doubt(reading.queue)
                self._changed.notify_all()
                return
            reading.troubles, reading.wait_until, self.let_in = 0, 0.0, True
            if not self._is_proved(reading.queue):  # by whoever is there since the connection broke
                reading.pulls.restart(reading.pulls.next)
                return
            for at, due in reading.pulls.answered(asked, answer):
                self._came(reading, at, due)
        self._pull([reading])

    # ---- under the lock
    def _is_proved(self, queue: Partition) -> bool:
        return self._logs is None or self._logs.proved(queue)

    def _room(self, reading: Reading) -> int:
        settings = self._settings
        of_all = settings.pull_threshold_for_all - self._count if self._size < self._most_size else 0
        if self._kept and not reading.chunks:
            of_all = max(of_all, 1)  # what is kept of queues that are paused keeps no other out
        return min(of_all, settings.pull_threshold_for_queue - reading.count)

    def _is_reset(self, queue: Partition, asked: int, answer: PullAnswer | SourceError) -> bool:
        """Brokers tell of a reset once, to whichever pull of the group is the next: also to one that counts no more, or
        not yet."""
        if isinstance(answer, SourceError) or answer.status is not PullStatus.MOVED:
            return False
        moved, reading = Moved(queue, asked, answer), self._readings.get(queue)
        if reading is None or not moved.is_reset:
            return False
        self._move(reading, moved)
        return True

    def _move(self, reading: Reading, moved: Moved) -> None:
        reading.pulls.restart(None)  # until the source says where
        self.moved.append(moved)
        self._changed.notify_all()

    def _came(self, reading: Reading, asked: int, answer: PullAnswer) -> None:
        if answer.status is PullStatus.MOVED:
            self._move(reading, Moved(reading.queue, asked, answer))
        elif answer.body or answer.next_offset > asked:
            if self._logs is not None:
                self._logs.came(reading.queue, answer.body)
            chunk = Chunk(answer, asked)
            reading.chunks.append(chunk)
            self._count_in(reading, chunk.count, len(chunk.body))
            self._enqueue(reading)
            self._changed.notify_all()
        elif answer.status is PullStatus.NONE_MATCHED:
            reading.wait_until = SYSTEM_CLOCK.now() + _BEHIND_S

    def _enqueue(self, reading: Reading) -> None:
        if reading.chunks and not reading.queued and not reading.paused:
            reading.queued = True
            self._row.append(reading)

    def _drop(self, reading: Reading, offset: int | None) -> None:
        """Drop what has come and what is under way; go on from there."""
        reading.pulls.restart(offset)
        self._count_in(reading, -reading.count, -reading.size)
        reading.chunks.clear()

    def _pause(self, reading: Reading, *, paused: bool) -> None:
        self._kept += reading.count * (paused - reading.paused)
        reading.paused = paused

    def _count_in(self, reading: Reading, count: int, size: int) -> None:
        self._kept += count * reading.paused
        reading.count += count
        reading.size += size
        self._count += count
        self._size += size
