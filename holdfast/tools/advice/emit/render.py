"""A sheet as text that its place takes, with the reasons as comments. Pure."""

from __future__ import annotations

import json
import textwrap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from holdfast.tools.advice.emit.sheet import Sheet, Value

_WIDTH = 100


def native(sheet: Sheet) -> str:
    """Write the sheet as its place takes it: a dictionary, lines of key=value, or a call for each."""
    match sheet.form:
        case "dict":
            return as_python(sheet)
        case "properties":
            return as_properties(sheet)
        case "python_calls":
            return _text("#", sheet, [f"consumer.{key}({_python(value)})" for key, value in _items(sheet)])


def as_properties(sheet: Sheet) -> str:
    """Lines of key=value."""
    return _text("#", sheet, [f"{key}={_plain(value)}" for key, value in _items(sheet)])


def as_python(sheet: Sheet) -> str:
    """A dictionary, named after the sheet."""
    lines = [f"    {_python(key)}: {_python(value)}," for key, value in _items(sheet)]
    return _text("#", sheet, lines, begin=f"{sheet.name.replace('-', '_')} = {{", end="}", indent="    ")


def _text(mark: str, sheet: Sheet, lines: list[str], *, begin: str = "", end: str = "", indent: str = "") -> str:
    found = [*_comment(mark, f"{sheet.name}: {sheet.where}")]
    for note in sheet.notes:
        found += _comment(mark, note)
    if begin:
        found.append(begin)
    for choice, line in zip(sheet.choices, lines, strict=True):
        found += [f"{indent}{each}" for each in _comment(mark, choice.why)]
        found.append(line)
    if end:
        found.append(end)
    return "\n".join(found) + "\n"


def _items(sheet: Sheet) -> list[tuple[str, Value]]:
    return [(each.key, each.value) for each in sheet.choices]


def _comment(mark: str, text: str) -> Iterator[str]:
    return (f"{mark} {line}" for line in textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))


def _plain(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _python(value: Value) -> str:
    return json.dumps(value) if isinstance(value, str) else repr(value)
