"""Owed: keeps calls to the store until it has answered, or until the session that owes them is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.dedup.claims import Claim, ClaimSession, LetGo, Token


class Owed:
    """`let_go`s first, then claims to give back, then records that nobody runs any more.

    The order matters: a record handed over can be released only once the store knows that it was handed over.
    """

    def __init__(self) -> None:
        self._let_gos: list[tuple[ClaimSession, LetGo]] = []
        self._unclaims: list[tuple[ClaimSession, Claim]] = []
        self._releases: list[tuple[ClaimSession, Token]] = []

    def __bool__(self) -> bool:
        return bool(self._let_gos or self._unclaims or self._releases)

    def let_go(self, session: ClaimSession, item: LetGo) -> None:
        """End an ownership."""
        self._let_gos.append((session, item))

    def unclaim(self, session: ClaimSession, item: Claim) -> None:
        """Give a key back."""
        self._unclaims.append((session, item))

    def release(self, session: ClaimSession, item: Token) -> None:
        """Say that nobody runs a record that was handed over."""
        self._releases.append((session, item))

    def forget(self, session: ClaimSession) -> None:
        """Forget a session that is lost: others take over what it had."""
        self._let_gos = [each for each in self._let_gos if each[0] is not session]
        self._unclaims = [each for each in self._unclaims if each[0] is not session]
        self._releases = [each for each in self._releases if each[0] is not session]

    def pay(self) -> None:
        """Ask until all is answered; nothing where nothing is owed. Raises StoreUnavailable: the rest stays owed."""
        while self._let_gos:
            session = self._let_gos[0][0]
            session.let_go([item for owner, item in self._let_gos if owner is session])
            self._let_gos = [each for each in self._let_gos if each[0] is not session]
        while self._unclaims:
            session = self._unclaims[0][0]
            session.unclaim([item for owner, item in self._unclaims if owner is session])
            self._unclaims = [each for each in self._unclaims if each[0] is not session]
        while self._releases:
            session = self._releases[0][0]
            session.release([item for owner, item in self._releases if owner is session])
            self._releases = [each for each in self._releases if each[0] is not session]
