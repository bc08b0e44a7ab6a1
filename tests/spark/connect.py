"""A stream through the sink under Spark Connect, its server killed on the way: `make compat`.

python -m tests.spark.connect
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession, functions

from holdfast.adapters.spark import drop_done, idempotent_sink, reason, require_java, writers
from tests.harness.processes import ServerFailed, kill_session, spawn, started, tail
from tests.harness.servers.redis import RedisServer
from tests.harness.waiting import until
from tests.spark.session import CONF

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Mapping

    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from holdfast.adapters.spark import BatchReport, BatchWrite, IdempotentSink
    from holdfast.adapters.spark._pyspark import DataFrame
    from holdfast.adapters.spark.values import Writer

_SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PATIENCE_S = 600.0
_STARTS = 10


class ConnectServer:
    """One server of Spark Connect, on loopback, in a session of processes of its own. Kill it.

    Args:
        folder: of its log and its warehouse.
        master: of its Spark.
        conf: wins over what is usual here.

    Raises:
        ServerFailed: it does not start.
    """

    def __init__(self, folder: Path, master: str = "local[2]", conf: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._master, self._conf = master, dict(conf or {})
        self._log = folder / "server.log"
        self._port = 0
        self._process = started(0, self._spawn, self._answers)
        if self._process is None:
            raise ServerFailed(f"Spark Connect did not start:\n{tail(self._log)}")

    @property
    def url(self) -> str:
        return f"sc://127.0.0.1:{self._port}"

    def kill(self) -> None:
        """SIGKILL, with its Python workers."""
        if self._process is not None:
            kill_session(self._process)

    def _spawn(self, port: int) -> subprocess.Popen[bytes]:
        self._port = port
        home = Path(pyspark.__file__).parent
        conf = {
            **CONF,
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            **self._conf,
        }
        command = [str(home / "bin" / "spark-submit"), "--master", self._master, "--class", _SERVER]
        for name, value in conf.items():
            command += ["--conf", f"{name}={value}"]
        # Its workers find holdfast where this process does: installed, or by PYTHONPATH.
        ours = {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        return spawn([*command, "spark-internal"], self._log, environment={**os.environ, **ours})

    def _answers(self, process: subprocess.Popen[bytes]) -> bool:
        patience = time.monotonic() + _PATIENCE_S
        while process.poll() is None and time.monotonic() < patience:
            try:
                socket.create_connection(("127.0.0.1", self._port), timeout=1.0).close()
            except OSError:
                time.sleep(0.2)
            else:
                return True
        return False


class Files:
    """What the client and the server's Python worker both see. What runs there is cloudpickled: paths travel."""

    def __init__(self, folder: Path) -> None:
        self.come, self.out, self.reports = folder / "in", folder / "out", folder / "reports"
        self.written, self.go = folder / "written", folder / "go"
        self.checkpoint = folder / "checkpoint"
        self.come.mkdir()

    def overwrite(self, rows: DataFrame, batch: BatchWrite) -> None:
        """A user's function, safe by "replace". It stands still after its write until `go` is there."""
        rows.write.mode("overwrite").parquet(str(self.out / batch.query / str(batch.batch)))
        self.written.touch()
        while not self.go.exists():
            time.sleep(0.05)

    def observe(self, report: BatchReport) -> None:
        """On the server: nothing that it changes in memory comes back."""
        with self.reports.open("a") as file:
            counts = (report.rows, report.owned, report.copies, report.skipped, report.taken_over)
            file.write(f"{report.batch} by attempt {report.attempt}: {counts}\n")

    def beside(self, name: str) -> Files:
        """Others, for another query."""
        folder = self.come.parent / name
        folder.mkdir()
        return Files(folder)

    def keep(self, rows: DataFrame, batch: BatchWrite) -> None:
        """A user's function, for a sink that upserts: what each attempt has written stays."""
        rows.write.mode("overwrite").parquet(str(self.out / batch.sink / f"{batch.batch}-{batch.attempt}"))

    def rows(self, spark: SparkSession) -> list[tuple[str, int]]:
        found = spark.read.parquet(str(self.out / "*" / "*")).collect()
        return sorted((row.order_id, row.amount) for row in found)


def start(
    spark: SparkSession, files: Files, sink: Callable[[DataFrame, int], None], checkpoint: str = ""
) -> StreamingQuery:
    rows = spark.readStream.schema("order_id string, amount int").json(str(files.come))
    writer = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
    return started_well(writer.option("checkpointLocation", f"{files.checkpoint}{checkpoint}"))


def started_well(writer: DataStreamWriter) -> StreamingQuery:
    """Start it; again where the server's Python worker came too late."""
    for _ in range(_STARTS - 1):
        try:
            return writer.start()
        except PySparkException as error:  # Spark gives a worker 10 s to start: too little on a busy machine
            print(f"started again: {str(error).splitlines()[0]}", flush=True)
    return writer.start()


def connected(server: ConnectServer) -> SparkSession:
    session: SparkSession = SparkSession.builder.remote(server.url).create()
    return session


def run(serve: Callable[[], ConnectServer], claims: str, files: Files) -> str:
    """The server dies between write and finish; the query goes on from its checkpoint; what is refused; `drop_done`.

    Returns Spark's version.
    """
    sink = idempotent_sink(
        "orders",
        key="order_id",
        claims=claims,
        query="q",
        write=files.overwrite,
        safe="replace",
        observer=files.observe,
        hash_keys=True,
    )
    (files.come / "0.json").write_text(
        '{"order_id": "a", "amount": 1}\n{"order_id": "b", "amount": 2}\n{"order_id": "b", "amount": 2}\n'
    )
    first = serve()
    query = start(connected(first), files, sink)
    while not files.written.exists():
        assert query.isActive, query.exception()
        time.sleep(0.2)
    first.kill()
    files.go.touch()

    spark = connected(serve())
    start(spark, files, sink).awaitTermination()
    (files.come / "1.json").write_text('{"order_id": "a", "amount": 1}\n{"order_id": "c", "amount": 3}\n')
    start(spark, files, sink).awaitTermination()  # from the checkpoint
    assert files.rows(spark) == [("a", 1), ("b", 2), ("c", 3)]
    told = files.reports.read_text().splitlines()
    assert told == ["0 by attempt 2: (3, 2, 1, 0, 2)", "1 by attempt 3: (2, 1, 0, 1, 0)"], told

    unnamed = idempotent_sink("orders", key="order_id", claims=claims, write=files.overwrite, safe="replace")
    with pytest.raises(StreamingQueryException) as refused:
        start(spark, files, unnamed, "-unnamed").awaitTermination()
    assert reason(refused.value) == "query=None: Spark Connect tells no id of the query: give query='a name that stays'"
    lake = str(files.out.with_name("lake"))
    need_jvm: list[Writer] = [writers.partition(lake), writers.delta_merge(lake), writers.delta_replace(lake)]
    for number, writer in enumerate(need_jvm):
        sink = idempotent_sink("lake", key="order_id", claims=claims, query=f"q{number}", write=writer, hash_keys=True)
        with pytest.raises(StreamingQueryException) as refused:
            start(spark, files, sink, f"-lake-{number}").awaitTermination()
        assert "Spark Connect" in (reason(refused.value) or ""), refused.value

    number_again(spark, files.beside("again"), claims)
    two_sinks_in_threads(spark, files.beside("threads"), claims)

    rows = spark.createDataFrame([("a", 1), ("d", 1)], "order_id string, amount int")
    left = drop_done(rows, key="order_id", claims=claims, scope="orders", hash_keys=True)
    assert [row.order_id for row in left.collect()] == ["d"]
    return str(spark.version)


def number_again(spark: SparkSession, files: Files, claims: str) -> None:
    """A new checkpoint under an old name: batch 0 comes again with other rows, when Redis has forgotten the keys of the
    first. Connect tells no origin of a batch, and what is not known is refused."""
    sink = idempotent_sink(
        "again",
        key="order_id",
        claims=claims,
        namespace="again",
        query="again",
        write=files.keep,
        safe="upsert",
        remember_s=2.0,
    )
    (files.come / "0.json").write_text('{"order_id": "old", "amount": 1}\n')
    start(spark, files, sink).awaitTermination()
    old = spark.createDataFrame([("old", 1)], "order_id string, amount int")
    forgotten = drop_done(old, key="order_id", claims=claims, scope="again", namespace="again")
    until(lambda: forgotten.count() == 1, "the key is not forgotten")
    (files.come / "0.json").unlink()
    (files.come / "1.json").write_text('{"order_id": "new", "amount": 1}\n')
    with pytest.raises(StreamingQueryException) as refused:
        start(spark, files, sink, "-anew").awaitTermination()
    assert "batch 0 " in (reason(refused.value) or ""), refused.value


def two_sinks_in_threads(spark: SparkSession, files: Files, claims: str) -> None:
    """Two sinks of one batch, in threads, whose keys are others each time that they are computed: what each writes it
    has claimed."""
    sinks = [
        idempotent_sink(
            name, key="order_id", claims=claims, namespace="threads", query="t", write=files.keep, safe="replace"
        )
        for name in ("one", "two")
    ]

    def both(rows: DataFrame, batch: int) -> None:
        fresh = rows.withColumn("order_id", functions.expr("uuid()"))
        failed: list[BaseException] = []

        def put(sink: IdempotentSink) -> None:
            try:
                sink(fresh, batch)
            except BaseException as error:  # noqa: BLE001 - raised below
                failed.append(error)

        threads = [threading.Thread(target=put, args=[each]) for each in sinks]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        if failed:
            raise failed[0]

    (files.come / "0.json").write_text("".join(f'{{"order_id": "{n}", "amount": {n}}}\n' for n in range(20)))
    start(spark, files, both).awaitTermination()
    for name in ("one", "two"):
        written = spark.read.parquet(str(files.out / name / "*"))
        assert written.count() == 20, written.count()
        assert drop_done(written, key="order_id", claims=claims, scope=name, namespace="threads").count() == 0


if __name__ == "__main__":
    java = require_java()
    servers: list[ConnectServer] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-connect-") as made, RedisServer() as redis:
        folder = Path(made)

        def serve() -> ConnectServer:
            """One more."""
            servers.append(ConnectServer(folder))
            return servers[-1]

        try:
            version = run(serve, redis.url, Files(folder))
        finally:
            for each in servers:
                each.kill()
    print(f"pyspark {version} under Spark Connect, Java {java}, Python {sys.version.split()[0]}: works", flush=True)
    os._exit(0)  # at its exit a client asks a server that is dead, for minutes
