"""JSON of a type: pydantic reads and writes its own models, and msgspec all other types. Without msgspec, pydantic
reads and writes these too."""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: An error names at most this many of pydantic's findings.
_MOST_NAMED = 5
#: Two of msgspec's errors quote the input: for a value that is no member of an enum, or no tag of a Struct.
_QUOTE = re.compile(r"^(Invalid(?: enum)? value) .*?((?: - at `[^`]*`(?: in `[^`]*`)?)?)$", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TypedJson:
    """Reads and writes JSON of one type. Any thread."""

    #: Raises ValueError: the path of the part that does not fit, without its content. Also RecursionError.
    read: Callable[[bytes | str], Any]
    write: Callable[[Any], str]


def typed_json(kind: Any, *, strict: bool) -> TypedJson | None:  # noqa: ANN401 - a class, or what typing makes of several
    """Choose the library for a type.

    Args:
        kind: the type.
        strict: whether pydantic refuses "1" where the type has a number, as msgspec always does (a pydantic model
            decides that itself), and refuses a model with annotations that are not defined yet.

    Returns:
        None: neither library is installed.

    Raises:
        TypeError: the library cannot read the type.
        NameError: an annotation in the type uses a name that its module does not have.
    """
    is_model = any(hasattr(part, "__pydantic_validator__") for part in _parts(kind))
    if not is_model and (msgspec := installed("msgspec")) is not None:
        return _by_msgspec(msgspec, kind)
    if (pydantic := installed("pydantic")) is not None:
        return _by_pydantic(pydantic, kind, is_model=is_model, strict=strict)
    return None


def installed(package: str) -> Any:  # noqa: ANN401 - a module
    """Import a package. Returns: None if it is not installed."""
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        return None


def _parts(kind: object) -> Iterator[object]:
    yield kind
    for part in get_args(kind):
        yield from _parts(part)


def _by_msgspec(msgspec: Any, kind: Any) -> TypedJson:  # noqa: ANN401 - the module, and a type
    try:
        unknown = next(_unknown(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType, set()), None)
        decode = msgspec.json.Decoder(kind).decode
    except TypeError as error:
        raise TypeError(f"msgspec cannot read it ({error})") from error
    if unknown is not None:
        raise TypeError(f"msgspec does not know the type {getattr(unknown, '__name__', unknown)}")
    encode = msgspec.json.Encoder().encode

    def read(text: bytes | str) -> Any:  # noqa: ANN401 - of the type
        try:
            return decode(text)
        except msgspec.DecodeError as error:
            # Not chained to msgspec's error: a traceback would show its text. Its cause is an error of the user's
            # __post_init__.
            raise ValueError(_QUOTE.sub(r"\1\2", str(error))) from error.__cause__

    return TypedJson(read, lambda value: encode(value).decode())


def _unknown(info: Any, custom: Any, seen: set[int]) -> Iterator[Any]:  # noqa: ANN401 - what msgspec tells of a type
    """The types in `info`, at whatever depth, that msgspec does not know."""
    if isinstance(info, tuple):
        for each in info:
            yield from _unknown(each, custom, seen)
    elif id(info) not in seen:
        seen.add(id(info))
        if isinstance(info, custom):
            yield info.cls
        for name in getattr(type(info), "__struct_fields__", ()):
            if name != "cls":
                yield from _unknown(getattr(info, name), custom, seen)


def _by_pydantic(pydantic: Any, kind: Any, *, is_model: bool, strict: bool) -> TypedJson:  # noqa: ANN401 - as above
    try:
        adapter = pydantic.TypeAdapter(kind)
        if strict and not getattr(adapter, "pydantic_complete", True):
            adapter.rebuild(raise_errors=True)  # raises now what every read would raise
    except NameError:
        raise
    except Exception as error:
        raise TypeError(f"pydantic cannot read it ({str(error).splitlines()[0]})") from error
    strictly = True if strict and not is_model else None

    def read(text: bytes | str) -> Any:  # noqa: ANN401 - of the type
        try:
            return adapter.validate_json(text, strict=strictly)
        except pydantic.ValidationError as error:
            raise ValueError(_named(error)) from None  # pydantic's text shows the input, also in a traceback

    return TypedJson(read, lambda value: adapter.dump_json(value).decode())


def _named(error: Any) -> str:  # noqa: ANN401 - pydantic's
    found = error.errors(include_url=False, include_context=False, include_input=False)
    named = [f"{_message(each)} - at $.{'.'.join(map(str, each['loc']))}".removesuffix(".") for each in found]
    more = len(named) - _MOST_NAMED
    return "; ".join(named[:_MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _message(found: Any) -> str:  # noqa: ANN401 - one of pydantic's findings
    quotes = found["type"] == "union_tag_invalid"  # the only message that quotes the input
    return "Input has the tag of no member" if quotes else found["msg"]
