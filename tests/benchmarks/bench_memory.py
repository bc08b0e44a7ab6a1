"""What a remembered key costs in Redis."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from holdfast import RedisClaims
from holdfast.dedup.claims import Claim, ClaimKey, Token
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from tests.benchmarks.lab import Lab

_BATCH = 500


@benchmark("memory")
def memory(lab: Lab) -> list[Row]:
    """Ids of 24 bytes in a scope of usual length, all done: what stays for the window."""
    count = 100_000 if lab.quick else 1_000_000
    return [
        Row(
            what=f"a key in Redis, {'digest' if hashed else 'plain'}",
            figure=bytes_a_key(lab, count, hash_keys=hashed),
            unit=" B",
            goal=Goal(value=64 if hashed else 180, at_least=False, unit=" B"),
            note=f"used_memory of {count:,} keys that are done",
        )
        for hashed in (False, True)
    ]


def bytes_a_key(lab: Lab, count: int, *, hash_keys: bool) -> float:
    """What stays in Redis of so many keys that are done, in a store that expects so many."""
    with lab.redis.client() as client:
        client.flushall()
        store = RedisClaims.from_url(lab.redis.url, namespace="memory", hash_keys=hash_keys, keys_expected=count)
        session = store.begin(30.0)
        session.finish([])
        before = client.info("memory")["used_memory"]
        for first in range(0, count, _BATCH):
            claims = [
                Claim(ClaimKey("billing/orders", secrets.token_hex(12)), Token("billing/orders/id/0", first + i, 1))
                for i in range(_BATCH)
            ]
            session.claim(claims)
            session.finish(claims)
        used: int = client.info("memory")["used_memory"] - before
        session.end()
        store.close()
        client.flushall()
    return used / count
