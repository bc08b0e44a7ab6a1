"""A driver with several queries, which stand still at phases of their batches, to be killed there: see kills.py.

    python -m tests.spark.driver FOLDER

FOLDER/plan says what it runs. All queries read one topic; each has a folder of its own in FOLDER.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.spark.gates import DRAINED, Gate
from tests.spark.orders import Judged, judge, read
from tests.spark.session import SHORT_LIFE, local_session
from tests.spark.shapes import Place
from tests.spark.tables import SHAPES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """A query, and where it stands still.

    Args:
        name: of the query, of its sink and of its folder.
        shape: of `SHAPES`.
        phase: see Gate.
        after: as in Gate.
    """

    name: str
    shape: str
    phase: str = ""
    after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a driver does.

    Args:
        bootstrap: of Kafka.
        topic: of the orders.
        redis: the URL.
        aims: the queries.
        per_batch: records at most; None = all that are there.
        sent: so many orders have been sent: judge the sinks in the end, into FOLDER/judged. None: do not.
        postgres: the URL of a database.
    """

    bootstrap: str
    topic: str
    redis: str
    aims: list[Aim] = field(default_factory=list)
    per_batch: int | None = None
    sent: int | None = None
    postgres: str = ""

    def write(self, folder: Path) -> None:
        (folder / "plan").write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(folder: Path) -> Plan:
        found = json.loads((folder / "plan").read_text())
        return Plan(**found | {"aims": [Aim(**each) for each in found["aims"]]})

    def place(self, folder: Path, aim: Aim) -> Place:
        return Place(folder=folder / aim.name, redis=self.redis, name=aim.name, postgres=self.postgres)


def run(spark: SparkSession, folder: Path, plan: Plan) -> None:
    """All queries at once, until nothing is left to read.

    Raises StreamingQueryException: one has failed.
    """
    running = []
    for aim in plan.aims:
        place = plan.place(folder, aim)
        place.folder.mkdir(exist_ok=True)
        gate = Gate(place.folder, aim.phase, aim.after)
        orders = read(spark, plan.bootstrap, plan.topic, plan.per_batch)
        running.append((SHAPES[aim.shape].start(orders, place, gate), gate))
    while running:
        for query, gate in tuple(running):
            if not query.isActive:
                query.awaitTermination()  # it raises what the query has failed with
                gate.stand(DRAINED, -1)
                running.remove((query, gate))
        time.sleep(0.1)


def judged(spark: SparkSession, folder: Path, plan: Plan, sent: int) -> dict[str, Judged]:
    """What is in the sinks, by the query's name."""
    return {aim.name: judge(SHAPES[aim.shape].rows(spark, plan.place(folder, aim)), sent) for aim in plan.aims}


if __name__ == "__main__":
    into = Path(sys.argv[1])
    planned = Plan.read(into)
    session = local_session(into / "warehouse", SHORT_LIFE)
    run(session, into, planned)
    if planned.sent is not None:
        found = judged(session, into, planned, planned.sent)
        (into / "judged").write_text(json.dumps({name: asdict(each) for name, each in found.items()}))
