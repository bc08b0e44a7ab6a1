"""The table that rows go to, as it is: its columns, and whether the key is unique there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark._pyspark import F, types
from holdfast.adapters.spark.keys import column as column_of
from holdfast.adapters.spark.writers.postgres._psycopg import sql
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark._pyspark import DataFrame
    from holdfast.adapters.spark.writers.postgres._psycopg import Connection

_FIND = """
SELECT c.oid, n.nspname, c.relname, c.relkind
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass(%s)
"""
_COLUMNS = """
SELECT attname, typname, attgenerated <> '' OR attidentity = 'a'
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped
"""
# Those that ON CONFLICT (columns) may take: whole, checked at once, of columns alone.
_UNIQUE = """
SELECT array_agg(a.attname::text)
FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = %s AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL
GROUP BY i.indexrelid
"""
_JSON = ("json", "jsonb")
#: Spark's own formats end at milliseconds, without a word: what is a column of its own arrives with its microseconds.
_WHOLE_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table."""

    schema: str
    table: str
    columns: dict[str, str]  #: name -> name of its type

    @property
    def name(self) -> sql.Identifier:
        """Quoted."""
        return sql.Identifier(self.schema, self.table)


def look(connection: Connection[Any], table: str, columns: Sequence[str], key: Sequence[str]) -> Target:
    """Find it.

    Args:
        connection: any.
        table: "table" or "schema.table".
        columns: what the rows have.
        key: of the sink.

    Raises:
        SettingError: there is no such table, it lacks a column or a unique index on the key, or it is a view.
    """
    oid, schema, name = _find(connection, table)
    has = {each: (kind, own) for each, kind, own in connection.execute(_COLUMNS, [oid])}
    for each in columns:
        if each not in has:
            raise SettingError(
                "table", table, f"has no column {each!r} (it has: {', '.join(has)}): add it, or drop it before the sink"
            )
        if has[each][1]:
            raise SettingError(
                "table", table, f"makes the values of {each!r} by itself (GENERATED ALWAYS): drop it before the sink"
            )
    unique = [set(each) for (each,) in connection.execute(_UNIQUE, [oid])]
    if set(key) not in unique:
        raise SettingError(
            "table",
            table,
            "an upsert needs a unique index on exactly the sink's key: "
            f"CREATE UNIQUE INDEX CONCURRENTLY ON {table} ({', '.join(key)})",
        )
    return Target(schema=schema, table=name, columns={each: has[each][0] for each in columns})


def schema_of(connection: Connection[Any], table: str) -> str:
    """In which schema it is. Raises SettingError: there is no such table."""
    return _find(connection, table)[1]


def _find(connection: Connection[Any], table: str) -> tuple[int, str, str]:
    quoted = ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))
    found = connection.execute(_FIND, [quoted]).fetchone()
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


def fitted(rows: DataFrame, target: Target) -> DataFrame:
    """The rows as COPY can take them: what has fields goes to JSON.

    Raises:
        SettingError: a column with fields goes to one that is not JSON.
    """
    chosen = []
    for field in rows.schema.fields:
        column, into = column_of(field.name), target.columns[field.name]
        if isinstance(field.dataType, types.StructType | types.MapType | types.VariantType):
            if into not in _JSON:
                raise SettingError(
                    "table",
                    target.table,
                    f"{field.name!r} is {field.dataType.simpleString()} and goes to jsonb or json, not to {into}",
                )
            column = F.to_json(column, _WHOLE_TIMES).alias(field.name)
        elif isinstance(field.dataType, types.ArrayType) and into in _JSON:
            column = F.to_json(column, _WHOLE_TIMES).alias(field.name)
        chosen.append(column)
    return rows.select(*chosen)
