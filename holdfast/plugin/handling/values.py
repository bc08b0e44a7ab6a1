"""`value=`: decodes a record's bytes into the value that its handler gets.

The engine decodes before it calls the handler. A record that cannot be decoded fails like one that its source could not
read, and its handler is not called. The value is kept with its record: a retry does not decode again.
"""

from __future__ import annotations

import asyncio
import json
import re
import types
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, get_origin

from holdfast.dedup.not_run import check_returns, name_of_call, not_run
from holdfast.dedup.typed_json import installed, typed_json
from holdfast.errors import RecordUnreadable, SettingError
from holdfast.records import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.records import Record

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: The attribute of a record that keeps its value, decoded.
_KEPT = "value="
#: The modules in the name of a type.
_MODULE = re.compile(r"\b(?:\w+\.)+(?=\w)")
_REMEDY = (
    "give a pydantic model, a msgspec Struct, a dataclass, a TypedDict, or what JSON has (dict, list, str, ...); "
    "anything else by a function: value=lambda raw: ..."
)


class Deserializer(Protocol[T_co]):
    """Makes the value that a handler gets from a record: `@app.handler("orders", value=...)`.

    Besides the method it may have two attributes. `waits = True`: it may wait for a server (a registry), so it runs
    in a thread for `async def` handlers. `reads_json = False`: the value is no JSON, so `key="order_id"` is refused.
    """

    def deserialize(self, record: Record) -> T_co:
        """Make the value. Any thread, several at once. Not called for a record without a value (a tombstone).

        Raises:
            OSError, or a HoldfastError that is `retriable`: a fault that is not the record's; it is tried again.
            Exception: any other error means that the record cannot be decoded. The record becomes a dead letter at
                once, with `RecordUnreadable` as the reason.
        """
        ...


#: The argument of `value=`: a type (of JSON), a `Deserializer`, or a function of the value's bytes.
ValueSpec: TypeAlias = "type[T] | Deserializer[T] | Callable[[bytes], T]"


class Reading:
    """Decodes the values of one handler's records. Any thread.

    Args:
        spec: the argument of `value=`.
        tombstones: whether the handler takes None for a record without a value; else such a record is unreadable.

    Raises:
        SettingError: `spec` decodes nothing, or no installed library reads the type.
    """

    def __init__(self, spec: object, *, tombstones: bool) -> None:
        self._deserializer = deserializer(spec)
        self._tombstones = tombstones
        self._waits: bool = getattr(self._deserializer, "waits", False)
        self._name = name_of(spec)

    def read(self, record: Record) -> None:
        """Decode the record's value and keep it, unless it is kept already.

        Raises:
            RecordUnreadable: the value cannot be decoded.
            OSError: unchanged, as other errors that are not the record's fault (see `Deserializer.deserialize`).
        """
        kept = vars(record)
        if _KEPT not in kept:
            kept[_KEPT] = self._decode(record)

    def read_all(self, records: Sequence[Record]) -> dict[int, Exception]:
        """Decode each record as `read` does. Returns: index in the list -> error, for each record that failed."""
        failures: dict[int, Exception] = {}
        for at, record in enumerate(records):
            try:
                self.read(record)
            except Exception as error:  # noqa: BLE001 - each record has its own error
                failures[at] = error
        return failures

    async def read_async(self, record: Record) -> None:
        """Decode a record in an event loop: a deserializer that waits runs in a thread."""
        if self._waits and _KEPT not in vars(record):
            await asyncio.to_thread(self.read, record)
        else:
            self.read(record)

    async def read_all_async(self, records: Sequence[Record]) -> dict[int, Exception]:
        """Decode records as `read_all` does, in an event loop."""
        return await asyncio.to_thread(self.read_all, records) if self._waits else self.read_all(records)

    def _decode(self, record: Record) -> object:
        if record.value is None:
            if self._tombstones:
                return None
            raise RecordUnreadable(
                f"the record at {place_of(record)} has no value (a tombstone), and its handler takes no None: annotate "
                f"its parameter `{self._name} | None`"
            )
        try:
            value = self._deserializer.deserialize(record)
        except RecordUnreadable:
            raise
        except Exception as error:
            if isinstance(error, OSError) or getattr(error, "retriable", False):
                raise
            raise unreadable(record, self._name, error) from error
        if (kind := not_run(value)) is not None:
            raise unreadable(record, self._name, TypeError(f"it returned a {kind}, which has not run yet"))
        return value


def unreadable(record: Record, name: str, error: Exception, *, schema_id: str | None = None) -> RecordUnreadable:
    """Make the error for a record that the deserializer `name` cannot decode."""
    text = f"the value of the record at {place_of(record)} cannot be decoded by {name}: {type(error).__name__}: {error}"
    return RecordUnreadable(text, schema_id=schema_id)


def value_of(record: Record) -> Any:  # noqa: ANN401 - of any type
    """Return the value that `Reading.read` has kept."""
    return vars(record)[_KEPT]


def deserializer(spec: object) -> Deserializer[Any]:
    """Find or make the deserializer for the argument of `value=`.

    Raises:
        SettingError: it decodes nothing, or no installed library reads the type.
    """
    if is_type(spec) or spec is Any:
        plain = _plain(spec) if installed("msgspec") is None else None
        return _Function(_reader(spec)) if plain is None else _PlainJson(plain)
    if callable(decode := getattr(spec, "deserialize", None)):
        check_returns("value", decode, name_of(spec))
        return spec  # type: ignore[return-value]  # just looked at
    if callable(spec):
        check_returns("value", spec, name_of(spec))
        return _Function(spec)
    raise SettingError(
        "value", spec, "give a type (of JSON), Avro(...), Protobuf(...), JsonSchema(...), or a function of bytes"
    )


def is_type(spec: object) -> bool:
    """Whether it is a class, a union, or a generic type."""
    return isinstance(spec, type | types.UnionType) or get_origin(spec) is not None


def name_of(kind: object) -> str:
    """The name of a type without its modules, or of a function; for anything else its repr."""
    if isinstance(kind, type) and get_origin(kind) is None:
        return kind.__name__
    if get_origin(kind) is not None:
        return _MODULE.sub("", repr(kind))
    return name_of_call(kind) if callable(kind) else repr(kind)


class _Function:
    """A function of the value's bytes."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self._function = function

    def deserialize(self, record: Record) -> Any:  # noqa: ANN401 - whatever it returns
        return self._function(record.value or b"")


class _PlainJson:
    """Decodes JSON by the standard library, or takes the value that `record.json()` has decoded before.

    Args:
        kind: the exact type that the value must have; object: any type.
    """

    def __init__(self, kind: type) -> None:
        self._kind = kind

    def deserialize(self, record: Record) -> Any:  # noqa: ANN401 - of the type
        kept = vars(record)
        found = kept["_decoded"] if "_decoded" in kept else json.loads(record.value or b"")
        if self._kind is float and type(found) is int:
            return float(found)
        if self._kind is not object and type(found) is not self._kind:
            raise ValueError(f"Expected `{self._kind.__name__}`, got `{type(found).__name__}`")
        return found


def _plain(kind: Any) -> type | None:  # noqa: ANN401 - a type
    """The type for `_PlainJson`; None if a library has to decode it."""
    if kind in (dict[str, Any], list[Any]):
        kind = get_origin(kind)
    made: type | None = object if kind is Any else kind
    return made if made in (object, dict, list, str, int, float, bool) else None


def _reader(kind: Any) -> Callable[[bytes], Any]:  # noqa: ANN401 - a type
    """Make the function that decodes JSON into a type. Raises SettingError: no installed library can."""
    if kind in (bytes, bytearray):
        raise SettingError("value", kind, "record.value has the bytes: leave value= out")
    try:
        found = typed_json(kind, strict=True)
    except NameError as error:
        missing = str(error).splitlines()[0]
        remedy = f"{missing}: what its annotations name has to be imported, and not for type checkers alone"
        raise SettingError("value", kind, remedy) from error
    except TypeError as error:
        raise SettingError("value", kind, f"{error}: {_REMEDY}") from error
    if found is None:
        raise SettingError("value", kind, "decoding it needs msgspec or pydantic: pip install 'holdfast-mq[typed]'")
    return found.read
