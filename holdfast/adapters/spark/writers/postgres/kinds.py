"""Checks a column's type: distinct keys must stay distinct, and other values must not change.

Redis identifies a key by its text. A column may treat two texts as equal (uuid, citext, char, numbers), or write a text
in another form. For such columns the key's text is staged beside the value, and compared with the text of the column's
value. If they are equal, both sides have the same key; if not, the batch ends. Types whose equal values have several
texts even so (intervals, times with a zone) are refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.adapters.spark._pyspark import types
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from typing import LiteralString

_WHOLE = (types.ByteType, types.ShortType, types.IntegerType, types.LongType)
#: Type -> SQL for a text that is the same for equal values.
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
#: Decimal digits that a binary fraction keeps exactly.
_FLOAT_DIGITS = {"float4": 6, "float8": 15}
_DIGITS = dict(zip(_WHOLE, (3, 5, 10, 19), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A column's type."""

    name: str  #: the type in the table; for a domain, the domain's name
    base: str  #: the base type of a domain; "enum" for any enum
    element: str | None = None  #: the element type of an array
    modifier: int = -1  #: the type modifier, which encodes the numbers in parentheses; -1: none
    exact: bool = True  #: its collation distinguishes all texts

    @property
    def scale(self) -> int | None:
        """The scale of a numeric; None: any."""
        return None if self.modifier < 0 else ((self.modifier - 4) & 0x7FF ^ 1024) - 1024


def canonical(table: str, key: types.StructField, into: Kind) -> dict[str, LiteralString]:
    """Key column's name -> SQL for the text that the key must have had, from the column's value. Empty if each text is
    a value of its own.

    Raises:
        SettingError: the type has no such text.
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
    """Raises SettingError: the column would cut or round such values without an error."""
    of, base = value.dataType, into.base
    while isinstance(of, types.ArrayType):
        of, base = of.elementType, into.element or base
    if _loses_values(of, base, into.scale):
        raise SettingError(
            "table",
            table,
            f"{value.name!r} is {value.dataType.simpleString()} and goes to {into.name}, which does not hold all of "
            "its values: cast it before the sink, or alter the column",
        )


def _loses_values(of: types.DataType, base: str, scale: int | None) -> bool:
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
