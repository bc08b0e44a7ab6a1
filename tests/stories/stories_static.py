"""Stories of static members: they come back under their names, and the others learn nothing of it."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from confluent_kafka import ConsumerGroupState

from tests.harness.group.story import story

if TYPE_CHECKING:
    from tests.harness.group.field import Field

_HOLDFAST = ("holdfast",)
_PARTITIONS = 9
_STATIC = {"static": True, "session_timeout_ms": 20_000}


def _reports(field: Field) -> list[dict[str, Any]]:
    lines = (field.home / "events.jsonl").read_text().splitlines()
    return [each for each in map(json.loads, lines) if each["event"] == "RebalanceReport"]


def _held(field: Field) -> dict[str, frozenset[int]]:
    """Who has what, by the members' own reports."""
    held: dict[str, set[int]] = defaultdict(set)
    for report in _reports(field):
        held[report["member"]] |= {number for _, number, _ in report["gained"]}
        held[report["member"]] -= {number for _, number, _ in report["given"]}
    return {name: frozenset(numbers) for name, numbers in held.items()}


def _all_told(field: Field, members: str) -> bool:
    held = _held(field)
    return sum(map(len, held.values())) == _PARTITIONS and all(held.get(name) for name in members)


@story(config=_STATIC, kinds=_HOLDFAST, partitions=_PARTITIONS)
def static_rolling_restart(field: Field) -> None:
    """Three static members; each is stopped and started again. Nothing moves, nobody else hears of it."""
    names = "abc"
    for name in names:
        field.start(name)
    field.flow()
    field.until_spread(*field.members.values())
    field.until(lambda: _all_told(field, names), "all have told what they have")
    before, told = _held(field), len(_reports(field))
    for name in names:
        field.relieve(name)
    field.until_spread(*field.members.values())
    field.until(lambda: _all_told(field, names), "all have told what they have again")
    moved = [each for each in _reports(field)[told:] if each["trigger"] not in ("leave", "assigned")]
    if moved or _held(field) != before:
        raise field.error(f"it was {before}, it is {_held(field)}; {moved}")


@story(config=_STATIC, kinds=_HOLDFAST)
def static_kill(field: Field) -> None:
    """Kill -9 of a static member, and at once another process of its name: it has the same partitions, soon (classic)
    or once the dead one's session has ended (consumer protocol)."""
    a, b = field.start("a"), field.start("b")
    field.flow()
    field.until_spread(a, b)
    field.until_handled(600)
    field.kill(a)
    field.until_spread(field.start("a"), b)


def _unowned(field: Field) -> set[int]:
    """The partitions that are in nobody's assignment, where the broker says that the group is stable."""
    found = field.kafka.described(field.group)
    if found.state != ConsumerGroupState.STABLE:
        return set()
    owned = {each.partition for member in found.members for each in member.assignment.topic_partitions}
    return set(range(_PARTITIONS)) - owned


@story(
    config=_STATIC | {"drain_timeout_s": 3.0, "ramp": False},
    kinds=_HOLDFAST,
    partitions=_PARTITIONS,
    protocols=("cooperative",),
)
def static_kill_in_drain(field: Field) -> None:
    """Kill -9 of a static member that drains what goes to a second one, and at once another process of its name. The
    coordinator gives it what was to stay, without a rebalance: the rest has no owner, until it joins anew."""
    a = field.start("a")
    field.flow()
    field.until_spread(a)
    b = field.ready("b", static=False)
    slow = field.send_slow(work_ms=3_000)
    field.until_started(slow, a)
    field.let_begin(b)
    field.until(lambda: bool(_unowned(field)), "the first drains what it gives to the second")
    field.kill(a)
    field.until_spread(field.start("a"), b)
    told = [line for line in (field.home / "events.jsonl").read_text().splitlines() if '"SourceTrouble"' in line]
    if not any("no member owns" in line for line in told):
        raise field.error(f"nobody has told of it: {told}")
