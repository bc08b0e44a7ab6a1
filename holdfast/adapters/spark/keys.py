"""Converts columns into business keys: the same text that other consumers have for the same values (dedup/keys.py)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from holdfast.adapters.spark._pyspark import F, pa, types
from holdfast.dedup.keys import key_text
from holdfast.dedup.redis_layout import scoped
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from holdfast.adapters.spark._pyspark import Column, DataFrame

_TEXT_OR_NUMBER = (types.StringType, types.ByteType, types.ShortType, types.IntegerType, types.LongType)


def key_columns(key: str | Sequence[str]) -> tuple[str, ...]:
    """The columns of the argument `key=`.

    Raises:
        SettingError: no column, an empty name, or a name twice.
    """
    columns = (key,) if isinstance(key, str) else tuple(key)
    if not all(columns) or not columns or len(set(columns)) < len(columns):
        raise SettingError("key", key, "name a column, or several, each once")
    return columns


def check_columns(rows: DataFrame, columns: Sequence[str]) -> None:
    """Raises SettingError: a column is missing, or its type cannot be a key."""
    found = {field.name: field.dataType for field in rows.schema.fields}
    good = (*_TEXT_OR_NUMBER, types.BinaryType) if len(columns) == 1 else _TEXT_OR_NUMBER
    for name in columns:
        if name not in found:
            raise SettingError("key", name, f"the rows have no such column (they have: {', '.join(found)})")
        # A collation may treat "a" and "A" as equal; Redis does not.
        if not isinstance(found[name], good) or found[name].simpleString().startswith("string "):
            raise SettingError(
                "key",
                name,
                f"a column of type {found[name].simpleString()} makes no key: before the sink, "
                f"{_as_a_key(found[name], name)}",
            )


#: The expression that makes a key of a type: distinct values give distinct keys, in each session and at each start.
_AS_KEYS = (
    # A cast to bigint drops fractions of a second; a cast to string is ambiguous in the hour when summer time ends.
    ((types.TimestampType,), "take unix_micros({0})"),
    ((types.DecimalType, types.TimestampNTZType, types.DateType, types.BooleanType), "take cast({0} AS string)"),
    ((types.FloatType, types.DoubleType), "take cast({0} AS string), and better a number that is no fraction"),
    ((types.StringType,), "take collate({0}, 'UTF8_BINARY'), or lower({0}) where 'a' and 'A' are to be one key"),
    ((types.BinaryType,), "take hex({0})"),  # among several columns
    ((types.StructType,), "make its fields columns, and name these in key=[...]"),
    ((types.ArrayType, types.MapType, types.VariantType), "take to_json({0})"),
)


def _as_a_key(kind: types.DataType, name: str) -> str:
    for these, said in _AS_KEYS:
        if isinstance(kind, these):
            return said.format(name if name.isidentifier() else quoted(name))
    return "take a column of text or of whole numbers"


def check_names(rows: DataFrame) -> None:
    """Raises SettingError: a column has a name that mapInArrow does not support."""
    for name in rows.columns:
        if "." in name or "`" in name:  # mapInArrow looks columns up by their unquoted names
            raise SettingError("rows", name, "Spark's mapInArrow takes no such name: rename the column before")


def column(name: str) -> Column:
    """The column of exactly this name, which may have dots."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A name, quoted for Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def with_key(rows: DataFrame, columns: Sequence[str], into: str, *, scope: str | None = None) -> DataFrame:
    """The rows with the text of their key in one more column; null: no key, see `key_texts`.

    Spark computes the text of one column of text or numbers; Python computes all others.

    Args:
        rows: any data frame.
        columns: the columns of the key.
        into: the name of the new column.
        scope: if given, the column has the digest in place of the text: the key's name in a namespace with `hash_keys`
            (Layout.places).

    Raises:
        SettingError: Python must compute the text, and a column's name is not supported; see `check_names`.
    """
    kind, text = rows.schema[columns[0]].dataType, quoted(columns[0])
    if len(columns) > 1 or isinstance(kind, types.BinaryType):
        check_names(rows)
        schema = types.StructType([*rows.schema.fields, types.StructField(into, types.StringType())])
        rows, text = rows.mapInArrow(_texts(columns, into), schema), quoted(into)
        if scope is None:
            return rows
    elif isinstance(kind, types.StringType):
        # Spark casts any bytes to a string. Python could not decode them, and such a row would fail every attempt.
        bytes_ = f"concat('x:', lower(hex(cast({text} AS binary))))"
        text = f"if({text} != '', if(is_valid_utf8({text}), concat('s:', {text}), {bytes_}), NULL)"
    else:
        text = f"concat('n:', cast({text} AS string))"
    # One text of SQL: built from Spark's functions, it would take the driver longer than all other steps here.
    return rows.withColumn(into, F.expr(text if scope is None else _digest(scope, text)))


def _digest(scope: str, text: str) -> str:
    named = f"concat(X'{scoped(scope).encode().hex()}', cast({text} AS binary))"
    return f"substring(unhex(sha2({named}, 256)), 1, 16)"


def lacking(rows: DataFrame, there: DataFrame, columns: Sequence[str]) -> int:
    """The number of rows whose key is not in `there`. Rows without a key do not count."""
    keys = rows.select(*(column(name) for name in columns)).dropna()
    known = there.select(*(column(name).alias(f"__hf_{place}") for place, name in enumerate(columns)))
    same = [column(name) == F.col(f"__hf_{place}") for place, name in enumerate(columns)]
    return int(keys.join(known, same, "left_anti").count())


def _texts(columns: Sequence[str], into: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def texts(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield batch.append_column(into, pa.array(key_texts(batch, columns), pa.string()))

    return texts


def key_texts(batch: pa.RecordBatch, columns: Sequence[str]) -> list[str | None]:
    """The key of each row; None: a value is null or an empty text or, among several columns, not UTF-8.

    One column gives its value; several give the JSON list of their values, without spaces. A consumer without Spark has
    the same key by `key=lambda record: json.dumps([...], ensure_ascii=False, separators=(",", ":"))`.
    """
    values = [_values(batch.column(batch.schema.get_field_index(name))) for name in columns]
    if len(values) == 1:
        return [key_text(value) for value in values[0]]
    return [_of_several(row) for row in zip(*values, strict=True)]


def _values(cells: pa.Array) -> list[Any]:
    """The values; texts as bytes, since Spark may have texts that are not UTF-8, which Arrow cannot convert."""
    if pa.types.is_string(cells.type):
        cells = cells.cast(pa.binary())
    elif pa.types.is_large_string(cells.type):
        cells = cells.cast(pa.large_binary())
    return list(cells.to_pylist())


def _of_several(row: tuple[Any, ...]) -> str | None:
    if any(value in (None, b"") for value in row):
        return None
    try:
        texts = [value.decode() if isinstance(value, bytes) else value for value in row]
    except UnicodeDecodeError:
        return None
    return key_text(json.dumps(texts, ensure_ascii=False, separators=(",", ":")))
