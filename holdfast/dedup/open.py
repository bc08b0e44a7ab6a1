"""Open while the store is down: by explicit choice work goes on without protection. Claims granted so are counted."""

from __future__ import annotations

import math
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from holdfast.dedup.claims import Exchanged, Verdict
from holdfast.dedup.none import NoSession
from holdfast.errors import AccessRefused, StoreLockedOut, StoreUnavailable
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.dedup.claims import (
        Acquired,
        AskInHand,
        Claim,
        ClaimKey,
        ClaimSession,
        ClaimStore,
        Drop,
        InHand,
        LetGo,
        Mark,
        Token,
        Wait,
    )
    from holdfast.runtime import Runtime

T = TypeVar("T")

#: Seconds between two checks of a store that does not answer. While failures go on they double, up to the second
#: number.
_LOOK_EVERY_S = 1.0
_LOOK_AT_LEAST_EVERY_S = 30.0


class OpenSession:
    """A session that answers calls as `NoSession` does while the store does not answer. Any thread.

    The store does not know what was granted in this way: as soon as it answers again it fences the mark, and the
    partition is taken over anew. Until then records may run twice; the setting accepts that.

    Calls that end or release something stay owed to the store while the session lives there. Otherwise the store would
    go on holding keys, records and partitions for this session, and other sessions would wait for them.
    """

    def __init__(self, session: ClaimSession | None, store: OpenClaims) -> None:
        self._session, self._store, self._open = session, store, NoSession()
        self._owed: deque[Callable[[ClaimSession], object]] = deque()
        #: Positions whose `acquire` was not answered: their epoch at the store is not known.
        self._unsure: set[str] = set()
        #: The session began without the store, and the store answers now: a new session has to begin.
        self._over = False
        self.id = session.id if session is not None else "open"

    def live(self) -> bool:
        """Whether the inner session lives. While the store is down, True: no other session can take over then."""
        if self._session is None:
            return not self._over
        return self._store.down or self._session.live()

    def _ask(self, ask: Callable[[ClaimSession], T], *, items: int = 0, owed: bool = False) -> T:
        """Make a call of the inner session, or of one without a store where that does not answer.

        Args:
            ask: makes the call.
            items: how many claims are granted without an answer.
            owed: whether the call is made again once the store answers.
        """
        session = self._session
        if session is not None and self._store.may_ask:
            try:
                self._pay(session)
                answer = ask(session)
            except StoreUnavailable as error:
                self._store.unanswered(items, error)
            else:
                self._store.answered()
                return answer
        elif not self._over:
            self._store.unanswered(items)
        if owed and session is not None and session.live():  # a dead session holds nothing at the store
            self._owed.append(ask)
        self.look()
        return ask(self._open)

    def look(self) -> None:
        """Have a thread of its own check whether the store answers again."""
        store, session = self._store, self._session
        if session is None and store.reached:
            self._over = True
            store.answered()
        elif store.down:
            store.look(store.connect_again if session is None else session.renew)

    def _pay(self, session: ClaimSession) -> None:
        """Send the owed calls, in their order. Raises StoreUnavailable."""
        while self._owed:
            if not session.live():
                self._owed.clear()
                return
            with suppress(IndexError):  # another thread has sent the last one
                ask = self._owed.popleft()
                try:
                    ask(session)
                except StoreUnavailable:
                    self._owed.appendleft(ask)
                    raise

    def renew(self) -> bool:
        """See `ClaimSession`."""
        return self._ask(lambda s: s.renew())

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        """See `ClaimSession`."""
        self._unsure.update(partitions)

        def ask(session: ClaimSession) -> list[Acquired | Wait | Verdict]:
            replies = session.acquire(partitions)
            if session is self._session:
                self._unsure.difference_update(partitions)
                self._store.untold.difference_update(partitions)
            return replies

        return self._ask(ask)

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        """See `ClaimSession`."""
        return self._ask(lambda s: s.mark(marks), owed=True)

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """See `ClaimSession`."""
        ends = [
            each._replace(epoch=0, known_as=each.epoch) if each.partition in self._unsure else each
            for each in partitions
        ]
        self._ask(lambda s: s.let_go(ends), owed=True)

    def poll(self, polls: Sequence[AskInHand]) -> list[InHand | Verdict]:
        """See `ClaimSession`."""
        return self._ask(lambda s: s.poll(polls))

    def release(self, records: Sequence[Token]) -> None:
        """See `ClaimSession`."""
        self._ask(lambda s: s.release(records), owed=True)

    def drop(self, drops: Sequence[Drop]) -> list[bool]:
        """See `ClaimSession`, and `OpenClaims.untold`."""
        names = {each.partition for each in drops}
        self._store.untold |= names

        def ask(session: ClaimSession) -> list[bool]:
            dropped = session.drop(drops)
            if session is self._session:
                self._store.untold -= names
            return dropped

        return self._ask(ask, owed=True)

    def claim(self, claims: Sequence[Claim]) -> list[Verdict]:
        """See `ClaimSession`; without an answer all are NEW."""
        return self._ask(lambda s: s.claim(claims), items=len(claims))

    def claim_fenced(self, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        """See `ClaimSession`; without an answer all are NEW."""
        return self._ask(lambda s: s.claim_fenced(claims), items=len(claims))

    def finish(self, claims: Sequence[Claim], results: Sequence[str] | None = None) -> list[Verdict]:
        """See `ClaimSession`. Once claims were granted without the store, all verdicts are DONE: the store does not
        hold those keys, which is no reason to run their records again."""
        verdicts = self._ask(lambda s: s.finish(claims, results), owed=True)
        return [Verdict.DONE] * len(verdicts) if self._store.ever_open else verdicts

    def exchange(self, done: Sequence[Claim], marks: Sequence[Mark], claims: Sequence[Claim]) -> Exchanged:
        """See `ClaimSession`; three calls, since without an answer each is handled differently."""
        return Exchanged(self.finish(done), self.mark(marks), self.claim(claims))

    def results(self, keys: Sequence[ClaimKey]) -> list[str | None]:
        """See `ClaimSession`."""
        return self._ask(lambda s: s.results(keys))

    def unclaim(self, claims: Sequence[Claim]) -> None:
        """See `ClaimSession`."""
        self._ask(lambda s: s.unclaim(claims), owed=True)

    def vouch(self, seconds: float) -> None:
        """See `ClaimSession`. Also notices that the store is back, and sends the owed calls, if no other call does."""
        if self._session is not None:
            self._session.vouch(seconds)
        if self._owed or self._store.down:
            self._ask(lambda _: None)

    def abandon(self) -> None:
        """See `ClaimSession`."""
        if self._session is not None:
            self._session.abandon()

    def end(self) -> None:
        """See `ClaimSession`."""
        if self._session is not None:
            self._session.end()


class OpenClaims:
    """A ClaimStore around another one. It grants everything while the other does not answer."""

    def __init__(
        self,
        store: ClaimStore,
        *,
        went_down: Callable[[StoreUnavailable], None],
        came_back: Callable[[int], None],
        runtime: Runtime = MACHINE,
    ) -> None:
        """Args: went_down, came_back: called once an outage, the latter with the number of claims granted without the
        store. Both are called in the thread that made the call."""
        self._store, self._went_down, self._came_back, self._runtime = store, went_down, came_back, runtime
        self.down = False
        self.ever_open = False
        #: Claims that were granted without the store, since it went down.
        self.unprotected = 0
        #: Positions that were reset without the store: it would take a commit behind what it knows for an old one.
        self.untold: set[str] = set()
        #: The store has answered the thread that checks it since it went down, but no call of a session yet.
        self.reached = False
        #: Failures in a row, and the time of the last one.
        self._failures, self._failed_at = 0, -math.inf
        self._looking = False
        self._look_at = 0.0

    @property
    def store_id(self) -> str:
        """The id of the inner store."""
        return self._store.store_id

    def connect(self) -> None:
        """Connect the inner store. If it does not answer, the app starts all the same."""
        try:
            self._store.connect()
        except StoreUnavailable as error:
            self.unanswered(0, error)

    def begin(self, lease_s: float) -> OpenSession:
        """Begin a session: of the inner store, if it answers; otherwise one without a store."""
        try:
            with self._already_running():
                session = self._store.begin(lease_s)
        except StoreUnavailable as error:
            self.unanswered(0, error)
            return OpenSession(None, self)
        self.answered()
        return OpenSession(session, self)

    def close(self) -> None:
        """Close the inner store."""
        self._store.close()

    @property
    def may_ask(self) -> bool:
        """Whether a session may call the store. A store that is down may cost each caller its whole timeout, so only
        the checking thread calls it until it answers."""
        return not self.down or self.reached

    def connect_again(self) -> None:
        """Check whether the store answers. Raises StoreError."""
        with self._already_running():
            self._store.connect()

    @contextmanager
    def _already_running(self) -> Iterator[None]:
        """Around calls that may refuse credentials. Before the app has run without the store, a refusal stops the
        start; afterwards it counts as an outage, and does not stop the handlers."""
        try:
            yield
        except AccessRefused as error:
            if not self.ever_open:
                raise
            raise StoreLockedOut(
                f"{error}. Until then the app goes on without the store, as its settings say"
            ) from error

    def look(self, ask: Callable[[], object]) -> None:
        """Check the store in a thread of its own: at once, then at intervals. Args: ask: the call that checks."""
        if self.reached or self._looking or self._runtime.now() < self._look_at:
            return
        self._looking = True
        self._look_at = self._runtime.now() + _LOOK_EVERY_S
        self._runtime.spawn(lambda: self._reach(ask), "holdfast-open")

    def _reach(self, ask: Callable[[], object]) -> None:
        try:
            ask()
        except StoreUnavailable:
            return
        except Exception:  # noqa: BLE001 - the store answers; the next call of a session raises the same error
            self.reached = True
        else:
            self.reached = True
        finally:
            self._looking = False

    def unanswered(self, items: int, error: StoreUnavailable | None = None) -> None:
        """Count claims granted without the store, and report the outage once. Args: error: of the call without an
        answer; None: the store was not asked."""
        self.unprotected += items
        self.ever_open = True
        if error is not None:
            # A store that answers the checks, but then not the calls, is called less and less often.
            now = self._runtime.now()
            self._failures = 0 if now - self._failed_at > 2 * _LOOK_AT_LEAST_EVERY_S else min(self._failures + 1, 10)
            wait_s = min(_LOOK_EVERY_S * (2**self._failures - 1), _LOOK_AT_LEAST_EVERY_S)
            self.reached, self._failed_at, self._look_at = False, now, now + wait_s
        if not self.down:
            self.down, self.unprotected = True, items
            self._went_down(error or StoreUnavailable("the store has not answered since the start"))

    def answered(self) -> None:
        """Note that the store has answered a call, and report the end of the outage."""
        if self.down:
            self.down = self.reached = False
            self._came_back(self.unprotected)
