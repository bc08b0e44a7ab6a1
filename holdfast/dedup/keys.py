"""From a record to its business key.

A key is text that begins with what it was, so that no two different ones meet:

| taken from the record | key | e.g. |
|---|---|---|
| text; bytes that are UTF-8 | `s:` and the text | `s:4711` |
| a whole number | `n:` and its decimal digits | `n:4711` |
| other bytes | `x:` and hex digits | `x:ff00` |

So the JSON number 4711 and the JSON string "4711" are two keys. Taking two for one would lose a message; taking one for
two, when a producer changes the type, handles one twice. `true`, `null`, `""`, 1.5, lists and objects are no keys.

What a message is claimed by beside its position is written as other keys are (`s:` and its UNIQ_KEY): so `holdfast
claims` finds it, and `@idempotent(key=lambda message: message.id, name="group/topic")` around a PushConsumer's handler
claims the same.
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

#: Larger values are decoded again for a handler that asks for them: what waits is bounded by its bytes, and decoded it
#: is about ten times as large.
_KEPT_BYTES = 4096
#: Of a record that lacks the field: how many of those that it has are named, and which of them are names rather than
#: data (an address as a key of an object, say).
_MOST_NAMES = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}", re.ASCII)

KeyFunction = Callable[["Record"], "str | bytes | int"]
#: What a handler's `key=` takes: a field's name ("order.id"), `record_key()`, `header("id")`, or a function.
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
    """A header; the last one of that name."""

    name: str

    def __call__(self, record: Record) -> bytes:
        """Raises KeyMissing: the record has no such header, or one without a value."""
        value = record.header(self.name)
        if value is None:
            raise _missing(record, f"it has no header {self.name!r}", "let the producer set it")
        return value


@dataclass(frozen=True, slots=True)
class Field:
    """A field of the JSON object in the value; dots lead into nested objects. Of a value that a loop's client has
    deserialised to something else than text: what a mapping has by that name, or else an attribute."""

    name: str

    def __call__(self, record: Record) -> Any:  # noqa: ANN401 - whatever is there; `_text` judges it
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
    """The field of that name, or ABSENT. What JSON knows has no attributes: `real` is no field of a number.

    A mapping that is no dict may be more than one: Starlette's Request is a mapping of what the server has passed on,
    and what its class has by that name (`headers`, `path_params`) is what is meant.
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
    """Shared with the handler, where it is small (and not a client's message in the place of a record)."""
    if type(record) is Record and len(record.value or b"") <= _KEPT_BYTES:
        return record.json()
    return json_of(record)


def _fields(found: object) -> str:
    """The names of the fields that are there instead, as far as they are names; no values."""
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
    """The function that takes a record to its business key.

    What it returns is pure of state and may be called by any thread. It raises KeyMissing, naming topic, partition and
    offset, never the record's content. Other exceptions of a function of yours pass unchanged.

    Raises:
        SettingError: `spec` is none of the above.
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

    # Asked for each record: `key_text` gives no empty text.
    def key_of(record: Record) -> str:
        found = take(record)
        return key_text(found) or _refused(record, found)

    def own_key_of(record: Record) -> str:
        return key_text(record.key) or key_of(record)  # which tells why it is none

    return own_key_of if isinstance(spec, RecordKey) else key_of


def _refused(record: Record, found: object) -> NoReturn:
    raise _missing(record, no_key(found), NO_KEY_REMEDY)


def key_text(found: object) -> str | None:
    """The table above; None = this is no key."""
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
    """The text of a key for people, without what it was."""
    return key[2:]


def no_key(found: object) -> str:
    """Why it is none, without what it holds."""
    return "its key is empty" if isinstance(found, str | bytes) else f"its key is of type {type(found).__name__}"


NO_KEY_REMEDY = "a key is text that is not empty, bytes, or a whole number"


def _missing(record: Record, what: str, remedy: str) -> KeyMissing:
    return KeyMissing(f"no business key for the record at {place_of(record)}: {what}; {remedy}")
