"""Columns as business keys: the text that other consumers have for the same values (dedup/keys.py)."""

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
    """The names that `key=` gives.

    Raises:
        SettingError: none, or no names.
    """
    columns = (key,) if isinstance(key, str) else tuple(key)
    if not all(columns) or not columns or len(set(columns)) < len(columns):
        raise SettingError("key", key, "name a column, or several, each once")
    return columns


def check_columns(rows: DataFrame, columns: Sequence[str]) -> None:
    """Raises SettingError: a column is not there, or not of a type that makes a key."""
    found = {field.name: field.dataType for field in rows.schema.fields}
    good = (*_TEXT_OR_NUMBER, types.BinaryType) if len(columns) == 1 else _TEXT_OR_NUMBER
    for name in columns:
        if name not in found:
            raise SettingError("key", name, f"the rows have no such column (they have: {', '.join(found)})")
        # A collation counts "a" and "A" as one, and Redis does not.
        if not isinstance(found[name], good) or found[name].simpleString().startswith("string "):
            raise SettingError(
                "key",
                name,
                f"a column of type {found[name].simpleString()} makes no key: before the sink, "
                f"{_as_a_key(found[name], name)}",
            )


#: What makes keys of values of a type: two values are two keys, in each session and at each start.
_AS_KEYS = (
    # A cast to bigint would drop what is below a second; one to string has the hour twice that summer time ends with.
    ((types.TimestampType,), "take unix_micros({0})"),
    ((types.DecimalType, types.TimestampNTZType, types.DateType, types.BooleanType), "take cast({0} AS string)"),
    ((types.FloatType, types.DoubleType), "take cast({0} AS string), and better a number that is no fraction"),
    ((types.StringType,), "take collate({0}, 'UTF8_BINARY'), or lower({0}) where 'a' and 'A' are to be one key"),
    ((types.BinaryType,), "take hex({0})"),  # of several columns
    ((types.StructType,), "make its fields columns, and name these in key=[...]"),
    ((types.ArrayType, types.MapType, types.VariantType), "take to_json({0})"),
)


def _as_a_key(kind: types.DataType, name: str) -> str:
    for these, said in _AS_KEYS:
        if isinstance(kind, these):
            return said.format(name if name.isidentifier() else quoted(name))
    return "take a column of text or of whole numbers"


def check_names(rows: DataFrame) -> None:
    """Raises SettingError: a column has a name that rows cannot take through Python."""
    for name in rows.columns:
        if "." in name or "`" in name:  # it looks columns up by their bare names
            raise SettingError("rows", name, "Spark's mapInArrow takes no such name: rename the column before")


def column(name: str) -> Column:
    """A column of exactly this name, dots and all."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """A name in Spark's SQL, whatever it is made of."""
    return "`" + name.replace("`", "``") + "`"


def with_key(rows: DataFrame, columns: Sequence[str], into: str, *, scope: str | None = None) -> DataFrame:
    """The rows with the text of their key in one more column; null = they have none: see `key_texts`.

    Where it is one column of text or numbers, Spark makes it; else Python does.

    Args:
        rows: any.
        columns: of the key.
        into: that column's name.
        scope: with it not the text, but its digest: what the key is called in a namespace with `hash_keys`
            (Layout.places).

    Raises:
        SettingError: Python does, and it cannot: see `check_names`.
    """
    kind, text = rows.schema[columns[0]].dataType, quoted(columns[0])
    if len(columns) > 1 or isinstance(kind, types.BinaryType):
        check_names(rows)
        schema = types.StructType([*rows.schema.fields, types.StructField(into, types.StringType())])
        rows, text = rows.mapInArrow(_texts(columns, into), schema), quoted(into)
        if scope is None:
            return rows
    elif isinstance(kind, types.StringType):
        # A cast from bytes takes any: Python would not read them, and one such row would end every try at its batch.
        bytes_ = f"concat('x:', lower(hex(cast({text} AS binary))))"
        text = f"if({text} != '', if(is_valid_utf8({text}), concat('s:', {text}), {bytes_}), NULL)"
    else:
        text = f"concat('n:', cast({text} AS string))"
    # As one text of SQL: made of Spark's functions one by one, it would take the driver longer than all else here.
    return rows.withColumn(into, F.expr(text if scope is None else _digest(scope, text)))


def _digest(scope: str, text: str) -> str:
    named = f"concat(X'{scoped(scope).encode().hex()}', cast({text} AS binary))"
    return f"substring(unhex(sha2({named}, 256)), 1, 16)"


def lacking(rows: DataFrame, there: DataFrame, columns: Sequence[str]) -> int:
    """How many of the rows have a key, and none that is `there`."""
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
    """The key of each row; None = it has none: a null, or an empty text; of several columns also what is no UTF-8.

    One column as it is; several as the JSON list of their values, without spaces: a consumer that is not Spark has the
    same key by `key=lambda record: json.dumps([...], ensure_ascii=False, separators=(",", ":"))`.
    """
    values = [_values(batch.column(batch.schema.get_field_index(name))) for name in columns]
    if len(values) == 1:
        return [key_text(value) for value in values[0]]
    return [_of_several(row) for row in zip(*values, strict=True)]


def _values(cells: pa.Array) -> list[Any]:
    """Texts as their bytes: Spark has some that are no UTF-8, and Arrow does not make them Python's."""
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
