"""Open while the store is down: by explicit choice work goes on without protection, and each such claim is counted."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeVar

from holdfast.dedup.claims import Verdict
from holdfast.dedup.none import NoSession
from holdfast.errors import AccessRefused, StoreLockedOut, StoreUnavailable
from holdfast.timing import SYSTEM_CLOCK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from holdfast.dedup.claims import (
        Acquired,
        Claim,
        ClaimKey,
        ClaimSession,
        ClaimStore,
        LetGo,
        Mark,
        Poll,
        Polled,
        Token,
        Wait,
    )
    from holdfast.timing import Clock

T = TypeVar("T")

#: How often a process that began without the store asks for it, or says what it owes where it has nothing to ask.
_LOOK_EVERY_S = 1.0


class OpenSession:
    """A session whose unanswered calls are answered as by no store at all. Any thread.

    What was granted so is not known to the store: as soon as it answers again it fences it, and the partition is taken
    over anew. Until then records may run twice; that is what the choice means.

    What was given back or brought to its end so is owed to the store while the session lives there: it would go on
    holding it for us, and everybody else would wait.
    """

    def __init__(self, session: ClaimSession | None, store: OpenClaims) -> None:
        self._session, self._store, self._open = session, store, NoSession()
        self._owed: deque[Callable[[ClaimSession], object]] = deque()
        #: Positions of which an `acquire` was not answered: their epoch at the store is not known.
        self._unsure: set[str] = set()
        self.id = session.id if session is not None else "open"

    def live(self) -> bool:
        """The inner session's word, but while the store is down there is nobody to take over."""
        return self._store.down or (self._session is not None and self._session.live())

    def _ask(
        self, items: int, ask: Callable[[ClaimSession], T], without: Callable[[NoSession], T], *, owed: bool = False
    ) -> T:
        if self._session is not None:
            try:
                self._pay(self._session)
                answer = ask(self._session)
            except StoreUnavailable as error:
                if owed and self._session.live():  # else the store has forgotten it, or will
                    self._owed.append(ask)
                self._store.unanswered(items, error)
            else:
                self._store.answered()
                return answer
        else:
            self._store.unanswered(items, None)
            self._store.look()
        return without(self._open)

    def _pay(self, session: ClaimSession) -> None:
        """Say again what is owed, in its order. Raises StoreUnavailable."""
        while self._owed:
            if not session.live():
                self._owed.clear()
                return
            with suppress(IndexError):  # another thread was faster
                ask = self._owed.popleft()
                try:
                    ask(session)
                except StoreUnavailable:
                    self._owed.appendleft(ask)
                    raise

    def renew(self) -> bool:
        """See `ClaimSession`."""
        return self._ask(0, lambda s: s.renew(), lambda s: s.renew())

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        """See `ClaimSession`."""
        self._unsure.update(partitions)

        def ask(session: ClaimSession) -> list[Acquired | Wait | Verdict]:
            replies = session.acquire(partitions)
            self._unsure.difference_update(partitions)
            return replies

        return self._ask(0, ask, lambda s: s.acquire(partitions))

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        """See `ClaimSession`."""
        return self._ask(0, lambda s: s.mark(marks), lambda s: s.mark(marks), owed=True)

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """See `ClaimSession`."""
        said = [each._replace(epoch=0) if each.partition in self._unsure else each for each in partitions]
        self._ask(0, lambda s: s.let_go(said), lambda s: s.let_go(said), owed=True)

    def poll(self, polls: Sequence[Poll]) -> list[Polled | Verdict]:
        """See `ClaimSession`."""
        return self._ask(0, lambda s: s.poll(polls), lambda s: s.poll(polls))

    def release(self, records: Sequence[Token]) -> None:
        """See `ClaimSession`."""
        self._ask(0, lambda s: s.release(records), lambda s: s.release(records), owed=True)

    def drop(self, partition: str, epoch: int, offset: int) -> bool:
        """See `ClaimSession`."""
        return self._ask(
            0, lambda s: s.drop(partition, epoch, offset), lambda s: s.drop(partition, epoch, offset), owed=True
        )

    def claim(self, claims: Sequence[Claim]) -> list[Verdict]:
        """See `ClaimSession`; without an answer all are NEW."""
        return self._ask(len(claims), lambda s: s.claim(claims), lambda s: s.claim(claims))

    def claim_fenced(self, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        """See `ClaimSession`; without an answer all are NEW."""
        return self._ask(len(claims), lambda s: s.claim_fenced(claims), lambda s: s.claim_fenced(claims))

    def finish(self, claims: Sequence[Claim], results: Sequence[str] | None = None) -> list[Verdict]:
        """See `ClaimSession`; a key that was granted without the store is not held there, and that is no reason to run
        its record again."""
        verdicts = self._ask(0, lambda s: s.finish(claims, results), lambda s: s.finish(claims, results), owed=True)
        return [Verdict.DONE] * len(verdicts) if self._store.ever_open else verdicts

    def results(self, keys: Sequence[ClaimKey]) -> list[str | None]:
        """See `ClaimSession`."""
        return self._ask(0, lambda s: s.results(keys), lambda s: s.results(keys))

    def unclaim(self, claims: Sequence[Claim]) -> None:
        """See `ClaimSession`."""
        self._ask(0, lambda s: s.unclaim(claims), lambda s: s.unclaim(claims), owed=True)

    def vouch(self, seconds: float) -> None:
        """See `ClaimSession`. Now and then it says again what is owed, where nothing else would."""
        if self._session is not None:
            self._session.vouch(seconds)
            if self._owed and self._store.may_look():
                self._ask(0, lambda _: None, lambda _: None)

    def abandon(self) -> None:
        """See `ClaimSession`."""
        if self._session is not None:
            self._session.abandon()

    def end(self) -> None:
        """See `ClaimSession`."""
        if self._session is not None:
            self._session.end()


class OpenClaims:
    """A ClaimStore around another, that is open while the other gives no answer."""

    def __init__(
        self,
        store: ClaimStore,
        *,
        went_down: Callable[[StoreUnavailable], None],
        came_back: Callable[[int], None],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Args: went_down, came_back: told once an outage, the latter with the claims granted without the store."""
        self._store, self._went_down, self._came_back, self._clock = store, went_down, came_back, clock
        self.down = False
        self.ever_open = False
        #: Claims that were granted without the store, since it went down.
        self.unprotected = 0
        self._look_at = 0.0

    @property
    def store_id(self) -> str:
        """The inner store's."""
        return self._store.store_id

    def connect(self) -> None:
        """As the inner store, but no answer is no reason not to start."""
        try:
            self._store.connect()
        except StoreUnavailable as error:
            self.unanswered(0, error)

    def begin(self, lease_s: float) -> OpenSession:
        """A session, of the inner store where it answers."""
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

    def look(self) -> None:
        """For a session that began without the store: now and then, whether it is there. Then that session is over."""
        if self.may_look():
            with suppress(StoreUnavailable), self._already_running():
                self._store.connect()
                self.answered()

    def may_look(self) -> bool:
        """Whether the last look at a store that does not answer was long enough ago; then this is one."""
        now = self._clock.now()
        if now < self._look_at:
            return False
        self._look_at = now + _LOOK_EVERY_S
        return True

    @contextmanager
    def _already_running(self) -> Iterator[None]:
        """Handlers run without the store by now. A refusal of credentials is then one more way of being down, and no
        reason to stop them; before the first record it stops the start."""
        try:
            yield
        except AccessRefused as error:
            if not self.ever_open:
                raise
            raise StoreLockedOut(f"{error}. By choice the app goes on without the store until then") from error

    def unanswered(self, items: int, error: StoreUnavailable | None) -> None:
        """Count, and say so once an outage."""
        self.unprotected += items
        self.ever_open = True
        if not self.down:
            self.down, self.unprotected = True, items
            self._went_down(error or StoreUnavailable("the store has not answered since the start"))

    def answered(self) -> None:
        """The store is back."""
        if self.down:
            self.down = False
            self._came_back(self.unprotected)
