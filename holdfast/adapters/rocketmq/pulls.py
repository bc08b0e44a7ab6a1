"""Which pulls of one queue are under way, and their answers in the log's order. Pure."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.rocketmq.remoting import PullAnswer

#: Pulls of a queue at once. A broker gives 32 messages a pull, whatever is asked for: with one at a time a queue stands
#: still for as long as it takes this process to come to the answer.
_AT_ONCE = 3


class Pulls:
    """The next pulls begin before the last is answered, where the last answers had the same number of offsets and the
    log goes on for long enough: then it is known where. An answer that ends elsewhere makes void what was asked beyond.

    What is under way belongs to a *turn*: what is answered to an earlier one does not count.
    """

    __slots__ = ("_answered", "_asked", "_got", "_stride", "end", "next", "turn")

    def __init__(self, offset: int | None) -> None:
        #: Where the next answer in order begins. None: not known, nothing is pulled.
        self.next = offset
        self.turn = 0
        #: The end of the log as the last answer told it.
        self.end: int | None = None
        self._asked: deque[int] = deque()
        self._answered: dict[int, PullAnswer] = {}
        #: How many offsets the last answer had, and how many the next is expected to have; 0: nobody knows.
        self._got = self._stride = 0

    @property
    def under_way(self) -> int:
        """How many answers are awaited."""
        return len(self._asked)

    def begin(self, room: int) -> int | None:
        """Where to pull now, if anywhere: that pull is under way then.

        Args:
            room: for how many messages. The first pull needs some; one ahead, as much as all of them may bring.
        """
        at = self._where(room)
        if at is not None:
            self._asked.append(at)
        return at

    def restart(self, offset: int | None) -> None:
        """Go on from there; whatever is under way is void."""
        self.turn += 1
        self._asked.clear()
        self._answered.clear()
        self.next, self._got, self._stride = offset, 0, 0

    def answered(self, asked: int, answer: PullAnswer) -> Iterator[tuple[int, PullAnswer]]:
        """Where they began, and the answers that are due by now. A restart ends it."""
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
