"""Results as text: JSON that reads back as what was returned, or a word that there was something else."""

from __future__ import annotations

import json
from typing import Any

from holdfast.errors import ResultNotStored

#: Begins what is kept for a result that cannot be kept; no JSON begins so.
_LOST = "!"


def encode(result: object) -> tuple[str, ResultNotStored | None]:
    """The text to keep with a key, "" for None; and the error, if a later call could not be given the same.

    The same is meant literally: a tuple would come back as a list and 1 as a key as "1", so both are refused.
    """
    if result is None:
        return "", None
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        if _same(json.loads(text), result):
            return text, None
        cause: Exception | None = None
    except (TypeError, ValueError, RecursionError) as error:
        cause = error
    text, lost = lose(f"a {type(result).__qualname__} that JSON does not give back as it was")
    lost.__cause__ = cause
    return text, lost


def lose(what: str) -> tuple[str, ResultNotStored]:
    """As `encode`, of a result that cannot be kept: what it is instead."""
    return _LOST + what, _not_stored(what)


def decode(text: str) -> Any:  # noqa: ANN401 - whatever the function returned
    """What `encode` was given.

    Raises:
        ResultNotStored: it could not be kept.
    """
    if not text:
        return None
    if text.startswith(_LOST):
        raise _not_stored(text.removeprefix(_LOST))
    return json.loads(text)


def _not_stored(what: str) -> ResultNotStored:
    return ResultNotStored(
        f"the function has run and is not run again for this key, but its result is {what}: return None, text, "
        "numbers, True and False, lists, and dicts with text keys, or decorate with on_done='marker'"
    )


def _same(read: object, returned: object) -> bool:
    """Equal, and no tuples: they are written as lists, and equal to none."""
    if isinstance(read, dict) and isinstance(returned, dict):
        return read.keys() == returned.keys() and all(_same(read[name], value) for name, value in returned.items())
    if isinstance(read, list) and isinstance(returned, list):
        return len(read) == len(returned) and all(map(_same, read, returned))
    return read == returned
