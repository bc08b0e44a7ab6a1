"""Values that have a type: what a handler's `value=` takes, and how a record's bytes become one.

Whoever calls the handler decodes before that: so what cannot be decoded fails as a record does that its source could
not read, and its handler is not called. The value is kept with its record: a retry decodes nothing.
"""

from __future__ import annotations

import asyncio
import types
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, get_origin

from holdfast.dedup.not_run import check_returns, not_run
from holdfast.errors import RecordUnreadable, SettingError
from holdfast.plugin.handling.json_values import Json, name_of
from holdfast.records import place_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from holdfast.records import Record

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

#: Where a record keeps what was made of its value.
_KEPT = "value="


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
        return Json(spec)
    if callable(decode := getattr(spec, "deserialize", None)):
        check_returns("value", decode, name_of(spec))
        return spec  # type: ignore[return-value]  # just looked at
    if callable(spec):
        check_returns("value", spec, name_of(spec))
        return _Function(spec)
    raise SettingError(
        "value", spec, "give a type (of JSON), Avro(...), Protobuf(...), JsonSchema(...), or a function of bytes"
    )


class _Function:
    """A function of the value's bytes."""

    def __init__(self, function: Callable[[bytes], Any]) -> None:
        self._function = function

    def deserialize(self, record: Record) -> Any:  # noqa: ANN401 - whatever it returns
        return self._function(record.value or b"")
