"""Requests that have no answer yet: found by their number, and looked after until their time is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.adapters.rocketmq.remoting.frame import Command
    from holdfast.errors import SourceError


class Request(NamedTuple):
    """A request; `what` names it for people."""

    code: int
    what: str
    fields: Mapping[str, str]
    body: bytes = b""


class Asked:
    """A request without an answer."""

    __slots__ = ("on_answer", "request", "since", "unsent", "until")

    def __init__(
        self, request: Request, since: float, until: float, on_answer: Callable[[Command | SourceError], None]
    ) -> None:
        self.request, self.since, self.until, self.on_answer = request, since, until, on_answer
        #: Its frame, while there is no connection that has it.
        self.unsent = b""


class InFlight:
    """The requests under way at one server. The owner's lock guards them; times are by the owner's clock."""

    def __init__(self) -> None:
        self._asked: dict[int, Asked] = {}
        #: None of them ends before.
        self.look_at = float("inf")
        #: What waits for a connection.
        self.unsent_bytes = 0

    def __len__(self) -> int:
        return len(self._asked)

    def add(self, opaque: int, asked: Asked) -> bool:
        """Whether it may end before all others, so that who waits has to look earlier."""
        self._asked[opaque] = asked
        sooner = asked.until < self.look_at
        if sooner:
            self.look_at = asked.until
        return sooner

    def hold(self, asked: Asked, frame: bytes) -> None:
        """Keep its frame until there is a connection."""
        asked.unsent = frame
        self.unsent_bytes += len(frame)

    def unsent(self) -> bytes:
        """The frames of all that waited for a connection, in their order; they count as sent now."""
        frames = [asked.unsent for asked in self._asked.values() if asked.unsent]
        for asked in self._asked.values():
            asked.unsent = b""
        self.unsent_bytes = 0
        return b"".join(frames)

    def take(self, opaque: int) -> Asked | None:
        """The one of that number, which has its answer; None = its time was over."""
        return self._asked.pop(opaque, None)

    def take_over(self, now: float) -> list[Asked]:
        """Take the requests whose time is over. One that was not sent will not be: a commit must not happen long
        after."""
        over = [opaque for opaque, asked in self._asked.items() if asked.until <= now]
        ended = [self._asked.pop(opaque) for opaque in over]
        self.unsent_bytes -= sum(len(asked.unsent) for asked in ended)
        self.look_at = min((asked.until for asked in self._asked.values()), default=float("inf"))
        return ended

    def take_sent(self) -> list[Asked]:
        """Take the requests that a connection had, which is no more. What was asked since then waits for the next
        one."""
        ended = [asked for asked in self._asked.values() if not asked.unsent]
        self._asked = {opaque: asked for opaque, asked in self._asked.items() if asked.unsent}
        self.look_at = min((asked.until for asked in self._asked.values()), default=float("inf"))
        return ended

    def take_all(self) -> list[Asked]:
        """All of them."""
        ended, self._asked = list(self._asked.values()), {}
        self.look_at, self.unsent_bytes = float("inf"), 0
        return ended
