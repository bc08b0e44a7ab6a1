"""The store for `claims=None`. Every answer is that of a store without any memory."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

from holdfast.dedup.claims import Acquired, Exchanged, InHand, Verdict

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.dedup.claims import AskInHand, Claim, ClaimKey, Drop, LetGo, Mark, Token, Wait


class Keyless:
    """The answers of a session that keeps no keys and has no lease."""

    def claim(self, claims: Sequence[Claim]) -> list[Verdict]:
        """Grant them all."""
        return [Verdict.NEW] * len(claims)

    def claim_fenced(self, claims: Sequence[Claim]) -> list[tuple[Verdict, int]]:
        """Grant them all, with nothing to compare."""
        return [(Verdict.NEW, 0)] * len(claims)

    def finish(self, claims: Sequence[Claim], results: Sequence[str] | None = None) -> list[Verdict]:
        """Accept them all."""
        return [Verdict.DONE if results is None else Verdict.NEW] * len(claims)

    def results(self, keys: Sequence[ClaimKey]) -> list[str | None]:
        """Reply that no key is done: none is known here."""
        return [None] * len(keys)

    def unclaim(self, claims: Sequence[Claim]) -> None:
        """Accept."""

    def vouch(self, seconds: float) -> None:
        """Do nothing: nothing is renewed."""

    def abandon(self) -> None:
        """Do nothing: others take over without waiting."""

    def end(self) -> None:
        """Do nothing: the store knows no sessions."""


class NoSession(Keyless):
    """A session that is always alive and remembers nothing."""

    id = "no store"

    def __init__(self) -> None:
        self._epochs = count(1)

    def live(self) -> bool:
        """Return True: there is no lease to lose."""
        return True

    def renew(self) -> bool:
        """Return True."""
        return True

    def acquire(self, partitions: Sequence[str]) -> list[Acquired | Wait | Verdict]:
        """Granted, with nothing known."""
        return [Acquired(next(self._epochs), 0, frozenset(), frozenset()) for _ in partitions]

    def mark(self, marks: Sequence[Mark]) -> list[frozenset[int]]:
        """Accepted."""
        return [frozenset() for _ in marks]

    def let_go(self, partitions: Sequence[LetGo]) -> None:
        """Accepted."""

    def poll(self, polls: Sequence[AskInHand]) -> list[InHand | Verdict]:
        """Reply that no other session has anything in hand: none is known here."""
        return [InHand(frozenset(), frozenset(poll.offsets)) for poll in polls]

    def release(self, records: Sequence[Token]) -> None:
        """Accepted."""

    def drop(self, drops: Sequence[Drop]) -> list[bool]:
        """There is nothing to forget."""
        return [True] * len(drops)

    def exchange(self, done: Sequence[Claim], marks: Sequence[Mark], claims: Sequence[Claim]) -> Exchanged:
        """Accepted and granted."""
        return Exchanged(self.finish(done), self.mark(marks), self.claim(claims))


class NoClaims:
    """A ClaimStore that holds nothing."""

    store_id = ""

    def connect(self) -> None:
        """Nothing to reach."""

    def begin(self, lease_s: float) -> NoSession:  # noqa: ARG002 - the protocol's signature
        """A session without a store."""
        return NoSession()

    def close(self) -> None:
        """Nothing to close."""
