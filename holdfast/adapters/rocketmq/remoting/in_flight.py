"""InFlight: requests without an answer, by their number (opaque), until they time out."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from holdfast.adapters.rocketmq.remoting.frame import Command
    from holdfast.errors import SourceError


class Request(NamedTuple):
    """A request; `what` describes it in errors."""

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
        #: Its frame, while it waits for a connection.
        self.unsent = b""


class InFlight:
    """The requests under way at one server. The owner's lock guards them; times are by the owner's clock."""

    def __init__(self) -> None:
        self._asked: dict[int, Asked] = {}
        #: The earliest timeout of all, or an earlier time.
        self.look_at = float("inf")
        #: Bytes of frames that wait for a connection.
        self.unsent_bytes = 0

    def __len__(self) -> int:
        return len(self._asked)

    def add(self, opaque: int, asked: Asked) -> bool:
        """Add a request. Returns whether it times out before all others, so that the thread must wake earlier."""
        self._asked[opaque] = asked
        sooner = asked.until < self.look_at
        if sooner:
            self.look_at = asked.until
        return sooner

    def hold(self, asked: Asked, frame: bytes) -> None:
        """Keep a request's frame until there is a connection."""
        asked.unsent = frame
        self.unsent_bytes += len(frame)

    def unsent(self) -> bytes:
        """Take the frames that waited for a connection, in order. They count as sent now."""
        frames = [asked.unsent for asked in self._asked.values() if asked.unsent]
        for asked in self._asked.values():
            asked.unsent = b""
        self.unsent_bytes = 0
        return b"".join(frames)

    def take(self, opaque: int) -> Asked | None:
        """Take the request of an answer; None: it has timed out."""
        return self._asked.pop(opaque, None)

    def take_over(self, now: float) -> list[Asked]:
        """Take the requests that have timed out. Unsent ones will never be sent: a commit must not happen late."""
        over = [opaque for opaque, asked in self._asked.items() if asked.until <= now]
        ended = [self._asked.pop(opaque) for opaque in over]
        self.unsent_bytes -= sum(len(asked.unsent) for asked in ended)
        self.look_at = min((asked.until for asked in self._asked.values()), default=float("inf"))
        return ended

    def take_sent(self) -> list[Asked]:
        """Take the requests that were sent on a connection that broke. Later requests wait for the next connection."""
        ended = [asked for asked in self._asked.values() if not asked.unsent]
        self._asked = {opaque: asked for opaque, asked in self._asked.items() if asked.unsent}
        self.look_at = min((asked.until for asked in self._asked.values()), default=float("inf"))
        return ended

    def take_all(self) -> list[Asked]:
        """Take all requests."""
        ended, self._asked = list(self._asked.values()), {}
        self.look_at, self.unsent_bytes = float("inf"), 0
        return ended
