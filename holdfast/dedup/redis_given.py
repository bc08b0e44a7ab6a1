"""What a session has given back lately, to be said again where another server has taken the place of the first.

A failover to a replica that was behind brings back what was given back: a key or a partition is held by a session that
lives and knows nothing of it, and everybody would wait until that session ends.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from holdfast.dedup.claims import Claim, LetGo, Token
    from holdfast.timing import Clock

_K = TypeVar("_K", bound="Hashable")
_V = TypeVar("_V")

#: Longer than any replica that is still promoted was behind.
_KEPT_S = 60.0
_KEPT_ITEMS = 10_000  # of each kind: some megabytes at most


class Given:
    """Any thread. What is asked for anew is not given back any more: saying so again would take it from who has it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        #: Held while all is said again: what is asked for anew meanwhile must be asked after that, or it would be given
        #: back while somebody has it.
        self.lock = threading.RLock()
        self._let_gos: dict[tuple[str, int], tuple[float, LetGo]] = {}
        self._unclaims: dict[Claim, tuple[float, Claim]] = {}
        self._releases: dict[Token, tuple[float, Token]] = {}

    def let_go(self, items: Iterable[LetGo]) -> None:
        """These ownerships have ended."""
        self._keep(self._let_gos, (((item.partition, item.epoch), item) for item in items))

    def unclaim(self, items: Iterable[Claim]) -> None:
        """These keys are free."""
        self._keep(self._unclaims, ((item, item) for item in items))

    def release(self, items: Iterable[Token]) -> None:
        """Nobody runs these records."""
        self._keep(self._releases, ((item, item) for item in items))

    def acquired(self, partitions: Iterable[str]) -> None:
        """These are asked for."""
        if self._let_gos:
            with self.lock:
                asked = set(partitions)
                self._let_gos = {key: kept for key, kept in self._let_gos.items() if key[0] not in asked}

    def claimed(self, claims: Iterable[Claim]) -> None:
        """These are asked for."""
        if self._unclaims:
            with self.lock:
                for claim in claims:
                    self._unclaims.pop(claim, None)

    def lately(self) -> tuple[list[LetGo], list[Claim], list[Token]]:
        """In the order in which they have to be said."""
        old = self._clock.now() - _KEPT_S
        with self.lock:
            return _since(self._let_gos, old), _since(self._unclaims, old), _since(self._releases, old)

    def _keep(self, kept: dict[_K, tuple[float, _V]], items: Iterable[tuple[_K, _V]]) -> None:
        with self.lock:
            now = self._clock.now()
            for key, item in items:
                kept.pop(key, None)  # so that the oldest is always the first
                kept[key] = (now, item)
            while kept and (len(kept) > _KEPT_ITEMS or kept[next(iter(kept))][0] < now - _KEPT_S):
                del kept[next(iter(kept))]


def _since(kept: dict[_K, tuple[float, _V]], when: float) -> list[_V]:
    return [item for at, item in kept.values() if at >= when]
