"""Stage: what all parts of a played world share: clock, broker, store, book and members.

Each part knows the stage, and the stage knows the parts by ports, so that no part knows all others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import TYPE_CHECKING, Protocol

from holdfast.dedup.claims import ClaimKey
from holdfast.plugin.ports import CommitFate
from holdfast.testing.scheduler import Scheduler
from holdfast.testing.store import SimulatedStore, StoreServer
from tests.simulation.database.server import DatabaseStore
from tests.simulation.drawing.world import LEASED
from tests.simulation.judging.effects import EffectJudges
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
    """A judge at a member's source."""

    @property
    def held(self) -> bool:
        """Whether the member's loop waits for an answer of the store or, in a poll, of the broker."""
        ...

    def look(self, engine: Engine | Driven) -> None:
        """Judge the intake."""
        ...

    def judge_polls(self) -> None:
        """Judge whether the member is polled."""
        ...


class Actor(Protocol):
    """A member, as other parts of its stage see it."""

    stage: Stage
    name: str
    process: Process
    #: The error that its app ended with.
    error: Exception | None
    #: How often it was asked to stop.
    stops: int
    #: Until then it is not judged: it has lost its partitions, its session, or the broker.
    thrown_out_until: float
    #: Whether it has lost its session or partitions, which then did not change owners in order.
    has_lost: bool
    #: When its session was lost last.
    session_lost_at: float
    #: Whether it was interrupted by Ctrl-C.
    interrupted: bool
    #: When a call of its loop was broken off last: it may have taken its partitions over anew since.
    torn_at: float

    @property
    def source(self) -> object:
        """The member's client of the broker."""
        ...

    @property
    def client(self) -> Onlooker | None:
        """The judges at the member's source; None = there are none for its kind."""
        ...

    @property
    def engine(self) -> Engine | Driven | None:
        """The engine, for the judges to look into."""
        ...

    @property
    def leaves_at_once(self) -> bool:
        """Whether it was asked to stop twice, and waits for nothing."""
        ...

    def stop(self) -> None:
        """Ask it to leave, as a signal does. In the hub."""
        ...

    def interrupt(self, after: int = 0) -> None:
        """Ctrl-C where the application has left it to Python, `after` waits later. In the hub."""
        ...

    def cut_off(self, seconds: float) -> None:
        """Member and broker may not hear each other for so long. In the hub."""
        ...

    def thrown_out(self) -> None:
        """Note that the member's partitions were taken away."""
        ...

    def gone(self) -> None:
        """End the process: its runs never end."""
        ...


class Stage(ABC):
    """The shared parts of a played world.

    Args:
        world: the world.
        ground_of: makes the ground.
    """

    def __init__(self, world: World, ground_of: Callable[[Stage], Ground]) -> None:
        self.world = world
        self.scheduler = scheduler = Scheduler(world.seed, jitter=world.jitter, yield_odds=world.yield_odds)
        self.began_at = scheduler.now
        #: Random numbers for delays outside of members.
        self.chance = Random(world.seed ^ 1)
        self.ground = ground_of(self)
        self.broker, self.group = self.ground.broker, self.ground.group
        #: Topic, also a deleted one -> its last id.
        self.ids = {topic.name: self.broker.id_of(topic.name) for topic in world.topics}
        self.store = _store(world, scheduler)
        self.book = Book(world.settings, ordered=world.broker not in LEASED)
        self.judges = _judges(world)(world, self.book, self, lambda: self.now)
        #: Value -> the book's entry; each record has its own value.
        self.by_value: dict[bytes | None, Placed] = {}
        #: (value, offset of a producer's copy) -> the book's entry.
        self.copies: dict[tuple[bytes | None, int], Placed] = {}
        #: Retry topics by name, and the book's entries there: a record that is retried is a new record.
        self.retry_topics = retry_topics_of(world)
        self.retried: dict[tuple[bytes | None, Partition, int], Placed] = {}
        for topic in self.retry_topics:
            self.broker.create(topic, PARTITIONS)
            self.ids[topic] = self.broker.id_of(topic)
        #: Number of a record -> how often calls for it are still to fail.
        self.fails: dict[int, int] = {}
        self.hangs: dict[int, int] = {}
        self.letters_down = False
        self.members: list[Actor] = []
        #: The number of members that had left when the group was last reset.
        self.left_before_reset = 0
        self.lines: list[Line] = []
        #: The number of commits that were judged.
        self._judged = 0
        #: Whether all members were asked to leave.
        self.ending = False

    # ---- members come and go
    @abstractmethod
    def join(self) -> None:
        """Start another process of the app."""

    @abstractmethod
    def left(self, member: Actor, *, expected: bool) -> None:
        """A member's app has ended by itself, and its process with it."""

    @abstractmethod
    def gone(self, member: Actor) -> None:
        """End the member's process, for any reason. In the hub."""

    @abstractmethod
    def send_again(self, partition: Partition, offset: int) -> None:
        """Store a record a second time, as a producer without an answer does."""

    @abstractmethod
    def retry(self, first: Placed, letter: Letter, at_ms: int) -> None:
        """A member sends a record to a retry topic. Raises DeadLetterError: the broker refuses it now."""

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
        """The members whose process runs."""
        return [each for each in self.members if each.process.alive]

    def member_of(self, source: object) -> Actor | None:
        """The member that has that client of the broker."""
        return next((each for each in self.members if each.source is source), None)

    def say(self, who: str, what: object) -> None:
        """Add a line to the story."""
        if not self.scheduler.over:
            self.lines.append(Line(self.now, who, what))

    def placed(self, record: Record) -> Placed:
        """The book's entry of a record that a handler got, by its value."""
        if record.topic in self.retry_topics:
            return self.retried[record.value, record.partition, record.offset]
        return (self.copies and self.copies.get((record.value, record.offset))) or self.by_value[record.value]

    def placed_at(self, member: Actor, partition: Partition, offset: int) -> Placed:
        """The book's entry of a record, by the partition and offset that a member uses."""
        return self.book.records[self.ground.number(partition, offset, member.source)]

    def log(self, partition: Partition) -> LogName:
        """The log that the partition has now, or had last."""
        return LogName(partition, self.ids[partition.topic])

    def judge_commits(self) -> None:
        """Judge all commits since the last call."""
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
            # RocketMQ accepts a commit that was under way at a reset; no member can prevent that.
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
        """The name of the partition's position at the store."""
        return self.ground.position(partition)

    def name_of(self, log: LogName) -> str:
        """The name of a log's position, also of a deleted log."""
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


def _judges(world: World) -> type[Judges]:
    return EffectJudges if world.store == "database" else Judges


def _store(world: World, scheduler: Scheduler) -> StoreServer:
    if world.store == "database":
        return DatabaseStore(scheduler, timeout_s=world.store_timeout_s, idle_s=world.idle_s)
    if world.store == "specification":
        return SimulatedStore(scheduler, lease_s=world.lease_s, timeout_s=world.store_timeout_s)
    # Imported only here: without lupa the other worlds can be played.
    from tests.simulation.lua.lua_store import LuaStore  # noqa: PLC0415

    digests = world.store == "digests"
    return LuaStore(scheduler, lease_s=world.lease_s, timeout_s=world.store_timeout_s, hash_keys=digests)
