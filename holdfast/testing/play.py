"""Play: a world from its beginning to its end, with the real engine in every member, and judges who look on."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from holdfast.dedup.claims import ClaimKey
from holdfast.plugin.ports import CommitFate
from holdfast.records import Partition
from holdfast.testing.at_store import AtStore
from holdfast.testing.book import Book, LogName
from holdfast.testing.faults import Faults
from holdfast.testing.grounds import ground_of
from holdfast.testing.judges import Judges
from holdfast.testing.loop_member import LoopMember
from holdfast.testing.member import AppMember, Member, value_of
from holdfast.testing.progress import Progress
from holdfast.testing.scheduler import Scheduler
from holdfast.testing.store import SimulatedStore, StoreServer
from holdfast.testing.story import Line, gates_of, told
from holdfast.testing.watch import Revokes, Watch, owners_of
from holdfast.testing.world import LEASED

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Hashable, Sequence
    from types import FrameType

    from holdfast.records import Record
    from holdfast.testing.book import Placed
    from holdfast.testing.judges import Found
    from holdfast.testing.world import Planned, World

#: How long it takes at most, after the last thing that happens, until all is handled and committed; and a clean end.
_ALL_S, _END_S = 600.0, 60.0
#: Somebody starts a process again that has ended, where nobody else is there, or by an error.
_RESTART_S = 0.3
#: A producer that has no leader to send to tries again.
_SEND_AGAIN_S = 0.05


class Figures(NamedTuple):
    """The figures of a world that was played."""

    virtual_s: float
    switches: int
    records: int
    #: Calls of handlers for what had been handled, or was being handled, by a session that is dead.
    repeats: int
    #: Of who went when: the same for the same world, in any process.
    digest: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The outcome of a world."""

    world: World
    found: Found | None
    lines: Sequence[Line]
    #: What waited where, where something was found.
    gates: Sequence[str]
    figures: Figures

    @property
    def story(self) -> str:
        """For people."""
        return told(self.world, self.found, self.lines, self.gates)


def play(world: World, *, calls: Counter[str] | None = None) -> Played:
    """Play it. `calls` counts calls of functions, by name."""
    stage = Stage(world)
    if calls is not None:
        stage.scheduler.profile = _counting(calls)
    try:
        return stage.play()
    finally:
        stage.scheduler.end()
        if calls is not None:
            sys.setprofile(None)


class Stage:
    """Where a world is played: all of its parts, and what they have in common."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scheduler = scheduler = Scheduler(world.seed, jitter=world.jitter, yield_odds=world.yield_odds)
        self.began_at = scheduler.now
        #: For delays outside of members.
        self.chance = Random(world.seed ^ 1)
        self.ground = ground_of(self)
        self.broker, self.group = self.ground.broker, self.ground.group
        #: Of each topic, also of one that is deleted: the last that it had.
        self.ids = {topic.name: self.broker.id_of(topic.name) for topic in world.topics}
        #: What producers cannot send now.
        self.unsent: set[int] = set()
        self.store = _store(world, scheduler)
        self.book = Book(world.settings, ordered=world.broker not in LEASED)
        self.judges = Judges(world, self.book, self, lambda: self.now)
        if isinstance(self.store, SimulatedStore):
            self.store.witness = AtStore(self, self.store)
        self.watch = Watch(self)
        self.broker.watchers.append(Revokes(self))
        self.faults = Faults(self)
        self._by_value: dict[bytes | None, Placed] = {}
        #: What producers have sent once more: by what was sent, and the copy's offset.
        self._copies: dict[tuple[bytes | None, int], Placed] = {}
        self._handlings = {topic.name: world.handling(topic.name) for topic in world.topics}
        #: How often calls for a record are still to fail, by its number.
        self.fails: dict[int, int] = {}
        self.hangs: dict[int, int] = {}
        self.letters_down = False
        self.members: list[Member] = []
        #: So many of them had left when somebody last reset the group.
        self.left_before_reset = 0
        self.lines: list[Line] = []
        self.progress = Progress(self)
        #: So many commits were judged.
        self._judged = 0
        #: Everybody was asked to leave.
        self.ending = False
        self._numbers, self._names = count(1), count()
        self._clocks = list(world.clocks)

    def play(self) -> Played:
        """From its beginning to its end."""
        world, scheduler = self.world, self.scheduler
        for _ in range(world.members):
            self.join()
        for record in world.records:
            scheduler.at(self.began_at + record.at_s, lambda record=record: self._produce(record))  # type: ignore[misc]
        for fault in world.faults:
            scheduler.at(self.began_at + fault.at_s, lambda fault=fault: self.faults.happens(fault))  # type: ignore[misc]
        self.progress.look()
        scheduler.run(self._has_settled, self.began_at + world.calm_s + _ALL_S)
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

    # ---- for all parts
    @property
    def now(self) -> float:
        """Seconds since the world began."""
        return self.scheduler.now - self.began_at

    @property
    def over(self) -> bool:
        """Whether a rule was broken. Asked after each step."""
        if self._judged < len(self.group.attempts):
            self.judge_commits()
        return self.judges.found is not None

    @property
    def living(self) -> Sequence[Member]:
        """Members whose process is there."""
        return [each for each in self.members if each.process.alive]

    def say(self, who: str, what: object) -> None:
        """A line of the story."""
        if not self.scheduler.over:
            self.lines.append(Line(self.now, who, what))

    def join(self) -> Member:
        """Another process of the app starts."""
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
        return member

    def _free_name(self) -> str:
        """Of a static member: the first that no living process has."""
        taken = {getattr(each.source, "static_id", None) for each in self.living}
        return next(name for name in map("s{}".format, count()) if name not in taken)

    def left(self, member: Member, *, expected: bool) -> None:
        """A member's app has ended by itself: its process ends with it."""
        self.say(member.name, f"has left{f': {member.error!r}' if member.error else ''}")
        if not expected:
            self.watch.failed(member)
        self.scheduler.at(self.scheduler.now, lambda: self.gone(member))

    def gone(self, member: Member) -> None:
        """End the member's process, whatever ended it. In the hub."""
        member.process.crash()
        member.gone()
        if not self.ending and (member.error is not None or not self.living):
            self.scheduler.at(self.scheduler.now + _RESTART_S, self._start_again)

    def send_again(self, partition: Partition, offset: int) -> None:
        """A producer has had no answer for a record that was stored."""
        first = self.book.at(self.log(partition), offset)
        again = None if first is None else self.ground.store_again(first)
        if first is not None and again is not None:
            value = self.broker.logs[partition].records[offset].value
            copy = self.book.place(next(self._numbers), again, first.plan, first.handling)
            self._copies[value, again.offset] = copy

    def placed(self, record: Record) -> Placed:
        """The book's entry of a record that a handler got: by its value, which no other has."""
        return (self._copies and self._copies.get((record.value, record.offset))) or self._by_value[record.value]

    def placed_at(self, member: Member, partition: Partition, offset: int) -> Placed:
        """The book's entry of a record by what a member tells of it."""
        return self.book.records[self.ground.number(partition, offset, member.source)]

    def log(self, partition: Partition) -> LogName:
        """Which log that partition has now, or had last."""
        return LogName(partition, self.ids[partition.topic])

    # ---- Sight
    def alive(self, session: str) -> bool:
        """Implements `Sight.alive`."""
        return self.store.alive(session)

    def done(self, record: Placed) -> bool:
        """Implements `Sight.done`."""
        return self.ground.done(record)

    def position_of(self, partition: Partition) -> str:
        """The name of its position at the store."""
        return self.ground.position(partition)

    def name_of(self, log: LogName) -> str:
        """The name of a log that may not be there any more."""
        return self.ground.position(log.partition)

    def finished(self, key: tuple[str, str]) -> bool:
        """Implements `Sight.finished`."""
        return self.store.is_finished(ClaimKey(*key))

    def owner(self, log: LogName) -> str | None:
        """Implements `Sight.owner`."""
        return self.store.owner(self.ground.position(log.partition))

    def owned(self, log: LogName) -> Hashable:
        """Implements `Sight.owned`."""
        return self.store.owned(self.ground.position(log.partition))

    def held(self, key: tuple[str, str]) -> Hashable:
        """Implements `Sight.held`."""
        return self.store.held(ClaimKey(*key))

    # ---- inside
    def _has_settled(self) -> bool:
        return self.progress.settled or self.over

    def _produce(self, plan: Planned) -> None:
        log = self.broker.logs.get(Partition(plan.topic, plan.partition))
        if log is None or not log.led:  # its producer tries again
            self.unsent.add(id(plan))
            self.scheduler.at(self.scheduler.now + _SEND_AGAIN_S, lambda: self._produce(plan))
            return
        self.unsent.discard(id(plan))
        number = next(self._numbers)
        value = value_of(number, plan.unit)
        at = self.ground.store(number, plan, value)
        self._by_value[value.encode()] = self.book.place(number, at, plan, self._handlings[plan.topic])
        if plan.fails:
            self.fails[number] = plan.fails
        if plan.hangs:
            self.hangs[number] = plan.hangs

    def judge_commits(self) -> None:
        """Judge what was committed since it was judged last."""
        attempts = self.group.attempts
        while self._judged < len(attempts):
            attempt = attempts[self._judged]
            self._judged += 1
            if attempt.fate is not CommitFate.DONE:
                continue
            at, name = next(
                ((at, each.name) for at, each in enumerate(self.members) if each.source is attempt.member),
                (len(self.members), "somebody"),
            )
            # RocketMQ takes a commit that was under way at a reset: no member can do anything about that.
            if at >= self.left_before_reset:
                self.ground.judge(name, attempt)

    def _start_again(self) -> None:
        if not (self.ending or self.faults.resetting):
            self.join()

    def _end(self) -> None:
        """Everybody leaves."""
        if not self.progress.settled:
            self.watch.stands_still()
        self.ending = True
        for member in self.living:
            member.stop()
        if not self.scheduler.run(lambda: self.over or not self.living, self.scheduler.now + _END_S):
            self.watch.does_not_end()


def _store(world: World, scheduler: Scheduler) -> StoreServer:
    if world.store == "specification":
        return SimulatedStore(scheduler, lease_s=world.lease_s, timeout_s=world.store_timeout_s)
    # Asked for only here: who has not installed lupa plays the others.
    from holdfast.testing.lua_store import LuaStore  # noqa: PLC0415

    digests = world.store == "digests"
    return LuaStore(scheduler, lease_s=world.lease_s, timeout_s=world.store_timeout_s, hash_keys=digests)


def _gates(member: Member) -> Sequence[str]:
    engine = member.engine
    entries = [entry for owner in owners_of(engine) for entry in owner.entries.values()] if engine else []
    return list(gates_of(member.name, entries))


def _counting(calls: Counter[str]) -> Callable[[FrameType, str, object], None]:
    def count_it(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    return count_it
