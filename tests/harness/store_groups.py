"""Groups under one contract: in memory and in a real Redis; how a test joins, kills, and waits for a plan."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast

import redis

from holdfast.dedup.groups import GroupMember, Member, Plan
from holdfast.dedup.memory_coordinator import MemoryCoordinator
from holdfast.dedup.memory_groups import MemoryGroupSession
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.dedup.redis_groups import RedisGroupSession
from holdfast.dedup.redis_store import RedisClaims
from holdfast.records import Partition
from holdfast.runtime import MACHINE
from holdfast.timing import Deadline
from tests.harness.waiting import until
from tests.simulation.lua.lua_redis import LuaRedis
from tests.simulation.lua.redis_client import LuaClient

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from holdfast.dedup.groups import GroupSession, Strategy
    from holdfast.dedup.membership import Membership

#: Long enough for no lease to end during a test.
LEASE_S = 3600.0
GROUP = "billing"


def queues(count: int, topic: str = "orders", broker: str = "broker-a") -> list[Partition]:
    return [Partition(topic, number, broker) for number in range(count)]


def in_turn(
    members: Sequence[GroupMember], queues: Sequence[Partition], previous: Mapping[Partition, str]
) -> dict[Partition, str]:
    """The simplest strategy."""
    return {queue: members[i % len(members)].id for i, queue in enumerate(queues)}


class Bench(Protocol):
    """A coordinator in the hands of a test."""

    @property
    def coordinator(self) -> MemoryCoordinator | RedisCoordinator: ...

    def session(self, member_id: str) -> GroupSession:
        """The bare calls of one member."""
        ...

    def kill(self, member_id: str) -> None:
        """As if its lease had passed at the store; its process does not know."""
        ...

    def forget(self) -> None:
        """As a store that was started again with nothing."""
        ...

    def leases(self) -> dict[str, tuple[bool, int]]:
        """Whether each member that was ever in lives, and its call generation."""
        ...

    def close(self) -> None: ...


class MemoryBench:
    def __init__(self) -> None:
        self.coordinator = MemoryCoordinator()

    def session(self, member_id: str) -> MemoryGroupSession:
        return MemoryGroupSession(self.coordinator.state, GROUP, member_id, LEASE_S)

    def kill(self, member_id: str) -> None:
        state = self.coordinator.state
        with state.lock:
            if lease := state.group(GROUP).leases.get(member_id):
                lease.deadline = state.clock.now()

    def forget(self) -> None:
        with self.coordinator.state.lock:
            self.coordinator.state.groups.clear()

    def leases(self) -> dict[str, tuple[bool, int]]:
        state = self.coordinator.state
        leases = state.group(GROUP).leases
        return {each: (lease.deadline > state.clock.now(), lease.generation) for each, lease in leases.items()}

    def close(self) -> None: ...


class RedisBench:
    def __init__(self, url: str, **settings: Any) -> None:
        self.raw, self.store = self._made(url, {"namespace": "t", **settings})
        self.raw.flushdb()
        self.coordinator = RedisCoordinator(self.store, watch_s=0.01)

    def _made(self, url: str, settings: dict[str, Any]) -> tuple[redis.Redis, RedisClaims]:
        raw = redis.Redis.from_url(url, socket_timeout=30.0)
        return raw, RedisClaims.from_url(url, **{"timeout_s": 30.0, **settings})

    def session(self, member_id: str) -> RedisGroupSession:
        return RedisGroupSession(self.store.parts(), GROUP, member_id, LEASE_S)

    def kill(self, member_id: str) -> None:
        for name in self.raw.scan_iter(b"*:gl:*"):
            field = self.raw.hget(name, member_id)
            if isinstance(field, bytes):
                self.raw.hset(name, member_id, b"%d:%s" % (self._now_ms(), field.partition(b":")[2]))

    def forget(self) -> None:
        self.raw.flushdb()

    def leases(self) -> dict[str, tuple[bool, int]]:
        now_ms, found = self._now_ms(), {}
        for name in self.raw.scan_iter(b"*:gl:*"):
            for member_id, field in cast("dict[bytes, bytes]", self.raw.hgetall(name)).items():
                deadline, _, generation = field.partition(b":")
                found[member_id.decode()] = (int(deadline) > now_ms, int(generation))
        return found

    def _now_ms(self) -> int:
        seconds, micros = self.raw.time()
        return int(seconds) * 1000 + int(micros) // 1000

    def close(self) -> None:
        self.store.close()
        self.raw.close()


class ClusterBench(RedisBench):
    """In a Redis Cluster, read by redis-py's own client."""

    def _made(self, url: str, settings: dict[str, Any]) -> tuple[redis.Redis, RedisClaims]:
        self._cluster = redis.RedisCluster.from_url(url.replace("+cluster", "").partition(",")[0], socket_timeout=30.0)
        return cast("redis.Redis", self._cluster), RedisClaims.from_url(url, **{"timeout_s": 30.0, **settings})

    def _now_ms(self) -> int:
        [node, *_] = self._cluster.nodes_manager.nodes_cache.values()
        seconds, micros = self._cluster.get_redis_connection(node).time()
        return int(seconds) * 1000 + int(micros) // 1000


class LuaBench(RedisBench):
    """The same scripts in this process, at `LuaRedis`."""

    def _made(self, url: str, settings: dict[str, Any]) -> tuple[redis.Redis, RedisClaims]:
        server = LuaRedis(MACHINE)
        return LuaClient(server.call, 30.0), RedisClaims(LuaClient(server.call, 30.0), **settings)


class Seat(NamedTuple):
    """A member whose plans can be waited for."""

    membership: Membership
    woken: threading.Condition

    @property
    def id(self) -> str:
        return self.membership.id

    def own(self) -> frozenset[Partition]:
        return self.membership.plan().of(self.id)

    def until(self, true: Callable[[], bool]) -> None:
        """Until it is so: after a wake, or a moment later."""
        until(true, changed=self.woken)

    def planned(self, *members: Seat) -> Plan:
        """Wait for a plan of exactly these members."""
        ids = {member.id for member in members}
        self.until(lambda: set(self.membership.plan().owners.values()) == ids)
        return self.membership.plan()


class Group:
    """Joins, and leaves at the end of the test."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self._seats: list[Seat] = []

    def join(
        self,
        client_id: str = "c",
        seen: Sequence[Partition] = (),
        *,
        subscription: str = "orders:*",
        weight: int = 1,
        strategy: Strategy = in_turn,
        lease_s: float = LEASE_S,
        servers: frozenset[str] = frozenset(),
    ) -> Seat:
        woken = threading.Condition()

        def wake() -> None:
            with woken:
                woken.notify_all()

        membership = self.bench.coordinator.join(
            GROUP,
            Member(client_id=client_id, subscription=subscription, weight=weight, servers=servers),
            Deadline(10.0),
            strategy=strategy,
            wake=wake,
            queues=seen,
            lease_s=lease_s,
        )
        self._seats.append(Seat(membership, woken))
        return self._seats[-1]

    def until_renewed(self, seat: Seat) -> None:
        """Wait until its lease has begun anew."""
        left_s = [self.bench.coordinator.describe(GROUP).left_s[seat.id]]

        def renewed() -> bool:
            left_s.append(self.bench.coordinator.describe(GROUP).left_s[seat.id])
            return left_s[-1] > left_s[-2]  # it falls with time, and nothing but a renewal brings it back up

        seat.until(renewed)

    def close(self) -> None:
        for seat in self._seats:
            seat.membership.leave(Deadline(5.0))


def group_of(bench: Bench) -> Iterator[Group]:
    """For fixtures."""
    group = Group(bench)
    yield group
    group.close()
    bench.close()
