"""The keys of one call at the store: claimed, then finished or given back, all under the same session.

Also the claim under which a body runs, for the body and the code that it calls.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from holdfast.dedup.calls.debts import Finish, FinishReply, GiveBack, finish_keys
from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.errors import StoreError, StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.dedup.calls.process import Calls
    from holdfast.dedup.claims import ClaimSession


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentClaim:
    """The claim of the body that runs now, as the body may see it. Any thread."""

    #: The function's name in the store.
    name: str
    #: The keys that the body runs for, as holdfast.dedup.keys writes them ("s:4711"); one, unless it takes batches.
    keys: tuple[str, ...]
    #: One fence a key, higher than the fence of each earlier run for this key. 0 = without protection, see
    #: store_down="open".
    fences: tuple[int, ...]
    #: The id of the session that holds the keys; "" = without protection.
    session: str
    live: Callable[[], bool]
    #: The claim under which the call of this body was made, for a call inside of another body.
    outer: CurrentClaim | None = field(default=None, repr=False)

    @property
    def fence(self) -> int:
        """The highest of `fences`; with one key, its fence.

        If a sink remembers the highest fence of a key and refuses writes with a lower one, a process that was taken for
        dead and wakes up cannot write there.
        """
        return max(self.fences)

    @property
    def cancelled(self) -> bool:
        """True once other processes may run the body for these keys: stop when you can, the result may not count.

        This process has then lost its session: it was frozen, or without Redis, for longer than the lease. Does not
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

#: Tries of one claim: a connection may have broken while it was idle, or another thread's call may overtake this one.
_CLAIM_TRIES = 2
#: Sessions to try: one may be lost between the check and the call; if that happens again and again, something else is
#: wrong.
_SESSION_TRIES = 3


class Grant:
    """One attempt to get keys. Methods block for the store's timeout, unless they say that they do not.

    Args:
        calls: of the store.
        scope: of the function's keys.
        keys: all different.
    """

    #: Claims that are neither finished, nor given back, nor owed yet.
    _rest: frozenset[Claim] = frozenset()

    def __init__(self, calls: Calls, scope: str, keys: Sequence[str]) -> None:
        #: Returns the texts to keep with the claims whose body has run.
        self._texts: Callable[[], dict[Claim, str]] = dict
        self._calls = calls
        self._scope = scope
        process = calls.process
        self.claims = [Claim(ClaimKey(scope, key), Token("call", process.number(), 1)) for key in keys]
        self._process = process
        #: The session that has claimed the keys; None = the store gave none.
        self.session: ClaimSession | None = None
        self._fences: dict[Claim, int] = {}
        #: The body runs without an answer of the store, by setting.
        self.unprotected = False

    def current(self, claims: Sequence[Claim]) -> CurrentClaim:
        """Make the `CurrentClaim` of a body that runs for these claims."""
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
        """Find the keys that are held by a body inside of which this call was made: it cannot wait for them."""
        claim, held = CURRENT.get(), set[str]()
        while claim is not None:
            if claim.name == self._scope and self.session is not None and claim.session == self.session.id:
                held.update(claim.keys)
            claim = claim.outer
        return [key for key in keys if key in held]

    def ask(self) -> list[Verdict]:
        """Claim the keys. Returns NEW, DONE or BUSY for each.

        Raises:
            StoreUnavailable: no answer; some keys may be claimed all the same: `owe_rest` gives them back.
            StoreRefused: the store refuses.
        """
        self._rest = frozenset(self.claims)
        for _ in range(_SESSION_TRIES):
            with suppress(StoreError):  # the claim itself raises if the store does not answer
                self._process.debts.pay()
            self.session = self._calls.session()
            replies = self._asked(self.session)
            verdicts = [verdict for verdict, _ in replies]
            if Verdict.FENCED not in verdicts:
                self._fences = {claim: fence for claim, (_, fence) in zip(self.claims, replies, strict=True)}
                self._rest = frozenset(
                    claim for claim, (verdict, _) in zip(self.claims, replies, strict=True) if verdict is Verdict.NEW
                )
                self._process.answered()
                return verdicts
        raise StoreUnavailable(
            f"{_SESSION_TRIES} sessions in a row were lost as soon as they had begun: is the store's clock stepping, "
            "or is lease_s shorter than an answer takes?"
        )

    def _asked(self, session: ClaimSession) -> list[tuple[Verdict, int]]:
        for left in reversed(range(_CLAIM_TRIES)):
            try:
                return session.claim_fenced(self.claims)
            except StoreUnavailable:
                if not left:
                    raise
        raise AssertionError

    def go_without(self, error: StoreError) -> list[Verdict]:
        """Go on without the store, by setting: all keys are NEW, without protection. Does not block."""
        self.unprotected = True
        self._process.unanswered(self._scope, error)
        return [Verdict.NEW] * len(self.claims)

    def runs(self, texts: Callable[[], dict[Claim, str]]) -> None:
        """Note that a body begins.

        Args:
            texts: returns the texts to keep with the claims that the body has done; none while it has not ended. May be
                called at any time.
        """
        self._texts = texts

    def results(self, claims: Sequence[Claim]) -> list[str | None]:
        """The results kept with keys that were DONE; None = their window has passed since.

        Raises:
            StoreError: no answer, or a refusal.
        """
        return self._calls.session().results([claim.key for claim in claims])

    def finish(self, claims: Sequence[Claim], results: Sequence[str]) -> FinishReply | None:
        """Finish the claims of a body that has run. Returns NEW for each key that this call makes done; DONE or FENCED:
        another call has taken the key over, and has finished it or not. None = no answer; the call stays owed."""
        if self.session is None or self.unprotected:
            self._owe(claims, results)  # perhaps the store has claimed them all the same
            return FinishReply([Verdict.NEW] * len(claims))
        try:
            reply = finish_keys(self.session, claims, results)
        except StoreError as error:
            log.warning("the store does not know yet that a call is done; it is told again: %s", error)
            self._owe(claims, results)
            return None
        self._settle(claims)
        return reply

    def give_back(self, claims: Sequence[Claim]) -> None:
        """Give claims back whose body has failed or was not run. Without an answer the call stays owed."""
        try:
            if self.session is not None:
                self.session.unclaim(claims)
        except StoreError:
            self._owe_back(claims)
        self._settle(claims)

    def owe_rest(self) -> None:
        """Owe the store the end of all remaining claims, so that an interrupted call leaves no key behind. Does not
        block. It may run in the middle of any other line, and may itself be interrupted at any line and called
        again."""
        if not self._rest:
            return
        done = {claim: text for claim, text in self._texts().items() if claim in self._rest}
        if done:
            self._owe(list(done), list(done.values()))
        if self._rest:
            self._owe_back(list(self._rest))

    #: For a call that was interrupted twice, the second time in its `owe_rest`: it has left nothing owed.
    __del__ = owe_rest

    def _owe(self, claims: Sequence[Claim], results: Sequence[str]) -> None:
        if self.session is not None:
            self._process.debts.add(Finish(self.session, claims, results))
        self._settle(claims)

    def _owe_back(self, claims: Sequence[Claim]) -> None:
        if self.session is not None:
            self._process.debts.add(GiveBack(self.session, claims))
        self._settle(claims)

    def _settle(self, claims: Sequence[Claim]) -> None:
        self._rest = self._rest.difference(claims)
