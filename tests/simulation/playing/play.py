"""Play: plays a world from begin to end, with the real engine in each member, and with judges."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from holdfast.records import Partition
from holdfast.testing.store import SimulatedStore
from tests.simulation.database.server import DatabaseStore
from tests.simulation.judging.at_store import AtStore
from tests.simulation.judging.effects import EffectJudges
from tests.simulation.judging.watch import Losses, Revokes, Watch, owners_of
from tests.simulation.playing.book import RecordPlace
from tests.simulation.playing.faults import Faults
from tests.simulation.playing.grounds import ground_of
from tests.simulation.playing.loop_member import LoopMember
from tests.simulation.playing.member import AppMember, Member, value_of
from tests.simulation.playing.progress import Progress
from tests.simulation.playing.retries import store
from tests.simulation.playing.stage import Stage
from tests.simulation.playing.story import gates_of, told

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Sequence
    from types import FrameType

    from holdfast.plugin.retrying.dead_letter import Letter
    from tests.simulation.drawing.world import Planned, World
    from tests.simulation.judging.judges import Found
    from tests.simulation.playing.book import Placed
    from tests.simulation.playing.stage import Actor
    from tests.simulation.playing.story import Line

#: The longest time from the last event until all is handled and committed; and of the members' end.
_ALL_S, _END_S = 600.0, 60.0
#: A process is restarted after so long if it ended with an error, or was the last one.
_RESTART_S = 0.3
#: A producer without a leader to send to retries after so long.
_SEND_AGAIN_S = 0.05


class Figures(NamedTuple):
    """The figures of a world that was played."""

    virtual_s: float
    switches: int
    records: int
    #: Calls of handlers for work that a dead session had handled, or had in hand.
    repeats: int
    #: `Scheduler.digest`: equal for equal worlds, in any process.
    digest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The outcome of a world."""

    world: World
    found: Found | None
    lines: Sequence[Line]
    #: If a rule was broken: the gate that each lane waited for.
    gates: Sequence[str]
    figures: Figures

    @property
    def story(self) -> str:
        """The story, as text."""
        return told(self.world, self.found, self.lines, self.gates)


def play(world: World, *, calls: Counter[str] | None = None) -> Played:
    """Play a world. `calls` counts calls of functions, by name."""
    stage = Play(world)
    if calls is not None:
        stage.scheduler.profile = _counting(calls)
    try:
        return stage.play()
    finally:
        stage.scheduler.end()
        if calls is not None:
            sys.setprofile(None)


class Play(Stage):
    """A world on its stage, with its members, faults and judges."""

    def __init__(self, world: World) -> None:
        super().__init__(world, ground_of)
        if isinstance(self.store, SimulatedStore):
            self.store.witness = AtStore(self, self.store)
        if isinstance(database := self.store, DatabaseStore) and isinstance(self.judges, EffectJudges):
            database.witness, self.judges.effects = self.judges, lambda: database.effects
        self.watch = Watch(self)
        self.broker.watchers += [Losses(self), Revokes(self)]
        self.faults = Faults(self)
        #: Numbers of records that producers cannot send now.
        self._unsent: set[int] = set()
        self._handlings = {topic.name: world.handling(topic.name) for topic in world.topics}
        self._progress = Progress(self, self.watch, busy=lambda: bool(self._unsent) or self.faults.resetting)
        self._numbers, self._names = count(1), count()
        self._clocks = list(world.clocks)

    def play(self) -> Played:
        """Play the world from begin to end."""
        world, scheduler = self.world, self.scheduler
        for _ in range(world.members):
            self.join()
        self.ground.begins(list(self.broker.logs))
        for record in world.records:
            scheduler.at(self.began_at + record.at_s, lambda record=record: self._produce(record))  # type: ignore[misc]
        for fault in world.faults:
            scheduler.at(self.began_at + fault.at_s, lambda fault=fault: self.faults.happens(fault))  # type: ignore[misc]
        self._progress.look()
        scheduler.run(self._has_settled, self.began_at + world.calm_s + _ALL_S + _probes_s(world))
        if not self.over:
            self._end()
        self.watch.errors()
        gates = [line for each in self.living for line in _gates(each)] if self.judges.found else []
        return Played(
            world=world,
            found=self.judges.found,
            lines=self.lines,
            gates=gates,
            figures=Figures(
                scheduler.now - self.began_at,
                scheduler.switches,
                len(self.book.records),
                self.judges.repeats,
                scheduler.digest,
            ),
        )

    # ---- Stage
    def join(self) -> None:
        """Implements `Stage.join`."""
        number = next(self._names)
        clock = self._clocks[number % len(self._clocks)] if self._clocks else None
        process = self.scheduler.process(
            f"m{number}",
            clock_offset_s=clock.offset_s if clock else 0.0,
            clock_rate=clock.rate if clock else 1.0,
        )
        self.say(process.name, "starts")
        source = self.ground.source(process, self._free_name() if self.world.static else None)
        member: Member = (
            AppMember(self, process.name, process, source)
            if self.world.loop is None
            else LoopMember(self, process.name, process, source, self.world.loop)
        )
        self.members.append(member)

    def left(self, member: Actor, *, expected: bool) -> None:
        """Implements `Stage.left`."""
        self.say(member.name, f"has left{f': {member.error!r}' if member.error else ''}")
        if not expected:
            self.watch.failed(member)
        self.scheduler.at(self.scheduler.now, lambda: self.gone(member))

    def gone(self, member: Actor) -> None:
        """Implements `Stage.gone`."""
        member.process.crash()
        member.gone()
        if not self.ending and (member.error is not None or not self.living):
            self.scheduler.at(self.scheduler.now + _RESTART_S, self._start_again)

    def send_again(self, partition: Partition, offset: int) -> None:
        """Implements `Stage.send_again`."""
        first = self.book.at(self.log(partition), offset)
        again = None if first is None else self.ground.store_again(first)
        if first is not None and again is not None:
            value = self.broker.logs[partition].records[offset].value
            if partition.topic in self.retry_topics:
                self._copied(first, value, again)
            else:
                copy = self.book.place(next(self._numbers), again, first.plan, first.handling, self.now)
                self.copies[value, again.offset] = copy

    def retry(self, first: Placed, letter: Letter, at_ms: int) -> None:
        """Implements `Stage.retry`."""
        partition, offset = store(self.broker, letter, first.number, at_ms)
        copy = self._copied(first, letter.record.value, RecordPlace(self.log(partition), offset))
        if not self.world.clocks:  # members with other clocks hand it out early or late
            copy.due_s = self.now + self.retry_topics[letter.topic].delay_s

    # ---- inside
    def _copied(self, first: Placed, value: bytes | None, at: RecordPlace) -> Placed:
        """Note a record in a retry topic: it has the failures that its first one has left."""
        copy = self.book.place(next(self._numbers), at, first.plan, first.handling, self.now)
        for left in (self.fails, self.hangs):
            if left.get(first.number):
                left[copy.number] = left[first.number]
        self.retried[value, at.log.partition, at.offset] = copy
        return copy

    def _free_name(self) -> str:
        """The first static name that no living process has."""
        taken = {getattr(each.source, "static_id", None) for each in self.living}
        return next(name for name in map("s{}".format, count()) if name not in taken)

    def _has_settled(self) -> bool:
        return self._progress.settled or self.over

    def _produce(self, plan: Planned) -> None:
        log = self.broker.logs.get(Partition(plan.topic, plan.partition))
        if log is None or not log.led:  # the producer retries
            self._unsent.add(id(plan))
            self.scheduler.at(self.scheduler.now + _SEND_AGAIN_S, lambda: self._produce(plan))
            return
        self._unsent.discard(id(plan))
        number = next(self._numbers)
        value = value_of(number, plan.unit)
        at = self.ground.store(number, plan, value)
        self.by_value[value.encode()] = self.book.place(number, at, plan, self._handlings[plan.topic], self.now)
        if plan.fails:
            self.fails[number] = plan.fails
        if plan.hangs:
            self.hangs[number] = plan.hangs

    def _start_again(self) -> None:
        if not (self.ending or self.faults.resetting):
            self.join()

    def _end(self) -> None:
        """Have all members leave."""
        if not self._progress.settled:
            self.watch.stands_still()
        self.ending = True
        for member in self.living:
            member.stop()
        if not self.scheduler.run(lambda: self.over or not self.living, self.scheduler.now + _END_S):
            self.watch.does_not_end()


def _probes_s(world: World) -> float:
    """The longest time until all planned failures have happened, if limits of dead letters pause handlers, which then
    try one record at a time."""
    pauses = (world.handling(each.topic).limit for each in world.records for _ in range(each.fails))
    return sum(limit.pause_s for limit in pauses if limit is not None and limit.then == "pause")


def _gates(member: Actor) -> Sequence[str]:
    engine = member.engine
    entries = [entry for owner in owners_of(engine) for entry in owner.entries.values()] if engine else []
    return list(gates_of(member.name, entries))


def _counting(calls: Counter[str]) -> Callable[[FrameType, str, object], None]:
    def count_it(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    return count_it
