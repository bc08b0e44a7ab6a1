"""Moves: the answers of a broker by which the group must read on elsewhere: a reset, an expired beginning, a cut log.

RocketMQ's commits carry no metadata, so `Committed.marked` is False: positions in the store win, whether they are
higher or lower. A reset shows in two ways. A pull is answered by MOVED although its offset lies within the log; the
broker gives this answer once, and ignores commits until then. Or, if it leaves resets to the members, it sends all of
them request 220. A MOVED beyond the end of the log or below its beginning is checked at the master: a slave, also one
that acts as the master, may be behind or have less of the log.
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

#: The deadline of a request inside a poll. Without an answer the queue is pulled again after `_AGAIN_S`.
_LOOK_S = 1.0
_AGAIN_S = 0.5
#: The wait until a broken log is pulled again.
_BROKEN_S = 5.0
#: How long a slave may be behind before it is logged.
_BEHIND_S = 10.0


class Moves:
    """Decides where to read on, and tells the engine. One thread, but for `hear`."""

    def __init__(self, prefetch: Prefetch, offsets: Offsets, logs: Logs) -> None:
        self._prefetch, self._offsets, self._logs = prefetch, offsets, logs
        #: Queue -> first offset of its log, for logs that begin above the offset that was to be read. Removed by the
        #: next seek.
        self.starts: dict[Partition, int] = {}
        #: Resets that brokers have sent to the members, in order of arrival.
        self.resets: deque[tuple[Partition, int]] = deque()
        #: Limit log lines about a queue: the cause may last for long.
        self._broken: Told[Partition] = Told(0.0)
        self._behind: Told[Partition] = Told(_BEHIND_S)

    def forget(self, queues: Collection[Partition]) -> None:
        """Forget queues that are not read any more."""
        for queue in queues:
            self.starts.pop(queue, None)
        self._broken.forget(queues)
        self._behind.forget(queues)

    def follow(self, moved: Moved, listener: RebalanceListener) -> None:
        """Tell the engine to seek, or continue the pulls here."""
        if moved.is_reset:
            listener.reset(moved.queue, moved.answer.next_offset)
        elif moved.asked < moved.answer.min_offset:
            self._look_at_beginning(moved)
        else:
            self._look_at_cut(moved, listener)

    def hear(self, notice: Notice) -> None:
        """Take a reset from a broker that leaves resets to the members (useServerSideResetOffset=false): it sends all
        queues' offsets to all members, and changes nothing itself. On a connection's thread."""
        try:
            self.resets.extend(read_reset(notice.body).items())
        except SourceError as error:
            _log.error("a reset by %s cannot be read, and is not followed: %s", notice.address, error)

    def follow_resets(self, assigned: Collection[Partition], listener: RebalanceListener) -> None:
        """Tell the engine of resets of assigned queues. The other queues' members have got the same message."""
        while self.resets:
            queue, offset = self.resets.popleft()
            if queue in assigned:
                _log.warning("%s: reset to %d, says its broker", queue, offset)
                listener.reset(queue, offset)

    def begin_others(self, listener: RebalanceListener) -> None:
        """Begin anew in queues whose log is another one. If a master does not answer for one queue, its other queues
        are left for later: each request waits inside a poll."""
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
        """Reset a queue whose log is not, or not surely, the one that was read. Returns False if nothing was done: its
        master's log reaches beyond the mark, so look again, or it is broken. Raises SourceError: the master does not
        answer."""
        queue, newest = log.queue, log.newest
        self._offsets.check_master(queue, Deadline(_LOOK_S))
        ends = self._offsets.ends([queue], Deadline(_LOOK_S))[queue]
        if log.found is Found.BEYOND and newest is not None and ends > newest.offset:
            return False
        first = self._first_offset_to_read(queue)
        if self._is_broken(queue, first, ends):
            return False
        _log.warning("%s: %s; reading it from %d", queue, log.why, first)
        listener.reset(queue, first, cut=True)
        return True

    def _first_offset_to_read(self, queue: Partition) -> int:
        """The offset from which a changed log is read: after the part that is surely the same as before, else at its
        beginning. Raises SourceError."""
        first = self._offsets.begins(queue, Deadline(_LOOK_S))
        return max(first, self._logs.same_up_to(queue, Deadline(_LOOK_S)))

    def _look_at_beginning(self, moved: Moved) -> None:
        """Handle an offset below the beginning of the log. The master is asked: a slave that was added later may have
        less."""
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
            self.starts[queue] = first  # the engine reports the gap: it knows which of these offsets were done

    def _look_at_cut(self, moved: Moved, listener: RebalanceListener) -> None:
        """Handle an offset beyond the end of the log. The master is asked: a slave may only be behind. If the log was
        cut, reading on from the same offset would lose its new messages."""
        queue, asked, _ = moved
        try:
            self._offsets.check_master(queue, Deadline(_LOOK_S))
            if (end := self._end(queue)) < asked:
                first = self._first_offset_to_read(queue)
                if self._is_broken(queue, first, end):
                    self._prefetch.go_on_at(moved, asked, wait_s=_BROKEN_S)
                else:
                    listener.reset(queue, first, cut=True)
                return
        except SourceError as error:
            _log.info("%s ends before %d, says a broker; asking again: %s", queue, asked, error)
        self._wait_for_slave(moved)

    def _end(self, queue: Partition) -> int:
        """The end of the master's log. Raises SourceError."""
        return self._offsets.ends([queue], Deadline(_LOOK_S))[queue]

    def _is_broken(self, queue: Partition, first: int, end: int) -> bool:
        """Whether a log begins beyond its end. RocketMQ 5.5.0 reports that after an unclean election has cut the index
        (apache/rocketmq#10417). No offset can be read then; the queue is asked for again and no message is skipped."""
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
        """Pull again after a wait: a slave has answered, and has less than its master."""
        if self._behind.due(moved.queue):
            _log.warning(
                "%s is not read on from %d: %s does not have that yet, and its master does. It is asked for again; "
                "does replication go on there?",
                moved.queue,
                moved.asked,
                moved.answer.address,
            )
        self._prefetch.go_on_at(moved, moved.asked, wait_s=_AGAIN_S)
