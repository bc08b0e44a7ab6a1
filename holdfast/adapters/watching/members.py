"""Members: what each member of a group has told of itself, in the store that they share.

A member puts a summary of its figures there every few seconds (`board.py`). Whoever reaches the store reads all of
them: the page of any member, and `holdfast status --group`. A member that was killed is silent for a while first.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

#: Of summaries. A reader leaves out those of another format: members of several versions may run at a time.
_FORMAT = 1
#: Partitions in a summary: those that are not owned, and those with the largest lag, come first.
_MOST = 200
#: Letters of a reason in a summary, and how many reasons.
_LONGEST, _REASONS = 300, 5
#: A member that has told nothing for so long is shown as silent; and after so long no more.
SILENT_S, FORGOTTEN_S = 15.0, 120.0
#: What a summary has of the figures, beside its partitions.
_HAS = ("group", "member", "state", "live", "ready", "at_ms", "uptime_s", "lag_known", "lag_unknown_in")
_HAS_OF = {
    "records": ("handled", "failed_attempts", "dead_lettered", "suppressed_by_position", "suppressed_by_key"),
    "load": ("in_flight", "running"),
    "store": ("up",),
    "rebalances": ("pause_max_s",),
}
_HAS_OF_PARTITION = ("partition", "phase", "lag", "paused", "lowest")


def summary(told: Mapping[str, Any]) -> str:
    """A summary of an app's figures as JSON. Args: told: as at `/status`."""
    found: dict[str, Any] = {"format": _FORMAT, **{name: told[name] for name in _HAS}}
    found |= {name: {each: told[name][each] for each in parts} for name, parts in _HAS_OF.items()}
    partitions = sorted(told["partitions"], key=lambda each: (each["phase"] == "owned", -(each["lag"] or 0)))
    found["partitions"] = [{name: each[name] for name in _HAS_OF_PARTITION} for each in partitions[:_MOST]]
    found["partitions_left_out"] = len(partitions[_MOST:])
    found["reasons"] = [each[:_LONGEST] for each in told["reasons"][:_REASONS]]
    return json.dumps(found, separators=(",", ":"))


def members_of(texts: Mapping[str, str], now_ms: int, reader: str = "") -> list[dict[str, Any]]:
    """The members, ordered by name: each with its summary; `silent_s`, the seconds since it has told that; and `mine`,
    whether it is the reader itself.

    Of members of one name the newest is there: it has taken the place of the others.

    Args:
        texts: name in the store -> summary.
        reader: the reader's own name in the store.
        now_ms: milliseconds since 1970. A member's clock that is behind makes it look silent for longer.
    """
    newest: dict[str, dict[str, Any]] = {}
    for name, text in texts.items():
        found = json.loads(text)
        if found.pop("format") != _FORMAT:
            continue
        found["silent_s"] = max(0.0, (now_ms - found["at_ms"]) / 1000)
        found |= {"name": found["member"] or name, "mine": name == reader}
        before = newest.get(found["name"])
        if found["silent_s"] < FORGOTTEN_S and (before is None or before["at_ms"] < found["at_ms"]):
            newest[found["name"]] = found
    return [newest[name] for name in sorted(newest)]


def forgotten(texts: Mapping[str, str], now_ms: int) -> list[str]:
    """The names under which nobody tells anything any more."""
    return [name for name, text in texts.items() if now_ms - json.loads(text)["at_ms"] > 10 * FORGOTTEN_S * 1000]
