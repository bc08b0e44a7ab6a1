"""Moves: where to read on after a reset, at an expired beginning, in a cut log, and in another log.

RocketMQ's commits carry no metadata, so `Committed.marked` is False: positions in the store win, whether they are
higher or lower. A reset shows in two ways. A pull is answered by MOVED although its offset lies within the log; the
broker gives this answer once, and ignores commits until then. Or, if it leaves resets to the members, it sends all of
them request 220. A MOVED beyond the end of the log or below its beginning is checked at the master: a slave, also one
that acts as the master, may be behind or have less of the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from holdfast.adapters.rocketmq.inbox import AnotherLog, ResetByNotice
from holdfast.adapters.rocketmq.log import Found
from holdfast.adapters.rocketmq.remoting.membership import read_reset
from holdfast.adapters.rocketmq.trouble_lines import TroubleLines
from holdfast.errors import SourceError
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from holdfast.adapters.rocketmq.inbox import Inbox, Moved
    from holdfast.adapters.rocketmq.log import Log
    from holdfast.adapters.rocketmq.offsets import Offsets
    from holdfast.adapters.rocketmq.queue import Queue
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
    """Decides where to read on, and tells the engine. One thread, but for `hear`.

    Args:
        queues: the assigned ones; events about others are left alone.
        offsets: asks the masters.
        inbox: gets resets that are heard.
    """

    def __init__(self, queues: Mapping[Partition, Queue], offsets: Offsets, inbox: Inbox) -> None:
        self._queues, self._offsets, self._inbox = queues, offsets, inbox
        #: Brokers whose master did not answer: their other queues are left for later, since each request waits inside a
        #: poll.
        self._silent_brokers: set[str] = set()
        #: Limit log lines about a queue: the cause may last for long.
        self._broken: TroubleLines[Partition] = TroubleLines(0.0)
        self._behind: TroubleLines[Partition] = TroubleLines(_BEHIND_S)

    def forget(self, queues: Collection[Partition]) -> None:
        """Forget queues that are not read any more."""
        self._broken.forget(queues)
        self._behind.forget(queues)

    def hear(self, notice: Notice) -> None:
        """Take a reset from a broker that leaves resets to the members (useServerSideResetOffset=false): it sends all
        queues' offsets to all members, and changes nothing itself. On a connection's thread."""
        try:
            for queue, offset in read_reset(notice.body).items():
                self._inbox.post(ResetByNotice(queue, offset))
        except SourceError as error:
            _log.error("a reset by %s cannot be read, and is not followed: %s", notice.address, error)

    def begin_round(self) -> None:
        """Ask all masters again. Call it before a poll's events."""
        self._silent_brokers.clear()

    def follow(self, event: Moved | AnotherLog | ResetByNotice, listener: RebalanceListener) -> None:
        """Tell the engine to seek, or continue the pulls here."""
        queue = self._queues.get(event.queue)
        if queue is None:
            return  # another member has got the same notice, or will find out
        if isinstance(event, ResetByNotice):
            _log.warning("%s: reset to %d, says its broker", event.queue, event.offset)
            listener.reset(event.queue, event.offset)
        elif isinstance(event, AnotherLog):
            self._begin_anew(queue, event.log, listener)
        elif event.is_reset:
            listener.reset(event.queue, event.answer.next_offset)
        elif event.asked < event.answer.min_offset:
            self._look_at_beginning(queue, event)
        else:
            self._look_at_cut(queue, event, listener)

    # ---- another log
    def _begin_anew(self, queue: Queue, log: Log, listener: RebalanceListener) -> None:
        """Reset a queue whose log is not, or not surely, the one that was read. If its master does not answer, the log
        is probed again later."""
        name = queue.partition
        if queue.log is not log:
            return
        begun = False
        if name.broker not in self._silent_brokers:
            try:
                begun = self._reset_to_beginning(queue, log, listener)
            except SourceError as error:
                _log.info("%s: %s; where it begins is not known yet: %s", name, log.why, error)
                self._silent_brokers.add(name.broker)
        if not begun:
            queue.prove_again(log)

    def _reset_to_beginning(self, queue: Queue, log: Log, listener: RebalanceListener) -> bool:
        """Returns False if nothing was done: the master's log reaches beyond the mark, so look again, or it is broken.
        Raises SourceError: the master does not answer."""
        name, newest = queue.partition, log.newest
        self._offsets.check_master(name, Deadline(_LOOK_S))
        end = self._end(name)
        if log.found is Found.BEYOND and newest is not None and end > newest.offset:
            return False
        first = self._first_offset_to_read(queue)
        if self._is_broken(name, first, end):
            return False
        _log.warning("%s: %s; reading it from %d", name, log.why, first)
        listener.reset(name, first, cut=True)
        return True

    def _first_offset_to_read(self, queue: Queue) -> int:
        """The offset from which a changed log is read: after the part that is surely the same as before, else at its
        beginning. Raises SourceError."""
        first = self._offsets.begins(queue.partition, Deadline(_LOOK_S))
        return max(first, queue.same_up_to(Deadline(_LOOK_S)))

    # ---- a MOVED that is no reset
    def _look_at_beginning(self, queue: Queue, moved: Moved) -> None:
        """Handle an offset below the beginning of the log. The master is asked: a slave that was added later may have
        less."""
        name, asked, _ = moved
        try:
            self._offsets.check_master(name, Deadline(_LOOK_S))
            first = self._offsets.begins(name, Deadline(_LOOK_S))
            if first > asked and self._is_broken(name, first, self._end(name)):
                queue.go_on_at(moved, asked, wait_s=_BROKEN_S)
                return
        except SourceError as error:
            _log.info("%s begins behind %d, says a broker; asking again: %s", name, asked, error)
            first = asked
        if asked >= first:
            self._wait_for_slave(queue, moved)
        elif queue.go_on_at(moved, first):
            queue.start = first  # the engine reports the gap: it knows which of these offsets were done

    def _look_at_cut(self, queue: Queue, moved: Moved, listener: RebalanceListener) -> None:
        """Handle an offset beyond the end of the log. The master is asked: a slave may only be behind. If the log was
        cut, reading on from the same offset would lose its new messages."""
        name, asked, _ = moved
        try:
            self._offsets.check_master(name, Deadline(_LOOK_S))
            if (end := self._end(name)) < asked:
                first = self._first_offset_to_read(queue)
                if self._is_broken(name, first, end):
                    queue.go_on_at(moved, asked, wait_s=_BROKEN_S)
                else:
                    listener.reset(name, first, cut=True)
                return
        except SourceError as error:
            _log.info("%s ends before %d, says a broker; asking again: %s", name, asked, error)
        self._wait_for_slave(queue, moved)

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

    def _wait_for_slave(self, queue: Queue, moved: Moved) -> None:
        """Pull again after a wait: a slave has answered, and has less than its master."""
        if self._behind.due(moved.queue):
            _log.warning(
                "%s is not read on from %d: %s does not have that yet, and its master does. It is asked for again; "
                "does replication go on there?",
                moved.queue,
                moved.asked,
                moved.answer.address,
            )
        queue.go_on_at(moved, moved.asked, wait_s=_AGAIN_S)
