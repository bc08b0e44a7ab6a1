"""Values that have a type: what a handler's `value=` takes, and how a record's bytes become one.

Whoever calls the handler decodes before that: so what cannot be decoded fails as a record does that its source could
not read, and its handler is not called. The value is kept with its record: a retry decodes nothing.
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

#: Where a record keeps what was made of its value.
_KEPT = "value="
#: In the names of types.
_MODULE = re.compile(r"\b(?:\w+\.)+(?=\w)")
_REMEDY = (
    "give a pydantic model, a msgspec Struct, a dataclass, a TypedDict, or what JSON has (dict, list, str, ...); "
    "anything else by a function: value=lambda raw: ..."
)


class Deserializer(Protocol[T_co]):
    """Makes of a record the value that its handler gets: `@app.handler("orders", value=...)`.

    Besides the method it may have two attributes. `waits = True`: it may wait for others (a registry); then `async def`
    handlers have it called in a thread, and no event loop waits. `reads_json = False`: the value is no JSON, so
    `key="order_id"` is refused.
    """

    def deserialize(self, record: Record) -> T_co:
        """Make the value. Any thread, and several at once; not for a record without a value (a tombstone).

        Any error means that the record cannot be decoded: it becomes a dead letter at once, as `RecordUnreadable`. An
        OSError, or an error of holdfast that is `retriable`, says nothing about the record: it is tried again.
        """
        ...


#: What `value=` takes: a type (of JSON), a `Deserializer`, or a function of the value's bytes.
ValueSpec: TypeAlias = "type[T] | Deserializer[T] | Callable[[bytes], T]"


class Reading:
    """How the values of one handler's records are read.

    Args:
        spec: as given by `value=`.
        tombstones: whether the handler takes None for a record without a value; else there is nothing to decode.

    Raises:
        SettingError: `spec` is nothing that decodes.
    """

    def __init__(self, spec: object, *, tombstones: bool) -> None:
        self._from = deserializer(spec)
        self._tombstones = tombstones
        self._waits: bool = getattr(self._from, "waits", False)
        self._what = name_of(spec)

    def read(self, record: Record) -> None:
        """Decode the record's value and keep it, unless it is kept already.

        Raises:
            RecordUnreadable: it cannot be decoded. Errors that say nothing of the record pass unchanged.
        """
        kept = vars(record)
        if _KEPT not in kept:
            kept[_KEPT] = self._made(record)

    def read_all(self, records: Sequence[Record]) -> dict[int, Exception]:
        """Decode what can be decoded: which of them cannot, and why."""
        failures: dict[int, Exception] = {}
        for at, record in enumerate(records):
            try:
                self.read(record)
            except Exception as error:  # noqa: BLE001 - of each record its own
                failures[at] = error
        return failures

    async def read_async(self, record: Record) -> None:
        """Decode one as `read` does, where an event loop runs that is not to wait."""
        if self._waits and _KEPT not in vars(record):
            await asyncio.to_thread(self.read, record)
        else:
            self.read(record)

    async def read_all_async(self, records: Sequence[Record]) -> dict[int, Exception]:
        """Decode them as `read_all` does, where an event loop runs that is not to wait."""
        return await asyncio.to_thread(self.read_all, records) if self._waits else self.read_all(records)

    def _made(self, record: Record) -> object:
        if record.value is None:
            if self._tombstones:
                return None
            raise RecordUnreadable(
                f"the record at {place_of(record)} has no value (a tombstone), and its handler takes no None: annotate "
                f"its parameter `{self._what} | None`"
            )
        try:
            made = self._from.deserialize(record)
        except RecordUnreadable:
            raise
        except Exception as error:
            if isinstance(error, OSError) or getattr(error, "retriable", False):
                raise
            raise unreadable(record, self._what, error) from error
        if (kind := not_run(made)) is not None:
            raise unreadable(record, self._what, TypeError(f"it returned a {kind}, which has not run yet"))
        return made


def unreadable(record: Record, what: str, error: Exception, *, schema_id: str | None = None) -> RecordUnreadable:
    """Make the error that says which record `what` cannot decode, and why."""
    said = f"the value of the record at {place_of(record)} cannot be decoded by {what}: {type(error).__name__}: {error}"
    return RecordUnreadable(said, schema_id=schema_id)


def value_of(record: Record) -> Any:  # noqa: ANN401 - whatever was made of it
    """Return what `Reading.read` has kept."""
    return vars(record)[_KEPT]


def deserializer(spec: object) -> Deserializer[Any]:
    """Find or make what decodes, of what `value=` was given.

    Raises:
        SettingError: nothing does.
    """
    if isinstance(spec, type | types.UnionType) or get_origin(spec) is not None or spec is Any:
        plain = _plain(spec) if installed("msgspec") is None else None
        return _Json(spec) if plain is None else _PlainJson(plain)
    if callable(decode := getattr(spec, "deserialize", None)):
        check_returns("value", decode, name_of(spec))
        return spec  # type: ignore[return-value]  # just looked at
    if callable(spec):
        check_returns("value", spec, name_of(spec))
        return _Function(spec)
    raise SettingError(
        "value", spec, "give a type (of JSON), Avro(...), Protobuf(...), JsonSchema(...), or a function of bytes"
    )


def name_of(kind: object) -> str:
    """A type's name without its modules, or a function's; of anything else its repr."""
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


class _Json:
    """JSON of a type. Raises SettingError: the library that is installed cannot read that type, or none is."""

    def __init__(self, kind: Any) -> None:  # noqa: ANN401 - a class, or what typing makes of several
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
            raise SettingError("value", kind, "decoding it needs msgspec or pydantic: pip install 'holdfast[typed]'")
        self._read = found.read

    def deserialize(self, record: Record) -> Any:  # noqa: ANN401 - of the type
        return self._read(record.value or b"")


class _PlainJson:
    """JSON as the standard library decodes it, or `record.json()` has done already.

    Args:
        kind: the type that it has to be, and no subclass; object = any.
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


def _plain(kind: Any) -> type | None:  # noqa: ANN401 - as of _Json
    """Find the type for `_PlainJson`. Returns: None if that kind of type needs a library."""
    if kind in (dict[str, Any], list[Any]):
        kind = get_origin(kind)
    made: type | None = object if kind is Any else kind
    return made if made in (object, dict, list, str, int, float, bool) else None
