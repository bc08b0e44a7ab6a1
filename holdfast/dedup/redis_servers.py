"""Which server answers a session, and how far back one that took another's place may lack what was acknowledged.

A copy has the beginning of what its original did, in order. So the deadline that it knows of a session tells the last
renewal that it has heard of, and it has all that was acknowledged before that one was sent.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Renewals, of which three and more fit into a lease: a copy that knows only older ones has the session as dead.
_KEPT = 100


class Answer(NamedTuple):
    """A reply of renew.lua or begin.lua."""

    server: bytes
    knew: int  #: the deadline that it knew
    deadline: int

    @classmethod
    def read(cls, reply: bytes) -> Answer:
        """From a reply."""
        server, knew, deadline = reply.split()
        return cls(server, int(knew), int(deadline))


class Servers:
    """Of one session, by shard. One thread at a time."""

    def __init__(self) -> None:
        self._told: list[bytes] = []  # servers that have been told all
        self._answering: list[bytes] = []
        #: When renewals were sent, by the deadlines that they have set.
        self._sent: list[dict[int, float]] = []
        self._lacking: list[float] = []

    def begun(self, replies: Sequence[bytes], sent_at: float) -> None:
        """Note the answers to the first call, which was sent then."""
        answers = [Answer.read(reply) for reply in replies]
        self._sent = [{answer.deadline: sent_at} for answer in answers]
        self._answering = [answer.server for answer in answers]
        self.all_told()

    def renewed(self, replies: Sequence[bytes], sent_at: float) -> None:
        """Note the answers to a renewal that was sent then."""
        answers = [Answer.read(reply) for reply in replies]
        self._answering = [answer.server for answer in answers]
        for shard, answer in enumerate(answers):
            sent = self._sent[shard]
            if answer.server != self._told[shard]:
                # A renewal that had no answer lies behind the last one that had.
                last = max((deadline for deadline in sent if deadline <= answer.knew), default=None)
                since = -math.inf if last is None else sent[last]
                self._lacking[shard] = min(self._lacking[shard], since)
            sent.setdefault(answer.deadline, sent_at)
            if len(sent) > _KEPT:
                del sent[next(iter(sent))]

    @property
    def new(self) -> bool:
        """Whether one of them took the place of another, and has not been told all."""
        return self._answering != self._told

    @property
    def lack_since(self) -> float:
        """From when on one of them may lack what was acknowledged."""
        return min(self._lacking)

    def all_told(self) -> None:
        """Note that they know all."""
        self._told = self._answering
        self._lacking = [math.inf] * len(self._told)
