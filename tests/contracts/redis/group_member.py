"""A member of a group: python -m tests.contracts.redis.group_member <url> <client id> <lease_s> <topics> <queues each>.

Joins, joins anew where it is lost, and leaves at SIGTERM. Says each plan that it learns of, a JSON line each.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import TYPE_CHECKING

from holdfast.dedup import membership as kept
from holdfast.dedup.groups import Member
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_store import RedisClaims
from holdfast.errors import StoreUnavailable
from holdfast.plugin.assign import strategy_of
from holdfast.timing import Deadline
from tests.harness.store_groups import GROUP, queues

if TYPE_CHECKING:
    from holdfast.dedup.membership import Membership
    from holdfast.records import Partition


def join(coordinator: RedisCoordinator, client_id: str, seen: list[Partition], woken: threading.Event) -> Membership:
    while True:
        try:
            return coordinator.join(
                GROUP,
                Member(client_id=client_id, subscription="all"),
                Deadline(5.0),
                strategy=strategy_of("sticky"),
                wake=woken.set,
                queues=seen,
            )
        except StoreUnavailable:
            continue


def main(url: str, client_id: str, lease_s: str, topics: str, each: str) -> None:
    woken, leaving = threading.Event(), threading.Event()

    def leave(*_: object) -> None:
        leaving.set()
        woken.set()

    signal.signal(signal.SIGTERM, leave)
    kept._BEAT_EVERY = 1 / 3 / max(1.0, float(lease_s))  # three times a second, however long the lease
    coordinator = RedisCoordinator(RedisClaims.from_url(url, namespace="t", timeout_s=0.5), lease_s=float(lease_s))
    seen = [queue for i in range(int(topics)) for queue in queues(int(each), f"t{i}")]
    while not leaving.is_set():
        membership = join(coordinator, client_id, seen, woken)
        while not (membership.lost or leaving.is_set()):
            woken.wait(0.1)  # a member that was stopped learns by its own clock, too
            woken.clear()
            membership.vouch(1.0)
            plan = membership.plan()
            print(
                json.dumps({"id": membership.id, "stamp": plan.stamp, "own": len(plan.of(membership.id))}), flush=True
            )
        if leaving.is_set():
            membership.leave(Deadline(3.0))


if __name__ == "__main__":
    main(*sys.argv[1:])
