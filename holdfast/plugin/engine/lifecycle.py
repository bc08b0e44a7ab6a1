"""Lifecycle: starts and ends an app, in the engine's own loop or in a user's."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import SourceError, StoreError, StoreUnavailable, UnknownTopic
from holdfast.plugin.engine.resources import Resources
from holdfast.plugin.ports import ReachableSource
from holdfast.plugin.retrying.keeping import KeepsRecords
from holdfast.runtime import check_threads
from holdfast.timing import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from holdfast.plugin.engine.family import Family
    from holdfast.plugin.engine.parts import Parts
    from holdfast.plugin.engine.snapshots import Snapshots
    from holdfast.plugin.engine.stopping import Stopping
    from holdfast.plugin.settings import Settings
    from holdfast.timing import Clock

_log = logging.getLogger("holdfast")

_STARTUP_AGAIN_S = 0.5
#: Between two looks at what still runs.
_LINGER_S = 0.005
_CLOSE_S = 5.0


def longest_start_s(settings: Settings) -> float:
    """Return how long a start may take: that long for the store and the dead letters, and again for the group."""
    return 2 * settings.startup_timeout_s


class Start(Deadline):
    """How long a start may take. Over as soon as the app is asked to stop: all waits of a start look at it."""

    __slots__ = ("_stopping",)

    def __init__(self, seconds: float, clock: Clock, stopping: Stopping) -> None:
        super().__init__(seconds, clock)
        self._stopping = stopping

    def left_s(self, at_most: float | None = None) -> float:
        """Nothing, once it was asked to stop."""
        return 0.0 if self._stopping.asked else super().left_s(at_most)

    @property
    def passed(self) -> bool:
        """Also if it was asked to stop."""
        return self._stopping.asked or super().passed


class Turning(Protocol):
    """The loop of which this is the beginning and the end."""

    def work(self) -> None:
        """A turn without the client."""
        ...

    @property
    def unfinished(self) -> bool:
        """Whether handlers run, results wait to be looked at or acknowledged, or something is owed to the store."""
        ...

    @property
    def with_handlers(self) -> int:
        """Records that have started and not ended."""
        ...


class Lifecycle:
    """One thread, the one that runs the app."""

    def __init__(
        self,
        parts: Parts,
        family: Family,
        snapshots: Snapshots,
        loop: Turning,
        resources: Resources | None = None,
    ) -> None:
        self._parts, self._family, self._snapshots, self._loop = parts, family, snapshots, loop
        self._resources = resources or Resources()

    def open(self, topics: Collection[str]) -> bool:
        """Store first, then brokers, dead letters, the user's resources, then the group: who joins must be able to
        work. Raises what fails.

        Returns: False = it was asked to stop before it had joined.
        """
        check_threads()
        parts = self._parts
        self._snapshots.started()
        deadline = Start(parts.settings.startup_timeout_s, parts.runtime, parts.stopping)
        try:
            self._reach_store(deadline)
            self._reach_brokers(topics, deadline)
            for topic, following in parts.routes.retry_topics.following.items():
                _log.info("failed records of %s go to %s", topic, following)
            if not self._resources.open(parts.workers.coroutines, parts.runtime, parts.stopping):
                return False
            deadline = Start(parts.settings.startup_timeout_s, parts.runtime, parts.stopping)  # theirs is their own
            parts.recorder.open()
            self._family.open(topics, deadline)
        except (StoreError, SourceError) as error:
            if not parts.stopping.asked:
                raise
            _log.info("stopped before the start was over; it was waiting: %s", error)
            return False
        parts.recorder.started(self._family)
        self._snapshots.running()
        return True

    def leave(self) -> None:
        """Drain and leave the group, then stay for handlers that outlived the drain."""
        parts, loop = self._parts, self._loop
        self._snapshots.stopping(parts.stopping.why)
        self._family.leave(Deadline(parts.settings.drain_s, parts.runtime))
        linger = Deadline(parts.settings.linger_timeout_s, parts.runtime)
        while loop.unfinished and not linger.passed and not parts.stopping.hurry:
            parts.workers.wake.wait(min(_LINGER_S, linger.left_s()))
            loop.work()
            self._family.tend()

    def close(self) -> None:
        """End the user's resources, the client, the letters and the session, in whatever state they are. When all is
        ended, raises what a resource has raised that is no Exception."""
        parts = self._parts
        parts.letter_hooks.close(Deadline(_CLOSE_S, parts.runtime), lambda: parts.stopping.hurry)
        if (failed := self._resources.close()) is not None:
            parts.stopping.fail(failed)
        parts.workers.stop()
        self._end(self._family.close)
        if (letters := parts.letters) is not None:
            self._end(lambda: letters.close(Deadline(_CLOSE_S, parts.runtime)))
        left = self._loop.unfinished or parts.hung.stuck > 0
        in_hand = self._loop.with_handlers if left else 0
        self._end_session(left)
        error = parts.stopping.error
        parts.recorder.stopped(clean=error is None and not left, in_hand=in_hand, error=error)
        self._snapshots.stopped(in_hand)
        if failed is not None and not isinstance(failed, Exception):
            raise failed

    def _end(self, close: Callable[[], None]) -> None:
        """Close something. If it fails, that hides no error, and keeps nothing open: least of all the session, which
        would live on for as long as the process does."""
        try:
            close()
        except Exception as error:  # noqa: BLE001 - a client's, or the application's
            self._parts.stopping.fail(error)

    def _reach_store(self, deadline: Deadline) -> None:
        sessions, told = self._parts.sessions, False
        while sessions.session is None:
            try:
                sessions.store.connect()
                sessions.begin()
            except StoreUnavailable as error:
                if deadline.passed:
                    raise
                if not told:
                    _log.warning("%s; trying for another %.0f s", error, deadline.left_s())
                    told = True
                self._parts.runtime.sleep(deadline.left_s(_STARTUP_AGAIN_S))

    def _reach_brokers(self, topics: Collection[str], deadline: Deadline) -> None:
        """The topics that are missing there are told together, whatever they are for. Retry topics are looked at as
        what is written to."""
        read = [topic for topic in topics if topic not in self._parts.routes.targets]
        missing = [
            each
            for each in (
                _missing(lambda: self._reach(read, deadline)),
                _missing(lambda: self._check_letters(deadline)),
            )
            if each is not None
        ]
        if len(missing) > 1:
            raise UnknownTopic("; ".join(map(str, missing)))
        if missing:
            raise missing[0]

    def _reach(self, topics: Collection[str], deadline: Deadline) -> None:
        source = self._family.source
        if isinstance(source, ReachableSource):
            source.reach(topics, deadline)

    def _check_letters(self, deadline: Deadline) -> None:
        routes, letters = self._parts.routes, self._parts.letters
        if routes.targets and letters is not None:
            letters.check(routes.targets, deadline)
            if isinstance(letters, KeepsRecords):
                letters.check_keeping(routes.delays, routes.origins, deadline)

    def _end_session(self, left: bool) -> None:
        parts, session = self._parts, self._parts.sessions.session
        if session is None:
            return
        if left:
            # Ended now, the session would count as dead while its handlers run: the lease decides instead.
            _log.warning(
                "leaving with %d jobs running, %d records given up with their handlers, and %d not acknowledged by the "
                "store: other members wait for them until the session's lease ends",
                parts.workers.outstanding,
                parts.hung.stuck,
                parts.settling.waiting,
            )
            session.abandon()
        else:
            session.end()


def _missing(look: Callable[[], None]) -> UnknownTopic | None:
    """The error that says which topics a look has found missing; None: none."""
    try:
        look()
    except UnknownTopic as error:
        return error
    return None
