"""Lines that are no events, or events of a later version: whose they are, as far as they say so. Pure.

A member of whom nothing can be read may have done anything, so what others have not done is not lost: it is unknown.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from holdfast.plugin.audit.schema import VERSION, Stamp

if TYPE_CHECKING:
    from collections.abc import Iterable

#: In a line that may be cut, or whose other fields may be anything; a name with escapes is none. For Python and Java.
GROUP = r'^\{.*?"group"\s*:\s*"([^"\\]+)"'
RUN = r'^\{.*?"run"\s*:\s*"([^"\\]+)"'
#: Of `FileEvents`: <member>-<run>-<number>.jsonl
RUN_OF_FILE = r"-([0-9a-f]{16})-[0-9]{4,}\.jsonl(?:\.gz)?$"

#: In the place of a file in which no line can be read.
NOTHING = "(nothing can be read in this file)"

_RUN = re.compile(RUN)
_STAMP = {each.name: int if each.type == "int" else str for each in fields(Stamp)} | {"kind": str}


@dataclass(frozen=True, slots=True)
class Sorted:
    """Events in the order of each run; and the runs of lines that are none, "" where a line does not say it."""

    events: list[dict[str, Any]] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)


def sorted_out(lines: Iterable[str], before_ms: int) -> Sorted:
    """Args: before_ms: an event that claims to be from later is not believed."""
    found = Sorted()
    for line in lines:
        event = _event(line)
        if event is not None and event["at_ms"] < before_ms:
            found.events.append(event)
        else:
            run = _RUN.search(line)
            found.unreadable.append("" if run is None else run[1])
    found.events.sort(key=lambda each: (each["run"], each["seq"]))  # a shuffle keeps no order
    return found


def _event(line: str) -> dict[str, Any] | None:
    """None: it is none, or one of a later version."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or event.get("v") != VERSION:
        return None
    return event if all(isinstance(event.get(name), of) for name, of in _STAMP.items()) else None
