"""Marks: a message by which a log is recognised, and the verdict on a pull at that message. Pure. See logs.py."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple, Self

from holdfast.adapters.rocketmq.remoting import PullStatus
from holdfast.adapters.rocketmq.remoting.decoding import first_stored, last_stored

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting import PullAnswer


class Mark(NamedTuple):
    """One message of a log."""

    offset: int
    stored_ms: int

    @property
    def text(self) -> str:
        """The mark as the coordinator stores it."""
        return f"{self.offset}@{self.stored_ms}"

    @classmethod
    def of_text(cls, text: str | None) -> Self | None:
        """Read a stored mark; None: there is none, or it cannot be read."""
        offset, _, stored_ms = (text or "").partition("@")
        return cls(int(offset), int(stored_ms)) if offset.isdecimal() and stored_ms.isdecimal() else None

    @classmethod
    def first_of(cls, body: bytes) -> Self | None:
        """The first message of a pull's answer."""
        found = first_stored(body)
        return None if found is None else cls(*found)

    @classmethod
    def last_of(cls, body: bytes) -> Self | None:
        """The last message of a pull's answer."""
        found = last_stored(body)
        return None if found is None else cls(*found)


class Found(Enum):
    """The verdict on a pull at a mark."""

    SAME = "same"
    OTHER = "other"  #: another message has this offset
    BEYOND = "beyond"  #: the log of the server that answered ends before the mark
    GONE = "gone"  #: expired or compacted
    RESET = "reset"  #: the answer was the group's reset, which a broker sends once
    LATER = "later"  #: a slave that is behind has answered


def judge(at: int, mark: Mark | None, answer: PullAnswer) -> Found:
    """Judge the log by the answer to a pull at the mark's offset. Without a mark, any message counts as SAME."""
    status = answer.status
    if status is PullStatus.FOUND:
        first = Mark.first_of(answer.body)
        if first is None or first.offset > at:
            return Found.GONE
        return Found.SAME if mark is None or first.stored_ms == mark.stored_ms else Found.OTHER
    if status is PullStatus.NONE_MATCHED:
        return Found.GONE if answer.next_offset > at else Found.LATER
    if answer.is_reset(at):  # a broker sends it once, as the answer to the group's next pull, whatever its offset
        return Found.RESET
    return Found.GONE if status is PullStatus.MOVED and at < answer.min_offset else Found.BEYOND
