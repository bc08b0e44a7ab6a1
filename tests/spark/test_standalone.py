"""A standalone cluster, two workers with executors of their own, over a Redis Cluster: whatever dies, at each phase.

`--seed` draws the phases' order and the workers.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.harness.processes import kill_session, ran_well, spawn, tail
from tests.harness.servers.spark_standalone import SparkStandalone
from tests.harness.waiting import until
from tests.spark import connect_standalone, stateful, wide
from tests.spark.connect import ConnectServer
from tests.spark.kills import ROOT, executors
from tests.spark.session import SHORT_LIFE
from tests.spark.standalone import CONF, FIRST_DIES, FIRST_STANDS, PHASES, Aims, Plan, put

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tests.harness.servers.redis_cluster import RedisCluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]

_NEW, _AGAIN = 8_000, 800
_PATIENCE_S = 300.0
_SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "0ms",
}
_DYNAMIC = {
    "spark.executor.cores": "1",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.initialExecutors": "3",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "3",
    "spark.dynamicAllocation.executorIdleTimeout": "1s",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout": "1s",
    "spark.dynamicAllocation.shuffleTracking.timeout": "1s",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SparkStandalone]:
    with SparkStandalone() as made:
        yield made


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """`--seed`: in which batch what phase has its turn, and on which worker."""
    return random.Random(request.config.getoption("--seed"))


class Query:
    """The driver, and what it is to read: in each batch new keys, some of them twice, and some of the batch before."""

    module = "tests.spark.standalone"

    def __init__(self, folder: Path, batches: int, plan: Plan) -> None:
        self.folder, self.aims, self.plan = folder, Aims(folder), plan
        self._log = folder / "log"
        for batch in range(batches):
            new = range(batch * _NEW, (batch + 1) * _NEW)
            old = range(max(0, new[0] - _AGAIN), new[0])
            put(folder, batch, [f"k{n}" for n in (*new, *old, *new[:_AGAIN])])
        self._driver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.plan.write(self.folder)
        self._driver = spawn([sys.executable, "-m", self.module, str(self.folder)], self._log, cwd=ROOT)

    def kill(self) -> None:
        """With its JVM. Its executors are left alone: they see it by themselves."""
        if self._driver is not None:
            kill_session(self._driver)

    def until(self, there: Callable[[], object]) -> None:
        def look() -> bool:
            assert self._driver is not None
            assert self._driver.poll() in (None, 0), tail(self._log)
            return bool(there())

        until(look, lambda: tail(self._log), patience_s=_PATIENCE_S)

    def until_stands(self, batch: int, phase: str) -> None:
        self.until(lambda: self.aims.stands(batch, phase))

    def found(self) -> dict[str, int]:
        """What is in the lake, when all was read."""
        self.until(lambda: self._driver is not None and self._driver.poll() == 0)
        return dict(json.loads((self.folder / "found").read_text()))


class ConnectQuery(Query):
    """By Spark Connect: a server of it is the driver, and is killed with the client."""

    module = "tests.spark.connect_standalone"

    def __init__(self, folder: Path, batches: int, plan: Plan) -> None:
        super().__init__(folder, batches, plan)
        self._master = plan.master
        self._server: ConnectServer | None = None

    def start(self) -> None:
        self._server = ConnectServer(self.folder, self._master, CONF | SHORT_LIFE)
        self.plan = replace(self.plan, master=self._server.url)
        super().start()

    def kill(self) -> None:
        super().kill()
        if self._server is not None:
            self._server.kill()


@contextmanager
def query(
    folder: Path,
    batches: int,
    cluster: SparkStandalone,
    redis: RedisCluster,
    conf: Mapping[str, str] | None = None,
    *,
    kind: type[Query] = Query,
    **how: bool,
) -> Iterator[Query]:
    plan = Plan(master=cluster.url, redis=redis.url, sent=batches * _NEW, conf=dict(conf or {}), **how)
    made = kind(folder, batches, plan)
    try:
        yield made
    finally:
        made.kill()
        cluster.await_idle()


def kill_executor(cluster: SparkStandalone, query: Query, worker: int) -> None:
    for pid in executors(cluster.workers[worker].pid):
        os.kill(pid, signal.SIGKILL)


def switch_worker_off(cluster: SparkStandalone, query: Query, worker: int) -> None:
    gone = cluster.workers[worker]
    gone.switch_off()
    cluster.replace(gone)


def kill_driver(cluster: SparkStandalone, query: Query, worker: int) -> None:
    query.kill()
    query.start()


def kill_master(cluster: SparkStandalone, query: Query, worker: int) -> None:
    """And executors while it is away: others come by the master that is started again."""
    cluster.master.kill()
    kill_executor(cluster, query, worker)
    cluster.master.restart()


Kill = Callable[[SparkStandalone, Query, int], None]


def kill_at_each(
    phases: Sequence[str], kill_it: Kill, cluster: SparkStandalone, running: Query, chance: random.Random
) -> None:
    """A phase a batch."""
    drawn = list(enumerate(chance.sample(phases, len(phases))))
    for batch, phase in drawn:
        running.aims.aim(batch, phase)
    running.start()
    for batch, phase in drawn:
        running.until_stands(batch, phase)
        kill_it(cluster, running, chance.randrange(2))
        running.aims.let_go(batch, phase)
    assert running.found() == {"lost": 0, "doubled": 0}


@pytest.mark.parametrize(
    ("kill_it", "hash_keys"), [(kill_executor, False), (switch_worker_off, True), (kill_driver, True)]
)
def test_what_is_killed_at_each_phase_loses_nothing_and_doubles_nothing(
    kill_it: Kill,
    hash_keys: bool,
    cluster: SparkStandalone,
    redis_cluster: RedisCluster,
    tmp_path: Path,
    chance: random.Random,
) -> None:
    with query(tmp_path, len(PHASES), cluster, redis_cluster, hash_keys=hash_keys) as running:
        kill_at_each(PHASES, kill_it, cluster, running, chance)


def test_by_spark_connect_executors_killed_at_each_phase_lose_nothing_and_double_nothing(
    cluster: SparkStandalone, redis_cluster: RedisCluster, tmp_path: Path, chance: random.Random
) -> None:
    phases = connect_standalone.PHASES
    with query(tmp_path, len(phases), cluster, redis_cluster, kind=ConnectQuery, hash_keys=True) as running:
        kill_at_each(phases, kill_executor, cluster, running, chance)


def test_with_a_state_above_the_sink_a_driver_killed_at_each_phase_loses_nothing_and_doubles_nothing(
    cluster: SparkStandalone, redis_cluster: RedisCluster, tmp_path: Path, chance: random.Random
) -> None:
    with query(tmp_path, len(PHASES), cluster, redis_cluster, stateful.CONF, state=True) as running:
        kill_at_each(PHASES, kill_driver, cluster, running, chance)


def test_a_master_that_is_killed_and_recovers_costs_nothing_but_time(
    cluster: SparkStandalone, redis_cluster: RedisCluster, tmp_path: Path, chance: random.Random
) -> None:
    phases = ("claiming", "writing", "written")
    with query(tmp_path, len(phases), cluster, redis_cluster) as running:
        kill_at_each(phases, kill_master, cluster, running, chance)


def test_a_master_that_has_forgotten_all_takes_the_executors_away_and_the_next_start_of_the_query_goes_on(
    cluster: SparkStandalone, redis_cluster: RedisCluster, tmp_path: Path
) -> None:
    with query(tmp_path, 2, cluster, redis_cluster) as running:
        running.aims.aim(0, "writing")
        running.start()
        running.until_stands(0, "writing")
        cluster.master.kill()
        cluster.master.forget()
        cluster.master.restart()
        running.until(lambda: not any(executors(worker.pid) for worker in cluster.workers))
        running.aims.let_go(0, "writing")
        kill_driver(cluster, running, 0)
        assert running.found() == {"lost": 0, "doubled": 0}


def test_tasks_that_are_tried_again_and_speculative_copies_lose_nothing_and_double_nothing(
    cluster: SparkStandalone, redis_cluster: RedisCluster, tmp_path: Path
) -> None:
    batches = [(phase, what) for what in (FIRST_STANDS, FIRST_DIES) for phase in ("claiming", "writing")]
    with query(tmp_path, len(batches), cluster, redis_cluster, _SPECULATION) as running:
        for batch, (phase, what) in enumerate(batches):
            running.aims.aim(batch, phase, what)
        running.start()
        assert running.found() == {"lost": 0, "doubled": 0}
        for batch, (phase, _) in enumerate(batches):
            assert running.aims.stands(batch, phase) == 1
            assert "0.1" in running.aims.passed(batch, phase)


def test_executors_that_come_and_go_lose_nothing_and_double_nothing(
    cluster: SparkStandalone, redis_cluster: RedisCluster, tmp_path: Path
) -> None:
    with query(tmp_path, 2, cluster, redis_cluster, _DYNAMIC) as running:
        for phase in ("claimed", "writing"):
            running.aims.aim(0, phase)
        running.start()
        running.until_stands(0, "claimed")
        running.until(lambda: cluster.cores_used() == 1)  # what the others had of rows and claims went with them
        running.aims.let_go(0, "claimed")
        running.until_stands(0, "writing")
        running.until(lambda: cluster.cores_used() > 1)
        running.aims.let_go(0, "writing")
        assert running.found() == {"lost": 0, "doubled": 0}


def test_200_partitions_and_half_a_million_rows_of_one_key(
    cluster: SparkStandalone, redis_cluster: RedisCluster, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    command = [sys.executable, "-m", "tests.spark.wide", str(tmp_path), cluster.url, redis_cluster.url]
    driver = spawn(command, log, cwd=ROOT)
    ran_well(driver, log, 1000)
    found = json.loads((tmp_path / "found").read_text())
    seen = {name: (each["lost"], each["doubled"], each["first"]) for name, each in found.items()}
    assert seen == {each.name: (0, 0, max(0, each.hot - 1)) for each in wide.BATCHES}
    cluster.await_idle()
