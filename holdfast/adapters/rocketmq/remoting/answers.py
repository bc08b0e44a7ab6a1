"""Answers of servers, and the errors that their codes stand for.

The answer's code alone determines the error's class, never the text of its remark. A number that is missing or cannot
be read is Malformed, never a KeyError.
"""

from __future__ import annotations

import json
import re
from json import decoder
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.errors import NotAuthorised, SourceError, SourceUnavailable, UnknownTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

_NOT_NOW = frozenset({codes.SYSTEM_BUSY, codes.SERVICE_NOT_AVAILABLE, codes.FLOW_CONTROL, codes.GO_AWAY})
_REMARK_CHARACTERS = 300  # a broker may put a whole stack trace there


class NoAnswer(SourceUnavailable):
    """No answer in time. The request may have taken effect, or may still do so."""


class NotTrusted(SourceUnavailable):
    """The server's certificate is not trusted. If that is so for all servers, no waiting cures it."""


class BrokerBusy(SourceUnavailable):
    """The broker answers that it cannot do it now (overload, shutting down, flow control)."""

    def __init__(self, message: str, code: int, remark: str) -> None:
        super().__init__(message)
        self.code, self.remark = code, remark


class ReadingForbidden(SourceUnavailable):
    """An operator has switched reading off, for the broker, the group or the topic. The credentials are valid, and
    reading goes on once it is switched on again."""


def is_of_broker(error: SourceError) -> bool:
    """Whether the error concerns all queues of the broker, because it is down or busy. A refusal concerns one topic."""
    return isinstance(error, SourceUnavailable) and not isinstance(error, ReadingForbidden)


class BrokerRefused(SourceError):
    """The broker refuses a request.

    Attributes:
        code: one of `codes`; 1 is a general failure.
        remark: the broker's own text, for people.
    """

    def __init__(self, message: str, code: int, remark: str) -> None:
        super().__init__(message)
        self.code, self.remark = code, remark


class CommitIgnored(SourceError):
    """A reset of this queue's offset is pending: the broker ignores commits until the group's next pull there."""


class Malformed(SourceError):
    """Bytes that do not follow RocketMQ's protocol."""


#: The field forbiddenType of an answer to a pull (ForbiddenType of 5.x) -> what is switched off, and the remedy.
_FORBIDDEN: Final = {
    "1": "the broker may not be read (brokerPermission): mqadmin updateBrokerConfig -k brokerPermission -v 6",
    "2": "the group may not consume (consumeEnable=false): mqadmin updateSubGroup -s true",
    "3": "the topic may not be read (its perm): mqadmin updateTopicPerm -p 6",
}


def refusal(
    what: str, address: str, code: int, remark: str | None, fields: Mapping[str, str] = MappingProxyType({})
) -> SourceError:
    """The error for an answer whose code is not 0.

    Args:
        what: the request, for people.
        address: the server that answered.
        code: the answer's code.
        remark: the answer's remark; a stack trace is cut.
        fields: the answer's fields.
    """
    words = (remark or "").strip()[:_REMARK_CHARACTERS]
    said = f"{what} at {address}: code {code}" + (f", {words!r}" if words else "")
    if code in _NOT_NOW:
        return BrokerBusy(f"{said}; the broker cannot do it now: try again", code, words)
    if code == codes.TOPIC_NOT_EXIST:
        return UnknownTopic(f"{said}; create the topic, or mend its name")
    if code == codes.NO_PERMISSION and (why := _FORBIDDEN.get(fields.get("forbiddenType", ""))) is not None:
        return ReadingForbidden(f"{said}; {why}. It is asked for again, and read on when that is given back")
    if code == codes.NO_PERMISSION:
        return NotAuthorised(f"{said}; check the credentials, and the permissions of the topic and the group")
    return BrokerRefused(said, code, words)


_MOST: Final = 1 << 63


class Answer(NamedTuple):
    """A server's answer."""

    what: str  #: the request, for people
    address: str
    code: int
    remark: str | None
    fields: Mapping[str, str]
    body: bytes

    def expect(self, *fine: int) -> Answer:
        """Return the answer if its code is 0 or one of these. Raises the SourceError of its code."""
        if self.code != codes.SUCCESS and self.code not in fine:
            raise refusal(self.what, self.address, self.code, self.remark, self.fields)
        return self

    def number(self, name: str) -> int:
        """A required field, as a number. Raises Malformed."""
        text = self.fields.get(name, "")
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 19 or not -_MOST <= int(text) < _MOST:
            raise Malformed(f"{self.what} at {self.address}: {name}={text[:40]!r} is no number of 64 bits")
        return int(text)


class Shape:
    """Checks the parts of a decoded body. `what` names the body in errors."""

    def __init__(self, what: str) -> None:
        self._what = what

    def wrong(self, part: str) -> Malformed:
        """An error that names the part."""
        return Malformed(f"{self._what}: {part} is not as expected")

    def record(self, value: Any, part: str) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """A JSON object; null becomes an empty one. Raises Malformed."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(part)
        return value

    def array(self, value: Any, part: str) -> list[Any]:  # noqa: ANN401
        """A JSON array; null becomes an empty one. Raises Malformed."""
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(part)
        return value

    def pairs(self, value: Any, part: str) -> list[tuple[Any, Any]]:  # noqa: ANN401
        """An object whose keys are objects, as a list of pairs; null and {} become an empty one. Raises Malformed."""
        if value is None or value == {}:
            return []
        if not isinstance(value, list) or not all(isinstance(each, tuple) for each in value):
            raise self.wrong(part)
        return value

    def text(self, value: Any, part: str) -> str:  # noqa: ANN401
        """A text. Raises Malformed."""
        if not isinstance(value, str):
            raise self.wrong(part)
        return value

    def number(self, value: Any, part: str) -> int:  # noqa: ANN401
        """A whole number of 64 bits. Raises Malformed."""
        if type(value) is not int or not -_MOST <= value < _MOST:
            raise self.wrong(part)
        return value

    def addresses(self, value: Any, part: str) -> dict[int, str]:  # noqa: ANN401
        """An object of broker id -> host:port. Raises Malformed."""
        found: dict[int, str] = {}
        for key, address in self.record(value, part).items():
            if not key.isascii() or not key.isdigit() or len(key) > 19:
                raise self.wrong(part)
            found[int(key)] = self.text(address, part)
        return found


_DEEPEST: Final = 32
_BLANK: Final = re.compile(r"[ \t\r\n]*")
_SCALAR: Final = re.compile(r"-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3})?|true|false|null")


def loose_json(body: bytes) -> Any:  # noqa: ANN401 - JSON
    """Decode bodies that are not quite JSON: keys may be numbers without quotes (106), or objects (202, 208).

    An object whose keys are all texts or numbers becomes a dict with the keys as texts; one with an object among its
    keys becomes a list of pairs. Raises Malformed.
    """
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
        if self._peek() != "":
            raise self._wrong()
        return found

    def _value(self, depth: int) -> Any:  # noqa: ANN401
        if depth > _DEEPEST:
            raise self._wrong()
        first = self._peek()
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
        while self._peek() != "}":
            key = self._value(depth + 1)
            self._require_char(":")
            pairs.append((key, self._value(depth + 1)))
            if self._peek() != "}":
                self._require_char(",")
        self._at += 1
        if all(isinstance(key, str | int) for key, _ in pairs):
            return {str(key): value for key, value in pairs}
        return pairs

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        while self._peek() != "]":
            found.append(self._value(depth + 1))
            if self._peek() != "]":
                self._require_char(",")
        self._at += 1
        return found

    def _string(self) -> str:
        found: str
        try:
            found, self._at = decoder.scanstring(self._text, self._at + 1, True)  # type: ignore[attr-defined]
        except ValueError as error:
            raise self._wrong() from error
        return found

    def _peek(self) -> str:
        """The character after blanks; empty at the end."""
        blank = _BLANK.match(self._text, self._at)
        self._at = blank.end() if blank else self._at
        return self._text[self._at : self._at + 1]

    def _require_char(self, wanted: str) -> None:
        if self._peek() != wanted:
            raise self._wrong()
        self._at += 1

    def _wrong(self) -> Malformed:
        return Malformed(f"no JSON at character {self._at}")
