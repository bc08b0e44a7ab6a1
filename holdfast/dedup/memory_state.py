"""The state of a MemoryClaims: sessions, positions and keys, in the words of claims.py's table of calls."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from holdfast.dedup.claims import NEVER
from holdfast.dedup.offset_set import OffsetSet
from holdfast.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.claims import ClaimKey, Since, Token
    from holdfast.runtime import Runtime
    from holdfast.timing import Clock

_T = TypeVar("_T")
#: Up to this many keys are kept without a sweep for those whose window has passed.
_FEW_KEYS = 1024


class Carry(Protocol):
    """Carries calls of one process to the store, and the replies back."""

    def __call__(self, request: Callable[[], _T], /) -> _T:
        """Have the store handle this request, once at most. Raises StoreError: no answer; it may have been applied, or
        may be applied later."""
        ...


def straight(request: Callable[[], _T], /) -> _T:
    """Carry nothing: the store is in this process."""
    return request()


@dataclass(slots=True, kw_only=True)
class StoredSession:
    """Dead when absent or when the deadline has passed."""

    deadline: float
    generation: int = 0


@dataclass(slots=True, kw_only=True)
class StoredPosition:
    """One partition. An offset is never both done and running."""

    epoch: int = 0
    born_ms: int = 0
    owner: str | None = None
    watermark: int = 0
    above: OffsetSet = field(default_factory=OffsetSet)
    running: dict[int, tuple[str, int]] = field(default_factory=dict)
    again: int = 0
    begun: bool = False
    since: Since = NEVER

    def is_done(self, offset: int) -> bool:
        """Below the watermark, or marked above it."""
        return offset < self.watermark or offset in self.above

    @property
    def known_up_to(self) -> int:
        """The end of all that was ever done or running."""
        return max(self.again, self.watermark, self.above.end, max(self.running, default=-1) + 1)

    def start_over(self, since: Since, again: int) -> None:
        """Apply a drop: forget what is done and running."""
        self.again, self.since = max(self.known_up_to, again), since
        self.watermark, self.begun, self.above = 0, False, OffsetSet()
        self.running.clear()

    def tidy(self) -> None:
        """Remove offsets below the watermark, and done offsets from `running`. Called after each change."""
        self.above.remove_below(self.watermark)
        self.running = {offset: holder for offset, holder in self.running.items() if not self.is_done(offset)}


class Claimed(NamedTuple):
    """A key in the hands of one record of one session."""

    session: str
    token: Token


class Finished(NamedTuple):
    """A key that is done until `until`, by the store's clock."""

    until: float
    result: str = ""


class Answering:
    """Takes the place of a server, which a test may make silent. `lock` is held around each call of a session.

    Args:
        runtime: the machine; its clock is the server's.
        silence: the text of the error where no reply is given.
    """

    def __init__(self, runtime: Runtime, silence: str) -> None:
        self.clock: Clock = runtime
        self.lock = runtime.lock()
        self.hears = True  #: requests arrive
        self.speaks = True  #: replies arrive
        self._silence = silence

    def handle(self, request: Callable[[], _T]) -> _T:
        """Answer a call that has arrived. Raises StoreUnavailable: no reply is given."""
        with self.lock:
            if self.hears:
                reply = request()
                if self.speaks:
                    return reply
        raise StoreUnavailable(self._silence)

    def ask(self, carry: Carry, request: Callable[[], _T], unanswered: Callable[[], None]) -> _T:
        """Carry a call to the store, and its reply back. Raises StoreUnavailable.

        Args:
            carry: carries both.
            request: the call.
            unanswered: called if there is no answer, for any reason, even KeyboardInterrupt: the request may be on its
                way.
        """
        answered = False
        try:
            reply = carry(lambda: self.handle(request))
            answered = True
        finally:
            if not answered:
                unanswered()
        return reply

    def answer(self) -> None:
        """Raise StoreUnavailable where no replies are given."""
        if not (self.hears and self.speaks):
            raise StoreUnavailable(self._silence)


class MemoryState(Answering):
    """Sessions, positions and keys, with the clock that judges them."""

    def __init__(self, window_s: float, runtime: Runtime) -> None:
        super().__init__(runtime, "no answer: a test has called go_silent() on this MemoryClaims")
        self.wall_ms = runtime.wall_ms
        self.store_id = runtime.token(8)
        self.window_s = window_s
        self.sessions: dict[str, StoredSession] = {}
        self.positions: dict[str, StoredPosition] = {}
        self.keys: dict[ClaimKey, Claimed | Finished] = {}
        self._sweep_at = _FEW_KEYS
        self.fence = 0  #: the last one given

    def alive(self, session_id: str) -> bool:
        """Whether the session's deadline lies ahead."""
        session = self.sessions.get(session_id)
        return session is not None and session.deadline > self.clock.now()

    def kill(self, session_id: str) -> None:
        """End the session's lease; its call generation stays known."""
        if session_id in self.sessions:
            self.sessions[session_id].deadline = -math.inf

    def admit(self, session_id: str, generation: int) -> bool:
        """The barrier against late requests: False = a call with a higher generation has arrived before."""
        session = self.sessions.get(session_id)
        if session is None:
            return True
        if generation < session.generation:
            return False
        session.generation = generation
        return True

    def position(self, partition: str) -> StoredPosition:
        """The partition's position; empty if no session has acquired it."""
        return self.positions.get(partition) or StoredPosition()

    def finish(self, key: ClaimKey, result: str) -> None:
        """Note the key as done, for the window from now on. Removes keys whose window has passed, many at a time."""
        self.keys[key] = Finished(self.clock.now() + self.window_s, result)
        if len(self.keys) > self._sweep_at:
            for each in [each for each in self.keys if self.key(each) is None]:
                del self.keys[each]
            self._sweep_at = max(2 * len(self.keys), _FEW_KEYS)

    def key(self, key: ClaimKey) -> Claimed | Finished | None:
        """The claim of the key, or its end; None = there is neither, or its window has passed."""
        held = self.keys.get(key)
        return None if isinstance(held, Finished) and held.until <= self.clock.now() else held
