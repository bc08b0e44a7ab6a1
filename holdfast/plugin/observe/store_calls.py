"""StoreCalls: counts and times the calls of a session to the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast.errors import StoreUnavailable
from holdfast.plugin.observe.snapshot import CallFigures

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.claims import ClaimSession
    from holdfast.timing import Clock

#: The calls that go to the store. Renewals by the session's own thread are not counted.
_CALLS = (
    "renew",
    "acquire",
    "mark",
    "let_go",
    "poll",
    "release",
    "drop",
    "claim",
    "finish",
    "exchange",
    "results",
    "unclaim",
)


class StoreCalls:
    """Figures for each kind of call. Written by the thread that runs the app."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._figures: dict[str, list[float]] = {}
        #: Calls that were answered.
        self.answers = 0

    def figures(self) -> dict[str, CallFigures]:
        """The current figures."""
        return {
            call: CallFigures(calls=int(calls), seconds=seconds, failures=int(failures))
            for call, (calls, seconds, failures) in self._figures.items()
        }

    def around(self, session: ClaimSession) -> ClaimSession:
        """Wrap a session so that its calls are counted."""
        return cast("ClaimSession", _Metered(session, self))

    def timed(self, call: str, ask: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap a call so that it is counted."""
        figures, now = self._figures, self._clock.now

        def counted(*args: Any) -> Any:  # noqa: ANN401 - whatever the call takes and replies
            began, failed = now(), 0
            try:
                answer = ask(*args)
            except StoreUnavailable:
                failed = 1
                raise
            else:
                self.answers += 1
                return answer
            finally:
                figure = figures.setdefault(call, [0, 0.0, 0])
                figure[0] += 1
                figure[1] += now() - began
                figure[2] += failed

        return counted


class _Metered:
    """A session whose calls to the store are counted. `live`, which each start of a handler reads, is the session's own
    method."""

    def __init__(self, session: ClaimSession, calls: StoreCalls) -> None:
        self._of = session
        self.id, self.live = session.id, session.live
        for call in _CALLS:
            setattr(self, call, calls.timed(call, getattr(session, call)))

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - the rest is the session's
        return getattr(self._of, name)
