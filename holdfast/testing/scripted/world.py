"""ScriptedWorld, START HERE: a simulated broker, a simulated store and virtual time around the user's own app."""

from __future__ import annotations

import asyncio
import zlib
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Literal, get_args

from holdfast.plugin.retrying.failures import words_of
from holdfast.plugin.retrying.retry_topics import steps_of
from holdfast.records import Partition, Record
from holdfast.testing.brokers.kafka_group import Rebalancing
from holdfast.testing.records import make_record
from holdfast.testing.scheduler import Scheduler
from holdfast.testing.scripted.book import Book, place
from holdfast.testing.scripted.cluster import GROUP, Cluster
from holdfast.testing.scripted.effects import Effects
from holdfast.testing.scripted.member import Member
from holdfast.testing.scripted.promises import Promises
from holdfast.testing.scripted.store import Store
from holdfast.testing.scripted.story import Story

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import TracebackType
    from typing import Self

    from holdfast.plugin.handlers import Handler
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.testing.scripted.effects import Effect
    from holdfast.testing.scripted.member import MakeApp

#: Time between looks whether the world is at rest; and for how long it must be at rest.
_LOOK_S, _REST_S = 0.25, 2.0


class ScriptedWorld(Promises):
    """The world of the fixture `world`, for one test in one thread. `close` ends it, as the end of a `with` does.

    Time is virtual: an hour of waiting costs milliseconds, and a test runs the same each time. A handler takes no time,
    unless it calls `world.sleep(seconds)`, or awaits `asyncio.sleep(seconds)` in a coroutine.

    Args:
        seed: decides the order of threads that could run at the same time. Another seed is another interleaving.
        protocol: "consumer" and "cooperative": a member keeps handling the partitions that stay while others move.
            "eager": a member gives up all partitions.
        partitions: of a topic that the test has not made with `topic`.
        session_timeout_s: the broker removes a member that is silent for so many virtual seconds.
        jitter: False = woken threads go on at once, in the order of waking. The story of a failure that does not need
            jitter is shorter so.

    Raises:
        RuntimeError: made inside a running event loop: write the test as a plain function.
        ValueError: no such protocol.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        protocol: Literal["consumer", "cooperative", "eager"] = "consumer",
        partitions: int = 4,
        session_timeout_s: float = 10.0,
        jitter: bool = True,
    ) -> None:
        if protocol not in get_args(Rebalancing):
            raise ValueError(f"protocol={protocol!r}: use one of {', '.join(get_args(Rebalancing))}")
        self.seed = seed
        #: Used inside this package only.
        self.scheduler = Scheduler(seed, jitter=jitter)
        self._began_at = self.scheduler.now
        self.told = Story(seed, lambda: self.now)
        self.cluster = Cluster(self.scheduler, self.say, protocol=protocol, session_timeout_s=session_timeout_s)
        self.cluster.letters = self._lettered
        #: The store and its faults: `world.store.silent(30)`.
        self.store = Store(self.scheduler, self.cluster.broker, self.say, lambda: self.book.forgot())  # noqa: PLW0108
        self.book = Book(GROUP, self.store)
        self.book.born_in = self.cluster.retry_topics
        self.members: list[Member] = []
        self._partitions = partitions
        self._round = count()
        self._chance = Random(f"{seed} handlers")
        self._takes_s = 0.0
        self._due = 0
        self._rests_since: float | None = None

    # ---- what there is
    @property
    def now(self) -> float:
        """Virtual seconds since the world began."""
        return self.scheduler.now - self._began_at

    @property
    def story(self) -> str:
        """All events until now, one line each: `print(world.story)`."""
        return self.told.whole()

    @property
    def dead_letters(self) -> list[Letter]:
        """The dead letters: `letter.record`, `letter.topic`, `letter.reason`."""
        return self.book.letters

    def committed(self, topic: str, number: int) -> int | None:
        """The group's committed offset (the next offset to read); None = none."""
        return self.cluster.group.offset(Partition(topic, number))

    def topic(self, name: str, partitions: int) -> None:
        """Make a topic with so many partitions, or add partitions to it."""
        self.cluster.broker.create(name, partitions)

    def produce(
        self,
        topic: str,
        *values: object,
        key: str | bytes | None = None,
        partition: int | None = None,
        headers: Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]] = (),
    ) -> None:
        """Send records now. Records of one key go to one partition; records without a key go to the partitions in turn.

        Args:
            topic: is made if it does not exist.
            values: one record each, encoded as `make_record` does: any value but bytes and text becomes JSON.
            key: of each record.
            partition: of each record, instead of the key's.
            headers: of each record.
        """
        for value in values:
            self.send(make_record(value, topic=topic, key=key, headers=headers), partition)

    def send(self, record: Record, partition: int | None = None) -> None:
        """Send a record from `make_record`. Its topic, key, value and headers are sent; its offset is not used."""
        have = self._ensure(record.topic)
        if partition is None:
            partition = next(self._round) % have if record.key is None else zlib.crc32(record.key) % have
        self.cluster.produce(record, partition)
        self.say(
            "test",
            f"sends {record.topic}-{partition} {(record.value or b'').decode('utf-8', 'replace')[:60]}",
            daily=True,
        )

    def member(self, make_app: MakeApp, name: str | None = None, *, restart: bool = False) -> Member:
        """Start a process of your program.

        Args:
            make_app: called with a source and a store of claims, which it passes to the `Holdfast` that it returns. Its
                errors are raised here.
            name: for the story; by default a, b, c, ...
            restart: True = a supervisor restarts it after it ends with an error.
        """
        number = len(self.members)
        name = name or (chr(ord("a") + number) if number < 26 else f"m{number}")
        made = Member(self, make_app, name, restart=restart)
        self.members.append(made)
        return made

    def effects(self, name: str) -> Effects:
        """A list for the effects of your handlers: `charged.append(order_id)`. It notes the time and the handler call
        of each item, for messages. Assertions take any list."""
        return Effects(name, self._done, lambda: self.now)

    # ---- time
    def sleep(self, seconds: float) -> None:
        """Sleep in a handler for so many virtual seconds. `time.sleep` would let no virtual time pass.

        Raises:
            RuntimeError: called by the test itself; use `run` there.
        """
        current = self.scheduler.current
        if current is None:
            raise RuntimeError("world.sleep is for handlers; a test says world.run(for_s=...)")
        current.process.runtime.sleep(seconds)

    def after(self, seconds: float, call: Callable[[], object]) -> None:
        """Run a call after so many virtual seconds: `world.after(3, a.crash)`."""
        self._due += 1

        def then() -> None:
            self._due -= 1
            call()

        self.scheduler.at(self.scheduler.now + seconds, then)

    def run(
        self, for_s: float | None = None, *, until: Callable[[], object] | None = None, within_s: float = 600.0
    ) -> None:
        """Let time pass: for so many seconds, or until a condition is true: `world.run(until=lambda: a.handling)`.

        Args:
            for_s: virtual seconds.
            until: the condition, asked before each step.
            within_s: virtual seconds within which it must become true.

        Raises:
            AssertionError: the condition is not true in time, or a thread ended with an error.
            RuntimeError: called inside an event loop.
            TypeError: neither or both of `for_s` and `until`.
        """
        __tracebackhide__ = True
        if (for_s is None) == (until is None):
            raise TypeError("say one of both: world.run(for_s=5), or world.run(until=lambda: ...)")
        if not self._play(until or (lambda: False), within_s if for_s is None else for_s) and until is not None:
            raise self.told.failure(f"after {within_s:g} s that was not so which was waited for")

    def settle(self, within_s: float = 600.0) -> None:
        """Let time pass until all records are handled and committed, all moves are done, and no member is frozen.

        Raises:
            AssertionError: the world is not at rest within `within_s` virtual seconds; the message says what is left.
            RuntimeError: called inside an event loop.
        """
        __tracebackhide__ = True
        self._rests_since = None
        self._look()
        rests = self._play(self._at_rest, within_s)
        if not rests:
            raise self.told.failure(f"the world does not come to rest: {'; '.join(self._left()) or 'no member runs'}")

    def handlers_take(self, up_to_s: float) -> None:
        """From now on each call of a handler sleeps up to so many seconds, by chance, before it runs and after. So
        faults also strike in the middle of calls."""
        self._takes_s = up_to_s

    # ---- what goes wrong; see also Member and `store`
    def refuse_commits(self, topic: str, number: int, times: int = 1) -> None:
        """Have the broker refuse the next commits of a partition."""
        self.say("broker", f"takes no commit of {topic}-{number}, {times} times")
        self.cluster.refuse(Partition(topic, number), times)

    def refuse_dead_letters(self, *, refuse: bool = True) -> None:
        """Have the broker refuse dead letters, until a call with `refuse=False`."""
        self.say("broker", f"takes {'no' if refuse else 'the'} dead letters")
        self.cluster.letters_refused = refuse

    def reset(self, topic: str, number: int, offset: int = 0) -> None:
        """Set the group's offset, as `kafka-consumer-groups --reset-offsets` does. Records from there on are to be
        handled again, and their earlier calls do not count in assertions.

        Raises:
            RuntimeError: the group has members; Kafka refuses that as well.
        """
        if not self.cluster.group.reset(Partition(topic, number), offset):
            names = ", ".join(member.name for member in self.members if member.source in self.cluster.group.members)
            raise RuntimeError(f"a group that has members is not reset: stop {names}, and run the world")
        self.say("test", f"resets {topic}-{number} to {offset}")
        self.book.replayed(Partition(topic, number), offset)

    def close(self) -> None:
        """End the world and all that runs in it."""
        self.scheduler.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self.close()

    # ---- for this package
    def say(self, who: str, what: str, *, daily: bool = False) -> None:
        """Add a line to the story."""
        if not self.scheduler.over:
            self.told.add(who, what, daily=daily)

    def topics_of(self, handler: Handler) -> None:
        """Make the handler's topics that do not exist."""
        for topic in handler.topics:
            if not topic.startswith("^"):
                self._ensure(topic)
        for step in steps_of(handler.topics, handler.retry, GROUP):
            self.cluster.retry_topics[step.topic] = step.born_in
            self._ensure(step.topic)

    def takes(self) -> tuple[float, float]:
        """Seconds that the next call of a handler takes before it runs, and after."""
        if not self._takes_s:
            return 0.0, 0.0
        return self._chance.random() * self._takes_s, self._chance.random() * self._takes_s

    # ---- inside
    def _ensure(self, topic: str) -> int:
        if not self.cluster.has(topic):
            self.topic(topic, self._partitions)
        return self.cluster.partitions_of(topic)

    def _play(self, over: Callable[[], object], for_s: float) -> bool:
        __tracebackhide__ = True
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            raise RuntimeError("a world has event loops of its own: let the test be a plain function, no async def")
        reached = self.scheduler.run(lambda: bool(over() or self.scheduler.errors), self.scheduler.now + for_s)
        if self.scheduler.errors:
            crash = self.scheduler.errors.pop(0)
            raise self.told.failure(
                f"a thread of {crash.process} ({crash.task}) raised {words_of(crash.error, repr)}"
            ) from crash.error
        return reached

    def _look(self) -> None:
        rests = not self._due and not self._left() and any(member.alive for member in self.members)
        if not rests:
            self._rests_since = None
        elif self._rests_since is None:
            self._rests_since = self.now
        self.scheduler.at(self.scheduler.now + _LOOK_S, lambda: None if self._at_rest() else self._look())

    def _at_rest(self) -> bool:
        return self._rests_since is not None and self.now - self._rests_since >= _REST_S

    def _left(self) -> list[str]:
        """Reasons why the world is not at rest, as text."""
        left = [
            f"{member.name} has ended with {words_of(member.error, repr)}" for member in self.members if member.error
        ]
        left += [
            f"{each.name} has not joined yet" for each in self.members if each.alive and not each.source.has_opened
        ]
        left += [f"{member.name} stands still" for member in self.members if member.alive and member.source.stalled]
        left += [f"{call.handler} at {call.member} still has {call.where}" for call in self.book.running()]
        return left + self.cluster.moving() + self.cluster.behind()

    def _done(self, effects: Effects, effect: Effect) -> None:
        call = effect.call
        self.say(call.member if call else "test", f"{effects.name}: {effect.item!r}", daily=True)

    def _lettered(self, member: str, letter: Letter) -> None:
        if letter.topic in self.cluster.retry_topics:
            self.book.sent_on.add(place(letter.record))
        else:
            self.book.letters.append(letter)
        self.say(member, f"sends {place(letter.record)} to {letter.topic}: {words_of(letter.reason, repr)}")
