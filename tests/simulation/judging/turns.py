"""Turns: judges that no partition waits for another's backlog (P5).

A partition *stands* while it has work, nothing of it starts, and handlers run with records of other partitions. It has
work if a record of it may start and does not, or if nothing of it is in the process and its log has more. The bound of
one member is the sum of

- the client: the wait of a partition that was not fetched because the queue was full, a fetch that the broker holds,
  and the ways;
- the intake: what the client's queue has before it is polled in turns, `poll_batch` records in each. A turn takes
  `_TURN_S`, and as long as a handler where handlers run in the polling thread;
- the workers: all may have just begun a call, and each other partition of the member has one before its turn; handlers
  take turns before their partitions do. A call takes at most as long as the longest one that the world plans;
- `_LEAST_S` for looks, marks and claims;
- where the client may ignore a seek, the time until it is sent there again.

A key stands while the first record of its lane may start and does not. Within a partition keys have their turns, so its
bound counts the lanes of its partition instead of one call.

A loop of a user's own has no workers: it handles what it has taken one record after the other, and has one record of
each partition in turn.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.plugin.engine.partition.ownership import Phase
from holdfast.plugin.engine.partition.partitioned import Partitioned
from holdfast.plugin.engine.record.entry import EntryState
from tests.simulation.brokers.kafka_slips import LOST_SEEKS, SENT_AGAIN_S
from tests.simulation.playing.work import LONGEST_S

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.engine.partition.ownership import Ownership
    from holdfast.plugin.engine.record.entry import Entry
    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.records import Partition
    from tests.simulation.drawing.world import World
    from tests.simulation.playing.stage import Actor, Stage

#: A turn of the engine; a fetch that the broker holds, and the looks of the client's threads; everything else.
_TURN_S, _FETCH_S, _LEAST_S = 0.005, 0.6, 1.0
#: An entry in one of these states keeps its partition, or those behind it, for a reason of its own.
_HAS_A_REASON = frozenset(
    {
        EntryState.BUSY,
        EntryState.BEHIND_BUSY_KEY,
        EntryState.WITH_FORMER_OWNER,
        EntryState.RETRY,
        EntryState.TAKEN,
        EntryState.STUCK,
    }
)


class _Stands(NamedTuple):
    """A partition that has work and starts nothing."""

    owner: Ownership
    #: Changes with whatever becomes of the partition: when a record of it started last, and what is done.
    got: tuple[float, int]
    since: float
    #: How many records of others the member had started by then.
    others: int


class Turns:
    """Looks at members, a few times a second."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        world = stage.world
        self._call_s, self._at_once = _longest_s(world), _at_once(world)
        self._handlers = max(1, len(world.handlers))
        self._stand: dict[str, dict[Partition, _Stands]] = {}
        #: Member -> the first entry of a lane, which may start, and when it started last -> since when, records started
        #: by then, lanes by then.
        self._keys: dict[str, dict[tuple[Entry, float], tuple[float, int, int]]] = {}

    def look(self, member: Actor, engine: Engine | Driven, *, in_order: bool) -> None:
        """Judge that none of its partitions has stood for too long. A member that is not in order is not judged."""
        stage, judges, before = self._stage, self._stage.judges, self._stand.pop(member.name, {})
        keys = self._keys.pop(member.name, {})
        if not (in_order and isinstance(engine.family, Partitioned) and self._goes_on(engine)):
            return
        found = {each: _Stands(owner, self._got(member, owner), stage.now, 0) for each, owner in self._waits(engine)}
        now = self._stand[member.name] = {}
        for partition, stands in found.items():
            others = sum(judges.starts[member.name].values())
            was = before.get(partition)
            if was is None or was.owner is not stands.owner or was.got != stands.got:
                now[partition] = stands._replace(others=others)
                continue
            now[partition] = was
            at_most_s = self._at_most_s(sum(owner.open for owner in engine.family.owners.values()))
            if stage.now - was.since > at_most_s and others > was.others and judges.running[member.name].total():
                judges.broken(
                    "TURNS",
                    f"{partition} has work at {member.name} and started nothing for {stage.now - was.since:.2f} s "
                    f"({at_most_s:.2f} s is its bound), and {others - was.others} records of others started",
                )
        if stage.world.loop is None:
            self._look_at_keys(member, engine, keys)

    def _look_at_keys(
        self, member: Actor, engine: Engine | Driven, before: Mapping[tuple[Entry, float], tuple[float, int, int]]
    ) -> None:
        stage, family = self._stage, engine.family
        assert isinstance(family, Partitioned)
        owners, now = family.owners, self._keys.setdefault(member.name, {})
        started = sum(stage.judges.starts[member.name].values())
        for partition, owner in owners.items():
            lanes = engine.parts.lanes.of(partition).values() if owner.open else ()
            heads = [head for lane in lanes if not lane.taken and (head := lane.head()) is not None]
            for head in heads:
                if head.state is not EntryState.READY:
                    continue
                each = head, head.given_at  # it may have started, failed and be ready again between two looks
                since, others, count = now[each] = before.get(each, (stage.now, started, len(heads)))
                at_most_s = self._at_most_s(sum(each.open for each in owners.values()), count)
                if stage.now - since > at_most_s and started > others:
                    stage.judges.broken(
                        "TURNS",
                        f"{head!r} is first of its lane at {member.name} and did not start for "
                        f"{stage.now - since:.2f} s (its bound: {at_most_s:.2f} s), and {started - others} others did",
                    )

    # ---- inside
    def _goes_on(self, engine: Engine | Driven) -> bool:
        """Whether the member may take in and start what comes: no ramp holds it, no drain and no store."""
        family: Any = engine.family
        line, parts = family.source.line, engine.parts
        return (
            parts.intake.climb.over
            and not parts.outcomes.brakes.paused
            and not self._stage.judges.away
            and bool(line.hears and line.speaks and not line.delay_s)
            and not any(owner.phase is Phase.FENCED for owner in family.owners.values())
        )

    def _waits(self, engine: Engine | Driven) -> list[tuple[Partition, Ownership]]:
        """The partitions that have work and start nothing, though nothing but the others' records is in their way."""
        family: Any = engine.family
        owners: Mapping[Partition, Ownership] = family.owners
        logs, retry_topics, held = self._stage.broker.logs, self._stage.retry_topics, engine.parts.intake.held
        found = []
        for partition, owner in owners.items():
            log = logs.get(partition)
            if log is None or not log.led or partition.topic in retry_topics or partition in held or not owner.open:
                continue
            if owner.suspect is not None or owner.second_look is not None:
                continue
            states = {entry.state for entry in owner.entries.values()}
            if not states & _HAS_A_REASON and (EntryState.READY in states or log.from_(owner.next_offset, 1)):
                found.append((partition, owner))
        return found

    def _got(self, member: Actor, owner: Ownership) -> tuple[float, int]:
        log = self._stage.log(owner.partition)
        return self._stage.judges.started_at.get((member.name, log), -math.inf), owner.ledger.watermark

    def _at_most_s(self, partitions: int, lanes: int = 1) -> float:
        world = self._stage.world
        fetches, settings = world.fetches, world.settings
        rounds = math.ceil(partitions * lanes * self._handlers / self._at_once) + 1
        turn_s, queued, client_s = _TURN_S, 0, 0.0
        if world.loop is not None or not settings.workers:
            turn_s += self._call_s
        if fetches is not None:
            queued = min(fetches.queued + fetches.records * partitions, len(world.records))
            client_s = fetches.backoff_s + _FETCH_S + 2 * fetches.way_s
        if world.slips == "lost seek":
            client_s += LOST_SEEKS * SENT_AGAIN_S
        return _LEAST_S + client_s + turn_s * queued / settings.poll_batch + rounds * self._call_s


def _at_once(world: World) -> int:
    """The least number of calls that run at a time; of a loop, the records that it takes at once."""
    if world.loop is not None:
        return world.loop.at_most
    in_loop = any("async" in each.kind for each in world.handlers)
    in_threads = any("async" not in each.kind for each in world.handlers)
    least = [max(1, world.settings.workers)] * in_threads + [world.settings.async_workers] * in_loop
    return min(least)


def _longest_s(world: World) -> float:
    """The longest call that the world plans, its middlewares included."""
    longest = {each.name: 0.0 for each in world.handlers}
    for record in world.records:
        name = world.handling(record.topic).name
        longest[name] = max(longest[name], record.takes_s + record.hang_s)
    if world.loop is not None:
        return max(longest.values()) * world.loop.at_most
    return max(
        min(LONGEST_S, longest[each.name] * (each.batch.records if each.batch is not None else 1))
        + (each.batch.wait_s if each.batch is not None else 0.0)
        for each in world.handlers
    )
