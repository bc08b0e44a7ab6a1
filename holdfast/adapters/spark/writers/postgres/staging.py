"""From executors into a table that belongs to the attempt.

A write by many tasks is no transaction, and a task may run twice. So each task copies its rows with its own number, and
the driver takes those of the tasks that have succeeded: one transaction, in `merging`. The table is not logged: should
the server fail before that, it is empty, and counted.
"""

from __future__ import annotations

import hashlib
import logging
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.adapters.spark._pyspark import TaskContext, pa
from holdfast.adapters.spark.values import WriteFailed
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.adapters.spark._pyspark import DataFrame
    from holdfast.adapters.spark.values import BatchWrite
    from holdfast.adapters.spark.writers.postgres._psycopg import Connection
    from holdfast.adapters.spark.writers.postgres.at import PostgresAt
    from holdfast.adapters.spark.writers.postgres.target import Target

log = logging.getLogger("holdfast.spark")

#: The column with the number of the task.
TASK = "__hf_task"
_TOLD = "task bigint, rows bigint, error string"


class Staged(NamedTuple):
    """The rows that are staged."""

    tasks: list[int]
    rows: int


class Stage(NamedTuple):
    """An attempt's table."""

    schema: str
    name: str

    @classmethod
    def of(cls, target: Target, batch: BatchWrite) -> Stage:
        """The attempt's own: PostgreSQL cuts names at 63 bytes, so a sink's is hashed."""
        return cls(target.schema, f"{_prefix(batch.sink)}{batch.fence}")


def _prefix(sink: str) -> str:
    return f"hf_{hashlib.blake2b(sink.encode(), digest_size=8).hexdigest()}_"


def make(connection: Connection[Any], stage: Stage, target: Target) -> None:
    """With the target's columns and types."""
    from holdfast.adapters.spark.writers.postgres._psycopg import sql  # noqa: PLC0415 - executors may lack the extra

    columns = sql.SQL(", ").join(map(sql.Identifier, target.columns))
    connection.execute(
        sql.SQL("CREATE UNLOGGED TABLE {} AS SELECT {}, 0::bigint AS {} FROM {} WITH NO DATA").format(
            sql.Identifier(*stage), columns, sql.Identifier(TASK), target.name
        )
    )


def fill(rows: DataFrame, at: PostgresAt, stage: Stage, connections: int) -> Staged:
    """Copy the rows, by tasks.

    Raises:
        WriteFailed: one of them could not.
    """
    copied = rows.coalesce(connections).mapInArrow(_copying(at, stage, tuple(rows.columns)), _TOLD).collect()
    for each in copied:
        if each.error:
            raise WriteFailed(each.error)
    return Staged([each.task for each in copied], sum(each.rows for each in copied))


def lacking(keys: DataFrame, at: PostgresAt, target: Target, connections: int) -> int:
    """How many of these keys the target does not have. Raises WriteFailed."""
    told = keys.coalesce(connections).mapInArrow(_asking(at, target), _TOLD).collect()
    for each in told:
        if each.error:
            raise WriteFailed(each.error)
    return sum(each.rows for each in told)


def remove(at: PostgresAt, schema: str, sink: str, *, below: int) -> None:
    """Drop what attempts of the sink with a lower fence have left. One that is being filled is left to the next."""
    from holdfast.adapters.spark.writers.postgres._psycopg import sql  # noqa: PLC0415 - as above

    find = "SELECT tablename FROM pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)"
    prefix = _prefix(sink)
    name = prefix + "*"
    try:
        with at.connected() as connection:
            names = [name for (name,) in connection.execute(find, [schema, prefix])]
        for name in names:
            fence = name.removeprefix(prefix)
            if fence.isdecimal() and int(fence) < below:
                with at.connected() as connection:
                    connection.execute("SET LOCAL lock_timeout = '1s'")
                    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, name)))
    except WriteFailed as error:
        log.warning("table %s of an attempt that is over was not dropped, and is by the next one: %s", name, error)


def _copying(
    at: PostgresAt, stage: Stage, columns: Sequence[str]
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """On executors: one row a task. What goes wrong comes back as text, as in tasks.py."""

    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.taskAttemptId() if context is not None else 0
        rows, error_text = 0, ""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is not None:
            try:
                rows = _copied(at, stage, columns, task, chain([first], filled))
            except HoldfastError as error:
                error_text = str(error)
                for _ in filled:
                    pass  # Spark wants its input read
        yield pa.RecordBatch.from_pydict({"task": [task], "rows": [rows], "error": [error_text]})

    return copy


def _asking(at: PostgresAt, target: Target) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def ask(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, error_text = 0, ""
        for batch in batches:
            try:
                rows += 0 if error_text else _absent(at, target, batch)
            except HoldfastError as error:
                error_text = str(error)
        yield pa.RecordBatch.from_pydict({"task": [0], "rows": [rows], "error": [error_text]})

    return ask


def _absent(at: PostgresAt, target: Target, batch: pa.RecordBatch) -> int:
    from holdfast.adapters.spark.writers.postgres._psycopg import sql  # noqa: PLC0415 - as above

    names = sql.SQL(", ").join(map(sql.Identifier, batch.schema.names))
    asked = sql.Identifier("hf_asked")
    with at.connected() as connection, connection.cursor() as cursor:
        cursor.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                asked, names, target.name
            )
        )
        with cursor.copy(sql.SQL("COPY {} FROM STDIN").format(asked)) as copy:
            for row in _rows(batch):
                copy.write_row(row)
        cursor.execute(
            sql.SQL("SELECT count(*) FROM {} a WHERE NOT EXISTS (SELECT FROM {} t WHERE ({}) = ({}))").format(
                asked,
                target.name,
                sql.SQL(", ").join(sql.Identifier("a", name) for name in batch.schema.names),
                sql.SQL(", ").join(sql.Identifier("t", name) for name in batch.schema.names),
            )
        )
        return int((cursor.fetchone() or (0,))[0])


def _copied(at: PostgresAt, stage: Stage, columns: Sequence[str], task: int, batches: Iterable[pa.RecordBatch]) -> int:
    from holdfast.adapters.spark.writers.postgres._psycopg import sql  # noqa: PLC0415 - as above

    names = sql.SQL(", ").join(map(sql.Identifier, [*columns, TASK]))
    into = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(*stage), names)
    rows = 0
    with at.connected() as connection, connection.cursor() as cursor, cursor.copy(into) as copy:
        for batch in batches:
            for row in _rows(batch):
                copy.write_row((*row, task))
            rows += batch.num_rows
    return rows


def _rows(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Read them as Python does. Raises WriteFailed: it has no such value, as for a year 10000."""
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns.append(column.to_pylist())
        except (ValueError, ArithmeticError, LookupError) as error:
            # Not chained, and without its text: that quotes the value.
            raise WriteFailed(
                f"column {name!r} has a value of type {column.type} that Python does not have "
                f"({type(error).__name__}): cast or mend it before the sink"
            ) from None
    return zip(*columns, strict=True)
