"""How a function's results are kept: as JSON, by its return annotation, or by functions of the user.

A result of a type that JSON does not have (a pydantic model, a dataclass, a Decimal, a datetime, a UUID, an Enum, a
tuple) is written and read by pydantic or msgspec, whichever is installed, as the type of the function's return
annotation.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from holdfast.dedup.calls import results
from holdfast.dedup.calls.results import lose, not_stored, same
from holdfast.dedup.not_run import routine
from holdfast.dedup.typed_json import typed_json
from holdfast.errors import SettingError

if TYPE_CHECKING:
    from typing import TypeAlias

    from holdfast.errors import ResultNotStored

Encode: TypeAlias = "Callable[[Any], str]"
Decode: TypeAlias = "Callable[[str], Any]"

#: First character of a result that a codec has written; no JSON begins with it.
_OWN = "="


@dataclass(frozen=True, slots=True)
class Codec:
    """Writes and reads the results of one function. Any thread; a user's functions run in the thread or task of the
    call."""

    write: Encode | None = None
    read: Decode | None = None
    #: Whether reading must give a value equal to the returned one; False = the user's own functions decide that.
    exact: bool = True

    def encode(self, result: object) -> tuple[str, ResultNotStored | None]:
        """The text to keep with a key, "" for None; and the error, if a later call could not be given the same."""
        if self.write is None or self.read is None or result is None:
            return results.encode(result)
        cause: Exception | None = None
        try:
            text: object = self.write(result)
            if isinstance(text, str) and (not self.exact or same(self.read(text), result)):
                return _OWN + text, None
        except Exception as error:  # noqa: BLE001 - the body has run, whatever these functions do
            cause = error
        text, lost = lose(
            f"a {type(result).__qualname__} that its return annotation, or encode=, does not keep as it is"
        )
        lost.__cause__ = cause
        return text, lost

    def decode(self, text: str) -> Any:  # noqa: ANN401 - whatever the function returned
        """Read the text that `encode` made.

        Raises:
            ResultNotStored: the result could not be kept, or is not of the type that this function returns now.
        """
        if self.read is None or not text.startswith(_OWN):
            return results.decode(text)
        try:
            return self.read(text.removeprefix(_OWN))
        except Exception as error:
            raise not_stored("text that cannot be read as what the function returns now") from error


JSON = Codec()


def codec_of(
    function: Callable[..., Any], *, encode: Encode | None, decode: Decode | None, batch: bool, kept: bool
) -> Codec:
    """Choose how a function's results are kept.

    Args:
        function: the user's.
        encode: from a result (in a batch: of one item) to text; None = by the return annotation.
        decode: from that text to the result.
        batch: whether it returns a list of results.
        kept: whether results are kept at all.

    Raises:
        SettingError: one of the two functions is missing or useless; a return annotation that cannot be kept.
    """
    if (encode is None) != (decode is None):
        raise SettingError("encode" if encode is None else "decode", None, "give both encode= and decode=, or neither")
    if not kept:
        if encode is not None:
            raise SettingError("encode", encode, "leave it out: with on_done='marker' no result is kept")
        return JSON
    if encode is not None:
        functions: list[object] = [encode, decode]
        if not all(map(callable, functions)):
            raise SettingError("encode", encode, "give a function of the result, and decode= a function of its text")
        return Codec(encode, decode, exact=False)
    kind = _returns(function)
    if batch:
        kind = _item(kind)
    if _is_plain(kind):
        return JSON
    return _typed(kind)


def _returns(function: Callable[..., Any]) -> Any:  # noqa: ANN401 - an annotation
    """The function's return annotation; Any if there is none, or if only type checkers know its names."""
    inner: Any = inspect.unwrap(routine(function))
    try:
        return get_type_hints(inner, include_extras=True).get("return", Any)
    except Exception:  # noqa: BLE001 - annotations are the user's code
        return Any


def _item(kind: Any) -> Any:  # noqa: ANN401 - as above
    if get_origin(kind) in (Union, types.UnionType):
        kinds = [each for each in get_args(kind) if each is not type(None)]
        return _item(kinds[0]) if len(kinds) == 1 else Any
    of = get_args(kind)
    return of[0] if of and get_origin(kind) in (list, Sequence) else Any


_PLAIN = (str, int, float, bool, type(None), Any, object, list, dict, None)


def _is_plain(kind: Any) -> bool:  # noqa: ANN401 - as above
    """Whether JSON has this type itself."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _is_plain(get_args(kind)[0])
    if origin is Literal:
        return all(type(each) in _PLAIN for each in get_args(kind))
    if origin in (Union, types.UnionType, list, dict, Mapping, Sequence):
        return all(map(_is_plain, get_args(kind)))
    return isinstance(kind, TypeVar | str) or is_typeddict(kind) or kind in _PLAIN or kind in (Mapping, Sequence)


def _typed(kind: Any) -> Codec:  # noqa: ANN401 - as above
    try:
        found = typed_json(kind, strict=False)
    except (TypeError, NameError) as error:
        raise SettingError("function", kind, f"what it returns cannot be kept, {error}: {_OR}") from error
    if found is None:
        raise SettingError("function", kind, f"what it returns is not JSON: install msgspec or pydantic, {_OR}")
    return Codec(found.write, found.read)


_OR = "give encode= and decode=, return what JSON has, or let no result be kept (on_done='marker')"
