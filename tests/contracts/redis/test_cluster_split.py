"""A master that is cut off from its cluster together with clients: what it tells them is lost, and no more runs twice.

The judge is what the handlers have started, kept by the test, and what the nodes know as done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from holdfast import Settings
from holdfast.plugin.events import SessionLost
from tests.contracts.redis.test_cluster_under_load import Load
from tests.harness.engine import Bench, numbered
from tests.harness.servers.redis_cluster import RedisCluster
from tests.harness.servers.redis_split import Split
from tests.harness.waiting import until

if TYPE_CHECKING:
    from tests.harness.servers.redis_cluster import Node

pytestmark = pytest.mark.full

SETTINGS = Settings(workers=8, commit_interval_s=0.01)
KEYED: dict[str, Any] = {"key": lambda record: record.value or b""}
PARTITIONS = 4
GUARDED = ("--min-replicas-to-write", "1", "--min-replicas-max-lag", "1")


@pytest.mark.parametrize("lease_s", [2.0, 60.0], ids=["longer than the lease", "shorter"])
@pytest.mark.parametrize(("options", "refusal"), [((), "CLUSTERDOWN"), (GUARDED, "NOREPLICAS")], ids=["", "guarded"])
def test_at_most_what_the_lonely_master_has_acknowledged_runs_again(
    options: tuple[str, ...], refusal: str, lease_s: float
) -> None:
    """The broker is reached from both sides: a member may go on with what it has for as long as its store answers."""
    with (
        RedisCluster(node_timeout_ms=3_000, options=options) as cluster,
        Split(cluster, cluster.master_of("{hf:t:0}")) as split,
        Bench(claims=split.outside(namespace="t", timeout_s=0.5, lease_s=60.0), orders=PARTITIONS) as bench,
    ):
        late = numbered("late", range(100))
        old, replica = split.alone, cluster.replica_of(split.alone)
        inside = split.inside(namespace="t", timeout_s=0.5, lease_s=lease_s)
        a = bench.member("inside", settings=SETTINGS, claims=inside, **KEYED)
        b = bench.member("outside", settings=SETTINGS, **KEYED)
        bench.wait(lambda: a.owns and b.owns)
        load = Load(bench)
        load.begin()
        load.goes_on()
        [number, *_] = sorted(each.number for each in a.owns)
        split.cut()
        bench.broker.produce("orders", number, *late)
        until(lambda: _refused(old, refusal))
        until(lambda: replica.ask("ROLE")[0] in (b"master", "master"))
        if lease_s < 60.0:
            bench.wait(lambda: a.told(SessionLost))
        if not options:  # a guarded one takes nothing either, before it has a replica
            before = len(_of(bench, "outside"))
            bench.wait(lambda: len(_of(bench, "outside")) > before)
        known, again = _done(replica), _of(bench, "inside")
        split.mend()
        load.goes_on()
        load.stop()
        if not a.told(SessionLost):  # with its next renewal it tells the new master
            bench.wait(lambda: set(again) <= _done(replica))
        bench.broker.produce("orders", number, *again)  # its producer sends all of it once more
        for each in range(PARTITIONS):
            bench.wait_committed(load.produced + (len([*late, *again]) if each == number else 0), each)
        lost = a.told(SessionLost)
        assert [a.error, b.error] == [None, None]
        inside.close()
    times = bench.work.starts()
    assert set(times) == {*late, *(f"{each}-{n}" for each in range(PARTITIONS) for n in range(load.produced))}
    twice = {value for value, count in times.items() if count > 1}
    assert max(times.values()) <= 2
    if not lost:
        assert not twice
    elif options:
        assert twice <= set(again) - known
    else:
        assert twice == set(again) - known
        assert twice


def _of(bench: Bench, member: str) -> list[str]:
    with bench.changed:
        return [seen.value for seen in bench.work.ended if seen.member == member]


def _refused(node: Node, code: str) -> bool:
    return bool(node.ask("INFO", "errorstats").get(f"errorstat_{code}"))


def _done(node: Node) -> set[str]:
    """Which values one node knows as done."""
    with node.client() as raw:
        names = [bytes(name) for name in raw.scan_iter(b"*:k:*") if raw.get(name) == b"1"]
    return {name.decode().rpartition(":")[2] for name in names}
