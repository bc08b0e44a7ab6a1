"""Groups without a broker's help: making a plan, and how soon members know it."""

from __future__ import annotations

import threading
import time
from statistics import median
from typing import TYPE_CHECKING

from holdfast.dedup.groups import GroupMember, Member
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_store import RedisClaims
from holdfast.plugin.assign.sticky import sticky
from holdfast.records import Partition
from holdfast.timing import Deadline
from tests.benchmarks.registry import Goal, Row, benchmark

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.dedup.membership import Membership
    from tests.benchmarks.lab import Lab

#: A group at rest, beside which one more comes and goes.
_MEMBERS = 4
_QUEUES = [Partition(f"t{i}", number, "broker-a") for i in range(5) for number in range(8)]


@benchmark("groups")
def groups(lab: Lab) -> list[Row]:
    """The strategy at a size that few have; a few members in this one process, whose threads compete."""
    return [*_plans(3 if lab.quick else 9), *_changes(lab, 10 if lab.quick else 50)]


def _plans(rounds: int) -> list[Row]:
    members = [GroupMember(f"m{i:04}", f"m{i:04}") for i in range(1_001)]
    queues = [Partition(f"t{i:03}", number, "broker-a") for i in range(100) for number in range(100)]
    before = sticky(members[:-1], queues, {})
    cases: dict[str, Callable[[], object]] = {
        "from nothing": lambda: sticky(members[:-1], queues, {}),
        "one joins": lambda: sticky(members, queues, before),
        "half of them leave": lambda: sticky(members[::2], queues, before),
    }
    return [
        Row(
            what=f"sticky, 1,000 members and 10,000 queues, {case}",
            figure=median(_ms(run) for _ in range(rounds)),
            unit=" ms",
            goal=Goal(value=20, at_least=False, unit=" ms"),
            note="of processor",
        )
        for case, run in cases.items()
    ]


def _changes(lab: Lab, rounds: int) -> list[Row]:
    store = RedisClaims.from_url(lab.redis.url, namespace="bench-groups")
    coordinator = RedisCoordinator(store)
    resting = [_join(coordinator, f"m{i}", threading.Event().set) for i in range(_MEMBERS)]
    found = [_come_and_go(coordinator, resting) for _ in range(rounds)]
    joins, seen, leaves = ([each[i] for each in found] for i in range(3))
    for each in resting:
        each.leave(Deadline(5.0))
    store.close()
    return [
        Row(
            what=f"{_MEMBERS} members and one that joins: until it is in the plan",
            figure=_p99(joins),
            unit=" ms",
            goal=Goal(value=20, at_least=False, unit=" ms"),
            note=f"p99 of {rounds}; median {median(joins):.0f} ms",
        ),
        Row(
            what="until all members know",
            figure=_p99(seen),
            unit=" ms",
            note=f"p99; median {median(seen):.0f} ms; they look each 50 ms",
        ),
        Row(
            what="from its leave until all others know",
            figure=_p99(leaves),
            unit=" ms",
            note=f"p99; median {median(leaves):.0f} ms",
        ),
    ]


def _come_and_go(coordinator: RedisCoordinator, resting: list[Membership]) -> tuple[float, float, float]:
    """Milliseconds: in the plan, known to all; gone for all."""
    time.sleep(0.15)  # a plan right after another waits until that is 100 ms old
    woken, never = threading.Event(), threading.Event()
    began = time.perf_counter()
    member = _join(coordinator, "comes", woken.set)
    _until(lambda: bool(member.plan().of(member.id)), woken)
    joined = time.perf_counter()
    _until(lambda: all(each.plan().of(member.id) for each in resting), never)
    seen = time.perf_counter()
    member.leave(Deadline(5.0))
    _until(lambda: not any(each.plan().of(member.id) for each in resting), never)
    return (joined - began) * 1000, (seen - began) * 1000, (time.perf_counter() - seen) * 1000


def _join(coordinator: RedisCoordinator, name: str, wake: Callable[[], None]) -> Membership:
    member = Member(client_id=name, subscription="all")
    return coordinator.join("g", member, Deadline(10.0), strategy=sticky, wake=wake, queues=_QUEUES)


def _until(true: Callable[[], bool], woken: threading.Event) -> None:
    while not true():
        woken.wait(0.001)
        woken.clear()


def _ms(run: Callable[[], object]) -> float:
    began = time.process_time()
    run()
    return (time.process_time() - began) * 1000


def _p99(figures: list[float]) -> float:
    return sorted(figures)[int(len(figures) * 0.99)]
