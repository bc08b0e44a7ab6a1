"""Cluster: the broker of a scripted world, its one group, and the target assignment of partitions."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Protocol

from holdfast.errors import DeadLetterError
from holdfast.plugin.ports import CommitFate
from holdfast.plugin.retrying.dead_letter import headers_of
from holdfast.records import Partition
from holdfast.testing.brokers.kafka import MemoryBroker
from holdfast.testing.brokers.kafka_member import MemoryPartitionedSource
from holdfast.testing.brokers.logs import Stored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from holdfast.plugin.ports import DeadLetters, RebalanceListener, Start
    from holdfast.plugin.retrying.dead_letter import Letter
    from holdfast.records import Fence, Record
    from holdfast.testing.brokers.kafka_group import Rebalancing
    from holdfast.testing.process import Process
    from holdfast.testing.scheduler import Scheduler
    from holdfast.timing import Deadline

#: The name of the group that all members are in.
GROUP = "group"
#: Time between heartbeats. Real members send one each 3 or 5 seconds, and a rebalance takes two or three of them: many
#: tests would end before.
_BEAT_S = 0.1
#: Time between looks whether a silent member has lost its seat.
_LOOK_S = 0.1


class Say(Protocol):
    """Adds a line to the story."""

    def __call__(self, who: str, what: str, *, daily: bool = False) -> None:
        """Add an event that happens now."""
        ...


class Cluster:
    """Moves partitions, as a broker does when members come and go, or as a test says."""

    def __init__(self, scheduler: Scheduler, say: Say, *, protocol: Rebalancing, session_timeout_s: float) -> None:
        self._scheduler, self.say = scheduler, say
        self.session_timeout_s = session_timeout_s
        self.broker = MemoryBroker(scheduler.process("broker", preempted=False).runtime)
        self.group = self.broker.group(GROUP, protocol=protocol)
        self.letters: Callable[[str, Letter], None] = lambda _member, _letter: None
        self.letters_refused = False
        #: Retry topic -> the topic that its records come from.
        self.retry_topics: dict[str, str] = {}
        #: The sources of all processes ever started.
        self.ever: list[ScriptedSource] = []

    # ---- records and offsets
    def has(self, topic: str) -> bool:
        """Whether there is a topic of that name."""
        return self.broker.has(topic)

    def partitions_of(self, topic: str) -> int:
        """How many partitions the topic has."""
        return len(self.broker.of(topic))

    def produce(self, record: Record, number: int) -> None:
        """Store a record at the end of that partition."""
        self.broker.store(Partition(record.topic, number), Stored(record.key, record.value, tuple(record.headers)))

    def retry(self, letter: Letter, at_ms: int) -> None:
        """Store a letter in its retry topic."""
        record, number = letter.record, letter.record.offset
        number = zlib.crc32(record.key or str(number).encode()) % self.partitions_of(letter.topic)
        stored = Stored(record.key, record.value, tuple(headers_of(letter)), at_ms)
        self.broker.store(Partition(letter.topic, number), stored)

    def refuse(self, partition: Partition, times: int) -> None:
        """Refuse the next commits of that partition with an error that may be retried."""
        self.group.refuse(partition, *[CommitFate.AGAIN] * times)

    # ---- members
    def silent(self, source: ScriptedSource) -> None:
        """The member is silent from now on; the story has a line when its session ends. Called in the hub."""
        self.broker.settle()
        if source not in self.group.members:
            self.say("broker", f"{source.process.name} is silent: its partitions go to others")
        elif source.stalled or not source.process.alive:
            self._scheduler.at(self._scheduler.now + _LOOK_S, lambda: self.silent(source))

    # ---- what a test says
    def move(self, partitions: Sequence[Partition], to: ScriptedSource | None) -> None:
        """Plan these partitions for that member, until members come or go; None = for no member."""
        with self.broker.changed:
            group = self.group
            seat = next((each for each in group.seats.values() if each.member is to), None)
            target = {partition: meant for partition, meant in group.target.items() if partition not in partitions}
            group.target = target if seat is None else {**target, **dict.fromkeys(partitions, seat)}
            group.rules.changed()

    def lose(self, source: ScriptedSource, partitions: Sequence[Partition], to: ScriptedSource | None) -> None:
        """Take partitions from a member without a revocation, and plan them for another."""
        if to is not None:
            self.move(partitions, to)
        self.group.lose(source, *partitions)

    def another(self, than: ScriptedSource) -> ScriptedSource | None:
        """The member with the fewest partitions, of the others that run."""
        meant = [seat.member for seat in self.group.target.values()]
        able = [
            each
            for each in self.group.members
            if isinstance(each, ScriptedSource) and each is not than and each.process.alive and not each.stalled
        ]
        return min(able, key=meant.count) if able else None

    def of(self, source: ScriptedSource) -> list[Partition]:
        """The partitions that the member owns, as the broker sees it."""
        return self.group.of(source)

    def moving(self) -> list[str]:
        """Partitions whose owner is not the planned one, as text."""
        return [
            f"{partition} is on its way to {seat.member.name}"
            for partition, seat in sorted(self.group.target.items())
            if self.group.owners.get(partition) is not seat
        ]

    def behind(self) -> list[str]:
        """Partitions with records above the committed offset, as text."""
        return [
            f"{partition}: committed {self.group.offset(partition) or 0} of {log.end}"
            for partition, log in sorted(self.broker.logs.items())
            if log.end != (self.group.offset(partition) or 0) and any(each.wants(partition.topic) for each in self.ever)
        ]


class ScriptedSource(MemoryPartitionedSource):
    """The source of a user's app, in place of a KafkaSource. It brings the runtime of its process, and a sender of dead
    letters."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        session_s = cluster.session_timeout_s
        super().__init__(
            cluster.broker,
            GROUP,
            name=process.name,
            runtime=process.runtime,
            session_timeout_s=session_s,
            heartbeat_s=_BEAT_S,
        )
        self.process = process
        self.runtime = process.runtime
        cluster.ever.append(self)
        self._cluster, self._scheduler = cluster, cluster._scheduler  # noqa: SLF001 - of this file

    @property
    def has_opened(self) -> bool:
        """Whether its app has opened the source; before that it waits for the store."""
        return bool(self._topics)

    @property
    def stalled(self) -> bool:
        """Whether its process is frozen."""
        return self.process.stalled_until > self._scheduler.now

    def dead_letters(self) -> DeadLetters:
        """A sender of dead letters into the world."""
        return _Letters(self._cluster, self.process)

    def open(
        self,
        topics: Collection[str],
        listener: RebalanceListener,
        owners: Mapping[Partition, Fence],
        deadline: Deadline,
    ) -> None:
        """Implements `PartitionedSource.open`."""
        super().open(topics, _Told(listener, self.process.name, self._cluster.say), owners, deadline)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """Implements `PartitionedSource.commit`."""
        said = ", ".join(f"{partition} up to {offset}" for partition, offset in sorted(offsets.items()))
        self._cluster.say(self.process.name, f"commits {said}", daily=True)
        super().commit(offsets)


class _Told:
    """A listener of rebalances that adds them to the story and passes them on."""

    def __init__(self, listener: RebalanceListener, name: str, say: Say) -> None:
        self._listener, self._name, self._say = listener, name, say
        self.torn, self.committed = listener.torn, listener.committed
        self.reset, self.overwritten = listener.reset, listener.overwritten

    @property
    def store_id(self) -> str:
        return self._listener.store_id

    def assigned(self, partitions: Sequence[Partition]) -> Mapping[Partition, Start]:
        self._say(self._name, f"gets {_names(partitions)}")
        return self._listener.assigned(partitions)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        self._say(self._name, f"is to give up {_names(partitions)}")
        self._listener.revoked(partitions)
        self._say(self._name, f"has given up {_names(partitions)}")

    def lost(self, partitions: Sequence[Partition]) -> None:
        self._say(self._name, f"learns that it has lost {_names(partitions)}")
        self._listener.lost(partitions)


class _Letters:
    """Sends dead letters of one member. Any thread."""

    def __init__(self, cluster: Cluster, process: Process) -> None:
        self._cluster, self._process = cluster, process

    def check(self, topics: Collection[str], deadline: Deadline) -> None:
        """Implements `DeadLetters.check`: there is nothing to check."""

    def send(self, letter: Letter, deadline: Deadline) -> None:  # noqa: ARG002 - as of DeadLetters
        """Implements `DeadLetters.send`."""
        self._process.runtime.sleep(0.001)
        if self._cluster.letters_refused:
            raise DeadLetterError("the broker does not take dead letters now: the test says so")
        if letter.topic in self._cluster.retry_topics:
            self._cluster.retry(letter, self._process.runtime.wall_ms())
            self._process.runtime.sleep(0.001)  # the way of the broker's answer
        self._cluster.letters(self._process.name, letter)

    def close(self, deadline: Deadline) -> None:
        """Implements `DeadLetters.close`: there is nothing to close."""


def _names(partitions: Sequence[Partition]) -> str:
    return ", ".join(map(str, sorted(partitions)))
