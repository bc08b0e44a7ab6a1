"""All members of a group in one table, by what each has told of itself in the Redis that they share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.adapters.cli.output import count, shown, span
from holdfast.adapters.watching.members import SILENT_S, members_of
from holdfast.dedup.redis_coordinator import RedisCoordinator
from holdfast.runtime import MACHINE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.adapters.cli.output import Output, Tone
    from holdfast.adapters.cli.status_request import App
    from holdfast.dedup.redis_store import RedisClaims

_NAMES = ("MEMBER", "STATE", "PARTITIONS", "LAG", "IN FLIGHT", "OLDEST", "HANDLED", "TOLD")


def members(store: RedisClaims, group: str) -> list[App]:
    """Read what the members have told last. Raises StoreError."""
    return members_of(RedisCoordinator(store).posts(group), MACHINE.wall_ms())


def tell_group(group: str, found: Sequence[App], output: Output, height: int | None) -> int:
    """The table, its sum, and the reasons of who is not ready. Returns an exit code: 3: no member tells of itself; 1:
    not all are heard, live and ready.

    Args:
        group: its name.
        found: its members.
        output: where.
        height: of a terminal that is drawn anew.
    """
    if height is not None:
        output.draw_anew()
    for each in found:
        output.json({"type": "member", **each})
    if not found:
        output.say(
            f"no member of {shown(group)} tells of itself in this Redis: members do so while they serve a page, by "
            "`holdfast run --port` or serve(...)",
            tone="warning",
        )
        return 3
    partitions, lag = sum(map(_partitions, found)), sum(each["lag_known"] for each in found)
    summary = f"{shown(group)}: {count(len(found), 'member')}, {count(partitions, 'partition')}, lag: {lag:,}"
    if unknown := sum(each["lag_unknown_in"] for each in found):
        summary += f", not known in {unknown}"
    notes = [f"note: {shown(each['name'])}: {shown(reason, 200)}" for each in found for reason in each["reasons"]]
    lines, room = list(found), None
    if height is not None:  # what is worst first, since the rest has no room
        lines.sort(key=lambda each: (_tone(each) is None, -each["lag_known"]))
        room = output.room(height, summary, *notes)
    told = output.table(_NAMES, map(_row, lines), room, list(map(_tone, lines)))
    if told < len(lines):
        output.say(f"and {count(len(lines) - told, 'member')} more")
    output.say(summary)
    for note in notes:
        output.say(note, tone="warning")
    return 0 if all(_tone(each) is None for each in found) else 1


def _tone(member: App) -> Tone | None:
    if member["silent_s"] > SILENT_S or not member["live"] or not member["store"]["up"]:
        return "bad"
    return None if member["ready"] else "warning"


def _partitions(member: App) -> int:
    return len(member["partitions"]) + int(member["partitions_left_out"])


def _row(member: App) -> list[object]:
    state = [f"silent, was {member['state']}" if member["silent_s"] > SILENT_S else member["state"]]
    state += [] if member["live"] else ["NOT LIVE"]
    state += [] if member["ready"] else ["not ready"]
    state += [] if member["store"]["up"] else ["STORE DOWN"]
    ages = [each["lowest"]["for_s"] for each in member["partitions"] if each["lowest"]]
    return [
        shown(member["name"]),
        ", ".join(state),
        _partitions(member),
        member["lag_known"],
        member["load"]["in_flight"],
        span(max(ages)) if ages else "-",
        member["records"]["handled"],
        f"{span(member['silent_s'])} ago",
    ]
