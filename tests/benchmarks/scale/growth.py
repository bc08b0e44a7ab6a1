"""What a flow of keys makes of a Redis: computed from what a key takes there, and seen over some short windows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast import RedisClaims
from holdfast.dedup.claims import Claim, ClaimKey, Token

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab

DAY_S = 86_400.0
_BATCH = 500


def grown(bytes_a_key: float, keys_a_day: int, *, days: float, window_s: float) -> float:
    """Bytes after so many days of an even flow: a key that is older than the window is gone."""
    return bytes_a_key * keys_a_day * min(days, window_s / DAY_S)


def kept(lab: Lab, *, hash_keys: bool, keys: int, window_s: float, windows: int) -> float:
    """Bytes in use at the end of an even flow of `keys` new ones a window, over so many windows."""
    store = RedisClaims.from_url(
        lab.emptied_redis(), namespace="memory", hash_keys=hash_keys, keys_expected=keys, window_s=window_s
    )
    session = store.begin(30.0)
    session.finish([])
    with lab.redis.client() as client:
        before: int = client.info("memory")["used_memory"]
        began = time.monotonic()
        for first in range(0, windows * keys, _BATCH):
            claims = [
                # Of 24 bytes, as in `memory`.
                Claim(ClaimKey("billing/orders", f"{number:024}"), Token("billing/orders/id/0", number, 1))
                for number in range(first, first + _BATCH)
            ]
            session.claim(claims)
            session.finish(claims)
            time.sleep(max(0.0, began + window_s * (first + _BATCH) / keys - time.monotonic()))
        used: int = client.info("memory")["used_memory"] - before
    session.end()
    store.close()
    return float(used)
