"""Reading answers: a number that is missing or no number is Malformed, never a KeyError."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from holdfast.adapters.rocketmq.remoting import codes
from holdfast.adapters.rocketmq.remoting.errors import Malformed, refusal

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST: Final = 1 << 63


class Answer(NamedTuple):
    """What a server answered."""

    what: str  #: the request, for people
    address: str
    code: int
    remark: str | None
    fields: Mapping[str, str]
    body: bytes

    def expect(self, *fine: int) -> Answer:
        """This, if its code is 0 or one of these. Raises the SourceError that the code stands for."""
        if self.code != codes.SUCCESS and self.code not in fine:
            raise refusal(self.what, self.address, self.code, self.remark)
        return self

    def number(self, name: str) -> int:
        """A field that has to be there. Raises Malformed."""
        text = self.fields.get(name, "")
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdigit() or len(digits) > 19 or not -_MOST <= int(text) < _MOST:
            raise Malformed(f"{self.what} at {self.address}: {name}={text[:40]!r} is no number of 64 bits")
        return int(text)


class Shape:
    """A body that was read, asked for what it must have. `what` names it in errors."""

    def __init__(self, what: str) -> None:
        self._what = what

    def wrong(self, part: str) -> Malformed:
        """An error that names the part."""
        return Malformed(f"{self._what}: {part} is not as expected")

    def record(self, value: Any, part: str) -> dict[str, Any]:  # noqa: ANN401 - JSON
        """A JSON object; null = empty. Raises Malformed."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(part)
        return value

    def array(self, value: Any, part: str) -> list[Any]:  # noqa: ANN401
        """A JSON array; null = empty. Raises Malformed."""
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(part)
        return value

    def pairs(self, value: Any, part: str) -> list[tuple[Any, Any]]:  # noqa: ANN401
        """An object whose keys are objects; null and {} = empty. Raises Malformed."""
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
        """Broker id to host:port. Raises Malformed."""
        found: dict[int, str] = {}
        for key, address in self.record(value, part).items():
            if not key.isascii() or not key.isdigit() or len(key) > 19:
                raise self.wrong(part)
            found[int(key)] = self.text(address, part)
        return found
