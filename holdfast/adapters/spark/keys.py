"""Columns as business keys: the text that other consumers have for the same values (dedup/keys.py)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

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
                f"a column of type {found[name].simpleString()} makes no key: cast it to string or bigint "
                "before the sink",
            )


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


def with_key(rows: DataFrame, columns: Sequence[str], into: str) -> DataFrame:
    """The rows with the text of their key in one more column; null = they have none: a null, or an empty text.

    Where it is one column of text or numbers, Spark makes it; else Python does.

    Raises:
        SettingError: Python does, and it cannot: see `check_names`.
    """
    kind = rows.schema[columns[0]].dataType
    if len(columns) > 1 or isinstance(kind, types.BinaryType):
        check_names(rows)
        schema = types.StructType([*rows.schema.fields, types.StructField(into, types.StringType())])
        return rows.mapInArrow(_texts(columns, into), schema)
    value = column(columns[0])
    if isinstance(kind, types.StringType):
        return rows.withColumn(into, F.when(value != "", F.concat(F.lit("s:"), value)))
    return rows.withColumn(into, F.concat(F.lit("n:"), value.cast("string")))


def digest(scope: str, key: str) -> Column:
    """Of a column of `with_key`: what the key is called in a namespace with `hash_keys` (Layout.places)."""
    name = F.concat(F.lit(scoped(scope)), F.col(key)).cast("binary")
    return F.substring(F.unhex(F.sha2(name, 256)), 1, 16)


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
    """The key of each row; None = it has none: a null, or an empty text.

    One column as it is; several as the JSON list of their values, without spaces: a consumer that is not Spark has the
    same key by `key=lambda record: json.dumps([...], ensure_ascii=False, separators=(",", ":"))`.
    """
    values = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in columns]
    if len(values) == 1:
        return [key_text(value) for value in values[0]]
    return [
        None
        if any(value in (None, "") for value in row)
        else key_text(json.dumps(row, ensure_ascii=False, separators=(",", ":")))
        for row in zip(*values, strict=True)
    ]
