"""What happens to one run's events, at random: they are lost, cut, of a later version, doubled, of another time."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

    Event = dict[str, Any]

_KINDS = ("assigned", "revoked", "progress", "span", "stopped", "started")
HOW = ("some", "a kind", "the first", "the last", "all", "cut", "later", "clock", "twice", "untold", "broken")
_HOUR_MS = 3_600_000


def damaged(lines: Sequence[str], how: str, random: Random) -> list[str]:
    """The same but for what has happened to one of the runs, or to all."""
    events = [json.loads(line) for line in lines]
    victim = random.choice(sorted({each["run"] for each in events}))
    kind, at, hours = random.choice(_KINDS), random.randrange(2, 12), random.choice((-1, 1))
    found = []
    for event in events:
        if event["run"] != victim and how != "twice":
            found.append(json.dumps(event))
        elif not _goes(event, how, kind, at, random):
            line = json.dumps(_changed(event, how, kind, hours, random))
            found.append(line[: random.randrange(20, len(line))] if how == "cut" and random.random() < 0.1 else line)
            if how == "twice" and random.random() < 0.3:
                found.append(line)
    return found


def _goes(event: Event, how: str, kind: str, at: int, random: Random) -> bool:
    return (
        how == "all"
        or (how == "some" and random.random() < 0.15)
        or (how == "a kind" and event["kind"] == kind)
        or (how == "the first" and event["seq"] < at)
        or (how == "the last" and event["seq"] > at)
    )


def _changed(event: Event, how: str, kind: str, hours: int, random: Random) -> Event:
    if how == "clock":
        text = re.sub(r"\b17\d{11}\b", lambda found: str(int(found[0]) + hours * _HOUR_MS), json.dumps(event))
        return dict(json.loads(text))
    if how == "later" and event["kind"] == kind:
        return event | {"v": 2}
    if how == "untold" and event["kind"] == "stopped":
        return event | {"records": event["records"] | {"handled": event["records"].get("handled", 0) + 3}}
    if how == "broken" and event["kind"] == kind and random.random() < 0.5:
        return event | {name: 7 for name in ("spans", "partitions", "records") if name in event}
    return event
