"""Results of calls: the settings that decide them, and how results are kept for later calls.

The settings are frozen and checked at decoration. A result is kept as JSON that reads back as the returned value, or as
a note that it could not be kept; in front of it, the payload's fingerprint (fingerprints.py), where there is one.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Literal, get_args

from holdfast.errors import ResultNotStored, SettingError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TypeAlias

OnDone: TypeAlias = Literal["result", "marker"]
OnBusy: TypeAlias = Literal["wait", "raise", "skip"]
RaiseOrReturn: TypeAlias = Literal["raise", "return"]
StoreDown: TypeAlias = Literal["raise", "open"]


class Skipped(Enum):
    """Stands for the result of a call whose body was not run."""

    DONE = "done"  #: it has been run for this key; with on_done="marker"
    BUSY = "busy"  #: another call is running it for this key; with on_busy="skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallPolicy:
    """The settings of one function, as `idempotent` describes them.

    Raises:
        SettingError: a value that cannot work.
    """

    on_done: OnDone
    on_busy: OnBusy
    wait_s: float
    on_fenced: RaiseOrReturn
    on_unconfirmed: RaiseOrReturn
    store_down: StoreDown

    def __post_init__(self) -> None:
        _check("on_done", self.on_done, get_args(OnDone))
        _check("on_busy", self.on_busy, get_args(OnBusy))
        _check("on_fenced", self.on_fenced, get_args(RaiseOrReturn))
        _check("on_unconfirmed", self.on_unconfirmed, get_args(RaiseOrReturn))
        _check("store_down", self.store_down, get_args(StoreDown))
        wait_s: object = self.wait_s
        if not isinstance(wait_s, int | float) or not 0 <= wait_s < math.inf:
            raise SettingError("wait_s", wait_s, "give a number of seconds, 0 or more")


def _check(field: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SettingError(field, value, "give one of " + ", ".join(map(repr, allowed)))


#: First character of a kept text with a fingerprint; no JSON and no other kept text begins with it.
_MARK = "#"
#: The mark, and the characters of a fingerprint.
_LENGTH = len(_MARK) + 22
#: First character of the note for a result that cannot be kept; no JSON begins with it.
_LOST = "!"
#: The note for a result that the store has refused; short, because the store may have refused its length.
TOO_LARGE = _LOST


def encode(result: object) -> tuple[str, ResultNotStored | None]:
    """The text to keep with a key, "" for None; and the error, if a later call could not get the same value.

    The same value has the same types, too. A tuple would come back as a list, a dict's key 1 as "1", and an Enum's
    member, a Counter or another subclass as its base type, so all of these are refused.
    """
    if result is None:
        return "", None
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        if same(json.loads(text), result):
            return text, None
        cause: Exception | None = None
    except (TypeError, ValueError, RecursionError) as error:
        cause = error
    text, lost = lose(f"a {type(result).__qualname__} that JSON does not give back as it was")
    lost.__cause__ = cause
    return text, lost


def lose(what: str) -> tuple[str, ResultNotStored]:
    """Make the note and the error for a result that cannot be kept. Args: what: a description of the result."""
    text = _LOST + what
    return text, not_stored(text)


def decode(text: str) -> Any:  # noqa: ANN401 - whatever the function returned
    """Read the text that `encode` made.

    Raises:
        ResultNotStored: the result could not be kept.
    """
    if not text:
        return None
    if text.startswith(_LOST):
        raise not_stored(text)
    return json.loads(text)


def not_stored(text: str) -> ResultNotStored:
    """The error for a result that could not be kept. Args: text: its note."""
    what = text.removeprefix(_LOST) or "text that the store refuses, as a rule since it is too large"
    return ResultNotStored(
        f"the function has run and is not run again for this key, but its result is {what}: return "
        "None, text, numbers, True and False, lists, and dicts with text keys, or decorate with on_done='marker'"
    )


def stamped(fingerprint: str | None, text: str) -> str:
    """Put the fingerprint in front of a result's text, as both are kept with a key."""
    return text if fingerprint is None else _MARK + fingerprint + text


def unstamped(kept: str) -> tuple[str | None, str]:
    """Split a kept text: the fingerprint, None = there is none; and the result's text."""
    return (kept[len(_MARK) : _LENGTH], kept[_LENGTH:]) if kept.startswith(_MARK) else (None, kept)


def without_result(kept: str) -> str:
    """Replace the result, which the store does not take, by a note."""
    return stamped(unstamped(kept)[0], TOO_LARGE)


#: Types without parts.
_LEAVES = (str, int, float, bool, type(None))


def same(read: Any, returned: Any) -> bool:  # noqa: ANN401 - whatever is returned
    """Whether the two are equal, and of the same types down to each leaf, as far as their fields can be read."""
    if type(read) is not type(returned):
        return False
    if type(returned) in _LEAVES:
        return bool(read == returned)
    if isinstance(returned, dict):
        return len(read) == len(returned) and all(  # in the same order: JSON keeps it
            same(a, b) and same(read[a], returned[b]) for a, b in zip(read, returned, strict=True)
        )
    if isinstance(returned, list | tuple):
        return len(read) == len(returned) and all(map(same, read, returned))
    names = _fields(returned)
    if names:
        return all(same(getattr(read, name, None), getattr(returned, name, None)) for name in names)
    return bool(read == returned)


def _fields(value: object) -> Sequence[str]:
    kind = type(value)
    if is_dataclass(kind):
        return [each.name for each in fields(kind)]
    return getattr(kind, "__struct_fields__", None) or list(getattr(kind, "__pydantic_fields__", ()))
