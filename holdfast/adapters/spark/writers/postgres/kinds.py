"""A column's type and the values that come to it: keys must stay apart, and others stay what they are.

Redis knows a key by its text. A column may take two texts for one (uuid, citext, char, numbers), or write one otherwise
than it came. So of such columns the text is kept beside the value while it is staged, and compared with what the column
has made of it: what is the same is one key on both sides, what is not ends the batch. Types whose equal values have
several texts even so (intervals, times with a zone) are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import types
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from typing import LiteralString

_WHOLE = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
#: A text of each value that equal values share.
_AS_TEXT: dict[str, LiteralString] = {
    "bpchar": "{}::pg_catalog.text",
    "varchar": "{}::pg_catalog.text",
    "uuid": "{}::pg_catalog.text",
    "enum": "{}::pg_catalog.text",
    "int2": "{}::pg_catalog.text",
    "int4": "{}::pg_catalog.text",
    "int8": "{}::pg_catalog.text",
    "numeric": "pg_catalog.trim_scale({})::pg_catalog.text",
    "citext": "pg_catalog.lower({}::pg_catalog.text)",
}
#: Digits that a binary fraction keeps of any number.
_FLOAT_DIGITS = {"float4": 6, "float8": 15}
_DIGITS = dict(zip(_WHOLE, (3, 5, 10, 19), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A column's type."""

    name: str  #: as the table has it: a domain's own
    base: str  #: a domain's base; "enum" for any of these
    element: str | None = None  #: of an array
    modifier: int = -1  #: what is in parentheses; -1: nothing is
    exact: bool = True  #: its collation tells all texts apart

    @property
    def scale(self) -> int | None:
        """Of a numeric; None: any."""
        return None if self.modifier < 0 else ((self.modifier - 4) & 0x7FF ^ 1024) - 1024


def canonical(table: str, key: types.StructField, into: Kind) -> dict[str, LiteralString]:
    """By the key column's name the SQL that makes of its value there the text that it must have come as; nothing where
    any text is one value.

    Raises:
        SettingError: no such text tells the type's values apart.
    """
    of = key.dataType
    if into.exact and isinstance(of, types.StringType):
        if into.base == "text" or (into.base == "varchar" and into.modifier < 0):
            return {}
        if (as_text := _AS_TEXT.get(into.base)) is not None:
            return {key.name: as_text}
    if into.exact and isinstance(of, _WHOLE):
        whole = into.base == "numeric" and (into.scale or 0) >= 0
        if whole or into.base in ("int2", "int4", "int8", "text", "varchar", "bpchar", "citext"):
            return {}
    if isinstance(of, types.BinaryType) and into.base == "bytea":
        return {}
    collation = "" if into.exact else " with a collation that takes two texts for one"
    raise SettingError(
        "table",
        table,
        f"the key {key.name!r} is {of.simpleString()} and goes to {into.name}{collation}, which may take two keys for "
        "one: make the column text, or bigint for whole numbers",
    )


def check_holds(table: str, value: types.StructField, into: Kind) -> None:
    """Raises SettingError: the column would drop or round a part of such values, without a word."""
    of, base = value.dataType, into.base
    while isinstance(of, types.ArrayType):
        of, base = of.elementType, into.element or base
    if _drops(of, base, into.scale):
        raise SettingError(
            "table",
            table,
            f"{value.name!r} is {value.dataType.simpleString()} and goes to {into.name}, which does not hold all of "
            "its values: cast it before the sink, or alter the column",
        )


def _drops(of: types.DataType, base: str, scale: int | None) -> bool:
    if isinstance(of, types.TimestampType | types.TimestampNTZType):
        return base in ("date", "time", "timetz")
    if isinstance(of, types.DecimalType):
        return of.precision > _FLOAT_DIGITS.get(base, 38) or (
            base == "numeric" and scale is not None and of.scale > scale
        )
    if isinstance(of, types.DoubleType | types.FloatType):
        wide = base == "float4" and isinstance(of, types.DoubleType)
        return wide or (base == "numeric" and scale is not None)
    if isinstance(of, _WHOLE):
        rounded = base == "numeric" and scale is not None and scale < 0
        return rounded or _DIGITS[type(of)] > _FLOAT_DIGITS.get(base, 19)
    return False
