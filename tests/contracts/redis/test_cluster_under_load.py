"""A Redis Cluster that is moved, killed and refuses, while an app works: nothing is lost, and nothing runs twice.

The judge is what the handlers have started, kept by the test, and the offsets that the broker has.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pytest
import redis

from holdfast import RedisClaims, Settings
from holdfast.dedup.claims import Claim, ClaimKey, Token, Verdict
from holdfast.dedup.redis_cluster_client import ClusterClient
from holdfast.plugin.events import SessionLost, StoreDown, StoreUp
from tests.contracts.redis.test_faults import answered
from tests.harness.engine import Bench, numbered
from tests.harness.servers.redis_cluster import RedisCluster
from tests.harness.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.full

#: Few marks at a time: a session that is lost repeats little.
SETTINGS = Settings(workers=8, commit_interval_s=0.01, mark_batch=20)
KEYED: dict[str, Any] = {"key": lambda record: record.value or b""}
PARTITIONS = 4
SHARDS = 6
IN_HAND = SETTINGS.workers + SETTINGS.mark_batch


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as made:
        yield made


class Load:
    """Records come all the time, a few to each partition, until it is told to stop."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self._over = bench, threading.Event()
        self.produced = 0  #: for each partition
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._over.is_set():
            # No faster than they are handled.
            ended = len(self._bench.work.ended)
            if self.produced * PARTITIONS - ended < 400:
                for number in range(PARTITIONS):
                    values = numbered(f"{number}-", range(self.produced, self.produced + 10))
                    self._bench.broker.produce("orders", number, *values)
                self.produced += 10
            with self._bench.changed:
                self._bench.changed.wait(0.01)

    def begin(self) -> None:
        self._thread.start()

    def goes_on(self, count: int = 200) -> None:
        """Until so many more have ended."""
        before = len(self._bench.work.ended)
        self._bench.wait(lambda: len(self._bench.work.ended) >= before + count)

    def end(self) -> None:
        """All that was produced is handled, once, and committed."""
        self.stop()
        for number in range(PARTITIONS):
            self._bench.wait_committed(self.produced, number)
        times = self._bench.work.starts()
        assert set(times) == {f"{number}-{n}" for number in range(PARTITIONS) for n in range(self.produced)}
        twice = {value for value, count in times.items() if count > 1}
        # Of a session that was lost, what was in hand: an outage was longer than the lease.
        lost = sum(len(member.told(SessionLost)) for member in self._bench.members)
        assert len(twice) <= lost * IN_HAND

    def stop(self) -> None:
        self._over.set()
        self._thread.join()


@contextmanager
def loaded(
    cluster: RedisCluster, members: int = 1, claims: RedisClaims | None = None, **settings: Any
) -> Iterator[tuple[Bench, Load]]:
    """Members at that cluster, under load."""
    claims = claims or RedisClaims.from_url(cluster.url, shards=SHARDS, **settings)
    with Bench(claims=claims, orders=PARTITIONS) as bench:
        for number in range(members):
            bench.member(f"m{number}", settings=SETTINGS, **KEYED)
        load = Load(bench)
        load.begin()
        try:
            load.goes_on()
            yield bench, load
        finally:
            load.stop()


def tag(shard: int) -> str:
    return f"{{hf:holdfast:{shard}}}"


def test_slots_move_and_a_node_is_added(cluster: RedisCluster) -> None:
    with loaded(cluster, members=2) as (bench, load):
        for shard in range(SHARDS):
            home = cluster.masters.index(cluster.master_of(tag(shard)))
            cluster.move(tag(shard), cluster.masters[(home + 1) % 3])
        load.goes_on()
        new = cluster.add_master()
        for shard in (0, 3):
            cluster.move(tag(shard), new)
        load.goes_on()
        load.end()
        assert [member.told(SessionLost) for member in bench.members] == [[], []]
        assert all(member.error is None for member in bench.members)


@pytest.mark.parametrize("durability", ["none", "wait1"])
def test_masters_change_by_hand(cluster: RedisCluster, durability: Literal["none", "wait1"]) -> None:
    with loaded(cluster, durability=durability) as (bench, load):
        _change_masters(cluster, load)
        load.end()
        assert bench.members[0].told(SessionLost) == []
        assert bench.members[0].error is None


def test_a_node_that_takes_no_writes_any_more_is_left(cluster: RedisCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that has become a replica says MOVED; READONLY only to scripts as for Redis 6.2, which do not tell that
    they write, on connections that may read from replicas."""
    inspect = ClusterClient.inspect
    monkeypatch.setattr(ClusterClient, "inspect", lambda *a, **k: inspect(*a, **k)._replace(version=(6, 2)))

    def read_from_replicas(connection: Any) -> None:
        connection.send_command("READONLY")
        assert connection.read_response() == b"OK"

    first = cluster.masters[0].port
    with redis.RedisCluster(
        host="127.0.0.1", port=first, socket_timeout=2.0, redis_connect_func=read_from_replicas
    ) as client:
        with loaded(cluster, claims=RedisClaims(client, shards=SHARDS)) as (bench, load):
            _change_masters(cluster, load)
            load.end()
            assert bench.members[0].told(SessionLost) == []
            assert bench.members[0].error is None
        refused = [node.ask("INFO", "errorstats").get("errorstat_READONLY") for node in cluster.nodes]
        assert any(refused)


def _change_masters(cluster: RedisCluster, load: Load) -> None:
    for replica in cluster.replicas:
        replica.ask("CLUSTER FAILOVER")
        cluster.await_promoted(replica)
        load.goes_on()


def test_nodes_that_load_their_data_are_waited_for_at_a_start_too() -> None:
    slowly = ("--appendonly", "yes", "--key-load-delay", "20000", "--loading-process-events-interval-bytes", "1024")
    with RedisCluster(replicas=False, options=slowly) as cluster, loaded(cluster, timeout_s=1.0) as (bench, load):
        for node in cluster.masters:
            node.ask("BGREWRITEAOF")  # a file of keys: the commands in one are not loaded slowly enough
        until(lambda: not any(node.ask("INFO", "persistence")["aof_rewrite_in_progress"] for node in cluster.masters))
        for node in cluster.masters:
            node.kill()
        for node in cluster.masters:
            node.restart()
        bench.member("new", settings=SETTINGS, **KEYED)
        load.goes_on()
        load.end()
        assert [member.error for member in bench.members] == [None, None]
        assert len(bench.members[0].told(StoreDown)) == len(bench.members[0].told(StoreUp)) == 1
        assert any(node.ask("INFO", "errorstats").get("errorstat_LOADING") for node in cluster.masters)


def test_a_master_is_killed_and_comes_back(cluster: RedisCluster) -> None:
    with loaded(cluster) as (bench, load):
        killed = cluster.master_of(tag(0))
        killed.kill()
        cluster.await_promoted(cluster.replica_of(killed))
        load.goes_on()
        killed.restart()
        until(lambda: killed.ask("ROLE")[0] in (b"slave", "slave"))
        load.goes_on()
        load.end()
        assert bench.members[0].told(SessionLost) == []
        assert bench.members[0].told(StoreDown)
        assert bench.members[0].told(StoreUp)


@pytest.mark.parametrize("durability", ["none", "wait1"])
def test_a_failover_repeats_at_most_what_the_shard_had_acknowledged_in_the_lost_time(
    cluster: RedisCluster, durability: Literal["none", "wait1"]
) -> None:
    """A member that lives says it again; so the one here leaves, as soon as its work is acknowledged."""
    claims = RedisClaims.from_url(cluster.url, shards=SHARDS, durability=durability, timeout_s=0.5)
    kept, late = numbered("kept", range(50)), numbered("late", range(50))
    with Bench(claims=claims) as bench:
        first = bench.member("a", settings=SETTINGS, **KEYED)
        bench.broker.produce("orders", 0, *kept)
        bench.wait_committed(50)
        master = cluster.master_of(tag(0))
        replica = cluster.replica_of(master)
        cluster.cut(replica)
        bench.broker.produce("orders", 0, *late)
        if durability == "none":
            bench.wait_committed(100)
            first.stop()
            assert _done(cluster) == {*kept, *late}
        else:
            bench.wait(lambda: first.told(StoreDown))
        master.kill()
        cluster.await_promoted(replica)
        master.restart()  # with nothing: it follows
        if durability == "wait1":
            bench.wait_committed(100)
            first.stop()
        known = _done(cluster)
        bench.member("b", settings=SETTINGS, **KEYED)
        bench.broker.produce("orders", 0, *kept, *late)  # the producer sends all of it again
        bench.wait_committed(200)
    times = bench.work.starts()
    assert set(times) == {*kept, *late}
    twice = {value for value, count in times.items() if count > 1}
    assert twice == set(late) - known
    if durability == "none":
        assert 0 < len(twice) < len(late)  # one shard in three
    else:
        assert twice == set()
    assert max(times.values()) <= 2


def test_what_a_session_gave_back_is_said_again_to_a_shard_that_failed_alone(cluster: RedisCluster) -> None:
    claims = RedisClaims.from_url(cluster.url, shards=SHARDS)
    session, layout = claims.begin(10.0), claims.parts().layout
    first = cluster.master_of(tag(0))
    asked = (Claim(ClaimKey("h", f"k{number}"), Token("p", number, 1)) for number in range(1000))
    claim, master = next(
        (each, found)
        for each in asked
        if (found := cluster.master_of(tag(layout.places([each.key])[0][0]))) is not first
    )
    assert session.claim([claim]) == [Verdict.NEW]
    replica = cluster.replica_of(master)
    cluster.cut(replica)
    session.unclaim([claim])
    master.kill()
    cluster.await_promoted(replica)
    with cluster.client() as raw:
        [name] = raw.scan_iter(b"*:k:*")
        assert raw.get(name).startswith(b"C")
    assert answered(session.renew)
    other = answered(lambda: claims.begin(10.0))
    assert answered(lambda: other.claim([claim._replace(token=Token("p", 0, 2))])) == [Verdict.NEW]
    claims.close()


@pytest.mark.parametrize("full_coverage", [True, False])
def test_a_shard_that_is_away_for_longer_than_the_lease_pauses_everything_and_is_told_once(
    *, full_coverage: bool
) -> None:
    """A master and its replica stand still. The cluster refuses all calls, or those of their slots alone."""
    with (
        RedisCluster(full_coverage=full_coverage) as cluster,
        loaded(cluster, lease_s=1.5, timeout_s=0.3) as (bench, load),
    ):
        [member] = bench.members
        away = cluster.master_of(tag(0))
        still = [away, cluster.replica_of(away)]
        before = len(member.told(StoreDown)), len(member.told(StoreUp))
        lost = len(member.told(SessionLost))
        for node in still:
            node.pause()
        bench.wait(lambda: len(member.told(SessionLost)) > lost)
        others = [node for node in cluster.nodes if node not in still]
        until(lambda: all(node.info()["cluster_state"] == ("fail" if full_coverage else "ok") for node in others))
        assert (len(member.told(StoreDown)), len(member.told(StoreUp))) == (before[0] + 1, before[1])
        assert not bench.work.running
        started, polls = len(bench.work.started), member.source.polls
        bench.wait(lambda: member.source.polls >= polls + 20)
        assert len(bench.work.started) == started
        for node in still:
            node.resume()
        load.goes_on()
        load.end()


def _done(cluster: RedisCluster) -> set[str]:
    """Which values the nodes know as done, by redis-py's own client."""
    with cluster.client() as raw:
        names = [name for name in raw.scan_iter(b"*:k:*") if raw.get(name) == b"1"]
    return {name.decode().rpartition(":")[2] for name in names}
