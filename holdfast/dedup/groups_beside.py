"""Groups in the store of the claims, for members that need no plan, and therefore have no coordinator of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_store import RedisClaims

if TYPE_CHECKING:
    from holdfast.dedup.claims import ClaimStore
    from holdfast.dedup.coordinator import Coordinator

#: Seconds between two looks for a change, each one small read. No queue waits for it, so this is rare.
_WATCH_S = 1.0


def groups_beside(claims: ClaimStore | None) -> Coordinator | None:
    """Return the coordinator that keeps groups beside these claims; None = there is no store, or it is of another kind.
    Any thread."""
    if isinstance(claims, MemoryClaims):
        return claims.groups
    return RedisCoordinator(claims, watch_s=_WATCH_S) if isinstance(claims, RedisClaims) else None
