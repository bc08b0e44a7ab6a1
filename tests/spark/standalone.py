"""A driver on a standalone cluster: one query, whose batches stand still where a file says so, on driver and executors.

    python -m tests.spark.standalone FOLDER

FOLDER/plan says what it runs on; FOLDER/aims/BATCH-PHASE where it stands: as long as that file is there. When nothing
is left to read, what is in the lake goes to FOLDER/found.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext

from holdfast.adapters.spark import idempotent_sink, writers
from holdfast.adapters.spark.store import StoreAt
from tests.spark import stateful
from tests.spark.session import SHORT_LIFE, local_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from holdfast.adapters.spark import BatchReport, BatchWrite, IdempotentSink
    from holdfast.adapters.spark.values import Safe
    from holdfast.dedup.redis_spark_batches import RedisBatches
    from holdfast.dedup.spark_batches import Attempt

#: Nothing is claimed yet; each task has some of its claims; all is claimed; each task writes; written and not finished;
#: finished and without a mark; all is done but Spark's commit.
PHASES = ("begun", "claiming", "claimed", "writing", "written", "finished", "settled")
#: What an aim says: all stand; the first try of the first task does, or dies.
STAND, FIRST_STANDS, FIRST_DIES = "stand", "first stands", "first dies"
FILES = 4
_ORDER = "order_id string, batch int"
_ROOT = str(Path(__file__).parents[2])
#: Of a driver here, and of its executors.
CONF = {
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": _ROOT,
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.files.openCostInBytes": "1000000000",  # a task a file
    "spark.python.worker.reuse": "true",
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a driver does. `conf` wins over what is usual here; `sent`: keys; `state`: stateful.py is above the sink."""

    master: str
    redis: str
    sent: int
    hash_keys: bool = False
    state: bool = False
    conf: dict[str, str] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        (folder / "plan").write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(folder: Path) -> Plan:
        return Plan(**json.loads((folder / "plan").read_text()))


def put(folder: Path, batch: int, keys: list[str]) -> None:
    """The files of a batch."""
    into = folder / "orders"
    into.mkdir(exist_ok=True)
    for n in range(FILES):
        path = into / f"{batch:03}-{n}.json"
        lines = "".join(f'{{"order_id": "{key}", "batch": {batch}}}\n' for key in keys[n::FILES])
        path.write_text(lines)
        os.utime(path, (1_700_000_000 + batch * FILES + n,) * 2)  # the order in which Spark reads them


class Aims:
    """Where to stand. For both sides: who aims, and who is aimed at. Pickles."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def aim(self, batch: int, phase: str, what: str = STAND) -> None:
        self._path(batch, phase).parent.mkdir(exist_ok=True)
        self._path(batch, phase).write_text(what)

    def stands(self, batch: int, phase: str) -> int:
        """How many stand there, or have died there."""
        return len(list(self._path(batch, phase).parent.glob(f"{batch}-{phase}.*")))

    def let_go(self, batch: int, phase: str) -> None:
        self._path(batch, phase).unlink()

    def at(self, phase: str, batch: int) -> None:
        """Called where it may have to stand; in a task each time at which it may die."""
        aim = self._path(batch, phase)
        try:
            what = aim.read_text()
        except FileNotFoundError:
            return
        task = TaskContext.get()
        name = "driver" if task is None else f"{task.partitionId()}.{task.attemptNumber()}"
        if what != STAND and name != "0.0":
            aim.with_name(f"{aim.name}-passed.{name}").touch()
            return
        aim.with_name(f"{aim.name}.{name}").touch()
        if what == FIRST_DIES:
            os.kill(os.getpid(), signal.SIGKILL)
        while aim.exists():
            time.sleep(0.01)

    def passed(self, batch: int, phase: str) -> set[str]:
        """Partition and number of the tries that did not have to stand."""
        found = self._path(batch, phase).parent.glob(f"{batch}-{phase}-passed.*")
        return {each.name.partition(".")[2] for each in found}

    def _path(self, batch: int, phase: str) -> Path:
        return self.folder / "aims" / f"{batch}-{phase}"


class StandingBatches:
    """A task's way to Redis: it stands when it has its first claims."""

    def __init__(self, batches: RedisBatches, aims: Aims) -> None:
        self._batches = batches
        self._aims = aims

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batches, name)

    def claim_texts(self, attempt: Attempt, keys: Any) -> bytes:
        return self._stand(self._batches.claim_texts, attempt, keys)

    def claim_digests(self, attempt: Attempt, digests: bytes) -> bytes:
        return self._stand(self._batches.claim_digests, attempt, digests)

    def _stand(self, claim: Callable[[Attempt, Any], bytes], attempt: Attempt, keys: Any) -> bytes:
        found = claim(attempt, keys)
        self._aims.at("claiming", attempt.of.batch)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class StandingAt(StoreAt):
    """Where Redis is. Args: folder: of the aims."""

    folder: str = ""

    def batches(self) -> RedisBatches:
        return StandingBatches(StoreAt.batches(self), Aims(Path(self.folder)))  # type: ignore[return-value]


def writing(rows: DataFrame, aims: Aims, batch: BatchWrite) -> DataFrame:
    """The same rows, whose tasks stand at "writing"."""
    of = batch.batch

    def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for some in batches:
            yield some
            aims.at("writing", of)

    return rows.mapInArrow(through, rows.schema)


class StandingWriter:
    """The lake's, which stands at each phase."""

    safe: Safe = "replace"

    def __init__(self, folder: Path) -> None:
        self._aims = Aims(folder)
        self._writer = writers.partition(str(folder / "lake"))

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        self._aims.at("begun", batch.batch)
        return self._writer.finished(spark, batch)

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        self._aims.at("claimed", batch.batch)
        self._writer.write(writing(rows, self._aims, batch), batch)
        self._aims.at("written", batch.batch)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        self._aims.at("finished", attempt.of.batch)
        self._writer.confirm(spark, attempt)

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        return self._writer.lacking(rows, batch)

    def observe(self, report: BatchReport) -> None:
        self._aims.at("settled", report.batch)


def orders(spark: SparkSession, folder: Path) -> DataFrame:
    """The stream of them, a batch of `put` a batch."""
    stream = spark.readStream.schema(_ORDER).option("maxFilesPerTrigger", FILES)
    return stream.json(str(folder / "orders"))


def standing(sink: IdempotentSink, folder: Path) -> IdempotentSink:
    """Its tasks stand at "claiming"."""
    told = {name: getattr(sink.at, name) for name in StoreAt.__slots__}
    return replace(sink, at=StandingAt(**told, folder=str(folder)))


def judged(written: DataFrame, plan: Plan) -> dict[str, int]:
    """What is wrong with the orders that were written."""
    keys = Counter(row.order_id for row in written.select("order_id").collect())
    return {"lost": plan.sent - len(keys), "doubled": sum(n > 1 for n in keys.values())}


def run(folder: Path, plan: Plan) -> None:
    """From the checkpoint to the end."""
    spark = local_session(
        folder / "warehouse", CONF | SHORT_LIFE | {"spark.master": plan.master} | plan.conf, connectors=False
    )
    writer = StandingWriter(folder)
    sink = idempotent_sink(
        "orders",
        key=stateful.KEY if plan.state else "order_id",
        claims=plan.redis,
        write=writer,
        observer=writer.observe,
        hash_keys=plan.hash_keys,
        keys_expected=10_000,
    )
    rows = orders(spark, folder)
    stream = (stateful.lines(rows) if plan.state else rows).writeStream.outputMode("update")
    stream = stream.foreachBatch(standing(sink, folder)).trigger(availableNow=True)
    stream.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
    written = writers.partition(str(folder / "lake")).read(spark)
    read = spark.read.schema(_ORDER).json(str(folder / "orders"))
    found = stateful.judged(written, read) if plan.state else judged(written, plan)
    (folder / "found").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    run(Path(sys.argv[1]), Plan.read(Path(sys.argv[1])))
