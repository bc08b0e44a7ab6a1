"""A Delta table, with the sink's state beside its data.

The commit of an attempt's rows has a transaction identifier in the table's log: "holdfast/<sink>", with the attempt's
fence as its version. Delta skips a commit if the log has a higher version, and refuses one that another commit has
overtaken. Therefore an attempt that does not count any more changes nothing, however late it commits. Delta skips
without an error, so `check` asks before a write and `fenced` after it.

A file beside the log marks an attempt that Redis has as finished. Delta's readers and VACUUM skip names that begin with
"_":

    <table>/_holdfast/<sink>/<query>/<batch>/<fence>     empty; the last batch of each query
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.spark._pyspark import JavaPackage, types
from holdfast.adapters.spark.keys import quoted
from holdfast.adapters.spark.values import BatchFenced, BatchRefused
from holdfast.adapters.spark.writers.files import Files, check_path
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.values import BatchWrite
    from holdfast.dedup.spark_batches import Attempt

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
_REMEDY = (
    "start Spark with spark.jars.packages=io.delta:delta-spark_4.2_2.13:4.4.0, "
    f"spark.sql.extensions={_EXTENSION} and spark.sql.catalog.spark_catalog={_CATALOG}"
)


class Log(NamedTuple):
    """The log of a table at one version."""

    version: int
    fence: int | None  #: the fence of the sink's last attempt that has written
    others: tuple[str, ...]  #: other sinks that have written


class Table:
    """A Delta table.

    Args:
        spark: the session of the batch.
        at: a path, or a name in the catalog.

    Raises:
        SettingError: the session has no Delta.
    """

    def __init__(self, spark: SparkSession, at: str) -> None:
        self._spark = spark
        self._at = at
        self._files = Files(spark)  # first: it has the error for Spark Connect
        jvm: Any = spark._jvm  # noqa: SLF001 - pyspark has no public way to it
        self._delta_log = jvm.org.apache.spark.sql.delta.DeltaLog
        if isinstance(self._delta_log, JavaPackage):
            raise SettingError("write", "delta", f"Spark has no Delta here: {_REMEDY}")

    @property
    def name(self) -> str:
        """The table's name in SQL."""
        return f"delta.{quoted(self._at)}" if is_path(self._at) else self._at

    @property
    def there(self) -> bool:
        """Whether the table exists. A log without a commit is no table: a driver that died while it created the table
        has left it."""
        if is_path(self._at):
            return int(self._snapshot(self._at).version()) >= 0
        return bool(self._spark.catalog.tableExists(self._at))

    @property
    def columns(self) -> types.StructType:
        """The table's current columns. It must exist."""
        return types.StructType.fromJson(json.loads(self._snapshot(self.path).schema().json()))

    @property
    def path(self) -> str:
        """The table's folder. It must exist. Raises SettingError: the folder's name is a pattern."""
        if is_path(self._at):
            return self._at
        with told_of_confs(self._spark):
            folder = str(self._spark.sql(f"DESCRIBE DETAIL {self.name}").collect()[0].location)
        check_path("table", folder)
        return folder

    def make(self, rows: DataFrame, partition_by: tuple[str, ...] = ()) -> None:
        """Create the table if it does not exist, with the columns of the rows and without the rows."""
        if not self.there:
            writer = rows.limit(0).write.format("delta").mode("ignore").partitionBy(*partition_by)
            with told_of_confs(self._spark):
                writer.save(self._at) if is_path(self._at) else writer.saveAsTable(self._at)

    def log(self, sink: str) -> Log:
        """The table's current log. It must exist."""
        snapshot = self._snapshot(self.path)
        found = snapshot.setTransactions()
        each = (found.apply(i) for i in range(found.size()))
        fences = {str(one.appId()): int(one.version()) for one in each if str(one.appId()).startswith(app(""))}
        fence = fences.pop(app(sink), None)
        return Log(int(snapshot.version()), fence, tuple(sorted(name.removeprefix(app("")) for name in fences)))

    def _snapshot(self, path: str) -> Any:  # noqa: ANN401 - Java's
        return self._delta_log.forTableWithSnapshot(self._spark._jsparkSession, path)._2()  # noqa: SLF001 - as above

    def check(self, batch: BatchWrite, *, alone: bool = False) -> int | None:
        """Check before a write. Returns the fence of the sink's last attempt that has written.

        Args:
            batch: the batch of this attempt.
            alone: no other sink may have written to the table.

        Raises:
            BatchFenced: the last fence is not below this attempt's.
            SettingError: another sink has written to the table.
        """
        _, fence, others = self.log(batch.sink)
        if alone and others:
            raise SettingError(
                "table",
                self._at,
                f"sink {others[0]!r} writes there, and sink {batch.sink!r} would show its unfinished rows, or remove "
                "rows of it: give each sink of delta_replace a table of its own, and keep its name",
            )
        if fence is not None and fence >= batch.fence:
            raise _fenced(batch, self._at)
        return fence

    @contextmanager
    def fenced(self, batch: BatchWrite) -> Iterator[None]:
        """Wrap the commit. Raises BatchFenced: there was no commit, because a later attempt has written."""
        try:
            with told_of_confs(self._spark):
                yield
        except Exception as error:
            fence = self.log(batch.sink).fence
            if fence is not None and fence > batch.fence:
                raise _fenced(batch, self._at) from error
            raise
        if self.log(batch.sink).fence != batch.fence:  # Delta has skipped the commit, or another has written since
            raise _fenced(batch, self._at)

    def finished(self, batch: BatchWrite) -> bool:
        """Whether the batch has a mark.

        Raises:
            BatchRefused: a later batch of the query has one.
        """
        if not self.there:
            return False
        last = max(self._marked(batch.sink, batch.query), default=-1)
        if last > batch.batch:
            raise BatchRefused(
                f"batch {batch.batch} of sink {batch.sink!r} was not written: {self._at} knows batch {last} of query "
                f"{batch.query}. Its checkpoint was deleted or put back: give query= another name"
            )
        return last == batch.batch

    def is_finished(self, sink: str, fence: int) -> bool:
        """Whether the attempt has a mark."""
        return bool(self._files.found(f"{self.path}/_holdfast/{sink}/*/*/{fence}"))

    def mark(self, sink: str, query: str, batch: int, fence: int) -> None:
        """Mark an attempt that Redis has as finished, and remove marks of earlier batches of the query."""
        if self.there and not self.is_finished(sink, fence):
            folder = f"{self.path}/_holdfast/{sink}/{query}"
            self._files.touch(f"{folder}/{batch}/{fence}")
            for each in self._marked(sink, query):
                if each < batch:
                    self._files.remove(f"{folder}/{each}")

    def _marked(self, sink: str, query: str) -> list[int]:
        found = self._files.found(f"{self.path}/_holdfast/{sink}/{query}/*")
        return [int(each.rpartition("/")[2]) for each in found]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedTable:
    """The common part of writers into Delta tables: the marks."""

    table: str

    def __post_init__(self) -> None:
        if not self.table:
            raise SettingError("table", self.table, "give a path, or a name in the catalog")
        if is_path(self.table):
            check_path("table", self.table)

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        """Whether the batch has a mark beside the data. Raises BatchRefused: a later batch has one."""
        return Table(spark, self.table).finished(batch)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Set the attempt's mark."""
        of = attempt.of
        Table(spark, self.table).mark(of.sink, of.query, of.batch, attempt.fence)


def app(sink: str) -> str:
    """The sink's name among the transaction identifiers of a table."""
    return f"holdfast/{sink}"


def is_path(at: str) -> bool:
    """Whether it is a path, not a name in the catalog."""
    return "/" in at


@contextmanager
def told_of_confs(spark: SparkSession) -> Iterator[None]:
    """Raises SettingError: the body failed, and the session lacks the confs that Delta needs."""
    try:
        yield
    except Exception as error:
        extensions = spark.conf.get("spark.sql.extensions", "") or ""
        catalog = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
        if _EXTENSION in extensions and catalog == _CATALOG:
            raise
        raise SettingError(
            "write", "delta", f"{type(error).__name__}, and Spark is not set up for it: {_REMEDY}"
        ) from error


def _fenced(batch: BatchWrite, at: str) -> BatchFenced:
    return BatchFenced(
        f"batch {batch.batch} of sink {batch.sink!r} was not written: the log of {at} knows a later attempt: keep one "
        "run of the query; if Redis was replaced by one whose clock is behind, set that clock right"
    )
