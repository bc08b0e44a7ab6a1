"""Log: detects that a queue's log is another one than before. Pure.

A topic that was deleted and created again has the old name, and its offsets begin anew; the same happens if a broker's
store was emptied. Positions in the old log must not count for the new one.

No field of a queue identifies its log. Therefore a *mark* is kept for each queue: the offset of a message that is done,
and the time at which the broker stored it, which never changes and which no message of another log shares. The
coordinator stores marks beside the group, where they outlive its members. A *probe*, a pull at the mark, shows whether
the log is the same. It is made before a queue is read from above its beginning, after trouble with its broker, and
before a newer mark replaces the last one.

| message at the mark | log |
|---|---|
| the message with the same store time | the same |
| a message with another store time; or the master's log ends before the mark | another |
| none (expired, compacted), or no mark is stored | the same, if the broker has an offset of the group, which is
  deleted with the topic; else it is not known |

A log that is another one, or not known, is read from its beginning; only a master's answer counts. If the whole log
lies at or above the offset that is to be read, nothing can be skipped, and any log is accepted.

If a slave that has less than its master becomes the master, it has the mark too, but other messages behind it.
Therefore the reader of a queue also remembers its newest message, in memory, and checks that one after trouble with the
broker. If it is another message, the queue is read again from behind the mark.

A mark is replaced only after the last one was found unchanged: a mark taken from a new log would confirm that log. The
pull takes all tags. If its answer is a reset, which a broker sends once, it is passed on.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from holdfast.adapters.rocketmq.remoting import PullStatus
from holdfast.adapters.rocketmq.remoting.decoding import first_stored, last_stored
from holdfast.errors import SourceError
from holdfast.plugin.retrying.retry import BACKOFF
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from holdfast.adapters.rocketmq.remoting import PullAnswer

#: The wait before the next try, after an inconclusive answer (a slave that is behind) or without the store.
AGAIN_S: Final = 0.5


class Mark(NamedTuple):
    """A message by which a log is recognised."""

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


class Stage(Enum):
    """The state of knowledge about a queue's log."""

    UNKNOWN = "unknown"  #: the stored mark is not read yet
    DOUBTED = "doubted"  #: a probe must decide; nothing is read until then
    PROVED = "proved"  #: the same log: it may be read
    OTHER = "other"  #: another log: the source must begin anew


class Probe(NamedTuple):
    """A pull of one message, which shows whether the log is the same."""

    offset: int
    #: The message that was there before; None: not known.
    mark: Mark | None
    #: The queue is not read before the answer. Otherwise the answer only lets a newer mark replace this one.
    decides: bool


class Log:
    """The log of one queue, from the offset at which its reading begins. The inbox' lock guards it."""

    __slots__ = (
        "_ask_at",
        "_asking",
        "_times",
        "begins",
        "candidate",
        "done",
        "found",
        "mark",
        "noted",
        "orphan",
        "stage",
        "tail",
    )

    def __init__(self, begins: int, *, orphan: bool = False, before: Log | None = None) -> None:
        """Args:
        begins: the offset from which it is read. All records below count as done.
        orphan: the broker has no offset of the group.
        before: the log of this queue until now, after a seek: its mark is known without the store.
        """
        self.begins, self.orphan = begins, orphan
        #: A queue that is read from offset 0 skips nothing, so its log needs no check.
        self.stage = Stage.UNKNOWN if begins else Stage.PROVED
        self.mark: Mark | None = None
        #: The mark that the coordinator has stored.
        self.noted: Mark | None = None
        if begins and before is not None and before.mark is not None:
            self.mark, self.noted, self.stage = before.mark, before.noted, Stage.DOUBTED
        #: The newest message that this member has read. If the master is replaced by a slave with less, its message at
        #: this offset differs, once one is written there, while the one at the mark is the same.
        self.tail: Mark | None = None
        #: A message read since: the next mark, once it is done and the log is found unchanged.
        self.candidate: Mark | None = None
        #: All records below are done.
        self.done = begins
        #: Why it is another log. BEYOND is checked at the master: a slave may only be behind.
        self.found = Found.SAME
        self._asking = False
        self._ask_at = 0.0
        self._times = 0

    @property
    def proved(self) -> bool:
        """Whether the queue may be read."""
        return self.stage is Stage.PROVED

    @property
    def open(self) -> bool:
        """Whether a probe will decide."""
        return self.stage in (Stage.UNKNOWN, Stage.DOUBTED)

    @property
    def newest(self) -> Mark | None:
        """The newest message by which the log can be recognised."""
        return self.tail or self.mark

    @property
    def is_due(self) -> bool:
        """Whether the candidate is done and may become the mark."""
        return self.candidate is not None and self.done > self.candidate.offset

    @property
    def to_note(self) -> Mark | None:
        """The mark, if the coordinator has not stored it yet."""
        return None if self.stage is Stage.OTHER or self.mark == self.noted else self.mark

    @property
    def why(self) -> str:
        """Why the queue is read anew, for the log."""
        if self.newest is not None and self.found is Found.OTHER:
            return f"it is not the log that was read before: message {self.newest.offset} is another"
        if self.newest is not None and self.found is Found.BEYOND:
            return f"it is not the log that was read before: it ends before message {self.newest.offset}"
        return "its broker has no offset of the group, and nothing tells whether it is the log that was read before"

    # ---- what happens to the queue
    def recall(self, text: str | None) -> None:
        """Take the mark that the coordinator has stored."""
        self.mark = self.noted = Mark.of_text(text)
        self.stage = Stage.DOUBTED

    def came(self, body: bytes) -> None:
        """Note the first and last message of a pull's answer."""
        self.tail = Mark.last_of(body) or self.tail
        if self.candidate is None:
            self.candidate = Mark.first_of(body)

    def done_below(self, offset: int) -> bool:
        """Note that all records below are done. Returns whether there is a first mark, which should be stored soon."""
        self.done = max(self.done, offset)
        return self.mark is None and self.is_due

    def doubt(self) -> None:
        """Doubt the log, after trouble with its broker, which may come back with another store."""
        if self.stage is Stage.PROVED and self.newest is not None:
            self.stage = Stage.DOUBTED
            self.begins = max(self.begins, self.newest.offset + 1)  # it was read up to there since

    def look_again(self) -> None:
        """Probe the log later once more: the source could not decide how to begin it anew."""
        self.stage, self._ask_at = Stage.DOUBTED, SYSTEM_CLOCK.now() + AGAIN_S

    # ---- probes
    def proof(self) -> Probe | None:
        """The probe that decides whether the queue may be read; None: not now."""
        if self.stage is not Stage.DOUBTED or self._asking or SYSTEM_CLOCK.now() < self._ask_at:
            return None
        newest = self.newest
        self._asking = True
        return Probe(self.begins - 1 if newest is None else newest.offset, newest, decides=True)

    def renewal(self) -> Probe | None:
        """The probe after which the candidate becomes the mark; None: there is none, or it is the first mark already.
        The first mark needs no probe, also while in doubt: the candidate is from the log that was read."""
        if not self.is_due:
            return None
        if self.mark is None:
            self.mark, self.candidate = self.candidate, None
        elif self.stage is Stage.PROVED and not self._asking:
            self._asking = True
            return Probe(self.mark.offset, self.mark, decides=False)
        return None

    def answered(self, probe: Probe, answer: PullAnswer | SourceError) -> Found | None:
        """Take the answer to a probe. Returns the verdict; None: there was an error."""
        self._asking = False
        if isinstance(answer, SourceError):
            self._times += 1
            self._ask_at = SYSTEM_CLOCK.now() + (BACKOFF.wait_s(self._times, answer) or AGAIN_S)
            return None
        self._times = 0
        found = judge(probe.offset, probe.mark, answer)
        if probe.decides:
            self._decide(probe, found, answer)
        elif found in (Found.OTHER, Found.BEYOND):
            self.stage, self.found = Stage.OTHER, found
        elif found in (Found.SAME, Found.GONE) and self.is_due and self.stage is Stage.PROVED:
            # The messages read since are of the same log. A doubt that arose since the probe remains.
            self.mark, self.candidate = self.candidate, None
        return found

    def _decide(self, probe: Probe, found: Found, answer: PullAnswer) -> None:
        known = probe.mark is not None
        if found is Found.SAME and known:
            self.stage = Stage.PROVED
        elif found is Found.RESET:
            self._ask_at = SYSTEM_CLOCK.now() + AGAIN_S
        elif answer.min_offset >= self.begins:
            self.stage, self.mark, self.tail = Stage.PROVED, None, None
        elif found is Found.LATER:
            self._ask_at = SYSTEM_CLOCK.now() + AGAIN_S
        elif found is Found.BEYOND and not known:
            self.stage = Stage.PROVED  # the log ends before the offset to read, and the pull there will be answered so
        elif found in (Found.OTHER, Found.BEYOND) or self.orphan:
            self.stage, self.found = Stage.OTHER, found
        else:
            self.stage = Stage.PROVED
            self.mark = Mark.first_of(answer.body) if found is Found.SAME else None
