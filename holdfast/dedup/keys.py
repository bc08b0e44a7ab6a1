"""From a record to its business key.

A key is a text that begins with the type of its value, so that two different values never have the same key:

| taken from the record | key | e.g. |
|---|---|---|
| text; bytes that are UTF-8 | `s:` and the text | `s:4711` |
| a whole number | `n:` and its decimal digits | `n:4711` |
| other bytes | `x:` and hex digits | `x:ff00` |

The JSON number 4711 and the JSON string "4711" are therefore two keys. If two values were taken for one key, a message
would be lost; if a producer changes the type of one value, its message is handled twice. `true`, `null`, `""`, 1.5,
lists and objects are no keys.

The message id of RocketMQ, by which a message may be claimed beside its position, has the same form (`s:` and its
UNIQ_KEY): `holdfast claims` finds it, and `@idempotent(key=lambda message: message.id, name="group/topic")` around a
PushConsumer's handler claims the same key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, Final, NoReturn

from holdfast.dedup.not_run import check_returns, name_of_call
from holdfast.errors import KeyMissing, NotJson, SettingError
from holdfast.records import Record, json_of, place_of

if TYPE_CHECKING:
    from typing import TypeAlias

#: Larger values are not kept decoded; a handler that asks for one decodes it again. Waiting records are limited by
#: their bytes, and a decoded value is about ten times as large.
_KEPT_BYTES = 4096
#: An error about a missing field names at most this many of the fields that are there, and only those that look like
#: names rather than data (an address may be a key of an object).
_MOST_NAMES = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}", re.ASCII)

KeyFunction = Callable[["Record"], "str | bytes | int"]
#: The values of a handler's `key=`: a field's name ("order.id"), `record_key()`, `header("id")`, or a function.
KeySpec: TypeAlias = "str | RecordKey | Header | KeyFunction"


@dataclass(frozen=True, slots=True)
class RecordKey:
    """The record's own key, as the producer set it."""

    def __call__(self, record: Record) -> bytes:
        """Raises KeyMissing: the record has none."""
        if record.key is None:
            raise _missing(record, "it has no key", "let the producer set one, or name a field: key='order_id'")
        return record.key


@dataclass(frozen=True, slots=True)
class Header:
    """The value of a header; of several with that name, of the last one."""

    name: str

    def __call__(self, record: Record) -> bytes:
        """Raises KeyMissing: the record has no such header, or one without a value."""
        value = record.header(self.name)
        if value is None:
            raise _missing(record, f"it has no header {self.name!r}", "let the producer set it")
        return value


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the JSON object in the value; dots lead into nested objects. If the client of an own loop has
    deserialised the value to another type than text: an item of a mapping, or else an attribute."""

    name: str

    def __call__(self, record: Record) -> Any:  # noqa: ANN401 - whatever is there; `key_text` judges it
        """Raises KeyMissing: no value, no JSON, or no such field."""
        found: Any = record.value
        if found is None:
            raise _missing(record, "it has no value (a tombstone)", "key=record_key() takes the record's own key")
        if isinstance(found, bytes | str):
            try:
                found = _decoded(record)
            except NotJson as error:
                remedy = "give a function that reads the format: key=lambda record: ..."
                raise _missing(record, "its value is not JSON", remedy) from error
        above = "its value"
        for part in self.name.split("."):
            inner = inside(found, part)
            if inner is ABSENT:
                what = f"its value has no field {self.name!r}: {above} {_fields(found)}"
                raise _missing(record, what, "let the producer set it, or name another field: key=...")
            found, above = inner, part
        return found


ABSENT: Final = object()


def inside(found: object, part: str) -> object:
    """The field of that name, or ABSENT. Values of JSON's types have no attributes: `real` is no field of a number.

    A mapping that is no dict may have properties too: Starlette's Request is a mapping of the server's scope, and its
    properties (`headers`, `path_params`) come before items of the same name.
    """
    if type(found) is dict:
        return found.get(part, ABSENT)
    if type(found) in _JSON_TYPES:
        return ABSENT
    if isinstance(found, Mapping) and (isinstance(found, dict) or not _is_property(type(found), part)):
        item = found.get(part, ABSENT)
        if item is not ABSENT:
            return item
    return getattr(found, part, ABSENT)


def _is_property(kind: type, name: str) -> bool:
    return any(isinstance(vars(base).get(name), property | cached_property) for base in kind.__mro__)


def _decoded(record: Record) -> Any:  # noqa: ANN401 - whatever is there
    """Decode a record's value. A small one is kept with the record for its handler; but not with a client's message
    that stands in for a record."""
    if type(record) is Record and len(record.value or b"") <= _KEPT_BYTES:
        return record.json()
    return json_of(record)


def _fields(found: object) -> str:
    """For an error: the names of the fields that are there instead, as far as they look like names; no values."""
    if not isinstance(found, Mapping):
        kind = type(found)
        return f"is {_JSON_TYPES.get(kind) or f'of type {kind.__name__}, without that attribute'}"
    names = [name for name in found if isinstance(name, str) and _NAME.fullmatch(name)][:_MOST_NAMES]
    if not names:
        return "is an object without fields" if not found else f"has {len(found)} others"
    rest = len(found) - len(names)
    return f"has {', '.join(names)}{f' and {rest} more' if rest else ''}"


_JSON_TYPES = {
    type(None): "null",
    bool: "a flag",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
}


def record_key() -> RecordKey:
    """`key=record_key()`: the record's own key."""
    return RecordKey()


def header(name: str) -> Header:
    """`key=header("event-id")`: a header's value.

    Raises:
        SettingError: no name.
    """
    if not name:
        raise SettingError("header", name, "give the header's name")
    return Header(name)


def resolve_key(spec: KeySpec) -> Callable[[Record], str]:
    """Return the function that takes a record to its business key.

    The returned function has no state, and any thread may call it. It raises KeyMissing, naming topic, partition and
    offset, never the record's content. Other exceptions of a user's function pass through unchanged.

    Raises:
        SettingError: `spec` is not a `KeySpec`.
    """
    if isinstance(spec, str):
        if not all(spec.split(".")):
            raise SettingError(
                "key", spec, "name a field of the JSON value: 'order_id', or 'order.id' for a nested one"
            )
        take: KeyFunction = Field(spec)
    elif callable(spec):
        check_returns("key", spec, name_of_call(spec))
        take = spec
    else:
        raise SettingError(
            "key", spec, "give a field's name, record_key(), header('name'), or a function of the record"
        )

    # Called for each record, hence the short form: `key_text` never returns an empty text.
    def key_of(record: Record) -> str:
        found = take(record)
        return key_text(found) or _refused(record, found)

    def own_key_of(record: Record) -> str:
        return key_text(record.key) or key_of(record)  # `key_of` raises the error

    return own_key_of if isinstance(spec, RecordKey) else key_of


def _refused(record: Record, found: object) -> NoReturn:
    raise _missing(record, no_key(found), NO_KEY_REMEDY)


def key_text(found: object) -> str | None:
    """Make a key's text by the table above; None = the value is no key."""
    if isinstance(found, bytes) and found:
        try:
            return "s:" + found.decode()
        except UnicodeDecodeError:
            return "x:" + found.hex()
    if isinstance(found, str) and found:
        return "s:" + found
    if isinstance(found, int):
        return None if isinstance(found, bool) else f"n:{found:d}"
    return f"n:{int(found):d}" if isinstance(found, Integral) else None  # numpy's


def text_of(key: str) -> str:
    """A key for people, without its type."""
    return key[2:]


def no_key(found: object) -> str:
    """For an error: why the value is no key, without its content."""
    return "its key is empty" if isinstance(found, str | bytes) else f"its key is of type {type(found).__name__}"


NO_KEY_REMEDY = "a key is text that is not empty, bytes, or a whole number"


def _missing(record: Record, what: str, remedy: str) -> KeyMissing:
    return KeyMissing(f"no business key for the record at {place_of(record)}: {what}; {remedy}")
