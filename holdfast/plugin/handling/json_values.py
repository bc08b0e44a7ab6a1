"""JSON of a type: pydantic reads its own models, msgspec reads everything else where it is installed, and we do what is
simple without it: orjson, else json, and then a check of types that is as strict as msgspec's.

What a handler gets depends on none of these: a test compares ours with msgspec's.
"""

from __future__ import annotations

import importlib
import json
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    NotRequired,
    Required,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from holdfast.dedup.not_run import name_of_call
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.records import Record

    Convert: TypeAlias = "Callable[[Any], Any]"

#: In the names of types.
_MODULE = re.compile(r"\b(?:\w+\.)+(?=\w)")
#: So many of the things that pydantic finds wrong are told.
_MOST_TOLD = 5


class Json:
    """Decodes JSON into one type.

    Raises:
        SettingError: nothing that is installed reads that type.
    """

    def __init__(self, kind: Any) -> None:  # noqa: ANN401 - a class, or what typing makes of several
        if kind in (bytes, bytearray):
            raise SettingError("value", kind, "record.value has the bytes: leave value= out")
        try:
            self._decode = _decoder(kind)
        except NameError as error:
            missing = str(error).splitlines()[0]
            remedy = f"{missing}: what its annotations name has to be imported, and not for type checkers alone"
            raise SettingError("value", kind, remedy) from error

    def deserialize(self, record: Record) -> Any:  # noqa: ANN401 - of the type
        """Decode the record's value."""
        return self._decode(record)


def name_of(kind: object) -> str:
    """A type's name as people write it, or a function's; of anything else its repr."""
    if isinstance(kind, type) and get_origin(kind) is None:
        return kind.__name__
    if get_origin(kind) is not None:
        return _MODULE.sub("", repr(kind))
    return name_of_call(kind) if callable(kind) else repr(kind)


def _decoder(kind: Any) -> Callable[[Record], Any]:  # noqa: ANN401 - as above
    if any(hasattr(each, "__pydantic_validator__") for each in _parts(kind)):
        return _by_pydantic(kind)
    if (msgspec := _installed("msgspec")) is not None:
        try:
            unknown = isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
            decode = msgspec.json.Decoder(kind).decode
        except TypeError as error:
            raise SettingError("value", kind, f"msgspec cannot read it: {error}") from error
        if unknown:
            raise SettingError("value", kind, _REMEDY)
        return lambda record: decode(record.value)
    convert = _converter(kind, {})
    loads: Convert = json.loads if (orjson := _installed("orjson")) is None else orjson.loads

    def shared(record: Record) -> Any:  # noqa: ANN401 - as above
        kept = vars(record)
        return convert(kept["_decoded"] if "_decoded" in kept else loads(record.value))

    return shared


_REMEDY = (
    "give a pydantic model, a msgspec Struct, a dataclass, a TypedDict, or what JSON has (dict, list, str, ...); "
    "anything else by a function: value=lambda raw: ..."
)


def _installed(package: str) -> Any:  # noqa: ANN401 - a module, or None
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        return None


def _parts(kind: object) -> Iterator[object]:
    """The type, and those that it is made of by typing."""
    yield kind
    for each in get_args(kind):
        yield from _parts(each)


def _by_pydantic(kind: Any) -> Callable[[Record], Any]:  # noqa: ANN401 - as above
    pydantic = importlib.import_module("pydantic")
    adapter = pydantic.TypeAdapter(kind)
    if not getattr(adapter, "pydantic_complete", True):
        adapter.rebuild(raise_errors=True)  # or each record would be told that names are missing
    validate = adapter.validate_json

    def decode(record: Record) -> Any:  # noqa: ANN401 - as above
        try:
            return validate(record.value)
        except pydantic.ValidationError as error:
            # Its own text, also as a cause's in a traceback, shows what the record holds.
            raise ValueError(_told(error)) from None

    return decode


def _told(error: Any) -> str:  # noqa: ANN401 - pydantic's
    found = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{each['msg']} - at $.{'.'.join(map(str, each['loc']))}".removesuffix(".") for each in found[:_MOST_TOLD]]
    more = len(found) - len(told)
    return "; ".join(told) + (f"; and {more} more" if more else "")


# ---- without msgspec
class _Unfit(ValueError):
    """A part of the value is something else. `path` leads there, and grows on the way out."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.path = what, ""

    def __str__(self) -> str:
        return f"{self.what} - at ${self.path}"


def _other(expected: str, found: object) -> _Unfit:
    return _Unfit(f"expected {expected}, got {_NAMES.get(type(found), type(found).__name__)}")


_NAMES = {type(None): "null", dict: "an object", list: "a list", str: "text", bool: "a flag"}


def _converter(kind: Any, known: dict[Any, Convert]) -> Convert:  # noqa: ANN401 - as above
    """A function that takes JSON, decoded, to the type. `known`: of classes, which may name themselves."""
    convert = _plain(kind) or _of_typing(kind, known) or _of_class(kind, known)
    if convert is None:
        raise SettingError("value", kind, f"msgspec reads more types (pip install msgspec); without it, {_REMEDY}")
    return convert


def _plain(kind: Any) -> Convert | None:  # noqa: ANN401 - as above
    if kind is Any or kind is object:
        return lambda found: found
    if kind is None or kind is type(None):
        return _exactly(type(None), "null")
    simple = {
        str: _exactly(str, "text"),
        bool: _exactly(bool, "a flag"),
        int: _exactly(int, "a whole number"),
        float: _number,
        list: _list_of(None),
        Sequence: _list_of(None),
        dict: _dict_of(None),
        Mapping: _dict_of(None),
    }
    return simple.get(kind) if isinstance(kind, type) else None


def _of_typing(kind: Any, known: dict[Any, Convert]) -> Convert | None:  # noqa: ANN401 - as above
    origin, inner = get_origin(kind), get_args(kind)
    made: Convert | None = None
    if origin is Literal:
        made = _one_of(inner)
    elif origin is Union or origin is types.UnionType:
        made = _any_of(kind, [_converter(each, known) for each in inner])
    elif origin is Annotated:
        made = _converter(inner[0], known)
    elif origin in (list, Sequence):
        made = _list_of(_converter(inner[0], known))
    elif origin in (dict, Mapping) and inner[0] is str:
        made = _dict_of(_converter(inner[1], known))
    return made


def _of_class(kind: Any, known: dict[Any, Convert]) -> Convert | None:  # noqa: ANN401 - as above
    if not isinstance(kind, type) or get_origin(kind) is not None:
        return None
    if kind in known:
        return lambda found: known[kind](found)  # noqa: PLW0108 - it is not known yet
    if issubclass(kind, Enum):
        return _member_of(kind)
    if is_typeddict(kind) or is_dataclass(kind):
        known[kind] = lambda found: found  # until all its fields are known: before anything is decoded
        known[kind] = _object_of(kind, known)
        return known[kind]
    return None


def _exactly(kind: Any, name: str) -> Convert:  # noqa: ANN401 - a class
    def convert(found: object) -> object:
        if type(found) is not kind:
            raise _other(name, found)
        return found

    return convert


def _number(found: object) -> float:
    if type(found) is not float and type(found) is not int:
        raise _other("a number", found)
    return float(found)


def _one_of(values: Sequence[object]) -> Convert:
    def convert(found: object) -> object:
        if not any(type(found) is type(each) and found == each for each in values):
            raise _other(f"one of {', '.join(map(repr, values))}", found)
        return found

    return convert


def _member_of(kind: type[Enum]) -> Convert:
    check = _one_of([each.value for each in kind])
    return lambda found: kind(check(found))


def _any_of(kind: object, converters: Sequence[Convert]) -> Convert:
    def convert(found: object) -> object:
        for each in converters:
            try:
                return each(found)
            except ValueError:
                continue
        raise _other(name_of(kind), found)

    return convert


def _list_of(item: Convert | None) -> Convert:
    def convert(found: object) -> object:
        if not isinstance(found, list):
            raise _other("a list", found)
        return found if item is None else [_at(f"[{at}]", item, each) for at, each in enumerate(found)]

    return convert


def _dict_of(item: Convert | None) -> Convert:
    def convert(found: object) -> object:
        if not isinstance(found, dict):
            raise _other("an object", found)
        return found if item is None else {name: _at(f".{name}", item, each) for name, each in found.items()}

    return convert


def _object_of(kind: Any, known: dict[Any, Convert]) -> Convert:  # noqa: ANN401 - a dataclass or TypedDict
    """Fields that the type does not have are left out, as msgspec does."""
    hints = get_type_hints(kind)
    if is_dataclass(kind):
        own = [each for each in fields(kind) if each.init]
        needed = {each.name for each in own if each.default is MISSING and each.default_factory is MISSING}
        hints = {each.name: hints[each.name] for each in own}
    else:
        needed = {
            name for name, hint in get_type_hints(kind, include_extras=True).items() if _is_needed(kind, name, hint)
        }
    items = {name: _converter(hint, known) for name, hint in hints.items()}

    def convert(found: object) -> object:
        if not isinstance(found, dict):
            raise _other(f"{kind.__name__}, an object", found)
        if not found.keys() >= needed:
            missing = min(needed - found.keys())
            raise _Unfit(f"{kind.__name__} misses its field {missing!r}")
        return kind(**{name: _at(f".{name}", item, found[name]) for name, item in items.items() if name in found})

    return convert


def _is_needed(kind: Any, name: str, hint: object) -> bool:  # noqa: ANN401 - a TypedDict
    """`__required_keys__` alone does not know what stands in an annotation that is text."""
    marked = get_origin(hint)
    return marked is Required or (marked is not NotRequired and name in kind.__required_keys__)


def _at(step: str, convert: Convert, found: object) -> object:
    try:
        return convert(found)
    except _Unfit as error:
        error.path = step + error.path
        raise
