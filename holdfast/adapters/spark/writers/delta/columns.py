"""Fits a batch's columns to those of a Delta table.

Columns may be added or missing, as in a lake; the types of the table stay. In a MERGE, Delta casts values without an
error: fractions, times of a day, and differences between two keys could be lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import types
from holdfast.adapters.spark.keys import column
from holdfast.adapters.spark.values import BatchRefused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.spark._pyspark import Column, DataFrame
    from holdfast.adapters.spark.values import BatchWrite

_WHOLE = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
#: Decimal digits of the widest value.
_DIGITS = dict(zip(_WHOLE, (3, 5, 10, 19), strict=True))
#: The metadata in which Spark keeps the declared type of char(n) and varchar(n), which it reads as strings.
_DECLARED = "__CHAR_VARCHAR_TYPE_STRING"


def fitted(rows: DataFrame, table: types.StructType, key: Sequence[str], batch: BatchWrite, at: str) -> DataFrame:
    """The rows cast to the types of the table, which must hold all values; new columns keep their types.

    Raises:
        BatchRefused: a column's type cannot hold all values, or would make two keys equal.
    """
    where = f"batch {batch.batch} of sink {batch.sink!r} was not written"
    there = {field.name.lower(): field for field in table.fields}  # names in Delta are unique without their case
    chosen: list[Column] = []
    for field in rows.schema.fields:
        into = there.get(field.name.lower())
        if into is not None:
            if not _holds(into.dataType, field.dataType):
                raise BatchRefused(
                    f"{where}: column {field.name!r} is {field.dataType.simpleString()} here and "
                    f"{into.dataType.simpleString()} in {at}, which does not hold all of its values: cast it "
                    "before the sink, or alter the table"
                )
            if field.name in key and str(into.metadata.get(_DECLARED, "")).startswith("char"):
                raise BatchRefused(
                    f"{where}: the key {field.name!r} is {into.metadata[_DECLARED]} in {at}, which fills it up with "
                    "spaces: two keys would be one there. Make the column a string"
                )
        chosen.append(_cast(field, into))
    return rows.select(*chosen)


def _cast(field: types.StructField, into: types.StructField | None) -> Column:
    if into is None or not isinstance(into.dataType, types.NumericType) or into.dataType == field.dataType:
        return column(field.name)
    return column(field.name).cast(into.dataType).alias(field.name)


def _holds(into: types.DataType, of: types.DataType) -> bool:
    """Whether the type `into` holds each value of the type `of`."""
    if into == of or isinstance(into, types.NullType) or isinstance(of, types.NullType):
        return True
    if isinstance(of, _WHOLE):
        if isinstance(into, types.DecimalType):
            return into.precision - into.scale >= _DIGITS[type(of)]
        return isinstance(into, _WHOLE) and _WHOLE.index(type(into)) > _WHOLE.index(type(of))
    if isinstance(of, types.DecimalType) and isinstance(into, types.DecimalType):
        return into.scale >= of.scale and into.precision - into.scale >= of.precision - of.scale
    if isinstance(of, types.FloatType):
        return isinstance(into, types.DoubleType)
    return _same_shape(into, of)


def _same_shape(into: types.DataType, of: types.DataType) -> bool:
    """Whether the types differ at most in fields that only one of them has, and in nullability."""
    if isinstance(into, types.StructType) and isinstance(of, types.StructType):
        there = {field.name.lower(): field.dataType for field in into.fields}
        return all(_same_shape(there.get(field.name.lower(), field.dataType), field.dataType) for field in of.fields)
    if isinstance(into, types.ArrayType) and isinstance(of, types.ArrayType):
        return _same_shape(into.elementType, of.elementType)
    if isinstance(into, types.MapType) and isinstance(of, types.MapType):
        return _same_shape(into.keyType, of.keyType) and _same_shape(into.valueType, of.valueType)
    return into == of
