"""`postgres(table, url)`: upsert, in one transaction with the batch's row. START HERE.

Executors copy the rows into a staging table of the attempt (staging.py). Then one transaction on the driver
(merging.py) compares the sink's fence, merges by the key, and writes the batch's row. Executors do the copying, which
is most of the work, so that rows do not pass through the driver's memory. An attempt that does not count any more finds
a higher fence and changes nothing, however long its driver was stopped.

Redis decides which batches are finished. The batch's row says what is *written*; `finished_at` is a copy of Redis'
decision, set after it. A batch that is written and not finished is written again by the next attempt, maybe with other
rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from holdfast.adapters.spark.keys import column
from holdfast.adapters.spark.values import WriteFailed
from holdfast.adapters.spark.writers.postgres.at import PostgresAt
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from holdfast.adapters.spark._pyspark import DataFrame, SparkSession
    from holdfast.adapters.spark.values import BatchWrite, Safe
    from holdfast.adapters.spark.writers.postgres.staging import Stage, Staged
    from holdfast.adapters.spark.writers.postgres.target import Target
    from holdfast.dedup.spark_batches import Attempt


def postgres(
    table: str,
    url: str,
    *,
    on_conflict: Literal["update", "nothing"] = "update",
    connections: int = 4,
    timeout_s: float = 30.0,
) -> PostgresWriter:
    """Upsert each batch into a table of PostgreSQL 13 or later, by the sink's key.

    The table needs a unique index on exactly the key, and the columns of the rows. The writer creates the table
    `holdfast_batches` in the same schema, and a staging table for each attempt while it copies.

    Args:
        table: "table" or "schema.table".
        url: `postgresql://...`, or the name of a conf of the Spark session that has it.
        on_conflict: for a row whose key is in the table: "update" replaces its columns, "nothing" leaves it.
        connections: how many connections copy at the same time.
        timeout_s: seconds for a connection, for a server that does not answer, and until the server ends an idle
            transaction of ours. A lock is waited for twice as long.

    Raises:
        MissingExtraError: psycopg is not installed.
        SettingError: a setting cannot work.
    """
    return PostgresWriter(
        table=table,
        at=PostgresAt(url=url, timeout_s=timeout_s),
        on_conflict=on_conflict,
        connections=connections,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresWriter:
    """The writer that `postgres` makes."""

    table: str
    at: PostgresAt
    on_conflict: str = "update"
    connections: int = 4
    safe: Safe = field(default="transaction", init=False)

    def __post_init__(self) -> None:
        from holdfast.adapters.spark.writers.postgres import _psycopg  # noqa: F401, PLC0415 - raises here if missing

        if not self.table or not all(self.table.split(".")) or self.table.count(".") > 1:
            raise SettingError("table", self.table, "give 'table' or 'schema.table'")
        if self.on_conflict not in ("update", "nothing"):
            raise SettingError("on_conflict", self.on_conflict, "give 'update' or 'nothing'")
        if self.connections < 1:
            raise SettingError("connections", self.connections, "give a number, at least 1")

    def write(self, rows: DataFrame, batch: BatchWrite) -> None:
        """Copy the rows, merge them, and write the batch's row.

        Raises:
            BatchFenced: a later attempt has written.
            BatchRefused: a later batch of the query was written, or the table would treat two keys as equal.
            WriteFailed: PostgreSQL refuses, or does not answer.
            SettingError: the table does not fit the rows or the key.
        """
        from holdfast.adapters.spark.writers.postgres import merging, staging, target  # noqa: PLC0415 - of an extra

        at = self.at.resolved(rows.sparkSession)
        with at.connected() as connection:
            looked = target.look(connection, self.table, rows.columns, batch.key)
            merging.prepare(connection, looked.schema)
            merging.check(connection, looked.schema, batch)
        fitted, into = target.fitted(rows, looked, batch.key)  # outside: the server ends an idle transaction
        staging.remove(at, into.schema, batch.sink, below=batch.fence)
        stage, staged = staging.Stage.of(into, batch), staging.Staged([], 0)
        try:
            if batch.rows:
                with at.connected() as connection:
                    staging.make(connection, stage, into)
                staged = self._copy_rows(fitted, at, stage, into, batch)
            with at.connected() as connection:
                merging.merge(connection, into, stage, staged, batch, update=self.on_conflict == "update")
        finally:
            if batch.rows:
                staging.remove(at, into.schema, batch.sink, below=batch.fence + 1)

    def _copy_rows(self, rows: DataFrame, at: PostgresAt, stage: Stage, into: Target, batch: BatchWrite) -> Staged:
        from holdfast.adapters.spark.writers.postgres import merging, staging  # noqa: PLC0415 - of an extra

        try:
            return staging.fill(rows, at, stage, into, self.connections)
        except WriteFailed:  # a later attempt may have removed the table; then `check` raises BatchFenced
            with at.connected() as connection:
                merging.check(connection, stage.schema, batch)
            raise

    def finished(self, spark: SparkSession, batch: BatchWrite) -> bool:
        """Whether the batch's row has it as finished, also if Redis has lost it.

        Raises:
            BatchRefused: the table of batches has a later batch of the query.
            WriteFailed: PostgreSQL does not answer.
        """
        from holdfast.adapters.spark.writers.postgres import merging, target  # noqa: PLC0415 - of an extra

        with self.at.resolved(spark).connected() as connection:
            return merging.finished(connection, target.schema_of(connection, self.table), batch)

    def lacking(self, rows: DataFrame, batch: BatchWrite) -> int:
        """The number of rows whose keys are not in the table. Each task looks them up with a temporary table.

        Raises:
            WriteFailed: PostgreSQL refuses, or does not answer.
        """
        from holdfast.adapters.spark.writers.postgres import staging, target  # noqa: PLC0415 - of an extra

        at = self.at.resolved(rows.sparkSession)
        keys = rows.select(*map(column, batch.key)).dropna()
        with at.connected() as connection:
            looked = target.look(connection, self.table, batch.key, batch.key)
        fitted, into = target.fitted(keys, looked, batch.key)
        return staging.lacking(fitted, at, into, self.connections)

    def confirm(self, spark: SparkSession, attempt: Attempt) -> None:
        """Set `finished_at` in the batch's row."""
        from holdfast.adapters.spark.writers.postgres import merging, target  # noqa: PLC0415 - of an extra

        of = attempt.of
        with self.at.resolved(spark).connected() as connection:
            schema = target.schema_of(connection, self.table)
            merging.confirm(connection, schema, of.sink, of.query, attempt.name)
