"""kill -9 of a driver with all it has started, and what another one makes of it; with real Kafka. More: chaos.py."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.spark import orders
from tests.spark.driver import Aim, Plan, judged, run
from tests.spark.gates import PHASES
from tests.spark.kills import Drivers

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.harness.servers.kafka import KafkaServer
    from tests.harness.servers.postgres import PostgresServer

pytestmark = pytest.mark.full

_ORDERS = 200
#: Whose checkpoint is deleted after the kill: what it has written and not finished is never written again.
_DELETED = "at-written"
#: All phases of these: `make chaos ON=spark`.
_TABLES = (("postgres", "written"), ("delta-merge", "written"), ("delta-replace", "written"))


@pytest.mark.timeout(1800)
def test_a_driver_killed_at_each_phase_loses_nothing_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, kafka: KafkaServer, redis_url: str, postgres: PostgresServer
) -> None:
    kafka.create_topic("killed", 2)
    orders.send(kafka.bootstrap, "killed", [*range(_ORDERS), *range(_ORDERS)])  # and the producers send all again
    # A start of Spark is dear: one driver has a query for each phase, and is killed when each stands there.
    aims = [Aim(name=f"at-{phase}", shape="partition", phase=phase) for phase in PHASES]
    aims += [Aim(name=shape, shape=shape, phase=phase) for shape, phase in _TABLES]
    plan = Plan(
        bootstrap=kafka.bootstrap,
        topic="killed",
        redis=redis_url,
        aims=aims,
        per_batch=_ORDERS,
        postgres=postgres.database(),
    )
    killed_at = Drivers(tmp_path).run_and_kill(plan)
    assert killed_at == {aim.name: f"{aim.phase} 0" for aim in aims}

    shutil.rmtree(tmp_path / _DELETED / "checkpoint")
    rest = replace(plan, aims=[replace(aim, phase="") for aim in aims], per_batch=None)
    run(spark, tmp_path, rest)
    found = judged(spark, tmp_path, rest, _ORDERS)
    assert {name: (each.lost, each.doubled) for name, each in found.items()} == dict.fromkeys(found, (0, 0))

    passed = {aim.name: (tmp_path / aim.name / "passed").read_text().splitlines() for aim in aims}
    assert [name for name, phases in passed.items() if "skipped 0" in phases] == ["at-finished", "at-settled"]
