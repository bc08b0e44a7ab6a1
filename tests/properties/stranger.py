"""Somebody else at the same store: takes keys, and finishes them or gives them back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict

if TYPE_CHECKING:
    from holdfast.dedup.claims import ClaimSession


class Stranger:
    """Another member's session.

    Args:
        session: of its own.
        scope: of the keys.
        ran: gets the keys that it has finished.
    """

    def __init__(self, session: ClaimSession, scope: str, ran: list[str]) -> None:
        self._session, self._scope, self._ran = session, scope, ran
        self.holds: dict[str, Claim] = {}

    def takes(self, key: int) -> None:
        """If nobody has it."""
        claim = Claim(ClaimKey(self._scope, str(key)), Token("q", key, 1))
        if str(key) not in self.holds and self._session.claim([claim]) == [Verdict.NEW]:
            self.holds[str(key)] = claim

    def ends(self, number: int, *, well: bool) -> None:
        """One of those that it holds."""
        if self.holds:
            self.end(sorted(self.holds)[number % len(self.holds)], well=well)

    def end(self, key: str, *, well: bool) -> None:
        """This one, which it holds."""
        claim = self.holds.pop(key)
        if well:
            self._session.finish([claim])
            self._ran.append(key)
        else:
            self._session.unclaim([claim])
