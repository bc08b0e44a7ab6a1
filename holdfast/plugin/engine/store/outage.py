"""Outage: tracks whether the store answers, and when to ask again."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.errors import StoreUnavailable
from holdfast.plugin.events import StoreDown, StoreUp
from holdfast.plugin.retrying.retry import BACKOFF

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.plugin.events import Event
    from holdfast.runtime import Runtime

_log = logging.getLogger("holdfast")

#: One line at first, then one in so long: a log that is full of them hides everything else.
_LOG_EACH_S = 30.0


class Outage:
    """Turns unanswered calls into a state with backoff, tells its beginning and its end, and says that it lasts."""

    def __init__(self, runtime: Runtime, tell: Callable[[Event], None]) -> None:
        self._runtime, self._tell = runtime, tell
        self._since: float | None = None
        self._attempts = 0
        self._again = 0.0
        self._logged_at = 0.0
        #: How many outages have ended.
        self.ended = 0

    @property
    def down(self) -> bool:
        """Whether the last call got no answer."""
        return self._since is not None

    @property
    def may_ask(self) -> bool:
        """Whether it is time to ask."""
        return self._since is None or self._runtime.now() >= self._again

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Around calls to the store: no answer ends the block, is noted and goes no further.

        The caller's books must be such that the whole block may be done again.
        """
        try:
            yield
        except StoreUnavailable as error:
            self._note(error)

    def unanswered(self, error: StoreUnavailable) -> None:
        """A handler's transaction got no answer. Of many at a time the first counts."""
        if self.may_ask:
            self._note(error)

    def _note(self, error: StoreUnavailable) -> None:
        now = self._runtime.now()
        self._attempts += 1
        self._again = now + (BACKOFF.wait_s(self._attempts, error, self._runtime.random) or 0.0)
        if self._since is None:
            self._since = self._logged_at = now
            self._tell(StoreDown(error=str(error), mode="pause"))
        elif now - self._logged_at >= _LOG_EACH_S:
            self._logged_at = now
            _log.error(
                "the store is down for %.0f s: nothing new starts and nothing is lost until it answers; %s",
                now - self._since,
                error,
            )

    def answered(self) -> None:
        """A call got its answer."""
        if self._since is not None:
            down_s = self._runtime.now() - self._since
            self._since, self._attempts = None, 0
            self.ended += 1
            self._tell(StoreUp(down_s=down_s))
