"""Story: the events of a world, as text for people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from holdfast.plugin.engine.record.entry import Entry
    from tests.simulation.drawing.world import World
    from tests.simulation.judging.judges import Found


class Line(NamedTuple):
    """One event."""

    at_s: float
    who: str
    #: Becomes text when the story is written; most stories never are.
    what: object

    def __str__(self) -> str:
        return f"{self.at_s:9.4f}  {self.who:8} {self.what}"


def told(world: World, found: Found | None, lines: Sequence[Line], gates: Sequence[str]) -> str:
    """The whole story: the world, the events, the finding, and the gates of waiting lanes."""
    return "\n".join([*_set_up(world), "", *map(str, lines), "", *_end(found, gates)])


def gates_of(member: str, entries: Iterable[Entry]) -> Iterator[str]:
    """The gate that each lane of a member waits for, and the holder of the key that it waits for."""
    by_lane: dict[int, list[Entry]] = {}
    for entry in entries:
        by_lane.setdefault(id(entry.lane), []).append(entry)
    for lane in by_lane.values():
        lane.sort(key=lambda each: each.record.offset)
        head = lane[0]
        behind = Counter(each.state.name for each in lane[1:])
        held = f", holds {head.claim.key.key}" if head.held and head.claim else ""
        wants = f", wants {head.claim.key.key}" if head.claim and not head.held else ""
        others = f"; behind it {', '.join(f'{count} {gate}' for gate, count in behind.items())}" if behind else ""
        owner = f"{head.owner!r} in session {head.owner.session_.id}"
        yield f"{member:8} {head!r}{held}{wants} of {owner}{others}"


def _set_up(world: World) -> Iterator[str]:
    group = world.protocol if world.broker == "kafka" else world.broker
    yield (
        f"{world.members} members, {group}, {len(world.records)} records in "
        f"{', '.join(f'{each.name} ({each.partitions})' for each in world.topics)}, seed {world.seed}"
    )
    yield str(world.settings)
    if world.loop is not None:
        yield str(world.loop)
    for handler in world.handlers:
        yield str(handler)
    for fault in world.faults:
        yield str(fault)


def _end(found: Found | None, gates: Sequence[str]) -> Iterator[str]:
    yield "no rule was broken" if found is None else f"{found.rule}, at {found.at_s:.4f}: {found.what}"
    yield from gates
