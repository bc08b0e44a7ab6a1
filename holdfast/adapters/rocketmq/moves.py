"""When a broker says that the group has to read on elsewhere: a reset, an expired beginning, or a log that was cut.

RocketMQ's commits carry no mark, so `Committed.marked` is False there: positions win, in both directions. A reset is
what a pull says is one (MOVED, though the offset lies within the log); that answer is given once, and commits are
ignored until then. Or what a broker tells all members, which leaves a reset to them (220). A MOVED beyond the log's
end, or below its beginning, is asked for at the master: a slave may be behind, or have less, also one that acts for the
master.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.marks import Found
from holdfast.adapters.rocketmq.remoting.membership import read_reset
from holdfast.adapters.rocketmq.told import Told
from holdfast.errors import SourceError
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection

    from holdfast.adapters.rocketmq.logs import Log, Logs
    from holdfast.adapters.rocketmq.offsets import Offsets
    from holdfast.adapters.rocketmq.prefetch import Prefetch
    from holdfast.adapters.rocketmq.reading import Moved
    from holdfast.adapters.rocketmq.remoting import Notice
    from holdfast.plugin.ports import RebalanceListener
    from holdfast.records import Partition

_log = logging.getLogger("holdfast.rocketmq")

#: One look inside a poll; without an answer the queue is pulled again after a wait.
_LOOK_S = 1.0
_AGAIN_S = 0.5
#: A log that is broken is not mended in a second.
_BROKEN_S = 5.0
#: A slave may be behind for so long before that is told.
_BEHIND_S = 10.0


class Moves:
    """One thread."""

    def __init__(self, prefetch: Prefetch, offsets: Offsets, logs: Logs) -> None:
        self._prefetch, self._offsets, self._logs = prefetch, offsets, logs
        #: Of logs that begin behind what was to be read: where they do. Nothing is known of them before the next seek.
        self.starts: dict[Partition, int] = {}
        #: What brokers have told members to reset, as it came.
        self.resets: deque[tuple[Partition, int]] = deque()
        #: When it was told last of a queue: what it waits for may go on for long.
        self._broken, self._behind = Told(0.0), Told(_BEHIND_S)

    def forget(self, queues: Collection[Partition]) -> None:
        """Forget queues that are not read any more."""
        for queue in queues:
            self.starts.pop(queue, None)
        self._broken.forget(queues)
        self._behind.forget(queues)

    def follow(self, moved: Moved, listener: RebalanceListener) -> None:
        """Tell the engine, which seeks; or read on here."""
        if moved.is_reset:
            listener.reset(moved.queue, moved.answer.next_offset)
        elif moved.asked < moved.answer.min_offset:
            self._look_at_beginning(moved)
        else:
            self._look_at_cut(moved, listener)

    def hear(self, notice: Notice) -> None:
        """A reset by a broker that leaves it to the members (useServerSideResetOffset=false): it tells all of them, of
        all queues, and changes nothing itself. A connection's thread."""
        try:
            self.resets.extend(read_reset(notice.body).items())
        except SourceError as error:
            _log.error("a reset by %s cannot be read, and is not followed: %s", notice.address, error)

    def follow_resets(self, assigned: Collection[Partition], listener: RebalanceListener) -> None:
        """Tell the engine of those in queues that are ours. The others' members were told as well."""
        while self.resets:
            queue, offset = self.resets.popleft()
            if queue in assigned:
                _log.warning("%s: reset to %d, says its broker", queue, offset)
                listener.reset(queue, offset)

    def begin_others(self, listener: RebalanceListener) -> None:
        """Of these the log is another. A master that does not answer is asked for one of its queues, not for each:
        every question waits inside a poll."""
        away: set[str] = set()
        logs = self._logs
        while logs.others:
            log = logs.others.popleft()
            if not logs.is_read(log):
                continue
            begun = False
            if log.queue.broker not in away:
                try:
                    begun = self._begin_anew(log, listener)
                except SourceError as error:
                    _log.info("%s: %s; where it begins is not known yet: %s", log.queue, log.why, error)
                    away.add(log.queue.broker)
            if not begun:
                logs.retry(log)

    def _begin_anew(self, log: Log, listener: RebalanceListener) -> bool:
        """A queue's log is another than the one that was read, or nobody can tell. False = it has come so far, says its
        master: look again. Raises SourceError: its master does not say."""
        queue, newest = log.queue, log.newest
        self._offsets.check_master(queue, Deadline(_LOOK_S))
        ends = self._offsets.ends([queue], Deadline(_LOOK_S))[queue]
        if log.found is Found.BEYOND and newest is not None and ends > newest.offset:
            return False
        first = self._first(queue)
        if self._is_broken(queue, first, ends):
            return False
        _log.warning("%s: %s; reading it from %d", queue, log.why, first)
        listener.reset(queue, first, cut=True)
        return True

    def _first(self, queue: Partition) -> int:
        """Where a log is read from that is not what it was: behind what it has of what was read before, if that is
        sure, else from its beginning. Raises SourceError."""
        first = self._offsets.begins(queue, Deadline(_LOOK_S))
        return max(first, self._logs.same_up_to(queue, Deadline(_LOOK_S)))

    def _look_at_beginning(self, moved: Moved) -> None:
        """Asked of the master, since a slave that was added later may have less."""
        queue, asked, _ = moved
        try:
            self._offsets.check_master(queue, Deadline(_LOOK_S))
            first = self._offsets.begins(queue, Deadline(_LOOK_S))
            if first > asked and self._is_broken(queue, first, self._end(queue)):
                self._prefetch.go_on_at(moved, asked, wait_s=_BROKEN_S)
                return
        except SourceError as error:
            _log.info("%s begins behind %d, says a broker; asking again: %s", queue, asked, error)
            first = asked
        if asked >= first:
            self._wait_for_slave(moved)
        elif self._prefetch.go_on_at(moved, first):
            self.starts[queue] = first  # the engine tells of it: it knows what was done of that

    def _look_at_cut(self, moved: Moved, listener: RebalanceListener) -> None:
        """Asked of the master, since a slave may only be behind. What is new in the log would be lost where it was read
        on from the same offset."""
        queue, asked, _ = moved
        try:
            self._offsets.check_master(queue, Deadline(_LOOK_S))
            if (end := self._end(queue)) < asked:
                first = self._first(queue)
                if self._is_broken(queue, first, end):
                    self._prefetch.go_on_at(moved, asked, wait_s=_BROKEN_S)
                else:
                    listener.reset(queue, first, cut=True)
                return
        except SourceError as error:
            _log.info("%s ends before %d, says a broker; asking again: %s", queue, asked, error)
        self._wait_for_slave(moved)

    def _end(self, queue: Partition) -> int:
        """Raises SourceError."""
        return self._offsets.ends([queue], Deadline(_LOOK_S))[queue]

    def _is_broken(self, queue: Partition, first: int, end: int) -> bool:
        """Whether a log begins beyond its end: so 5.5.0 does after an unclean election that has cut its index
        (apache/rocketmq#10417). Nothing can be read then, wherever one asks, and nothing is given up."""
        if first <= end:
            return False
        if self._broken.due(queue):
            _log.warning(
                "%s cannot be read: its log begins at %d and ends at %d, says its master. Nothing is passed over, and "
                "it is asked for again: mend the broker's consume queue (store.log), or reset the group",
                queue,
                first,
                end,
            )
        return True

    def _wait_for_slave(self, moved: Moved) -> None:
        """Ask again: a slave has answered that has less than its master."""
        if self._behind.due(moved.queue):
            _log.warning(
                "%s is not read on from %d: %s does not have that yet, and its master does. It is asked for again; "
                "does replication go on there?",
                moved.queue,
                moved.asked,
                moved.answer.address,
            )
        self._prefetch.go_on_at(moved, moved.asked, wait_s=_AGAIN_S)
