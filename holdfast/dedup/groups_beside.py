"""Groups in the store in which claims live, for members that have no plan and so were given no coordinator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.dedup.memory import MemoryClaims
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_store import RedisClaims

if TYPE_CHECKING:
    from holdfast.dedup.claims import ClaimStore
    from holdfast.dedup.coordinator import Coordinator

#: How soon a member sees a change: it costs one small read each time, and no queue waits for it.
_WATCH_S = 1.0


def groups_beside(claims: ClaimStore | None) -> Coordinator | None:
    """Return the coordinator that keeps groups beside these claims; None = there is no store, or one of another kind.
    Any thread."""
    if isinstance(claims, MemoryClaims):
        return claims.groups
    return RedisCoordinator(claims, watch_s=_WATCH_S) if isinstance(claims, RedisClaims) else None
