"""The keys of one call at the store: asked for, then said to be done or given back, under one and the same session.

And the claim under which the body runs, for the body and whatever it calls.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.dedup.calls.debts import Finish, GiveBack, Said, say_done
from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.calls.here import Calls
    from holdfast.dedup.claims import ClaimSession


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentClaim:
    """The claim of the body that runs now, as the body may see it. Any thread."""

    #: The function's name in the store.
    name: str
    #: The keys that it is run for, as holdfast.dedup.keys writes them ("s:4711"); one, unless it takes batches.
    keys: tuple[str, ...]
    #: For each key: higher than that of each earlier run for this key. 0 = without protection, see store_down="open".
    fences: tuple[int, ...]
    #: The start of the process that holds them; "" = without protection.
    session: str
    live: Callable[[], bool]
    #: The claim under which the call was made that this is the claim of.
    outer: CurrentClaim | None = field(default=None, repr=False)

    @property
    def fence(self) -> int:
        """The highest of `fences`; the key's own, where there is one.

        A sink that remembers the highest fence of a key, and refuses what comes with a lower one, cannot be written by
        a process that was taken for dead and wakes up.
        """
        return max(self.fences)

    @property
    def cancelled(self) -> bool:
        """True once others may run the body for these keys: stop when you can, the result may not count.

        So it is when this process' session was lost: frozen, or without Redis, for longer than the lease. Does not
        block.
        """
        return not self.live()


#: Set around each body by the thread or task that runs it.
CURRENT: ContextVar[CurrentClaim | None] = ContextVar("holdfast_current_claim", default=None)


def current_claim() -> CurrentClaim | None:
    """The claim under which this code runs, the innermost of several; None outside of idempotent functions.

    Follows the context: tasks started in a body and `asyncio.to_thread` have it, a thread of your own has not.
    """
    return CURRENT.get()


log = logging.getLogger("holdfast.dedup")

#: A single answer may be lost with a connection that broke while it was idle, or to a call of another thread.
_ASKED = 2
#: A session may be lost between a look at it and the call; twice in a row something else is wrong.
_SESSIONS = 3


class Grant:
    """One attempt to get keys. Its methods block for the store's timeout, except where they say that they do not.

    Args:
        calls: of the store.
        scope: of the function.
        keys: all different.
    """

    #: Neither done nor given back yet, nor owed.
    _rest: frozenset[Claim] = frozenset()

    def __init__(self, calls: Calls, scope: str, keys: Sequence[str]) -> None:
        #: What to keep with those of them whose body has run.
        self._texts: Callable[[], dict[Claim, str]] = dict
        self._calls = calls
        self._scope = scope
        here = calls.here
        self.claims = [Claim(ClaimKey(scope, key), Token("call", here.number(), 1)) for key in keys]
        self._here = here
        #: Under which they were asked for; None = the store gave none.
        self.session: ClaimSession | None = None
        self._fences: dict[Claim, int] = {}
        #: Used without an answer of the store, by choice.
        self.unprotected = False

    def current(self, claims: Sequence[Claim]) -> CurrentClaim:
        """The claim as the body may see it."""
        protected = self.session is not None and not self.unprotected
        return CurrentClaim(
            name=self._scope,
            keys=tuple(claim.key.key for claim in claims),
            fences=tuple(self._fences.get(claim, 0) for claim in claims),
            session=self.session.id if self.session is not None and protected else "",
            live=self.session.live if self.session is not None and protected else lambda: True,
            outer=CURRENT.get(),
        )

    def own(self, keys: Sequence[str]) -> list[str]:
        """Find the keys that a body holds within which this call was made: it cannot wait for them."""
        claim, held = CURRENT.get(), set[str]()
        while claim is not None:
            if claim.name == self._scope and self.session is not None and claim.session == self.session.id:
                held.update(claim.keys)
            claim = claim.outer
        return [key for key in keys if key in held]

    def ask(self) -> list[Verdict]:
        """NEW, DONE or BUSY for each.

        Raises:
            StoreUnavailable: no answer; some may be held all the same: `owe_rest`.
            StoreRefused: the store says no.
        """
        self._rest = frozenset(self.claims)
        for _ in range(_SESSIONS):
            with suppress(StoreError):  # whether the store is there, the claim is told
                self._here.debts.pay()
            self.session = self._calls.session()
            replies = self._asked(self.session)
            verdicts = [verdict for verdict, _ in replies]
            if Verdict.FENCED not in verdicts:
                self._fences = {claim: fence for claim, (_, fence) in zip(self.claims, replies, strict=True)}
                self._rest = frozenset(
                    claim for claim, (verdict, _) in zip(self.claims, replies, strict=True) if verdict is Verdict.NEW
                )
                self._here.answered()
                return verdicts
        raise StoreUnavailable(
            f"{_SESSIONS} sessions in a row were lost as soon as they had begun: is the store's clock stepping, or is "
            "lease_s shorter than an answer takes?"
        )

    def _asked(self, session: ClaimSession) -> list[tuple[Verdict, int]]:
        for left in reversed(range(_ASKED)):
            try:
                return session.claim_fenced(self.claims)
            except StoreUnavailable:
                if not left:
                    raise
        raise AssertionError

    def go_without(self, error: StoreError) -> list[Verdict]:
        """The answer of a store that does not answer, where that is the choice. Does not block."""
        self.unprotected = True
        self._here.unanswered(self._scope, error)
        return [Verdict.NEW] * len(self.claims)

    def runs(self, texts: Callable[[], dict[Claim, str]]) -> None:
        """Note that a body begins.

        Args:
            texts: of the claims that it has done, what to keep as results; of none, where it has not ended. May be
                called at any time.
        """
        self._texts = texts

    def results(self, claims: Sequence[Claim]) -> list[str | None]:
        """The results kept with keys that were DONE; None = their window has passed since.

        Raises:
            StoreError: no answer, or a no.
        """
        return self._calls.session().results([claim.key for claim in claims])

    def finish(self, claims: Sequence[Claim], results: Sequence[str]) -> Said | None:
        """The body has run. NEW for each that is done by this; DONE or FENCED: another has taken the key over, and has
        finished or not. None = no answer, it stays owed."""
        if self.session is None or self.unprotected:
            self._owe(claims, results)  # perhaps they are held all the same
            return Said([Verdict.NEW] * len(claims))
        try:
            said = say_done(self.session, claims, results)
        except StoreError as error:
            log.warning("the store does not know yet that a call is done; it is told again: %s", error)
            self._owe(claims, results)
            return None
        self._settle(claims)
        return said

    def give_back(self, claims: Sequence[Claim]) -> None:
        """The body has failed or was not run; without an answer it stays owed."""
        try:
            if self.session is not None:
                self.session.unclaim(claims)
        except StoreError:
            self._owe_back(claims)
        self._settle(claims)

    def owe_rest(self) -> None:
        """Owe the store what it was not told yet, nor is owed: who was broken off leaves no key behind. Does not
        block; any line may be interrupted by it, and it may be interrupted at any line and called again."""
        if not self._rest:
            return
        done = {claim: text for claim, text in self._texts().items() if claim in self._rest}
        if done:
            self._owe(list(done), list(done.values()))
        if self._rest:
            self._owe_back(list(self._rest))

    #: A call that was broken off twice, the second time while it was about the first, has told nothing.
    __del__ = owe_rest

    def _owe(self, claims: Sequence[Claim], results: Sequence[str]) -> None:
        if self.session is not None:
            self._here.debts.add(Finish(self.session, claims, results))
        self._settle(claims)

    def _owe_back(self, claims: Sequence[Claim]) -> None:
        if self.session is not None:
            self._here.debts.add(GiveBack(self.session, claims))
        self._settle(claims)

    def _settle(self, claims: Sequence[Claim]) -> None:
        self._rest = self._rest.difference(claims)
