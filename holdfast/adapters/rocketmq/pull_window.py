"""Pull window: which pull of a queue comes next, their answers in the log's order, and the room for what they bring.

Pure: `queue.py` sends the pulls.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.rocketmq.remoting import PullAnswer
    from holdfast.adapters.rocketmq.settings import PullSettings

MIB: Final = 1024 * 1024

#: Pulls of a queue at once. A broker returns 32 messages in a pull, even if more are requested: with one pull at a time
#: a queue would stand still until this process has dealt with the answer.
_AT_ONCE = 3


class PullWindow:
    """Starts pulls ahead of answers. If the last two answers had the same number of offsets and the log is long enough,
    the offsets of the next pulls are predicted. If an answer ends elsewhere, the pulls beyond it are dropped.

    Pulls under way belong to a *turn*, a number; answers to pulls of an earlier turn are ignored.
    """

    __slots__ = ("_answered", "_asked", "_got", "_stride", "end", "next", "turn")

    def __init__(self, offset: int | None) -> None:
        #: The offset at which the next answer in order begins. None: not known, and nothing is pulled.
        self.next = offset
        self.turn = 0
        #: The end of the log in the last answer.
        self.end: int | None = None
        self._asked: deque[int] = deque()
        self._answered: dict[int, PullAnswer] = {}
        #: The number of offsets in the last answer, and the number expected in the next; 0: not known.
        self._got = self._stride = 0

    @property
    def under_way(self) -> int:
        """How many pulls are not answered yet."""
        return len(self._asked)

    def begin(self, room: int) -> int | None:
        """The offset of the next pull, which is under way from now on; None: do not pull now.

        Args:
            room: how many messages may come. A single pull needs room for one; a pull ahead needs room for all that the
                pulls under way may bring.
        """
        at = self._where(room)
        if at is not None:
            self._asked.append(at)
        return at

    def restart(self, offset: int | None) -> None:
        """Continue at this offset. Answers to pulls under way will be ignored."""
        self.turn += 1
        self._asked.clear()
        self._answered.clear()
        self.next, self._got, self._stride = offset, 0, 0

    def answered(self, asked: int, answer: PullAnswer) -> Iterator[tuple[int, PullAnswer]]:
        """Take an answer. Yields (offset of the pull, answer) for all answers that are next in order; a restart ends
        the iteration."""
        self._answered[asked] = answer
        while self._asked and self._asked[0] in self._answered:
            at = self._asked.popleft()
            due = self._answered.pop(at)
            got = due.next_offset - at
            self._stride = got if got == self._got else 0
            self._got, self.next, self.end = got, due.next_offset, due.max_offset
            if self._asked and self._asked[0] != self.next:
                self.restart(self.next)
            yield at, due

    def _where(self, room: int) -> int | None:
        under_way, stride = len(self._asked), self._stride
        if not under_way:
            return self.next if room > 0 else None
        if not stride or under_way == _AT_ONCE or (under_way + 1) * stride > room or self.end is None:
            return None
        at = self._asked[-1] + stride
        return at if at + stride <= self.end else None


class Room:
    """The bounds of all queues' messages, in records and bytes; `Queue` has those of one queue, which leave room for
    the others. Pulls under way count as much as the last answer had: at the end of a log, where pulls wait, next to
    nothing. The first pull of a queue counts as a full answer, and therefore does not wait at the broker."""

    __slots__ = ("_count_to_come", "_most", "_most_size", "_size_to_come", "count", "kept", "size")

    def __init__(self, settings: PullSettings) -> None:
        self._most = settings.pull_threshold_for_all
        self._most_size = int(settings.pull_threshold_size_for_all * MIB)
        #: Messages that have arrived, and their bytes.
        self.count = self.size = 0
        #: The same for pulls under way.
        self._count_to_come = self._size_to_come = 0
        #: The part of `count` that belongs to paused queues.
        self.kept = 0

    def left(self, own: int = 0) -> int:
        """The number of messages for which there is room, with the `own` ones that are reserved for the caller. Waiting
        messages exceed the limit by one pull at most."""
        if self.size + self._size_to_come >= self._most_size:
            return 0
        return self._most - self.count - self._count_to_come + own

    def reserve(self, count: int, size: int) -> None:
        """Reserve room for pulls under way, or (less than 0) give it back."""
        self._count_to_come += count
        self._size_to_come += size
