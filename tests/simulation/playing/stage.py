"""Stage: what all parts of a played world share: its clock, its broker, its store, its book, and who is there.

The parts know the stage. It knows them by what it, or another part, asks of them: so none of them knows all others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import TYPE_CHECKING, Protocol

from holdfast.dedup.claims import ClaimKey
from holdfast.plugin.ports import CommitFate
from holdfast.testing.scheduler import Scheduler
from holdfast.testing.store import SimulatedStore, StoreServer
from tests.simulation.drawing.world import LEASED
from tests.simulation.judging.judges import Judges
from tests.simulation.playing.book import Book, LogName
from tests.simulation.playing.retries import PARTITIONS, retry_topics_of
from tests.simulation.playing.story import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Sequence

    from holdfast.plugin.engine.loop import Engine
    from holdfast.plugin.own_loop.driven import Driven
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Partition, Record
    from holdfast.testing.process import Process
    from tests.simulation.drawing.world import World
    from tests.simulation.playing.book import Placed
    from tests.simulation.playing.ground import Ground


class Onlooker(Protocol):
    """Sees a member's source at work, and judges."""

    @property
    def held(self) -> bool:
        """Whether the member's loop waits for an answer, of the store or, in a poll, of the broker."""
        ...

    def look(self, engine: Engine | Driven) -> None:
        """Judge how much comes in."""
        ...

    def judge_polls(self) -> None:
        """Judge whether the member is polled."""
        ...


class Actor(Protocol):
    """A member of a world, as others on its stage see it."""

    stage: Stage
    name: str
    process: Process
    #: What its app has raised.
    error: Exception | None
    #: How often it was asked to stop.
    stops: int
    #: Until then nothing is waited for: it has lost its partitions, or its session, or the broker.
    thrown_out_until: float
    #: It has lost its session, or partitions: those have not changed hands in order.
    has_lost: bool
    #: When its session was lost last.
    session_lost_at: float
    #: Ctrl-C has struck it.
    interrupted: bool
    #: When a call of its loop was broken off last: what it had by then it may have had to take over anew.
    torn_at: float

    @property
    def source(self) -> object:
        """The member's client of the broker."""
        ...

    @property
    def client(self) -> Onlooker | None:
        """Look on at the member's source; None where the judges look at none of its kind."""
        ...

    @property
    def engine(self) -> Engine | Driven | None:
        """The engine, for the judges to look into."""
        ...

    @property
    def leaves_at_once(self) -> bool:
        """Whether it waits for nothing any more."""
        ...

    def stop(self) -> None:
        """Ask it to leave, as a signal does. In the hub."""
        ...

    def interrupt(self, after: int = 0) -> None:
        """Ctrl-C, where the application has left it to Python; in its wait of that number. In the hub."""
        ...

    def cut_off(self, seconds: float) -> None:
        """For so long it and the broker may not know what the other does. In the hub."""
        ...

    def thrown_out(self) -> None:
        """Note that the member's partitions were taken away."""
        ...

    def gone(self) -> None:
        """End the process: nothing that it ran will ever end."""
        ...


class Stage(ABC):
    """Where a world is played.

    Args:
        world: the world.
        ground_of: makes what it stands on.
    """

    def __init__(self, world: World, ground_of: Callable[[Stage], Ground]) -> None:
        self.world = world
        self.scheduler = scheduler = Scheduler(world.seed, jitter=world.jitter, yield_odds=world.yield_odds)
        self.began_at = scheduler.now
        #: For delays outside of members.
        self.chance = Random(world.seed ^ 1)
        self.ground = ground_of(self)
        self.broker, self.group = self.ground.broker, self.ground.group
        #: Of each topic, also of one that is deleted: the last that it had.
        self.ids = {topic.name: self.broker.id_of(topic.name) for topic in world.topics}
        self.store = _store(world, scheduler)
        self.book = Book(world.settings, ordered=world.broker not in LEASED)
        self.judges = Judges(world, self.book, self, lambda: self.now)
        #: The book's entries by what was stored, which no other record has.
        self.by_value: dict[bytes | None, Placed] = {}
        #: What producers have sent once more: by what was sent, and the copy's offset.
        self.copies: dict[tuple[bytes | None, int], Placed] = {}
        #: Retry topics by name, and the book's entries of what is there: a record that comes again is another one.
        self.retry_topics = retry_topics_of(world)
        self.retried: dict[tuple[bytes | None, Partition, int], Placed] = {}
        for topic in self.retry_topics:
            self.broker.create(topic, PARTITIONS)
            self.ids[topic] = self.broker.id_of(topic)
        #: How often calls for a record are still to fail, by its number.
        self.fails: dict[int, int] = {}
        self.hangs: dict[int, int] = {}
        self.letters_down = False
        self.members: list[Actor] = []
        #: So many of them had left when somebody last reset the group.
        self.left_before_reset = 0
        self.lines: list[Line] = []
        #: So many commits were judged.
        self._judged = 0
        #: Everybody was asked to leave.
        self.ending = False

    # ---- members come and go
    @abstractmethod
    def join(self) -> None:
        """Another process of the app starts."""

    @abstractmethod
    def left(self, member: Actor, *, expected: bool) -> None:
        """A member's app has ended by itself: its process ends with it."""

    @abstractmethod
    def gone(self, member: Actor) -> None:
        """End the member's process, whatever ended it. In the hub."""

    @abstractmethod
    def send_again(self, partition: Partition, offset: int) -> None:
        """A producer has had no answer for a record that was stored."""

    @abstractmethod
    def retry(self, first: Placed, letter: Letter, at_ms: int) -> None:
        """A member sends a record to a retry topic. Raises DeadLetterError: it is not taken now."""

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
    def living(self) -> Sequence[Actor]:
        """Members whose process is there."""
        return [each for each in self.members if each.process.alive]

    def member_of(self, source: object) -> Actor | None:
        """The member that has that client of the broker."""
        return next((each for each in self.members if each.source is source), None)

    def say(self, who: str, what: object) -> None:
        """A line of the story."""
        if not self.scheduler.over:
            self.lines.append(Line(self.now, who, what))

    def placed(self, record: Record) -> Placed:
        """The book's entry of a record that a handler got: by its value, which no other has."""
        if record.topic in self.retry_topics:
            return self.retried[record.value, record.partition, record.offset]
        return (self.copies and self.copies.get((record.value, record.offset))) or self.by_value[record.value]

    def placed_at(self, member: Actor, partition: Partition, offset: int) -> Placed:
        """The book's entry of a record by what a member tells of it."""
        return self.book.records[self.ground.number(partition, offset, member.source)]

    def log(self, partition: Partition) -> LogName:
        """Which log that partition has now, or had last."""
        return LogName(partition, self.ids[partition.topic])

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

    def logs(self) -> Collection[LogName]:
        """Implements `Sight.logs`."""
        return {*self.book.logs, *map(self.log, self.broker.logs)}

    def owner(self, log: LogName) -> str | None:
        """Implements `Sight.owner`."""
        return self.store.owner(self.ground.position(log.partition))

    def owned(self, log: LogName) -> Hashable:
        """Implements `Sight.owned`."""
        return self.store.owned(self.ground.position(log.partition))

    def held(self, key: tuple[str, str]) -> Hashable:
        """Implements `Sight.held`."""
        return self.store.held(ClaimKey(*key))


def _store(world: World, scheduler: Scheduler) -> StoreServer:
    if world.store == "specification":
        return SimulatedStore(scheduler, lease_s=world.lease_s, timeout_s=world.store_timeout_s)
    # Asked for only here: who has not installed lupa plays the others.
    from tests.simulation.lua.lua_store import LuaStore  # noqa: PLC0415

    digests = world.store == "digests"
    return LuaStore(scheduler, lease_s=world.lease_s, timeout_s=world.store_timeout_s, hash_keys=digests)
