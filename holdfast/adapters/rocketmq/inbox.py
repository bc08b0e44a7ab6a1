"""Inbox: events of a RocketMQSource's other threads, in order of arrival, and the lock of all state that threads share.

Connections' threads and the upkeep's thread post events; the source's thread takes them inside `poll`. The lock,
`changed`, guards the state of `Queue`, `Queues` and `Commits` too. While it is held, only RemotingClient's locks are
taken: requests are sent without it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.log import Log
    from holdfast.adapters.rocketmq.remoting import PullAnswer
    from holdfast.errors import SourceError
    from holdfast.plugin.ports import CommitFate
    from holdfast.records import Partition


class Moved(NamedTuple):
    """A broker's answer by which the group must read on at another offset."""

    queue: Partition
    #: The offset of the pull.
    asked: int
    answer: PullAnswer

    @property
    def is_reset(self) -> bool:
        """See `PullAnswer.is_reset`."""
        return self.answer.is_reset(self.asked)


class AnotherLog(NamedTuple):
    """A queue whose log is not, or not surely, the one that was read before."""

    queue: Partition
    log: Log


class Proved(NamedTuple):
    """A queue that may be read: its log is the one that was read before. Its mark may be new."""

    queue: Partition


class ResetByNotice(NamedTuple):
    """A reset of one queue, from a broker that leaves resets to the members."""

    queue: Partition
    offset: int


class CommitAnswered(NamedTuple):
    """The fate of a commit."""

    queue: Partition
    offset: int
    fate: CommitFate


class Overwritten(NamedTuple):
    """A broker has this offset (-1: none) for the group, although it has acknowledged another one."""

    queue: Partition
    offset: int


class Trouble(NamedTuple):
    """A queue that cannot be read now."""

    queue: Partition
    error: SourceError


class Alarm(NamedTuple):
    """An error about the whole group."""

    error: SourceError


Event = Moved | AnotherLog | Proved | ResetByNotice | CommitAnswered | Overwritten | Trouble | Alarm


class Inbox:
    """The events that the source has not taken yet. Any thread."""

    def __init__(self) -> None:
        #: The lock of the shared state; notified when the source has something to do.
        self.changed = threading.Condition()
        self._events: deque[Event] = deque()

    def __bool__(self) -> bool:
        """Whether an event waits."""
        return bool(self._events)

    def post(self, event: Event) -> None:
        """Add an event, and wake the source."""
        with self.changed:
            self._events.append(event)
            self.changed.notify_all()

    def wake(self) -> None:
        """Wake the source: something changed that is not an event."""
        with self.changed:
            self.changed.notify_all()

    def take(self) -> Event | None:
        """Take the oldest event; None: there is none."""
        return self._events.popleft() if self._events else None
