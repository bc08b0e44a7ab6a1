"""Copies rows from executors into a staging table of the attempt.

A write by many tasks is not one transaction, and a task may run twice. Therefore each task copies its rows with its own
number, and the driver takes those of the successful tasks in one transaction (`merging`). The table is UNLOGGED: after
a crash of the server it is empty, which the count of rows detects.
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
    from holdfast.adapters.spark.writers.postgres._psycopg import Composable, Connection
    from holdfast.adapters.spark.writers.postgres.at import PostgresAt
    from holdfast.adapters.spark.writers.postgres.target import Target

log = logging.getLogger("holdfast.spark")

#: The column with the task's number; the prefix of columns with a key's original text, see kinds.py.
TASK, _RAW = "__hf_task", "__hf_raw_"
_TOLD = "task bigint, rows bigint, error string"


class Staged(NamedTuple):
    """The result of staging: the successful tasks, and the number of their rows."""

    tasks: list[int]
    rows: int


class Stage(NamedTuple):
    """The name of an attempt's staging table."""

    schema: str
    name: str

    @classmethod
    def of(cls, target: Target, batch: BatchWrite) -> Stage:
        """The table of this attempt. The sink's name is hashed, since PostgreSQL cuts names at 63 bytes."""
        return cls(target.schema, f"{_prefix(batch.sink)}{batch.fence}")


def _prefix(sink: str) -> str:
    return f"hf_{hashlib.blake2b(sink.encode(), digest_size=8).hexdigest()}_"


def make(connection: Connection[Any], stage: Stage, target: Target) -> None:
    """Create the table with the target's columns and types, and with text columns for keys that a type may change."""
    from holdfast.adapters.spark.writers.postgres._psycopg import sql  # noqa: PLC0415 - executors may lack the extra

    own = [sql.SQL("0::bigint AS {}").format(sql.Identifier(TASK)), *_raw_columns(target)]
    columns = sql.SQL(", ").join([*map(sql.Identifier, target.columns), *own])
    connection.execute(
        sql.SQL("CREATE UNLOGGED TABLE {} AS SELECT {} FROM {} WITH NO DATA").format(
            sql.Identifier(*stage), columns, target.name
        )
    )


def _raw_columns(target: Target) -> list[Composable]:
    from holdfast.adapters.spark.writers.postgres._psycopg import sql  # noqa: PLC0415 - as above

    return [sql.SQL("''::text AS {}").format(sql.Identifier(_RAW + name)) for name in target.raw]


def respelled(target: Target) -> Composable:
    """SQL: whether a staged key has another text in the table's column than in the batch."""
    from holdfast.adapters.spark.writers.postgres._psycopg import sql  # noqa: PLC0415 - as above

    found = [
        sql.SQL("{} IS DISTINCT FROM {}").format(
            sql.SQL(as_text).format(sql.Identifier(name)), sql.Identifier(_RAW + name)
        )
        for name, as_text in target.raw.items()
    ]
    return sql.SQL(" OR ").join(found) if found else sql.SQL("false")


def fill(rows: DataFrame, at: PostgresAt, stage: Stage, target: Target, connections: int) -> Staged:
    """Copy the rows, in tasks.

    Raises:
        WriteFailed: a task could not copy its rows.
    """
    copied = rows.coalesce(connections).mapInArrow(_copying(at, stage, target), _TOLD).collect()
    for each in copied:
        if each.error:
            raise WriteFailed(each.error)
    return Staged([each.task for each in copied], sum(each.rows for each in copied))


def lacking(keys: DataFrame, at: PostgresAt, target: Target, connections: int) -> int:
    """The number of these keys that are not in the target. Raises WriteFailed."""
    told = keys.coalesce(connections).mapInArrow(_asking(at, target), _TOLD).collect()
    for each in told:
        if each.error:
            raise WriteFailed(each.error)
    return sum(each.rows for each in told)


def remove(at: PostgresAt, schema: str, sink: str, *, below: int) -> None:
    """Drop staging tables of the sink's attempts with a lower fence. A table that is in use is left for the next
    attempt."""
    from holdfast.adapters.spark.writers.postgres._psycopg import sql  # noqa: PLC0415 - as above

    find = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = %s AND starts_with(tablename, %s)"
    prefix = _prefix(sink)
    name = prefix + "*"
    try:
        with at.connected() as connection:
            names = [name for (name,) in connection.execute(find, [schema, prefix])]
        for name in names:
            fence = name.removeprefix(prefix)
            if fence.isdecimal() and int(fence) < below:
                with at.connected(lock_s=1) as connection:
                    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(schema, name)))
    except WriteFailed as error:
        log.warning("table %s of an attempt that is over was not dropped, and is by the next one: %s", name, error)


def _copying(
    at: PostgresAt, stage: Stage, target: Target
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Make the function for executors: one row for each task, with an error as text, as in tasks.py."""

    def copy(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        task = context.taskAttemptId() if context is not None else 0
        rows, error_text = 0, ""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is not None:
            try:
                rows = copied(at, stage, target, task, chain([first], filled))
            except HoldfastError as error:
                error_text = str(error)
                for _ in filled:
                    pass  # Spark requires that the whole input is read
        yield pa.RecordBatch.from_pydict({"task": [task], "rows": [rows], "error": [error_text]})

    return copy


def _asking(at: PostgresAt, target: Target) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def ask(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, error_text = 0, ""
        for batch in batches:
            try:
                rows += 0 if error_text else absent(at, target, batch)
            except HoldfastError as error:
                error_text = str(error)
        yield pa.RecordBatch.from_pydict({"task": [0], "rows": [rows], "error": [error_text]})

    return ask


def absent(at: PostgresAt, target: Target, batch: pa.RecordBatch) -> int:
    """The number of these keys that the target lacks, or has only in another form. Raises WriteFailed."""
    from holdfast.adapters.spark.writers.postgres._psycopg import sql  # noqa: PLC0415 - as above

    names = sql.SQL(", ").join([*map(sql.Identifier, batch.schema.names), *_raw_columns(target)])
    asked = sql.Identifier("pg_temp", "hf_asked")
    with at.connected() as connection, connection.cursor() as cursor:
        cursor.execute(
            sql.SQL("CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA").format(
                asked, names, target.name
            )
        )
        with cursor.copy(sql.SQL("COPY {} FROM STDIN").format(asked)) as copy:
            for row in _rows(batch, target):
                copy.write_row(row)
        cursor.execute(
            sql.SQL("SELECT count(*) FROM {} a WHERE {} OR NOT EXISTS (SELECT FROM {} t WHERE ({}) = ({}))").format(
                asked,
                respelled(target),
                target.name,
                sql.SQL(", ").join(sql.Identifier("a", name) for name in batch.schema.names),
                sql.SQL(", ").join(sql.Identifier("t", name) for name in batch.schema.names),
            )
        )
        return int((cursor.fetchone() or (0,))[0])


def copied(at: PostgresAt, stage: Stage, target: Target, task: int, batches: Iterable[pa.RecordBatch]) -> int:
    """Copy this task's rows into the attempt's table. Returns their number. Raises WriteFailed."""
    from holdfast.adapters.spark.writers.postgres._psycopg import psycopg, sql  # noqa: PLC0415 - as above

    columns = [*target.columns, *(_RAW + name for name in target.raw), TASK]
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    into = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(*stage), names)
    rows = 0
    with at.connected() as connection, connection.cursor() as cursor, cursor.copy(into) as copy:
        for batch in batches:
            for row in _rows(batch, target):
                try:
                    copy.write_row((*row, task))
                except psycopg.DataError:
                    _check_nul(columns, row)
                    raise
            rows += batch.num_rows
    return rows


def _check_nul(columns: Sequence[str], row: tuple[Any, ...]) -> None:
    """Raises WriteFailed: one of these values has a NUL character."""
    for name, value in zip(columns, row, strict=False):
        if _has_nul(value):
            raise WriteFailed(
                f"column {name!r} has a text with a NUL, which PostgreSQL does not keep: take it out before the sink, "
                f"by translate({name}, chr(0), '')"
            ) from None


def _has_nul(value: object) -> bool:
    return any(map(_has_nul, value)) if isinstance(value, list) else isinstance(value, str) and "\0" in value


def _rows(batch: pa.RecordBatch, target: Target) -> Iterator[tuple[Any, ...]]:
    """The rows as Python values, with the keys' original texts at the end. Raises WriteFailed: Python has no such
    value, for example a date in the year 10000."""
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns[name] = column.to_pylist()
        except (ValueError, ArithmeticError, LookupError) as error:
            # Not chained, and without its text: that quotes the value.
            raise WriteFailed(
                f"column {name!r} has a value of type {column.type} that Python does not have "
                f"({type(error).__name__}): cast or mend it before the sink"
            ) from None
    return zip(*columns.values(), *(columns[name] for name in target.raw), strict=True)
