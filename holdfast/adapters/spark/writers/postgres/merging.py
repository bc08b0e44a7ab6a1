"""The transaction that merges an attempt's staging table into the target, together with the batch's row.

holdfast_batches: one row for each sink and query, with its last batch
  sink, query, batch, attempt, fence, rows, written_at, and finished_at: null until Redis has the attempt as finished
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark.values import BatchFenced, BatchRefused, WriteFailed
from holdfast.adapters.spark.writers.postgres._psycopg import sql
from holdfast.adapters.spark.writers.postgres.staging import TASK, respelled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import LiteralString

    from holdfast.adapters.spark.values import BatchWrite
    from holdfast.adapters.spark.writers.postgres._psycopg import Connection, Cursor
    from holdfast.adapters.spark.writers.postgres.staging import Stage, Staged
    from holdfast.adapters.spark.writers.postgres.target import Target

_TABLE = "holdfast_batches"
_CREATE = """
CREATE TABLE IF NOT EXISTS {} (
    sink text, query text, batch bigint NOT NULL, attempt text NOT NULL, fence bigint NOT NULL, rows bigint NOT NULL,
    written_at timestamptz NOT NULL, finished_at timestamptz, PRIMARY KEY (sink, query)
)
"""
_NOTE = """
INSERT INTO {} VALUES ({}, {}, {}, {}, {}, {}, now(), NULL)
ON CONFLICT (sink, query) DO UPDATE SET batch = excluded.batch, attempt = excluded.attempt, fence = excluded.fence,
    rows = excluded.rows, written_at = excluded.written_at, finished_at = NULL
"""
#: With synchronous_commit=off, a crash could lose a commit after Redis has the batch as finished.
_DURABLE = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', true) "
    "WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
)
_FORGET = "DELETE FROM {} WHERE sink = {} AND query <> {} AND finished_at < now() - {}::pg_catalog.interval"
#: With more queries of a sink than this, rows of queries that ended long ago are deleted. Redis has lost them by then.
_MANY, _LONG_AGO = 100, "90 days"


def prepare(connection: Connection[Any], schema: str) -> None:
    """Create the table of batches if it does not exist."""
    if not _table_exists(connection, schema):
        _lock(connection, f"holdfast {schema}")  # without it, one of two concurrent creations would fail
        connection.execute(sql.SQL(_CREATE).format(sql.Identifier(schema, _TABLE)))


def finished(connection: Connection[Any], schema: str, batch: BatchWrite) -> bool:
    """Whether the table has the batch as finished.

    Raises:
        BatchRefused: the table has a later batch of the query.
    """
    if not _table_exists(connection, schema):
        return False
    find: LiteralString = "SELECT batch, finished_at IS NOT NULL FROM {} WHERE sink = {} AND query = {}"
    found = _ask(connection, find, schema, batch.sink, batch.query).fetchone()
    if found is None:
        return False
    last, is_finished = found
    if last > batch.batch:
        raise _number_too_low(batch, last)
    return bool(last == batch.batch and is_finished)


def confirm(connection: Connection[Any], schema: str, sink: str, query: str, attempt: str) -> None:
    """Note that Redis has the attempt as finished."""
    if _table_exists(connection, schema):
        note: LiteralString = (
            "UPDATE {} SET finished_at = now() WHERE sink = {} AND query = {} AND attempt = {} AND finished_at IS NULL"
        )
        _ask(connection, note, schema, sink, query, attempt)


def check(connection: Connection[Any], schema: str, batch: BatchWrite) -> int:
    """Check that the attempt may write. Returns the number of the sink's queries that have a row.

    Raises:
        BatchFenced: a later attempt has written.
        BatchRefused: a later batch of the query was written.
    """
    find: LiteralString = "SELECT query, batch, attempt, fence FROM {} WHERE sink = {}"
    rows = _ask(connection, find, schema, batch.sink).fetchall()
    for query, last, attempt, fence in rows:
        if fence > batch.fence or (fence == batch.fence and attempt != batch.attempt):
            raise BatchFenced(
                f"batch {batch.batch} of sink {batch.sink!r} was not written: {schema}.{_TABLE} knows a later attempt, "
                f"{attempt} of query {query}: keep one run of the query; if Redis was replaced by one whose clock is "
                "behind, set that clock right"
            )
        if query == batch.query and last > batch.batch:
            raise _number_too_low(batch, last)
    return len(rows)


def merge(
    connection: Connection[Any],
    target: Target,
    stage: Stage,
    staged: Staged,
    batch: BatchWrite,
    *,
    update: bool,
) -> None:
    """Merge the rows and write the batch's row, in the connection's transaction.

    Args:
        connection: from `PostgresAt.connected`, with nothing else in its transaction.
        target: the table to merge into.
        stage: the attempt's staging table.
        staged: the tasks that have copied, and their rows.
        batch: the batch of this attempt.
        update: whether a row whose key is in the table is replaced; else it stays.

    Raises:
        BatchFenced: see `check`.
        BatchRefused: see `check`; or the table would treat two keys as equal.
        WriteFailed: rows are missing in the staging table.
    """
    connection.execute(_DURABLE)
    _lock(connection, f"holdfast {target.schema} {batch.sink}")
    queries = check(connection, target.schema, batch)
    if batch.rows:
        _count(connection, stage, staged, batch)
        _check_keys(connection, target, stage, batch)
        connection.execute(_upsert(target, stage, staged, batch.key, update=update))
    noted = (batch.sink, batch.query, batch.batch, batch.attempt, batch.fence, batch.rows)
    _ask(connection, _NOTE, target.schema, *noted)
    if queries > _MANY:
        _forget(connection, target.schema, batch)
    batch.check()  # the commit is next


def _forget(connection: Connection[Any], schema: str, batch: BatchWrite) -> None:
    """Delete rows of queries that ended long ago: each new checkpoint without `query=` adds a row. The highest fence,
    which is this attempt's, stays. Without the right to delete, the rows stay."""
    table = sql.Identifier(schema, _TABLE)
    may = sql.SQL("SELECT pg_catalog.has_table_privilege({}, 'DELETE')").format(table.as_string(connection))
    if connection.execute(may).fetchone() == (True,):
        _ask(connection, _FORGET, schema, batch.sink, batch.query, _LONG_AGO)


def _count(connection: Connection[Any], stage: Stage, staged: Staged, batch: BatchWrite) -> None:
    counting = sql.SQL("SELECT count(*) FROM {} WHERE {} = ANY ({})").format(
        sql.Identifier(*stage), sql.Identifier(TASK), sql.Literal(staged.tasks)
    )
    [[found]] = connection.execute(counting).fetchall()
    if not found == staged.rows == batch.rows:
        raise WriteFailed(
            f"batch {batch.batch} of sink {batch.sink!r} was not written: of its {batch.rows} rows {staged.rows} were "
            f"copied and {found} are there: the server was started anew meanwhile; start the query again"
        )


def _check_keys(connection: Connection[Any], target: Target, stage: Stage, batch: BatchWrite) -> None:
    if not target.raw:
        return
    asking = sql.SQL("SELECT count(*) FROM {} WHERE {}").format(sql.Identifier(*stage), respelled(target))
    [[found]] = connection.execute(asking).fetchall()
    if found:
        kinds = ", ".join(f"{name!r} ({target.columns[name].name})" for name in target.raw)
        raise BatchRefused(
            f"batch {batch.batch} of sink {batch.sink!r} was not written: {found} of its keys are written otherwise "
            f"than column {kinds} of {target.schema}.{target.table} writes them, so that two keys would be one there: "
            "give each key in one spelling before the sink, the column's own (lower() for uuid and citext, rtrim() for "
            "char and varchar, a cast for numbers)"
        )


def _upsert(target: Target, stage: Stage, staged: Staged, key: Sequence[str], *, update: bool) -> sql.Composed:
    columns = sql.SQL(", ").join(map(sql.Identifier, target.columns))
    # In the order of keys, so that two transactions with the same rows do not deadlock.
    keys = sql.SQL(", ").join(map(sql.Identifier, sorted(key)))
    others = [name for name in target.columns if name not in key]
    action: sql.Composable = sql.SQL("NOTHING")
    if update and others:
        set_all = [sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others]
        action = sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(set_all))
    return sql.SQL(
        "INSERT INTO {} ({}) SELECT {} FROM {} WHERE {} = ANY ({}) ORDER BY {} ON CONFLICT ({}) DO {}"
    ).format(
        target.name,
        columns,
        columns,
        sql.Identifier(*stage),
        sql.Identifier(TASK),
        sql.Literal(staged.tasks),
        keys,
        keys,
        action,
    )


def _ask(connection: Connection[Any], statement: LiteralString, schema: str, *values: str | int) -> Cursor[Any]:
    """Run a statement on the table of batches. Values are put into its text: with parameters, psycopg would take a "%"
    in a name for a placeholder."""
    return connection.execute(sql.SQL(statement).format(sql.Identifier(schema, _TABLE), *map(sql.Literal, values)))


def _table_exists(connection: Connection[Any], schema: str) -> bool:
    find = "SELECT 1 FROM pg_catalog.pg_tables WHERE schemaname = %s AND tablename = %s"
    return connection.execute(find, [schema, _TABLE]).fetchone() is not None


def _lock(connection: Connection[Any], name: str) -> None:
    """Take an advisory lock until the transaction's end. If a driver is stopped while it has the lock, the server ends
    its idle transaction."""
    connection.execute("SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended(%s, 0))", [name])


def _number_too_low(batch: BatchWrite, last: int) -> BatchRefused:
    return BatchRefused(
        f"batch {batch.batch} of sink {batch.sink!r} was not written: {_TABLE} knows batch {last} of query "
        f"{batch.query}. Its checkpoint was deleted or put back: give query= another name"
    )
