"""A Delta table, and what of a sink is written beside its data.

In the table's own log, in the very commit that brings an attempt's rows: a transaction identifier, "holdfast/<sink>"
with the attempt's fence as its version. Delta makes no commit where it finds a higher one, and refuses one that another
has overtaken; so an attempt that is over changes nothing, however late it comes. The former it does without a word, so
`check` asks before a write and `fenced` after it.

Beside the log, for what Redis has as finished, as Delta's readers and VACUUM pass over names that begin with "_":

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
    """One version of a table."""

    version: int
    fence: int | None  #: of the sink's last attempt that has written
    others: tuple[str, ...]  #: sinks that have written too


class Table:
    """A table of a session.

    Args:
        spark: the batch's own.
        at: a path, or a name in the catalog.

    Raises:
        SettingError: the session has no Delta.
    """

    def __init__(self, spark: SparkSession, at: str) -> None:
        self._spark = spark
        self._at = at
        self._files = Files(spark)  # first: it says what is wrong under Spark Connect
        jvm: Any = spark._jvm  # noqa: SLF001 - pyspark has no public way to it
        self._delta_log = jvm.org.apache.spark.sql.delta.DeltaLog
        if isinstance(self._delta_log, JavaPackage):
            raise SettingError("write", "delta", f"Spark has no Delta here: {_REMEDY}")

    @property
    def name(self) -> str:
        """In SQL."""
        return f"delta.{quoted(self._at)}" if is_path(self._at) else self._at

    @property
    def there(self) -> bool:
        """Whether it exists. A log without a commit is none: a driver leaves it that dies while it makes the table."""
        if is_path(self._at):
            return int(self._snapshot(self._at).version()) >= 0
        return bool(self._spark.catalog.tableExists(self._at))

    @property
    def columns(self) -> types.StructType:
        """The table's columns as they are now, if it exists."""
        return types.StructType.fromJson(json.loads(self._snapshot(self.path).schema().json()))

    @property
    def path(self) -> str:
        """The table's folder, if it exists. Raises SettingError: it is a pattern."""
        if is_path(self._at):
            return self._at
        with told_of_confs(self._spark):
            folder = str(self._spark.sql(f"DESCRIBE DETAIL {self.name}").collect()[0].location)
        check_path("table", folder)
        return folder

    def make(self, rows: DataFrame, partition_by: tuple[str, ...] = ()) -> None:
        """Create it, if it is not there, with the columns of the rows and without the rows."""
        if not self.there:
            writer = rows.limit(0).write.format("delta").mode("ignore").partitionBy(*partition_by)
            with told_of_confs(self._spark):
                writer.save(self._at) if is_path(self._at) else writer.saveAsTable(self._at)

    def log(self, sink: str) -> Log:
        """The table's log as it is now, if it exists."""
        snapshot = self._snapshot(self.path)
        found = snapshot.setTransactions()
        each = (found.apply(i) for i in range(found.size()))
        fences = {str(one.appId()): int(one.version()) for one in each if str(one.appId()).startswith(app(""))}
        fence = fences.pop(app(sink), None)
        return Log(int(snapshot.version()), fence, tuple(sorted(name.removeprefix(app("")) for name in fences)))

    def _snapshot(self, path: str) -> Any:  # noqa: ANN401 - Java's
        return self._delta_log.forTableWithSnapshot(self._spark._jsparkSession, path)._2()  # noqa: SLF001 - as above

    def check(self, batch: BatchWrite, *, alone: bool = False) -> int | None:
        """The fence of the sink's last attempt that has written. Args: alone: the table has to be of this sink alone.

        Raises:
            BatchFenced: it is not below this one's.
            SettingError: another sink has written there.
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
        """Around the commit. Raises BatchFenced: it has not come to one, since a later attempt has written."""
        try:
            with told_of_confs(self._spark):
                yield
        except Exception as error:
            fence = self.log(batch.sink).fence
            if fence is not None and fence > batch.fence:
                raise _fenced(batch, self._at) from error
            raise
        if self.log(batch.sink).fence != batch.fence:  # passed over by Delta, or another has come since
            raise _fenced(batch, self._at)

    def finished(self, batch: BatchWrite) -> bool:
        """Whether a mark says so.

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
        """Redis has it as finished. Marks of earlier batches of the query are removed: they say nothing any more."""
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
        """Whether a mark beside the data says so. Raises BatchRefused: it is of a later batch."""
        return Table(spark, self.table).finished(batch)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Set the mark."""
        of = attempt.of
        Table(spark, self.table).mark(of.sink, of.query, of.batch, attempt.fence)


def app(sink: str) -> str:
    """The sink's name among the transaction identifiers of a table."""
    return f"holdfast/{sink}"


def is_path(at: str) -> bool:
    """And no name of a catalog."""
    return "/" in at


@contextmanager
def told_of_confs(spark: SparkSession) -> Iterator[None]:
    """Raises SettingError: it failed, and Spark's session is not set up as Delta wants it."""
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
