"""Which server answers a session, and since when a server that took another's place may lack acknowledged writes.

A replica has the writes of its primary from the beginning up to some point, in order. The session's deadline in it
therefore identifies the last renewal that it has, and it has all writes that were acknowledged before that renewal was
sent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Renewals that are kept. Three or more fit into a lease: a replica that has only older ones has the session as dead.
_KEPT = 100


class Answer(NamedTuple):
    """A reply of renew.lua or begin.lua."""

    server: bytes
    former: int  #: the session's deadline there before
    deadline: int

    @classmethod
    def read(cls, reply: bytes) -> Answer:
        """From a reply."""
        server, former, deadline = reply.split()
        return cls(server, int(former), int(deadline))


class Servers:
    """The servers that answer one session, by shard. One thread at a time."""

    def __init__(self) -> None:
        self._complete: list[bytes] = []  # servers that have all of the session's recent calls
        self._answering: list[bytes] = []
        #: Deadline that a renewal has set -> when that renewal was sent.
        self._sent: list[dict[int, float]] = []
        #: Since when each server may lack acknowledged writes; infinite = it lacks none.
        self._lacking: list[float] = []

    def begun(self, replies: Sequence[bytes], sent_at: float) -> None:
        """Note the answers to the first call. Args: sent_at: when it was sent."""
        answers = [Answer.read(reply) for reply in replies]
        self._sent = [{answer.deadline: sent_at} for answer in answers]
        self._answering = [answer.server for answer in answers]
        self.replayed()

    def renewed(self, replies: Sequence[bytes], sent_at: float) -> None:
        """Note the answers to a renewal. Args: sent_at: when it was sent."""
        answers = [Answer.read(reply) for reply in replies]
        self._answering = [answer.server for answer in answers]
        for shard, answer in enumerate(answers):
            sent = self._sent[shard]
            if answer.server != self._complete[shard]:
                # `former` may be of a renewal without an answer; then the last answered one before it counts.
                last = max((deadline for deadline in sent if deadline <= answer.former), default=None)
                since = -math.inf if last is None else sent[last]
                self._lacking[shard] = min(self._lacking[shard], since)
            sent.setdefault(answer.deadline, sent_at)
            if len(sent) > _KEPT:
                del sent[next(iter(sent))]

    @property
    def new(self) -> bool:
        """Whether a server took the place of another, and the session's recent calls have not been sent to it again."""
        return self._answering != self._complete

    @property
    def lack_since(self) -> float:
        """Since when one of them may lack acknowledged writes."""
        return min(self._lacking)

    def replayed(self) -> None:
        """Note that the recent calls have been sent to all of them."""
        self._complete = self._answering
        self._lacking = [math.inf] * len(self._complete)
