"""Lines that are no events, or events of a later version: whose they are, as far as they say so. Pure.

A member of whom nothing can be read may have done anything, so what others have not done is not lost: it is unknown.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.plugin.audit.schema import VERSION, Stamp

if TYPE_CHECKING:
    from collections.abc import Iterable

#: In a line that may be cut, or whose other fields may be anything; a name with escapes is none. For Python and Java.
GROUP = r'^\{.*?"group"\s*:\s*"([^"\\]+)"'
_RUN = re.compile(r'^\{.*?"run"\s*:\s*"([^"\\]+)"')
_GROUP = re.compile(GROUP)
#: A file's name as `FileEvents` makes it: <member>-<run>-<number>.jsonl
RUN_OF_FILE = r"-([0-9a-f]{16})-[0-9]{4,}\.jsonl(?:\.gz)?$"

#: In the place of a file in which no line can be read.
NOTHING = "(nothing can be read in this file)"

_STAMP = (("kind", str), *((each.name, int if each.type == "int" else str) for each in fields(Stamp)))
#: The end of the year 9999: what no calendar has is no time, and what no table's column has is no number.
LATEST_MS = 253_402_300_800_000


class Told(NamedTuple):
    """The run and group of a line. Of a line that is no event `seq` and `at_ms` are None, and the names are as far as
    known."""

    group: str | None
    run: str | None
    seq: int | None = None
    at_ms: int | None = None


def told(line: str, origin: str = "") -> Told:
    """Args: origin: the run that the line's file, or its message's key, names."""
    value = _value(line)
    if _is_event(value):
        return Told(value["group"], value["run"], value["seq"], value["at_ms"])
    return Told(_name(value, "group", _GROUP, line), _name(value, "run", _RUN, line) or origin or None)


def _name(value: dict[str, Any], field: str, pattern: re.Pattern[str], line: str) -> str | None:
    if isinstance(value.get(field), str):
        return str(value[field]) or None
    found = pattern.search(line)
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class Sorted:
    """Events in the order of each run; and the runs of lines that are none, "" where a line does not say it."""

    events: list[dict[str, Any]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def sorted_out(lines: Iterable[str], before_ms: int) -> Sorted:
    """Args: before_ms: an event that claims to be from later is not believed."""
    found = Sorted()
    for line in lines:
        value = _value(line)
        if _is_event(value) and value["at_ms"] < before_ms:
            found.events.append(value)
        else:
            run = _RUN.search(line)
            found.unreadable.append("" if run is None else run[1])
    found.events.sort(key=lambda each: (each["run"], each["seq"]))  # a shuffle keeps no order
    return found


def _value(line: str) -> dict[str, Any]:
    """The object in the line; empty: there is none."""
    try:
        value = json.loads(line)
        if "\\u" in line:
            json.dumps(value, ensure_ascii=False).encode()  # half a character can be written nowhere
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_event(value: dict[str, Any]) -> bool:
    """False: it is none, or one of a later version."""
    if value.get("v") != VERSION:
        return False
    for name, of in _STAMP:
        found = value.get(name)
        if not isinstance(found, of) or (isinstance(found, int) and not 0 <= found < LATEST_MS):
            return False
    return True
