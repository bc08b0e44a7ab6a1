"""What RocketMQ's servers call JSON in some bodies: keys that are numbers without quotes (106), or objects (202, 208).

An object whose keys are all texts or numbers becomes a dict with the keys as texts; one with an object among its keys
becomes a list of pairs.
"""

from __future__ import annotations

import json
import re
from json import decoder
from typing import Any, Final

from holdfast.adapters.rocketmq.remoting.errors import Malformed

_DEEPEST: Final = 32
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_SCALAR: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?|true|false|null")


def loads(body: bytes) -> Any:  # noqa: ANN401 - JSON
    """Read it. Raises Malformed."""
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise Malformed("the body is no text") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _Reader(text).whole()


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def whole(self) -> Any:  # noqa: ANN401
        found = self._value(0)
        if self._next() != "":
            raise self._wrong()
        return found

    def _value(self, depth: int) -> Any:  # noqa: ANN401
        if depth > _DEEPEST:
            raise self._wrong()
        first = self._next()
        if first == "{":
            return self._object(depth)
        if first == "[":
            return self._list(depth)
        if first == '"':
            return self._string()
        scalar = _SCALAR.match(self._text, self._at)
        if scalar is None:
            raise self._wrong()
        self._at = scalar.end()
        return json.loads(scalar[0])

    def _object(self, depth: int) -> dict[str, Any] | list[tuple[Any, Any]]:
        pairs: list[tuple[Any, Any]] = []
        self._at += 1
        while self._next() != "}":
            key = self._value(depth + 1)
            self._skip(":")
            pairs.append((key, self._value(depth + 1)))
            if self._next() != "}":
                self._skip(",")
        self._at += 1
        if all(isinstance(key, str | int) for key, _ in pairs):
            return {str(key): value for key, value in pairs}
        return pairs

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        while self._next() != "]":
            found.append(self._value(depth + 1))
            if self._next() != "]":
                self._skip(",")
        self._at += 1
        return found

    def _string(self) -> str:
        found: str
        try:
            found, self._at = decoder.scanstring(self._text, self._at + 1, True)  # type: ignore[attr-defined]
        except ValueError as error:
            raise self._wrong() from error
        return found

    def _next(self) -> str:
        """The character after blanks; empty at the end."""
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        return self._text[self._at : self._at + 1]

    def _skip(self, wanted: str) -> None:
        if self._next() != wanted:
            raise self._wrong()
        self._at += 1

    def _wrong(self) -> Malformed:
        return Malformed(f"no JSON at character {self._at}")
