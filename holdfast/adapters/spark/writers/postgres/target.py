"""The table that rows are merged into: its columns, and whether its key is unique."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark._pyspark import F, types
from holdfast.adapters.spark.keys import column as column_of
from holdfast.adapters.spark.writers.postgres._psycopg import sql
from holdfast.adapters.spark.writers.postgres.kinds import Kind, canonical, check_holds
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import LiteralString

    from holdfast.adapters.spark._pyspark import Column, DataFrame
    from holdfast.adapters.spark.writers.postgres._psycopg import Connection

_FIND = """
SELECT c.oid, n.nspname, c.relname, c.relkind
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""
# Resolves a domain to its base type, with the type modifier that applies there.
_COLUMNS = """
SELECT a.attname, t.typname, a.attgenerated <> '' OR a.attidentity = 'a',
    CASE WHEN b.typtype = 'e' THEN 'enum' ELSE b.typname END, e.typname, b.typmod, COALESCE(c.collisdeterministic, true)
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
CROSS JOIN LATERAL (
    WITH RECURSIVE base (oid, typmod) AS (
        SELECT a.atttypid, a.atttypmod
        UNION ALL
        SELECT d.typbasetype, d.typtypmod FROM base JOIN pg_catalog.pg_type d ON d.oid = base.oid WHERE d.typtype = 'd'
    )
    SELECT k.typname, k.typtype, k.typcategory, k.typelem, base.typmod
    FROM base JOIN pg_catalog.pg_type k ON k.oid = base.oid WHERE k.typtype <> 'd'
) b
LEFT JOIN pg_catalog.pg_type e ON e.oid = b.typelem AND b.typcategory = 'A'
LEFT JOIN pg_catalog.pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
"""
# Unique indexes that ON CONFLICT (columns) accepts: not partial, not deferred, without expressions; and whether their
# collations distinguish all texts.
_UNIQUE = """
SELECT array_agg(a.attname::text), NOT EXISTS (
    SELECT FROM pg_catalog.pg_collation c WHERE c.oid = ANY (i.indcollation::oid[]) AND NOT c.collisdeterministic
)
FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a
    ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid, i.indcollation
"""
_JSON = ("json", "jsonb")
#: Spark's default formats for JSON cut times to milliseconds without an error; columns of their own keep microseconds.
_WHOLE_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target table, with the columns that the rows have."""

    schema: str
    table: str
    columns: dict[str, Kind]
    raw: dict[str, LiteralString] = field(
        default_factory=dict
    )  #: key columns that may change a text -> SQL for the text, see kinds.py

    @property
    def name(self) -> sql.Identifier:
        """The table's name, quoted."""
        return sql.Identifier(self.schema, self.table)


def look(connection: Connection[Any], table: str, columns: Sequence[str], key: Sequence[str]) -> Target:
    """Look up the table.

    Args:
        connection: any connection.
        table: "table" or "schema.table".
        columns: the columns of the rows.
        key: the columns of the sink's key.

    Raises:
        SettingError: there is no such table, it lacks a column or a unique index on the key, or it is a view.
    """
    oid, schema, name = _find(connection, table)
    own, has = {}, {}
    for each, kind, by_itself, base, element, modifier, deterministic in connection.execute(_COLUMNS, [oid]):
        own[each] = by_itself
        has[each] = Kind(name=kind, base=base, element=element, modifier=modifier, exact=deterministic)
    for each in columns:
        if each not in has:
            raise SettingError(
                "table", table, f"has no column {each!r} (it has: {', '.join(has)}): add it, or drop it before the sink"
            )
        if own[each]:
            raise SettingError(
                "table", table, f"makes the values of {each!r} by itself (GENERATED ALWAYS): drop it before the sink"
            )
    unique = [tells_apart for each, tells_apart in connection.execute(_UNIQUE, [oid]) if set(each) == set(key)]
    if not unique:
        keys = [sql.Identifier(each).as_string(connection) for each in key]
        raise SettingError(
            "table",
            table,
            "an upsert needs a unique index on exactly the sink's key: "
            f"CREATE UNIQUE INDEX CONCURRENTLY ON {_quoted(connection, table)} ({', '.join(keys)})",
        )
    if not all(unique):
        raise SettingError("table", table, "a unique index on the key has a collation that takes two texts for one")
    return Target(schema=schema, table=name, columns={each: has[each] for each in columns})


def schema_of(connection: Connection[Any], table: str) -> str:
    """The table's schema. Raises SettingError: there is no such table."""
    return _find(connection, table)[1]


def _quoted(connection: Connection[Any], table: str) -> str:
    return sql.Identifier(*table.split(".")).as_string(connection)


def _find(connection: Connection[Any], table: str) -> tuple[int, str, str]:
    found = connection.execute(_FIND, [_quoted(connection, table)]).fetchone()
    if found is None:
        raise SettingError(
            "table",
            table,
            "the database has no such table that this user sees: create it, with a unique index on the sink's key",
        )
    oid, schema, name, kind = found
    if kind not in ("r", "p"):
        raise SettingError("table", table, "is a view or a foreign table: give the table itself")
    return oid, schema, name


def fitted(rows: DataFrame, target: Target, key: Sequence[str]) -> tuple[DataFrame, Target]:
    """The rows in a form that COPY accepts (structs, maps and variants become JSON), and the target with the checks of
    its key columns.

    Raises:
        SettingError: a column of the table does not hold all values, or would make two keys equal.
    """
    chosen: list[Column] = []
    raw: dict[str, LiteralString] = {}
    for each in rows.schema.fields:
        column, into = column_of(each.name), target.columns[each.name]
        if isinstance(each.dataType, types.StructType | types.MapType | types.VariantType):
            if into.base not in _JSON:
                raise SettingError(
                    "table",
                    target.table,
                    f"{each.name!r} is {each.dataType.simpleString()} and goes to jsonb or json, not to {into.name}",
                )
            column = F.to_json(column, _WHOLE_TIMES).alias(each.name)
        elif isinstance(each.dataType, types.ArrayType) and into.base in _JSON:
            column = F.to_json(column, _WHOLE_TIMES).alias(each.name)
        elif each.name in key:
            raw |= canonical(target.table, each, into)
        else:
            check_holds(target.table, each, into)
        chosen.append(column)
    return rows.select(*chosen), replace(target, raw=raw)
