"""A standalone cluster, two workers with executors of their own, over a Redis Cluster: whatever dies, at each phase."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.harness.processes import kill_session, ran_well, spawn, tail
from tests.harness.servers.spark_standalone import SparkStandalone
from tests.harness.waiting import until
from tests.spark import wide
from tests.spark.kills import ROOT, executors
from tests.spark.standalone import FIRST_DIES, FIRST_STANDS, PHASES, Aims, Plan, put

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.harness.servers.redis_cluster import RedisCluster

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

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


class Query:
    """The driver, and what it is to read: in each batch new keys, some of them twice, and some of the batch before."""

    def __init__(self, folder: Path, batches: int, cluster: SparkStandalone, plan: Plan) -> None:
        self.folder, self.aims = folder, Aims(folder)
        self._cluster, self._log = cluster, folder / "log"
        plan.write(folder)
        for batch in range(batches):
            new = range(batch * _NEW, (batch + 1) * _NEW)
            old = range(max(0, new[0] - _AGAIN), new[0])
            put(folder, batch, [f"k{n}" for n in (*new, *old, *new[:_AGAIN])])
        self._driver: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._driver = spawn([sys.executable, "-m", "tests.spark.standalone", str(self.folder)], self._log, cwd=ROOT)

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


@contextmanager
def query(
    folder: Path,
    batches: int,
    cluster: SparkStandalone,
    redis: RedisCluster,
    conf: Mapping[str, str] | None = None,
    *,
    hash_keys: bool = False,
) -> Iterator[Query]:
    plan = Plan(master=cluster.url, redis=redis.url, sent=batches * _NEW, hash_keys=hash_keys, conf=dict(conf or {}))
    made = Query(folder, batches, cluster, plan)
    try:
        yield made
    finally:
        made.kill()
        cluster.await_idle()


def kill_executor(cluster: SparkStandalone, query: Query, turn: int) -> None:
    for pid in executors(cluster.workers[turn % 2].pid):
        os.kill(pid, signal.SIGKILL)


def switch_worker_off(cluster: SparkStandalone, query: Query, turn: int) -> None:
    worker = cluster.workers[turn % 2]
    worker.switch_off()
    cluster.replace(worker)


def kill_driver(cluster: SparkStandalone, query: Query, turn: int) -> None:
    query.kill()
    query.start()


@pytest.mark.parametrize(
    ("kill_it", "hash_keys"), [(kill_executor, False), (switch_worker_off, True), (kill_driver, True)]
)
def test_what_is_killed_at_each_phase_loses_nothing_and_doubles_nothing(
    kill_it: Callable[[SparkStandalone, Query, int], None],
    hash_keys: bool,
    cluster: SparkStandalone,
    redis_cluster: RedisCluster,
    tmp_path: Path,
) -> None:
    with query(tmp_path, len(PHASES), cluster, redis_cluster, hash_keys=hash_keys) as running:
        for batch, phase in enumerate(PHASES):
            running.aims.aim(batch, phase)
        running.start()
        for batch, phase in enumerate(PHASES):
            running.until_stands(batch, phase)
            kill_it(cluster, running, batch)
            running.aims.let_go(batch, phase)
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
